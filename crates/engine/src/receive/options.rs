//! Limits and resources of one intake.

use cuesta_git::{ObjectFormat, fsck};
use std::path::PathBuf;
use std::sync::Arc;

/// Limits and resources of one intake. The limits bound what a peer can make us hold.
#[derive(Clone, Debug)]
pub struct IntakeOptions {
    /// The repository's object format.
    pub object_format: ObjectFormat,
    /// Bytes of all packs of one push together (`receive.maxInputSize`); `None` for no limit.
    pub pack_bytes_max: Option<u64>,
    /// Objects of all packs of one push together.
    pub objects_max: u32,
    /// Inflated size of one blob, which may stream.
    pub blob_bytes_max: u64,
    /// Inflated size of what is held whole in memory: commits, trees, tags, deltas, their bases and results.
    pub held_object_bytes_max: u64,
    /// Bytes of the push kept in memory before it moves to a file.
    pub spool_memory_bytes_max: usize,
    /// Where that file is made. It never has a name there.
    pub spool_directory: PathBuf,
    /// Inflated bytes of delta bases and trees kept, by all threads together.
    pub base_bytes_max: usize,
    /// Threads that resolve deltas.
    pub threads: usize,
    /// Which of git's fsck rules are lifted.
    pub fsck: Arc<fsck::Config>,
}

impl IntakeOptions {
    /// Generous limits, and as many threads as there are cores.
    pub fn new(object_format: ObjectFormat, spool_directory: PathBuf) -> Self {
        Self {
            object_format,
            pack_bytes_max: None,
            objects_max: 100_000_000,
            blob_bytes_max: 64 << 30,
            held_object_bytes_max: 512 << 20,
            spool_memory_bytes_max: 16 << 20,
            spool_directory,
            base_bytes_max: 96 << 20,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            fsck: Arc::new(fsck::Config::strict()),
        }
    }
}
