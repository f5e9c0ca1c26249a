//! Files of a local directory written and read past the operating system's page cache: for merges of layers, whose bytes
//! nobody is about to ask for.
//!
//! A page that is new to the cache costs more than all else a merge does with its bytes (docs/benchmarks.md), and takes the
//! place of one that readers want. Direct I/O (open(2), `O_DIRECT`) wants addresses, offsets and lengths that are multiples
//! of a block; what is not, and what a file system refuses, goes through the cache.

use async_trait::async_trait;
use bytes::Bytes;
use object_store::{MultipartUpload, PutPayload, PutResult, UploadPart};
use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file on its way into the directory, part by part, in any order; nothing is under its name before it is complete.
#[derive(Debug)]
pub(crate) struct DirectUpload {
    staged: Arc<Mutex<Staged>>,
    offset: u64,
    /// Where the staged file still is.
    leftover: Option<PathBuf>,
    target: PathBuf,
    sync: bool,
}

/// A file without its name yet.
#[derive(Debug)]
struct Staged {
    file: File,
    /// The same file, if it can be written past the cache.
    direct: Option<File>,
    buffer: Aligned,
}

/// A buffer at an aligned address.
#[derive(Debug)]
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl DirectUpload {
    /// Starts the file that will be at `target`, in a directory that is there. Blocks. With `sync`, completing it waits for
    /// the disk.
    pub(crate) fn start(target: PathBuf, sync: bool) -> io::Result<Self> {
        let (file, path) = stage(&target)?;
        let direct = open_direct(OpenOptions::new().write(true), &path).ok();
        let staged = Staged {
            file,
            direct,
            buffer: Aligned::new(BUFFER_LEN),
        };
        Ok(Self {
            staged: Arc::new(Mutex::new(staged)),
            offset: 0,
            leftover: Some(path),
            target,
            sync,
        })
    }
}

#[async_trait]
impl MultipartUpload for DirectUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (staged, offset) = (Arc::clone(&self.staged), self.offset);
        self.offset += data.content_length() as u64;
        Box::pin(async move {
            let written = crate::bucket::blocking(move || staged.lock().write(&data, offset)).await;
            written.map_err(failed)
        })
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        let path = self
            .leftover
            .clone()
            .ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let (staged, target, sync) = (Arc::clone(&self.staged), self.target.clone(), self.sync);
        let published = crate::bucket::blocking(move || publish(&staged.lock().file, &path, &target, sync)).await;
        published.map_err(failed)?;
        self.leftover = None;
        Ok(PutResult {
            e_tag: None,
            version: None,
            extensions: Default::default(),
        })
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        match self.leftover.take() {
            Some(path) => crate::bucket::blocking(move || std::fs::remove_file(path))
                .await
                .map_err(failed),
            None => Ok(()),
        }
    }
}

