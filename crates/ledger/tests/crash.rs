//! A child that appends and prints what was acknowledged is killed at random moments; then its file is audited. And: a
//! file that another process holds.

// What is not as expected fails the test.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use cuesta_format::LogId;
use cuesta_ledger::{Appended, Base, EmbeddedOptions, EmbeddedStore, ErrorKind, LedgerError, LogStore};
use cuesta_store::{Entropy, Workers};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

const DIRECTORY: &str = "CUESTA_LEDGER_CRASH_DIRECTORY";
const LOGS: u128 = 4;
const ROUNDS: usize = 6;

fn open(directory: &Path) -> Result<EmbeddedStore, LedgerError> {
    let workers = Workers::Pool(tokio::runtime::Handle::current());
    EmbeddedStore::open(&directory.join("ledger.redb"), EmbeddedOptions::default(), workers)
}

fn payload(log: LogId, number: u64) -> Bytes {
    Bytes::from(format!("{log} {number} ").repeat(usize::try_from(number % 97 + 1).unwrap()))
}

fn child(directory: &Path) -> (Child, impl Iterator<Item = String>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "appends_until_killed", "--nocapture", "--include-ignored"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines.map_while(Result::ok))
}

/// The child's part: not a test by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs as the child of the test below"]
async fn appends_until_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let store = Arc::new(open(Path::new(&directory)).unwrap());
    let writers: Vec<_> = (1..=LOGS)
        .map(|log| tokio::spawn(write(store.clone(), LogId(log))))
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

async fn write(store: Arc<EmbeddedStore>, log: LogId) {
    let mut number = store.end(log).await.unwrap();
    loop {
        assert_eq!(
            store.append(log, number, payload(log, number)).await.unwrap(),
            Appended::Done
        );
        say(&format!("\nack {} {number}", log.0));
        number += 1;
        if number.is_multiple_of(50) {
            let first = number - 10;
            store
                .advance(
                    log,
                    Base {
                        first,
                        checkpoint: Some(first),
                    },
                )
                .await
                .unwrap();
            say(&format!("\nbase {} {first}", log.0));
        }
    }
}

/// One write, so that a kill cuts no line that says something else.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line} .\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_kill() {
    let seed = Entropy::system().bits64();
    println!("seed {seed}");
    let chance = Entropy::seeded(seed);
    let directory = tempfile::tempdir().unwrap();
    let (mut acked, mut bases): (BTreeMap<u128, u64>, BTreeMap<u128, u64>) = Default::default();
    for _ in 0..ROUNDS {
        let (mut child, mut lines) = child(directory.path());
        let said: Vec<_> = lines
            .by_ref()
            .take(usize::try_from(40 + chance.bits64() % 600).unwrap())
            .collect();
        child.kill().unwrap();
        child.wait().unwrap();
        for line in said.into_iter().chain(lines) {
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["ack", log, number, "."] => drop(acked.insert(log.parse().unwrap(), number.parse().unwrap())),
                ["base", log, first, "."] => drop(bases.insert(log.parse().unwrap(), first.parse().unwrap())),
                _ => {}
            }
        }
        let store = open(directory.path()).unwrap();
        for (log, number) in &acked {
            audit(&store, LogId(*log), *number, bases.get(log).copied().unwrap_or(0)).await;
        }
    }
    assert_eq!(acked.len() as u128, LOGS);
}

async fn audit(store: &EmbeddedStore, log: LogId, acked: u64, base_acked: u64) {
    let base = store.base(log).await.unwrap();
    assert!(
        base.first >= base_acked,
        "{log} begins at {}, acknowledged {base_acked}",
        base.first
    );
    let end = store.end(log).await.unwrap();
    assert!(end > acked, "{log} ends at {end}, acknowledged {acked}");
    let entries = store.read(log, base.first, usize::MAX).await.unwrap();
    let expected: Vec<_> = (base.first..end).map(|number| (number, payload(log, number))).collect();
    assert_eq!(entries, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_use_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let (mut child, mut lines) = child(directory.path());
    assert!(lines.any(|line| line.starts_with("ack")));
    let error = open(directory.path()).err().unwrap();
    assert!(matches!(error, LedgerError::Locked { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    child.kill().unwrap();
    child.wait().unwrap();
    open(directory.path()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_no_store_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ledger.redb"), vec![7; 8192]).unwrap();
    let error = open(directory.path()).err().unwrap();
    assert!(
        matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unavailable),
        "{error}"
    );
}
