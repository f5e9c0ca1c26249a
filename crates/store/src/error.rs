//! What can go wrong with a bucket.

use crate::Operation;
use std::sync::Arc;

/// Shorthand for this crate's results.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// A failed operation on a bucket. Outcomes that a caller asked about (`Exists`, `Stale`, an absent size) are not errors.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no payload under this key.
    #[error("no payload at '{key}'")]
    Absent {
        /// The key asked for.
        key: String,
    },
    /// The store, or the way to it, failed or refused.
    #[error("cannot {operation} '{key}': {source}")]
    Backend {
        /// What was tried.
        operation: Operation,
        /// On which key or prefix.
        key: String,
        /// What the failure means to a caller.
        kind: StoreErrorKind,
        /// The store's own words.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// A range reaches past the end of its payload.
    #[error("short read of '{key}': expected {expected} bytes at {offset}, got {got}")]
    Short {
        /// The key read.
        key: String,
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        expected: u64,
        /// Bytes received.
        got: u64,
    },
    /// A conditional write got no clear answer, and what is stored now does not tell whether it took place.
    #[error("cannot tell whether '{key}' was written")]
    Unknown {
        /// The key written.
        key: String,
    },
    /// A payload that should have been ours alone is already there with other content.
    #[error("'{key}' exists with other content")]
    Differs {
        /// The key written.
        key: String,
    },
    /// The text is not a key: empty, absolute, or with an empty, `.` or `..` segment.
    #[error("'{key}' is not a key: {reason}")]
    BadKey {
        /// The text.
        key: String,
        /// Why not.
        reason: String,
    },
    /// The address or an option of a bucket makes no sense.
    #[error("cannot open bucket '{url}': {reason}")]
    BadBucket {
        /// The address.
        url: String,
        /// Why not.
        reason: String,
    },
    /// A payload larger than what one key may hold.
    #[error("payload '{key}' exceeds {bytes_max} bytes")]
    TooLarge {
        /// The key written.
        key: String,
        /// The limit, bytes.
        bytes_max: u64,
    },
}

/// What a [`StoreError`] means to a caller: whether to retry, report, or stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Nothing under the key.
    NotFound,
    /// The store cannot be reached or is overloaded; trying later may help. Retries have been made already.
    Unavailable,
    /// The store refuses these credentials.
    Denied,
    /// Another writer was there, or may have been.
    Conflict,
    /// The request itself is wrong, or the store cannot do this at all.
    Invalid,
    /// The payload is not what it should be.
    Corrupt,
}

impl StoreError {
    /// What the error means to a caller.
    pub fn kind(&self) -> StoreErrorKind {
        match self {
            Self::Absent { .. } => StoreErrorKind::NotFound,
            Self::Backend { kind, .. } => *kind,
            Self::Short { .. } => StoreErrorKind::Corrupt,
            Self::Unknown { .. } | Self::Differs { .. } => StoreErrorKind::Conflict,
            Self::BadKey { .. } | Self::BadBucket { .. } | Self::TooLarge { .. } => StoreErrorKind::Invalid,
        }
    }

    /// Puts an `object_store` error of `operation` on `key` into our words.
    pub(crate) fn from_backend(operation: Operation, key: &str, source: object_store::Error) -> Self {
        if matches!(source, object_store::Error::NotFound { .. }) {
            return Self::Absent { key: key.to_owned() };
        }
        let kind = kind_of(&source);
        Self::Backend {
            operation,
            key: key.to_owned(),
            kind,
            source: Arc::new(source),
        }
    }

    /// Puts an error of the file system into our words.
    pub(crate) fn from_io(operation: Operation, key: &str, source: std::io::Error) -> Self {
        if source.kind() == std::io::ErrorKind::NotFound {
            return Self::Absent { key: key.to_owned() };
        }
        let kind = kind_of_io(&source);
        Self::Backend {
            operation,
            key: key.to_owned(),
            kind,
            source: Arc::new(source),
        }
    }
}

fn kind_of(error: &object_store::Error) -> StoreErrorKind {
    use object_store::Error;
    match error {
        Error::NotFound { .. } => StoreErrorKind::NotFound,
        Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. } => {
            StoreErrorKind::Conflict
        }
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => StoreErrorKind::Denied,
        Error::InvalidPath { .. }
        | Error::NotSupported { .. }
        | Error::NotImplemented { .. }
        | Error::UnknownConfigurationKey { .. } => StoreErrorKind::Invalid,
        Error::Generic { source, .. } => kind_of_source(source.as_ref()),
        _ => StoreErrorKind::Unavailable,
    }
}

fn kind_of_source(error: &(dyn std::error::Error + 'static)) -> StoreErrorKind {
    if let Some(error) = causes(error).find_map(|cause| cause.downcast_ref::<std::io::Error>()) {
        return kind_of_io(error);
    }
    match says(error, &["non-2xx status code: 4"]) {
        true => StoreErrorKind::Invalid,
        false => StoreErrorKind::Unavailable,
    }
}

/// Whether a ranged read failed because its payload ends before the range begins.
pub(crate) fn is_past_end(error: &object_store::Error) -> bool {
    says(error, &["Wanted range starting at", "status code: 416"])
}

/// Whether a cause says one of these. `object_store` keeps the types that would tell private, so its words must.
fn says(error: &(dyn std::error::Error + 'static), words: &[&str]) -> bool {
    causes(error)
        .map(|cause| cause.to_string())
        .any(|said| words.iter().any(|word| said.contains(word)))
}

fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

fn kind_of_io(error: &std::io::Error) -> StoreErrorKind {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::NotFound => StoreErrorKind::NotFound,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => StoreErrorKind::Denied,
        ErrorKind::IsADirectory | ErrorKind::NotADirectory | ErrorKind::InvalidInput | ErrorKind::InvalidFilename => {
            StoreErrorKind::Invalid
        }
        _ => StoreErrorKind::Unavailable,
    }
}
