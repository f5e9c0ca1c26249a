//! Work that no request waits for: small pushes leave the ledger for the bucket about a second after they came, and layers
//! of like size become one, one repository at a time.

use crate::node::Node;
use cuesta_engine::{Flushed, Repository};
use cuesta_format::LogId;
use futures::StreamExt;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

/// Time between two rounds of flushes.
const ROUND: Duration = Duration::from_secs(1);
/// Flushed repositories that wait for maintenance.
const FLUSHED_MAX: usize = 1024;
/// Repositories flushed at once.
const FLUSHES_MAX: usize = 4;

/// Repositories that may have inline layers. An idle repository is in no round and costs nothing.
#[derive(Default)]
pub struct Unflushed(Mutex<BTreeMap<LogId, Arc<Repository>>>);

impl Unflushed {
    /// Puts a repository into the next round, if its newest layer is still in the ledger.
    pub fn note(&self, repository: &Arc<Repository>) {
        let view = repository.known_view();
        if view.state().layers().last().is_some_and(|layer| layer.is_inline()) {
            self.0.lock().insert(repository.id(), repository.clone());
        }
    }

    /// How many repositories the next round has.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Whether the next round has nothing to do.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn take(&self) -> Vec<Arc<Repository>> {
        std::mem::take(&mut *self.0.lock()).into_values().collect()
    }
}

/// The running rounds.
pub struct Background {
    stop: watch::Sender<bool>,
    rounds: JoinHandle<()>,
    maintenance: JoinHandle<()>,
}

impl Background {
    /// Starts the rounds.
    pub fn start(node: Arc<Node>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (flushed, due) = mpsc::channel(FLUSHED_MAX);
        let maintenance = tokio::spawn(maintain(due));
        Self {
            stop,
            rounds: tokio::spawn(run(node, flushed, stopped)),
            maintenance,
        }
    }

    /// Ends the rounds with a last one, for all that is left. Ends it early if it takes longer than `time_max`: what is not
    /// flushed is safe in the ledger.
    pub async fn finish(self, time_max: Duration) {
        let _ = self.stop.send(true);
        // A merge that is cut off leaves orphans, never damage.
        self.maintenance.abort();
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
    loop {
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
}

async fn flush(node: &Node, done: &mpsc::Sender<Arc<Repository>>, repository: Arc<Repository>) {
    let flushed = match repository.flush().await {
        Ok(Flushed::Nothing) => return,
        Ok(_) => repository.write_checkpoint_if_due().await.map(drop),
        Err(error) => Err(error),
    };
    node.metrics.flush_ended(flushed.is_ok());
    if let Err(error) = flushed {
        tracing::warn!(repository = %repository.id(), error = ?error.to_string(), "cannot flush; trying again");
    }
    // What came meanwhile, and what failed.
    node.unflushed.note(&repository);
    // Where too many wait already, its next flush will ask again.
    let _ = done.try_send(repository);
}

/// Merges layers, one repository after another.
async fn maintain(mut due: mpsc::Receiver<Arc<Repository>>) {
    while let Some(repository) = due.recv().await {
        if let Err(error) = repository.maintain().await {
            tracing::warn!(repository = %repository.id(), error = ?error.to_string(), "cannot merge layers");
        }
    }
}
