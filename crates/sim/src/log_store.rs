//! A log store in memory whose calls fail by plan, and the record of what truly became durable.

use crate::chaos::{Link, armed};
use async_trait::async_trait;
use bytes::Bytes;
use cuesta_format::LogId;
use cuesta_ledger::{Appended, Base, LedgerError, Limits, LogStore, MemoryStore};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// The log store that all nodes share, and every entry that it ever took.
#[derive(Default)]
pub struct SharedLogs {
    store: MemoryStore,
    entries: Mutex<BTreeMap<LogId, Vec<Bytes>>>,
    /// Some log has grown or ended.
    news: Notify,
}

impl SharedLogs {
    /// All entries of a log from its first, those that were deleted since included.
    pub fn entries(&self, log: LogId) -> Vec<Bytes> {
        self.entries.lock().get(&log).cloned().unwrap_or_default()
    }

    async fn append(&self, log: LogId, number: u64, entry: Bytes) -> Result<Appended, LedgerError> {
        let appended = self.store.append(log, number, entry.clone()).await?;
        if appended == Appended::Done {
            self.entries.lock().entry(log).or_default().push(entry);
            self.news.notify_waiters();
        }
        Ok(appended)
    }

    async fn changed(&self, log: LogId, than: u64) -> Result<u64, LedgerError> {
        loop {
            let news = armed(&self.news, || true);
            let end = self.store.end(log).await?;
            match news {
                Some(news) if end <= than => news.await,
                _ => return Ok(end),
            }
        }
    }

    async fn drop_log(&self, log: LogId) -> Result<(), LedgerError> {
        self.store.drop_log(log).await?;
        self.news.notify_waiters();
        Ok(())
    }
}

/// One node's way to the shared log store.
pub struct FaultyLog {
    shared: Arc<SharedLogs>,
    link: Link,
    inline_bytes_max: usize,
}

impl FaultyLog {
    /// The store `shared`, reached through `link`; it takes layers up to `inline_bytes_max`.
    pub fn new(shared: Arc<SharedLogs>, link: Link, inline_bytes_max: usize) -> Self {
        Self {
            shared,
            link,
            inline_bytes_max,
        }
    }
}

fn fault(what: &'static str) -> LedgerError {
    LedgerError::unavailable("reach the log store", std::io::Error::other(what))
}

#[async_trait]
impl LogStore for FaultyLog {
    fn limits(&self) -> Limits {
        Limits {
            inline_bytes_max: self.inline_bytes_max,
            ..self.shared.store.limits()
        }
    }

    async fn append(&self, log: LogId, number: u64, entry: Bytes) -> Result<Appended, LedgerError> {
        let shared = Arc::clone(&self.shared);
        let name = format!("append {log} {number} {}", entry.len());
        let act = async move { shared.append(log, number, entry).await };
        self.link.call(name, fault, act).await
    }

    async fn read(&self, log: LogId, from: u64, bytes_max: usize) -> Result<Vec<(u64, Bytes)>, LedgerError> {
        let shared = Arc::clone(&self.shared);
        let act = async move { shared.store.read(log, from, bytes_max).await };
        self.link.call(format!("read {log} {from}"), fault, act).await
    }

    async fn end(&self, log: LogId) -> Result<u64, LedgerError> {
        let shared = Arc::clone(&self.shared);
        let act = async move { shared.store.end(log).await };
        self.link.call(format!("end {log}"), fault, act).await
    }

    async fn base(&self, log: LogId) -> Result<Base, LedgerError> {
        let shared = Arc::clone(&self.shared);
        let act = async move { shared.store.base(log).await };
        self.link.call(format!("base {log}"), fault, act).await
    }

    async fn advance(&self, log: LogId, base: Base) -> Result<(), LedgerError> {
        let shared = Arc::clone(&self.shared);
        let act = async move { shared.store.advance(log, base).await };
        self.link.call(format!("advance {log} {base:?}"), fault, act).await
    }

    async fn changed(&self, log: LogId, than: u64) -> Result<u64, LedgerError> {
        if !self.link.is_alive() || self.link.loses_news() {
            return Err(fault("no news"));
        }
        let changed = self.shared.changed(log, than).await;
        self.link.thawed().await;
        changed
    }

    async fn drop_log(&self, log: LogId) -> Result<(), LedgerError> {
        let shared = Arc::clone(&self.shared);
        let act = async move { shared.drop_log(log).await };
        self.link.call(format!("drop {log}"), fault, act).await
    }
}
