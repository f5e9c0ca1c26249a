use super::held::{HELD_BYTES_MIN, MAPPED_BYTES_MIN};
use super::*;
use crate::{BucketOptions, Operation, StoreErrorKind};
use futures::future::join_all;
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use proptest::prelude::*;
use std::path::Path;
use std::time::Duration;

const BLOCK: u32 = 1_000;

fn payload(size: usize) -> Bytes {
    Bytes::from_iter((0..size).map(|n| (n * 7 % 251) as u8))
}

/// A bucket whose every request takes its (virtual) time.
async fn slow_bucket_with(key: &str, size: usize) -> Bucket {
    let slow = ThrottleConfig {
        wait_get_per_call: Duration::from_millis(30),
        ..ThrottleConfig::default()
    };
    let store = Arc::new(ThrottledStore::new(InMemory::new(), slow));
    let bucket = Bucket::from_store("slow", store, &BucketOptions::default());
    bucket.put(key, payload(size)).await.unwrap();
    bucket
}

async fn bucket_with(key: &str, size: usize) -> Bucket {
    let bucket = Bucket::open("memory:", &BucketOptions::default()).unwrap();
    bucket.put(key, payload(size)).await.unwrap();
    bucket
}

fn options(memory_bytes_max: u64) -> CacheOptions {
    CacheOptions {
        memory_bytes_max,
        block_bytes: BLOCK,
        fetch_bytes_max: 8 * BLOCK,
        ..CacheOptions::default()
    }
}

fn on_disk(directory: &Path, bytes_max: u64) -> CacheOptions {
    // No memory, so that every read shows what the disk does.
    CacheOptions {
        disk: Some((directory.to_owned(), bytes_max)),
        ..options(0)
    }
}

fn block_files(directory: &Path) -> Vec<PathBuf> {
    let directories = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = directories.flat_map(|directory| std::fs::read_dir(directory).unwrap());
    files.map(|entry| entry.unwrap().path()).collect()
}

fn range_requests(bucket: &Bucket) -> u64 {
    bucket.counters().of(Operation::GetRange).requests
}

proptest! {
    #[test]
    fn any_range_is_exact(
        size in 1usize..20_000,
        cuts in prop::collection::vec((0usize..20_000, 0usize..20_000), 1..12),
        memory in prop::sample::select(vec![0u64, 3_000, 1 << 20]),
        scan in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let cache = BlockCache::new(bucket_with("p", size).await, options(memory)).unwrap();
            let whole = payload(size);
            for (a, b) in cuts {
                let range = a.min(b).min(size)..a.max(b).min(size);
                let (from, to) = (range.start as u64, range.end as u64);
                let access = if scan { Access::Scan } else { Access::Keep };
                let pieces = cache.read_pieces("p", size as u64, from..to, access).await.unwrap();
                assert_eq!(pieces.concat(), whole.slice(range.clone()));
                assert_eq!(cache.read("p", size as u64, from..to).await.unwrap(), whole.slice(range));
            }
        });
    }
}

#[tokio::test]
async fn a_run_of_missing_blocks_is_few_requests_and_then_none() {
    let bucket = bucket_with("p", 20_500).await;
    let cache = BlockCache::new(bucket.clone(), options(1 << 20)).unwrap();
    cache.read("p", 20_500, 10_100..10_200).await.unwrap();
    assert_eq!(range_requests(&bucket), 1);
    cache.read("p", 20_500, 0..20_500).await.unwrap();
    // Blocks 0 to 7, 8 and 9, 11 to 18, 19 and 20; block 10 is there.
    assert_eq!(range_requests(&bucket), 5);
    assert_eq!(
        bucket.counters().of(Operation::GetRange).bytes_in,
        20_500,
        "no byte twice"
    );
    cache.read("p", 20_500, 0..20_500).await.unwrap();
    assert_eq!(range_requests(&bucket), 5);
    assert_eq!(cache.counters().memory_hits, 1 + 21);
}

