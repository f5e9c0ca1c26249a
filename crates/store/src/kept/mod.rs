//! Files that can be made again, kept in a directory of bounded size: each is written once, in pieces with a checksum, may be
//! read while it is written, and gets its name when it is whole.
//!
//! What a file means is its maker's business: it is found by a digest of what determines its content, and belongs to a family
//! of files that resemble it. The directory may be deleted at any time; everything in it belongs to the one process that has
//! it open. Nothing is synced: what a crash tears, the checksums find. All calls block; the first to look for a file of an earlier
//! run reads all of it.

mod file;

pub use file::{KeptFile, PIECE_BYTES};

use crate::error::{Result, StoreError};
use file::Opened;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Files kept at most, however small.
const FILES_MAX: usize = 4096;
/// One file may take this part of the directory.
const FILE_SHARE: u64 = 4;
/// After a failed write so many files are not begun: the disk may be full.
const BEGINS_AFTER_FAILURE: u64 = 256;
const SUFFIX: &str = ".kept";

/// Which file: a digest of what determines its content, and of what those have in common that resemble it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeptName {
    /// Of the family.
    pub family: [u8; 8],
    /// Of the file itself.
    pub digest: [u8; 32],
}

impl KeptName {
    fn file_name(&self) -> String {
        format!("{}-{}{SUFFIX}", hex(&self.family), hex(&self.digest))
    }

    fn parse(file_name: &str) -> Option<Self> {
        let (family, digest) = file_name.strip_suffix(SUFFIX)?.split_once('-')?;
        Some(Self {
            family: unhex(family)?,
            digest: unhex(digest)?,
        })
    }
}

/// Numbers files, those of earlier runs too, over all directories that this process has open.
fn next_serial() -> u64 {
    static SERIALS: AtomicU64 = AtomicU64::new(0);
    SERIALS.fetch_add(1, Ordering::Relaxed)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let digits = text.as_bytes().chunks_exact(2);
    if text.len() != 2 * N || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(digits) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// What the files have been good for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptCounters {
    /// Files there are.
    pub files: u64,
    /// Bytes they take, those set aside for files being written and those of files that were put out and are still read included.
    pub bytes: u64,
    /// Files removed to make room.
    pub evicted: u64,
    /// Files that did not match their checksums; they were removed.
    pub corrupt: u64,
}

/// A bounded directory of files. Clones share it.
#[derive(Debug, Clone)]
pub struct KeptFiles(Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    directory: PathBuf,
    bytes_max: u64,
    shelf: Mutex<Shelf>,
    evicted: AtomicU64,
    corrupt: AtomicU64,
    /// Files that are not begun, because a write failed.
    skip: AtomicU64,
    /// Bytes of files that left the directory while somebody reads them.
    leaving_bytes: AtomicU64,
}

/// What is in the directory.
#[derive(Debug, Default)]
struct Shelf {
    files: HashMap<KeptName, Held>,
    /// Bytes of files and of reservations.
    bytes: u64,
    clock: u64,
}

#[derive(Debug)]
struct Held {
    size: u64,
    used: u64,
    serial: u64,
    /// Every checksum was right once, since this process has it.
    verified: bool,
    /// The file as others have it open.
    open: Weak<KeptFile>,
    /// One opens it for all.
    opening: Arc<Mutex<()>>,
}

/// A file that is to be opened.
struct Closed {
    serial: u64,
    verified: bool,
    opening: Arc<Mutex<()>>,
}

/// A file as it was found on the shelf.
enum OnShelf {
    Open(Arc<KeptFile>),
    Closed(Closed),
}

impl KeptFiles {
    /// Opens the directory, made if absent, with the files of earlier runs. Their contents are checked when they are found.
    pub fn open(directory: &Path, bytes_max: u64) -> Result<Self> {
        let failed = |error: io::Error| StoreError::BadBucket {
            url: directory.display().to_string(),
            reason: format!("no cache directory: {error}"),
        };
        fs::create_dir_all(directory).map_err(failed)?;
        let inner = Inner {
            directory: directory.to_owned(),
            bytes_max,
            shelf: Mutex::default(),
            evicted: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
            skip: AtomicU64::new(0),
            leaving_bytes: AtomicU64::new(0),
        };
        inner.take_up().map_err(failed)?;
        Ok(Self(Arc::new(inner)))
    }

    /// Bytes that one file may have at most.
    pub fn file_bytes_max(&self) -> u64 {
        self.0.bytes_max / FILE_SHARE
    }

    /// Whether a file of that name was there a moment ago. Does not touch the disk.
    pub fn has(&self, name: &KeptName) -> bool {
        self.0.shelf.lock().files.contains_key(name)
    }

