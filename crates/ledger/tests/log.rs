//! Logs: groups, other nodes, lost replies, late appends, dropped callers, folded entries.

// What is not as expected fails the test.
#![allow(clippy::unwrap_used)]

mod support;

use async_trait::async_trait;
use bytes::Bytes;
use cuesta_format::{LogId, RefUpdate};
use cuesta_ledger::{
    Base, CheckpointSource, Committed, Conflict, ErrorKind, LedgerError, Limits, Log, LogOptions, LogStore,
    MemoryStore, NoCheckpoints, RECENT_EDITS_MAX, RefConflict, State,
};
use futures::FutureExt as _;
use futures::future::join_all;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::{Fault, FaultyStore, LOG, creation, edit, ids_in, name, oid, open, push, update};

fn done(outcome: Result<Committed, LedgerError>) -> u64 {
    match outcome.unwrap() {
        Committed::Done { number, state } => {
            assert!(state.number() > number);
            number
        }
        Committed::Conflict(conflict) => panic!("conflict: {conflict}"),
    }
}

fn conflict(outcome: Result<Committed, LedgerError>) -> RefConflict {
    match outcome.unwrap() {
        Committed::Conflict(Conflict::Ref { reason, .. }) => reason,
        other => panic!("no ref conflict: {other:?}"),
    }
}

async fn begun() -> (Arc<FaultyStore>, Log) {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    let log = open(store.clone()).await;
    done(log.commit(creation()).await);
    (store, log)
}

#[tokio::test]
async fn a_commit_is_seen_here_at_once_and_elsewhere_when_asked() {
    let memory = Arc::new(MemoryStore::new());
    let (here, there) = (open(memory.clone()).await, open(memory).await);
    done(here.commit(creation()).await);
    done(here.commit(push("refs/heads/main", None, Some(1))).await);
    assert_eq!(here.current().refs()[&name("refs/heads/main")].oid, oid(1));
    assert_eq!(
        there.fresh().await.unwrap().refs()[&name("refs/heads/main")].oid,
        oid(1)
    );
    assert_eq!(there.current().number(), 2);
}

#[tokio::test]
async fn a_log_reopens_as_it_was() {
    let memory = Arc::new(MemoryStore::new());
    let log = open(memory.clone()).await;
    done(log.commit(creation()).await);
    for value in 1..20 {
        done(
            log.commit(push("refs/heads/main", (value > 1).then_some(value - 1), Some(value)))
                .await,
        );
    }
    let before = log.current().checkpoint(LOG);
    drop(log);
    assert_eq!(open(memory).await.current().checkpoint(LOG), before);
}

#[tokio::test]
async fn what_arrives_during_an_append_makes_one_entry() {
    let (store, log) = begun().await;
    store.close_gate();
    let first = tokio::spawn({
        let log = log.clone();
        async move { log.commit(push("refs/heads/first", None, Some(1))).await }
    });
    while store.arrivals.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    let rest: Vec<_> = (0..10u8)
        .map(|n| {
            let log = log.clone();
            // Two of the ten want the same ref: the second of them conflicts, alone.
            let edit = push(&format!("refs/heads/b{}", n.min(8)), None, Some(n + 1));
            tokio::spawn(async move { log.commit(edit).await })
        })
        .collect();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let appends_before = store.appends.load(Ordering::SeqCst);
    store.open_gate();
    assert_eq!(done(first.await.unwrap()), 1);
    let outcomes: Vec<_> = join_all(rest).await.into_iter().map(Result::unwrap).collect();
    assert!(
        outcomes[..9]
            .iter()
            .all(|outcome| matches!(outcome, Ok(Committed::Done { number: 2, .. })))
    );
    assert_eq!(conflict(outcomes[9].clone()), RefConflict::Exists);
    assert_eq!(
        store.appends.load(Ordering::SeqCst) - appends_before,
        2,
        "the first and the group"
    );
}

#[tokio::test(start_paused = true)]
async fn after_a_group_a_log_waits_for_more_and_who_is_alone_does_not() {
    let (_, log) = begun().await;
    let start = tokio::time::Instant::now();
    let commit = async |name: &str| done(log.commit(push(name, None, Some(1))).await);
    let (one, two) = (commit("refs/heads/1").await, commit("refs/heads/2").await);
    assert_eq!((one + 1, start.elapsed()), (two, Duration::ZERO));
    let (three, four) = futures::join!(commit("refs/heads/3"), commit("refs/heads/4"));
    assert_eq!((three, four, start.elapsed()), (two + 1, two + 1, Duration::ZERO));
    // Five would be an entry of its own if it did not wait for six.
    let late = async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        commit("refs/heads/6").await
    };
    let (five, six) = futures::join!(commit("refs/heads/5"), late);
    assert_eq!((five, six), (four + 1, four + 1));
    assert!(start.elapsed() > Duration::ZERO);
}

