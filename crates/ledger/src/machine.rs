//! What a [`crate::Log`] needs of the state it keeps: the repository's and the directory's machines share the log code.

use crate::LedgerError;
use async_trait::async_trait;
use bytes::Bytes;
use cuesta_format::{EditId, LogId};
use std::fmt;

/// A state that edits move forward, one numbered entry after the other. Cloning is cheap and clones do not see each
/// other's changes.
pub trait Machine: Clone + Default + fmt::Debug + Send + Sync + 'static {
    /// One atomic change.
    type Edit: Clone + Send + Sync + 'static;
    /// Why an edit does not apply.
    type Conflict: Clone + fmt::Debug + fmt::Display + Send + 'static;

    /// The number of the next entry: the state is that of the log before this entry.
    fn number(&self) -> u64;

    /// Applies an edit whole, or changes nothing.
    fn apply(&mut self, edit: &Self::Edit) -> Result<(), Self::Conflict>;

    /// The entry is complete: the state moves on to the next number.
    fn seal_entry(&mut self);

    /// The entry that an edit of this id came in, if it is among the recent ones the state remembers.
    fn entry_of(&self, id: EditId) -> Option<u64>;

    /// Whether there may have been edits that [`entry_of`](Self::entry_of) does not remember.
    fn has_forgotten(&self) -> bool;

    /// The edit's own id.
    fn edit_id(edit: &Self::Edit) -> EditId;

    /// How many bytes the edit takes in an entry, at most.
    fn edit_bytes(edit: &Self::Edit) -> usize;

    /// The bytes of entry `number`; [`LedgerError::BadEdit`] if an edit cannot be written.
    fn encode_entry(number: u64, edits: &mut dyn Iterator<Item = &Self::Edit>) -> Result<Bytes, LedgerError>;

    /// The edits of entry `number` of `log`.
    fn decode_entry(log: LogId, number: u64, bytes: &Bytes) -> Result<Vec<Self::Edit>, LedgerError>;

    /// The state that a checkpoint of `log` holds.
    fn decode_checkpoint(log: LogId, number: u64, bytes: &Bytes) -> Result<Self, LedgerError>;
}

/// Gives the checkpoints that logs open from; they are payloads of the bucket.
#[async_trait]
pub trait CheckpointSource: Send + Sync + 'static {
    /// The bytes of the checkpoint that holds the state of `log` before entry `number`.
    async fn load(&self, log: LogId, number: u64) -> Result<Bytes, LedgerError>;
}

/// For logs that are never folded.
pub struct NoCheckpoints;

#[async_trait]
impl CheckpointSource for NoCheckpoints {
    async fn load(&self, log: LogId, number: u64) -> Result<Bytes, LedgerError> {
        Err(LedgerError::NoCheckpoint { log, number })
    }
}
