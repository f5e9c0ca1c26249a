//! Memory for pushes: how much there is, and who waits for it behind whom.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A unit of memory: what the lanes count.
const UNIT_BYTES: u64 = 1 << 10;
/// Small pushes have a lane of their own, one part in this many of the memory.
const SMALL_LANE_SHARE: u64 = 4;
/// So many small pushes fit their lane at once, at least.
const SMALL_PUSHES_MIN: u64 = 8;
/// Memory of a push that does not say how long it is, or is long: what the engine holds before it spills.
const LARGE_PUSH_BYTES: u64 = 48 << 20;
/// A push of known length takes that many times its length, and at least a little.
const SMALL_PUSH_FACTOR: u64 = 8;
const SMALL_PUSH_BYTES_MIN: u64 = 64 << 10;

/// The memory that all pushes of a node may take together.
///
/// In two lanes, so that a few large pushes whose senders are slow do not keep the small ones waiting, nor the other way
/// round. Within a lane who came first goes first.
pub struct PushMemory {
    small: Lane,
    large: Lane,
}

struct Lane {
    free: Arc<Semaphore>,
    units: u32,
}

impl PushMemory {
    /// Memory of so many bytes.
    pub fn new(bytes_max: u64) -> Self {
        let small = bytes_max / SMALL_LANE_SHARE;
        Self {
            small: Lane::new(small),
            large: Lane::new(bytes_max - small),
        }
    }

    /// Waits until there is memory for a push of `len` bytes, if that is known. It is given back when the permit is dropped.
    pub async fn admit(&self, len: Option<u64>) -> Option<OwnedSemaphorePermit> {
        let need = len.map_or(LARGE_PUSH_BYTES, |len| {
            let need = len.saturating_mul(SMALL_PUSH_FACTOR);
            need.clamp(SMALL_PUSH_BYTES_MIN, LARGE_PUSH_BYTES)
        });
        let need = units(need);
        let is_small = u64::from(need) * SMALL_PUSHES_MIN <= u64::from(self.small.units);
        let lane = if is_small { &self.small } else { &self.large };
        lane.free.clone().acquire_many_owned(need.min(lane.units)).await.ok()
    }
}

impl Lane {
    fn new(bytes: u64) -> Self {
        let units = units(bytes).max(1);
        Self {
            free: Arc::new(Semaphore::new(units as usize)),
            units,
        }
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX >> 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const BYTES_MAX: u64 = 128 << 20;

    fn now(memory: &PushMemory, len: Option<u64>) -> Option<OwnedSemaphorePermit> {
        memory.admit(len).now_or_never().flatten()
    }

    fn all(memory: &PushMemory, len: Option<u64>) -> Vec<OwnedSemaphorePermit> {
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
