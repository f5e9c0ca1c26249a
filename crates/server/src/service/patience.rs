//! How long a client may be silent: minutes, unless others wait for the memory that its request holds.

use super::admission::Queue;
use crate::http::request_body::BodyError;
use std::time::Duration;
use tokio::time::Instant;

/// How long a client may send nothing while others wait for the memory that its request holds.
pub(super) const CROWDED_SILENCE_MAX: Duration = Duration::from_secs(10);
/// What a client that was silent before, or was not listened to, has at least.
pub(super) const CROWDED_SILENCE_MIN: Duration = Duration::from_secs(1);

/// What one request's client is granted.
pub(super) struct Patience {
    /// Those who wait for what this request holds.
    queues: Vec<Queue>,
    /// When something came last.
    came: Instant,
}

impl Patience {
    /// With one who holds nothing.
    pub(super) fn new() -> Self {
        Self {
            queues: Vec::new(),
            came: Instant::now(),
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

    /// Waits for what comes `next`, or until patience ends.
    pub(super) async fn bear<T>(&mut self, next: impl Future<Output = Result<T, BodyError>>) -> Result<T, BodyError> {
        let ends = (self.came + CROWDED_SILENCE_MAX).max(Instant::now() + CROWDED_SILENCE_MIN);
        let next = tokio::select! {
            biased;
            next = next => next,
            () = queue_forms(&mut self.queues, ends) => Err(BodyError::HoldsUp),
        };
        self.came = Instant::now();
        next
    }
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
