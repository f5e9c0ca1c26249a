//! Finding out what both sides have.

use super::Shown;
use super::select::Targets;
use crate::graph::{Graph, Position, PositionSet};
use crate::{EngineError, View};
use cuesta_git::ObjectId;
use std::collections::HashSet;
use std::sync::Arc;

/// One negotiation: the wants, and the haves named so far. Pure bookkeeping over a view's graph, no I/O after `new`.
pub struct Negotiation {
    graph: Arc<Graph>,
    /// What the client may learn of; all that the repository has if not said.
    shown: Option<Shown>,
    wants: Vec<Position>,
    wanted: Wanted,
    common: Vec<ObjectId>,
    /// The same, to find them: who names an object again and again adds nothing.
    named: HashSet<ObjectId>,
    common_commits: Vec<Position>,
}

impl Negotiation {
    /// Starts with the wants. Those the view does not have are [`EngineError::NotOurRef`].
    ///
    /// With `shown` ([`super::shown_to`]) only what that reaches is ever known: who guesses an id by which refs that are
    /// hidden from them go is told nothing.
    pub async fn new(view: &View, wants: &[ObjectId], shown: Option<Shown>) -> Result<Self, EngineError> {
        let graph = view.graph().await?;
        let mut targets = Targets::default();
        for want in wants {
            if !targets.add(&graph, want)? {
                return Err(EngineError::NotOurRef(*want));
            }
        }
        let generations = targets.commits.iter().map(|want| graph.generation(*want));
        let wanted = Wanted {
            top: generations.max().unwrap_or(0),
            swept: None,
        };
        Ok(Self {
            graph,
            shown,
            wanted,
            wants: targets.commits,
            common: Vec::new(),
            named: HashSet::new(),
            common_commits: Vec::new(),
        })
    }

    /// Takes in an object the client says it has; true if the repository has it too, as far as the client may know.
    pub fn have(&mut self, oid: &ObjectId) -> Result<bool, EngineError> {
        let mut targets = Targets::default();
        let known = targets.add(&self.graph, oid)? && self.is_shown(oid, &targets)?;
        if known && self.named.insert(*oid) {
            self.common.push(*oid);
            self.common_commits.append(&mut targets.commits);
        }
        Ok(known)
    }

    /// Whether the client may know of an object that comes down to `targets`. What its wants reach it may, and that is mostly
    /// what it has: then nobody need know what all shown refs reach.
    fn is_shown(&mut self, oid: &ObjectId, targets: &Targets) -> Result<bool, EngineError> {
        let Some(shown) = &self.shown else { return Ok(true) };
        if let ([commit], []) = (&targets.commits[..], &targets.tags[..])
            && self.wanted.reach(&self.graph, &self.wants, *commit)?
        {
            return Ok(true);
        }
        shown.reaches(oid)
    }

    /// What both sides have, in the order it was named: [`super::UploadRequest::common`].
    pub fn common(&self) -> &[ObjectId] {
        &self.common
    }

    /// Whether every wanted commit has a common ancestor, so that more haves would only make the pack smaller (git's
    /// `ok_to_give_up`). Wants that lead to no commit do not hold it up.
    pub fn is_ready(&self) -> Result<bool, EngineError> {
        Ok(!self.common.is_empty() && self.graph.all_reach(&self.wants, &self.common_commits)?)
    }
}

/// The commits that wants reach, as far down as somebody asked.
struct Wanted {
    /// The greatest generation of a want.
    top: u32,
    /// Those of this generation and above.
    swept: Option<(u32, PositionSet)>,
}

impl Wanted {
    /// Whether `wants` reach `commit`. Each sweep goes twice as deep as asked, so that all together cost twice the last.
    fn reach(&mut self, graph: &Graph, wants: &[Position], commit: Position) -> Result<bool, EngineError> {
        let (commit, generation) = (graph.canonical(commit)?, graph.generation(commit));
        let Some(depth) = self.top.checked_sub(generation) else {
            return Ok(false);
        };
        let swept = self.swept.take().filter(|(to, _)| *to <= generation);
        let (to, commits) = match swept {
            Some(swept) => swept,
            None => {
                let to = self.top.saturating_sub(depth.max(1).saturating_mul(2));
                (to, graph.ancestors(wants, to)?)
            }
        };
        let found = commits.contains(commit);
        self.swept = Some((to, commits));
        Ok(found)
    }
}