    /// The file of that name, whole and intact; the same for all who have it at once. The first time in a process all of it is read
    /// and checked.
    pub fn find(&self, name: &KeptName) -> Option<Arc<KeptFile>> {
        let closed = match self.0.on_shelf(name)? {
            OnShelf::Open(file) => return Some(file),
            OnShelf::Closed(closed) => closed,
        };
        let _turn = closed.opening.lock();
        // Whose turn was before may have opened it, or found that it is none.
        let closed = match self.0.on_shelf(name)? {
            OnShelf::Open(file) => return Some(file),
            OnShelf::Closed(again) if again.serial != closed.serial => return None,
            OnShelf::Closed(again) => again,
        };
        let found = match file::open(&self.0.path(name), (*name, closed.serial), &self.0, closed.verified) {
            Ok(Opened::Intact(file)) => Arc::new(file),
            Ok(Opened::Corrupt) => {
                self.0.found_corrupt(name, closed.serial);
                return None;
            }
            Err(error) => {
                if error.kind() == io::ErrorKind::NotFound {
                    self.0.remove(name, closed.serial);
                }
                return None;
            }
        };
        let mut shelf = self.0.shelf.lock();
        // Made again meanwhile, it may be the bytes of another that were opened.
        let held = shelf.files.get_mut(name).filter(|held| held.serial == closed.serial)?;
        (held.verified, held.open) = (true, Arc::downgrade(&found));
        drop(shelf);
        Some(found)
    }

    /// The file of a family that was used last.
    pub fn find_kin(&self, family: [u8; 8]) -> Option<Arc<KeptFile>> {
        let kin = {
            let shelf = self.0.shelf.lock();
            let kin = shelf.files.iter().filter(|(name, _)| name.family == family);
            kin.max_by_key(|(_, held)| held.used).map(|(name, _)| *name)
        };
        self.find(&kin?)
    }

    /// Begins a file whose content will have at most so many bytes. `None` if that is too much, or there is no room for it
    /// beside others being written, or the disk fails.
    pub fn begin(&self, name: KeptName, content_bytes_max: u64) -> Option<Draft> {
        let skipped = self
            .0
            .skip
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if content_bytes_max > self.file_bytes_max() || skipped.is_ok() {
            return None;
        }
        self.0.make_room(content_bytes_max)?;
        let serial = next_serial();
        let temporary = self.0.directory.join(format!("{serial}.tmp"));
        // Somebody may have deleted the directory.
        let made = fs::create_dir_all(&self.0.directory);
        match made.and_then(|()| file::create(&temporary, (name, serial), &self.0, content_bytes_max)) {
            Ok(file) => Some(Draft {
                file: Arc::new(file),
                shelf: Arc::clone(&self.0),
                temporary: Some(temporary),
                reserved: content_bytes_max,
            }),
            Err(error) => {
                self.0.give_back(content_bytes_max);
                self.0.write_failed(&error);
                None
            }
        }
    }

    /// What the files have been good for.
    pub fn counters(&self) -> KeptCounters {
        let shelf = self.0.shelf.lock();
        KeptCounters {
            files: shelf.files.len() as u64,
            bytes: shelf.bytes.saturating_add(self.0.leaving_bytes.load(Ordering::Relaxed)),
            evicted: self.0.evicted.load(Ordering::Relaxed),
            corrupt: self.0.corrupt.load(Ordering::Relaxed),
        }
    }
}

/// A file being written. Dropped before it is finished, it was never there; who reads it may go on.
#[derive(Debug)]
pub struct Draft {
    file: Arc<KeptFile>,
    shelf: Arc<Inner>,
    temporary: Option<PathBuf>,
    reserved: u64,
}

impl Draft {
    /// What is written so far, to be read.
    pub fn file(&self) -> &Arc<KeptFile> {
        &self.file
    }

    /// Writes the next piece of the content: [`PIECE_BYTES`], but for the last.
    pub fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        let fits = self.file.len().saturating_add(piece.len() as u64) <= self.reserved;
        let written = match fits {
            true => self.file.append(piece),
            false => Err(io::Error::other("more content than was announced")),
        };
        written.inspect_err(|error| self.shelf.write_failed(error))
    }

    /// Ends the content, adds what its maker wants to know of it later, and gives the file its name.
    pub fn finish(mut self, note: u64, attachment: &[u8]) -> io::Result<()> {
        let size = self.file.finish(note, attachment);
        let size = size.inspect_err(|error| self.shelf.write_failed(error))?;
        let name = *self.file.name();
        if let Some(temporary) = self.temporary.take() {
            let renamed = fs::rename(&temporary, self.shelf.path(&name));
            renamed.inspect_err(|error| {
                let _ = fs::remove_file(&temporary);
                self.shelf.write_failed(error);
            })?;
        }
        self.shelf.give_back(std::mem::take(&mut self.reserved));
        self.shelf.enter(name, size, (self.file.serial(), Some(&self.file)));
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        self.shelf.give_back(self.reserved);
        if let Some(temporary) = &self.temporary {
            let _ = fs::remove_file(temporary);
        }
    }
}

impl Inner {
    fn path(&self, name: &KeptName) -> PathBuf {
        self.directory.join(name.file_name())
    }