#[tokio::test(start_paused = true)]
async fn many_readers_of_one_block_ask_once() {
    let bucket = slow_bucket_with("p", 5_000).await;
    let cache = BlockCache::new(bucket.clone(), options(1 << 20)).unwrap();
    let readers = (0..64).map(|_| {
        let cache = cache.clone();
        tokio::spawn(async move { cache.read("p", 5_000, 0..5_000).await.unwrap() })
    });
    for read in join_all(readers).await {
        assert_eq!(read.unwrap(), payload(5_000));
    }
    assert_eq!(range_requests(&bucket), 1);
    assert_eq!(cache.counters().shared, 63 * 5);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_or_dropped_reader_holds_nobody_up() {
    let bucket = slow_bucket_with("p", 5_000).await;
    let cache = BlockCache::new(
        bucket.clone(),
        CacheOptions {
            fetches_max: 1,
            ..options(1 << 20)
        },
    )
    .unwrap();
    let mut stalled = Box::pin(cache.read("p", 5_000, 0..1_000));
    let mut dropped = Box::pin(cache.read("p", 5_000, 1_000..2_000));
    assert!(futures::poll!(&mut stalled).is_pending());
    assert!(futures::poll!(&mut dropped).is_pending());
    drop(dropped);
    for range in [0..1_000, 1_000..2_000, 3_000..4_000] {
        let wanted = payload(5_000).slice(range.start as usize..range.end as usize);
        assert_eq!(cache.read("p", 5_000, range).await.unwrap(), wanted);
    }
    assert_eq!(stalled.await.unwrap(), payload(5_000).slice(0..1_000));
}

#[test]
fn reads_need_no_reactor() {
    let cache = futures::executor::block_on(async {
        let cache = BlockCache::new(bucket_with("p", 5_000).await, options(1 << 20)).unwrap();
        assert_eq!(
            cache.read("p", 5_000, 900..3_100).await.unwrap(),
            payload(5_000).slice(900..3_100)
        );
        cache
    });
    assert!(cache.0.flights.lock().is_empty());
}

#[tokio::test]
async fn errors_reach_all_and_are_not_kept() {
    let bucket = bucket_with("other", 1).await;
    let cache = BlockCache::new(bucket.clone(), options(1 << 20)).unwrap();
    let reads = join_all((0..3).map(|_| cache.read("p", 5_000, 0..5_000))).await;
    assert!(
        reads
            .iter()
            .all(|read| read.as_ref().unwrap_err().kind() == StoreErrorKind::NotFound)
    );
    bucket.put("p", payload(5_000)).await.unwrap();
    assert_eq!(cache.read("p", 5_000, 0..5_000).await.unwrap(), payload(5_000));
    let beyond = cache.read("p", 5_000, 4_000..5_001).await.unwrap_err();
    assert_eq!(beyond.kind(), StoreErrorKind::Corrupt);
    assert_eq!(
        cache.read("p", 6_000, 4_500..6_000).await.unwrap_err().kind(),
        StoreErrorKind::Corrupt
    );
}

#[tokio::test]
async fn memory_stays_within_its_bound_and_a_scan_leaves_what_is_kept() {
    let size = 2_000_000;
    let bucket = bucket_with("big", size).await;
    bucket.put("hot", payload(10_000)).await.unwrap();
    let cache = BlockCache::new(bucket.clone(), options(200_000)).unwrap();
    for _ in 0..2 {
        cache.read("hot", 10_000, 0..10_000).await.unwrap();
    }
    for start in (0..size as u64).step_by(50_000) {
        cache
            .read_pieces("big", size as u64, start..start + 50_000, Access::Scan)
            .await
            .unwrap();
        assert!(cache.0.kept.weight() + cache.0.passing.weight() <= 200_000);
    }
    let before = range_requests(&bucket);
    cache.read("hot", 10_000, 0..10_000).await.unwrap();
    assert_eq!(range_requests(&bucket), before, "the scan pushed out a hot block");
}

#[tokio::test]
async fn a_prefetched_block_is_not_asked_for_again() {
    let bucket = bucket_with("p", 5_000).await;
    let cache = BlockCache::new(bucket.clone(), options(1 << 20)).unwrap();
    cache.prefetch("p", 5_000, 0..10_000, Access::Keep);
    cache.read("p", 5_000, 0..5_000).await.unwrap();
    assert_eq!(range_requests(&bucket), 1);
}

#[tokio::test]
async fn a_long_pass_finds_what_it_fetched_ahead() {
    const WINDOW: u64 = 4_000;
    let size = 200_000;
    let bucket = bucket_with("p", size as usize).await;
    let cache = BlockCache::new(bucket.clone(), options(160_000)).unwrap();
    for start in (0..size).step_by(WINDOW as usize) {
        cache.prefetch("p", size, start..start + WINDOW, Access::Scan);
        // Landed, as it is when the reader is slower than the bucket.
        let scan = async |range| cache.read_pieces("p", size, range, Access::Scan).await.unwrap();
        scan(start + WINDOW - 1..start + WINDOW).await;
        // Reads that share a block with the one before.
        for read in (start..start + WINDOW).step_by(500) {
            scan(read..read + 500).await;
        }
    }
    assert_eq!(range_requests(&bucket), size / WINDOW);
}

#[tokio::test]
async fn blocks_on_disk_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let bucket = bucket_with("a/b+c", 20_500).await;
    let cache = BlockCache::new(bucket.clone(), on_disk(directory.path(), 1 << 20)).unwrap();
    cache.read("a/b+c", 20_500, 0..20_500).await.unwrap();
    cache.settle().await;
    assert_eq!(block_files(directory.path()).len(), 21);
    drop(cache);
    std::fs::write(directory.path().join("stray"), b"x").unwrap();
    let before = range_requests(&bucket);
    let cache = BlockCache::new(bucket.clone(), on_disk(directory.path(), 1 << 20)).unwrap();
    cache.settle().await;
    assert_eq!(cache.read("a/b+c", 20_500, 0..20_500).await.unwrap(), payload(20_500));
    assert_eq!(range_requests(&bucket), before);
    assert_eq!(cache.counters().disk_hits, 21);
}

