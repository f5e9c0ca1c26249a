//! What background work holds: bytes of the allocator, not of the process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
// An allocator that counts cannot be written without.
#![allow(unsafe_code)]

mod support;

use cuesta_engine::receive::{OBJECT_BYTES, ReceiveOptions, ReceiveRequest, RefCommand};
use cuesta_engine::{Engine, EngineOptions, EngineParts, Maintained, MergeBounds, Repository};
use cuesta_git::pack::{EntryHeader, EntryKind, PackHeader};
use cuesta_git::zlib::Deflater;
use cuesta_git::{Checksum, ObjectFormat, ObjectId, ObjectKind, object_id};
use cuesta_ledger::MemoryStore;
use cuesta_store::{BlockCache, Bucket, BucketOptions, CacheOptions, Clock, Entropy, Workers};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::noise::layer;
use support::{push, repository};

/// The system's allocator, counting.
struct Counting {
    held: AtomicUsize,
    peak: AtomicUsize,
}

#[global_allocator]
static ALLOCATOR: Counting = Counting {
    held: AtomicUsize::new(0),
    peak: AtomicUsize::new(0),
};

impl Counting {
    fn add(&self, bytes: usize) {
        let held = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(held, Ordering::Relaxed);
    }

    /// What is held now, from which the next peak counts.
    fn begin(&self) -> usize {
        let held = self.held.load(Ordering::Relaxed);
        self.peak.store(held, Ordering::Relaxed);
        held
    }
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.add(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.held.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// What a merge holds however few objects there are: 8 MiB that it read last of a pack, twice while they are read, and what it
/// is about to write.
const FIXED_BYTES: u64 = 17 << 20;
/// Layers merged together.
const LAYERS: u64 = 8;
const COMMITS: u32 = 20_000;
const OBJECTS: u32 = 3 * COMMITS * LAYERS as u32;

/// A repository of layers of like size, their cues loaded.
async fn crowded(directory: &tempfile::TempDir, compact_memory_bytes_max: u64) -> (Engine, Arc<Repository>) {
    let (engine, repository) = empty(directory, compact_memory_bytes_max).await;
    for number in 0..LAYERS {
        push(&engine, &repository, layer(number, COMMITS, 10), Vec::new()).await;
    }
    repository.view().await.unwrap().graph().await.unwrap();
    (engine, repository)
}

/// A repository in a directory.
async fn empty(directory: &tempfile::TempDir, compact_memory_bytes_max: u64) -> (Engine, Arc<Repository>) {
    let options = BucketOptions {
        sync: false,
        part_bytes: 256 << 10,
        upload_parts_max: 1,
        ..BucketOptions::default()
    };
    let cache = CacheOptions {
        memory_bytes_max: 1 << 20,
        ..CacheOptions::default()
    };
    let bucket = Bucket::open(directory.path().to_str().unwrap(), &options).unwrap();
    let parts = EngineParts {
        cache: BlockCache::new(bucket, cache).unwrap(),
        log_store: Arc::new(MemoryStore::new()),
        clock: Clock::new(|| 0),
        entropy: Entropy::seeded(1),
        workers: Workers::Pool(tokio::runtime::Handle::current()),
        options: EngineOptions {
            compact_memory_bytes_max: compact_memory_bytes_max as usize,
            receive: ReceiveOptions {
                spool_memory_bytes_max: 1 << 20,
                base_bytes_max: 1 << 20,
                ..ReceiveOptions::default()
            },
            ..EngineOptions::default()
        },
    };
    let engine = Engine::open(parts).await.unwrap();
    let repository = repository(&engine, ObjectFormat::Sha1).await;
    (engine, repository)
}

/// Merges, and says how much that held at most beside what was there.
async fn maintain(repository: &Repository) -> (Maintained, u64) {
    let before = ALLOCATOR.begin();
    let done = repository.maintain().await.unwrap();
    (done, (ALLOCATOR.peak.load(Ordering::Relaxed) - before) as u64)
}

/// What all layers may take to be merged.
async fn estimated(repository: &Repository) -> u64 {
    let view = repository.view().await.unwrap();
    let layers = view.state().layers().iter();
    layers
        .map(|layer| MergeBounds::within(0).memory_bytes(&layer.meta))
        .sum()
}

/// All tests share the allocator.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_holds_a_few_words_an_object_and_no_more_than_is_set() {
    let _turn = TURN.lock().await;
    let directory = tempfile::tempdir().unwrap();
    let (_engine, repository) = crowded(&directory, 1 << 30).await;
    let estimated = estimated(&repository).await;
    let (done, held) = maintain(&repository).await;
    assert_eq!((done.merges, done.layers_merged), (1, LAYERS as usize));
    println!("{held} bytes of {estimated} for {OBJECTS} objects");
    assert!(held <= estimated + FIXED_BYTES, "{held} of {estimated}");
    let view = repository.view().await.unwrap();
    let objects: u32 = view.state().layers().iter().map(|layer| layer.meta.objects).sum();
    assert_eq!(objects, OBJECTS);

    // With half of that there is half a merge.
    let directory = tempfile::tempdir().unwrap();
    let (_engine, repository) = crowded(&directory, estimated / 2).await;
    let (done, held_for_half) = maintain(&repository).await;
    assert_eq!((done.merges, done.layers_merged), (1, LAYERS as usize / 2));
    println!("{held_for_half} bytes of {}", estimated / 2);
    assert!(
        held_for_half <= estimated / 2 + FIXED_BYTES,
        "{held_for_half} of {}",
        estimated / 2
    );
    // Whatever is fixed.
    assert!(
        held - held_for_half <= estimated / 2,
        "{held} and {held_for_half} of {estimated}"
    );
}

/// Files of a directory, and directories, in what is pushed.
const FILES: u32 = 64;

/// A pack of one commit whose directories have many small files.
struct Pack {
    bytes: Vec<u8>,
    deflater: Deflater,
}

impl Pack {
    fn add(&mut self, kind: ObjectKind, content: &[u8]) -> ObjectId {
        self.entry(EntryKind::Object(kind), content);
        object_id(ObjectFormat::Sha1, kind, content).unwrap()
    }

