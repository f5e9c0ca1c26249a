//! One kept file.
//!
//! | bytes | field |
//! |---|---|
//! | content | in pieces of [`PIECE_BYTES`], the last perhaps shorter |
//! | attachment | what the maker wants to know of the content |
//! | 4 a piece | crc32c of each piece, little-endian |
//! | 4 | magic `CKF1` |
//! | 4 | crc32c of the name, the attachment, the checksums and the three fields below |
//! | 8 | length of the content |
//! | 8 | length of the attachment |
//! | 8 | a number of the maker's |
//!
//! The end is written last, so that what was cut off is seen by it; the name is part of it, so that no file passes for another.

use super::{Inner, KeptName};
use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a piece: what is read, and checked, at once.
pub const PIECE_BYTES: usize = 512 << 10;

const MAGIC: &[u8; 4] = b"CKF1";
const SUM_BYTES: usize = 4;
const END_BYTES: usize = 32;
/// What follows the content takes at most so much: 32 bytes and more for each of 4 million objects.
const TAIL_BYTES_MAX: u64 = 256 << 20;

/// A file that is there, or is being written.
#[derive(Debug)]
pub struct KeptFile {
    file: File,
    name: KeptName,
    serial: u64,
    shelf: Arc<Inner>,
    /// What it takes on the disk although it is in the directory no more.
    leaving_bytes: AtomicU64,
    written: Mutex<Written>,
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        let bytes = self.leaving_bytes.load(Ordering::Relaxed);
        self.shelf.leaving_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What is known of a file besides its content.
#[derive(Debug, Default, Clone)]
struct Written {
    len: u64,
    sums: Vec<u32>,
    note: u64,
    attachment: Bytes,
}

/// A file as it was found.
pub(super) enum Opened {
    Intact(KeptFile),
    Corrupt,
}

/// A new file without content, for which the disk has so many bytes set aside.
pub(super) fn create(
    path: &Path,
    (name, serial): (KeptName, u64),
    shelf: &Arc<Inner>,
    bytes: u64,
) -> io::Result<KeptFile> {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    set_aside(&file, bytes)?;
    Ok(KeptFile {
        file,
        name,
        serial,
        shelf: Arc::clone(shelf),
        leaving_bytes: AtomicU64::new(0),
        written: Mutex::default(),
    })
}

/// Lets the disk refuse before anybody reads. A file system that cannot say refuses later.
fn set_aside(file: &File, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens a file, and checks all of it unless that was done before.
pub(super) fn open(
    path: &Path,
    (name, serial): (KeptName, u64),
    shelf: &Arc<Inner>,
    verified: bool,
) -> io::Result<Opened> {
    let file = File::open(path)?;
    let Some(written) = read_end(&file, &name)? else {
        return Ok(Opened::Corrupt);
    };
    let pieces = written.sums.len();
    let opened = KeptFile {
        file,
        name,
        serial,
        shelf: Arc::clone(shelf),
        leaving_bytes: AtomicU64::new(0),
        written: Mutex::new(written),
    };
    for piece in 0..if verified { 0 } else { pieces } {
        if opened.read_piece(piece as u64)?.is_none() {
            return Ok(Opened::Corrupt);
        }
    }
    Ok(Opened::Intact(opened))
}

impl KeptFile {
    /// Its name.
    pub fn name(&self) -> &KeptName {
        &self.name
    }

    /// A number that no other file has in this process, one of the same name neither.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Bytes of content so far.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.written.lock().len
    }

    /// Pieces of content so far.
    pub fn pieces(&self) -> u64 {
        self.written.lock().sums.len() as u64
    }

    /// The number that its maker gave to the whole file.
    pub fn note(&self) -> u64 {
        self.written.lock().note
    }

    /// What its maker added to the whole file.
    pub fn attachment(&self) -> Bytes {
        self.written.lock().attachment.clone()
    }

    /// One piece of the content. A file whose bytes are wrong is taken out of the directory, and `None` is the answer.
    pub fn piece(&self, number: u64) -> Option<Bytes> {
        match self.read_piece(number) {
            Ok(Some(piece)) => Some(piece),
            Ok(None) | Err(_) => {
                self.shelf.found_corrupt(&self.name, self.serial);
                None
            }
        }
    }

    /// `None` if it does not match its checksum.
    fn read_piece(&self, number: u64) -> io::Result<Option<Bytes>> {
        let start = number.saturating_mul(PIECE_BYTES as u64);
        let (sum, len) = {
            let written = self.written.lock();
            let sum = usize::try_from(number)
                .ok()
                .and_then(|number| written.sums.get(number).copied());
            (sum, written.len.saturating_sub(start).min(PIECE_BYTES as u64))
        };
        let mut piece = vec![0; usize::try_from(len).unwrap_or(PIECE_BYTES)];
        match self.file.read_exact_at(&mut piece, start) {
            Ok(()) => Ok((Some(crc32c::crc32c(&piece)) == sum).then(|| piece.into())),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn append(&self, piece: &[u8]) -> io::Result<()> {
        let start = self.len();
        if !start.is_multiple_of(PIECE_BYTES as u64) || piece.len() > PIECE_BYTES {
            return Err(io::Error::other("a piece of another length"));
        }
        if piece.is_empty() {
            return Ok(());
        }
        self.file.write_all_at(piece, start)?;
        let mut written = self.written.lock();
        written.sums.push(crc32c::crc32c(piece));
        written.len = start + piece.len() as u64;
        Ok(())
    }

    /// It leaves the directory: what it takes there counts until the last reader has gone.
    pub(super) fn leave(&self, bytes: u64) {
        let before = self.leaving_bytes.swap(bytes, Ordering::Relaxed);
        self.shelf.leaving_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.shelf.leaving_bytes.fetch_sub(before, Ordering::Relaxed);
    }

    /// Writes what follows the content, without an attachment that is too long; answers the file's size.
    pub(super) fn finish(&self, note: u64, attachment: &[u8]) -> io::Result<u64> {
        let written = {
            let mut written = self.written.lock();
            let sums_len = written.sums.len() as u64 * SUM_BYTES as u64;
            let fits = attachment.len() as u64 + sums_len <= TAIL_BYTES_MAX;
            written.note = note;
            written.attachment = Bytes::copy_from_slice(if fits { attachment } else { b"" });
            written.clone()
        };
        let end = written.tail(&self.name);
        let size = written.len + end.len() as u64;
        self.file.write_all_at(&end, written.len)?;
        // What was set aside for more content.
        self.file.set_len(size)?;
        Ok(size)
    }
}

impl Written {
    fn sums(&self) -> Vec<u8> {
        self.sums.iter().flat_map(|sum| sum.to_le_bytes()).collect()
    }

    /// All that follows the content.
    fn tail(&self, name: &KeptName) -> Vec<u8> {
        let fields = [self.len, self.attachment.len() as u64, self.note]
            .map(u64::to_le_bytes)
            .concat();
        let mut tail = [&self.attachment[..], &self.sums()].concat();
        let sum = crc32c::crc32c(name.file_name().as_bytes());
        let sum = crc32c::crc32c_append(crc32c::crc32c_append(sum, &tail), &fields);
        tail.extend_from_slice(MAGIC);
        tail.extend_from_slice(&sum.to_le_bytes());
        tail.extend_from_slice(&fields);
        tail
    }
}

/// What a file says of itself; `None` if that cannot be true.
fn read_end(file: &File, name: &KeptName) -> io::Result<Option<Written>> {
    let size = file.metadata()?.len();
    let mut end = [0; END_BYTES];
    let Some(end_start) = size.checked_sub(END_BYTES as u64) else {
        return Ok(None);
    };
    file.read_exact_at(&mut end, end_start)?;
    let field = |at: usize| {
        let bytes = end.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    let (len, attachment_len, note) = (field(8), field(16), field(24));
    let pieces = len.div_ceil(PIECE_BYTES as u64);
    let tail_len = attachment_len.checked_add(pieces.saturating_mul(SUM_BYTES as u64));
    let Some(tail_len) = tail_len.filter(|tail| *tail <= TAIL_BYTES_MAX && len.checked_add(*tail) == Some(end_start))
    else {
        return Ok(None);
    };
    let mut tail = vec![0; usize::try_from(tail_len).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut tail, len)?;
    let tail = Bytes::from(tail);
    let attachment_len = usize::try_from(attachment_len).unwrap_or(usize::MAX);
    let sums = tail.get(attachment_len..).unwrap_or_default().chunks_exact(SUM_BYTES);
    let written = Written {
        len,
        sums: sums.map(|sum| sum.try_into().map_or(0, u32::from_le_bytes)).collect(),
        note,
        attachment: tail.slice(..attachment_len.min(tail.len())),
    };
    let is_intact = written.tail(name).get(tail.len()..) == Some(&end[..]);
    Ok(is_intact.then_some(written))
}
