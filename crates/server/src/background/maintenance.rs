//! Layers merged soon after they came; and, once a repository has been quiet for a while, the bases of its deltas chosen anew.

use crate::node::Node;
use cuesta_engine::{EngineError, ErrorKind, Repository, Watch};
use cuesta_format::LogId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Quiet repositories waited for; what comes beyond them waits for its next push.
const QUIET_MAX: usize = 1024;

/// Runs until `due` ends. `quiet` is how long a repository must have been without a push before its bases are chosen; never,
/// without it.
pub(super) async fn run(node: Arc<Node>, mut due: mpsc::Receiver<Arc<Repository>>, quiet: Option<Duration>) {
    let mut waiting = Waiting::default();
    // At most one: the work takes a core.
    let mut choosing = JoinSet::new();
    loop {
        let next = waiting.next().filter(|_| choosing.is_empty());
        tokio::select! {
            repository = due.recv() => {
                let Some(repository) = repository else { return };
                merge(&node, &repository).await;
                if let Some(quiet) = quiet {
                    waiting.note(repository, Instant::now() + quiet);
                }
            }
            () = sleep_until(next) => {
                if let Some(repository) = waiting.take(Instant::now()) {
                    choosing.spawn(choose_bases(Arc::clone(&node), repository));
                }
            }
            Some(_) = choosing.join_next() => {}
        }
    }
}

async fn sleep_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

async fn merge(node: &Node, repository: &Repository) {
    if let Err(error) = repository.maintain().await {
        tracing::warn!(repository = %repository.id(), error = ?error.to_string(), "cannot merge layers");
    }
    note_collection(node, repository);
}

/// What merged layers were is to be deleted in time.
fn note_collection(node: &Node, repository: &Repository) {
    if let Some(due_ms) = repository.collection_due_ms() {
        node.uncollected.note_first(repository.id(), due_ms);
    }
}

/// One layer after another. Cut off with the task, for the watch stops the work when it is dropped.
async fn choose_bases(node: Arc<Node>, repository: Arc<Repository>) {
    let chosen: Result<usize, EngineError> = async {
        let mut layers = 0;
        while repository.choose_bases(&Watch::default()).await? {
            layers += 1;
        }
        Ok(layers)
    }
    .await;
    note_collection(&node, &repository);
    match chosen {
        Ok(0) => {}
        Ok(layers) => tracing::info!(repository = %repository.id(), layers, "chose the bases of deltas anew"),
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            tracing::info!(repository = %repository.id(), error = ?error.to_string(), "bases of deltas stay for now");
        }
        Err(error) => {
            tracing::warn!(repository = %repository.id(), error = ?error.to_string(), "cannot choose bases of deltas");
        }
    }
}

/// Repositories that were pushed to, and when they will have been quiet for long enough.
#[derive(Default)]
struct Waiting {
    by_log: BTreeMap<LogId, (Instant, Arc<Repository>)>,
}

impl Waiting {
    fn note(&mut self, repository: Arc<Repository>, ready: Instant) {
        if self.by_log.len() < QUIET_MAX || self.by_log.contains_key(&repository.id()) {
            self.by_log.insert(repository.id(), (ready, repository));
        }
    }

    fn next(&self) -> Option<Instant> {
        self.by_log.values().map(|(ready, _)| *ready).min()
    }

    /// One that is ready.
    fn take(&mut self, now: Instant) -> Option<Arc<Repository>> {
        let ready = self.by_log.iter().filter(|(_, (ready, _))| *ready <= now);
        let log = *ready.min_by_key(|(_, (ready, _))| *ready)?.0;
        self.by_log.remove(&log).map(|(_, repository)| repository)
    }
}
