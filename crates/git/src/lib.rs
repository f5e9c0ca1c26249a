//! Git's own data model: object ids, objects, ref names, fsck rules, deltas and pack entries.
//!
//! Pure: no I/O, no async, no clock, and nothing of Cuesta. Behaviour is git's; where git's documentation is silent,
//! it is what `git` does.

pub mod attributes;
pub mod calendar;
pub mod config_file;
pub mod delta;
mod error;
pub mod fsck;
mod hash;
mod hidden;
mod id_order;
mod object;
mod oid;
pub mod pack;
mod path_pattern;
pub mod pathspec;
pub mod pretty;
mod refname;
pub mod sparse;
pub mod wildmatch;
pub mod worktree;
pub mod zlib;

pub use error::ErrorKind;
pub use hash::{Checksum, CollisionAttack, ObjectHasher, hmac, object_checksum, object_id};
pub use hidden::HiddenRefs;
pub use id_order::{IdKey, sort_by_id};
pub use object::{CommitRef, ObjectError, TagRef, TreeEntry, TreeIter, TreeMode};
pub use oid::{ObjectFormat, ObjectId, ObjectKind, ParseIdError};
pub use refname::{RefName, RefNameError};