impl Drop for DirectUpload {
    fn drop(&mut self) {
        if let Some(path) = self.leftover.take() {
            // Best effort: it has no name that a reader would find.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Staged {
    fn write(&mut self, data: &PutPayload, mut offset: u64) -> io::Result<()> {
        let mut filled = 0;
        for piece in data {
            let mut piece: &[u8] = piece;
            while !piece.is_empty() {
                let room = self.buffer.bytes_mut().get_mut(filled..).unwrap_or_default();
                let (now, later) = piece.split_at(room.len().min(piece.len()));
                if let Some(slots) = room.get_mut(..now.len()) {
                    slots.copy_from_slice(now);
                }
                filled += now.len();
                piece = later;
                if filled == BUFFER_LEN {
                    self.write_buffer(filled, offset)?;
                    offset += filled as u64;
                    filled = 0;
                }
            }
        }
        self.write_buffer(filled, offset)
    }

    /// Writes the first `len` bytes of the buffer: whole blocks directly, the rest through the cache.
    fn write_buffer(&mut self, len: usize, offset: u64) -> io::Result<()> {
        let bytes = self.buffer.bytes_mut().get(..len).unwrap_or_default();
        let blocks_len = match offset.is_multiple_of(BLOCK_LEN as u64) {
            true => len - len % BLOCK_LEN,
            false => 0,
        };
        let (blocks, rest) = bytes.split_at(blocks_len);
        let direct = self.direct.as_ref().map(|direct| direct.write_all_at(blocks, offset));
        match direct {
            Some(Ok(())) => {}
            Some(Err(error)) if error.kind() != io::ErrorKind::InvalidInput => return Err(error),
            // A file system that takes the flag but wants larger blocks.
            Some(Err(_)) | None => {
                self.direct = None;
                self.file.write_all_at(blocks, offset)?;
            }
        }
        self.file.write_all_at(rest, offset + blocks_len as u64)
    }
}

impl Aligned {
    fn new(len: usize) -> Self {
        let bytes = vec![0; len + BLOCK_LEN];
        let start = bytes.as_ptr().align_offset(BLOCK_LEN).min(BLOCK_LEN);
        Self { bytes, start, len }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
            .get_mut(self.start..self.start + self.len)
            .unwrap_or_default()
    }

    /// Bytes `range` of the buffer.
    fn into_bytes(self, range: Range<usize>) -> Bytes {
        Bytes::from(self.bytes).slice(self.start + range.start..self.start + range.end)
    }
}

/// Reads a range that ends within the file, whose length is `file_len`, past the cache where that is possible. Blocks.
pub(crate) fn read(path: &Path, range: &Range<u64>, file_len: u64) -> io::Result<Bytes> {
    if range.is_empty() || range.end > file_len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let block = BLOCK_LEN as u64;
    let first = range.start - range.start % block;
    let too_large = |_| io::Error::from(io::ErrorKind::OutOfMemory);
    let (skip, needed) = (range.start - first, range.end - first);
    let skip = usize::try_from(skip).map_err(too_large)?;
    let needed = usize::try_from(needed).map_err(too_large)?;
    let mut buffer = Aligned::new(needed.next_multiple_of(BLOCK_LEN));
    let direct = open_direct(OpenOptions::new().read(true), path)
        .and_then(|file| read_blocks(&file, buffer.bytes_mut(), needed, first));
    match direct {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            let wanted = buffer.bytes_mut().get_mut(..needed).unwrap_or_default();
            File::open(path)?.read_exact_at(wanted, first)?;
        }
        outcome => outcome?,
    }
    Ok(buffer.into_bytes(skip..needed))
}

/// Fills at least `needed` bytes of `blocks`; the file may end in the last block.
fn read_blocks(file: &File, blocks: &mut [u8], needed: usize, offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < needed {
        let rest = blocks.get_mut(done..).unwrap_or_default();
        match file.read_at(rest, offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A new file beside `target`, under a name that `object_store` uses for staged files, too: it never lists them.
fn stage(target: &Path) -> io::Result<(File, PathBuf)> {
    for number in 1u32.. {
        let mut path = target.as_os_str().to_owned();
        path.push(format!("#{number}"));
        let path = PathBuf::from(path);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            outcome => return Ok((outcome?, path)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Gives a staged file its name: durable first the bytes, then the name.
fn publish(file: &File, path: &Path, target: &Path, sync: bool) -> io::Result<()> {
    if sync {
        file.sync_all()?;
    }
    std::fs::rename(path, target)?;
    match target.parent() {
        Some(directory) if sync => File::open(directory)?.sync_all(),
        _ => Ok(()),
    }
}

fn open_direct(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.custom_flags(DIRECT).open(path)
}

fn failed(error: io::Error) -> object_store::Error {
    object_store::Error::Generic {
        store: "directory",
        source: Box::new(error),
    }
}

/// Where there is no such flag, files are opened as usual.
#[cfg(target_os = "linux")]
const DIRECT: i32 = libc::O_DIRECT;
#[cfg(not(target_os = "linux"))]
const DIRECT: i32 = 0;

/// Multiples of this suit all common disks and file systems.
const BLOCK_LEN: usize = 4096;
/// Bytes of one write.
const BUFFER_LEN: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
    }

    fn parts(bytes: &[u8], part_len: usize, piece_len: usize) -> Vec<PutPayload> {
        let pieces = |part: &[u8]| part.chunks(piece_len).map(Bytes::copy_from_slice).collect();
        bytes.chunks(part_len).map(pieces).collect()
    }

    #[tokio::test]
    async fn what_was_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let lens = [
            1,
            BLOCK_LEN - 1,
            BLOCK_LEN,
            BLOCK_LEN + 1,
            BUFFER_LEN,
            3 * BUFFER_LEN + 77,
        ];
        // Parts that are no multiples of a block are written, too, only not directly.
        for (number, (len, part_len)) in lens
            .into_iter()
            .flat_map(|len| [(len, 2 * BUFFER_LEN), (len, 70_001)])
            .enumerate()
        {
            let (target, content) = (directory.path().join(format!("file{number}")), bytes(len));
            let mut upload = DirectUpload::start(target.clone(), true).unwrap();
            for part in parts(&content, part_len, 300_007) {
                upload.put_part(part).await.unwrap();
            }
            assert!(!target.exists());
            upload.complete().await.unwrap();
            drop(upload);
            assert!(
                std::fs::read(&target).unwrap() == content,
                "{len} in parts of {part_len}"
            );
            for range in [0..len, len - 1..len, len / 3..len, len / 2..len / 2 + 1] {
                let read = read(&target, &(range.start as u64..range.end as u64), len as u64).unwrap();
                assert!(read == content[range.clone()], "{range:?} of {len}");
            }
            assert!(read(&target, &(0..len as u64 + 1), len as u64).is_err());
            assert!(read(&target, &(0..len as u64 + 9000), len as u64 + 9000).is_err());
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 12);
    }

    #[tokio::test]
    async fn what_is_given_up_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("file");
        let mut aborted = DirectUpload::start(target.clone(), false).unwrap();
        let mut dropped = DirectUpload::start(target.clone(), false).unwrap();
        aborted.put_part(parts(&bytes(10), 10, 10).remove(0)).await.unwrap();
        dropped.put_part(parts(&bytes(10), 10, 10).remove(0)).await.unwrap();
        aborted.abort().await.unwrap();
        drop(dropped);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
