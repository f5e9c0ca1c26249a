//! A cache of payload blocks in memory and, for remote buckets, on disk.
//!
//! Payloads are immutable, so there is nothing to invalidate: a block is right or it is absent. The cache is optional: with no
//! room at all it still answers, and still asks for a block once however many wait for it.

mod disk;
mod held;
mod pass;

pub use held::Held;

use crate::bucket::{Bucket, blocking};
use crate::buffers::Buffers;
use crate::error::{Result, StoreError};
use bytes::Bytes;
use disk::DiskBlocks;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use held::HeldFiles;
use parking_lot::Mutex;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use std::collections::HashMap;
use std::convert::Infallible;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Semaphore;

/// How large a [`BlockCache`] may become.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// Bytes of blocks kept in memory, blocks passing through included. Blocks being fetched come on top, at most
    /// `fetches_max` times `fetch_bytes_max`.
    pub memory_bytes_max: u64,
    /// A directory for blocks and for what is held, and the bytes they may take there, the latter a quarter. Made if absent;
    /// everything in it belongs to the cache. It may be deleted at any time. Not used for buckets that are local directories.
    pub disk: Option<(PathBuf, u64)>,
    /// Bytes of one block. Blocks on disk of another size are not found again.
    pub block_bytes: u32,
    /// Bytes that one request fetches at most, when blocks next to one another are missing.
    pub fetch_bytes_max: u32,
    /// Requests of this cache that run at once.
    pub fetches_max: usize,
    /// Payloads of no more bytes are better read whole than in parts: for callers to ask ([`BlockCache::small_bytes_max`]).
    pub small_bytes_max: u64,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            memory_bytes_max: 256 << 20,
            disk: None,
            block_bytes: 1 << 20,
            fetch_bytes_max: 8 << 20,
            fetches_max: 16,
            small_bytes_max: 256 << 10,
        }
    }
}

/// What a read means for what the cache keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Likely to be wanted again.
    Keep,
    /// One long pass over much data, such as a full clone: its blocks stay in a small part of the memory, where other passes
    /// find them, and push out nothing that is kept.
    Scan,
}

/// What a cache has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Blocks found in memory.
    pub memory_hits: u64,
    /// Blocks found on disk.
    pub disk_hits: u64,
    /// Blocks that a read waited for while another fetched them.
    pub shared: u64,
    /// Blocks asked of the bucket.
    pub misses: u64,
    /// Blocks on disk that did not match their checksum; they were fetched again.
    pub corrupt: u64,
}

/// Reads ranges of immutable payloads through a cache of blocks. Clones share it.
#[derive(Clone)]
pub struct BlockCache(Arc<Inner>);

struct Inner {
    bucket: Bucket,
    memory_bytes_max: u64,
    kept: Blocks,
    passing: Blocks,
    disk: Option<DiskBlocks>,
    held: Option<HeldFiles>,
    flights: Mutex<HashMap<BlockId, (Flight, usize)>>,
    fetches: Semaphore,
    block_bytes: u64,
    blocks_per_fetch: u64,
    flights_max: usize,
    small_bytes_max: u64,
    buffers: Buffers,
    counts: Counts,
}

type Blocks = Cache<BlockId, Bytes, BlockWeight>;

/// A fetch under way: the blocks of one run. Whoever awaits it drives it, and a task of its own does so too, since a reader
/// that stalls (back-pressure) must hold up neither the others nor the request's place in the queue.
type Flight = Shared<BoxFuture<'static, Result<Arc<Vec<Bytes>>>>>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct BlockId {
    key: Arc<str>,
    index: u64,
}

#[derive(Default)]
struct Counts {
    memory_hits: AtomicU64,
    disk_hits: AtomicU64,
    shared: AtomicU64,
    misses: AtomicU64,
    corrupt: AtomicU64,
}

/// A payload as a reader knows it.
#[derive(Clone)]
struct Payload {
    key: Arc<str>,
    size: u64,
}

