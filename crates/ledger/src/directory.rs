//! The names of all repositories: a state machine over the directory's log, and the verbs on it.
//!
//! Which names are allowed, and how they are spelled, is decided above; here a name is a key.

use crate::codec;
use crate::recent::Recent;
use crate::{Committed, LedgerError, Log, Machine};
use bytes::Bytes;
use cuesta_format::{
    AbandonedLog, DirectoryChange, DirectoryCheckpoint, DirectoryEdit, EditId, LogId, NameChange, RepositoryRecord,
};
use cuesta_store::{Clock, Entropy};
use imbl::OrdMap;
use std::fmt;
use std::ops::Bound;

/// An immutable snapshot of the directory.
#[derive(Clone, Default)]
pub struct DirectoryState {
    number: u64,
    names: OrdMap<String, RepositoryRecord>,
    /// Logs without a name of which something may be left, and when that was seen.
    abandoned: OrdMap<LogId, Option<i64>>,
    recent: Recent,
}

/// Why a change of names does not apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameConflict {
    /// The name is taken.
    #[error("repository '{0}' already exists")]
    Exists(String),
    /// Nothing has that name.
    #[error("repository '{0}' not found")]
    Missing(String),
    /// The name belongs to another repository than the edit expects.
    #[error("repository '{0}' was replaced meanwhile")]
    Differs(String),
    /// The edit names it twice.
    #[error("repository '{0}' is named twice in one edit")]
    Repeated(String),
    /// The log has a name, so that it cannot be abandoned.
    #[error("log {0} is the repository '{1}'")]
    Named(LogId, String),
    /// The log was abandoned, and gets no name any more.
    #[error("log {0} is being deleted")]
    Abandoned(LogId),
}

impl DirectoryState {
    /// The number of the directory log's next entry.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// All names, sorted.
    pub fn names(&self) -> &OrdMap<String, RepositoryRecord> {
        &self.names
    }

    /// Logs without a name of which something may be left: with the moment at which they certainly had none, in
    /// milliseconds since the Unix epoch, once a collector has looked.
    pub fn abandoned(&self) -> impl Iterator<Item = AbandonedLog> {
        let all = self.abandoned.iter();
        all.map(|(log, seen_ms)| AbandonedLog {
            log: *log,
            seen_ms: *seen_ms,
        })
    }

    /// At most `count_max` names that begin with `prefix` and come after `after`, sorted.
    pub fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        count_max: usize,
    ) -> impl Iterator<Item = (&'a str, &'a RepositoryRecord)> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let names = self
            .names
            .range::<_, str>((from, Bound::Unbounded))
            .map(|(name, record)| (name.as_str(), record));
        names
            .take_while(move |(name, _)| name.starts_with(prefix))
            .take(count_max)
    }

    /// All of the state, to be written as a checkpoint.
    pub fn checkpoint(&self) -> DirectoryCheckpoint {
        DirectoryCheckpoint {
            number: self.number,
            names: self
                .names
                .iter()
                .map(|(name, record)| (name.clone(), *record))
                .collect(),
            recent_edits: self.recent.ids().collect(),
            abandoned: self.abandoned().collect(),
        }
    }

    /// The state that a checkpoint holds.
    pub fn from_checkpoint(checkpoint: DirectoryCheckpoint) -> Self {
        Self {
            number: checkpoint.number,
            names: checkpoint.names.into_iter().collect(),
            recent: Recent::restored(checkpoint.recent_edits, checkpoint.number),
            abandoned: checkpoint.abandoned.iter().map(|log| (log.log, log.seen_ms)).collect(),
        }
    }

    fn apply_change(&mut self, change: &DirectoryChange, time_ms: i64) -> Result<(), NameConflict> {
        match change {
            DirectoryChange::Name(change) => self.apply_name(change),
            DirectoryChange::Abandon(log) => self.abandon(*log, time_ms),
            DirectoryChange::Forget(log) => {
                self.abandoned.remove(log);
                Ok(())
            }
        }
    }

    /// Costs a pass over all names.
    fn abandon(&mut self, log: LogId, time_ms: i64) -> Result<(), NameConflict> {
        if let Some((name, _)) = self.names.iter().find(|(_, record)| record.log == log) {
            return Err(NameConflict::Named(log, name.clone()));
        }
        let seen_ms = self.abandoned.get(&log).copied().flatten().unwrap_or(time_ms);
        self.abandoned.insert(log, Some(seen_ms));
        Ok(())
    }

    fn apply_name(&mut self, change: &NameChange) -> Result<(), NameConflict> {
        let name = || change.name.clone();
        match (change.old, self.names.get(&change.name)) {
            (None, Some(_)) => return Err(NameConflict::Exists(name())),
            (Some(_), None) => return Err(NameConflict::Missing(name())),
            (Some(old), Some(now)) if old != now.log => return Err(NameConflict::Differs(name())),
            _ => {}
        }
        match change.new {
            Some(record) if self.abandoned.contains_key(&record.log) => {
                return Err(NameConflict::Abandoned(record.log));
            }
            Some(record) => drop(self.names.insert(name(), record)),
            None => drop(self.names.remove(&change.name)),
        }
        Ok(())
    }
}

