//! How far a long work is, for those who show it, and whether it should go on.

use crate::EngineError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Shared between a long work and those who watch it.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    stopped: AtomicBool,
    done: AtomicU64,
    total: AtomicU64,
}

impl Watch {
    /// Steps done, and steps there are in all; the latter is 0 until it is known.
    pub fn progress(&self) -> (u64, u64) {
        let done = self.inner.done.load(Ordering::Relaxed);
        (done, self.inner.total.load(Ordering::Relaxed))
    }

    /// Lets the work end at its next step, with [`EngineError::Stopped`].
    pub fn stop(&self) {
        self.inner.stopped.store(true, Ordering::Relaxed);
    }

    /// Stops the work when the answer is dropped.
    pub(crate) fn stop_on_drop(&self) -> StopOnDrop {
        StopOnDrop(self.clone())
    }

    pub(crate) fn check(&self) -> Result<(), EngineError> {
        match self.inner.stopped.load(Ordering::Relaxed) {
            true => Err(EngineError::Stopped),
            false => Ok(()),
        }
    }

    pub(crate) fn expect(&self, steps: u64) {
        self.inner.total.fetch_add(steps, Ordering::Relaxed);
    }

    pub(crate) fn advance(&self, steps: u64) {
        self.inner.done.fetch_add(steps, Ordering::Relaxed);
    }
}

/// See [`Watch::stop_on_drop`].
pub(crate) struct StopOnDrop(Watch);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
