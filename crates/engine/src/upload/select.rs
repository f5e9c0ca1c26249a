//! Which entries go into a pack: the segments of the commits to send, root sets and tags, each object once.

use super::filter::Sieve;
use crate::EngineError;
use crate::bits::Bits;
use crate::graph::{Graph, Position, PositionSet, Slot};
use cuesta_format::Link;
use cuesta_git::{ObjectId, ObjectKind};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Tags that point at tags, from the outermost to what is no tag. Git sets no limit; nobody nests them deeply.
const TAG_DEPTH_MAX: u32 = 1_000;

/// What wants or haves come down to.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// At their canonical positions.
    pub(super) commits: Vec<Position>,
    /// Tags met on the way.
    pub(super) tags: Vec<Position>,
    pub(super) trees: Vec<Position>,
    pub(super) blobs: Vec<Position>,
}

impl Targets {
    /// Adds what `oid` comes down to: itself, and for a tag what it leads to. False if the view does not have it.
    pub(super) fn add(&mut self, graph: &Graph, oid: &ObjectId) -> Result<bool, EngineError> {
        let mut oid = *oid;
        for depth in 0..TAG_DEPTH_MAX {
            let Some(position) = graph.locate(&oid) else {
                return if depth == 0 {
                    Ok(false)
                } else {
                    Err(missing_target(oid))
                };
            };
            let slot = graph.slot(position.slot)?;
            match slot.index.kind(position.entry) {
                ObjectKind::Commit if graph.is_commit(position) => self.commits.push(position),
                // Kept without its history: nothing vouches for what it reaches.
                ObjectKind::Commit => return Ok(false),
                ObjectKind::Tree => self.trees.push(position),
                ObjectKind::Blob => self.blobs.push(position),
                ObjectKind::Tag => {
                    self.tags.push(position);
                    let target = slot.history.roots.tag_target(position.entry);
                    oid = target.ok_or_else(|| slot.layer.corrupt("a tag has no target"))?.0;
                    continue;
                }
            }
            return Ok(true);
        }
        Err(EngineError::limit("nested tags", TAG_DEPTH_MAX.into()))
    }
}

fn missing_target(oid: ObjectId) -> EngineError {
    tracing::error!(%oid, "the target of a tag is in no layer of the view");
    EngineError::Internal("the target of a tag is in no layer of the view")
}

/// A set of entries under construction.
pub(super) struct Selection<'a> {
    graph: &'a Graph,
    entries: PositionSet,
}

impl<'a> Selection<'a> {
    pub(super) fn new(graph: &'a Graph) -> Self {
        Self::of(graph, PositionSet::new(graph.slot_count()))
    }

    /// These entries.
    pub(super) fn of(graph: &'a Graph, entries: PositionSet) -> Self {
        Self { graph, entries }
    }

    pub(super) fn add(&mut self, position: Position) -> Result<(), EngineError> {
        let limit = self.graph.slot(position.slot)?.index.entries.len();
        self.entries.insert(position, limit);
        Ok(())
    }

    /// The commits themselves and all that their segments name; of those that are `bare`, only themselves.
    pub(super) fn add_commits(&mut self, commits: &PositionSet, bare: &[Position]) -> Result<(), EngineError> {
        for commit in bare {
            self.add(*commit)?;
        }
        let bare: HashSet<Position> = bare.iter().copied().collect();
        for (number, segments) in commits.layers() {
            let slot = self.graph.slot(number)?;
            let mut with_segments;
            let segments = if bare.is_empty() {
                segments
            } else {
                with_segments = segments.clone();
                for commit in bare.iter().filter(|commit| commit.slot == number) {
                    with_segments.remove(commit.entry);
                }
                &with_segments
            };
            for run in segments.runs() {
                self.add_run(number, slot, run)?;
            }
        }
        Ok(())
    }

    /// Neighbouring segments have neighbouring trees and blobs, so a run of them is three ranges.
    fn add_run(&mut self, number: u32, slot: &Slot, run: Range<u32>) -> Result<(), EngineError> {
        let (segments, limit) = (&slot.history.segments, slot.index.entries.len());
        let last = run.end.saturating_sub(1);
        self.entries.insert_range(number, run.clone(), limit);
        self.entries
            .insert_range(number, segments.trees(run.start).start..segments.trees(last).end, limit);
        self.entries
            .insert_range(number, segments.blobs(run.start).start..segments.blobs(last).end, limit);
        run.into_iter()
            .try_for_each(|segment| self.add_links(number, slot, segments.links(segment)))
    }

    fn add_links(&mut self, number: u32, slot: &Slot, links: impl Iterator<Item = Link>) -> Result<(), EngineError> {
        for link in links {
            let missing = || slot.layer.corrupt("a linked object is in no layer of the view");
            self.add(self.graph.follow(number, link)?.ok_or_else(missing)?)?;
        }
        Ok(())
    }

    /// All that a root set names.
    pub(super) fn add_root(&mut self, number: u32, root: u32) -> Result<(), EngineError> {
        let slot = self.graph.slot(number)?;
        let (roots, limit) = (&slot.history.roots, slot.index.entries.len());
        self.entries.insert_range(number, roots.trees(root), limit);
        self.entries.insert_range(number, roots.blobs(root), limit);
        self.add_links(number, slot, roots.links(root))
    }

    /// All that is selected so far, copies included.
    pub(super) fn into_entries(self) -> PositionSet {
        self.entries
    }