/// What became of a change of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It is durable.
    Done,
    /// It does not apply; nothing happened.
    Conflict(NameConflict),
}

/// The directory: which repository has which name. Every change is one compare-and-swap in the directory's log.
#[derive(Clone)]
pub struct Directory {
    log: Log<DirectoryState>,
    clock: Clock,
    entropy: Entropy,
}

impl Directory {
    /// A directory over its open log, that of [`LogId::DIRECTORY`].
    pub fn new(log: Log<DirectoryState>, clock: Clock, entropy: Entropy) -> Self {
        Self { log, clock, entropy }
    }

    /// The log below: for snapshots, tailing and checkpoints.
    pub fn log(&self) -> &Log<DirectoryState> {
        &self.log
    }

    /// The repository of that name, on a state no older than the call.
    pub async fn resolve(&self, name: &str) -> Result<Option<RepositoryRecord>, LedgerError> {
        Ok(self.log.fresh().await?.names.get(name).copied())
    }

    /// At most `count_max` names that begin with `prefix` and come after `after`, sorted.
    pub async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        count_max: usize,
    ) -> Result<Vec<(String, RepositoryRecord)>, LedgerError> {
        let state = self.log.fresh().await?;
        Ok(state
            .list(prefix, after, count_max)
            .map(|(name, record)| (name.to_owned(), *record))
            .collect())
    }

    /// Gives a free name to a repository.
    pub async fn create(&self, name: &str, record: RepositoryRecord, actor: &str) -> Result<Changed, LedgerError> {
        let change = NameChange {
            name: name.to_owned(),
            old: None,
            new: Some(record),
        };
        self.commit(vec![change], actor).await
    }

    /// Moves a repository from one name to a free one.
    pub async fn rename(&self, from: &str, to: &str, actor: &str) -> Result<Changed, LedgerError> {
        let Some(record) = self.resolve(from).await? else {
            return Ok(Changed::Conflict(NameConflict::Missing(from.to_owned())));
        };
        let free = NameChange {
            name: from.to_owned(),
            old: Some(record.log),
            new: None,
        };
        let take = NameChange {
            name: to.to_owned(),
            old: None,
            new: Some(record),
        };
        self.commit(vec![free, take], actor).await
    }

    /// Notes that logs have no name, and sees to it that they get none; a conflict if one has.
    pub async fn abandon(&self, logs: &[LogId], actor: &str) -> Result<Changed, LedgerError> {
        self.change(logs.iter().copied().map(DirectoryChange::Abandon).collect(), actor)
            .await
    }

    /// Forgets abandoned logs of which nothing is left.
    pub async fn forget(&self, logs: &[LogId], actor: &str) -> Result<Changed, LedgerError> {
        self.change(logs.iter().copied().map(DirectoryChange::Forget).collect(), actor)
            .await
    }

    /// Frees the name of the repository `log`, which is abandoned from then on.
    pub async fn delete(&self, name: &str, log: LogId, actor: &str) -> Result<Changed, LedgerError> {
        let change = NameChange {
            name: name.to_owned(),
            old: Some(log),
            new: None,
        };
        self.commit(vec![change], actor).await
    }

    async fn commit(&self, changes: Vec<NameChange>, actor: &str) -> Result<Changed, LedgerError> {
        self.change(changes.into_iter().map(DirectoryChange::Name).collect(), actor)
            .await
    }

    async fn change(&self, changes: Vec<DirectoryChange>, actor: &str) -> Result<Changed, LedgerError> {
        let edit = DirectoryEdit {
            id: EditId(self.entropy.bits128()),
            time_ms: self.clock.now_ms(),
            actor: actor.to_owned(),
            changes,
        };
        Ok(match self.log.commit(edit).await? {
            Committed::Done { .. } => Changed::Done,
            Committed::Conflict(conflict) => Changed::Conflict(conflict),
        })
    }
}

