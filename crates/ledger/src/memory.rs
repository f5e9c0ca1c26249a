//! A log store in memory, for tests and simulation: what it holds ends with it.

use crate::{Appended, Base, LedgerError, Limits, LogStore};
use async_trait::async_trait;
use bytes::Bytes;
use cuesta_format::LogId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use tokio::sync::watch;

const LIMITS: Limits = Limits {
    entry_bytes_max: 64 << 20,
    inline_bytes_max: 1 << 20,
};

/// The store. Share it in an `Arc`; logs opened on it see one another's appends.
#[derive(Default)]
pub struct MemoryStore {
    logs: Mutex<BTreeMap<LogId, Slot>>,
}

enum Slot {
    Live(Entries),
    Dropped,
}

struct Entries {
    base: Base,
    entries: VecDeque<Bytes>,
    end: watch::Sender<u64>,
}

impl Default for Entries {
    fn default() -> Self {
        Self {
            base: Base::default(),
            entries: VecDeque::new(),
            end: watch::Sender::new(0),
        }
    }
}

impl Entries {
    fn end(&self) -> u64 {
        *self.end.borrow()
    }

    /// The position of entry `number` in `entries`, if it is not below the base.
    fn position(&self, number: u64) -> Option<usize> {
        number
            .checked_sub(self.base.first)
            .and_then(|position| usize::try_from(position).ok())
    }
}

impl MemoryStore {
    /// A store without logs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `act` on the log, which is made if it was never there.
    fn with<T>(&self, log: LogId, act: impl FnOnce(&mut Entries) -> Result<T, LedgerError>) -> Result<T, LedgerError> {
        match self
            .logs
            .lock()
            .entry(log)
            .or_insert_with(|| Slot::Live(Entries::default()))
        {
            Slot::Live(entries) => act(entries),
            Slot::Dropped => Err(LedgerError::Dropped { log }),
        }
    }
}

#[async_trait]
impl LogStore for MemoryStore {
    fn limits(&self) -> Limits {
        LIMITS
    }

    async fn append(&self, log: LogId, number: u64, entry: Bytes) -> Result<Appended, LedgerError> {
        self.limits().check(&entry)?;
        self.with(log, |entries| {
            let end = entries.end();
            if number > end {
                return Err(LedgerError::Gap { log, end, number });
            }
            if number < end {
                return Ok(Appended::Taken);
            }
            entries.entries.push_back(entry);
            entries.end.send_replace(end + 1);
            Ok(Appended::Done)
        })
    }

    async fn read(&self, log: LogId, from: u64, bytes_max: usize) -> Result<Vec<(u64, Bytes)>, LedgerError> {
        self.with(log, |entries| {
            let first = entries.base.first;
            let Some(position) = entries.position(from) else {
                return Err(LedgerError::Gone {
                    log,
                    first,
                    number: from,
                });
            };
            let mut bytes = 0;
            let fits = |entry: &&Bytes| {
                let first_one = bytes == 0;
                bytes += entry.len().max(1);
                first_one || bytes <= bytes_max
            };
            Ok((from..)
                .zip(entries.entries.iter().skip(position).take_while(fits).cloned())
                .collect())
        })
    }

    async fn end(&self, log: LogId) -> Result<u64, LedgerError> {
        self.with(log, |entries| Ok(entries.end()))
    }

    async fn base(&self, log: LogId) -> Result<Base, LedgerError> {
        self.with(log, |entries| Ok(entries.base))
    }

    async fn advance(&self, log: LogId, base: Base) -> Result<(), LedgerError> {
        self.with(log, |entries| {
            if entries.base.allows(log, entries.end(), base)? {
                let gone = entries.position(base.first).unwrap_or(0);
                entries.entries.drain(..gone.min(entries.entries.len()));
                entries.base = base;
            }
            Ok(())
        })
    }

    async fn changed(&self, log: LogId, than: u64) -> Result<u64, LedgerError> {
        let mut end = self.with(log, |entries| Ok(entries.end.subscribe()))?;
        match end.wait_for(|end| *end > than).await {
            Ok(end) => Ok(*end),
            Err(_) => Err(LedgerError::Dropped { log }),
        }
    }

    async fn drop_log(&self, log: LogId) -> Result<(), LedgerError> {
        self.logs.lock().insert(log, Slot::Dropped);
        Ok(())
    }
}
