//! How long a client may be silent, or slow: minutes, unless others wait for the memory that its request holds.

use super::admission::Queue;
use crate::http::request_body::BodyError;
use bytes::Bytes;
use std::time::Duration;
use tokio::time::Instant;

/// How long a client may send nothing while others wait for the memory that its request holds.
pub(super) const CROWDED_SILENCE_MAX: Duration = Duration::from_secs(10);
/// How many bytes earn a second of it anew: who sends less in a second, on the long run, is given up when others wait, so that
/// nobody keeps a place by a byte now and then.
pub(super) const CROWDED_BYTES_PER_SECOND_MIN: u32 = 4 << 10;

/// What one request's client is granted.
pub(super) struct Patience {
    /// Those who wait for what this request holds.
    queues: Vec<Queue>,
    /// How much longer it may be waited for. Only the time counts in which it is listened to.
    left: Duration,
}

impl Patience {
    /// With one who holds nothing.
    pub(super) fn new() -> Self {
        Self {
            queues: Vec::new(),
            left: CROWDED_SILENCE_MAX,
        }
    }

    /// From now on it ends early whenever there is such a queue.
    pub(super) fn holds_up(&mut self, queue: Queue) {
        self.queues.push(queue);
    }

    /// Nothing is held any more.
    pub(super) fn holds_nothing(&mut self) {
        self.queues.clear();
    }

    /// Waits for the bytes that come `next`, or until patience ends.
    pub(super) async fn bear(
        &mut self,
        next: impl Future<Output = Result<Option<Bytes>, BodyError>>,
    ) -> Result<Option<Bytes>, BodyError> {
        let listening = Listening {
            since: Instant::now(),
            left: &mut self.left,
        };
        let end = listening.since + *listening.left;
        let next = tokio::select! {
            biased;
            next = next => next,
            () = queue_forms(&mut self.queues, end) => Err(BodyError::HoldsUp),
        };
        drop(listening);
        let came = next.as_ref().map_or(0, |chunk| chunk.as_ref().map_or(0, Bytes::len));
        self.left = self.left.saturating_add(earned(came)).min(CROWDED_SILENCE_MAX);
        next
    }
}

/// Takes the time of a wait off what is left, also of one that is given up and begun anew.
struct Listening<'a> {
    since: Instant,
    left: &'a mut Duration,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        *self.left = self.left.saturating_sub(self.since.elapsed());
    }
}

/// The time that so many bytes are worth.
fn earned(bytes: usize) -> Duration {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    Duration::from_secs(1) * bytes / CROWDED_BYTES_PER_SECOND_MIN
}

/// Waits for one of the queues, at that time or later.
async fn queue_forms(queues: &mut [Queue], at: Instant) {
    if queues.is_empty() {
        return std::future::pending().await;
    }
    tokio::time::sleep_until(at).await;
    let any = queues.iter_mut().map(|queue| Box::pin(queue.forms()));
    futures::future::select_all(any).await;
}