    /// Drops what the sieve does not let pass, trees and blobs that are not in `levels` if it is given, and blobs that are not
    /// in `blobs` if that is given.
    ///
    /// Cost: a look at each entry's kind, and at its id where a set is given.
    pub(super) fn sift(
        &mut self,
        sieve: &Sieve,
        levels: Option<&HashSet<ObjectId>>,
        blobs: Option<&HashSet<ObjectId>>,
    ) -> Result<(), EngineError> {
        let mut dropped = Vec::new();
        for (number, bits) in self.entries.layers() {
            let slot = self.graph.slot(number)?;
            let is_in = |set: Option<&HashSet<ObjectId>>, kinds: &[ObjectKind], entry: u32| {
                let found = |set: &HashSet<ObjectId>| {
                    let oid = slot.index.oid(entry);
                    !kinds.contains(&slot.index.kind(entry)) || oid.is_some_and(|oid| set.contains(&oid))
                };
                set.is_none_or(found)
            };
            let passes = |entry: u32| {
                let is_shallow_enough = is_in(levels, &[ObjectKind::Tree, ObjectKind::Blob], entry);
                sieve.passes(slot, entry) && is_shallow_enough && is_in(blobs, &[ObjectKind::Blob], entry)
            };
            let out = bits.iter().filter(|entry| !passes(*entry));
            dropped.extend(out.map(|entry| Position { slot: number, entry }));
        }
        for position in dropped {
            self.entries.remove(position);
        }
        Ok(())
    }

    /// How many entries of a layer are selected.
    pub(super) fn count_in(&self, slot: u32) -> u64 {
        self.entries.bits(slot).map_or(0, Bits::count)
    }

    /// Drops all that the layers in `slots` hold, there and elsewhere.
    ///
    /// Cost: a filter probe for each entry left and each of the layers.
    pub(super) fn leave_out(&mut self, slots: &[u32]) -> Result<(), EngineError> {
        let mut dropped = Vec::new();
        for (number, bits) in self.entries.layers() {
            let slot = self.graph.slot(number)?;
            for entry in bits.iter() {
                let mut is_there = slots.contains(&number);
                if let (false, Some(oid)) = (is_there, slot.index.oid(entry)) {
                    for &other in slots {
                        is_there |= self.graph.slot(other)?.index.find(&oid).is_some();
                    }
                }
                if is_there {
                    dropped.push(Position { slot: number, entry });
                }
            }
        }
        for position in dropped {
            self.entries.remove(position);
        }
        Ok(())
    }

    /// Drops some objects; answers those that were there. Cost: a filter probe for each in each layer.
    pub(super) fn leave_out_objects(&mut self, oids: &[ObjectId]) -> Result<Vec<ObjectId>, EngineError> {
        let mut dropped = Vec::new();
        for oid in oids {
            let mut was_there = false;
            for slot in 0..self.graph.slot_count() {
                let entry = self.graph.slot(slot)?.index.find(oid);
                was_there |= entry.is_some_and(|entry| self.entries.remove(Position { slot, entry }));
            }
            dropped.extend(was_there.then_some(*oid));
        }
        Ok(dropped)
    }

    /// Whether what is at `position` is selected.
    pub(super) fn contains(&self, position: Position) -> bool {
        self.entries.contains(position)
    }

    /// Leaves each object in one layer only, the oldest that was selected: a delta's base then never lies in a newer
    /// layer than the delta, which keeps chains across layers free of cycles.
    ///
    /// Cost: for each entry selected, a filter probe for each layer in the bucket that more is selected from, and a hash
    /// look-up if it is of an inline layer.
    pub(super) fn finish(mut self) -> Result<PositionSet, EngineError> {
        let selected: Vec<(u32, Bits)> = self.entries.layers().map(|(slot, bits)| (slot, bits.clone())).collect();
        if selected.len() < 2 {
            return Ok(self.entries);
        }
        let (inline, mut bucket): (Vec<_>, Vec<_>) = selected.into_iter().partition(|(slot, _)| self.is_inline(*slot));
        bucket.sort_by_key(|(slot, bits)| (bits.count(), *slot));
        let slots: Vec<u32> = bucket.iter().map(|(slot, _)| *slot).collect();
        for (at, (slot, bits)) in bucket.iter().enumerate() {
            self.drop_copies(*slot, bits, slots.get(at + 1..).unwrap_or_default(), &mut None)?;
        }
        let mut seen = Some(HashMap::new());
        for (slot, bits) in &inline {
            self.drop_copies(*slot, bits, &slots, &mut seen)?;
        }
        Ok(self.entries)
    }

    /// Compares the entries of one layer with those of `others`, and with those `seen` before.
    fn drop_copies(
        &mut self,
        number: u32,
        bits: &Bits,
        others: &[u32],
        seen: &mut Option<HashMap<ObjectId, Position>>,
    ) -> Result<(), EngineError> {
        if others.is_empty() && seen.is_none() {
            return Ok(());
        }
        let slot = self.graph.slot(number)?;
        for entry in bits.iter() {
            let Some(oid) = slot.index.oid(entry) else { continue };
            let mut kept = Position { slot: number, entry };
            if let Some(other) = seen.as_mut().and_then(|seen| seen.insert(oid, kept)) {
                // An older layer has it: no further comparison is needed.
                self.drop_newer(kept, other);
                continue;
            }
            for &other in others {
                let Some(entry) = self.graph.slot(other)?.index.find(&oid) else {
                    continue;
                };
                let other = Position { slot: other, entry };
                if self.entries.contains(other) && self.entries.contains(kept) {
                    kept = self.drop_newer(kept, other);
                }
            }
        }
        Ok(())
    }

    fn is_inline(&self, slot: u32) -> bool {
        self.graph.layer(slot).is_some_and(|layer| layer.is_inline())
    }

    /// Drops the newer of two copies; answers the one that stays.
    fn drop_newer(&mut self, a: Position, b: Position) -> Position {
        self.entries.remove(a.max(b));
        a.min(b)
    }
}
