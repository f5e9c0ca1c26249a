//! Memory for pushes: how much there is, and who waits for it behind whom.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// A unit of memory: what the lanes count.
const UNIT_BYTES: u64 = 1 << 10;
/// Small pushes have a lane of their own, one part in this many of the memory.
const SMALL_LANE_SHARE: u64 = 4;
/// So many small pushes fit their lane at once, at least.
const SMALL_PUSHES_MIN: u64 = 8;
/// Memory of a push that does not say how long it is, or is long: what the engine holds before it spills.
const LARGE_PUSH_BYTES: u64 = 48 << 20;
/// A push that holds so much takes what its objects need in steps of so many bytes.
const GROWTH_BYTES: u64 = 4 << 20;
/// A push of known length takes that many times its length, and at least a little.
const SMALL_PUSH_FACTOR: u64 = 8;
const SMALL_PUSH_BYTES_MIN: u64 = 64 << 10;

/// The memory that all pushes of a node may take together.
///
/// In two lanes, so that a few large pushes whose senders are slow do not keep the small ones waiting, nor the other way
/// round. Within a lane who came first goes first.
///
/// A large push takes more as its objects come: how many there will be nobody knows before. Waiting for that while holding
/// memory, two could wait for each other for ever; so one push at a time may take more than there is, and all of them
/// together take the memory and what the objects of one push need.
pub struct PushMemory {
    small: Lane,
    large: Lane,
}

/// A part of a memory, and who waits for it. Clones share it.
#[derive(Clone)]
pub(super) struct Lane {
    free: Arc<Semaphore>,
    /// Whose turn it is to take more than there is.
    excess: Arc<Semaphore>,
    units: u32,
    /// How many wait.
    waiting: watch::Sender<usize>,
}

/// A request's part of a memory, given back when this is dropped.
pub struct Share {
    held: OwnedSemaphorePermit,
    /// The turn to take more than there is.
    excess: Option<OwnedSemaphorePermit>,
    lane: Lane,
}

/// Whether others wait for the memory that a request holds.
pub struct Queue(watch::Receiver<usize>);

/// One more who waits, until this is dropped.
struct Waiting<'a>(&'a watch::Sender<usize>);

impl PushMemory {
    /// Memory of so many bytes.
    pub fn new(bytes_max: u64) -> Self {
        let small = bytes_max / SMALL_LANE_SHARE;
        Self {
            small: Lane::new(small),
            large: Lane::new(bytes_max - small),
        }
    }

    /// Waits until there is memory for a push of `len` bytes, if that is known.
    pub async fn admit(&self, len: Option<u64>) -> Option<Share> {
        let need = len.map_or(LARGE_PUSH_BYTES, |len| {
            let need = len.saturating_mul(SMALL_PUSH_FACTOR);
            need.clamp(SMALL_PUSH_BYTES_MIN, LARGE_PUSH_BYTES)
        });
        let need = units(need);
        let is_small = u64::from(need) * SMALL_PUSHES_MIN <= u64::from(self.small.units);
        let lane = if is_small { &self.small } else { &self.large };
        lane.admit(need).await
    }
}

impl Share {
    /// Those who wait for it.
    pub fn queue(&self) -> Queue {
        Queue(self.lane.waiting.subscribe())
    }

    /// Takes what a large push needs for its objects beside what every large one takes; waits if there is not so much. For a
    /// small push its share is enough, whatever it consists of.
    pub async fn grow(&mut self, objects_bytes: u64) {
        let held = self.held.num_permits() as u64 * UNIT_BYTES;
        let steps = objects_bytes.div_ceil(GROWTH_BYTES);
        let need = LARGE_PUSH_BYTES.saturating_add(steps.saturating_mul(GROWTH_BYTES));
        if held < LARGE_PUSH_BYTES || held >= need || self.excess.is_some() {
            return;
        }
        let turns = Arc::clone(&self.lane.excess);
        tokio::select! {
            biased;
            Some(more) = self.lane.acquire(units(need - held)) => self.held.merge(more),
            Ok(turn) = turns.acquire_owned() => self.excess = Some(turn),
            // Nobody closes them.
            else => {}
        }
    }
}

impl Queue {
    /// Waits until somebody waits; for ever if nobody can.
    pub async fn forms(&mut self) {
        if self.0.wait_for(|waiting| *waiting > 0).await.is_err() {
            std::future::pending().await
        }
    }
}

