//! What sort of failure an error of this crate is.

/// The sorts of failure that bytes can cause; every error type here has a `kind()` that answers with one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes break the format.
    Corrupt,
    /// The bytes are well-formed and of a version or kind that is not supported.
    Unsupported,
    /// The bytes ask for more than a stated limit.
    TooLarge,
}
