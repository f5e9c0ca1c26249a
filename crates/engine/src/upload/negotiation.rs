//! Finding out what both sides have.

use super::Reach;
use super::select::Targets;
use crate::graph::{Graph, Position};
use crate::{EngineError, View};
use cuesta_git::ObjectId;
use std::collections::HashSet;
use std::sync::Arc;

/// One negotiation: the wants, and the haves named so far. Pure bookkeeping over a view's graph, no I/O after `new`.
pub struct Negotiation {
    graph: Arc<Graph>,
    /// What the client may learn of; all that the repository has if not said.
    shown: Option<Arc<Reach>>,
    wants: Vec<Position>,
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
    pub async fn new(view: &View, wants: &[ObjectId], shown: Option<Arc<Reach>>) -> Result<Self, EngineError> {
        let graph = view.graph().await?;
        let mut targets = Targets::default();
        for want in wants {
            if !targets.add(&graph, want)? {
                return Err(EngineError::NotOurRef(*want));
            }
        }
        Ok(Self {
            graph,
            shown,
            wants: targets.commits,
            common: Vec::new(),
            named: HashSet::new(),
            common_commits: Vec::new(),
        })
    }

    /// Takes in an object the client says it has; true if the repository has it too, as far as the client may know.
    pub fn have(&mut self, oid: &ObjectId) -> Result<bool, EngineError> {
        if let Some(shown) = &self.shown
            && !shown.reaches(oid)?
        {
            return Ok(false);
        }
        let mut targets = Targets::default();
        let known = targets.add(&self.graph, oid)?;
        if known && self.named.insert(*oid) {
            self.common.push(*oid);
            self.common_commits.append(&mut targets.commits);
        }
        Ok(known)
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
