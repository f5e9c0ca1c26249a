//! Finding out what both sides have.

use super::select::Targets;
use crate::graph::{Graph, Position};
use crate::{EngineError, View};
use cuesta_git::ObjectId;
use std::sync::Arc;

/// One negotiation: the wants, and the haves named so far. Pure bookkeeping over a view's graph, no I/O after `new`.
pub struct Negotiation {
    graph: Arc<Graph>,
    wants: Vec<Position>,
    common: Vec<ObjectId>,
    common_commits: Vec<Position>,
}

impl Negotiation {
    /// Starts with the wants. Those the view does not have are [`EngineError::NotOurRef`].
    pub async fn new(view: &View, wants: &[ObjectId]) -> Result<Self, EngineError> {
        let graph = view.graph().await?;
        let mut targets = Targets::default();
        for want in wants {
            if !targets.add(&graph, want)? {
                return Err(EngineError::NotOurRef(*want));
            }
        }
        Ok(Self {
            graph,
            wants: targets.commits,
            common: Vec::new(),
            common_commits: Vec::new(),
        })
    }

    /// Takes in an object the client says it has; true if the repository has it too.
    pub fn have(&mut self, oid: &ObjectId) -> Result<bool, EngineError> {
        let mut targets = Targets::default();
        let known = targets.add(&self.graph, oid)?;
        if known {
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
