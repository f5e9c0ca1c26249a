//! Payloads that nothing needs leave the bucket, those that anything needs do not.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod support;

use bytes::Bytes;
use cuesta_engine::{Engine, EngineOptions, EngineParts, Needless, RepositoryName, Why};
use cuesta_format::{Cause, LayerId, LogId, checkpoint_key, layer_cue_key, layer_pack_key, layers_prefix, log_prefix};
use cuesta_git::ObjectFormat;
use cuesta_ledger::{Committed, MemoryStore};
use cuesta_store::{BlockCache, Bucket, BucketOptions, CacheOptions, Clock, Entropy, Workers};
use futures::TryStreamExt;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use support::source::{Source, Target};

const GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// An engine whose clock is the system's, and what is added to it: the bucket tells true ages.
async fn target() -> (Target, Arc<AtomicI64>) {
    let ahead_ms = Arc::new(AtomicI64::new(0));
    let (added, system) = (Arc::clone(&ahead_ms), Clock::system());
    let parts = EngineParts {
        cache: BlockCache::new(
            Bucket::open("memory:", &BucketOptions::default()).unwrap(),
            CacheOptions {
                memory_bytes_max: 0,
                ..CacheOptions::default()
            },
        )
        .unwrap(),
        log_store: Arc::new(MemoryStore::new()),
        clock: Clock::new(move || system.now_ms() + added.load(Ordering::SeqCst)),
        entropy: Entropy::seeded(1),
        workers: Workers::Pool(tokio::runtime::Handle::current()),
        options: EngineOptions::default(),
    };
    let engine = Engine::open(parts).await.unwrap();
    let name = RepositoryName::parse("ann/thing").unwrap();
    (Target { engine, name }, ahead_ms)
}

fn pass(ahead_ms: &AtomicI64, time: Duration) {
    ahead_ms.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
}

async fn keys(engine: &Engine, prefix: &str) -> BTreeSet<String> {
    let listed = engine.bucket().list(prefix).map_ok(|listed| listed.key);
    listed.try_collect().await.unwrap()
}

/// A repository of merged layers, and what was pushed into it.
async fn merged(target: &Target) -> Source {
    let source = Source::filled(ObjectFormat::Sha1);
    for push in 0..8 {
        source.commit(&format!("dir{}/file", push % 3), &format!("push {push}\n"));
        target.import(source.path()).await;
        target.repository().await.flush().await.unwrap();
    }
    let done = target.repository().await.maintain().await.unwrap();
    assert!(done.merges > 0, "{done:?}");
    source
}