#[tokio::test]
async fn groups_are_bounded_in_bytes_and_edits() {
    let limits = Limits {
        entry_bytes_max: 4000,
        inline_bytes_max: 3000,
    };
    let store = Arc::new(FaultyStore::limited(Arc::new(MemoryStore::new()), limits));
    let options = LogOptions {
        group_edits_max: 5,
        ..LogOptions::default()
    };
    let log = Log::<State>::open(store.clone(), LOG, Arc::new(NoCheckpoints), options)
        .await
        .unwrap();
    done(log.commit(creation()).await);
    let names: Vec<_> = (0..40)
        .map(|n| format!("refs/heads/{n}{}", "x".repeat(n * 40)))
        .collect();
    let edits = names.iter().map(|name| push(name, None, Some(1)));
    join_all(edits.map(|edit| log.commit(edit)))
        .await
        .into_iter()
        .for_each(|outcome| assert!(done(outcome) > 0));
    for (_, entry) in store.read(LOG, 0, usize::MAX).await.unwrap() {
        let edits = cuesta_format::Entry::decode(&entry).unwrap().edits;
        assert!(edits.len() <= 5);
        assert!(entry.len() <= 3000 || edits.len() == 1);
    }
}

#[tokio::test]
async fn an_edit_that_is_too_large_fails_alone() {
    let limits = Limits {
        entry_bytes_max: 3000,
        inline_bytes_max: 3000,
    };
    let store = Arc::new(FaultyStore::limited(Arc::new(MemoryStore::new()), limits));
    let log = open(store.clone()).await;
    done(log.commit(creation()).await);
    let mut large = edit();
    large.refs = (0..50)
        .map(|n| update(&format!("refs/heads/{n}{}", "x".repeat(100)), None, Some(1)))
        .collect();
    let small = |n: u8| log.commit(push(&format!("refs/heads/small{n}"), None, Some(1)));
    let (before, refused, after) = futures::join!(small(1), log.commit(large), small(2));
    assert!(
        matches!(refused, Err(LedgerError::TooLarge { bytes_max: 3000, .. })),
        "{refused:?}"
    );
    done(before);
    done(after);
}

#[tokio::test]
async fn an_edit_that_cannot_be_written_fails_alone() {
    let (_, log) = begun().await;
    let mut bad = edit();
    bad.settings = vec![cuesta_format::SettingChange {
        name: "x".repeat(70_000),
        value: None,
    }];
    let small = |n: u8| log.commit(push(&format!("refs/heads/small{n}"), None, Some(1)));
    let (before, refused, after) = futures::join!(small(1), log.commit(bad), small(2));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    done(before);
    done(after);
}

#[tokio::test]
async fn nodes_that_push_different_refs_never_fail_one_another() {
    let memory = Arc::new(MemoryStore::new());
    let nodes = [
        open(memory.clone()).await,
        open(memory.clone()).await,
        open(memory.clone()).await,
    ];
    done(nodes[0].commit(creation()).await);
    let pushes = (0..60).map(|n| {
        let log = nodes[n % 3].clone();
        let edit = push(&format!("refs/heads/b{n}"), None, Some(1));
        tokio::spawn(async move { log.commit(edit).await })
    });
    for outcome in join_all(pushes.collect::<Vec<_>>()).await {
        done(outcome.unwrap());
    }
    assert_eq!(nodes[1].fresh().await.unwrap().refs().len(), 60);
}

#[tokio::test]
async fn of_nodes_that_push_the_same_ref_one_wins() {
    let memory = Arc::new(MemoryStore::new());
    let nodes = [open(memory.clone()).await, open(memory.clone()).await];
    done(nodes[0].commit(creation()).await);
    let pushes = (0..20u8).map(|n| {
        let log = nodes[usize::from(n) % 2].clone();
        tokio::spawn(async move { log.commit(push("refs/heads/main", None, Some(n + 1))).await })
    });
    let outcomes = join_all(pushes.collect::<Vec<_>>()).await;
    let won = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Ok(Ok(Committed::Done { .. }))))
        .count();
    assert_eq!(won, 1);
    assert_eq!(ids_in(&*memory, LOG).await.len(), 2);
}

