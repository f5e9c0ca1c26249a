//! What stood at the path of a tree or blob before its commit: the version in a parent, found by the walk that cuts
//! segments, down both trees at once and never into equal subtrees.

use super::plan::{NewLink, Plan, Set};
use super::source::Source;
use crate::receive::{Tree, differ};
use crate::{EngineError, Graph, View, Watch};
use cuesta_git::ObjectId;
use cuesta_store::Workers;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// Parents whose trees are compared with a merge's.
const PARENTS_MAX: usize = 4;

const NONE: u32 = u32::MAX;
/// Set in what leads to an object outside the inputs.
const OUTSIDE: u32 = 1 << 31;

/// An earlier version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// The entry at this place of the new layer.
    Entry(u32),
    /// In another layer.
    Outside(ObjectId),
}

/// For each tree and blob of the new layer, its earlier version. Four bytes an entry.
pub(super) struct Befores {
    first_tree: u32,
    of: Vec<u32>,
    outside: Vec<ObjectId>,
}

impl Befores {
    /// The earlier version of the entry at a place.
    pub(super) fn of(&self, place: u32) -> Option<Before> {
        let index = place.checked_sub(self.first_tree)?;
        match self.of.get(index as usize).copied() {
            None | Some(NONE) => None,
            Some(packed) if packed & OUTSIDE != 0 => {
                let oid = self.outside.get((packed & !OUTSIDE) as usize)?;
                Some(Before::Outside(*oid))
            }
            Some(before) => Some(Before::Entry(before)),
        }
    }
}

/// Walks the trees of all segments. Cost: each tree of the inputs, and the one it is compared with, inflated once, as long as
/// the source keeps what is asked for again.
pub(super) fn find(
    view: &View,
    workers: &Workers,
    plan: &Plan<'_>,
    source: &mut Source<'_>,
    watch: &Watch,
) -> Result<Befores, EngineError> {
    let count = plan.objects().saturating_sub(plan.first_tree) as usize;
    let mut walk = Walk {
        view,
        workers,
        plan,
        source,
        graph: None,
        befores: Befores {
            first_tree: plan.first_tree,
            of: vec![NONE; count],
            outside: Vec::new(),
        },
        last_outside: None,
        stack: Vec::new(),
        walked: HashSet::new(),
    };
    let (mut tree, mut blob) = (plan.first_tree, plan.first_blob);
    for set in &plan.segments {
        watch.check()?;
        let own = Own {
            trees: tree..tree + set.trees,
            blobs: blob..blob + set.blobs,
        };
        (tree, blob) = (own.trees.end, own.blobs.end);
        watch.advance(u64::from(set.trees));
        if !own.trees.is_empty() {
            walk.segment(set, &own)?;
        }
    }
    Ok(walk.befores)
}

/// The places of the trees and blobs that a segment adds.
struct Own {
    trees: Range<u32>,
    blobs: Range<u32>,
}

struct Walk<'w, 'p, 's> {
    view: &'w View,
    workers: &'w Workers,
    plan: &'w Plan<'p>,
    source: &'w mut Source<'s>,
    graph: Option<Arc<Graph>>,
    befores: Befores,
    /// The external noted last: of one tree's entries often several have the same.
    last_outside: Option<(ObjectId, u32)>,
    /// Pairs of a segment's own tree and the earlier one.
    stack: Vec<(ObjectId, ObjectId)>,
    /// Places of the trees walked for the present parent.
    walked: HashSet<u32>,
}

impl Walk<'_, '_, '_> {
    /// The first parent in whose tree a path has an earlier version decides.
    fn segment(&mut self, set: &Set, own: &Own) -> Result<(), EngineError> {
        let Some(root) = self.plan.root_tree(set) else {
            return Ok(());
        };
        for parent in self.plan.parents(set).into_iter().take(PARENTS_MAX) {
            if let Some(old_root) = self.root_tree(parent)? {
                self.walked.clear();
                self.note(root, old_root, true, own)?;
                self.walk(own)?;
            }
        }
        Ok(())
    }

    /// The tree of a parent; `None` where the repository does not have it.
    fn root_tree(&mut self, parent: NewLink) -> Result<Option<ObjectId>, EngineError> {
        match parent {
            NewLink::Entry(place) => Ok(self
                .plan
                .segments
                .get(place as usize)
                .and_then(|set| self.plan.root_tree(set))),
            NewLink::External(oid) => {
                let graph = match &self.graph {
                    Some(graph) => Arc::clone(graph),
                    None => Arc::clone(self.graph.insert(self.workers.wait(self.view.graph())?)),
                };
                let Some(commit) = graph.commit(&oid) else {
                    return Ok(None);
                };
                let segments = &graph.slot(commit.slot)?.history.segments;
                Ok(Some(segments.root_tree(commit.entry)))
            }
        }
    }

    fn walk(&mut self, own: &Own) -> Result<(), EngineError> {
        let mut changed = Vec::new();
        while let Some((new, old)) = self.stack.pop() {
            let (Some(new), Some(old)) = (self.tree(&new)?, self.tree(&old)?) else {
                continue;
            };
            changed.clear();
            differ(&new, &old, &mut changed, &mut Vec::new());
            for changed in &changed {
                let entry = new.entry(changed.index as usize);
                if let (Some(entry), Some(before)) = (entry, changed.pair) {
                    self.note(entry.oid, before, entry.mode.is_tree(), own)?;
                }
            }
        }
        Ok(())
    }

    /// Notes an earlier version of `oid`, if that is the segment's own, and has trees walked.
    fn note(&mut self, oid: ObjectId, before: ObjectId, is_tree: bool, own: &Own) -> Result<(), EngineError> {
        let run = if is_tree { &own.trees } else { &own.blobs };
        let place = self.plan.find_oid(&oid).and_then(|number| self.plan.place(number));
        let Some(place) = place.filter(|place| run.contains(place) && oid != before) else {
            return Ok(());
        };
        if is_tree && self.walked.insert(place) {
            self.stack.push((oid, before));
        }
        let index = place.checked_sub(self.befores.first_tree).map(|index| index as usize);
        let packed = self.packed(&before)?;
        if let Some(slot) = index.and_then(|index| self.befores.of.get_mut(index))
            && *slot == NONE
        {
            *slot = packed;
        }
        Ok(())
    }

    fn packed(&mut self, oid: &ObjectId) -> Result<u32, EngineError> {
        if let Some(place) = self.plan.find_oid(oid).and_then(|number| self.plan.place(number)) {
            return Ok(place);
        }
        if let Some((_, packed)) = self.last_outside.filter(|(last, _)| last == oid) {
            return Ok(packed);
        }
        let index = u32::try_from(self.befores.outside.len()).unwrap_or(OUTSIDE);
        if index >= OUTSIDE {
            return Err(EngineError::limit("bases of a layer in others", u64::from(OUTSIDE)));
        }
        self.befores.outside.push(*oid);
        self.last_outside = Some((*oid, index | OUTSIDE));
        Ok(index | OUTSIDE)
    }

    fn tree(&mut self, oid: &ObjectId) -> Result<Option<Tree>, EngineError> {
        let content = self.source.object(oid)?;
        Ok(Tree::parse(oid.format(), content))
    }
}