#[tokio::test]
async fn damage_on_disk_is_found_and_fetched_again() {
    let bucket = bucket_with("p", 1_000).await;
    type Damage = fn(&Path);
    let flip: Damage = |file| {
        let mut bytes = std::fs::read(file).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(file, bytes).unwrap();
    };
    let truncate: Damage = |file| std::fs::write(file, &std::fs::read(file).unwrap()[..500]).unwrap();
    let empty: Damage = |file| std::fs::write(file, b"").unwrap();
    let grow: Damage = |file| std::fs::write(file, [std::fs::read(file).unwrap(), vec![0; 5_000]].concat()).unwrap();
    for damage in [flip, truncate, empty, grow] {
        let directory = tempfile::tempdir().unwrap();
        let cache = BlockCache::new(bucket.clone(), on_disk(directory.path(), 1 << 20)).unwrap();
        for expected_corrupt in [0, 0, 1, 1] {
            assert_eq!(cache.read("p", 1_000, 0..1_000).await.unwrap(), payload(1_000));
            cache.settle().await;
            assert_eq!(cache.counters().corrupt, expected_corrupt);
            if expected_corrupt == 0 && cache.counters().disk_hits == 1 {
                damage(&block_files(directory.path())[0]);
            }
        }
        assert_eq!(cache.counters().disk_hits, 2);
        assert_eq!(cache.counters().misses, 2);
    }
}

#[tokio::test]
async fn a_block_under_the_name_of_another_is_not_believed() {
    let directory = tempfile::tempdir().unwrap();
    let bucket = bucket_with("p", 1_000).await;
    bucket.put("q", Bytes::from(vec![9; 1_000])).await.unwrap();
    let cache = BlockCache::new(bucket.clone(), on_disk(directory.path(), 1 << 20)).unwrap();
    cache.read("p", 1_000, 0..1_000).await.unwrap();
    cache.read("q", 1_000, 0..1_000).await.unwrap();
    cache.settle().await;
    let [one, other] = block_files(directory.path()).try_into().unwrap();
    std::fs::copy(one, other).unwrap();
    assert_eq!(cache.read("p", 1_000, 0..1_000).await.unwrap(), payload(1_000));
    assert_eq!(cache.read("q", 1_000, 0..1_000).await.unwrap(), vec![9; 1_000]);
    assert_eq!(cache.counters().corrupt, 1);
}

