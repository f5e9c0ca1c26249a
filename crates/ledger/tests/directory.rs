//! The directory of names: each change is one compare-and-swap.

// What is not as expected fails the test.
#![allow(clippy::unwrap_used)]

use cuesta_format::{LogId, RepositoryRecord};
use cuesta_git::ObjectFormat;
use cuesta_ledger::{
    Changed, Directory, DirectoryState, Log, LogOptions, LogStore, Machine as _, MemoryStore, NameConflict,
    NoCheckpoints,
};
use cuesta_store::{Clock, Entropy};
use std::sync::Arc;

async fn open(store: Arc<dyn LogStore>, seed: u64) -> Directory {
    let log = Log::<DirectoryState>::open(store, LogId::DIRECTORY, Arc::new(NoCheckpoints), LogOptions::default());
    Directory::new(
        log.await.unwrap(),
        Clock::new(|| 1_700_000_000_000),
        Entropy::seeded(seed),
    )
}

fn record(log: u128) -> RepositoryRecord {
    RepositoryRecord {
        log: LogId(log),
        object_format: ObjectFormat::Sha1,
    }
}

fn name(name: &str) -> String {
    name.to_owned()
}

#[tokio::test]
async fn names_are_made_moved_and_freed_once() {
    let memory = Arc::new(MemoryStore::new());
    let (here, there) = (open(memory.clone(), 1).await, open(memory, 2).await);
    assert_eq!(here.create("a/one", record(1), "me").await.unwrap(), Changed::Done);
    let taken = there.create("a/one", record(2), "you").await.unwrap();
    assert_eq!(taken, Changed::Conflict(NameConflict::Exists(name("a/one"))));
    assert_eq!(there.resolve("a/one").await.unwrap(), Some(record(1)));

    assert_eq!(there.rename("a/one", "a/two", "you").await.unwrap(), Changed::Done);
    assert_eq!(here.resolve("a/one").await.unwrap(), None);
    assert_eq!(here.resolve("a/two").await.unwrap(), Some(record(1)));
    let missing = here.rename("a/one", "a/three", "me").await.unwrap();
    assert_eq!(missing, Changed::Conflict(NameConflict::Missing(name("a/one"))));
    here.create("a/one", record(3), "me").await.unwrap();
    let taken = here.rename("a/one", "a/two", "me").await.unwrap();
    assert_eq!(taken, Changed::Conflict(NameConflict::Exists(name("a/two"))));
    assert_eq!(
        here.resolve("a/one").await.unwrap(),
        Some(record(3)),
        "a rename that fails frees nothing"
    );

    let other = here.delete("a/two", LogId(9), "me").await.unwrap();
    assert_eq!(other, Changed::Conflict(NameConflict::Differs(name("a/two"))));
    assert_eq!(here.delete("a/two", LogId(1), "me").await.unwrap(), Changed::Done);
    let gone = here.delete("a/two", LogId(1), "me").await.unwrap();
    assert_eq!(gone, Changed::Conflict(NameConflict::Missing(name("a/two"))));
}

#[tokio::test]
async fn lists_are_sorted_by_prefix_and_paged() {
    let directory = open(Arc::new(MemoryStore::new()), 1).await;
    for (n, name) in (0..).zip(["b/x", "a/z", "a/y", "a", "ab/c", "a/x"]) {
        directory.create(name, record(n), "").await.unwrap();
    }
    let list = async |prefix: &str, after: Option<&str>, count_max| -> Vec<String> {
        let page = directory.list(prefix, after, count_max).await.unwrap();
        page.into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(list("a/", None, 10).await, ["a/x", "a/y", "a/z"]);
    assert_eq!(list("a/", None, 2).await, ["a/x", "a/y"]);
    assert_eq!(list("a/", Some("a/y"), 2).await, ["a/z"]);
    assert_eq!(list("a/", Some("a"), 2).await, ["a/x", "a/y"]);
    assert_eq!(list("", None, 10).await, ["a", "a/x", "a/y", "a/z", "ab/c", "b/x"]);
}

#[tokio::test]
async fn a_checkpoint_holds_the_directory() {
    let directory = open(Arc::new(MemoryStore::new()), 1).await;
    directory.create("a/x", record(1), "").await.unwrap();
    directory.create("a/y", record(2), "").await.unwrap();
    let state = directory.log().current();
    let bytes = state.checkpoint().encode().unwrap().into();
    let reread = DirectoryState::decode_checkpoint(LogId::DIRECTORY, state.number(), &bytes).unwrap();
    assert_eq!(reread.checkpoint(), state.checkpoint());
    assert!(DirectoryState::decode_checkpoint(LogId::DIRECTORY, 7, &bytes).is_err());
}
