//! Blocks on disk: a file for each, with a checksum.
//!
//! | bytes | field |
//! |---|---|
//! | 4 | magic `CBK1` |
//! | 4 | crc32c of the file's name and the block, little-endian |
//! | 8 | length of the block, little-endian |
//! | rest | the block |
//!
//! The name is the payload's key, the block size and the block's number, so a file that was moved does not pass for another. One
//! thread writes and evicts; readers only read. Nothing is synced: what a crash tears, the checksum finds.

use bytes::Bytes;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tokio::sync::oneshot;

/// The blocks in one directory. Clones share them; the writer ends with the last clone.
#[derive(Clone)]
pub(super) struct DiskBlocks(Arc<Shared>);

struct Shared {
    files: Files,
    jobs: SyncSender<Job>,
    block_bytes: u64,
}

/// The directory and the index of what is in it.
#[derive(Clone)]
struct Files {
    directory: PathBuf,
    index: Arc<Cache<String, u64, FileWeight, DefaultHashBuilder, Evicted>>,
    evicted: Evicted,
}

enum Job {
    Store { name: String, block: Bytes },
    Settle(oneshot::Sender<()>),
}

/// A block that does not match its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Corrupt;

impl DiskBlocks {
    pub(super) fn open(directory: &Path, bytes_max: u64, block_bytes: u64) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let evicted = Evicted::default();
        let files = Files {
            directory: directory.to_owned(),
            index: index(bytes_max, block_bytes, &evicted),
            evicted,
        };
        let (jobs, queue) = sync_channel(QUEUE_MAX);
        let writer = files.clone();
        std::thread::Builder::new()
            .name("cuesta-cache".to_owned())
            .spawn(move || write(&writer, &queue))?;
        Ok(Self(Arc::new(Shared {
            files,
            jobs,
            block_bytes,
        })))
    }

    /// The name of a block's file, if there should be one.
    pub(super) fn find(&self, key: &str, index: u64) -> Option<String> {
        let name = file_name(key, self.0.block_bytes, index)?;
        self.0.files.index.get(&name).map(|_| name)
    }

    /// Reads a file that [`find`](Self::find) named; `None` if it is gone. Blocks.
    pub(super) fn read(&self, name: &str) -> Option<Result<Bytes, Corrupt>> {
        let path = self.0.files.path(name);
        let read = match read_block(&path, name, self.0.block_bytes) {
            Ok(Ok(block)) => return Some(Ok(block)),
            Ok(Err(Corrupt)) => {
                tracing::warn!(file = %path.display(), "a cached block does not match its checksum; it is fetched again");
                Some(Err(Corrupt))
            }
            Err(_) => None,
        };
        self.0.files.index.remove(name);
        // Gone or useless: either way the writer may store it anew.
        let _ = fs::remove_file(&path);
        read
    }

    /// Queues a block to be written; drops it when the disk is too far behind.
    pub(super) fn store(&self, key: &str, index: u64, block: Bytes) {
        if let Some(name) = file_name(key, self.0.block_bytes, index) {
            let _ = self.0.jobs.try_send(Job::Store { name, block });
        }
    }

    /// Waits until the queue as it is now has been worked off.
    pub(super) async fn settle(&self) {
        let (done, wait) = oneshot::channel();
        let mut job = Job::Settle(done);
        while let Err(std::sync::mpsc::TrySendError::Full(back)) = self.0.jobs.try_send(job) {
            job = back;
            tokio::task::yield_now().await;
        }
        let _ = wait.await;
    }
}

/// The writer: takes up what earlier runs left, then stores what comes.
fn write(files: &Files, queue: &Receiver<Job>) {
    files.take_up();
    for job in queue {
        match job {
            Job::Store { name, block } => {
                if let Err(error) = files.store(&name, &block) {
                    tracing::debug!(%name, %error, "cannot cache a block on disk");
                }
            }
            Job::Settle(done) => drop(done.send(())),
        }
    }
}

impl Files {
    fn path(&self, name: &str) -> PathBuf {
        // 256 directories, so that none grows too large.
        self.directory
            .join(format!("{:02x}", crc32c::crc32c(name.as_bytes()) & 0xff))
            .join(name)
    }

    fn store(&self, name: &str, block: &[u8]) -> io::Result<()> {
        if self.index.peek(name).is_some() {
            return Ok(());
        }
        let path = self.path(name);
        let temporary = path.with_extension("tmp");
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let mut file = fs::File::create(&temporary)?;
        file.write_all(&header(name, block))?;
        file.write_all(block)?;
        drop(file);
        fs::rename(&temporary, &path)?;
        self.enter(name.to_owned(), (HEADER_BYTES + block.len()) as u64);
        Ok(())
    }

