//! Ref names as proofs: a [`RefName`] has passed git's `check_refname_format`.

use std::fmt;
use std::sync::Arc;

/// The full name of a ref: `HEAD`, or `refs/` and at least one more component. Bytes, not text, as in git; cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefName(Arc<[u8]>);

/// A name that git's `check_refname_format` refuses, or that is not a full name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{}' is not a valid ref name", name.escape_ascii())]
pub struct RefNameError {
    /// The name as it came.
    pub name: Vec<u8>,
}

impl RefName {
    /// Checks a full ref name (gitglossary: `HEAD` or below `refs/`).
    pub fn new(name: &[u8]) -> Result<Self, RefNameError> {
        let full = name == b"HEAD" || name.starts_with(b"refs/");
        let valid = gix_validate::reference::name(name.into()).is_ok();
        if full && valid {
            Ok(Self(name.into()))
        } else {
            Err(RefNameError { name: name.to_vec() })
        }
    }

    /// The name of the ref that `HEAD` is.
    pub fn head() -> Self {
        Self(Arc::from(&b"HEAD"[..]))
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for RefName {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Lets ordered maps of names be searched by bytes; `RefName` orders as its bytes do.
impl std::borrow::Borrow<[u8]> for RefName {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

impl fmt::Debug for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}