impl BlockCache {
    /// An empty cache over `bucket`, or one that goes on with the blocks found in its directory. Fails if the directory cannot
    /// be made.
    pub fn new(bucket: Bucket, options: CacheOptions) -> Result<Self> {
        let block_bytes = u64::from(options.block_bytes.max(1));
        let (disk, held) = match options.disk {
            Some((directory, bytes_max)) if !bucket.is_local() => {
                let held_bytes = bytes_max / HELD_SHARE;
                let opened = DiskBlocks::open(&directory, bytes_max - held_bytes, block_bytes);
                let blocks = opened.map_err(|error| StoreError::BadBucket {
                    url: directory.display().to_string(),
                    reason: format!("no cache directory: {error}"),
                })?;
                (Some(blocks), Some(HeldFiles::new(&directory, held_bytes)))
            }
            _ => (None, None),
        };
        let passing_bytes = options.memory_bytes_max / PASSING_SHARE;
        Ok(Self(Arc::new(Inner {
            memory_bytes_max: options.memory_bytes_max,
            kept: blocks(options.memory_bytes_max - passing_bytes, block_bytes, KEPT_PROVEN_SHARE),
            passing: blocks(passing_bytes, block_bytes, PASSING_PROVEN_SHARE),
            bucket,
            disk,
            held,
            flights: Mutex::new(HashMap::new()),
            fetches: Semaphore::new(options.fetches_max.clamp(1, Semaphore::MAX_PERMITS)),
            block_bytes,
            blocks_per_fetch: (u64::from(options.fetch_bytes_max) / block_bytes).max(1),
            flights_max: options.fetches_max.saturating_mul(PREFETCH_QUEUE),
            small_bytes_max: options.small_bytes_max,
            buffers: Buffers::default(),
            counts: Counts::default(),
        })))
    }

    /// How to read so many bytes that are asked for together: what takes no more than one part in `share` of the memory is kept, for
    /// whoever asks for the same.
    pub fn access(&self, bytes: u64, share: u64) -> Access {
        match bytes <= self.0.memory_bytes_max / share.max(1) {
            true => Access::Keep,
            false => Access::Scan,
        }
    }

    /// What is read for `range`: its bytes and those beside it in the same blocks.
    pub fn blocks_around(&self, range: Range<u64>) -> Range<u64> {
        let blocks = self.blocks_of(&range);
        blocks.start * self.0.block_bytes..blocks.end * self.0.block_bytes
    }

    /// The bucket behind it.
    pub fn bucket(&self) -> &Bucket {
        &self.0.bucket
    }

    /// Payloads of no more bytes are better read whole than in parts: one request instead of two that wait for each other.
    pub fn small_bytes_max(&self) -> u64 {
        self.0.small_bytes_max
    }

    /// Exactly the bytes of `range` of the payload at `key`, whose size the caller knows. Within one block: a slice of it.
    pub async fn read(&self, key: &str, object_size: u64, range: Range<u64>) -> Result<Bytes> {
        Ok(self.concatenate(self.read_pieces(key, object_size, range, Access::Keep).await?))
    }

    /// As [`read`](Self::read), for bytes that nobody is about to ask for again: they push out nothing that is kept. A local
    /// directory is asked at once, past the operating system's page cache.
    pub async fn read_once(&self, key: &str, object_size: u64, range: Range<u64>) -> Result<Bytes> {
        let bucket = self.bucket();
        if bucket.is_local() {
            return bucket.get_range_once(key, range).await;
        }
        Ok(self.concatenate(self.read_pieces(key, object_size, range, Access::Scan).await?))
    }

