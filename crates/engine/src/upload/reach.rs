//! What a set of refs reaches: the question "may this client have that object?", answered without walking trees.
//!
//! An object belongs to the segments that hold or link to it; it is reachable if one of their commits is.

use super::select::Targets;
use crate::EngineError;
use crate::graph::{Graph, Position, PositionSet, Slot};
use cuesta_format::Link;
use cuesta_git::{HiddenRefs, ObjectId, ObjectKind};
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

/// What the refs of a view reach that certain rules do not hide. Memory: a bit a commit, and what refs name beside commits.
pub struct Reach {
    graph: Arc<Graph>,
    commits: PositionSet,
    /// Tags, and trees and blobs that refs or tags name.
    others: HashSet<Position>,
    /// What reachable segments and root sets link to, sorted; found when first needed.
    linked: OnceLock<Box<[ObjectId]>>,
}

impl Reach {
    /// Cost: a look-up for each ref, and one walk over their history.
    pub(crate) fn new(graph: Arc<Graph>, hidden: &HiddenRefs) -> Result<Self, EngineError> {
        let mut targets = Targets::default();
        for (name, target) in graph.state().refs() {
            if !hidden.hides(name) {
                targets.add(&graph, &target.oid)?;
            }
        }
        let commits = graph.ancestors(&targets.commits, 0)?;
        let others = [targets.tags, targets.trees, targets.blobs]
            .concat()
            .into_iter()
            .collect();
        Ok(Self {
            graph,
            commits,
            others,
            linked: OnceLock::new(),
        })
    }

    /// Whether the refs reach `oid`.
    pub fn reaches(&self, oid: &ObjectId) -> Result<bool, EngineError> {
        let Some(position) = self.graph.locate(oid) else {
            return Ok(false);
        };
        if self.others.contains(&position) {
            return Ok(true);
        }
        match self.graph.slot(position.slot)?.index.kind(position.entry) {
            ObjectKind::Commit => self.has_commit(position),
            ObjectKind::Tag => Ok(false),
            _ => Ok(self.is_in_a_run(oid)? || self.linked()?.binary_search(oid).is_ok()),
        }
    }

    /// Whether everything that the layer in `slot` holds is reachable.
    pub(crate) fn has_whole_layer(&self, slot: u32) -> Result<bool, EngineError> {
        let Slot {
            layer, index, history, ..
        } = self.graph.slot(slot)?;
        if layer.meta().unreachable || index.counts.commits > index.counts.segments {
            return Ok(false);
        }
        for segment in 0..history.segments.len() {
            if !self.has_commit(Position { slot, entry: segment })? {
                return Ok(false);
            }
        }
        for tag in index.counts.tag_entries() {
            let named = index.oid(tag).is_some_and(|oid| self.names(&oid));
            if !named {
                return Ok(false);
            }
        }
        Ok((0..history.roots.len()).all(|root| self.names(&history.roots.oid(root))))
    }

    fn has_commit(&self, commit: Position) -> Result<bool, EngineError> {
        Ok(self.graph.is_commit(commit) && self.commits.contains(self.graph.canonical(commit)?))
    }

    /// Whether a copy of the object is in the run of a reachable segment or root set: a look-up in each layer.
    fn is_in_a_run(&self, oid: &ObjectId) -> Result<bool, EngineError> {
        for number in 0..self.graph.slot_count() {
            let slot = self.graph.slot(number)?;
            let Some(entry) = slot.index.find(oid) else { continue };
            if let Some(segment) = slot.history.segments.of_entry(entry) {
                let commit = Position {
                    slot: number,
                    entry: segment,
                };
                if self.has_commit(commit)? {
                    return Ok(true);
                }
            }
            let roots = &slot.history.roots;
            let root = roots.of_entry(entry).map(|root| roots.oid(root));
            if root.is_some_and(|root| self.names(&root)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn linked(&self) -> Result<&[ObjectId], EngineError> {
        if let Some(linked) = self.linked.get() {
            return Ok(linked);
        }
        let found = self.find_linked()?;
        Ok(self.linked.get_or_init(|| found))
    }

    /// Cost: one pass over the cues.
    fn find_linked(&self) -> Result<Box<[ObjectId]>, EngineError> {
        let mut linked = Vec::new();
        for number in 0..self.graph.slot_count() {
            let slot = self.graph.slot(number)?;
            let mut add = |link: Link| match link {
                Link::Local(entry) => linked.extend(slot.index.oid(entry)),
                Link::External(external) => linked.push(slot.index.externals.oid(external)),
            };
            let (segments, roots) = (&slot.history.segments, &slot.history.roots);
            for segment in 0..segments.len() {
                let mut links = segments.links(segment).peekable();
                let commit = Position {
                    slot: number,
                    entry: segment,
                };
                if links.peek().is_some() && self.has_commit(commit)? {
                    links.for_each(&mut add);
                }
            }
            let named = (0..roots.len()).filter(|root| self.names(&roots.oid(*root)));
            named.for_each(|root| roots.links(root).for_each(&mut add));
        }
        linked.sort_unstable();
        linked.dedup();
        Ok(linked.into())
    }

    /// Whether a ref, or a tag that a ref names, names `oid`, which is no commit.
    fn names(&self, oid: &ObjectId) -> bool {
        self.graph
            .locate(oid)
            .is_some_and(|position| self.others.contains(&position))
    }
}

impl std::fmt::Debug for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reach").field("commits", &self.commits.count()).finish()
    }
}
