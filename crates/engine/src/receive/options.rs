//! Limits and resources of the push side.

use cuesta_git::{ObjectFormat, fsck};
use std::path::PathBuf;
use std::sync::Arc;

/// What a push holds for each of its objects while it is taken in, in bytes: columns of words, and most of it while deltas are
/// resolved or, without any, while the walk of a large commit goes on.
pub const OBJECT_BYTES: u64 = 128;

/// Limits and resources for all pushes of an engine. The limits bound what a peer can make us hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveOptions {
    /// Bytes of a layer, pack and cue together, that may travel in the ledger. The log store's own limit holds, too.
    pub inline_bytes_max: usize,
    /// Commands in one push.
    pub commands_max: usize,
    /// Bytes of all packs of one push together, where the repository does not set `receive.maxInputSize`; `None` for no
    /// limit.
    pub pack_bytes_max: Option<u64>,
    /// Objects of all packs of one push together.
    pub objects_max: u32,
    /// Inflated size of one blob, which may stream.
    pub blob_bytes_max: u64,
    /// Inflated size of one commit, tree or tag: they are held whole, with the delta and the base they are made from.
    pub structure_bytes_max: u64,
    /// Inflated size of blobs, and of their deltas, that are held whole while deltas are applied; larger ones go through
    /// files.
    pub held_object_bytes_max: u64,
    /// Inflated size of a blob that is made from a delta, of that delta and of its base. Such blobs take room on disk, and a
    /// few bytes of delta can stand for any number.
    pub delta_bytes_max: u64,
    /// Bytes of such files that one thread keeps to apply more deltas to them; further ones are made again when needed. The
    /// two at hand are there in any case.
    pub spill_bytes_max: u64,
    /// Bytes of one push kept in memory before it moves to a file.
    pub spool_memory_bytes_max: usize,
    /// Where that file is made. It never has a name there.
    pub spool_directory: PathBuf,
    /// Inflated bytes of delta bases and trees kept, by all threads of one push together.
    pub base_bytes_max: usize,
    /// Threads that resolve the deltas of one push.
    pub threads: usize,
}

impl Default for ReceiveOptions {
    fn default() -> Self {
        Self {
            inline_bytes_max: 1 << 20,
            commands_max: 100_000,
            pack_bytes_max: None,
            objects_max: 100_000_000,
            blob_bytes_max: 64 << 30,
            structure_bytes_max: 64 << 20,
            held_object_bytes_max: 16 << 20,
            delta_bytes_max: 4 << 30,
            spill_bytes_max: 8 << 30,
            spool_memory_bytes_max: 16 << 20,
            spool_directory: std::env::temp_dir(),
            base_bytes_max: 64 << 20,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// What one push is taken in with.
#[derive(Clone, Debug)]
pub(crate) struct IntakeOptions {
    pub(crate) object_format: ObjectFormat,
    pub(crate) limits: ReceiveOptions,
    /// Which of git's fsck rules are lifted.
    pub(crate) fsck: Arc<fsck::Config>,
    /// Inflated bytes, of all entries and of what deltas make, beyond which this thread must not go on:
    /// [`super::IntakeError::WouldWait`].
    pub(crate) work_bytes_max: u64,
}

impl IntakeOptions {
    /// For a thread that may take its time.
    pub(crate) fn new(object_format: ObjectFormat, limits: ReceiveOptions, fsck: fsck::Config) -> Self {
        Self {
            object_format,
            limits,
            fsck: Arc::new(fsck),
            work_bytes_max: u64::MAX,
        }
    }
}
