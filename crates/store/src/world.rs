//! Clock, randomness and worker threads as values. A component is given them when it is made.

use crate::turns;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Tells the time: milliseconds since the Unix epoch.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> i64 + Send + Sync>);

impl Clock {
    /// The operating system's clock.
    // The one place that may ask the operating system.
    #[allow(clippy::disallowed_methods)]
    pub fn system() -> Self {
        Self::new(|| {
            let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
            i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
        })
    }

    /// A clock that answers what `now_ms` says.
    pub fn new(now_ms: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now_ms))
    }

    /// Milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> i64 {
        (self.0)()
    }
}

/// A source of random bits: the operating system's, or a seeded one that repeats itself.
#[derive(Clone)]
pub struct Entropy(Source);

#[derive(Clone)]
enum Source {
    System,
    Seeded(Arc<Mutex<u64>>),
}

impl Entropy {
    /// The operating system's randomness.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// The same bits in the same order for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self(Source::Seeded(Arc::new(Mutex::new(seed))))
    }

    /// 64 random bits.
    pub fn bits64(&self) -> u64 {
        match &self.0 {
            Source::System => fastrand::u64(..),
            Source::Seeded(state) => split_mix(&mut state.lock()),
        }
    }

    /// 128 random bits, enough for an id that nobody else will choose.
    pub fn bits128(&self) -> u128 {
        match &self.0 {
            Source::System => STOCK.with_borrow_mut(Stock::take),
            Source::Seeded(_) => u128::from(self.bits64()) << 64 | u128::from(self.bits64()),
        }
    }
}

/// Random bits for so many ids come from the kernel at once.
const STOCK_IDS: usize = 32;

thread_local! {
    static STOCK: RefCell<Stock> = const { RefCell::new(Stock { ids: [0; STOCK_IDS], left: 0 }) };
}

/// Ids for one thread. They must not collide between nodes, so they are the kernel's bits and not those of a user-space generator;
/// each is given once.
struct Stock {
    ids: [u128; STOCK_IDS],
    left: usize,
}

impl Stock {
    fn take(&mut self) -> u128 {
        if self.left == 0 {
            let mut bytes = [0; 16 * STOCK_IDS];
            if let Err(error) = getrandom::fill(&mut bytes) {
                panic!("the operating system gives no randomness: {error}");
            }
            for (id, bytes) in self.ids.iter_mut().zip(bytes.as_chunks::<16>().0) {
                *id = u128::from_le_bytes(*bytes);
            }
            self.left = STOCK_IDS;
        }
        self.left -= 1;
        self.ids.get_mut(self.left).map_or(0, std::mem::take)
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): enough for a simulation's choices.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Where work longer than a millisecond runs, off the reactor.
#[derive(Clone)]
pub enum Workers {
    /// On the runtime's pool of blocking threads.
    Pool(tokio::runtime::Handle),
    /// At once, on the calling thread: a simple test's choice. What such work awaits must not need the reactor.
    Inline,
    /// On threads that take turns with the reactor, so that the order of events is always the same: a simulation's choice.
    Turns(tokio::runtime::Handle),
}

impl Workers {
    /// Runs `work` where it may block; panics travel on to the caller.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        match self {
            Self::Pool(handle) => match handle.spawn_blocking(work).await {
                Ok(value) => value,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
            Self::Inline => work(),
            Self::Turns(handle) => turns::run(handle, work).await,
        }
    }

    /// Waits for `future` from within [`Workers::run`].
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        match self {
            Self::Pool(handle) => handle.block_on(future),
            Self::Inline => futures::executor::block_on(future),
            Self::Turns(_) => turns::wait(future),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_itself() {
        let draw = |seed| {
            let entropy = Entropy::seeded(seed);
            [entropy.bits128(), entropy.bits128()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[tokio::test]
    async fn all_kinds_give_the_same() {
        let handle = tokio::runtime::Handle::current;
        for workers in [Workers::Pool(handle()), Workers::Inline, Workers::Turns(handle())] {
            let inner = workers.clone();
            assert_eq!(workers.run(move || inner.wait(async { 42 })).await, 42);
        }
    }

    /// Pieces of work that wait for one another, for time and for tasks, in an order that never changes.
    fn events_of_turns() -> Vec<(u64, u64)> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let workers = Workers::Turns(runtime.handle().clone());
        let events = Arc::new(Mutex::new(Vec::new()));
        let work = |number: u64| {
            let (workers, events) = (workers.clone(), Arc::clone(&events));
            let inner = workers.clone();
            async move {
                let work = move || {
                    for step in 0..3 {
                        inner.wait(async {
                            let nap = tokio::spawn(tokio::time::sleep(Duration::from_millis(1 + (number + step) % 3)));
                            nap.await.unwrap();
                        });
                        events.lock().push((number, step));
                    }
                };
                workers.run(work).await;
            }
        };
        runtime.block_on(futures::future::join_all((0..4).map(work)));
        // One that is dropped goes on; one that the runtime leaves behind ends.
        let left = Workers::Turns(runtime.handle().clone());
        let waiting = left.clone();
        runtime.block_on(async {
            let never = left.run(move || waiting.wait(std::future::pending::<()>()));
            assert!(tokio::time::timeout(Duration::from_millis(1), never).await.is_err());
        });
        drop(runtime);
        Arc::try_unwrap(events).unwrap().into_inner()
    }

    #[test]
    fn turns_repeat_themselves() {
        let events = events_of_turns();
        assert_eq!(events.len(), 12);
        assert_eq!(events, events_of_turns());
    }

    #[tokio::test]
    #[should_panic(expected = "as expected")]
    async fn a_panic_in_a_turn_travels_on() {
        Workers::Turns(tokio::runtime::Handle::current())
            .run(|| panic!("as expected"))
            .await
    }
}
