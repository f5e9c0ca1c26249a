//! What readers know of the logs' ends without asking the database.

use crate::LedgerError;
use cuesta_format::LogId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use tokio::sync::watch;

/// Logs whose ends are remembered; beyond that all are forgotten, and read again where asked for.
const KNOWN_MAX: usize = 1 << 16;

/// Ends of logs, published by the committer alone and after the fsync, so that they are never ahead of the disk nor
/// behind an acknowledgement.
#[derive(Default)]
pub(super) struct Ends(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    known: BTreeMap<LogId, Known>,
    watchers: BTreeMap<LogId, watch::Sender<u64>>,
}

#[derive(Clone, Copy)]
enum Known {
    End(u64),
    Dropped,
}

impl Ends {
    /// The log's end, if the committer wrote to the log lately.
    pub(super) fn known(&self, log: LogId) -> Option<Result<u64, LedgerError>> {
        self.0.lock().known.get(&log).map(|known| match known {
            Known::End(end) => Ok(*end),
            Known::Dropped => Err(LedgerError::Dropped { log }),
        })
    }

    /// A log has a new end.
    pub(super) fn publish(&self, log: LogId, end: u64) {
        let mut inner = self.0.lock();
        inner.remember(log, Known::End(end));
        if let Some(watchers) = inner.watchers.get(&log) {
            watchers.send_replace(end);
        }
    }

    /// A log is gone; its watchers are told.
    pub(super) fn dropped(&self, log: LogId) {
        let mut inner = self.0.lock();
        inner.remember(log, Known::Dropped);
        inner.watchers.remove(&log);
    }

    /// Follows a log from now on.
    pub(super) fn watch(&self, log: LogId) -> Watch<'_> {
        let receiver = self.0.lock().watchers.entry(log).or_default().subscribe();
        Watch {
            ends: self,
            log,
            receiver,
        }
    }
}

impl Inner {
    fn remember(&mut self, log: LogId, known: Known) {
        if self.known.len() >= KNOWN_MAX && !self.known.contains_key(&log) {
            self.known.clear();
        }
        self.known.insert(log, known);
    }
}

/// One who follows a log. The last one to go takes the log's channel along.
pub(super) struct Watch<'a> {
    ends: &'a Ends,
    log: LogId,
    receiver: watch::Receiver<u64>,
}

impl Watch<'_> {
    /// The end once it is above `than`; `None` if the log is gone.
    pub(super) async fn beyond(&mut self, than: u64) -> Option<u64> {
        self.receiver.wait_for(|end| *end > than).await.ok().map(|end| *end)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut inner = self.ends.0.lock();
        if inner
            .watchers
            .get(&self.log)
            .is_some_and(|watchers| watchers.receiver_count() <= 1)
        {
            inner.watchers.remove(&self.log);
        }
    }
}
