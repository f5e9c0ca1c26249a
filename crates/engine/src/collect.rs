//! Collect: payloads that nothing needs any more are deleted from the bucket.
//!
//! A layer that a flush or merge took out of the list stays for a grace period: readers hold views, merges and pushes read
//! what their view names, and clients hold URIs (docs/architecture.md, "Layers by URI"). The log remembers what left, and
//! since when that is certain ([`cuesta_ledger::State::retired`]); so deleting needs no listing, may be done twice and by
//! several at once, and a crash anywhere only leaves it to be done again:
//!
//! 1. an edit notes that layers have left: from its time on their grace period counts;
//! 2. when that has passed, their payloads are deleted;
//! 3. an edit says so, and they are forgotten. The same edit notes what has left meanwhile.
//!
//! Repositories go the same way, with the directory as their log. What nothing remembers is found by
//! [`Repository::sweep`] and [`Engine::sweep`], which list the bucket and are an operator's to call.

mod abandoned;
mod sweep;

pub use sweep::{Needless, Why};

use crate::{EngineError, Repository};
use cuesta_format::{Cause, Collection, Edit, LayerId, LogId, RetiredLayer, layer_cue_key, layer_pack_key};
use cuesta_ledger::Committed;
use cuesta_store::Bucket;
use futures::stream::{StreamExt, TryStreamExt};
use std::time::Duration;

/// Layers deleted in one pass; more wait for the next.
const LAYERS_MAX: usize = 4096;
/// Deletions in flight.
const DELETIONS_MAX: usize = 8;
/// What has left is noted so many times in a grace period, at most.
const PASSES: i64 = 24;

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Layers, or repositories, whose payloads are gone.
    pub deleted: usize,
    /// Those that left and are still there.
    pub waiting: usize,
    /// When there will be something to do, in milliseconds since the Unix epoch; `None` if nothing waits.
    pub due_ms: Option<i64>,
}

/// What is to be done about layers that left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectStep {
    /// They have had their time.
    pub delete: Vec<LayerId>,
    /// Everything that left by entries below this number is among them, or was collected before.
    pub deleted_below: u64,
    /// Some have left that nobody has noted.
    pub notes: bool,
}

/// What to do at `now_ms` about `retired`, which is in the order in which the layers left, if each is to be kept for
/// `grace_ms` after it was seen to have left. Entries are dealt with whole: never some of an entry's layers alone.
pub fn propose_collection<'a>(
    retired: impl IntoIterator<Item = &'a RetiredLayer>,
    now_ms: i64,
    grace_ms: i64,
) -> CollectStep {
    let mut step = CollectStep::default();
    let mut is_due = true;
    for layer in retired {
        let has_had_its_time = layer
            .seen_ms
            .is_some_and(|seen_ms| seen_ms.saturating_add(grace_ms) <= now_ms);
        let is_of_next_entry = step.delete.is_empty() || layer.number >= step.deleted_below;
        is_due &= has_had_its_time && (step.delete.len() < LAYERS_MAX || !is_of_next_entry);
        if is_due {
            step.delete.push(layer.id);
            step.deleted_below = layer.number.saturating_add(1);
        }
        step.notes |= layer.seen_ms.is_none();
    }
    step
}

/// When something is to be done about `retired`, as [`propose_collection`] goes.
fn due_ms(retired: &imbl::Vector<RetiredLayer>, now_ms: i64, grace_ms: i64) -> Option<i64> {
    let next_note_ms = now_ms.saturating_add((grace_ms / PASSES).max(1));
    let has_unseen = retired.last().is_some_and(|layer| layer.seen_ms.is_none());
    match retired.front()?.seen_ms {
        None => Some(next_note_ms),
        Some(seen_ms) => {
            let due_ms = seen_ms.saturating_add(grace_ms);
            Some(if has_unseen { due_ms.min(next_note_ms) } else { due_ms })
        }
    }
}

/// A grace period as times are told.
fn as_ms(grace: Duration) -> i64 {
    i64::try_from(grace.as_millis()).unwrap_or(i64::MAX)
}

impl Repository {
    /// Deletes what left the layer list a grace period ago, and notes what has left since the last pass.
    ///
    /// Cost: two deletions for each layer, and one append if anything was done; nothing if nothing waits.
    pub async fn collect(&self) -> Result<Collected, EngineError> {
        let world = self.world();
        let grace_ms = as_ms(world.options.grace);
        let state = self.log().fresh().await?;
        let step = propose_collection(state.retired(), world.clock.now_ms(), grace_ms);
        let mut done = Collected {
            deleted: step.delete.len(),
            ..Collected::default()
        };
        delete_layers(&world.bucket, self.id(), &step.delete).await?;
        let mut after = state.clone();
        if step.notes || !step.delete.is_empty() {
            let collection = Collection {
                seen_below: state.number(),
                deleted_below: step.deleted_below,
                orphans: Vec::new(),
            };
            after = self.commit_collection(collection).await?;
        }
        done.waiting = after.retired().len();
        done.due_ms = due_ms(after.retired(), world.clock.now_ms(), grace_ms);
        Ok(done)
    }

    /// How many layers [`collect`](Self::collect) would delete, and how many wait for their grace period.
    pub async fn collectable(&self) -> Result<(usize, usize), EngineError> {
        let world = self.world();
        let state = self.log().fresh().await?;
        let (now_ms, grace_ms) = (world.clock.now_ms(), as_ms(world.options.grace));
        let due = propose_collection(state.retired(), now_ms, grace_ms).delete.len();
        Ok((due, state.retired().len().saturating_sub(due)))
    }

    /// When [`collect`](Self::collect) will have something to do, as far as this node knows; `None` if nothing waits.
    pub fn collection_due_ms(&self) -> Option<i64> {
        let world = self.world();
        due_ms(
            self.log().current().retired(),
            world.clock.now_ms(),
            as_ms(world.options.grace),
        )
    }

    /// Appends an edit whose time is that of now: after whatever it speaks of.
    async fn commit_collection(
        &self,
        collection: Collection,
    ) -> Result<std::sync::Arc<cuesta_ledger::State>, EngineError> {
        let edit = Edit {
            collection: Some(Box::new(collection)),
            ..self.edit(Cause::Collect, "")
        };
        match self.log().commit(edit).await? {
            Committed::Done { state, .. } => Ok(state),
            Committed::Conflict(conflict) => Err(EngineError::Conflict(conflict.to_string())),
        }
    }
}

/// Deletes both payloads of layers. Those that are gone already are no error.
async fn delete_layers(bucket: &Bucket, log: LogId, layers: &[LayerId]) -> Result<(), EngineError> {
    let mut keys = Vec::with_capacity(2 * layers.len());
    for id in layers {
        keys.extend([layer_pack_key(log, *id), layer_cue_key(log, *id)]);
    }
    delete_keys(bucket, keys).await
}

async fn delete_keys(bucket: &Bucket, keys: Vec<String>) -> Result<(), EngineError> {
    let deletions = keys.into_iter().map(|key| async move { bucket.delete(&key).await });
    let deletions = futures::stream::iter(deletions).buffer_unordered(DELETIONS_MAX);
    Ok(deletions.try_collect::<()>().await?)
}

#[cfg(test)]
#[path = "collect/tests.rs"]
mod tests;
