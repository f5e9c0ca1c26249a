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
    /// How often all were forgotten.
    forgotten: u64,
    watchers: BTreeMap<LogId, watch::Sender<u64>>,
}

#[derive(Clone, Copy)]
enum Known {
    End(u64),
    Dropped,
}

/// A moment before a read of the database: what it finds is news only if nothing was forgotten since.
#[derive(Clone, Copy)]
pub(super) struct Moment(u64);

impl Ends {
    /// Now.
    pub(super) fn moment(&self) -> Moment {
        Moment(self.0.lock().forgotten)
    }

    /// Remembers an end that was read from the database after `since`. What the committer published meanwhile stands: it is no
    /// older than what was read.
    pub(super) fn learn(&self, log: LogId, end: u64, since: Moment) {
        let mut inner = self.0.lock();
        if inner.forgotten == since.0 && !inner.known.contains_key(&log) {
            inner.remember(log, Known::End(end));
        }
    }

    /// The log's end, if the committer wrote to the log lately or somebody read it.
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
            self.forgotten += 1;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_remembered_unless_it_may_be_old() {
        let ends = Ends::default();
        let known = |log| ends.known(LogId(log)).map(|end| end.unwrap());
        let since = ends.moment();
        ends.learn(LogId(1), 5, since);
        assert_eq!(known(1), Some(5));
        // The read began before the append that was published meanwhile.
        ends.publish(LogId(2), 7);
        ends.learn(LogId(2), 6, since);
        assert_eq!(known(2), Some(7));
        ends.dropped(LogId(3));
        ends.learn(LogId(3), 6, since);
        assert!(matches!(ends.known(LogId(3)), Some(Err(LedgerError::Dropped { .. }))));
        // Nor is it known any more whether something was.
        ends.publish(LogId(4), 9);
        for log in 0..KNOWN_MAX as u128 {
            ends.publish(LogId(1000 + log), 1);
        }
        assert_eq!(known(4), None, "all were forgotten");
        ends.learn(LogId(4), 8, since);
        assert_eq!(known(4), None);
        ends.learn(LogId(4), 9, ends.moment());
        assert_eq!(known(4), Some(9));
    }
}
