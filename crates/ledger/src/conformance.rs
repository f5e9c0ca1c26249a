//! What every log store must do, as a library that the tests of each backend run. Panics where a store does otherwise.

// The whole module is a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::{Appended, Base, LedgerError, LogStore};
use bytes::Bytes;
use cuesta_format::LogId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Runs all cases. `seed` keeps the logs of one run apart from those of another in the same store.
pub async fn run(store: Arc<dyn LogStore>, seed: u64) {
    let log = |case: u64| LogId(u128::from(seed) << 64 | u128::from(case));
    a_new_log_is_empty(&*store, log(1)).await;
    a_number_is_taken_once(&*store, log(2)).await;
    entries_come_back_in_order(&*store, log(3)).await;
    logs_are_apart(&*store, log(4), log(5)).await;
    advancing_forgets_entries_and_no_number(&*store, log(6)).await;
    a_base_never_goes_back(&*store, log(7)).await;
    a_base_must_be_covered(&*store, log(8)).await;
    changes_are_told(&store, log(9)).await;
    a_dropped_log_stays_dropped(&*store, log(10)).await;
    sizes_are_limited(&*store, log(11)).await;
    one_of_many_racers_wins(&store, log(12)).await;
    racing_writers_lose_nothing(&store, log(13)).await;
}

async fn a_new_log_is_empty(store: &dyn LogStore, log: LogId) {
    assert_eq!(store.end(log).await.unwrap(), 0);
    assert_eq!(store.base(log).await.unwrap(), Base::default());
    assert!(store.read(log, 0, 100).await.unwrap().is_empty());
}

async fn a_number_is_taken_once(store: &dyn LogStore, log: LogId) {
    assert_eq!(store.append(log, 0, payload(0)).await.unwrap(), Appended::Done);
    assert_eq!(store.append(log, 0, payload(1)).await.unwrap(), Appended::Taken);
    let gap = store.append(log, 2, payload(2)).await;
    assert!(
        matches!(gap, Err(LedgerError::Gap { end: 1, number: 2, .. })),
        "{gap:?}"
    );
    assert_eq!(store.append(log, 1, payload(1)).await.unwrap(), Appended::Done);
    assert_eq!(store.end(log).await.unwrap(), 2);
    assert_eq!(
        store.read(log, 0, 1000).await.unwrap(),
        [(0, payload(0)), (1, payload(1))]
    );
}

async fn entries_come_back_in_order(store: &dyn LogStore, log: LogId) {
    fill(store, log, 0..20).await;
    let size = payload(0).len();
    assert_eq!(numbers(store, log, 0, usize::MAX).await, (0..20).collect::<Vec<_>>());
    assert_eq!(numbers(store, log, 7, size * 3).await, [7, 8, 9]);
    assert_eq!(numbers(store, log, 7, size * 3 - 1).await, [7, 8]);
    assert_eq!(
        numbers(store, log, 7, 0).await,
        [7],
        "at least one comes, however large"
    );
    assert!(numbers(store, log, 20, 1000).await.is_empty());
    assert!(numbers(store, log, 25, 1000).await.is_empty());
}

async fn logs_are_apart(store: &dyn LogStore, log: LogId, next: LogId) {
    fill(store, next, 0..3).await;
    fill(store, log, 0..1).await;
    assert_eq!(store.end(log).await.unwrap(), 1);
    assert_eq!(numbers(store, log, 0, usize::MAX).await, [0]);
    let base = Base {
        first: 1,
        checkpoint: Some(1),
    };
    store.advance(log, base).await.unwrap();
    assert_eq!(numbers(store, next, 0, usize::MAX).await, [0, 1, 2]);
}

async fn advancing_forgets_entries_and_no_number(store: &dyn LogStore, log: LogId) {
    fill(store, log, 0..5).await;
    let half = Base {
        first: 3,
        checkpoint: Some(4),
    };
    store.advance(log, half).await.unwrap();
    assert_eq!(store.base(log).await.unwrap(), half);
    assert_eq!(numbers(store, log, 3, 1000).await, [3, 4]);
    let gone = store.read(log, 2, 1000).await;
    assert!(
        matches!(
            gone,
            Err(LedgerError::Gone {
                first: 3,
                number: 2,
                ..
            })
        ),
        "{gone:?}"
    );

    store
        .advance(
            log,
            Base {
                first: 5,
                checkpoint: Some(5),
            },
        )
        .await
        .unwrap();
    assert_eq!(store.end(log).await.unwrap(), 5);
    assert_eq!(store.append(log, 4, payload(9)).await.unwrap(), Appended::Taken);
    assert_eq!(store.append(log, 0, payload(9)).await.unwrap(), Appended::Taken);
    fill(store, log, 5..6).await;
    assert_eq!(numbers(store, log, 5, 1000).await, [5]);
}

async fn a_base_never_goes_back(store: &dyn LogStore, log: LogId) {
    fill(store, log, 0..5).await;
    let base = Base {
        first: 2,
        checkpoint: Some(4),
    };
    for next in [
        base,
        base,
        Base {
            first: 1,
            checkpoint: Some(3),
        },
        Base {
            first: 2,
            checkpoint: Some(2),
        },
    ] {
        store.advance(log, next).await.unwrap();
        assert_eq!(store.base(log).await.unwrap(), base);
    }
    assert_eq!(numbers(store, log, 2, 1000).await, [2, 3, 4]);
}