    /// Enters the files of earlier runs, the oldest as used the longest ago; removes what is nothing of ours, or half-written.
    fn take_up(&self) -> io::Result<()> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)?.flatten() {
            let name = entry.file_name().into_string().ok();
            match (name.as_deref().and_then(KeptName::parse), entry.metadata()) {
                (Some(name), Ok(metadata)) => found.push((metadata.modified().ok(), name, metadata.len())),
                _ => drop(fs::remove_file(entry.path())),
            }
        }
        found.sort_by_key(|(modified, name, _)| (*modified, name.digest));
        for (_, name, size) in found {
            self.enter(name, size, (next_serial(), None));
        }
        Ok(())
    }

    /// Enters a file, which its writer has open.
    fn enter(&self, name: KeptName, size: u64, (serial, open): (u64, Option<&Arc<KeptFile>>)) {
        let out = {
            let mut shelf = self.shelf.lock();
            shelf.forget(&name);
            let used = shelf.tick();
            shelf.bytes = shelf.bytes.saturating_add(size);
            shelf.files.insert(
                name,
                Held {
                    size,
                    used,
                    serial,
                    verified: open.is_some(),
                    open: open.map(Arc::downgrade).unwrap_or_default(),
                    opening: Arc::default(),
                },
            );
            shelf.push_out(self.room())
        };
        self.evict(&out);
    }

    /// Bytes for files in the directory: what leaves it takes some until it has gone.
    fn room(&self) -> u64 {
        self.bytes_max
            .saturating_sub(self.leaving_bytes.load(Ordering::Relaxed))
    }

    /// Sets bytes aside, for which others may have to go; `None` if what is being written, or was put out and is still read, leaves no
    /// room.
    fn make_room(&self, bytes: u64) -> Option<()> {
        let out = {
            let mut shelf = self.shelf.lock();
            let read: u64 = shelf
                .files
                .values()
                .filter(|held| held.open.strong_count() > 0)
                .map(|held| held.size)
                .sum();
            let kept: u64 = shelf.files.values().map(|held| held.size).sum();
            let stays = shelf.bytes.saturating_sub(kept).saturating_add(read);
            if stays.saturating_add(bytes) > self.room() {
                return None;
            }
            shelf.bytes = shelf.bytes.saturating_add(bytes);
            shelf.push_out(self.room())
        };
        self.evict(&out);
        Some(())
    }

    fn give_back(&self, bytes: u64) {
        let mut shelf = self.shelf.lock();
        shelf.bytes = shelf.bytes.saturating_sub(bytes);
    }

    fn evict(&self, names: &[KeptName]) {
        self.evicted.fetch_add(names.len() as u64, Ordering::Relaxed);
        for name in names {
            let _ = fs::remove_file(self.path(name));
        }
    }

    /// Takes a file out, if it is still that one.
    fn remove(&self, name: &KeptName, serial: u64) {
        let mut shelf = self.shelf.lock();
        if shelf.files.get(name).is_some_and(|held| held.serial == serial) {
            shelf.forget(name);
            let _ = fs::remove_file(self.path(name));
        }
    }

    /// Takes out a file whose bytes are not what was written.
    pub(super) fn found_corrupt(&self, name: &KeptName, serial: u64) {
        self.corrupt.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(file = %self.path(name).display(), "a kept file does not match its checksums; it is made again");
        self.remove(name, serial);
    }

    /// A file that is used; how it is there.
    fn on_shelf(&self, name: &KeptName) -> Option<OnShelf> {
        let mut shelf = self.shelf.lock();
        let now = shelf.tick();
        let held = shelf.files.get_mut(name)?;
        held.used = now;
        Some(match held.open.upgrade() {
            Some(file) => OnShelf::Open(file),
            None => OnShelf::Closed(Closed {
                serial: held.serial,
                verified: held.verified,
                opening: Arc::clone(&held.opening),
            }),
        })
    }

    fn write_failed(&self, error: &io::Error) {
        tracing::warn!(%error, directory = %self.directory.display(), "cannot write a kept file");
        self.skip.store(BEGINS_AFTER_FAILURE, Ordering::Relaxed);
    }
}

impl Shelf {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Takes a file out. Who reads it goes on.
    fn forget(&mut self, name: &KeptName) {
        if let Some(held) = self.files.remove(name) {
            self.bytes = self.bytes.saturating_sub(held.size);
            if let Some(open) = held.open.upgrade() {
                open.leave(held.size);
            }
        }
    }

    /// Forgets files, the longest unused first and those that are being read last, until the others fit; answers which.
    fn push_out(&mut self, bytes_max: u64) -> Vec<KeptName> {
        let mut out = Vec::new();
        while self.bytes > bytes_max || self.files.len() > FILES_MAX {
            let oldest = self
                .files
                .iter()
                .min_by_key(|(_, held)| (held.open.strong_count() > 0, held.used))
                .map(|(name, _)| *name);
            let Some(oldest) = oldest else { break };
            self.forget(&oldest);
            out.push(oldest);
        }
        out
    }
}

#[cfg(test)]
mod tests;
