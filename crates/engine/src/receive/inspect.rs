//! What is learnt from an object while its content is in memory: its id, whether it is sound, and what it names.

use super::error::{ObjectFault, PackFault};
use cuesta_git::fsck::{self, Checker};
use cuesta_git::{CommitRef, ObjectFormat, ObjectId, ObjectKind, TagRef, object_id};
use std::sync::Arc;

/// A commit of the push.
pub(crate) struct CommitRow {
    /// Its entry.
    pub(crate) entry: u32,
    /// Its tree, parents and time.
    pub(crate) commit: CommitRef,
}

/// A tag of the push.
#[derive(Clone, Copy)]
pub(crate) struct TagRow {
    /// Its entry.
    pub(crate) entry: u32,
    /// The object it tags.
    pub(crate) target: ObjectId,
    /// The kind it says that object has.
    pub(crate) target_kind: ObjectKind,
}

/// Why an object was refused: placed faults are for the caller to place.
pub(crate) enum Refused {
    /// The fault of this entry.
    Fault(ObjectFault),
    /// A fault that names the object itself.
    Pack(PackFault),
}

/// Looks at each object once. Each thread has its own; [`Inspector::absorb`] joins what they found.
pub(crate) struct Inspector {
    format: ObjectFormat,
    pub(crate) checker: Checker,
    pub(crate) commits: Vec<CommitRow>,
    pub(crate) tags: Vec<TagRow>,
}

impl Inspector {
    pub(crate) fn new(format: ObjectFormat, config: Arc<fsck::Config>) -> Self {
        Self {
            format,
            checker: Checker::new(format, config),
            commits: Vec::new(),
            tags: Vec::new(),
        }
    }

    /// Hashes an object, checks it by git's fsck rules and remembers what it names.
    pub(crate) fn inspect(&mut self, entry: u32, kind: ObjectKind, content: &[u8]) -> Result<ObjectId, Refused> {
        let oid = object_id(self.format, kind, content).map_err(|attack| Refused::Pack(attack.into()))?;
        self.checker
            .check(kind, &oid, content)
            .map_err(|refusal| Refused::Pack(PackFault::fsck(&refusal)))?;
        self.note(entry, kind, content).map_err(Refused::Fault)?;
        Ok(oid)
    }

    /// Adds what another inspector found.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.checker.absorb(other.checker);
        self.commits.extend(other.commits);
        self.tags.extend(other.tags);
    }

    fn note(&mut self, entry: u32, kind: ObjectKind, content: &[u8]) -> Result<(), ObjectFault> {
        let invalid = |why: cuesta_git::ObjectError| ObjectFault::Content {
            kind,
            why: why.to_string(),
        };
        match kind {
            ObjectKind::Commit => {
                let commit = CommitRef::parse(self.format, content).map_err(invalid)?;
                self.commits.push(CommitRow { entry, commit });
            }
            ObjectKind::Tag => {
                let tag = TagRef::parse(self.format, content).map_err(invalid)?;
                self.tags.push(TagRow {
                    entry,
                    target: tag.target,
                    target_kind: tag.target_kind,
                });
            }
            ObjectKind::Tree | ObjectKind::Blob => {}
        }
        Ok(())
    }
}