#[tokio::test]
async fn a_conflict_is_never_told_from_an_old_state() {
    let memory = Arc::new(MemoryStore::new());
    let deaf_store = FaultyStore::new(memory.clone());
    deaf_store.mute.store(true, Ordering::SeqCst);
    let (deaf, other) = (open(deaf_store).await, open(memory).await);
    done(other.commit(creation()).await);
    done(other.commit(push("refs/heads/main", None, Some(1))).await);
    // The deaf node has not heard that the ref is there.
    assert_eq!(deaf.current().number(), 0);
    done(deaf.commit(push("refs/heads/main", Some(1), Some(2))).await);
    assert_eq!(
        conflict(deaf.commit(push("refs/heads/main", Some(1), Some(3))).await),
        RefConflict::OldDiffers { now: oid(2) }
    );
}

#[tokio::test]
async fn a_log_hears_of_others() {
    let memory = Arc::new(MemoryStore::new());
    let (here, there) = (open(memory.clone()).await, open(memory).await);
    let mut states = there.subscribe();
    done(here.commit(creation()).await);
    states.wait_for(|state| state.number() == 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn lost_replies_neither_lose_nor_double() {
    for fault in [Fault::Before, Fault::After, Fault::Late] {
        let (store, log) = begun().await;
        store.plan([fault, fault]);
        let edit = push("refs/heads/main", None, Some(1));
        let id = edit.id;
        done(log.commit(edit).await);
        store.deliver().await;
        let ids = ids_in(&*store, LOG).await;
        assert_eq!(ids.iter().filter(|other| **other == id).count(), 1, "{fault:?}");
        done(log.commit(push("refs/heads/main", Some(1), Some(2))).await);
    }
}

#[tokio::test(start_paused = true)]
async fn an_append_that_arrives_late_is_found() {
    let (store, log) = begun().await;
    store.plan([Fault::Late]);
    let edit = push("refs/heads/main", None, Some(1));
    let id = edit.id;
    let committing = tokio::spawn({
        let log = log.clone();
        async move { log.commit(edit).await }
    });
    // It arrives after the log was read back, while the second append is on its way.
    while store.appends.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    store.close_gate();
    while store.arrivals.load(Ordering::SeqCst) < 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(store.deliver().await.len(), 1);
    store.open_gate();
    assert_eq!(done(committing.await.unwrap()), 1);
    assert_eq!(
        ids_in(&*store, LOG).await.iter().filter(|other| **other == id).count(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_append_of_another_node_is_not_taken_for_ours() {
    let memory = Arc::new(MemoryStore::new());
    let store = FaultyStore::new(memory.clone());
    let (log, other) = (open(store.clone()).await, open(memory).await);
    done(other.commit(creation()).await);
    log.fresh().await.unwrap();
    store.plan([Fault::Before]);
    let ours = log.commit(push("refs/heads/main", None, Some(1)));
    let theirs = other.commit(push("refs/heads/main", None, Some(2)));
    let (theirs, ours) = futures::join!(theirs, ours);
    done(theirs);
    assert_eq!(conflict(ours), RefConflict::Exists);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_stays_unknown_is_reported_so() {
    let (store, log) = begun().await;
    store.plan([Fault::After]);
    store.reads_fail.store(true, Ordering::SeqCst);
    let sent = push("refs/heads/main", None, Some(1));
    let id = sent.id;
    let outcome = log.commit(sent).await;
    assert!(
        matches!(outcome, Err(LedgerError::Unknown { edit, .. }) if edit == id),
        "{outcome:?}"
    );
    // An edit that was never sent is known not to be there.
    let outcome = log.commit(push("refs/heads/other", None, Some(1))).await;
    assert!(matches!(outcome, Err(LedgerError::Unavailable { .. })), "{outcome:?}");
    assert_eq!(log.fresh().await.unwrap_err().kind(), ErrorKind::Unavailable);

    store.reads_fail.store(false, Ordering::SeqCst);
    assert!(log.fresh().await.unwrap().entry_of(id).is_some());
    done(log.commit(push("refs/heads/main", Some(1), Some(2))).await);
}

#[tokio::test]
async fn a_dropped_caller_loses_nothing() {
    let (store, log) = begun().await;
    store.close_gate();
    let sent = push("refs/heads/main", None, Some(1));
    let id = sent.id;
    assert!(log.commit(sent).now_or_never().is_none());
    store.open_gate();
    let mut states = log.subscribe();
    states.wait_for(|state| state.number() == 2).await.unwrap();
    assert_eq!(ids_in(&*store, LOG).await[1..], [id]);
}

#[tokio::test]
async fn handles_may_go_before_their_edits_do() {
    let (store, log) = begun().await;
    store.close_gate();
    let mut states = log.subscribe();
    for n in 0..3 {
        assert!(
            log.commit(push(&format!("refs/heads/{n}"), None, Some(1)))
                .now_or_never()
                .is_none()
        );
    }
    drop(log);
    store.open_gate();
    states.wait_for(|state| state.refs().len() == 3).await.unwrap();
    // The task ends after that, and its channel with it.
    while states.changed().await.is_ok() {}
}

struct Checkpoints(Vec<(u64, Bytes)>);

#[async_trait]
impl CheckpointSource for Checkpoints {
    async fn load(&self, log: LogId, number: u64) -> Result<Bytes, LedgerError> {
        let found = self.0.iter().find(|(found, _)| *found == number);
        found
            .map(|(_, bytes)| bytes.clone())
            .ok_or(LedgerError::NoCheckpoint { log, number })
    }
}

/// Checkpoints of which the first is replaced while it is asked for.
struct Replaced {
    store: Arc<MemoryStore>,
    newest: Bytes,
}

#[async_trait]
impl CheckpointSource for Replaced {
    async fn load(&self, log: LogId, number: u64) -> Result<Bytes, LedgerError> {
        if number == 3 {
            return Ok(self.newest.clone());
        }
        let base = Base {
            first: 3,
            checkpoint: Some(3),
        };
        self.store.advance(log, base).await?;
        Err(LedgerError::NoCheckpoint { log, number })
    }
}

#[tokio::test]
async fn a_checkpoint_that_is_gone_was_replaced_by_another() {
    let store = Arc::new(MemoryStore::new());
    let writer = open(store.clone()).await;
    done(writer.commit(creation()).await);
    for n in 0..2 {
        done(writer.commit(push(&format!("refs/heads/{n}"), None, Some(1))).await);
    }
    let newest = Bytes::from(writer.current().checkpoint(LOG).unwrap().encode().unwrap());
    let base = Base {
        first: 2,
        checkpoint: Some(2),
    };
    store.advance(LOG, base).await.unwrap();
    let checkpoints = Arc::new(Replaced {
        store: store.clone(),
        newest,
    });
    let late = Log::<State>::open(store.clone(), LOG, checkpoints, LogOptions::default());
    assert_eq!(late.await.unwrap().current().refs().len(), 2);
    // One that is in force and gone is damage.
    let lost = Log::<State>::open(store, LOG, Arc::new(NoCheckpoints), LogOptions::default());
    assert!(matches!(lost.await, Err(LedgerError::NoCheckpoint { number: 3, .. })));
}

#[tokio::test(start_paused = true)]
async fn a_log_opens_from_its_checkpoint_and_follows_when_entries_are_gone() {
    let memory = Arc::new(MemoryStore::new());
    let writer = open(memory.clone()).await;
    done(writer.commit(creation()).await);
    for n in 0..4 {
        done(writer.commit(push(&format!("refs/heads/{n}"), None, Some(1))).await);
    }
    let state = writer.current();
    let checkpoint = Bytes::from(state.checkpoint(LOG).unwrap().encode().unwrap());
    let checkpoints = Arc::new(Checkpoints(vec![(5, checkpoint)]));
    let deaf_store = FaultyStore::new(memory.clone());
    deaf_store.mute.store(true, Ordering::SeqCst);
    let behind = Log::<State>::open(deaf_store.clone(), LOG, checkpoints.clone(), LogOptions::default())
        .await
        .unwrap();
    // Its append at 5 arrives, the reply does not, and others fold the log before it can look.
    deaf_store.plan([Fault::After]);
    deaf_store.reads_fail.store(true, Ordering::SeqCst);
    let sent = push("refs/heads/mine", None, Some(1));
    let id = sent.id;
    let committing = tokio::spawn({
        let behind = behind.clone();
        async move { behind.commit(sent).await }
    });
    writer.subscribe().wait_for(|state| state.number() == 6).await.unwrap();
    memory
        .advance(
            LOG,
            Base {
                first: 5,
                checkpoint: Some(5),
            },
        )
        .await
        .unwrap();
    let opened = Log::<State>::open(memory.clone(), LOG, checkpoints, LogOptions::default())
        .await
        .unwrap();
    assert_eq!(
        opened.current().checkpoint(LOG).unwrap().refs,
        writer.current().checkpoint(LOG).unwrap().refs
    );
    deaf_store.reads_fail.store(false, Ordering::SeqCst);
    assert_eq!(done(committing.await.unwrap()), 5);
    assert_eq!(opened.current().entry_of(id), Some(5));
    done(opened.commit(push("refs/heads/after", None, Some(1))).await);
    assert_eq!(behind.fresh().await.unwrap().refs().len(), 6);
}

/// Commits an edit whose reply is lost, and which is then found folded away, with so many edits after it.
async fn commit_folded_before(later: usize) -> Result<Committed<State>, LedgerError> {
    let memory = Arc::new(MemoryStore::new());
    let writer = open(memory.clone()).await;
    done(writer.commit(creation()).await);
    let mut folded = State::clone(&writer.current());
    let sent = push("refs/heads/mine", None, Some(1));
    folded.apply(&sent).unwrap();
    folded.seal_entry();
    for number in 0..later {
        folded
            .apply(&push(&format!("refs/heads/{number}"), None, Some(1)))
            .unwrap();
    }
    folded.seal_entry();
    let checkpoint = Bytes::from(folded.checkpoint(LOG).unwrap().encode().unwrap());

    let store = FaultyStore::new(memory.clone());
    let checkpoints = Arc::new(Checkpoints(vec![(3, checkpoint)]));
    let log = Log::<State>::open(store.clone(), LOG, checkpoints, LogOptions::default())
        .await
        .unwrap();
    store.plan([Fault::After]);
    store.reads_fail.store(true, Ordering::SeqCst);
    let committing = tokio::spawn({
        let log = log.clone();
        async move { log.commit(sent).await }
    });
    writer.subscribe().wait_for(|state| state.number() == 2).await.unwrap();
    done(writer.commit(push("refs/heads/other", None, Some(1))).await);
    let base = Base {
        first: 3,
        checkpoint: Some(3),
    };
    memory.advance(LOG, base).await.unwrap();
    store.reads_fail.store(false, Ordering::SeqCst);
    committing.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_edit_is_found_even_when_its_entry_was_folded() {
    // Known from the checkpoint, it counts as of the last entry there.
    assert_eq!(done(commit_folded_before(1).await), 2);
}

/// Neither done nor refused: a layer that it may have named must not be taken for garbage.
#[tokio::test(start_paused = true)]
async fn an_edit_that_the_checkpoint_has_forgotten_is_unknown() {
    let outcome = commit_folded_before(RECENT_EDITS_MAX).await;
    assert!(matches!(outcome, Err(LedgerError::Unknown { .. })), "{outcome:?}");
}

#[tokio::test]
async fn a_corrupt_entry_stops_nobody_who_does_not_need_it() {
    let (store, log) = begun().await;
    store.append(LOG, 1, Bytes::from_static(b"not an entry")).await.unwrap();
    assert_eq!(log.fresh().await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(log.current().number(), 1);
}

#[tokio::test]
async fn reads_pass_while_an_append_hangs() {
    let (store, log) = begun().await;
    store.close_gate();
    assert!(
        log.commit(push("refs/heads/main", None, Some(1)))
            .now_or_never()
            .is_none()
    );
    let states = join_all((0..50).map(|_| log.fresh())).await;
    assert!(states.into_iter().all(|state| state.unwrap().number() == 1));
    store.open_gate();
}

#[tokio::test]
async fn an_edit_of_two_refs_is_whole_or_nothing() {
    let (_, log) = begun().await;
    let both = |old: Option<u8>| {
        let refs: Vec<RefUpdate> = vec![
            update("refs/heads/a", None, Some(1)),
            update("refs/heads/b", old, Some(1)),
        ];
        cuesta_format::Edit { refs, ..edit() }
    };
    assert_eq!(conflict(log.commit(both(Some(9))).await), RefConflict::Missing);
    assert!(log.current().refs().is_empty());
    done(log.commit(both(None)).await);
    assert_eq!(log.current().refs().len(), 2);
}
