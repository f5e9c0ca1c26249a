//! The log store with its appends counted.

use async_trait::async_trait;
use bytes::Bytes;
use cuesta_format::LogId;
use cuesta_ledger::{Appended, Base, LedgerError, Limits, LogStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What has been asked of a log store.
#[derive(Debug, Default)]
pub struct LogCounters {
    appends: AtomicU64,
    appended_bytes: AtomicU64,
    append_failures: AtomicU64,
    ends: AtomicU64,
}

/// A reading of [`LogCounters`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogTally {
    /// Entries made durable; each is a group of edits.
    pub appends: u64,
    /// Their bytes.
    pub appended_bytes: u64,
    /// Appends that were overtaken by another's, or failed.
    pub append_failures: u64,
    /// Times the end of a log was asked for.
    pub ends: u64,
}

impl LogCounters {
    /// The figures of this moment.
    pub fn tally(&self) -> LogTally {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogTally {
            appends: load(&self.appends),
            appended_bytes: load(&self.appended_bytes),
            append_failures: load(&self.append_failures),
            ends: load(&self.ends),
        }
    }
}

/// Counts, and passes on.
pub struct MeteredLog {
    store: Arc<dyn LogStore>,
    counters: Arc<LogCounters>,
}

impl MeteredLog {
    /// Counts what is asked of `store`.
    pub fn new(store: Arc<dyn LogStore>, counters: Arc<LogCounters>) -> Self {
        Self { store, counters }
    }
}

#[async_trait]
impl LogStore for MeteredLog {
    fn limits(&self) -> Limits {
        self.store.limits()
    }

    async fn append(&self, log: LogId, number: u64, entry: Bytes) -> Result<Appended, LedgerError> {
        let bytes = entry.len() as u64;
        let appended = self.store.append(log, number, entry).await;
        if matches!(appended, Ok(Appended::Done)) {
            self.counters.appends.fetch_add(1, Ordering::Relaxed);
            self.counters.appended_bytes.fetch_add(bytes, Ordering::Relaxed);
        } else {
            self.counters.append_failures.fetch_add(1, Ordering::Relaxed);
        }
        appended
    }

    async fn read(&self, log: LogId, from: u64, bytes_max: usize) -> Result<Vec<(u64, Bytes)>, LedgerError> {
        self.store.read(log, from, bytes_max).await
    }

    async fn end(&self, log: LogId) -> Result<u64, LedgerError> {
        self.counters.ends.fetch_add(1, Ordering::Relaxed);
        self.store.end(log).await
    }

    fn end_known(&self, log: LogId) -> Option<u64> {
        self.store.end_known(log)
    }

    async fn base(&self, log: LogId) -> Result<Base, LedgerError> {
        self.store.base(log).await
    }

    async fn advance(&self, log: LogId, base: Base) -> Result<(), LedgerError> {
        self.store.advance(log, base).await
    }

    async fn changed(&self, log: LogId, than: u64) -> Result<u64, LedgerError> {
        self.store.changed(log, than).await
    }

    async fn drop_log(&self, log: LogId) -> Result<(), LedgerError> {
        self.store.drop_log(log).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuesta_ledger::MemoryStore;

    #[tokio::test]
    async fn appends_are_counted_by_outcome() {
        let counters = Arc::new(LogCounters::default());
        let store = MeteredLog::new(Arc::new(MemoryStore::new()), counters.clone());
        let (log, entry) = (LogId(7), Bytes::from_static(b"entry"));
        assert_eq!(store.append(log, 0, entry.clone()).await.unwrap(), Appended::Done);
        assert_eq!(store.append(log, 0, entry).await.unwrap(), Appended::Taken);
        assert_eq!(store.end(log).await.unwrap(), 1);
        let expected = LogTally {
            appends: 1,
            appended_bytes: 5,
            append_failures: 1,
            ends: 1,
        };
        assert_eq!(counters.tally(), expected);
    }
}