#[tokio::test]
async fn the_directory_may_vanish_while_running() {
    let directory = tempfile::tempdir().unwrap();
    let bucket = bucket_with("p", 3_000).await;
    let cache = BlockCache::new(bucket.clone(), on_disk(directory.path(), 1 << 20)).unwrap();
    for _ in 0..2 {
        cache.read("p", 3_000, 0..3_000).await.unwrap();
        cache.settle().await;
        std::fs::remove_dir_all(directory.path()).unwrap();
        assert_eq!(cache.read("p", 3_000, 0..3_000).await.unwrap(), payload(3_000));
        cache.settle().await;
        assert_eq!(block_files(directory.path()).len(), 3, "it is filled again");
    }
    assert_eq!(cache.counters().corrupt, 0);
}

#[tokio::test]
async fn the_disk_stays_within_its_bound() {
    let directory = tempfile::tempdir().unwrap();
    let bucket = bucket_with("p", 200_000).await;
    let bytes_max = 20_000;
    let cache = BlockCache::new(bucket.clone(), on_disk(directory.path(), bytes_max)).unwrap();
    for start in (0..200_000).step_by(1_000) {
        cache.read("p", 200_000, start..start + 1_000).await.unwrap();
        cache.settle().await;
    }
    let used: u64 = block_files(directory.path())
        .iter()
        .map(|file| file.metadata().unwrap().len())
        .sum();
    assert!(used <= bytes_max && used > bytes_max / 2, "{used} bytes used");
    drop(cache);
    let cache = BlockCache::new(bucket, on_disk(directory.path(), bytes_max / 2)).unwrap();
    cache.settle().await;
    let used: u64 = block_files(directory.path())
        .iter()
        .map(|file| file.metadata().unwrap().len())
        .sum();
    assert!(
        used <= bytes_max / 2,
        "{used} bytes used after a restart with less room"
    );
}

#[tokio::test]
async fn a_local_directory_uses_memory_only() {
    let (root, cached) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bucket = Bucket::open(root.path().to_str().unwrap(), &BucketOptions::default()).unwrap();
    bucket.put("p", payload(20_500)).await.unwrap();
    let cache = BlockCache::new(bucket, on_disk(cached.path(), 1 << 20)).unwrap();
    assert_eq!(cache.read("p", 20_500, 0..20_500).await.unwrap(), payload(20_500));
    cache.settle().await;
    assert!(block_files(cached.path()).is_empty());
}

#[tokio::test]
async fn who_pass_over_a_local_directory_share_its_blocks_and_leave_others_alone() {
    let root = tempfile::tempdir().unwrap();
    let bucket = Bucket::open(root.path().to_str().unwrap(), &BucketOptions::default()).unwrap();
    bucket.put("p", payload(20_500)).await.unwrap();
    let cache = BlockCache::new(bucket.clone(), options(1 << 20)).unwrap();
    cache.prefetch("p", 20_500, 0..20_500, Access::Scan);
    assert_eq!(range_requests(&bucket), 0);
    let passes = join_all((0..8).map(|_| cache.pass("p", 20_500, 3_100..3_900))).await;
    assert!(
        passes
            .into_iter()
            .all(|bytes| bytes.unwrap() == payload(20_500)[3_100..3_900])
    );
    assert_eq!((range_requests(&bucket), cache.counters().misses), (1, 1));
    // Of several blocks: a mapping of its own.
    assert_eq!(
        cache.pass("p", 20_500, 900..20_500).await.unwrap(),
        payload(20_500)[900..]
    );
    assert_eq!((range_requests(&bucket), cache.counters().misses), (2, 1));
    let beyond = cache.pass("p", 20_500, 900..20_501).await.unwrap_err();
    assert_eq!(beyond.kind(), StoreErrorKind::Corrupt);
    bucket.delete("p").await.unwrap();
    assert_eq!(
        cache.pass("p", 20_500, 3_000..4_000).await.unwrap(),
        payload(20_500)[3_000..4_000]
    );
}

