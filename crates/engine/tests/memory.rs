//! What background work holds: bytes of the allocator, not of the process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
// An allocator that counts cannot be written without.
#![allow(unsafe_code)]

mod support;

use cuesta_engine::{Engine, EngineOptions, EngineParts, Maintained, MergeBounds, Repository};
use cuesta_git::ObjectFormat;
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

/// A repository of layers of like size in a directory, their cues loaded.
async fn crowded(directory: &tempfile::TempDir, compact_memory_bytes_max: u64) -> (Engine, Arc<Repository>) {
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
            ..EngineOptions::default()
        },
    };
    let engine = Engine::open(parts).await.unwrap();
    let repository = repository(&engine, ObjectFormat::Sha1).await;
    for number in 0..LAYERS {
        push(&engine, &repository, layer(number, COMMITS, 10), Vec::new()).await;
    }
    repository.view().await.unwrap().graph().await.unwrap();
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

/// One test, for all share the allocator.
#[tokio::test(flavor = "multi_thread")]
async fn a_merge_holds_a_few_words_an_object_and_no_more_than_is_set() {
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