    /// As [`read`](Self::read), as the consecutive pieces that the blocks are, not copied. All are in memory at once: a long
    /// range is for the caller to cut.
    pub async fn read_pieces(
        &self,
        key: &str,
        object_size: u64,
        range: Range<u64>,
        access: Access,
    ) -> Result<Vec<Bytes>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        if range.end > object_size {
            let (expected, got) = (range.end - range.start, object_size.saturating_sub(range.start));
            return Err(StoreError::Short {
                key: key.to_owned(),
                offset: range.start,
                expected,
                got,
            });
        }
        let payload = Payload {
            key: Arc::from(key),
            size: object_size,
        };
        let blocks = self.blocks_of(&range);
        let found = self.find_or_fly(&payload, blocks.clone(), access);
        let mut pieces = Vec::with_capacity(found.len());
        for (index, found) in blocks.zip(found) {
            let block = match found {
                Found::Block(block) => block,
                Found::Flight(flight, position) => landed(&flight.await?, position, &payload)?,
            };
            pieces.push(clip(block, index * self.0.block_bytes, &range, key)?);
        }
        Ok(pieces)
    }

    /// One piece out of many, in memory that is used again; a single one is not copied.
    pub fn concatenate(&self, mut pieces: Vec<Bytes>) -> Bytes {
        if pieces.len() <= 1 {
            return pieces.pop().unwrap_or_default();
        }
        let joined = self.0.buffers.filled(pieces.iter().map(Bytes::len).sum(), |mut room| {
            for piece in &pieces {
                let (place, rest) = room.split_at_mut(piece.len());
                place.copy_from_slice(piece);
                room = rest;
            }
            Ok::<_, Infallible>(())
        });
        match joined {
            Ok(whole) => whole,
        }
    }

    /// Starts fetching the blocks of `range` that are absent and returns at once. Does nothing where too much is being fetched
    /// already, outside a runtime, or for a pass over a local directory, which needs no blocks. Failures surface when the range is
    /// read.
    pub fn prefetch(&self, key: &str, object_size: u64, range: Range<u64>, access: Access) {
        if access == Access::Scan && self.bucket().is_local() {
            return;
        }
        let range = range.start..range.end.min(object_size);
        let room = self.0.flights.lock().len() < self.0.flights_max;
        if room && !range.is_empty() && tokio::runtime::Handle::try_current().is_ok() {
            let payload = Payload {
                key: Arc::from(key),
                size: object_size,
            };
            let _ = self.find_or_fly(&payload, self.blocks_of(&range), access);
        }
    }

    /// A block of something else than the bucket, which takes its place in memory among those: found there, or brought by
    /// `read`, which may block, once however many wait for it. `key` is none of the bucket's.
    pub async fn read_other(
        &self,
        key: &Arc<str>,
        index: u64,
        access: Access,
        read: impl FnOnce() -> Option<Bytes> + Send + 'static,
    ) -> Result<Bytes> {
        let id = BlockId {
            key: Arc::clone(key),
            index,
        };
        if let Some(block) = self.0.in_memory(&id, access) {
            count(&self.0.counts.memory_hits, 1);
            return Ok(block);
        }
        let payload = Payload {
            key: Arc::clone(key),
            size: 0,
        };
        let flight = {
            let mut flights = self.0.flights.lock();
            // As in `fly`: what has landed is in memory before it leaves the map.
            match (flights.get(&id), self.0.in_memory(&id, access)) {
                (_, Some(block)) => return Ok(block),
                (Some((flight, _)), None) => {
                    count(&self.0.counts.shared, 1);
                    flight.clone()
                }
                (None, None) => {
                    let flight = self.other_flight(id.clone(), access, read);
                    flights.insert(id, (flight.clone(), 0));
                    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                        drop(runtime.spawn(flight.clone()));
                    }
                    flight
                }
            }
        };
        landed(&flight.await?, 0, &payload)
    }

    /// Puts a block into memory that [`read_other`](Self::read_other) would bring.
    pub fn put_other(&self, key: &Arc<str>, index: u64, access: Access, block: Bytes) {
        let id = BlockId {
            key: Arc::clone(key),
            index,
        };
        self.0.remember(id, block, access);
    }

    fn other_flight(
        &self,
        id: BlockId,
        access: Access,
        read: impl FnOnce() -> Option<Bytes> + Send + 'static,
    ) -> Flight {
        let inner = Arc::clone(&self.0);
        let fetch = async move {
            let landing = Landing {
                inner: &inner,
                key: &id.key,
                blocks: id.index..id.index + 1,
            };
            let absent = || StoreError::Absent {
                key: id.key.to_string(),
            };
            let block = blocking(read).await.ok_or_else(absent)?;
            count(&inner.counts.disk_hits, 1);
            inner.remember(id.clone(), block.clone(), access);
            drop(landing);
            Ok(Arc::new(vec![block]))
        };
        fetch.boxed().shared()
    }

    /// What it has done so far.
    pub fn counters(&self) -> CacheCounters {
        let counts = &self.0.counts;
        CacheCounters {
            memory_hits: counts.memory_hits.load(Ordering::Relaxed),
            disk_hits: counts.disk_hits.load(Ordering::Relaxed),
            shared: counts.shared.load(Ordering::Relaxed),
            misses: counts.misses.load(Ordering::Relaxed),
            corrupt: counts.corrupt.load(Ordering::Relaxed),
        }
    }

    /// Waits until the blocks fetched so far are on disk, or dropped because the disk lags behind. For shutdown and tests.
    pub async fn settle(&self) {
        if let Some(disk) = &self.0.disk {
            disk.settle().await;
        }
    }

    fn blocks_of(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.0.block_bytes..range.end.div_ceil(self.0.block_bytes)
    }

    /// For each block: itself, or the flight that will bring it, started here if need be.
    fn find_or_fly(&self, payload: &Payload, blocks: Range<u64>, access: Access) -> Vec<Found> {
        let mut found = Vec::new();
        let mut missing: Vec<(usize, u64)> = Vec::new();
        for index in blocks {
            let id = BlockId {
                key: Arc::clone(&payload.key),
                index,
            };
            match self.0.in_memory(&id, access) {
                Some(block) => found.push(Some(Found::Block(block))),
                None => {
                    missing.push((found.len(), index));
                    found.push(None);
                }
            }
        }
        count(&self.0.counts.memory_hits, found.len() - missing.len());
        if !missing.is_empty() {
            self.fly(payload, missing, access, &mut found);
        }
        found.into_iter().flatten().collect()
    }

    /// Joins the flights that bring the `missing` blocks, and starts those that there are not.
    fn fly(&self, payload: &Payload, missing: Vec<(usize, u64)>, access: Access, found: &mut [Option<Found>]) {
        let mut starts = Vec::new();
        let mut flights = self.0.flights.lock();
        let mut absent = Vec::new();
        for (slot, index) in missing {
            let id = BlockId {
                key: Arc::clone(&payload.key),
                index,
            };
            // A flight puts its blocks into memory before it leaves the map, so a block is met in one or the other.
            let met = match flights.get(&id) {
                Some((flight, position)) => Some(Found::Flight(flight.clone(), *position)),
                None => self.0.in_memory(&id, access).map(Found::Block),
            };
            match met {
                Some(met) => {
                    count(&self.0.counts.shared, 1);
                    set(found, slot, met);
                }
                None => absent.push((slot, index)),
            }
        }
        for run in runs(&absent, self.0.blocks_per_fetch) {
            let Some(&(_, first)) = run.first() else { continue };
            let flight = self.flight(payload.clone(), first..first + run.len() as u64, access);
            for (position, &(slot, index)) in run.iter().enumerate() {
                flights.insert(
                    BlockId {
                        key: Arc::clone(&payload.key),
                        index,
                    },
                    (flight.clone(), position),
                );
                set(found, slot, Found::Flight(flight.clone(), position));
            }
            starts.push(flight);
        }
        drop(flights);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            starts.into_iter().for_each(|flight| drop(runtime.spawn(flight)));
        }
    }

    fn flight(&self, payload: Payload, blocks: Range<u64>, access: Access) -> Flight {
        let inner = Arc::clone(&self.0);
        let fetch = async move {
            // Also when this future is dropped half-way: those who come later must not wait for it.
            let landing = Landing {
                inner: &inner,
                key: &payload.key,
                blocks: blocks.clone(),
            };
            let fetched = inner.fetch(&payload, blocks.clone(), access).await?;
            for (index, block) in blocks.zip(&fetched) {
                inner.remember(
                    BlockId {
                        key: Arc::clone(&payload.key),
                        index,
                    },
                    block.clone(),
                    access,
                );
            }
            drop(landing);
            Ok(Arc::new(fetched))
        };
        fetch.boxed().shared()
    }
}

