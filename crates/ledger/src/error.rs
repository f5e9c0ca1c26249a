//! What goes wrong in the ledger, apart from the conflicts that callers ask about.

use cuesta_format::{EditId, FormatError, LogId};
use std::fmt;
use std::sync::Arc;

/// A failure of the ledger. Cloneable, because one failed append answers every edit of its group.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// Another process holds the store; it can be reached through its socket.
    #[error("log store '{path}' is in use by another process")]
    Locked {
        /// The store's path.
        path: String,
    },
    /// The store did not answer, or failed. What was asked may have happened nevertheless.
    #[error("log store unavailable: cannot {action}: {source}")]
    Unavailable {
        /// What was tried, as in `append entry 7`.
        action: String,
        /// Why it failed.
        source: Failure,
    },
    /// The append's reply was lost and the log could not be read back: the edit may or may not be in the log.
    #[error("outcome of edit {edit} is unknown: {source}")]
    Unknown {
        /// The edit; it can be looked for later.
        edit: EditId,
        /// The last failure.
        source: Box<LedgerError>,
    },
    /// Durable bytes say something impossible, or are of a version this build does not know.
    #[error("log {log} is corrupt at entry {number}: {what}")]
    Corrupt {
        /// The log.
        log: LogId,
        /// The entry or checkpoint number.
        number: u64,
        /// What is wrong.
        what: String,
    },
    /// The log store as a whole is damaged or not one of ours.
    #[error("log store '{path}' cannot be used: {what}")]
    BadStore {
        /// The store's path.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// An entry is larger than the backend takes.
    #[error("entry of {bytes} bytes is over the limit of {bytes_max}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The backend's limit.
        bytes_max: usize,
    },
    /// The edit cannot be written as an entry.
    #[error("{0}")]
    BadEdit(#[source] FormatError),
    /// An append beyond the end would leave a gap.
    #[error("log {log} ends at {end}, cannot append entry {number}")]
    Gap {
        /// The log.
        log: LogId,
        /// The number the next entry must have.
        end: u64,
        /// The number that was given.
        number: u64,
    },
    /// The entries asked for were folded into a checkpoint and are gone.
    #[error("log {log} begins at {first}, entry {number} is gone")]
    Gone {
        /// The log.
        log: LogId,
        /// The first entry that is still there.
        first: u64,
        /// The entry asked for.
        number: u64,
    },
    /// A base that names entries or a checkpoint the log cannot have.
    #[error("log {log} cannot begin at {first}: {what}")]
    BadBase {
        /// The log.
        log: LogId,
        /// The first entry the base would keep.
        first: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The log was dropped; its numbers are never used again.
    #[error("log {log} was dropped")]
    Dropped {
        /// The log.
        log: LogId,
    },
    /// No checkpoint of that number is there.
    #[error("log {log} has no checkpoint {number}")]
    NoCheckpoint {
        /// The log.
        log: LogId,
        /// The checkpoint asked for.
        number: u64,
    },
    /// The peer on the socket does not speak our protocol.
    #[error("log store socket: expected {expected}, got {got}")]
    Protocol {
        /// What was expected.
        expected: &'static str,
        /// What came.
        got: String,
    },
    /// The log or store was shut down.
    #[error("the ledger is shut down")]
    Closed,
}

/// What a caller may do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// What was asked for is not there, and will not be.
    NotFound,
    /// Someone else holds it.
    Conflict,
    /// It may work later.
    Unavailable,
    /// The caller asked for something that is never allowed.
    Invalid,
    /// Durable bytes are damaged.
    Corrupt,
}

impl LedgerError {
    /// The class of the error, which decides status codes and retries.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Gone { .. } | Self::Dropped { .. } | Self::NoCheckpoint { .. } => ErrorKind::NotFound,
            Self::Locked { .. } => ErrorKind::Conflict,
            Self::Unavailable { .. } | Self::Unknown { .. } | Self::Closed => ErrorKind::Unavailable,
            Self::TooLarge { .. } | Self::BadEdit(_) | Self::Gap { .. } | Self::BadBase { .. } => ErrorKind::Invalid,
            Self::Corrupt { .. } | Self::BadStore { .. } | Self::Protocol { .. } => ErrorKind::Corrupt,
        }
    }

    /// Whether an append that failed so has certainly not happened and never will.
    pub(crate) fn refuses_append(&self) -> bool {
        matches!(
            self,
            Self::TooLarge { .. } | Self::BadEdit(_) | Self::Gap { .. } | Self::Dropped { .. }
        )
    }

    /// The store failed at `action`.
    pub fn unavailable(action: impl Into<String>, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Unavailable {
            action: action.into(),
            source: Failure(Arc::new(source)),
        }
    }
}

/// The error of a library below, shared between those who waited for the same operation.
#[derive(Clone)]
pub struct Failure(Arc<dyn std::error::Error + Send + Sync>);

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
