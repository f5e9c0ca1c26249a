//! Walks over the commit graph. Cost in commits visited; every walk stops at generations that cannot matter.

use super::order::Turn;
use super::{Graph, Parents, Position, PositionSet};
use crate::EngineError;
use std::collections::{BTreeSet, BinaryHeap};

/// What a fetch must send, as commits.
#[derive(Clone, Debug)]
pub struct SendSet {
    /// ancestors(wants) − ancestors(common), both inclusive.
    pub send: PositionSet,
    /// Some of ancestors(common): those the walk met. [`Graph::ancestors`] gives them all.
    pub common: PositionSet,
}

impl Graph {
    /// The commits reachable from `tips`, inclusive, whose generation is at least `generation_min`.
    ///
    /// Within a layer segments are in topological order, so one descending sweep over its bits is a whole walk: no queue
    /// of commits. A layer is swept again only if a layer swept later leads back into it.
    pub fn ancestors(&self, tips: &[Position], generation_min: u32) -> Result<PositionSet, EngineError> {
        self.reachable(tips, None, generation_min)
    }

    /// As [`Graph::ancestors`], but not beyond the commits of `cut`: those are reached, their parents are not.
    pub(crate) fn reachable(
        &self,
        tips: &[Position],
        cut: Option<&PositionSet>,
        generation_min: u32,
    ) -> Result<PositionSet, EngineError> {
        let mut sweep = Sweep {
            graph: self,
            generation_min,
            cut,
            seen: PositionSet::new(self.slot_count()),
            pending: PositionSet::new(self.slot_count()),
            slots: BTreeSet::new(),
        };
        for &tip in tips {
            sweep.reach(self.canonical(tip)?)?;
        }
        while let Some(slot) = sweep.slots.pop_last() {
            sweep.drain(slot)?;
        }
        Ok(sweep.seen)
    }

    /// Whether `commit` is one of `tips` or an ancestor of one.
    pub fn is_reachable(&self, commit: Position, tips: &[Position]) -> Result<bool, EngineError> {
        let commit = self.canonical(commit)?;
        Ok(tips.contains(&commit) || self.ancestors(tips, self.generation(commit))?.contains(commit))
    }

    /// ancestors(wants) − ancestors(common). With nothing in common it is a sweep; else both are painted downwards, the
    /// youngest first, until nothing but common commits is left to visit.
    pub fn send_set(&self, wants: &[Position], common: &[Position]) -> Result<SendSet, EngineError> {
        if common.is_empty() {
            let send = self.ancestors(wants, 0)?;
            return Ok(SendSet {
                send,
                common: PositionSet::new(self.slot_count()),
            });
        }
        let mut paint = Paint::new(self);
        for &commit in common {
            paint.reach(self.canonical(commit)?, Colour::Common)?;
        }
        for &want in wants {
            paint.reach(self.canonical(want)?, Colour::Want)?;
        }
        paint.run(None)
    }

    /// ancestors(wants) − ancestors(excluded), without commits older than `since` (seconds since the Unix epoch) and all
    /// that those reach, as `git rev-list --max-age` has it.
    pub(crate) fn send_since(
        &self,
        wants: &[Position],
        excluded: &[Position],
        since: Option<i64>,
    ) -> Result<PositionSet, EngineError> {
        let mut paint = Paint::new(self);
        for &commit in excluded {
            paint.reach(self.canonical(commit)?, Colour::Common)?;
        }
        for &want in wants {
            paint.reach(self.canonical(want)?, Colour::Want)?;
        }
        Ok(paint.run(since)?.send)
    }

    /// Whether every one of `wants` is one of `haves` or has one among its ancestors: what git's `ok_to_give_up` asks.
    pub fn all_reach(&self, wants: &[Position], haves: &[Position]) -> Result<bool, EngineError> {
        if haves.is_empty() {
            return Ok(false);
        }
        let mut search = Search {
            graph: self,
            generation_min: haves.iter().map(|have| self.generation(*have)).min().unwrap_or(0),
            reaching: PositionSet::new(self.slot_count()),
            visited: PositionSet::new(self.slot_count()),
        };
        for &have in haves {
            let have = self.canonical(have)?;
            search.reaching.insert(have, self.limit(have.slot)?);
        }
        for &want in wants {
            if !search.reaches(self.canonical(want)?)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Segments of the layer in `slot`.
    pub(crate) fn limit(&self, slot: u32) -> Result<u32, EngineError> {
        Ok(self.slot(slot)?.history.segments.len())
    }
}

struct Sweep<'a> {
    graph: &'a Graph,
    generation_min: u32,
    cut: Option<&'a PositionSet>,
    seen: PositionSet,
    /// Seen, and parents not looked at yet.
    pending: PositionSet,
    /// Layers with something pending. Newer layers mostly build on older ones, so the newest goes first.
    slots: BTreeSet<u32>,
}

impl Sweep<'_> {
    fn reach(&mut self, commit: Position) -> Result<(), EngineError> {
        let limit = self.graph.limit(commit.slot)?;
        if self.graph.generation(commit) >= self.generation_min && self.seen.insert(commit, limit) {
            self.pending.insert(commit, limit);
            self.slots.insert(commit.slot);
        }
        Ok(())
    }

