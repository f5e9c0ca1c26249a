//! Which objects a client may ask for by id.

use super::select::Targets;
use crate::graph::{Graph, Position, PositionSet};
use crate::{EngineError, View};
use cuesta_git::{ObjectId, ObjectKind, RefName};
use std::collections::HashSet;
use std::sync::Arc;

/// Which objects a client may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantPolicy {
    /// What a visible ref names.
    Tips,
    /// What any ref, hidden ones too, names (`uploadpack.allowTipSHA1InWant`).
    AnyTips,
    /// What a visible ref reaches (`uploadpack.allowReachableSHA1InWant`).
    Reachable,
    /// Whatever the repository has in a layer that vouches for its objects (`uploadpack.allowAnySHA1InWant`).
    Any,
}

/// The first of `wants` that the policy refuses or the view does not have. `visible` tells the refs that are not hidden.
///
/// Wants that refs name cost a hash look-up each. Others, under [`WantPolicy::Reachable`], cost one walk over the
/// history of all visible refs, and a tree or blob that only links lead to costs a scan of the cues.
pub async fn refused_want(
    view: &View,
    wants: &[ObjectId],
    policy: WantPolicy,
    visible: impl Fn(&RefName) -> bool + Send + Sync,
) -> Result<Option<ObjectId>, EngineError> {
    if policy == WantPolicy::Any {
        let graph = view.graph().await?;
        let unknown = wants.iter().find(|want| graph.locate_vouched(want).is_none());
        return Ok(unknown.copied());
    }
    let refs = view.state().refs();
    let tips: HashSet<ObjectId> = refs
        .iter()
        .filter(|(name, _)| policy == WantPolicy::AnyTips || visible(name))
        .map(|(_, target)| target.oid)
        .collect();
    let others: Vec<ObjectId> = wants.iter().filter(|want| !tips.contains(want)).copied().collect();
    match others.first() {
        None => Ok(None),
        Some(first) if policy != WantPolicy::Reachable => Ok(Some(*first)),
        Some(_) => {
            let graph = view.graph().await?;
            let workers = view.world().workers.clone();
            workers
                .run(move || Reach::new(graph, &tips)?.first_beyond(&others))
                .await
        }
    }
}

/// What a set of refs reaches. Memory: a bit for each commit.
pub struct Reach {
    graph: Arc<Graph>,
    commits: PositionSet,
    /// Tags, and trees and blobs that refs or tags name.
    others: HashSet<Position>,
}

impl Reach {
    /// What the refs reach that `visible` lets through. Cost: a walk over their history.
    pub async fn of_refs(view: &View, visible: impl Fn(&RefName) -> bool + Send + Sync) -> Result<Self, EngineError> {
        let refs = view.state().refs().iter().filter(|(name, _)| visible(name));
        let tips: HashSet<ObjectId> = refs.map(|(_, target)| target.oid).collect();
        let graph = view.graph().await?;
        view.world().workers.clone().run(move || Self::new(graph, &tips)).await
    }

    fn new(graph: Arc<Graph>, tips: &HashSet<ObjectId>) -> Result<Self, EngineError> {
        let mut targets = Targets::default();
        for tip in tips {
            targets.add(&graph, tip)?;
        }
        let commits = graph.ancestors(&targets.commits, 0)?;
        let others = [targets.tags, targets.trees, targets.blobs]
            .concat()
            .into_iter()
            .collect();
        Ok(Self { graph, commits, others })
    }

    fn first_beyond(&self, wants: &[ObjectId]) -> Result<Option<ObjectId>, EngineError> {
        for want in wants {
            if !self.reaches(want)? {
                return Ok(Some(*want));
            }
        }
        Ok(None)
    }

    /// Whether `oid` is reached. A tree or blob that only links lead to costs a scan of the cues.
    pub fn reaches(&self, oid: &ObjectId) -> Result<bool, EngineError> {
        let Some(position) = self.graph.locate(oid) else {
            return Ok(false);
        };
        let slot = self.graph.slot(position.slot)?;
        match slot.index.kind(position.entry) {
            ObjectKind::Commit => Ok(self.commits.contains(position)),
            ObjectKind::Tag => Ok(self.others.contains(&position)),
            _ => Ok(self.others.contains(&position) || self.in_a_set(oid)? || self.in_a_link(oid)?),
        }
    }

    /// Whether a copy of the object is in the run of a segment or root set that the refs reach.
    fn in_a_set(&self, oid: &ObjectId) -> Result<bool, EngineError> {
        for number in 0..self.graph.slot_count() {
            let slot = self.graph.slot(number)?;
            let Some(entry) = slot.index.find(oid) else { continue };
            if let Some(segment) = slot.history.segments.of_entry(entry) {
                let commit = self.graph.canonical(Position {
                    slot: number,
                    entry: segment,
                })?;
                if self.commits.contains(commit) {
                    return Ok(true);
                }
            }
            let root = slot
                .history
                .roots
                .of_entry(entry)
                .map(|root| slot.history.roots.oid(root));
            if root.is_some_and(|root| self.names(&root)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a segment or root set that the refs reach links to the object.
    fn in_a_link(&self, oid: &ObjectId) -> Result<bool, EngineError> {
        for number in 0..self.graph.slot_count() {
            let slot = self.graph.slot(number)?;
            let is_it = |link| match link {
                cuesta_format::Link::Local(entry) => slot.index.oid(entry).as_ref() == Some(oid),
                cuesta_format::Link::External(external) => slot.index.externals.oid(external) == *oid,
            };
            for segment in 0..slot.history.segments.len() {
                if slot.history.segments.links(segment).any(is_it)
                    && self.commits.contains(self.graph.canonical(Position {
                        slot: number,
                        entry: segment,
                    })?)
                {
                    return Ok(true);
                }
            }
            let roots = &slot.history.roots;
            if (0..roots.len()).any(|root| roots.links(root).any(is_it) && self.names(&roots.oid(root))) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a ref, or a tag that a ref names, names the tree or blob `oid`.
    fn names(&self, oid: &ObjectId) -> bool {
        self.graph.locate(oid).is_some_and(|root| self.others.contains(&root))
    }
}
