//! How fast a local directory is here. `cargo test -p cuesta-store --test rates -- --ignored --nocapture`; asserts nothing.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use bytes::Bytes;
use cuesta_store::{BlockCache, Bucket, BucketOptions, CacheOptions};
use futures::stream::{self, StreamExt};
use std::future::Future;
use std::time::Instant;

const PAYLOADS: usize = 2_000;
const AT_ONCE: usize = 32;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn local_directory() {
    let payload = Bytes::from(vec![7; 4 << 10]);
    for sync in [false, true] {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let options = BucketOptions {
            sync,
            ..BucketOptions::default()
        };
        let bucket = Bucket::open(directory.path().to_str().unwrap(), &options).unwrap();
        let key = |n: usize| format!("{}/{n}", n % 16);
        rate(&format!("put, 4 KiB, sync {sync}"), |n| {
            let (bucket, key, payload) = (bucket.clone(), key(n), payload.clone());
            async move { bucket.put(&key, payload).await.unwrap() }
        })
        .await;
        rate(&format!("create, 4 KiB, sync {sync}"), |n| {
            let (bucket, key, payload) = (bucket.clone(), format!("c/{}", key(n)), payload.clone());
            async move { assert_eq!(bucket.create(&key, payload).await.unwrap(), cuesta_store::Created::Done) }
        })
        .await;
        rate("get, 4 KiB", |n| {
            let (bucket, key) = (bucket.clone(), key(n));
            async move { drop(bucket.get(&key).await.unwrap()) }
        })
        .await;
        bucket.put("large", Bytes::from(vec![1; 64 << 20])).await.unwrap();
        rate("get_range, 4 KiB, open file", |n| {
            let (bucket, from) = (bucket.clone(), (n as u64 * 7_919_777) % (63 << 20));
            async move { drop(bucket.get_range("large", from..from + 4096).await.unwrap()) }
        })
        .await;
        let cache = BlockCache::new(bucket.clone(), CacheOptions::default()).unwrap();
        cache.read("large", 64 << 20, 0..64 << 20).await.unwrap();
        rate("cached read, 4 KiB", |n| {
            let (cache, from) = (cache.clone(), (n as u64 * 7_919_777) % (63 << 20));
            async move { drop(cache.read("large", 64 << 20, from..from + 4096).await.unwrap()) }
        })
        .await;
    }
}

async fn rate<F: Future<Output = ()> + Send + 'static>(what: &str, operation: impl Fn(usize) -> F) {
    let start = Instant::now();
    let runs = (0..PAYLOADS).map(|n| tokio::spawn(operation(n)));
    stream::iter(runs)
        .buffer_unordered(AT_ONCE)
        .for_each(|run| async { run.unwrap() })
        .await;
    let seconds = start.elapsed().as_secs_f64();
    println!("{what}: {:.0}/s", PAYLOADS as f64 / seconds);
}
