//! Work that no request waits for: small pushes leave the ledger for the bucket about a second after they came, layers
//! of like size become one, one repository at a time, and what nothing needs any more is deleted.

mod maintenance;
mod revisit;

use crate::node::Node;
use cuesta_engine::{EngineError, FLUSH_LAYERS_MAX, Flushed, Repository};
use cuesta_format::{LogId, RepositoryRecord};
use futures::StreamExt;
use revisit::Revisit;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

/// Time between two rounds of flushes.
const ROUND: Duration = Duration::from_secs(1);
/// Rounds after which what could not be opened at the start is tried again.
const RESUME_ROUNDS: u64 = 60;
/// Flushed repositories that wait for maintenance.
const FLUSHED_MAX: usize = 1024;
/// Flushes of one repository before it is others' turn.
const FLUSHES_IN_A_ROW_MAX: usize = 8;
/// Repositories flushed at once.
const FLUSHES_MAX: usize = 4;
/// Time between two looks for what is to be deleted, and for logs of names and accounts that have grown long.
const COLLECT_ROUND: Duration = Duration::from_secs(60);
/// Repositories looked at in one such round.
const COLLECTIONS_MAX: usize = 64;
/// When a repository is looked at again where that failed.
const COLLECT_RETRY_MS: i64 = 10 * 60 * 1000;

/// The running rounds.
pub struct Background {
    stop: watch::Sender<bool>,
    rounds: JoinHandle<()>,
    maintenance: JoinHandle<()>,
    collection: JoinHandle<()>,
}

impl Background {
    /// Starts the rounds.
    pub fn start(node: Arc<Node>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (flushed, due) = mpsc::channel(FLUSHED_MAX);
        let quiet = node.settings.compact_quiet_seconds;
        let quiet = (quiet > 0).then(|| Duration::from_secs(quiet));
        let maintenance = tokio::spawn(maintenance::run(Arc::clone(&node), due, quiet));
        let collection = tokio::spawn(collect(Arc::clone(&node)));
        Self {
            stop,
            rounds: tokio::spawn(run(node, flushed, stopped)),
            maintenance,
            collection,
        }
    }

    /// Ends the rounds with a last one, for all that is left. Ends it early if it takes longer than `time_max`: what is not
    /// flushed is safe in the ledger.
    pub async fn finish(self, time_max: Duration) {
        let _ = self.stop.send(true);
        // A merge that is cut off leaves orphans, never damage.
        self.maintenance.abort();
        // What was deleted and not noted is deleted again.
        self.collection.abort();
        let mut rounds = self.rounds;
        if tokio::time::timeout(time_max, &mut rounds).await.is_err() {
            rounds.abort();
            tracing::warn!("small pushes are still in the ledger");
        }
    }
}

