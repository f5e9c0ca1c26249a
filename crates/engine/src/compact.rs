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
const MERGED_OBJECTS_MAX: u64 = (1 << 31) - 2;
/// What a merge holds beside the cues of its layers, for each object, for each commit, and for each byte of their cues that
/// neither of them accounts for: links and externals. Columns of words, most of them the new cue's.
const OBJECT_BYTES: u64 = 36;
const COMMIT_BYTES: u64 = 72;
const OTHER_BYTES: u64 = 3;
/// Bytes of a cue for an object and a commit.
const CUE_OBJECT_BYTES: u64 = 50;
const CUE_COMMIT_BYTES: u64 = 52;
/// What comes to it for each object where the bases of deltas are chosen, beside contents.
const CHOSEN_BYTES: u64 = 32;

/// What merges may come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeBounds {
    /// Bytes of the new pack.
    pub pack_bytes_max: u64,
    /// Objects in it.
    pub objects_max: u64,
    /// Bytes that the merge holds, beside the cues of its layers.
    pub memory_bytes_max: u64,
    /// Whether it chooses the bases of deltas, too.
    pub bases_chosen: bool,
}

impl MergeBounds {
    /// For merges that hold at most so much and keep the bases of deltas.
    pub fn within(memory_bytes_max: u64) -> Self {
        Self {
            pack_bytes_max: MERGED_BYTES_MAX,
            objects_max: MERGED_OBJECTS_MAX,
            memory_bytes_max,
            bases_chosen: false,
        }
    }

    pub(crate) fn of(view: &View) -> Self {
        Self::within(view.world().options.compact_memory_bytes_max as u64)
    }

    /// What merging a layer adds to what is held, in bytes.
    pub fn memory_bytes(&self, layer: &LayerMeta) -> u64 {
        let (objects, commits) = (u64::from(layer.objects), u64::from(layer.segments));
        let accounted_for = objects * CUE_OBJECT_BYTES + commits * CUE_COMMIT_BYTES;
        let other = layer.cue_bytes.saturating_sub(accounted_for);
        let chosen = if self.bases_chosen { CHOSEN_BYTES } else { 0 };
        (objects * (OBJECT_BYTES + chosen) + commits * COMMIT_BYTES).saturating_add(other.saturating_mul(OTHER_BYTES))
    }

    /// Whether layers may become one.
    fn fit(&self, layers: &[LayerMeta]) -> bool {
        let sum = |of: &dyn Fn(&LayerMeta) -> u64| layers.iter().map(of).fold(0, u64::saturating_add);
        sum(&|layer| layer.pack_bytes) <= self.pack_bytes_max
            && sum(&|layer| layer.objects.into()) <= self.objects_max
            && sum(&|layer| self.memory_bytes(layer)) <= self.memory_bytes_max
    }

    /// Whether a layer is left alone: two such ones would not fit. Any two others do.
    fn is_giant(&self, layer: &LayerMeta) -> bool {
        layer.pack_bytes > self.pack_bytes_max / 2
            || u64::from(layer.objects) > self.objects_max / 2
            || self.memory_bytes(layer) > self.memory_bytes_max / 2
    }
}

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
/// once. So there are at most `2 × FAN_IN` layers a tier, and a byte is written at most twice on its way up one tier.
///
/// A *giant* is above half of a bound, and never touched again. Layers before one are trapped. A group that does not fit
/// becomes giants, as many as it fills, and the rest of it waits for more. So there are at most two giants for what fits one
/// layer, and one layer between two of them.
pub fn propose(layers: &[LayerMeta], bounds: &MergeBounds) -> Vec<Job> {
    let mut jobs = Vec::new();
    let mut runs = layers.rsplit(|layer| bounds.is_giant(layer));
    let mut rest = runs.next().unwrap_or_default();
    while let Some((group, older)) = last_group(rest) {
        propose_in_group(group, bounds, &mut jobs);
        rest = older;
    }
    for run in runs {
        propose_trapped(run, bounds, &mut jobs);
    }
    jobs.reverse();
    jobs
}

/// The tier of a layer.
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

/// Jobs of a group, the newest first.
fn propose_in_group(group: &[LayerMeta], bounds: &MergeBounds, jobs: &mut Vec<Job>) {
    let Some(top) = group.last().map(tier) else { return };
    let count = group.iter().filter(|layer| tier(layer) == top).count();
    if count < FAN_IN {
        let trapped = group.rsplit(|layer| tier(layer) == top);
        trapped.for_each(|run| propose_trapped(run, bounds, jobs));
    } else if bounds.fit(group) {
        jobs.push(job(group));
    } else {
        let (full, _) = fill(group, bounds);
        jobs.extend(full.into_iter().rev().map(job));
    }
}

/// Jobs of neighbours beside which no more will come, the newest first.
fn propose_trapped(run: &[LayerMeta], bounds: &MergeBounds, jobs: &mut Vec<Job>) {
    let (full, left) = fill(run, bounds);
    let several = full.into_iter().chain([left]).filter(|run| run.len() >= 2);
    let at = jobs.len();
    jobs.extend(several.map(job));
    if let Some(new) = jobs.get_mut(at..) {
        new.reverse();
    }
}

/// Neighbours, none a giant, as runs that become giants, and what is left.
fn fill<'l>(mut layers: &'l [LayerMeta], bounds: &MergeBounds) -> (Vec<&'l [LayerMeta]>, &'l [LayerMeta]) {
    let mut full = Vec::new();
    loop {
        let fits = |count: &usize| layers.get(..*count).is_some_and(|run| bounds.fit(run));
        let count = (1..=layers.len()).take_while(fits).last().unwrap_or(0);
        match layers.split_at_checked(count) {
            Some((run, rest)) if count > 0 && !rest.is_empty() => {
                full.push(run);
                layers = rest;
            }
            _ => return (full, layers),
        }
    }
}

fn job(layers: &[LayerMeta]) -> Job {
    Job {
        layers: layers.iter().map(|layer| layer.id).collect(),
    }
}

/// The jobs of a view.
fn jobs_of(view: &View) -> Vec<Job> {
    let bounds = MergeBounds::of(view);
    neighbours(view).iter().flat_map(|run| propose(run, &bounds)).collect()
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
