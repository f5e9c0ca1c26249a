//! What can be wrong with bytes that claim to be one of our formats, or with values that are to become such bytes.

/// Why bytes were refused, or could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The bytes end before what they announce.
    #[error("{what} is cut short: expected {expected} bytes, got {got}")]
    Truncated {
        /// The part that was read.
        what: &'static str,
        /// Bytes that part needs.
        expected: u64,
        /// Bytes that were there.
        got: u64,
    },
    /// The bytes go on after the end of what they announce.
    #[error("{what} has {extra} bytes after its end")]
    Trailing {
        /// The part that was read.
        what: &'static str,
        /// How many bytes are too many.
        extra: u64,
    },
    /// Not this format at all.
    #[error("not a {what}: magic is {got:02x?}")]
    Magic {
        /// The format that was expected.
        what: &'static str,
        /// The first four bytes.
        got: [u8; 4],
    },
    /// A version of this format that this reader does not know.
    #[error("{what} has version {got}, this reader knows {known}")]
    Version {
        /// The format.
        what: &'static str,
        /// The newest version known.
        known: u16,
        /// The version found.
        got: u16,
    },
    /// A flag, kind or other code that this reader does not know.
    #[error("{what} has unknown value {got:#x}")]
    Unknown {
        /// The field.
        what: &'static str,
        /// Its value.
        got: u64,
    },
    /// The bytes are not those that were written.
    #[error("{what} has checksum {got:08x}, expected {expected:08x}")]
    Checksum {
        /// The part that was read.
        what: &'static str,
        /// The checksum stored.
        expected: u32,
        /// The checksum of the bytes.
        got: u32,
    },
    /// The checksum holds, but the values contradict each other or the format's rules.
    #[error("{what} is malformed: {reason}")]
    Malformed {
        /// The part that was read.
        what: &'static str,
        /// The rule that is broken.
        reason: &'static str,
    },
    /// More than the format can hold.
    #[error("{what} exceeds the limit: {got} of at most {max}")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// The most the format holds.
        max: u64,
        /// What was asked for.
        got: u64,
    },
    /// The values given to be encoded break the format's rules.
    #[error("cannot encode {what}: {reason}")]
    Invalid {
        /// The value.
        what: &'static str,
        /// The rule that is broken.
        reason: &'static str,
    },
}

/// What a [`FormatError`] means to a caller that only wants to know what to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The stored bytes are damaged or foreign.
    Corrupt,
    /// The bytes may be fine, but a newer version wrote them.
    Unsupported,
    /// The caller asked for something the format cannot express.
    Invalid,
}

impl FormatError {
    /// What the error means to a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Truncated { .. }
            | Self::Trailing { .. }
            | Self::Magic { .. }
            | Self::Checksum { .. }
            | Self::Malformed { .. } => ErrorKind::Corrupt,
            Self::Version { .. } | Self::Unknown { .. } => ErrorKind::Unsupported,
            Self::Limit { .. } | Self::Invalid { .. } => ErrorKind::Invalid,
        }
    }
}

/// The result of decoding or encoding.
pub type Result<T> = std::result::Result<T, FormatError>;

pub(crate) fn malformed<T>(what: &'static str, reason: &'static str) -> Result<T> {
    Err(FormatError::Malformed { what, reason })
}

pub(crate) fn invalid<T>(what: &'static str, reason: &'static str) -> Result<T> {
    Err(FormatError::Invalid { what, reason })
}
