//! What a local directory needs beyond `object_store`: directories known to be durable, and reads from open files.
//!
//! The library's writes are staged, synced and renamed or linked into place, and it syncs the directory they end in. But it
//! syncs *new* directories only in the writer that made them: a second writer that finds the directory there could be
//! acknowledged before the first has made its entry in the parent durable. [`LocalFiles::prepare`] closes that gap.

use crate::buffers::Buffers;
use crate::counters::Operation;
use crate::direct::{self, DirectUpload};
use crate::error::{Result, StoreError};
use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// The files of a bucket that is a directory.
#[derive(Debug)]
pub(crate) struct LocalFiles {
    root: PathBuf,
    store: LocalFileSystem,
    sync: bool,
    open: quick_cache::sync::Cache<String, Arc<File>>,
    buffers: Buffers,
    durable: Mutex<HashSet<PathBuf>>,
}

impl LocalFiles {
    /// Opens the bucket at `root`, making the directory if need be.
    pub(crate) fn open(root: &str, sync: bool) -> io::Result<Self> {
        std::fs::create_dir_all(root)?;
        let root = std::fs::canonicalize(root)?;
        if sync {
            sync_with_parents(&root)?;
        }
        let store = LocalFileSystem::new_with_prefix(&root)?.with_fsync(sync);
        Ok(Self {
            root,
            store,
            sync,
            open: quick_cache::sync::Cache::new(OPEN_FILES_MAX),
            buffers: Buffers::default(),
            durable: Mutex::new(HashSet::new()),
        })
    }

    /// The library's store over the same directory.
    pub(crate) fn store(&self) -> LocalFileSystem {
        self.store.clone()
    }

    /// Memory that its reads use again.
    pub(crate) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Makes the directory that `path` will be in, durably. Costs a set look-up once that is so. Blocks.
    pub(crate) fn prepare(&self, path: &Path) -> io::Result<()> {
        let file = self.store.path_to_filesystem(path)?;
        let Some(directory) = file.parent() else { return Ok(()) };
        if self.durable.lock().contains(directory) {
            return Ok(());
        }
        std::fs::create_dir_all(directory)?;
        if self.sync {
            for directory in directory
                .ancestors()
                .take_while(|ancestor| ancestor.starts_with(&self.root))
            {
                File::open(directory)?.sync_all()?;
            }
        }
        let mut durable = self.durable.lock();
        if durable.len() >= DURABLE_DIRECTORIES_MAX {
            durable.clear();
        }
        durable.insert(directory.to_owned());
        Ok(())
    }

    /// Forgets the open file of `key`, which is about to be another file or none.
    pub(crate) fn forget(&self, key: &str) {
        self.open.remove(key);
    }

    /// Reads `ranges` of one payload, each into a buffer of its own. Blocks.
    pub(crate) fn read(&self, key: &str, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let failed = |error| StoreError::from_io(Operation::GetRange, key, error);
        let file = self.file(key, path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let read = |range: &Range<u64>| self.read_exact_at(&file, length, key, range);
        ranges.iter().map(read).collect()
    }

    /// A range of a payload as memory that is the file's. Blocks.
    pub(crate) fn map(&self, key: &str, path: &Path, range: &Range<u64>) -> Result<Bytes> {
        let failed = |error| StoreError::from_io(Operation::GetRange, key, error);
        let file = self.file(key, path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        check_end(length, key, range)?;
        // Too many mappings, or a file system without them. If the disk is at fault, reading says so.
        crate::mapped::map(&file, range).or_else(|error| {
            tracing::debug!(key, %error, "cannot map a payload: it is read");
            self.read_exact_at(&file, length, key, range)
        })
    }

    /// Reads a range of a payload past the page cache. Blocks.
    pub(crate) fn read_once(&self, key: &str, path: &Path, range: &Range<u64>) -> Result<Bytes> {
        let failed = |error| StoreError::from_io(Operation::GetRange, key, error);
        let to_file = self.store.path_to_filesystem(path);
        let file = to_file.map_err(|error| StoreError::from_backend(Operation::GetRange, key, error))?;
        let length = std::fs::metadata(&file).map_err(failed)?.len();
        check_end(length, key, range)?;
        direct::read(&file, range, length).map_err(failed)
    }

    /// Starts writing a payload past the page cache. Blocks.
    pub(crate) fn upload_once(&self, path: &Path) -> io::Result<DirectUpload> {
        DirectUpload::start(self.store.path_to_filesystem(path)?, self.sync)
    }

    fn read_exact_at(&self, file: &File, length: u64, key: &str, range: &Range<u64>) -> Result<Bytes> {
        // A range's length is a caller's word: believe it only as far as the file goes, before memory is set aside for it.
        let expected = check_end(length, key, range)?;
        let expected = usize::try_from(expected).map_err(|_| short(key, range, 0))?;
        let fill = |buffer: &mut [u8]| file.read_exact_at(buffer, range.start);
        self.buffers.filled(expected, fill).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => short(key, range, 0),
            _ => StoreError::from_io(Operation::GetRange, key, error),
        })
    }

    fn file(&self, key: &str, path: &Path) -> io::Result<Arc<File>> {
        if let Some(file) = self.open.get(key) {
            return Ok(file);
        }
        let file = Arc::new(File::open(self.store.path_to_filesystem(path)?)?);
        self.open.insert(key.to_owned(), Arc::clone(&file));
        Ok(file)
    }
}

/// How long the range is, if a file of that length does not end before it.
fn check_end(length: u64, key: &str, range: &Range<u64>) -> Result<u64> {
    match length < range.end {
        true => Err(short(key, range, length.saturating_sub(range.start))),
        false => Ok(range.end.saturating_sub(range.start)),
    }
}

fn short(key: &str, range: &Range<u64>, got: u64) -> StoreError {
    StoreError::Short {
        key: key.to_owned(),
        offset: range.start,
        expected: range.end.saturating_sub(range.start),
        got,
    }
}

/// Makes the entries of `directory` and of all above it durable, as far as we may open them.
fn sync_with_parents(directory: &std::path::Path) -> io::Result<()> {
    File::open(directory)?.sync_all()?;
    for parent in directory.ancestors().skip(1) {
        match File::open(parent).and_then(|directory| directory.sync_all()) {
            Ok(()) => {}
            // Not ours, so we did not make it either.
            Err(_) => break,
        }
    }
    Ok(())
}

const OPEN_FILES_MAX: usize = 256;
const DURABLE_DIRECTORIES_MAX: usize = 1 << 16;
