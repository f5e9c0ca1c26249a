//! Memory for what is read of requests before anybody knows what they ask: wants and haves of fetches, commands of pushes.

use super::admission::{Lane, Share, units};
use super::patience::Patience;
use crate::http::request_body::BodyError;
use bytes::Bytes;
use std::sync::Arc;

/// So much of a request takes no memory but its connection's.
const FREE_BYTES_MAX: usize = 64 << 10;
/// A request of at most so many bytes takes this much; a longer one as much as it may become.
const MEDIUM_BYTES_MAX: usize = 1 << 20;
/// One part in this many of the memory is for medium requests alone.
const MEDIUM_LANE_SHARE: u64 = 4;

/// The memory that requests which are being read may take together.
///
/// In two lanes, and whoever has outgrown the first waits for the second before the first is given back: those in the second
/// wait for nobody, so that all come to an end.
pub struct RequestMemory {
    medium: Lane,
    large: Lane,
}

impl RequestMemory {
    /// Memory of so many bytes.
    pub fn new(bytes_max: u64) -> Self {
        let medium = bytes_max / MEDIUM_LANE_SHARE;
        Self {
            medium: Lane::new(medium),
            large: Lane::new(bytes_max - medium),
        }
    }
}

/// What one request holds, and how long its client may be silent meanwhile.
pub struct Hold {
    memory: Arc<RequestMemory>,
    len_max: usize,
    /// How long the request may be for what is held.
    covers: usize,
    share: Option<Share>,
    patience: Patience,
}

impl Hold {
    /// Nothing yet, for a request that may be `len_max` bytes long.
    pub fn new(memory: Arc<RequestMemory>, len_max: usize) -> Self {
        Self {
            memory,
            len_max,
            covers: FREE_BYTES_MAX,
            share: None,
            patience: Patience::new(),
        }
    }

    /// Waits until there is memory for a request of `len` bytes.
    pub async fn cover(&mut self, len: usize) {
        if len <= self.covers {
            return;
        }
        let (lane, need, covers) = if len <= MEDIUM_BYTES_MAX {
            (&self.memory.medium, MEDIUM_BYTES_MAX, MEDIUM_BYTES_MAX)
        } else {
            (&self.memory.large, self.len_max, usize::MAX)
        };
        let share = lane.admit(units(need as u64)).await;
        self.patience.holds_nothing();
        if let Some(share) = &share {
            self.patience.holds_up(share.queue());
        }
        self.share = share;
        self.covers = covers;
    }

    /// Waits for what comes next of the request, if its client is not silent or slow for too long.
    pub async fn bear(
        &mut self,
        next: impl Future<Output = Result<Option<Bytes>, BodyError>>,
    ) -> Result<Option<Bytes>, BodyError> {
        self.patience.bear(next).await
    }

    /// Gives all back: the request is done with.
    pub fn release(&mut self) {
        self.share = None;
        self.covers = FREE_BYTES_MAX;
        self.patience.holds_nothing();
    }

    /// What is held.
    pub fn share(&self) -> Option<&Share> {
        self.share.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const MIB: usize = 1 << 20;

    fn memory() -> Arc<RequestMemory> {
        Arc::new(RequestMemory::new(16 << 20))
    }

    /// Holds for requests of that length until there is no more.
    fn all(memory: &Arc<RequestMemory>, len: usize) -> Vec<Hold> {
        let one = || {
            let mut hold = Hold::new(memory.clone(), 6 * MIB);
            hold.cover(len).now_or_never().map(|()| hold)
        };
        std::iter::from_fn(one).take(100).collect()
    }

    #[test]
    fn each_length_takes_its_part() {
        for (len, expected) in [
            (FREE_BYTES_MAX, 100),
            (FREE_BYTES_MAX + 1, 4),
            (MEDIUM_BYTES_MAX, 4),
            (MEDIUM_BYTES_MAX + 1, 2),
            (6 * MIB, 2),
        ] {
            assert_eq!(all(&memory(), len).len(), expected, "{len}");
        }
    }

    #[test]
    fn who_grows_gives_the_smaller_part_back() {
        let memory = memory();
        let mut held = all(&memory, MIB);
        assert_eq!(held.len(), 4);
        assert!(held[0].cover(2 * MIB).now_or_never().is_some());
        assert!(held[1].cover(2 * MIB).now_or_never().is_some());
        assert!(held[2].cover(2 * MIB).now_or_never().is_none());
        assert_eq!(all(&memory, MIB).len(), 2);
        held[0].release();
        assert!(held[2].cover(2 * MIB).now_or_never().is_some());
        drop(held);
        assert_eq!(all(&memory, MIB).len(), 4);
    }

    #[test]
    fn the_smallest_memory_still_takes_every_request() {
        let memory = Arc::new(RequestMemory::new(0));
        for len in [1, MIB, 2 * MIB, 64 * MIB] {
            let mut hold = Hold::new(memory.clone(), 64 * MIB);
            assert!(hold.cover(len).now_or_never().is_some(), "{len}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_request_makes_room_for_others() {
        let memory = memory();
        let mut held = all(&memory, 6 * MIB);
        let mut next = Hold::new(memory.clone(), 6 * MIB);
        let silent = async {
            let nothing = std::future::pending::<Result<Option<Bytes>, BodyError>>();
            let ended = held[0].bear(nothing).await;
            held.remove(0);
            ended
        };
        let (ended, ()) = tokio::join!(silent, next.cover(6 * MIB));
        assert!(matches!(ended, Err(BodyError::HoldsUp)));
    }
}
