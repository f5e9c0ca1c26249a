//! The logs of names and accounts are folded like those of repositories: who opens them reads a checkpoint and what came after.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use cuesta_engine::{Engine, EngineOptions, EngineParts};
use cuesta_format::{AccountChange, LogId, RepositoryRecord, UserRecord, checkpoint_key, checkpoints_prefix};
use cuesta_git::ObjectFormat;
use cuesta_ledger::{LogStore, MemoryStore};
use cuesta_store::{BlockCache, Bucket, BucketOptions, CacheOptions, Clock, Entropy, Workers};
use futures::TryStreamExt;
use std::sync::Arc;

/// More edits than a log keeps without a checkpoint, each in an entry of its own.
const MANY: usize = 60;

struct Storage {
    bucket: Bucket,
    log_store: Arc<MemoryStore>,
}

impl Storage {
    fn new() -> Self {
        Self {
            bucket: Bucket::open("memory:", &BucketOptions::default()).unwrap(),
            log_store: Arc::new(MemoryStore::new()),
        }
    }

    async fn open(&self) -> Engine {
        let parts = EngineParts {
            cache: BlockCache::new(self.bucket.clone(), CacheOptions::default()).unwrap(),
            log_store: self.log_store.clone(),
            clock: Clock::new(|| 1_700_000_000_000),
            entropy: Entropy::seeded(1),
            workers: Workers::Inline,
            options: EngineOptions::default(),
        };
        Engine::open(parts).await.unwrap()
    }

    async fn checkpoints(&self, log: LogId) -> Vec<String> {
        let listed = self.bucket.list(&checkpoints_prefix(log)).map_ok(|listed| listed.key);
        listed.try_collect().await.unwrap()
    }

    /// That the log begins at its end, and that there is one checkpoint, which is the one to open from.
    async fn assert_folded(&self, log: LogId) {
        let (base, end) = (
            self.log_store.base(log).await.unwrap(),
            self.log_store.end(log).await.unwrap(),
        );
        assert_eq!((base.first, base.checkpoint), (end, Some(end)));
        assert_eq!(self.checkpoints(log).await, [checkpoint_key(log, end)]);
    }
}

fn record(number: usize) -> RepositoryRecord {
    RepositoryRecord {
        log: LogId(1_000 + number as u128),
        object_format: ObjectFormat::Sha1,
    }
}

async fn name_some(engine: &Engine, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let name = format!("ann/{number:03}");
        engine.directory().create(&name, record(number), "ann").await.unwrap();
    }
}

async fn names(engine: &Engine) -> usize {
    let all = engine.directory().list("ann/", None, usize::MAX).await.unwrap();
    assert!(
        all.iter()
            .enumerate()
            .all(|(number, (_, found))| *found == record(number))
    );
    all.len()
}

#[tokio::test]
async fn names_are_folded_when_their_log_is_long_and_not_again() {
    let storage = Storage::new();
    let engine = storage.open().await;
    name_some(&engine, 0..3).await;
    assert_eq!(engine.fold_if_due().await.unwrap(), 0, "three entries are soon read");
    name_some(&engine, 3..MANY).await;
    assert_eq!(engine.fold_if_due().await.unwrap(), 1);
    storage.assert_folded(LogId::DIRECTORY).await;
    assert_eq!(engine.fold_if_due().await.unwrap(), 0);
    name_some(&engine, MANY..MANY + 3).await;
    assert_eq!(engine.fold_if_due().await.unwrap(), 0);
    let again = storage.open().await;
    assert_eq!(names(&again).await, MANY + 3);
    // Its own names go on where the others' ended, and the next checkpoint takes the first one's place.
    name_some(&again, MANY + 3..2 * MANY).await;
    assert_eq!(again.fold_if_due().await.unwrap(), 1);
    storage.assert_folded(LogId::DIRECTORY).await;
    assert_eq!(names(&storage.open().await).await, 2 * MANY);
    assert_eq!(names(&engine).await, 2 * MANY, "who had it open follows");
}

#[tokio::test]
async fn accounts_are_folded_and_nobody_opens_them_for_that() {
    let storage = Storage::new();
    let engine = storage.open().await;
    assert_eq!(engine.fold_if_due().await.unwrap(), 0);
    for number in 0..MANY {
        let user = UserRecord {
            name: format!("user{number}"),
            is_admin: number == 7,
        };
        engine
            .change_accounts(vec![AccountChange::AddUser(user)], "root")
            .await
            .unwrap();
    }
    assert_eq!(engine.fold_if_due().await.unwrap(), 1);
    storage.assert_folded(LogId::ACCOUNTS).await;
    let again = storage.open().await;
    assert_eq!(again.fold_if_due().await.unwrap(), 0);
    let state = again.accounts().await.unwrap().fresh().await.unwrap();
    let users: Vec<_> = state.users().collect();
    assert_eq!(users.len(), MANY);
    assert!(users.iter().all(|(name, user)| user.is_admin == (*name == "user7")));
}