async fn run(node: Arc<Node>, flushed: mpsc::Sender<Arc<Repository>>, mut stopped: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(ROUND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0u64.. {
        if number.is_multiple_of(RESUME_ROUNDS) {
            resume(&node).await;
        }
        let is_last = tokio::select! {
            _ = ticks.tick() => false,
            _ = stopped.changed() => true,
        };
        round(&node, &flushed).await;
        if is_last {
            return;
        }
    }
}

async fn round(node: &Arc<Node>, flushed: &mpsc::Sender<Arc<Repository>>) {
    let repositories = futures::stream::iter(node.unflushed.take());
    repositories
        .for_each_concurrent(FLUSHES_MAX, |repository| flush(node, flushed, repository))
        .await;
    node.unflushed.settle();
}

/// Flushes a repository, and lets it be looked at for merges: also one that got only large pushes, which bypass the ledger.
async fn flush(node: &Node, done: &mpsc::Sender<Arc<Repository>>, repository: Arc<Repository>) {
    match flush_all(&repository).await {
        Ok(false) => {}
        Ok(true) => node.metrics.flush_ended(true),
        Err(error) => {
            node.metrics.flush_ended(false);
            tracing::warn!(repository = %repository.id(), error = ?error.to_string(), "cannot flush; trying again");
        }
    }
    // What came meanwhile, and what failed.
    node.unflushed.note_if_inline(&repository);
    if let Err(error) = repository.write_checkpoint_if_due().await {
        tracing::warn!(repository = %repository.id(), error = ?error.to_string(), "cannot write a checkpoint; trying again");
        node.unflushed.note(&repository);
    }
    // Where too many wait already, its next round will ask again.
    let _ = done.try_send(repository);
}

/// Answers whether there was anything to flush. Where more came in a second than one flush takes, the next follows at once: else it
/// would pile up.
async fn flush_all(repository: &Repository) -> Result<bool, EngineError> {
    let mut is_any = false;
    for _ in 0..FLUSHES_IN_A_ROW_MAX {
        let flushed = repository.flush().await?;
        is_any |= flushed != Flushed::Nothing;
        if !matches!(flushed, Flushed::Layers(count) if count >= FLUSH_LAYERS_MAX) {
            break;
        }
    }
    Ok(is_any)
}

/// Sees to the repositories that an earlier process left unflushed: each goes into the next round, unless it is no more or
/// never got a name. Those that cannot be opened stay in the file and are tried again.
async fn resume(node: &Node) {
    let left = node.unflushed.left();
    if left.is_empty() {
        return;
    }
    let directory = match node.engine.directory().log().fresh().await {
        Ok(directory) => directory,
        Err(error) => {
            tracing::warn!(error = ?error.to_string(), "cannot look for what a crash left; trying again");
            return;
        }
    };
    let records = directory.names().values().filter(|record| left.contains(&record.log));
    let records: BTreeMap<_, _> = records.map(|record| (record.log, *record)).collect();
    for log in left {
        if let Some(record) = records.get(&log) {
            match node.engine.open_repository(*record).await {
                Ok(repository) => node.unflushed.note(&repository),
                Err(error) => {
                    let error = error.to_string();
                    tracing::warn!(repository = %log, ?error, "cannot look for what a crash left; trying again");
                    continue;
                }
            }
        }
        node.unflushed.seen_to(log);
    }
}

/// Deletes what has had its time, a repository at a time.
async fn collect(node: Arc<Node>) {
    let mut ticks = tokio::time::interval(COLLECT_ROUND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut revisit = Revisit::default();
    loop {
        ticks.tick().await;
        revisit.step(&node, node.clock.now_ms()).await;
        collect_round(&node).await;
    }
}

async fn collect_round(node: &Node) {
    let due: BTreeSet<LogId> = node
        .uncollected
        .due(node.clock.now_ms(), COLLECTIONS_MAX)
        .into_iter()
        .collect();
    if !due.is_empty() {
        let directory = node.engine.directory().log().current();
        let named: Vec<_> = directory
            .names()
            .values()
            .filter(|record| due.contains(&record.log))
            .collect();
        // Those that lost their name go another way.
        let nameless = due.iter().filter(|log| named.iter().all(|record| record.log != **log));
        nameless.for_each(|log| node.uncollected.note(*log, None));
        for record in named {
            collect_one(node, *record).await;
        }
    }
    if let Err(error) = node.engine.fold_if_due().await {
        tracing::warn!(error = ?error.to_string(), "cannot write a checkpoint of names or accounts");
    }
    if node.engine.has_abandoned_due() {
        match node.engine.collect_abandoned().await {
            Ok(done) => node.metrics.collected(done.deleted),
            Err(error) => tracing::warn!(error = ?error.to_string(), "cannot delete what deleted repositories left"),
        }
    }
}

async fn collect_one(node: &Node, record: RepositoryRecord) {
    let collected = async { node.engine.open_repository(record).await?.collect().await };
    let due_ms = match collected.await {
        Ok(done) => {
            node.metrics.collected(done.deleted);
            done.due_ms
        }
        Err(error) => {
            tracing::warn!(repository = %record.log, error = ?error.to_string(), "cannot delete what merges left");
            Some(node.clock.now_ms().saturating_add(COLLECT_RETRY_MS))
        }
    };
    node.uncollected.note(record.log, due_ms);
}

#[cfg(test)]
#[path = "background_tests.rs"]
mod tests;
