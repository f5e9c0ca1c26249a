//! Compaction: when about eight layers of like size pile up they become one.
//!
//! The policy is pure. It merges neighbours only: a merged layer stands where the newest of them stood, so that what was
//! based on an older layer still is (docs/decisions/deltas-across-layers.md).

use crate::layer::Layer;
mod bases;

pub use bases::{Compacted, propose_bases};

use crate::merge::{Bases, Input};
use crate::{EngineError, Repository, View};
use cuesta_format::{Cause, LayerId, LayerMeta};
use cuesta_ledger::{Committed, LayerRecord};
use std::sync::Arc;

/// Layers of one tier that are merged together, and the factor from one tier to the next.
const FAN_IN: usize = 8;
/// Layers of fewer bytes are all of the lowest tier.
const TIER_BYTES_MIN: u64 = 1 << 10;
/// Merged layers grow up to this; larger ones are left alone.
const MERGED_BYTES_MAX: u64 = 64 << 30;
/// Cues count entries, and links to them, in 31 bits.
const MERGED_OBJECTS_MAX: u64 = (1 << 31) - 1;

/// Layers to be merged into one, oldest first; neighbours in the list they were proposed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The layers.
    pub layers: Vec<LayerId>,
}

/// What maintenance did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maintained {
    /// Merges done.
    pub merges: usize,
    /// Layers that ended by them.
    pub layers_merged: usize,
    /// Merges given up because someone else changed the same layers.
    pub overtaken: usize,
}

/// Which layers should be merged, of a list that is oldest first and of one sort: all in the bucket, all `unreachable` or
/// none. Jobs are disjoint.
///
/// A layer's *tier* is the power of [`FAN_IN`] in its size. A layer with a larger one after it is *trapped*: no layers of its
/// tier will come beside it any more. Seen from the newest on, the largest tier so far makes groups of neighbours. A group
/// with [`FAN_IN`] layers of its own tier becomes one layer, trapped ones with it; and trapped neighbours become one at
/// once. So there are at most `2 × FAN_IN` layers a tier, and a byte is written at most twice on its way up one tier; layers
/// above [`MERGED_BYTES_MAX`] are never touched.
pub fn propose(layers: &[LayerMeta]) -> Vec<Job> {
    let mut jobs = Vec::new();
    let mut rest = layers;
    while let Some((group, older)) = last_group(rest) {
        propose_in_group(group, &mut jobs);
        rest = older;
    }
    jobs.reverse();
    jobs
}

/// The tier of a layer; `None` for one that is too large to be merged with another.
fn tier(layer: &LayerMeta) -> u32 {
    (layer.pack_bytes.max(1).div_ceil(TIER_BYTES_MIN)).ilog(FAN_IN as u64)
}

/// The newest group and what is older: it ends with the newest layer and goes back to the next layer of a higher tier.
fn last_group(layers: &[LayerMeta]) -> Option<(&[LayerMeta], &[LayerMeta])> {
    let top = tier(layers.last()?);
    let start = layers
        .iter()
        .rposition(|layer| tier(layer) > top)
        .map_or(0, |older| older + 1);
    let (older, group) = layers.split_at_checked(start)?;
    Some((group, older))
}

fn propose_in_group(group: &[LayerMeta], jobs: &mut Vec<Job>) {
    let Some(top) = group.last().map(tier) else { return };
    let count = group.iter().filter(|layer| tier(layer) == top).count();
    if count >= FAN_IN && fits(group) {
        return jobs.push(job(group));
    }
    let trapped = group.split(|layer| tier(layer) == top);
    let several = trapped.filter(|run| run.len() >= 2 && fits(run));
    let at = jobs.len();
    jobs.extend(several.map(job));
    // Jobs are gathered from the newest on.
    if let Some(new) = jobs.get_mut(at..) {
        new.reverse();
    }
}

fn fits(layers: &[LayerMeta]) -> bool {
    let bytes: u64 = layers.iter().map(|layer| layer.pack_bytes).fold(0, u64::saturating_add);
    let objects: u64 = layers.iter().map(|layer| u64::from(layer.objects)).sum();
    bytes <= MERGED_BYTES_MAX && objects <= MERGED_OBJECTS_MAX
}

fn job(layers: &[LayerMeta]) -> Job {
    Job {
        layers: layers.iter().map(|layer| layer.id).collect(),
    }
}

/// The jobs of a view.
fn jobs_of(view: &View) -> Vec<Job> {
    neighbours(view).iter().flat_map(|run| propose(run)).collect()
}

/// Lists of layers of a view that may be merged with one another. Layers that are still inline are the flush's, and neighbours
/// are not merged across them; `unreachable` ones, on which nothing else is based, form a list of their own.
fn neighbours(view: &View) -> Vec<Vec<LayerMeta>> {
    let mut runs = Vec::new();
    for unreachable in [false, true] {
        let of_sort = |record: &&Arc<LayerRecord>| record.meta.unreachable == unreachable;
        let records: Vec<&Arc<LayerRecord>> = view.state().layers().iter().filter(of_sort).collect();
        let split = records.split(|record| record.is_inline());
        runs.extend(split.map(|run| run.iter().map(|record| record.meta).collect()));
    }
    runs
}

impl Repository {
    /// Merges layers as long as the policy proposes it. For after a flush; run by one owner at a time, a second only wastes
    /// its work.
    ///
    /// Cost: of each merge, the reading and writing of its layers and one append. What the merged layers were stays in the
    /// bucket, for views may hold it.
    pub async fn maintain(&self) -> Result<Maintained, EngineError> {
        let mut done = Maintained::default();
        loop {
            let view = self.view().await?;
            let Some(job) = jobs_of(&view).into_iter().next() else {
                return Ok(done);
            };
            if self.compact(&view, &job, Bases::Stored).await? {
                done.merges += 1;
                done.layers_merged += job.layers.len();
            } else {
                done.overtaken += 1;
                return Ok(done);
            }
        }
    }

    /// Does one job; `false` if the layers are not there any more, in which case nothing changed.
    async fn compact(&self, view: &View, job: &Job, bases: Bases) -> Result<bool, EngineError> {
        let mut inputs = Vec::with_capacity(job.layers.len());
        let mut level = 0;
        for id in &job.layers {
            let record = view.state().layer(*id);
            let record = record.ok_or(EngineError::Internal("a proposed layer is not in the view"))?;
            level = level.max(record.meta.level);
            inputs.push(Input::load(Layer::of(record, self.id(), &view.world().cache)?).await?);
        }
        let mut merged = self.merged(view, inputs, bases).await?;
        if merged.is_empty() {
            return Err(EngineError::Internal("a merge gave no layer"));
        }
        for layer in &mut merged {
            layer.meta.level = level.saturating_add(1);
        }
        let mut edit = self.edit(Cause::Compact, "");
        edit.added.clone_from(&merged);
        edit.removed.clone_from(&job.layers);
        match self.log().commit(edit).await? {
            Committed::Done { .. } => Ok(true),
            Committed::Conflict(_) => {
                crate::receive::discard(view, self.id(), &merged).await;
                Ok(false)
            }
        }
    }
}

#[cfg(test)]
#[path = "compact_tests.rs"]
mod tests;
