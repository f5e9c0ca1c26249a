//! Objects as git's readers parse them: leniently. Being strict is the business of [`crate::fsck`].

mod commit;
mod date;
mod tag;
mod tree;

pub use commit::CommitRef;
pub use tag::TagRef;
pub use tree::{TreeEntry, TreeIter, TreeMode};

use crate::{ErrorKind, ObjectFormat, ObjectId};

/// An object that git's own parser refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// No `tree` line.
    #[error("bogus commit object")]
    BogusCommit,
    /// The tree is no object id.
    #[error("bad tree pointer in commit")]
    BadTreePointer,
    /// A parent is no object id.
    #[error("bad parents in commit")]
    BadParents,
    /// Bytes after the last entry that are none.
    #[error("too-short tree object")]
    ShortTree,
    /// A mode that is not octal digits and a space.
    #[error("malformed mode in tree entry")]
    MalformedMode,
    /// An entry without a name.
    #[error("empty filename in tree entry")]
    EmptyFilename,
    /// A tag without its `object`, `type` and `tag` lines.
    #[error("bogus tag object")]
    BogusTag,
    /// A tag of something that is no kind of object.
    #[error("unknown tag type")]
    UnknownTagType,
}

impl ObjectError {
    /// What sort of failure this is.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Corrupt
    }
}

/// Reads `<label><hex id> LF` off the front of `bytes`; `None` if it is not there.
fn id_line<'a>(format: ObjectFormat, bytes: &'a [u8], label: &[u8]) -> Option<(ObjectId, &'a [u8])> {
    let (hex, rest) = bytes.strip_prefix(label)?.split_at_checked(format.hex_width())?;
    let rest = rest.strip_prefix(b"\n")?;
    Some((ObjectId::from_hex(format, hex).ok()?, rest))
}