    fn entry(&mut self, kind: EntryKind, stored: &[u8]) {
        let size = stored.len() as u64;
        EntryHeader { kind, size }.encode(&mut self.bytes);
        let mut stream = Vec::new();
        self.deflater.deflate(stored, &mut stream).unwrap();
        self.bytes.extend(stream);
    }

    /// Adds a file of four bytes; as a delta on the one at `base`, it copies nothing.
    fn file(&mut self, content: [u8; 4], base: Option<usize>) -> ObjectId {
        let Some(base) = base else {
            return self.add(ObjectKind::Blob, &content);
        };
        let distance = (self.bytes.len() - base) as u64;
        let delta = [[4, 4, 4].as_slice(), &content].concat();
        self.entry(EntryKind::OfsDelta { distance }, &delta);
        object_id(ObjectFormat::Sha1, ObjectKind::Blob, &content).unwrap()
    }

    fn of(directories: u32, deltas: bool) -> (Self, ObjectId) {
        let objects = directories * (FILES + 1) + 2;
        let mut pack = Self {
            bytes: PackHeader::new(objects).encode().to_vec(),
            deflater: Deflater::new(0),
        };
        let mut root = Vec::new();
        for directory in 0..directories {
            let mut tree = Vec::new();
            let first = pack.bytes.len();
            for file in 0..FILES {
                let base = Some(first).filter(|_| deltas && file > 0);
                let blob = pack.file((directory * FILES + file).to_le_bytes(), base);
                tree.extend(format!("100644 {file:02}\0").bytes());
                tree.extend(blob.as_bytes());
            }
            root.extend(format!("40000 {directory:06}\0").bytes());
            root.extend(pack.add(ObjectKind::Tree, &tree).as_bytes());
        }
        let tree = pack.add(ObjectKind::Tree, &root);
        let commit = format!("tree {tree}\nauthor A <a@b> 0 +0000\ncommitter A <a@b> 0 +0000\n\nfirst\n");
        let tip = pack.add(ObjectKind::Commit, commit.as_bytes());
        let mut checksum = Checksum::new(ObjectFormat::Sha1);
        checksum.update(&pack.bytes);
        pack.bytes.extend(checksum.finish().as_bytes());
        (pack, tip)
    }
}

/// Pushes so many directories, and says how much that held at most beside the pack as the sender has it.
async fn pushed(directories: u32, deltas: bool) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let (_engine, repository) = empty(&directory, 1 << 30).await;
    let (pack, tip) = Pack::of(directories, deltas);
    let command = RefCommand {
        name: b"refs/heads/main".to_vec(),
        old: ObjectId::null(ObjectFormat::Sha1),
        new: tip,
    };
    let before = ALLOCATOR.begin();
    let mut receiver = repository.receiver().await.unwrap();
    for chunk in pack.bytes.chunks(64 << 10) {
        assert!(receiver.feed(bytes::Bytes::copy_from_slice(chunk)).await);
    }
    receiver.finish_pack().await;
    let report = receiver
        .finish(ReceiveRequest::new(vec![command], "ann"))
        .await
        .unwrap();
    assert_eq!((report.unpack, report.refs), (Ok(()), vec![Ok(())]));
    (ALLOCATOR.peak.load(Ordering::Relaxed) - before) as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_holds_no_more_for_each_object_than_is_said() {
    let _turn = TURN.lock().await;
    // What is fixed is the same for both.
    let (few, many) = (2_000, 4_500);
    for deltas in [false, true] {
        let held = [pushed(few, deltas).await, pushed(many, deltas).await];
        let objects = u64::from((many - few) * (FILES + 1));
        let bytes = held[1].saturating_sub(held[0]) / objects;
        println!("{held:?} bytes: {bytes} an object");
        assert!(bytes <= OBJECT_BYTES, "{bytes} bytes an object");
    }
}
