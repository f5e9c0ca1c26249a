//! What is held for long of payloads that are far away: files without a name below the cache's directory, mapped
//! (docs/decisions/mapped-cues.md). They end with who holds them, and with the process.

use super::{Access, BlockCache};
use crate::bucket::blocking;
use crate::error::Result;
use bytes::Bytes;
use futures::{StreamExt, stream};
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Below this a mapping is not worth the trouble: a process may not have very many.
pub(super) const MAPPED_BYTES_MIN: u64 = 4 << 10;
/// Below this a file is not.
pub(super) const HELD_BYTES_MIN: u64 = 64 << 10;
/// Parts that are fetched ahead of the file.
const PARTS_AT_ONCE: usize = 4;

/// Bytes to be held for long.
#[derive(Debug, Clone)]
pub struct Held {
    /// The bytes.
    pub bytes: Bytes,
    /// Whether their memory is a file's, which the operating system can take back.
    pub is_mapped: bool,
}

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

impl BlockCache {
    /// As [`read`](Self::read), for bytes that the caller will hold for long. Where there is a file for them, they are mapped, so
    /// that the operating system may take their memory back: the payload itself where the bucket is a local directory, else one
    /// below the cache's directory, while there is room. Few bytes have none.
    pub async fn hold(&self, key: &str, object_size: u64, range: Range<u64>) -> Result<Held> {
        let (is_there, len) = (range.end <= object_size, range.end.saturating_sub(range.start));
        if is_there && self.bucket().is_local() && len < MAPPED_BYTES_MIN {
            let bytes = self.bucket().get_range(key, range).await?;
            return Ok(Held {
                bytes,
                is_mapped: false,
            });
        }
        if is_there && let Some(bytes) = self.bucket().map(key, range.clone()).await? {
            return Ok(Held { bytes, is_mapped: true });
        }
        if let Some(held) = &self.0.held
            && len >= HELD_BYTES_MIN
            && let Some(bytes) = self.hold_in_file(held, (key, object_size), &range).await?
        {
            return Ok(Held { bytes, is_mapped: true });
        }
        let bytes = self.read(key, object_size, range).await?;
        Ok(Held {
            bytes,
            is_mapped: false,
        })
    }

    /// Through a file; `None` where there is no room for it, or the disk fails.
    async fn hold_in_file(
        &self,
        held: &HeldFiles,
        (key, object_size): (&str, u64),
        range: &Range<u64>,
    ) -> Result<Option<Bytes>> {
        let note = |error: io::Error| tracing::debug!(key, %error, "cannot hold a part of a payload on disk");
        let started = {
            let (held, len) = (held.clone(), range.end - range.start);
            blocking(move || held.start(len)).await
        };
        let Some(mut file) = started.map_err(note).ok().flatten() else {
            return Ok(None);
        };
        let step = self.0.blocks_per_fetch * self.0.block_bytes;
        let parts = (range.start / step..range.end.div_ceil(step))
            .map(|part| (part * step).max(range.start)..((part + 1) * step).min(range.end));
        let read = |part| self.read_pieces(key, object_size, part, Access::Scan);
        let mut read = std::pin::pin!(stream::iter(parts.map(read)).buffered(PARTS_AT_ONCE));
        while let Some(pieces) = read.next().await {
            match file.write(pieces?).await.map_err(note) {
                Ok(written) => file = written,
                Err(()) => return Ok(None),
            }
        }
        Ok(file.finish().await.map_err(note).ok())
    }
}