/// Where a block comes from.
enum Found {
    Block(Bytes),
    Flight(Flight, usize),
}

fn set(found: &mut [Option<Found>], slot: usize, value: Found) {
    if let Some(place) = found.get_mut(slot) {
        *place = Some(value);
    }
}

fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

fn landed(blocks: &[Bytes], position: usize, payload: &Payload) -> Result<Bytes> {
    // A flight brings as many blocks as it was sent for.
    blocks.get(position).cloned().ok_or_else(|| StoreError::Absent {
        key: payload.key.to_string(),
    })
}

/// The part of `block`, which starts at `block_start`, that lies in `range`.
fn clip(block: Bytes, block_start: u64, range: &Range<u64>, key: &str) -> Result<Bytes> {
    let from = range.start.saturating_sub(block_start);
    let to = range.end.saturating_sub(block_start).min(block.len() as u64);
    match (usize::try_from(from), usize::try_from(to)) {
        (Ok(from), Ok(to)) if from <= to => Ok(block.slice(from..to)),
        _ => Err(StoreError::Short {
            key: key.to_owned(),
            offset: range.start,
            expected: 1,
            got: 0,
        }),
    }
}

/// Cuts `blocks` (slot, index) into runs of neighbours, each of at most `run_max`.
fn runs(blocks: &[(usize, u64)], run_max: u64) -> Vec<&[(usize, u64)]> {
    let run_max = usize::try_from(run_max).unwrap_or(usize::MAX);
    let neighbours = blocks.chunk_by(|(_, a), (_, b)| a + 1 == *b);
    neighbours.flat_map(|run| run.chunks(run_max)).collect()
}

