//! Repositories that wait for background work, remembered across a crash.
//!
//! A small push is durable in the ledger when it is acknowledged; which logs hold such pushes is known in memory only, and
//! after a crash nobody would look before the next push. So the ids of logs that may hold one are kept in a file beside the
//! ledger: written before a push commits, taken out once its repository is flushed. The file is a hint, never synced: what
//! it lacks after a power loss costs room in the ledger until the next push, no data.

use crate::log_journal::{Journal, read};
use cuesta_engine::Repository;
use cuesta_format::LogId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Repositories that were pushed to since the last round of background work. An idle repository is in no round and costs
/// nothing.
#[derive(Default)]
pub struct Unflushed(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    due: BTreeMap<LogId, Arc<Repository>>,
    /// What an earlier process left in the file, until somebody has seen to it.
    left: BTreeSet<LogId>,
    /// Pushes under way, by log.
    expected: BTreeMap<LogId, usize>,
    /// What the file holds.
    written: BTreeSet<LogId>,
    journal: Option<Journal>,
}

/// A push under way: while it lives, its log stays in the file.
pub struct Expected<'a> {
    unflushed: &'a Unflushed,
    log: LogId,
}

impl Unflushed {
    /// Goes on with the file at `path`, which is made if it is not there.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let left = read(&path)?;
        let journal = Journal::begin(path, &left)?;
        let inner = Inner {
            written: left.clone(),
            left,
            journal: Some(journal),
            ..Inner::default()
        };
        Ok(Self(Mutex::new(inner)))
    }

    /// The logs that an earlier process may have left unflushed and that nobody has seen to yet: they stay in the file.
    pub fn left(&self) -> BTreeSet<LogId> {
        self.0.lock().left.clone()
    }

    /// Says that a log which was left has been seen to: its repository is noted, or there is none any more.
    pub fn seen_to(&self, log: LogId) {
        self.0.lock().left.remove(&log);
    }

    /// Remembers a log before something small is appended to it.
    pub fn expect(&self, log: LogId) -> Expected<'_> {
        let mut inner = self.0.lock();
        *inner.expected.entry(log).or_default() += 1;
        if inner.written.insert(log)
            && let Some(journal) = &mut inner.journal
        {
            journal.add(log);
        }
        Expected { unflushed: self, log }
    }

    /// Puts a repository into the next round.
    pub fn note(&self, repository: &Arc<Repository>) {
        self.0.lock().due.insert(repository.id(), Arc::clone(repository));
    }

    /// Puts a repository into the next round, if it has layers that are still in the ledger.
    pub fn note_if_inline(&self, repository: &Arc<Repository>) {
        let state = repository.log().current();
        // Newest first: where there is one it is mostly the last.
        if state.layers().iter().rev().any(|layer| layer.is_inline()) {
            self.note(repository);
        }
    }

    /// How many repositories the next round has.
    pub fn len(&self) -> usize {
        self.0.lock().due.len()
    }

    /// Whether the next round has nothing to do.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins a round.
    pub fn take(&self) -> Vec<Arc<Repository>> {
        std::mem::take(&mut self.0.lock().due).into_values().collect()
    }

    /// Ends a round: the file forgets what nothing is left of. What could not be flushed was noted again.
    pub fn settle(&self) {
        let mut inner = self.0.lock();
        let inner = &mut *inner;
        let (due, expected, left) = (&inner.due, &inner.expected, &inner.left);
        let before = inner.written.len();
        inner
            .written
            .retain(|log| due.contains_key(log) || expected.contains_key(log) || left.contains(log));
        if inner.written.len() < before
            && let Some(journal) = &mut inner.journal
        {
            journal.rewrite(&inner.written);
        }
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        let mut inner = self.unflushed.0.lock();
        if let Some(count) = inner.expected.get_mut(&self.log) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                inner.expected.remove(&self.log);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn reopened(directory: &Path) -> Vec<LogId> {
        let read = read(&directory.join("unflushed")).unwrap();
        read.into_iter().collect()
    }

    #[test]
    fn what_is_under_way_or_unsettled_survives() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("unflushed");
        let unflushed = Unflushed::open(path).unwrap();
        assert!(unflushed.left().is_empty());
        let (one, other) = (LogId(u128::MAX), LogId(7));
        let first = unflushed.expect(one);
        let again = unflushed.expect(one);
        drop(first);
        unflushed.settle();
        assert_eq!(reopened(directory.path()), [one], "a push is still under way");
        drop(again);
        let third = unflushed.expect(other);
        unflushed.settle();
        assert_eq!(reopened(directory.path()), [other]);
        drop(third);
        assert_eq!(reopened(directory.path()), [other], "until a round has settled it");
        unflushed.settle();
        assert!(reopened(directory.path()).is_empty());
        // After the file was replaced, additions go to the new one.
        let _fourth = unflushed.expect(one);
        assert_eq!(reopened(directory.path()), [one]);
    }

    #[test]
    fn what_was_left_stays_until_it_was_seen_to_and_rubbish_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("unflushed");
        std::fs::write(&path, format!("{:032x}\nrubbish\n\u{fffd}\n{:031x}", 5, 6)).unwrap();
        assert_eq!(reopened(directory.path()), [LogId(5)]);
        let unflushed = Unflushed::open(path).unwrap();
        unflushed.settle();
        assert_eq!(reopened(directory.path()), [LogId(5)], "nobody has seen to it");
        assert_eq!(unflushed.left().into_iter().collect::<Vec<_>>(), [LogId(5)]);
        unflushed.seen_to(LogId(5));
        assert!(unflushed.left().is_empty());
        assert_eq!(reopened(directory.path()), [LogId(5)], "until a round has settled it");
        unflushed.settle();
        assert!(reopened(directory.path()).is_empty());
    }
}
