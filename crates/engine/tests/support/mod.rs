//! Random histories, layers cut from them the naive way, and stock git to compare with.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing
)]

pub mod git;
pub mod history;
pub mod layers;
pub mod noise;
pub mod source;

use cuesta_engine::{Engine, EngineOptions, EngineParts, Repository, RepositoryName};
use cuesta_format::Cause;
use cuesta_git::ObjectFormat;
use cuesta_ledger::{Committed, MemoryStore};
use cuesta_store::{BlockCache, Bucket, BucketOptions, CacheOptions, Clock, Entropy, Workers};
use std::sync::Arc;

/// Numbers that repeat themselves for the same seed (SplitMix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// `count` seeds, or as many as `CUESTA_TEST_SEEDS` says.
pub fn seeds(first: u64, count: u64) -> std::ops::Range<u64> {
    let count = std::env::var("CUESTA_TEST_SEEDS")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(count);
    first..first + count
}

pub async fn engine() -> Engine {
    engine_that_walks(EngineOptions::default().walked_objects_max).await
}

/// An engine that meets so many objects below trees in one fetch.
pub async fn engine_that_walks(walked_objects_max: usize) -> Engine {
    let parts = EngineParts {
        cache: BlockCache::new(
            Bucket::open("memory:", &BucketOptions::default()).unwrap(),
            CacheOptions::default(),
        )
        .unwrap(),
        log_store: Arc::new(MemoryStore::new()),
        clock: Clock::new(|| 1_700_000_000_000),
        entropy: Entropy::seeded(1),
        workers: Workers::Pool(tokio::runtime::Handle::current()),
        options: EngineOptions {
            check_ids: true,
            divide_bytes_min: 0,
            walked_objects_max,
            ..EngineOptions::default()
        },
    };
    Engine::open(parts).await.unwrap()
}

pub async fn repository(engine: &Engine, format: ObjectFormat) -> Arc<Repository> {
    let name = RepositoryName::parse("ann/thing").unwrap();
    engine.create_repository(&name, format, "ann").await.unwrap()
}

/// Adds a layer, and refs, as a push would.
pub async fn push(engine: &Engine, repository: &Repository, layer: layers::Built, refs: Vec<cuesta_format::RefUpdate>) {
    let mut edit = repository.edit(Cause::Push, "ann");
    edit.added = vec![layer.store(engine.bucket(), repository.id()).await];
    edit.refs = refs;
    match repository.log().commit(edit).await.unwrap() {
        Committed::Done { .. } => {}
        Committed::Conflict(conflict) => panic!("{conflict}"),
    }
}
