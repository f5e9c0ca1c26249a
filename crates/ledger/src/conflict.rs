//! Why an edit does not apply, in git's words where git has them.

use cuesta_format::LayerId;
use cuesta_git::{ObjectFormat, ObjectId, RefName};

/// Why an edit does not apply. Its text is what `report-status` may show for the ref.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Conflict {
    /// A ref is not as the edit expects it.
    #[error("{reason}")]
    Ref {
        /// The ref.
        name: RefName,
        /// What is wrong with it.
        reason: RefConflict,
    },
    /// A layer that the edit removes is not there: whoever merges layers was overtaken.
    #[error("layer {0} is not there")]
    LayerMissing(LayerId),
    /// A layer that the edit adds is there already.
    #[error("layer {0} is there already")]
    LayerExists(LayerId),
    /// A layer that the edit adds left the list, or was found to be in none: its payloads are being deleted.
    #[error("layer {0} is being deleted")]
    LayerRetired(LayerId),
    /// The cue of an inline layer cannot be read.
    #[error("cue of inline layer {layer} is invalid: {what}")]
    BadCue {
        /// The layer.
        layer: LayerId,
        /// What is wrong.
        what: String,
    },
    /// The log's first edit must fix the object format.
    #[error("the repository has no object format yet")]
    ObjectFormatMissing,
    /// The object format was fixed before.
    #[error("the repository's object format is {format} and cannot change")]
    ObjectFormatFixed {
        /// The format it has.
        format: ObjectFormat,
    },
}

/// Why a ref cannot be updated. The texts of the first four are git's (refs.c, `ref_transaction_error_msg`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefConflict {
    /// The ref has another value than the edit expects.
    #[error("incorrect old value provided")]
    OldDiffers {
        /// The value it has.
        now: ObjectId,
    },
    /// The edit creates a ref that is there.
    #[error("reference already exists")]
    Exists,
    /// The edit updates or deletes a ref that is not there.
    #[error("reference does not exist")]
    Missing,
    /// `a` and `a/b` cannot both be refs.
    #[error("refname conflict")]
    Name {
        /// The ref in the way.
        other: RefName,
    },
    /// The ref is symbolic; whoever makes the edit resolves it first.
    #[error("reference is symbolic, it names '{target}'")]
    Symbolic {
        /// The ref it names.
        target: RefName,
    },
    /// The edit names the ref twice.
    #[error("multiple updates for ref not allowed")]
    Repeated,
    /// The symbolic ref would lead back to itself, or too far.
    #[error("too many levels of symbolic refs")]
    Loop,
    /// The new value is null or of another object format.
    #[error("invalid new value provided")]
    BadTarget {
        /// The value.
        oid: ObjectId,
    },
}
