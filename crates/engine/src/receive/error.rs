//! Why a push could not be taken in. What the peer did wrong is said in `git index-pack`'s words.

use cuesta_git::{ObjectId, ObjectKind};
use std::io;

/// A pack was not taken in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IntakeError {
    /// The pack itself is at fault.
    #[error(transparent)]
    Pack(#[from] PackFault),
    /// The spool could not be written or read.
    #[error("cannot spool the pack: {0}")]
    Spool(#[from] io::Error),
    /// The repository's own objects could not be read.
    #[error("cannot read the repository: {0}")]
    Known(Box<crate::EngineError>),
    /// The layer could not be put together.
    #[error("cannot build the layer: {0}")]
    Layer(cuesta_format::FormatError),
    /// The layer could not be stored.
    #[error("cannot store the layer: {0}")]
    Store(#[from] cuesta_store::StoreError),
    /// Something is not in memory, and this thread must not wait for it; ask again on one that may.
    #[error("cannot wait here")]
    WouldWait,
    /// An invariant of ours does not hold.
    #[error("internal error: {0}")]
    Internal(&'static str),
}

/// What is wrong with a pack that a peer sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackFault {
    /// The bytes end inside the pack.
    #[error("early EOF")]
    EarlyEof,
    /// The bytes do not start as a pack does.
    #[error("pack signature mismatch")]
    Signature,
    /// A version that does not exist.
    #[error("pack version {0} unsupported")]
    Version(u32),
    /// Bytes follow the trailer.
    #[error("pack has junk at the end")]
    Junk,
    /// The trailer is not the checksum of what came before it.
    #[error("pack is corrupted (checksum mismatch: expected {expected}, got {got})")]
    Trailer {
        /// The checksum of the bytes that came.
        expected: ObjectId,
        /// What the trailer says.
        got: ObjectId,
    },
    /// More bytes than `receive.maxInputSize`.
    #[error("pack exceeds maximum allowed size ({bytes_max} bytes)")]
    TooLarge {
        /// The limit.
        bytes_max: u64,
    },
    /// More objects than one push may hold.
    #[error("pack has too many objects ({objects}, the limit is {objects_max})")]
    TooManyObjects {
        /// What the header says.
        objects: u64,
        /// The limit.
        objects_max: u32,
    },
    /// One entry is at fault.
    #[error("pack has bad object at offset {offset}: {fault}")]
    BadObject {
        /// Where in its pack the entry starts.
        offset: u64,
        /// What is wrong with it.
        fault: ObjectFault,
    },
    /// Deltas whose base is neither in the push nor in the repository, or that form a cycle.
    #[error("pack has {} unresolved {}", .0, if *.0 == 1 { "delta" } else { "deltas" })]
    Unresolved(u64),
    /// A delta is based on an object of the repository that is too large to be held.
    #[error("delta base {oid} of {size} bytes is too large (the limit is {size_max}); push with --no-thin")]
    LargeBase {
        /// The base.
        oid: ObjectId,
        /// Its size.
        size: u64,
        /// The limit.
        size_max: u64,
    },
    /// An object breaks a rule of `git fsck`.
    #[error("fsck error in packed object: {0}")]
    Fsck(String),
    /// The repository has another object of this id.
    #[error("SHA1 COLLISION FOUND WITH {0} !")]
    Collision(ObjectId),
    /// The bytes carry the marks of a SHA-1 collision attack.
    #[error(transparent)]
    Attack(#[from] cuesta_git::CollisionAttack),
}

/// What is wrong with one entry of a pack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectFault {
    /// The header of the entry is not one.
    #[error("{0}")]
    Header(String),
    /// An offset delta points outside the pack or into the middle of an entry.
    #[error("delta base offset is out of bound")]
    BaseOutOfBound,
    /// The zlib stream is broken.
    #[error("inflate returned an error: {0}")]
    Inflate(String),
    /// The zlib stream gives more or less than the header says.
    #[error("serious inflate inconsistency: expected {expected} bytes, got {got}")]
    Size {
        /// What the header says.
        expected: u64,
        /// What came out, counted until it was clear.
        got: u64,
    },
    /// The object is larger than what is held in memory for its kind.
    #[error("{what} of {size} bytes is too large (the limit is {size_max})")]
    TooLarge {
        /// The kind of thing.
        what: &'static str,
        /// Its declared size.
        size: u64,
        /// The limit.
        size_max: u64,
    },
    /// The delta does not fit its base, or does not give what it says.
    #[error("failed to apply delta: {0}")]
    Delta(String),
    /// The content is not an object of its kind.
    #[error("invalid {kind}: {why}")]
    Content {
        /// The kind.
        kind: ObjectKind,
        /// What could not be parsed.
        why: String,
    },
}

impl PackFault {
    pub(crate) fn fsck(refusal: &cuesta_git::fsck::Refusal) -> Self {
        Self::Fsck(refusal.to_string())
    }
}

impl IntakeError {
    /// Whether the peer's bytes are the cause, and not the world or ourselves.
    pub fn is_peers_fault(&self) -> bool {
        matches!(self, Self::Pack(_))
    }

    pub(crate) fn known(error: crate::EngineError) -> Self {
        Self::Known(Box::new(error))
    }
}

impl From<IntakeError> for crate::EngineError {
    fn from(error: IntakeError) -> Self {
        match error {
            IntakeError::Known(error) => *error,
            IntakeError::Store(error) => Self::Store(error),
            error => Self::Intake(error),
        }
    }
}
