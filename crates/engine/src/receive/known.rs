//! What a push may lean on: the objects that the repository already has.

use super::error::IntakeError;
use bytes::Bytes;
use cuesta_git::{ObjectId, ObjectKind};

/// A commit of the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownCommit {
    /// One more than its highest parent's; 1 for a root.
    pub(crate) generation: u32,
    /// Its root tree.
    pub(crate) tree: ObjectId,
}

/// Kind and size of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Described {
    /// The kind.
    pub(crate) kind: ObjectKind,
    /// Size of its content in bytes.
    pub(crate) size: u64,
}

/// The repository, as far as a push leans on it. Answers are in the order of the questions; each call may be a round trip
/// to the bucket, so callers ask for many objects at once.
///
/// Only objects whose closure is complete count: what lies in `unreachable` layers is not known.
pub(crate) trait Known: Send + Sync {
    /// Whether there is nothing at all, so that nobody need ask.
    fn is_empty(&self) -> bool;

    /// Kinds and sizes.
    fn describe(&self, oids: &[ObjectId]) -> Result<Vec<Option<Described>>, IntakeError>;

    /// The same of commits, tags and trees that the push brings: nothing of blobs need be loaded for it.
    fn describe_brought_structure(&self, oids: &[ObjectId]) -> Result<Vec<Option<Described>>, IntakeError> {
        self.describe(oids)
    }

    /// The same of blobs that the push brings. May be `None` for one that is there, where it would cost more to know it than to
    /// store it twice.
    fn describe_brought_blobs(&self, oids: &[ObjectId]) -> Result<Vec<Option<Described>>, IntakeError> {
        self.describe(oids)
    }

    /// Whole objects.
    fn objects(&self, oids: &[ObjectId]) -> Result<Vec<Option<(ObjectKind, Bytes)>>, IntakeError>;

    /// A commit, from the graph.
    fn commit(&self, oid: &ObjectId) -> Result<Option<KnownCommit>, IntakeError>;
}

/// A repository without objects.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Nothing;

impl Known for Nothing {
    fn is_empty(&self) -> bool {
        true
    }

    fn describe(&self, oids: &[ObjectId]) -> Result<Vec<Option<Described>>, IntakeError> {
        Ok(vec![None; oids.len()])
    }

    fn objects(&self, oids: &[ObjectId]) -> Result<Vec<Option<(ObjectKind, Bytes)>>, IntakeError> {
        Ok(vec![None; oids.len()])
    }

    fn commit(&self, _oid: &ObjectId) -> Result<Option<KnownCommit>, IntakeError> {
        Ok(None)
    }
}
