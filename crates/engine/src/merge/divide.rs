//! Layers that become two: what branches and tags reach, and what only other refs do.
//!
//! A default clone wants the first and nothing else, so that it is that layer's pack, byte for byte, and can be fetched by its
//! URI. The second rests on the first and never the other way round.

use super::Input;
use super::plan::{Part, Plan};
use crate::{EngineError, View};
use cuesta_git::{ObjectId, RefName};
use std::sync::OnceLock;

/// Neither of two layers has less than this part of the objects.
const PART_MIN: u64 = 16;

/// Which objects go to the first of two layers.
pub(crate) struct Division {
    /// For each entry of all inputs.
    first: Vec<bool>,
    /// Deltas below each entry in the first layer, once that is made.
    first_depths: OnceLock<Vec<u16>>,
}

/// One of two layers.
pub(crate) struct Half<'a> {
    pub(crate) division: &'a Division,
    pub(crate) is_first: bool,
}

impl<'a> Half<'a> {
    pub(super) fn part(&self) -> Part<'a> {
        Part {
            first: &self.division.first,
            is_first: self.is_first,
        }
    }

    pub(super) fn first_depths(&self) -> &'a [u16] {
        self.division.first_depths.get().map_or(&[], Vec::as_slice)
    }

    pub(super) fn note_depths(&self, depths: impl FnOnce() -> Vec<u16>) {
        if self.is_first {
            self.division.first_depths.get_or_init(depths);
        }
    }
}

/// How to divide layers that are the oldest of a view; `None` if they should stay together.
pub(crate) fn divide(view: &View, inputs: &[Input]) -> Result<Option<Division>, EngineError> {
    let metas = || inputs.iter().map(|input| input.layer.meta());
    let bytes: u64 = metas().map(|meta| meta.pack_bytes).sum();
    let oldest = view.state().layers().iter().next().map(|record| record.meta.id);
    let is_oldest = inputs.first().map(|input| input.layer.id()) == oldest;
    if bytes < view.world().options.divide_bytes_min || !is_oldest || metas().any(|meta| meta.unreachable) {
        return Ok(None);
    }
    let public: Vec<ObjectId> = ranked(view)
        .into_iter()
        .filter(|(rank, _)| *rank < OTHER)
        .map(|(_, oid)| oid)
        .collect();
    let (first, count) = Plan::reached(inputs, &public)?;
    let total: u64 = metas().map(|meta| u64::from(meta.objects)).sum();
    let worth_it = count >= total / PART_MIN && total.saturating_sub(count) >= (total / PART_MIN).max(1);
    Ok(worth_it.then(|| Division {
        first,
        first_depths: OnceLock::new(),
    }))
}

/// What refs point at: `HEAD` first, then branches, tags and the others, so that what most clients want lies together.
pub(super) fn tips(view: &View) -> Vec<ObjectId> {
    ranked(view).into_iter().map(|(_, oid)| oid).collect()
}

/// The rank of refs that are neither branches nor tags.
const OTHER: u8 = 3;

/// Values of refs, and what they peel to, by rank.
fn ranked(view: &View) -> Vec<(u8, ObjectId)> {
    let state = view.state();
    let head = state.symrefs().get(&RefName::head());
    let rank = |name: &RefName| match name.as_bytes() {
        _ if Some(name) == head => 0,
        name if name.starts_with(b"refs/heads/") => 1,
        name if name.starts_with(b"refs/tags/") => 2,
        _ => OTHER,
    };
    let mut ranked = Vec::with_capacity(state.refs().len());
    for (name, target) in state.refs() {
        let rank = rank(name);
        ranked.extend(target.peeled.map(|peeled| (rank, peeled)));
        ranked.push((rank, target.oid));
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked
}