    fn drain(&mut self, slot: u32) -> Result<(), EngineError> {
        let Some(mut pending) = self.pending.take(slot) else {
            return Ok(());
        };
        let mut at = u32::MAX;
        while let Some(entry) = pending.previous(at) {
            pending.remove(entry);
            at = entry;
            if self.cut.is_some_and(|cut| cut.contains(Position { slot, entry })) {
                continue;
            }
            for parent in self.graph.parents(Position { slot, entry })? {
                if parent.slot != slot {
                    self.reach(parent)?;
                } else if parent.entry >= entry {
                    return Err(self
                        .graph
                        .slot(slot)?
                        .layer
                        .corrupt("segments are not in topological order"));
                } else if self.graph.generation(parent) >= self.generation_min
                    && self.seen.insert(parent, pending.limit())
                {
                    pending.insert(parent.entry);
                }
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Colour {
    Want,
    Common,
}

struct Paint<'a> {
    graph: &'a Graph,
    want: PositionSet,
    common: PositionSet,
    queued: PositionSet,
    /// All children of a commit are visited before it.
    queue: BinaryHeap<Turn>,
    /// Commits in the queue that are not known to be common.
    open: u64,
}

impl<'a> Paint<'a> {
    fn new(graph: &'a Graph) -> Self {
        let empty = PositionSet::new(graph.slot_count());
        Self {
            graph,
            want: empty.clone(),
            common: empty.clone(),
            queued: empty,
            queue: BinaryHeap::new(),
            open: 0,
        }
    }

    fn reach(&mut self, commit: Position, colour: Colour) -> Result<(), EngineError> {
        let limit = self.graph.limit(commit.slot)?;
        let was_open = self.is_open(commit);
        match colour {
            Colour::Want => self.want.insert(commit, limit),
            Colour::Common => self.common.insert(commit, limit),
        };
        if self.queued.insert(commit, limit) {
            self.queue.push(self.graph.turn(commit)?);
        }
        match (was_open, self.is_open(commit)) {
            (false, true) => self.open += 1,
            (true, false) => self.open -= 1,
            _ => {}
        }
        Ok(())
    }

    fn is_open(&self, commit: Position) -> bool {
        self.want.contains(commit) && !self.common.contains(commit)
    }

    /// Paints until nothing is open. Commits older than `since` take the common colour.
    fn run(mut self, since: Option<i64>) -> Result<SendSet, EngineError> {
        let mut send = PositionSet::new(self.graph.slot_count());
        while self.open > 0 {
            let Some(Turn { commit, .. }) = self.queue.pop() else {
                break;
            };
            if since.is_some_and(|since| self.graph.commit_time(commit) < since) {
                self.reach(commit, Colour::Common)?;
            }
            let colour = if self.is_open(commit) {
                Colour::Want
            } else {
                Colour::Common
            };
            if colour == Colour::Want {
                self.open -= 1;
                send.insert(commit, self.graph.limit(commit.slot)?);
            }
            for parent in self.graph.parents(commit)? {
                self.graph.check_generations(commit, parent)?;
                self.reach(parent, colour)?;
            }
        }
        Ok(SendSet {
            send,
            common: self.common,
        })
    }
}

struct Search<'a> {
    graph: &'a Graph,
    generation_min: u32,
    /// Known to reach a have.
    reaching: PositionSet,
    /// Searched or being searched; what was searched and is not in `reaching` reaches none.
    visited: PositionSet,
}

impl Search<'_> {
    /// Depth first, first parents first; each commit is visited once for all wants.
    fn reaches(&mut self, want: Position) -> Result<bool, EngineError> {
        let mut path: Vec<(Position, Parents)> = Vec::new();
        let mut next = Some(want);
        loop {
            if let Some(commit) = next.take() {
                if self.reaching.contains(commit) {
                    return self.mark(&path).map(|()| true);
                }
                let deep_enough = self.graph.generation(commit) > self.generation_min;
                if deep_enough && self.visited.insert(commit, self.graph.limit(commit.slot)?) {
                    let mut parents = self.graph.parents(commit)?;
                    parents.reverse();
                    path.push((commit, parents));
                }
            }
            let Some((_, parents)) = path.last_mut() else {
                return Ok(false);
            };
            next = parents.pop();
            if next.is_none() {
                path.pop();
            }
        }
    }

    fn mark(&mut self, path: &[(Position, Parents)]) -> Result<(), EngineError> {
        for (commit, _) in path {
            self.reaching.insert(*commit, self.graph.limit(commit.slot)?);
        }
        Ok(())
    }
}
