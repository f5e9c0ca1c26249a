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

#[tokio::test]
async fn a_log_that_lost_its_name_gets_none_again() {
    let directory = open(Arc::new(MemoryStore::new()), 1).await;
    let abandoned = || -> Vec<(u128, Option<i64>)> {
        let state = directory.log().current();
        state.abandoned().map(|log| (log.log.0, log.seen_ms)).collect()
    };
    directory.create("a/x", record(1), "").await.unwrap();
    directory.create("a/y", record(2), "").await.unwrap();
    directory.rename("a/x", "a/z", "").await.unwrap();
    assert_eq!(abandoned(), [], "a rename abandons nothing");
    let named = directory.abandon(&[LogId(9), LogId(1)], "").await.unwrap();
    let conflict = NameConflict::Named(LogId(1), name("a/z"));
    assert_eq!(named, Changed::Conflict(conflict));
    assert_eq!(abandoned(), [], "all of an edit or nothing");

    directory.delete("a/z", LogId(1), "").await.unwrap();
    assert_eq!(abandoned(), [(1, None)], "nobody has looked");
    let lost = directory.create("a/z", record(1), "").await.unwrap();
    assert_eq!(lost, Changed::Conflict(NameConflict::Abandoned(LogId(1))));
    directory.abandon(&[LogId(1), LogId(9)], "").await.unwrap();
    assert_eq!(
        abandoned(),
        [(1, Some(1_700_000_000_000)), (9, Some(1_700_000_000_000))]
    );
    let lost = directory.create("a/new", record(9), "").await.unwrap();
    assert_eq!(lost, Changed::Conflict(NameConflict::Abandoned(LogId(9))));

    directory.forget(&[LogId(1), LogId(7)], "").await.unwrap();
    assert_eq!(abandoned(), [(9, Some(1_700_000_000_000))]);
    let state = directory.log().current();
    let bytes = state.checkpoint().encode().unwrap().into();
    let reread = DirectoryState::decode_checkpoint(LogId::DIRECTORY, state.number(), &bytes).unwrap();
    assert_eq!(reread.checkpoint(), state.checkpoint());
}

#[tokio::test]
async fn the_first_look_at_an_abandoned_log_counts() {
    let ticks = std::sync::atomic::AtomicI64::new(5);
    let log = Log::<DirectoryState>::open(
        Arc::new(MemoryStore::new()),
        LogId::DIRECTORY,
        Arc::new(NoCheckpoints),
        LogOptions::default(),
    );
    let clock = Clock::new(move || ticks.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
    let directory = Directory::new(log.await.unwrap(), clock, Entropy::seeded(1));
    directory.abandon(&[LogId(1)], "").await.unwrap();
    directory.abandon(&[LogId(1)], "").await.unwrap();
    let state = directory.log().current();
    assert_eq!(state.abandoned().map(|log| log.seen_ms).collect::<Vec<_>>(), [Some(5)]);
}
