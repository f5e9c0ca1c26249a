//! One large repository: are the figures of the design met? Prints times, asserts results only. Run it by
//! `cargo test --release -p cuesta-engine --test scale -- --ignored --nocapture`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
// The one thing this file is for is to measure real time.
#![allow(clippy::disallowed_methods)]

mod support;

use cuesta_engine::upload::{UploadRequest, plan};
use cuesta_engine::{Engine, EngineOptions, EngineParts, Position, View};
use cuesta_git::ObjectFormat;
use cuesta_ledger::MemoryStore;
use cuesta_store::{BlockCache, Bucket, BucketOptions, CacheOptions, Clock, Entropy, Workers};
use futures::StreamExt;
use std::sync::Arc;
use std::time::Instant;
use support::noise::{layer, oid};
use support::{push, repository};

const COMMITS: u32 = 200_000;
const BLOB_BYTES: usize = 1_000;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a while and half a gigabyte of disk"]
async fn two_hundred_thousand_commits() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Bucket::open(
        dir.path().to_str().unwrap(),
        &BucketOptions {
            sync: false,
            ..BucketOptions::default()
        },
    );
    let parts = EngineParts {
        cache: BlockCache::new(bucket.unwrap(), CacheOptions::default()).unwrap(),
        log_store: Arc::new(MemoryStore::new()),
        clock: Clock::new(|| 0),
        entropy: Entropy::seeded(1),
        workers: Workers::Pool(tokio::runtime::Handle::current()),
        options: EngineOptions::default(),
    };
    let engine = Engine::open(parts).await.unwrap();
    let repository = repository(&engine, ObjectFormat::Sha1).await;
    push(&engine, &repository, layer(0, COMMITS, BLOB_BYTES), Vec::new()).await;
    let view = repository.view().await.unwrap();
    let graph = timed("load the graph", view.graph()).await.unwrap();
    let tip = Position {
        slot: 0,
        entry: COMMITS - 1,
    };
    for _ in 0..3 {
        let all = timed("all ancestors", async { graph.ancestors(&[tip], 0).unwrap() }).await;
        assert_eq!(all.count(), u64::from(COMMITS));
    }
    let behind = |back: u32| Position {
        slot: 0,
        entry: COMMITS - 1 - back,
    };
    for back in [1, 1_000, 100_000] {
        let label = format!("send set, {back} behind");
        let send = timed(&label, async { graph.send_set(&[tip], &[behind(back)]).unwrap() }).await;
        assert!(send.send.count() >= u64::from(back) / 4);
        let ready = timed("  ready?", async { graph.all_reach(&[tip], &[behind(back)]).unwrap() }).await;
        println!("  {ready}");
    }
    let mut request = UploadRequest {
        wants: vec![oid(0, COMMITS - 1)],
        ofs_delta: true,
        ..UploadRequest::default()
    };
    println!("clone, the layer as it is");
    send(&view, &request).await;
    // A second layer makes the answer a mixture.
    push(&engine, &repository, layer(1, 2, BLOB_BYTES), Vec::new()).await;
    let view = repository.view().await.unwrap();
    request.wants.push(oid(1, 1));
    println!("clone, entry by entry");
    send(&view, &request).await;
    // Thin, for the streams of these layers cannot be inflated.
    request.wants.pop();
    request.common = vec![oid(0, COMMITS - 3)];
    request.thin = true;
    println!("fetch of a few");
    send(&view, &request).await;
}

async fn send(view: &View, request: &UploadRequest) {
    let plan = timed("  plan", plan(view, request)).await.unwrap();
    let (wall, cpu) = (Instant::now(), cpu_ms());
    let objects = plan.object_count();
    let mut stream = plan.stream();
    let (mut bytes, mut chunks) = (0, 0);
    while let Some(chunk) = stream.next().await {
        bytes += chunk.unwrap().len();
        chunks += 1;
    }
    println!(
        "  {objects} objects, {bytes} bytes, {chunks} chunks: {:?}, {} ms cpu",
        wall.elapsed(),
        cpu_ms() - cpu
    );
}

async fn timed<T>(label: &str, work: impl Future<Output = T>) -> T {
    let start = Instant::now();
    let value = work.await;
    println!("{label}: {:?}", start.elapsed());
    value
}

/// User and system time of this process so far (proc(5), `stat`, in ticks of 10 ms).
fn cpu_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |field: usize| {
        fields
            .get(field)
            .and_then(|field| field.parse::<u64>().ok())
            .unwrap_or(0)
    };
    (ticks(11) + ticks(12)) * 10
}
