//! Edits per second through `Log::commit`: `commit_rate memory|embedded [committers] [edits] [logs]`.
//!
//! Each committer moves a ref of its own in one of the logs, one edit after the other. With `memory` on one thread this
//! is the CPU cost of the ledger itself; with `embedded` it shows how fsyncs are shared.

// A measuring tool: it may stop at what it does not expect, and it measures time.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use cuesta_format::{Cause, Edit, EditId, LogId, RefTarget, RefUpdate};
use cuesta_git::{ObjectFormat, ObjectId, RefName};
use cuesta_ledger::{Committed, EmbeddedOptions, EmbeddedStore, Log, LogOptions, LogStore, MemoryStore, NoCheckpoints};
use cuesta_store::Workers;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let number = |n: usize, default: u64| words.get(n).map_or(default, |word| word.parse().unwrap());
    let (committers, edits, logs) = (number(2, 128), number(3, 1000), number(4, 1));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let directory = tempfile::tempdir_in(".").unwrap();
        let store: Arc<dyn LogStore> = match words.get(1).map(String::as_str) {
            Some("embedded") => {
                let workers = Workers::Pool(tokio::runtime::Handle::current());
                let path = directory.path().join("ledger.redb");
                Arc::new(EmbeddedStore::open(&path, EmbeddedOptions::default(), workers).unwrap())
            }
            _ => Arc::new(MemoryStore::new()),
        };
        measure(store, committers, edits, logs).await;
    });
}

async fn measure(store: Arc<dyn LogStore>, committers: u64, edits: u64, logs: u64) {
    let mut opened: Vec<Log> = Vec::new();
    for id in 0..logs {
        let options = LogOptions::default();
        let log = Log::open(
            store.clone(),
            LogId(u128::from(id) + 1),
            Arc::new(NoCheckpoints),
            options,
        )
        .await
        .unwrap();
        let creation = Edit {
            object_format: Some(ObjectFormat::Sha1),
            ..edit(0, 0, None)
        };
        assert!(matches!(log.commit(creation).await.unwrap(), Committed::Done { .. }));
        opened.push(log);
    }
    let began = Instant::now();
    let running: Vec<_> = (1..=committers)
        .map(|committer| {
            let log = opened[usize::try_from(committer % logs).unwrap()].clone();
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                for n in 0..edits {
                    let began = Instant::now();
                    let outcome = log.commit(edit(committer, n, n.checked_sub(1))).await.unwrap();
                    assert!(matches!(outcome, Committed::Done { .. }));
                    latencies.push(began.elapsed());
                }
                latencies
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for task in running {
        latencies.extend(task.await.unwrap());
    }
    let elapsed = began.elapsed();
    latencies.sort_unstable();
    let entries: u64 = opened.iter().map(|log| log.current().number() - 1).sum();
    let count = committers * edits;
    let quantile = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    let rate = count as f64 / elapsed.as_secs_f64();
    let per_entry = count as f64 / entries as f64;
    println!(
        "{rate:.0} edits/s, {per_entry:.1} edits per entry, p50 {:?}, p99 {:?}",
        quantile(0.5),
        quantile(0.99)
    );
    assert!(quantile(1.0) > Duration::ZERO);
}

/// Moves the committer's ref from its edit `old` to `n`.
fn edit(committer: u64, n: u64, old: Option<u64>) -> Edit {
    let oid = |n: u64| {
        let mut bytes = [1; 20];
        bytes[..8].copy_from_slice(&n.to_le_bytes());
        ObjectId::Sha1(bytes)
    };
    let name = RefName::new(format!("refs/heads/committer-{committer}").as_bytes()).unwrap();
    let update = RefUpdate {
        name,
        old: old.map(oid),
        new: Some(RefTarget {
            oid: oid(n),
            peeled: None,
        }),
    };
    let id = EditId(u128::from(committer) << 64 | u128::from(n));
    Edit {
        refs: if committer == 0 { Vec::new() } else { vec![update] },
        ..Edit::new(id, 1_700_000_000_000, Cause::Push, "someone")
    }
}
