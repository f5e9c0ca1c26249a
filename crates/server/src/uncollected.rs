//! Repositories that have payloads to delete when their grace period is over, and when to look.
//!
//! The log of each knows what is to be deleted ([`cuesta_engine::Repository::collect`]); here is only which to ask, so that
//! no other costs a look. As that is in memory, the ids are kept in a file beside the ledger, too, as a hint for the next
//! process. A hint may be lost: after each start every repository is looked at once, too.

use crate::log_journal::{Journal, read};
use cuesta_format::LogId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

/// See the module.
#[derive(Default)]
pub struct Uncollected(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// When to look, in milliseconds since the Unix epoch.
    due_ms: BTreeMap<LogId, i64>,
    journal: Option<Journal>,
}

impl Uncollected {
    /// Goes on with the file at `path`, which is made if it is not there; what it names is due at once.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let left = read(&path)?;
        let journal = Journal::begin(path, &left)?;
        Ok(Self(Mutex::new(Inner {
            due_ms: left.into_iter().map(|log| (log, i64::MIN)).collect(),
            journal: Some(journal),
        })))
    }

    /// Has a repository looked at then; `None`: not any more.
    pub fn note(&self, log: LogId, due_ms: Option<i64>) {
        let mut inner = self.0.lock();
        let inner = &mut *inner;
        let was_there = inner.due_ms.contains_key(&log);
        match due_ms {
            Some(due_ms) => drop(inner.due_ms.insert(log, due_ms)),
            None => drop(inner.due_ms.remove(&log)),
        }
        match (&mut inner.journal, was_there, due_ms.is_some()) {
            (Some(journal), false, true) => journal.add(log),
            (Some(journal), true, false) => {
                let left: BTreeSet<LogId> = inner.due_ms.keys().copied().collect();
                journal.rewrite(&left);
            }
            _ => {}
        }
    }

    /// Has a repository looked at then, or when it was to be looked at already.
    pub fn note_first(&self, log: LogId, due_ms: i64) {
        let noted = self.0.lock().due_ms.get(&log).copied();
        self.note(log, Some(noted.map_or(due_ms, |noted| noted.min(due_ms))));
    }

    /// At most `count_max` repositories whose time has come. They stay until they are noted again.
    pub fn due(&self, now_ms: i64, count_max: usize) -> Vec<LogId> {
        let inner = self.0.lock();
        let due = inner.due_ms.iter().filter(|(_, due_ms)| **due_ms <= now_ms);
        due.map(|(log, _)| *log).take(count_max).collect()
    }

    /// How many repositories wait.
    pub fn len(&self) -> usize {
        self.0.lock().due_ms.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_survives_and_is_due_at_once_then() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("uncollected");
        let uncollected = Uncollected::open(path.clone()).unwrap();
        for (log, due_ms) in [(1, 10), (2, 20), (3, 30)] {
            uncollected.note(LogId(log), Some(due_ms));
        }
        assert_eq!(uncollected.due(9, 8), []);
        assert_eq!(uncollected.due(20, 8), [LogId(1), LogId(2)]);
        assert_eq!(uncollected.due(20, 1), [LogId(1)]);
        uncollected.note(LogId(1), Some(40));
        uncollected.note_first(LogId(1), 50);
        uncollected.note(LogId(2), None);
        uncollected.note(LogId(9), None);
        assert_eq!(uncollected.due(30, 8), [LogId(3)]);
        assert_eq!(uncollected.len(), 2);
        drop(uncollected);
        let again = Uncollected::open(path).unwrap();
        assert_eq!(again.due(0, 8), [LogId(1), LogId(3)]);
    }
}
