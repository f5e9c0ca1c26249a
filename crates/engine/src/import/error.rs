//! Why an import failed.

use crate::receive::{IntakeError, PackFault};
use crate::{EngineError, ErrorKind};
use cuesta_git::ObjectFormat;
use std::io;
use std::path::{Path, PathBuf};

/// An import that changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A file of the source cannot be read.
    #[error("cannot read '{}': {error}", .path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The source is not what it should be.
    #[error("'{}': {what}", .path.display())]
    Source {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A pack of the source is damaged, or breaks a rule of `git fsck`.
    #[error("{}{fault}", .path.as_ref().map(|path| format!("'{}': ", path.display())).unwrap_or_default())]
    Pack {
        /// The pack, if it is known which.
        path: Option<PathBuf>,
        /// What is wrong.
        fault: PackFault,
    },
    /// Refs reach objects that the source does not have.
    #[error("missing objects: '{first}' and {others} other refs do not have all that they reach{hint}")]
    Incomplete {
        /// The first such ref.
        first: String,
        /// How many more there are.
        others: usize,
        /// What may help.
        hint: String,
    },
    /// The repository is there already and of the other object format.
    #[error("the repository's object format is {ours}, the source's is {theirs}")]
    ObjectFormat {
        /// That of the repository.
        ours: ObjectFormat,
        /// That of the source.
        theirs: ObjectFormat,
    },
    /// The repository cannot take a ref of the source.
    #[error("cannot take over '{name}': {reason}")]
    Ref {
        /// The ref.
        name: String,
        /// Why not.
        reason: String,
    },
    /// The source's stream broke off.
    #[error("cannot read from the remote: {0}")]
    Remote(Box<dyn std::error::Error + Send + Sync>),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl ImportError {
    /// The class of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Read { error, .. } if error.kind() == io::ErrorKind::NotFound => ErrorKind::NotFound,
            Self::Read { .. } | Self::Remote(_) => ErrorKind::Unavailable,
            Self::Source { .. } | Self::Pack { .. } | Self::Incomplete { .. } => ErrorKind::Invalid,
            Self::ObjectFormat { .. } | Self::Ref { .. } => ErrorKind::Conflict,
            Self::Engine(error) => error.kind(),
        }
    }

    pub(super) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Read {
            path: path.to_owned(),
            error,
        }
    }

    pub(super) fn source(path: &Path, what: impl Into<String>) -> Self {
        Self::Source {
            path: path.to_owned(),
            what: what.into(),
        }
    }

    /// An intake's error while `path` was fed.
    pub(super) fn intake(path: &Path) -> impl FnOnce(IntakeError) -> Self {
        move |error| match error {
            IntakeError::Pack(fault) => Self::Pack {
                path: Some(path.to_owned()),
                fault,
            },
            error => error.into(),
        }
    }
}

impl From<IntakeError> for ImportError {
    fn from(error: IntakeError) -> Self {
        match error {
            IntakeError::Pack(fault) => Self::Pack { path: None, fault },
            error => Self::Engine(error.into()),
        }
    }
}

impl From<cuesta_ledger::LedgerError> for ImportError {
    fn from(error: cuesta_ledger::LedgerError) -> Self {
        Self::Engine(error.into())
    }
}