/// Takes a flight off the map when it is over, however it ended.
struct Landing<'a> {
    inner: &'a Inner,
    key: &'a Arc<str>,
    blocks: Range<u64>,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let mut flights = self.inner.flights.lock();
        for index in self.blocks.clone() {
            flights.remove(&BlockId {
                key: Arc::clone(self.key),
                index,
            });
        }
    }
}

impl Inner {
    fn in_memory(&self, id: &BlockId, access: Access) -> Option<Bytes> {
        match access {
            Access::Scan => self.kept.peek(id).or_else(|| self.passing.get(id)),
            Access::Keep => self.kept.get(id).or_else(|| {
                let block = self.passing.peek(id)?;
                self.kept.insert(id.clone(), block.clone());
                Some(block)
            }),
        }
    }

    fn remember(&self, id: BlockId, block: Bytes, access: Access) {
        match access {
            Access::Keep => self.kept.insert(id, block),
            Access::Scan => self.passing.insert(id, block),
        }
    }

    /// The blocks of one run, from disk or else from the bucket.
    async fn fetch(&self, payload: &Payload, blocks: Range<u64>, access: Access) -> Result<Vec<Bytes>> {
        let unclosed = |_| StoreError::Unknown {
            key: payload.key.to_string(),
        };
        let _permit = self.fetches.acquire().await.map_err(unclosed)?;
        let mut found = self.on_disk(payload, blocks.clone()).await;
        let slots = blocks.enumerate().zip(&found);
        let missing: Vec<(usize, u64)> = slots
            .filter(|(_, block)| block.is_none())
            .map(|(slot_and_index, _)| slot_and_index)
            .collect();
        for run in runs(&missing, self.blocks_per_fetch) {
            let (Some(&(_, first)), Some(&(_, last))) = (run.first(), run.last()) else {
                continue;
            };
            let fetched = self.fetch_run(payload, first..last + 1, access).await?;
            for (&(slot, index), block) in run.iter().zip(fetched) {
                if let Some(disk) = &self.disk {
                    disk.store(&payload.key, index, block.clone());
                }
                if let Some(place) = found.get_mut(slot) {
                    *place = Some(block);
                }
            }
        }
        Ok(found.into_iter().flatten().collect())
    }

