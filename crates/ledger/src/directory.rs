//! The names of all repositories: a state machine over the directory's log, and the verbs on it.
//!
//! Which names are allowed, and how they are spelled, is decided above; here a name is a key.

use crate::codec;
use crate::recent::Recent;
use crate::{Committed, LedgerError, Log, Machine};
use bytes::Bytes;
use cuesta_format::{DirectoryCheckpoint, DirectoryEdit, EditId, LogId, NameChange, RepositoryRecord};
use cuesta_store::{Clock, Entropy};
use imbl::OrdMap;
use std::fmt;
use std::ops::Bound;

/// An immutable snapshot of the directory.
#[derive(Clone, Default)]
pub struct DirectoryState {
    number: u64,
    names: OrdMap<String, RepositoryRecord>,
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
        }
    }

    /// The state that a checkpoint holds.
    pub fn from_checkpoint(checkpoint: DirectoryCheckpoint) -> Self {
        Self {
            number: checkpoint.number,
            names: checkpoint.names.into_iter().collect(),
            recent: Recent::restored(checkpoint.recent_edits, checkpoint.number),
        }
    }

    fn apply_change(&mut self, change: &NameChange) -> Result<(), NameConflict> {
        let name = || change.name.clone();
        match (change.old, self.names.get(&change.name)) {
            (None, Some(_)) => return Err(NameConflict::Exists(name())),
            (Some(_), None) => return Err(NameConflict::Missing(name())),
            (Some(old), Some(now)) if old != now.log => return Err(NameConflict::Differs(name())),
            _ => {}
        }
        match change.new {
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

    /// Frees the name of the repository `log`.
    pub async fn delete(&self, name: &str, log: LogId, actor: &str) -> Result<Changed, LedgerError> {
        let change = NameChange {
            name: name.to_owned(),
            old: Some(log),
            new: None,
        };
        self.commit(vec![change], actor).await
    }

    async fn commit(&self, changes: Vec<NameChange>, actor: &str) -> Result<Changed, LedgerError> {
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
        edit.changes.iter().try_for_each(|change| next.apply_change(change))?;
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

    fn edit_id(edit: &DirectoryEdit) -> EditId {
        edit.id
    }

    fn edit_bytes(edit: &DirectoryEdit) -> usize {
        let names: usize = edit
            .changes
            .iter()
            .map(|change| change.name.len() + CHANGE_BYTES_MAX)
            .sum();
        EDIT_BYTES_MAX + edit.actor.len() + names
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

fn repeated(edit: &DirectoryEdit) -> Option<&str> {
    let mut names: Vec<_> = edit.changes.iter().map(|change| change.name.as_str()).collect();
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