#[tokio::test(flavor = "multi_thread")]
async fn merged_layers_go_after_their_grace_period() {
    let (target, ahead_ms) = target().await;
    let source = merged(&target).await;
    let repository = target.repository().await;
    let before = repository.view().await.unwrap();
    let all = keys(&target.engine, &layers_prefix(repository.id())).await;
    let left = before.state().retired().len();
    assert_eq!(all.len(), 2 * (left + before.state().layers().len()));

    let noted = repository.collect().await.unwrap();
    assert_eq!((noted.deleted, noted.waiting), (0, left));
    assert!(noted.due_ms.is_some());
    pass(&ahead_ms, GRACE - Duration::from_secs(60));
    assert_eq!(repository.collect().await.unwrap().deleted, 0);
    assert_eq!(repository.collectable().await.unwrap(), (0, left));
    assert_eq!(keys(&target.engine, &layers_prefix(repository.id())).await, all);

    pass(&ahead_ms, Duration::from_secs(60));
    assert_eq!(repository.collectable().await.unwrap(), (left, 0));
    let requests = target.engine.bucket().counters();
    let gone = repository.collect().await.unwrap();
    assert_eq!((gone.deleted, gone.waiting, gone.due_ms), (left, 0, None));
    let lists = |counters: &cuesta_store::Counters| counters.of(cuesta_store::Operation::List).requests;
    assert_eq!(
        lists(&requests),
        lists(&target.engine.bucket().counters()),
        "nothing is listed"
    );
    let kept = keys(&target.engine, &layers_prefix(repository.id())).await;
    assert_eq!(kept.len(), 2 * before.state().layers().len());
    target.equals(&source).await;
    assert_eq!(repository.fsck(false, Arc::new(|_| ())).await.unwrap().damages, 0);
    let after = repository.log().current().number();
    assert_eq!(
        repository.collect().await.unwrap(),
        Default::default(),
        "nothing is left to do"
    );
    assert_eq!(repository.log().current().number(), after, "and nothing is appended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_repository_goes_after_its_grace_period() {
    let (target, ahead_ms) = target().await;
    let _source = merged(&target).await;
    let log = target.repository().await.id();
    target.repository().await.write_checkpoint().await.unwrap();
    let all = keys(&target.engine, &log_prefix(log)).await;
    target.engine.delete_repository(&target.name, "").await.unwrap();
    assert!(target.engine.has_abandoned_due(), "it is to be noted");
    assert_eq!(target.engine.collect_abandoned().await.unwrap().waiting, 1);
    assert!(!target.engine.has_abandoned_due());
    pass(&ahead_ms, GRACE - Duration::from_secs(60));
    assert_eq!(target.engine.collect_abandoned().await.unwrap().deleted, 0);
    assert_eq!(keys(&target.engine, &log_prefix(log)).await, all);
    pass(&ahead_ms, Duration::from_secs(60));
    assert_eq!(target.engine.abandoned_due().await.unwrap(), (1, 0));
    let done = target.engine.collect_abandoned().await.unwrap();
    assert_eq!((done.deleted, done.waiting, done.due_ms), (1, 0, None));
    assert!(keys(&target.engine, &log_prefix(log)).await.is_empty());
    // The name is free, and a repository of that name is another.
    assert_ne!(merged(&target).await.refs().len(), 0);
}

/// Writes the payloads of a layer that nobody names.
async fn orphan(engine: &Engine, log: LogId, id: u128) -> BTreeSet<String> {
    let keys = [layer_pack_key(log, LayerId(id)), layer_cue_key(log, LayerId(id))];
    for key in &keys {
        engine.bucket().put(key, Bytes::from_static(b"orphan")).await.unwrap();
    }
    keys.into()
}

fn keys_of(needless: &[Needless], why: Why) -> BTreeSet<String> {
    let of_sort = needless.iter().filter(|payload| payload.why == why);
    of_sort.map(|payload| payload.key.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_finds_orphans_once_they_are_old() {
    let (target, ahead_ms) = target().await;
    let source = merged(&target).await;
    let repository = target.repository().await;
    let first = repository.write_checkpoint().await.unwrap().unwrap();
    let old = checkpoint_key(repository.id(), first - 1);
    target
        .engine
        .bucket()
        .put(&old, Bytes::from_static(b"old"))
        .await
        .unwrap();
    let all = keys(&target.engine, "repos").await;
    let orphans = orphan(&target.engine, repository.id(), 7).await;
    assert_eq!(
        repository.sweep(false).await.unwrap(),
        [],
        "they may be of a push under way"
    );
    pass(&ahead_ms, GRACE + Duration::from_secs(60));
    let fresh = orphan(&target.engine, repository.id(), 8).await;
    // Its time is the system's, which the engine is a day ahead of.
    let found = repository.sweep(true).await.unwrap();
    let expected: BTreeSet<String> = orphans.union(&fresh).cloned().collect();
    assert_eq!(keys_of(&found, Why::Orphan), expected);
    assert_eq!(keys_of(&found, Why::Replaced), [old.clone()].into());
    assert!(
        keys(&target.engine, "repos").await.is_superset(&expected),
        "a dry run deletes nothing"
    );

    assert_eq!(repository.sweep(false).await.unwrap(), found);
    let left: BTreeSet<String> = all.into_iter().filter(|key| *key != old).collect();
    assert_eq!(keys(&target.engine, "repos").await, left);
    target.equals(&source).await;
    // An append that comes after all is refused: its layer is gone.
    let mut late = repository.edit(Cause::Push, "");
    late.added = vec![repository.view().await.unwrap().state().layers()[0].to_added()];
    late.added[0].meta.id = LayerId(7);
    let Committed::Conflict(conflict) = repository.log().commit(late).await.unwrap() else {
        panic!("a layer whose payloads are gone became part of the repository")
    };
    assert!(conflict.to_string().contains("is being deleted"), "{conflict}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_finds_what_never_got_a_name() {
    let (target, ahead_ms) = target().await;
    let source = merged(&target).await;
    let lost = orphan(&target.engine, LogId(99), 7).await;
    assert_eq!(
        target.engine.sweep(false).await.unwrap(),
        [],
        "it may be a first push under way"
    );
    pass(&ahead_ms, GRACE + Duration::from_secs(60));
    let found = target.engine.sweep(true).await.unwrap();
    assert_eq!(keys_of(&found, Why::Nameless), lost);
    assert!(
        keys(&target.engine, "repos").await.is_superset(&lost),
        "a dry run deletes nothing"
    );
    assert_eq!(target.engine.sweep(false).await.unwrap(), found);
    assert!(keys(&target.engine, "repos").await.is_disjoint(&lost));
    target.equals(&source).await;
    assert_eq!(target.engine.sweep(false).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_checkpoints_go_at_once() {
    let (target, _) = target().await;
    let source = merged(&target).await;
    let repository = target.repository().await;
    for round in 0..3 {
        source.commit("again", &format!("{round}\n"));
        target.import(source.path()).await;
        repository.write_checkpoint().await.unwrap();
    }
    let number = repository.log().current().number();
    let checkpoints = keys(&target.engine, &(log_prefix(repository.id()) + "checkpoints")).await;
    assert_eq!(checkpoints, [checkpoint_key(repository.id(), number)].into());
}