    async fn on_disk(&self, payload: &Payload, blocks: Range<u64>) -> Vec<Option<Bytes>> {
        let nothing = blocks.clone().map(|_| None).collect();
        let Some(disk) = self.disk.clone() else { return nothing };
        let files: Vec<_> = blocks.map(|index| disk.find(&payload.key, index)).collect();
        if files.iter().all(Option::is_none) {
            return nothing;
        }
        let read = blocking(move || files.into_iter().map(|file| disk.read(&file?)).collect::<Vec<_>>()).await;
        let mut found = Vec::with_capacity(read.len());
        for block in read {
            match block {
                Some(Ok(block)) => {
                    count(&self.counts.disk_hits, 1);
                    found.push(Some(block));
                }
                Some(Err(disk::Corrupt)) => {
                    count(&self.counts.corrupt, 1);
                    found.push(None);
                }
                None => found.push(None),
            }
        }
        found
    }

    async fn fetch_run(&self, payload: &Payload, blocks: Range<u64>, access: Access) -> Result<Vec<Bytes>> {
        count(&self.counts.misses, blocks.clone().count());
        let span = |index: u64| index * self.block_bytes..((index + 1) * self.block_bytes).min(payload.size);
        if self.bucket.is_local() {
            let ranges: Vec<_> = blocks.map(span).collect();
            if access == Access::Scan
                && let Some(mapped) = self.bucket.map_ranges(&payload.key, &ranges).await?
            {
                return Ok(mapped);
            }
            return self.bucket.get_ranges(&payload.key, &ranges).await;
        }
        let start = blocks.start * self.block_bytes;
        let end = (blocks.end * self.block_bytes).min(payload.size);
        let run = self.bucket.get_range(&payload.key, start..end).await?;
        // Copied, each into memory of its own: a slice would keep the whole run alive for as long as one block is.
        let block_bytes = usize::try_from(self.block_bytes).unwrap_or(usize::MAX);
        Ok(run.chunks(block_bytes).map(Bytes::copy_from_slice).collect())
    }
}

/// A block weighs its bytes and what the tables need for it.
#[derive(Debug, Clone, Copy)]
struct BlockWeight;

impl Weighter<BlockId, Bytes> for BlockWeight {
    fn weight(&self, id: &BlockId, block: &Bytes) -> u64 {
        (block.len() + id.key.len() + BLOCK_OVERHEAD_BYTES) as u64
    }
}

/// Blocks of `bytes_max` in all; those that were read again may take `proven_share` of it from those that were not yet.
fn blocks(bytes_max: u64, block_bytes: u64, proven_share: f64) -> Blocks {
    let items = usize::try_from(bytes_max / block_bytes).unwrap_or(usize::MAX).max(1);
    // A shard must hold a good many blocks: each evicts for itself alone.
    let shards = (items / BLOCKS_PER_SHARD_MIN).clamp(1, SHARDS_MAX);
    let options = OptionsBuilder::new()
        .estimated_items_capacity(items)
        .weight_capacity(bytes_max)
        .shards(shards)
        .hot_allocation(proven_share)
        .build();
    match options {
        Ok(options) => Cache::with_options(
            options,
            BlockWeight,
            DefaultHashBuilder::default(),
            DefaultLifecycle::default(),
        ),
        // Both capacities are given, which is all that it may lack.
        Err(_) => Cache::with_weighter(items, bytes_max, BlockWeight),
    }
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCache")
            .field("bucket", &self.0.bucket)
            .finish_non_exhaustive()
    }
}

const PASSING_SHARE: u64 = 8;
/// The rest is for blocks fetched ahead, which nobody has read yet: a cue's, or those beside what was asked for.
const KEPT_PROVEN_SHARE: f64 = 0.75;
/// A pass reads each block about once, and what it fetched ahead must be there when it comes to it.
const PASSING_PROVEN_SHARE: f64 = 0.5;
const PREFETCH_QUEUE: usize = 32;
/// Of the bytes on disk, what may be held.
const HELD_SHARE: u64 = 4;
const BLOCK_OVERHEAD_BYTES: usize = 128;
const BLOCKS_PER_SHARD_MIN: usize = 32;
const SHARDS_MAX: usize = 16;

#[cfg(test)]
mod tests;