    /// Enters a file into the index and removes those that it pushes out.
    fn enter(&self, name: String, size: u64) {
        self.index.insert(name, size);
        for name in std::mem::take(&mut *self.evicted.0.lock()) {
            let _ = fs::remove_file(self.path(&name));
        }
    }

    fn take_up(&self) {
        let Ok(directories) = fs::read_dir(&self.directory) else {
            return;
        };
        for file in directories
            .flatten()
            .filter_map(|entry| fs::read_dir(entry.path()).ok())
            .flatten()
            .flatten()
        {
            let name = file.file_name().into_string();
            match (name, file.metadata()) {
                (Ok(name), Ok(metadata)) if name.ends_with(SUFFIX) => self.enter(name, metadata.len()),
                // Half-written, or nothing of ours.
                _ => drop(fs::remove_file(file.path())),
            }
        }
    }
}

fn read_block(path: &Path, name: &str, block_bytes: u64) -> io::Result<Result<Bytes, Corrupt>> {
    let mut contents = Vec::new();
    // One byte more than there can be: a file that grew is corrupt, and must not fill the memory.
    fs::File::open(path)?
        .take(HEADER_BYTES as u64 + block_bytes + 1)
        .read_to_end(&mut contents)?;
    let contents = Bytes::from(contents);
    let intact = contents
        .get(HEADER_BYTES..)
        .is_some_and(|block| contents.get(..HEADER_BYTES) == Some(&header(name, block)));
    Ok(match intact {
        true => Ok(contents.slice(HEADER_BYTES..)),
        false => Err(Corrupt),
    })
}

fn header(name: &str, block: &[u8]) -> [u8; HEADER_BYTES] {
    let sum = crc32c::crc32c_append(crc32c::crc32c(name.as_bytes()), block);
    let mut header = [0; HEADER_BYTES];
    let (magic, rest) = header.split_at_mut(4);
    let (checksum, length) = rest.split_at_mut(4);
    magic.copy_from_slice(MAGIC);
    checksum.copy_from_slice(&sum.to_le_bytes());
    length.copy_from_slice(&(block.len() as u64).to_le_bytes());
    header
}

/// The file name of a block; `None` for keys too long for one. `+` stands for `/` and is itself doubled with a `-` after it.
fn file_name(key: &str, block_bytes: u64, index: u64) -> Option<String> {
    let name = format!(
        "{}@{block_bytes:x}-{index:x}{SUFFIX}",
        key.replace('+', "+-").replace('/', "++")
    );
    (name.len() <= FILE_NAME_BYTES_MAX).then_some(name)
}

fn index(
    bytes_max: u64,
    block_bytes: u64,
    evicted: &Evicted,
) -> Arc<Cache<String, u64, FileWeight, DefaultHashBuilder, Evicted>> {
    let items = usize::try_from(bytes_max / block_bytes)
        .unwrap_or(usize::MAX)
        .clamp(1, FILES_ESTIMATE_MAX);
    let options = OptionsBuilder::new()
        .estimated_items_capacity(items)
        .weight_capacity(bytes_max)
        .shards(1)
        .build();
    Arc::new(match options {
        Ok(options) => Cache::with_options(options, FileWeight, DefaultHashBuilder::default(), evicted.clone()),
        // Both capacities are given, which is all that it may lack.
        Err(_) => Cache::with(
            items,
            bytes_max,
            FileWeight,
            DefaultHashBuilder::default(),
            evicted.clone(),
        ),
    })
}

#[derive(Debug, Clone, Copy)]
struct FileWeight;

impl Weighter<String, u64> for FileWeight {
    fn weight(&self, _: &String, size: &u64) -> u64 {
        // Never nothing: a weightless entry would not be evicted.
        (*size).max(1)
    }
}

/// Names pushed out of the index, whose files the writer removes.
#[derive(Debug, Clone, Default)]
struct Evicted(Arc<Mutex<Vec<String>>>);

impl Lifecycle<String, u64> for Evicted {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), name: String, _: u64) {
        self.0.lock().push(name);
    }
}

const MAGIC: &[u8; 4] = b"CBK1";
const HEADER_BYTES: usize = 16;
const SUFFIX: &str = ".block";
const FILE_NAME_BYTES_MAX: usize = 240;
const FILES_ESTIMATE_MAX: usize = 1 << 20;
/// Blocks waiting for the disk, and so memory, at most.
const QUEUE_MAX: usize = 64;
