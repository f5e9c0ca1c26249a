//! The log-store port: numbered entries, made durable in order, of any number of logs.

use crate::LedgerError;
use async_trait::async_trait;
use bytes::Bytes;
use cuesta_format::LogId;

/// Keeps the entries of many logs. It knows nothing of what they mean.
///
/// Every implementation passes [`crate::conformance`]. Calls may be cancelled at any await; an append cancelled or failed
/// has an unknown outcome and is to be read back.
#[async_trait]
pub trait LogStore: Send + Sync + 'static {
    /// How large entries may be.
    fn limits(&self) -> Limits;

    /// Makes `entry` durable as number `number`, if that is the log's next number.
    ///
    /// The first append makes the log. Errors: [`LedgerError::Gap`] beyond the end, [`LedgerError::TooLarge`],
    /// [`LedgerError::Dropped`]; after any other error the outcome is unknown.
    async fn append(&self, log: LogId, number: u64, entry: Bytes) -> Result<Appended, LedgerError>;

    /// The entries from `from` on, in order without gaps: as many as fit `bytes_max`, at least one if there is one;
    /// none at the end. [`LedgerError::Gone`] if `from` is below the base.
    async fn read(&self, log: LogId, from: u64, bytes_max: usize) -> Result<Vec<(u64, Bytes)>, LedgerError>;

    /// The number the next entry will have. Linearizable: it counts every append acknowledged before the call.
    async fn end(&self, log: LogId) -> Result<u64, LedgerError>;

    /// The same where this process knows it without asking anybody, no less linearizable; `None` where it would have to ask.
    /// A state that has reached it is the newest there is: its reader need not wait for anything.
    fn end_known(&self, _log: LogId) -> Option<u64> {
        None
    }

    /// Where the log begins.
    async fn base(&self, log: LogId) -> Result<Base, LedgerError>;

    /// Moves the beginning forward: first the boundary becomes durable, then the entries below it are deleted.
    ///
    /// A base behind the present one changes nothing. [`LedgerError::BadBase`] if it would drop entries that no
    /// checkpoint covers, or lies beyond the end.
    async fn advance(&self, log: LogId, base: Base) -> Result<(), LedgerError>;

    /// Waits until the log's end is above `than`; answers the end.
    async fn changed(&self, log: LogId, than: u64) -> Result<u64, LedgerError>;

    /// Ends the log and deletes its entries; every later call for it is [`LedgerError::Dropped`].
    async fn drop_log(&self, log: LogId) -> Result<(), LedgerError>;
}

/// How large the entries of a backend may be, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Refused above this.
    pub entry_bytes_max: usize,
    /// An entry of several edits is kept below this; also the most a layer may have to travel inline.
    pub inline_bytes_max: usize,
}

impl Limits {
    /// [`LedgerError::TooLarge`] if the entry is.
    pub(crate) fn check(self, entry: &[u8]) -> Result<(), LedgerError> {
        let (bytes, bytes_max) = (entry.len(), self.entry_bytes_max);
        if bytes > bytes_max {
            return Err(LedgerError::TooLarge { bytes, bytes_max });
        }
        Ok(())
    }
}

/// The outcome of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// The entry is durable.
    Done,
    /// The number already has an entry: someone else's, or this one if an earlier reply was lost.
    Taken,
}

/// Where a log begins. Opening it means reading the checkpoint, then the entries from its number on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Base {
    /// The first entry that is still there (or will be written). At most the checkpoint's number.
    pub first: u64,
    /// The checkpoint to open from: the state before the entry of this number.
    pub checkpoint: Option<u64>,
}

impl Base {
    /// Whether the log `log`, beginning at `self` and ending at `end`, may begin at `next`; `false` if that would be no
    /// step forward.
    pub fn allows(&self, log: LogId, end: u64, next: Base) -> Result<bool, LedgerError> {
        let bad = |what| {
            Err(LedgerError::BadBase {
                log,
                first: next.first,
                what,
            })
        };
        let covered = next.checkpoint.unwrap_or(0);
        if next.first > covered {
            return bad("no checkpoint covers the entries below");
        }
        if covered > end {
            return bad("the checkpoint is beyond the end");
        }
        Ok(next.first >= self.first && next.checkpoint >= self.checkpoint && next != *self)
    }
}
