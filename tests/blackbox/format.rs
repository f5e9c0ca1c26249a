//! The two object formats, as far as what is written by hand must know them.

use sha1::{Digest, Sha1};
use sha2::Sha256;
use std::fmt;

/// By which hash a repository names its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Sha1,
    Sha256,
}

impl Format {
    /// No object: a ref that is not there.
    pub(crate) fn zero(self) -> &'static str {
        self.cut("0000000000000000000000000000000000000000000000000000000000000000")
    }

    /// The oid of an object that is nowhere.
    pub(crate) fn absent(self) -> &'static str {
        self.cut("1234567890123456789012345678901234567890123456789012345678901234")
    }

    fn cut(self, digits: &'static str) -> &'static str {
        match self {
            Self::Sha1 => &digits[..40],
            Self::Sha256 => digits,
        }
    }

    /// What a push by hand usually asks for.
    pub(crate) fn push_capabilities(self) -> &'static str {
        match self {
            Self::Sha1 => "report-status side-band-64k object-format=sha1 agent=suite",
            Self::Sha256 => "report-status side-band-64k object-format=sha256 agent=suite",
        }
    }

    /// The hash of some bytes.
    pub(crate) fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha1 => Sha1::digest(bytes).to_vec(),
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        })
    }
}
