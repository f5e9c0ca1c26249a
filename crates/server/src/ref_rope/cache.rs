//! The ropes of the repositories that were asked for lately.

use super::shown::{Defaults, Shown, hidden};
use super::{Form, Rope};
use cuesta_format::LogId;
use cuesta_ledger::State;
use cuesta_protocol::Service;
use cuesta_store::Workers;
use parking_lot::Mutex;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What one entry costs beside its bytes.
const ENTRY_OVERHEAD_BYTES: u64 = 1024;
/// A guess of a rope's size, from which the cache sizes its tables.
const ROPE_BYTES_GUESS: u64 = 16 << 10;
/// Refs that are written, or patched, on the reactor: a fraction of a millisecond.
const REFS_INLINE_MAX: usize = 1024;
const CHANGES_INLINE_MAX: usize = 256;

/// A rope: the repository's log, and the service it is for where others hide other refs.
type Key = (LogId, Option<Service>);

/// Ropes, each kept at the newest state that was asked for. Bounded in bytes: a rope that is larger than all of the cache is
/// written anew for whoever asks.
pub struct RopeCache {
    slots: Cache<Key, Slot, ByWeight>,
    hits: AtomicU64,
    misses: AtomicU64,
    defaults: Defaults,
}

#[derive(Clone)]
struct Slot {
    /// Held for the microseconds of a patch: those who wait for it would make the same.
    shown: Arc<Mutex<Shown>>,
    weight: u64,
}

#[derive(Clone)]
struct ByWeight;

impl Weighter<Key, Slot> for ByWeight {
    fn weight(&self, _: &Key, slot: &Slot) -> u64 {
        slot.weight + ENTRY_OVERHEAD_BYTES
    }
}

impl RopeCache {
    /// A cache of at most that many bytes, on a node with those settings.
    pub fn new(bytes_max: u64, defaults: Arc<BTreeMap<String, String>>) -> Self {
        let count = usize::try_from(bytes_max / ROPE_BYTES_GUESS).unwrap_or(usize::MAX);
        // One shard: a rope larger than a shard could not be kept.
        let options = OptionsBuilder::new()
            .estimated_items_capacity(count.max(1))
            .weight_capacity(bytes_max)
            .shards(1)
            .build();
        let slots = match options {
            Ok(options) => Cache::with_options(
                options,
                ByWeight,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
            Err(_) => Cache::with_weighter(count.max(1), bytes_max, ByWeight),
        };
        Self {
            slots,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            defaults,
        }
    }

    /// The refs that `service` shows of `state`, which is one of the log's, to be read in `form`.
    ///
    /// Cost: in proportion to the refs that differ from those shown last, if the log is in the cache.
    pub async fn rope(&self, log: LogId, state: &Arc<State>, service: Service, form: Form, workers: &Workers) -> Rope {
        let key = (log, own_service(state, &self.defaults, service));
        let slot = match self.slots.get(&key) {
            Some(slot) => {
                self.hits.fetch_add(1, Ordering::Relaxed);
                slot
            }
            None => {
                self.misses.fetch_add(1, Ordering::Relaxed);
                self.new_slot(key, state, service, workers).await
            }
        };
        if let Some(rope) = self.read(&key, &slot, state, form) {
            return rope;
        }
        let (old, state, defaults) = (slot.shown.lock().clone(), state.clone(), self.defaults.clone());
        let follow = move || {
            old.of(&state, usize::MAX)
                .unwrap_or_else(|| Shown::new(&state, service, &defaults))
        };
        let mut shown = workers.run(follow).await;
        shown.asked_for(form);
        let rope = shown.rope().clone();
        let mut kept = slot.shown.lock();
        self.keep(&key, &slot, &mut kept, shown);
        rope
    }

    /// Times a rope was found, and not.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }

    /// Written once, however many ask at the same time.
    async fn new_slot(&self, key: Key, state: &Arc<State>, service: Service, workers: &Workers) -> Slot {
        let write = async {
            let shown = if state.refs().len() <= REFS_INLINE_MAX {
                Shown::new(state, service, &self.defaults)
            } else {
                let (state, defaults) = (state.clone(), self.defaults.clone());
                workers.run(move || Shown::new(&state, service, &defaults)).await
            };
            let weight = shown.weight();
            let shown = Arc::new(Mutex::new(shown));
            Ok::<_, Infallible>(Slot { shown, weight })
        };
        match self.slots.get_or_insert_async(&key, write).await {
            Ok(slot) => slot,
            Err(never) => match never {},
        }
    }

    /// The rope of `state`, patched if need be; `None` if that would take long.
    fn read(&self, key: &Key, slot: &Slot, state: &State, form: Form) -> Option<Rope> {
        let mut kept = slot.shown.lock();
        if kept.number() == state.number() {
            kept.asked_for(form);
            self.weigh(key, slot, &kept);
            return Some(kept.rope().clone());
        }
        let mut shown = kept.of(state, CHANGES_INLINE_MAX)?;
        shown.asked_for(form);
        let rope = shown.rope().clone();
        self.keep(key, slot, &mut kept, shown);
        Some(rope)
    }

    /// Keeps what is newer.
    fn keep(&self, key: &Key, slot: &Slot, kept: &mut Shown, shown: Shown) {
        if shown.number() > kept.number() {
            *kept = shown;
            self.weigh(key, slot, kept);
        }
    }

    /// Tells the cache of a new weight.
    fn weigh(&self, key: &Key, slot: &Slot, kept: &Shown) {
        let weight = kept.weight();
        if weight != slot.weight {
            let shown = slot.shown.clone();
            self.slots.insert(*key, Slot { shown, weight });
        }
    }
}

/// The service, if it shows other refs than the other one does.
fn own_service(state: &State, defaults: &Defaults, service: Service) -> Option<Service> {
    let of = |service| hidden(state, defaults, service);
    let differs = of(Service::UploadPack) != of(Service::ReceivePack);
    differs.then_some(service)
}