impl fmt::Debug for DirectoryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectoryState")
            .field("number", &self.number)
            .field("names", &self.names.len())
            .finish_non_exhaustive()
    }
}

impl Machine for DirectoryState {
    type Edit = DirectoryEdit;
    type Conflict = NameConflict;

    fn number(&self) -> u64 {
        self.number
    }

    fn apply(&mut self, edit: &DirectoryEdit) -> Result<(), NameConflict> {
        if let Some(name) = repeated(edit) {
            return Err(NameConflict::Repeated(name.to_owned()));
        }
        let mut next = self.clone();
        let changes = &edit.changes;
        changes
            .iter()
            .try_for_each(|change| next.apply_change(change, edit.time_ms))?;
        for log in freed(edit) {
            next.abandoned.entry(log).or_insert(None);
        }
        next.recent.push(edit.id, next.number);
        *self = next;
        Ok(())
    }

    fn seal_entry(&mut self) {
        self.number += 1;
    }

    fn entry_of(&self, id: EditId) -> Option<u64> {
        self.recent.entry_of(id)
    }

    fn has_forgotten(&self) -> bool {
        self.recent.is_full()
    }

    fn edit_id(edit: &DirectoryEdit) -> EditId {
        edit.id
    }

    fn edit_bytes(edit: &DirectoryEdit) -> usize {
        let names: usize = name_changes(edit).map(|change| change.name.len()).sum();
        EDIT_BYTES_MAX + edit.actor.len() + names + edit.changes.len() * CHANGE_BYTES_MAX
    }

    fn encode_entry(number: u64, edits: &mut dyn Iterator<Item = &DirectoryEdit>) -> Result<Bytes, LedgerError> {
        codec::encode_directory_entry(number, edits)
    }

    fn decode_entry(log: LogId, number: u64, bytes: &Bytes) -> Result<Vec<DirectoryEdit>, LedgerError> {
        codec::decode_directory_entry(log, number, bytes)
    }

    fn decode_checkpoint(log: LogId, number: u64, bytes: &Bytes) -> Result<Self, LedgerError> {
        codec::decode_directory_checkpoint(log, number, bytes).map(Self::from_checkpoint)
    }
}

fn name_changes(edit: &DirectoryEdit) -> impl Iterator<Item = &NameChange> {
    edit.changes.iter().filter_map(|change| match change {
        DirectoryChange::Name(change) => Some(change),
        DirectoryChange::Abandon(_) | DirectoryChange::Forget(_) => None,
    })
}

/// Logs that lose their name by an edit and get no other by it.
fn freed(edit: &DirectoryEdit) -> impl Iterator<Item = LogId> {
    let kept = |log: &LogId| name_changes(edit).any(|change| change.new.is_some_and(|new| new.log == *log));
    name_changes(edit)
        .filter_map(|change| change.old)
        .filter(move |log| !kept(log))
}

fn repeated(edit: &DirectoryEdit) -> Option<&str> {
    let mut names: Vec<_> = name_changes(edit).map(|change| change.name.as_str()).collect();
    names.sort_unstable();
    names
        .iter()
        .zip(names.iter().skip(1))
        .find(|(name, next)| name == next)
        .map(|(name, _)| *name)
}

/// Bytes of an edit beside its actor and names.
const EDIT_BYTES_MAX: usize = 64;
/// Bytes of a change beside its name.
const CHANGE_BYTES_MAX: usize = 64;
