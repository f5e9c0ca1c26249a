//! What goes wrong in the engine, and what that means to a caller.

use crate::{RepositoryName, RepositoryNameError};
use cuesta_format::{FormatError, LayerId};
use cuesta_git::ObjectId;
use cuesta_ledger::{AccountConflict, LedgerError};
use cuesta_store::StoreError;

/// A failure of the engine. Outcomes that callers ask about (conflicts, absent objects) are values, not errors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// No repository of that name.
    #[error("repository '{0}' does not exist")]
    NoRepository(RepositoryName),
    /// A repository of that name is there already.
    #[error("repository '{0}' already exists")]
    RepositoryExists(RepositoryName),
    /// Not a name a repository can have.
    #[error(transparent)]
    Name(#[from] RepositoryNameError),
    /// An id that the repository does not have, or that this client may not ask for.
    #[error("upload-pack: not our ref {0}")]
    NotOurRef(ObjectId),
    /// Something in git's protocol that is not built yet.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// A request that git refuses, in git's words.
    #[error("{0}")]
    Refused(String),
    /// A stated limit was reached.
    #[error("{what} exceed the limit of {max}")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// The most that is allowed.
        max: u64,
    },
    /// A layer's bytes contradict themselves or the ledger.
    #[error("layer {layer} is corrupt: {what}")]
    Corrupt {
        /// The layer.
        layer: LayerId,
        /// What is wrong.
        what: String,
    },
    /// Others changed the same thing again and again.
    #[error("'{0}' was changed by others meanwhile")]
    Conflict(String),
    /// A change of the accounts does not apply.
    #[error(transparent)]
    Account(#[from] AccountConflict),
    /// The bucket failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The peer's bytes stopped coming.
    #[error("cannot read from the peer: {0}")]
    Peer(Box<dyn std::error::Error + Send + Sync>),
    /// A push could not be taken in, through no fault of its own.
    #[error(transparent)]
    Intake(crate::receive::IntakeError),
    /// Work that several waited for failed, for all of them.
    #[error(transparent)]
    Shared(std::sync::Arc<EngineError>),
    /// An answer could not be kept, or not be read any more.
    #[error("a kept answer: {0}")]
    Kept(std::io::Error),
    /// Work in the background was told to end.
    #[error("stopped")]
    Stopped,
    /// An invariant of ours does not hold.
    #[error("internal error: {0}")]
    Internal(&'static str),
}

/// What a caller may do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// What was asked for is not there.
    NotFound,
    /// Something is in the way.
    Conflict,
    /// It may work later.
    Unavailable,
    /// The peer asked for what it must not.
    Invalid,
    /// The peer asked for what this version cannot do.
    Unsupported,
    /// Durable bytes are damaged.
    Corrupt,
    /// Our fault.
    Internal,
}

impl EngineError {
    /// The class of the error, which decides status codes and retries.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoRepository(_) => ErrorKind::NotFound,
            Self::RepositoryExists(_) | Self::Conflict(_) | Self::Account(_) => ErrorKind::Conflict,
            Self::Name(_) | Self::NotOurRef(_) | Self::Refused(_) | Self::Limit { .. } => ErrorKind::Invalid,
            Self::Unsupported(_) => ErrorKind::Unsupported,
            Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::Store(error) => store_kind(error.kind()),
            Self::Ledger(error) => ledger_kind(error.kind()),
            Self::Peer(_) => ErrorKind::Invalid,
            Self::Shared(error) => error.kind(),
            Self::Stopped | Self::Kept(_) => ErrorKind::Unavailable,
            Self::Intake(error) => intake_kind(error),
            Self::Internal(_) => ErrorKind::Internal,
        }
    }

    pub(crate) fn limit(what: &'static str, max: u64) -> Self {
        Self::Limit { what, max }
    }

    pub(crate) fn cue(layer: LayerId, error: &FormatError) -> Self {
        Self::Corrupt {
            layer,
            what: error.to_string(),
        }
    }
}

fn intake_kind(error: &crate::receive::IntakeError) -> ErrorKind {
    use crate::receive::IntakeError;
    match error {
        IntakeError::Pack(_) => ErrorKind::Invalid,
        IntakeError::Known(error) => error.kind(),
        IntakeError::Spool(_) | IntakeError::Store(_) => ErrorKind::Unavailable,
        IntakeError::Layer(_) | IntakeError::WouldWait | IntakeError::Internal(_) => ErrorKind::Internal,
    }
}

fn store_kind(kind: cuesta_store::StoreErrorKind) -> ErrorKind {
    match kind {
        // A layer that the ledger names and the bucket does not hold is damage, not a wrong question.
        cuesta_store::StoreErrorKind::NotFound => ErrorKind::Corrupt,
        _ => ErrorKind::Unavailable,
    }
}

fn ledger_kind(kind: cuesta_ledger::ErrorKind) -> ErrorKind {
    match kind {
        cuesta_ledger::ErrorKind::NotFound => ErrorKind::NotFound,
        cuesta_ledger::ErrorKind::Conflict => ErrorKind::Conflict,
        cuesta_ledger::ErrorKind::Invalid => ErrorKind::Invalid,
        cuesta_ledger::ErrorKind::Corrupt => ErrorKind::Corrupt,
        _ => ErrorKind::Unavailable,
    }
}