#[tokio::test]
async fn what_is_held_of_a_local_directory_is_mapped_and_outlives_its_key() {
    let root = tempfile::tempdir().unwrap();
    let bucket = Bucket::open(root.path().to_str().unwrap(), &BucketOptions::default()).unwrap();
    bucket.put("a/p", payload(120_500)).await.unwrap();
    let cache = BlockCache::new(bucket.clone(), options(1 << 20)).unwrap();
    let held = cache.hold("a/p", 120_500, 4_097..120_499).await.unwrap();
    let few = cache.hold("a/p", 120_500, 7..MAPPED_BYTES_MIN + 6).await.unwrap();
    assert_eq!(
        (few.bytes, few.is_mapped),
        (payload(120_500).slice(7..MAPPED_BYTES_MIN as usize + 6), false)
    );
    bucket.delete("a/p").await.unwrap();
    assert_eq!(held.bytes, payload(120_500).slice(4_097..120_499));
    assert!(held.is_mapped);
    assert_eq!(cache.0.kept.weight(), 0, "no block holds it, too");
    assert_eq!(
        bucket.counters().of(Operation::GetRange).bytes_in,
        120_499 - 4_097 + MAPPED_BYTES_MIN - 1
    );
    let gone = cache.hold("a/p", 120_500, 0..1).await.unwrap_err();
    assert_eq!(gone.kind(), StoreErrorKind::NotFound);
    bucket.put("a/p", payload(100)).await.unwrap();
    for (size, range) in [(120_500, 50..101), (100, 99..101)] {
        let short = cache.hold("a/p", size, range).await.unwrap_err();
        assert_eq!(short.kind(), StoreErrorKind::Corrupt, "{short}");
    }
}

#[tokio::test]
async fn what_is_held_elsewhere_comes_through_the_blocks() {
    let cache = BlockCache::new(bucket_with("p", 5_000).await, options(1 << 20)).unwrap();
    let held = cache.hold("p", 5_000, 900..3_100).await.unwrap();
    assert_eq!(held.bytes, payload(5_000).slice(900..3_100));
    assert!(!held.is_mapped);
}

#[tokio::test]
async fn what_is_held_of_a_remote_bucket_is_in_files_while_there_is_room() {
    const SIZE: usize = 300_000;
    let directory = tempfile::tempdir().unwrap();
    let bucket = bucket_with("p", SIZE).await;
    let cache = BlockCache::new(bucket.clone(), on_disk(directory.path(), 1_000_000)).unwrap();
    let hold = |range: Range<u64>| cache.hold("p", SIZE as u64, range);
    let is = |held: &Held, range: Range<usize>| held.bytes == payload(SIZE).slice(range);
    let first = hold(777..SIZE as u64 - 99_999).await.unwrap();
    assert!(first.is_mapped && is(&first, 777..SIZE - 99_999));
    let asked = bucket.counters().of(Operation::GetRange).bytes_in;
    assert!(asked < SIZE as u64 - 90_000, "each block is fetched once: {asked}");
    let few = hold(5..HELD_BYTES_MIN + 4).await.unwrap();
    assert!(!few.is_mapped && is(&few, 5..HELD_BYTES_MIN as usize + 4));
    let second = hold(1..HELD_BYTES_MIN + 1).await.unwrap();
    assert!(!second.is_mapped, "a quarter of the disk is taken");
    drop(first);
    let third = hold(1..HELD_BYTES_MIN + 1).await.unwrap();
    assert!(third.is_mapped && is(&third, 1..HELD_BYTES_MIN as usize + 1));
    // The directory may go, and what is held stays.
    cache.settle().await;
    std::fs::remove_dir_all(directory.path()).unwrap();
    let fourth = hold(2..HELD_BYTES_MIN + 2).await.unwrap();
    assert!(fourth.is_mapped && is(&fourth, 2..HELD_BYTES_MIN as usize + 2));
    assert!(is(&third, 1..HELD_BYTES_MIN as usize + 1));
    let beyond = hold(SIZE as u64 - 70_000..SIZE as u64 + 1).await.unwrap_err();
    assert_eq!(beyond.kind(), StoreErrorKind::Corrupt, "{beyond}");
    let gone = cache.hold("q", SIZE as u64, 0..SIZE as u64 / 2).await.unwrap_err();
    assert_eq!(gone.kind(), StoreErrorKind::NotFound);
}
