//! What is held for long of payloads that are far away: files without a name below the cache's directory, mapped
//! (docs/decisions/mapped-cues.md). They end with who holds them, and with the process.

use crate::bucket::blocking;
use bytes::Bytes;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The files of one directory. Clones share its bound.
#[derive(Debug, Clone)]
pub(super) struct HeldFiles {
    directory: PathBuf,
    bytes: Arc<AtomicU64>,
    bytes_max: u64,
}

/// Room for a file, taken until it is dropped.
struct Room {
    len: u64,
    bytes: Arc<AtomicU64>,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// A file being filled.
pub(super) struct Filling {
    file: File,
    room: Room,
}

/// A file's memory.
struct Mapped {
    bytes: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl HeldFiles {
    pub(super) fn new(directory: &Path, bytes_max: u64) -> Self {
        Self {
            directory: directory.to_owned(),
            bytes: Arc::default(),
            bytes_max,
        }
    }

    /// A file for `len` bytes; `None` where there is no room for them. Blocks for a moment.
    pub(super) fn start(&self, len: u64) -> io::Result<Option<Filling>> {
        let add = |bytes: u64| bytes.checked_add(len).filter(|sum| *sum <= self.bytes_max);
        let taken = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        if taken.is_err() {
            return Ok(None);
        }
        let room = Room {
            len,
            bytes: Arc::clone(&self.bytes),
        };
        // The directory may have been deleted meanwhile.
        std::fs::create_dir_all(&self.directory)?;
        let file = tempfile::tempfile_in(&self.directory)?;
        Ok(Some(Filling { file, room }))
    }
}

impl Filling {
    /// Writes what comes next.
    pub(super) async fn write(mut self, pieces: Vec<Bytes>) -> io::Result<Self> {
        blocking(move || {
            pieces.iter().try_for_each(|piece| self.file.write_all(piece))?;
            Ok(self)
        })
        .await
    }

    /// The file as memory.
    pub(super) async fn finish(self) -> io::Result<Bytes> {
        let Self { file, room } = self;
        let bytes = blocking(move || crate::mapped::map(&file, &(0..file.metadata()?.len()))).await?;
        Ok(Bytes::from_owner(Mapped { bytes, _room: room }))
    }
}