async fn a_base_must_be_covered(store: &dyn LogStore, log: LogId) {
    fill(store, log, 0..3).await;
    for bad in [
        Base {
            first: 1,
            checkpoint: None,
        },
        Base {
            first: 2,
            checkpoint: Some(1),
        },
        Base {
            first: 1,
            checkpoint: Some(4),
        },
    ] {
        let refused = store.advance(log, bad).await;
        assert!(
            matches!(refused, Err(LedgerError::BadBase { .. })),
            "{bad:?}: {refused:?}"
        );
    }
    assert_eq!(numbers(store, log, 0, 1000).await, [0, 1, 2]);
}

async fn changes_are_told(store: &Arc<dyn LogStore>, log: LogId) {
    fill(&**store, log, 0..2).await;
    assert_eq!(store.changed(log, 0).await.unwrap(), 2);
    assert_eq!(store.changed(log, 1).await.unwrap(), 2);

    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.changed(log, 2).await }
    });
    let given_up = tokio::spawn({
        let store = store.clone();
        async move { store.changed(log, 2).await }
    });
    given_up.abort();
    // Another log's append is no news of this one.
    fill(&**store, LogId(log.0 ^ 1 << 100), 0..1).await;
    assert!(!waiting.is_finished());
    fill(&**store, log, 2..3).await;
    assert_eq!(waiting.await.unwrap().unwrap(), 3);
}

async fn a_dropped_log_stays_dropped(store: &dyn LogStore, log: LogId) {
    fill(store, log, 0..3).await;
    store.drop_log(log).await.unwrap();
    store.drop_log(log).await.unwrap();
    for number in [0, 3] {
        let refused = store.append(log, number, payload(number)).await;
        assert!(matches!(refused, Err(LedgerError::Dropped { .. })), "{refused:?}");
    }
    assert!(matches!(store.end(log).await, Err(LedgerError::Dropped { .. })));
    assert_eq!(store.end_known(log), None);
    assert!(matches!(store.base(log).await, Err(LedgerError::Dropped { .. })));
    assert!(matches!(
        store.read(log, 0, 1000).await,
        Err(LedgerError::Dropped { .. })
    ));
    assert!(matches!(store.changed(log, 3).await, Err(LedgerError::Dropped { .. })));
    assert!(matches!(
        store.advance(log, Base::default()).await,
        Err(LedgerError::Dropped { .. })
    ));
}

async fn sizes_are_limited(store: &dyn LogStore, log: LogId) {
    let limits = store.limits();
    assert!(limits.inline_bytes_max <= limits.entry_bytes_max);
    assert_eq!(store.append(log, 0, Bytes::new()).await.unwrap(), Appended::Done);
    let large = Bytes::from(vec![7; limits.inline_bytes_max]);
    assert_eq!(store.append(log, 1, large.clone()).await.unwrap(), Appended::Done);
    let refused = store
        .append(log, 2, Bytes::from(vec![7; limits.entry_bytes_max + 1]))
        .await;
    assert!(matches!(refused, Err(LedgerError::TooLarge { .. })), "{refused:?}");
    assert_eq!(
        store
            .append(log, 2, Bytes::from(vec![7; limits.entry_bytes_max]))
            .await
            .unwrap(),
        Appended::Done
    );
    assert_eq!(store.read(log, 0, 1000).await.unwrap(), [(0, Bytes::new())]);
    assert_eq!(store.read(log, 1, 1000).await.unwrap(), [(1, large)]);
}

async fn one_of_many_racers_wins(store: &Arc<dyn LogStore>, log: LogId) {
    let racers: Vec<_> = (0..16)
        .map(|racer| {
            let store = store.clone();
            tokio::spawn(async move { store.append(log, 0, payload(racer)).await.unwrap() })
        })
        .collect();
    let mut winners = Vec::new();
    for (racer, task) in (0..).zip(racers) {
        if task.await.unwrap() == Appended::Done {
            winners.push((0, payload(racer)));
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(store.read(log, 0, usize::MAX).await.unwrap(), winners);
}

async fn racing_writers_lose_nothing(store: &Arc<dyn LogStore>, log: LogId) {
    const WRITERS: u64 = 4;
    const EACH: u64 = 8;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut number = 0;
                for count in 0..EACH {
                    while store.append(log, number, payload(writer * EACH + count)).await.unwrap() == Appended::Taken {
                        number += 1;
                    }
                    // What was acknowledged counts, however the end is known.
                    assert!(store.end_known(log).is_none_or(|end| end > number));
                    assert!(store.end(log).await.unwrap() > number);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let entries = store.read(log, 0, usize::MAX).await.unwrap();
    let distinct: BTreeSet<_> = entries.iter().map(|(_, entry)| entry.clone()).collect();
    assert_eq!(entries.len() as u64, WRITERS * EACH);
    assert_eq!(distinct, (0..WRITERS * EACH).map(payload).collect());
}

async fn fill(store: &dyn LogStore, log: LogId, numbers: std::ops::Range<u64>) {
    for number in numbers {
        assert_eq!(
            store.append(log, number, payload(number)).await.unwrap(),
            Appended::Done
        );
    }
}

async fn numbers(store: &dyn LogStore, log: LogId, from: u64, bytes_max: usize) -> Vec<u64> {
    let entries = store.read(log, from, bytes_max).await.unwrap();
    entries
        .iter()
        .for_each(|(number, entry)| assert_eq!(*entry, payload(*number)));
    entries.iter().map(|(number, _)| *number).collect()
}

fn payload(number: u64) -> Bytes {
    Bytes::from(format!("entry {number:020}"))
}