impl<'a> Waiting<'a> {
    fn new(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|count| *count += 1);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Lane {
    /// So many bytes.
    pub(super) fn new(bytes: u64) -> Self {
        let units = units(bytes).max(1);
        Self {
            free: Arc::new(Semaphore::new(units as usize)),
            excess: Arc::new(Semaphore::new(1)),
            units,
            waiting: watch::Sender::new(0),
        }
    }

    /// Waits for so many units, or for all there are.
    pub(super) async fn admit(&self, units: u32) -> Option<Share> {
        Some(Share {
            held: self.acquire(units.min(self.units)).await?,
            excess: None,
            lane: self.clone(),
        })
    }

    async fn acquire(&self, units: u32) -> Option<OwnedSemaphorePermit> {
        // Nobody is overtaken: what is free while somebody waits is already theirs.
        if let Ok(held) = self.free.clone().try_acquire_many_owned(units) {
            return Some(held);
        }
        let _waiting = Waiting::new(&self.waiting);
        self.free.clone().acquire_many_owned(units).await.ok()
    }
}

/// What lanes count by.
pub(super) fn units(bytes: u64) -> u32 {
    u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX >> 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const BYTES_MAX: u64 = 128 << 20;

    fn now(memory: &PushMemory, len: Option<u64>) -> Option<Share> {
        memory.admit(len).now_or_never().flatten()
    }

    fn all(memory: &PushMemory, len: Option<u64>) -> Vec<Share> {
        std::iter::from_fn(|| now(memory, len)).collect()
    }

    #[test]
    fn large_pushes_leave_room_for_small_ones() {
        let memory = PushMemory::new(BYTES_MAX);
        let held = all(&memory, None);
        assert_eq!(held.len(), 2);
        assert_eq!(all(&memory, Some(12 << 10)).len(), 32 * 1024 / 96);
    }

    #[test]
    fn small_pushes_leave_room_for_large_ones() {
        let memory = PushMemory::new(BYTES_MAX);
        let held = all(&memory, Some(100));
        assert_eq!(held.len(), 32 * 1024 / 64);
        assert!(now(&memory, Some(100)).is_none());
        assert!(now(&memory, Some(1 << 30)).is_some());
    }

    #[test]
    fn what_is_given_back_can_be_had_again() {
        let memory = PushMemory::new(BYTES_MAX);
        let held = all(&memory, None);
        drop(held);
        assert_eq!(all(&memory, None).len(), 2);
    }

    #[tokio::test]
    async fn who_holds_memory_learns_that_others_wait() {
        let memory = PushMemory::new(BYTES_MAX);
        let held = all(&memory, None);
        let mut queue = held[0].queue();
        assert!(queue.forms().now_or_never().is_none());
        // The other lane is another queue.
        let small = all(&memory, Some(100));
        assert!(small[0].queue().forms().now_or_never().is_none());
        {
            let mut waiting = std::pin::pin!(memory.admit(None));
            assert!(futures::poll!(waiting.as_mut()).is_pending());
            assert!(queue.forms().now_or_never().is_some());
            drop(held);
            assert!(waiting.await.is_some());
        }
        assert!(queue.forms().now_or_never().is_none());
    }

    #[tokio::test]
    async fn who_gives_up_waiting_does_not_count() {
        let memory = PushMemory::new(BYTES_MAX);
        let held = all(&memory, None);
        assert!(now(&memory, None).is_none());
        assert!(held[0].queue().forms().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_large_push_takes_more_for_its_objects() {
        let memory = PushMemory::new(BYTES_MAX);
        let mut share = memory.admit(None).await.unwrap();
        share.grow(GROWTH_BYTES).await;
        share.grow(1).await;
        assert!(share.excess.is_none());
        assert_eq!(
            share.held.num_permits() as u64 * UNIT_BYTES,
            LARGE_PUSH_BYTES + GROWTH_BYTES
        );
        // There is no room for two that grew.
        assert!(now(&memory, None).is_none());
        drop(share);
        assert_eq!(all(&memory, None).len(), 2);
    }

    #[tokio::test]
    async fn small_pushes_have_enough() {
        let memory = PushMemory::new(BYTES_MAX);
        let mut share = memory.admit(Some(100)).await.unwrap();
        let held = share.held.num_permits();
        share.grow(1 << 30).await;
        assert_eq!((share.held.num_permits(), share.excess.is_some()), (held, false));
    }

    #[tokio::test]
    async fn one_push_at_a_time_takes_more_than_there_is() {
        let memory = PushMemory::new(BYTES_MAX);
        let (mut one, mut other) = (memory.admit(None).await.unwrap(), memory.admit(None).await.unwrap());
        one.grow(1 << 40).await;
        assert!(one.excess.is_some());
        {
            let mut queue = one.queue();
            let mut waiting = std::pin::pin!(other.grow(GROWTH_BYTES));
            assert!(futures::poll!(waiting.as_mut()).is_pending());
            assert!(queue.forms().now_or_never().is_some());
            drop(one);
            waiting.await;
        }
        // From what the first gave back, or in its turn: either way it goes on, and everything comes back in the end.
        drop(other);
        assert_eq!(all(&memory, None).len(), 2);
        let mut alone = memory.admit(None).await.unwrap();
        alone.grow(u64::MAX).await;
        assert!(alone.excess.is_some());
    }

    #[test]
    fn the_smallest_memory_still_admits_every_push() {
        for bytes_max in [0, 1, 4 << 10, 64 << 10, 1 << 20] {
            let memory = PushMemory::new(bytes_max);
            for len in [None, Some(0), Some(1 << 20), Some(u64::MAX)] {
                assert!(now(&memory, len).is_some(), "{len:?} of {bytes_max}");
            }
        }
    }
}
