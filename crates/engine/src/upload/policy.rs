//! Which objects a client may ask for by id.

use crate::{EngineError, Graph, View};
use cuesta_git::{HiddenRefs, ObjectId};
use std::collections::HashSet;
use std::sync::Arc;

/// Which objects a client may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantPolicy {
    /// What a shown ref names.
    Tips,
    /// What any ref, hidden ones too, names (`uploadpack.allowTipSHA1InWant`).
    AnyTips,
    /// What a shown ref reaches.
    Reachable,
    /// What any ref, hidden ones too, reaches (`uploadpack.allowReachableSHA1InWant`).
    ReachableFromAny,
    /// Whatever the repository has in a layer that vouches for its objects (`uploadpack.allowAnySHA1InWant`).
    Any,
}

impl WantPolicy {
    /// The rules that hide refs from this policy, of those that hide them from clients.
    fn hidden(self, hidden: &HiddenRefs) -> HiddenRefs {
        match self {
            Self::Tips | Self::Reachable => hidden.clone(),
            _ => HiddenRefs::default(),
        }
    }

    fn goes_beyond_tips(self) -> bool {
        matches!(self, Self::Reachable | Self::ReachableFromAny)
    }
}

/// The first of `wants` that the policy refuses or the view does not have.
///
/// Cost: a look at the refs until all wants are found there. Others cost, where the policy lets them, a look-up each and
/// for the first in a view a walk over the history of its refs ([`View::reach`]).
pub async fn refused_want(
    view: &View,
    wants: &[ObjectId],
    policy: WantPolicy,
    hidden: &HiddenRefs,
) -> Result<Option<ObjectId>, EngineError> {
    if policy == WantPolicy::Any {
        let graph = view.graph().await?;
        let unknown = wants.iter().find(|want| graph.locate_vouched(want).is_none());
        return Ok(unknown.copied());
    }
    let hidden = policy.hidden(hidden);
    let others = without_tips(view, wants, &hidden);
    let Some(first) = wants.iter().find(|want| others.contains(want)) else {
        return Ok(None);
    };
    if !policy.goes_beyond_tips() {
        return Ok(Some(*first));
    }
    let reach = view.reach(&hidden).await?;
    for want in wants.iter().filter(|want| others.contains(want)) {
        if !reach.reaches(want)? {
            return Ok(Some(*want));
        }
    }
    Ok(None)
}

/// Whether a client may have `oid`; answered from what is kept of the view, so that asking often is cheap. What hidden refs
/// alone name or reach it may have where the policy goes that far.
pub async fn may_have(
    view: &View,
    oid: &ObjectId,
    policy: WantPolicy,
    hidden: &HiddenRefs,
) -> Result<bool, EngineError> {
    match policy {
        WantPolicy::Any => Ok(view.graph().await?.locate_vouched(oid).is_some()),
        _ => view.reach(&policy.hidden(hidden)).await?.reaches(oid),
    }
}

/// What a client may learn of in a view where refs are hidden from it: what the others reach.
#[derive(Clone)]
pub struct Shown {
    view: View,
    graph: Arc<Graph>,
    hidden: HiddenRefs,
}

impl Shown {
    /// Whether a shown ref reaches `oid`. Not for the reactor: the first who asks of a view walks over the history of its refs.
    pub fn reaches(&self, oid: &ObjectId) -> Result<bool, EngineError> {
        self.view
            .reach_here(Arc::clone(&self.graph), &self.hidden)?
            .reaches(oid)
    }
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shown")
            .field("view", &self.view)
            .field("hidden", &self.hidden)
            .finish_non_exhaustive()
    }
}

/// What bounds the objects whose being here a client may learn of, which is what it may ask for; `None` if nothing does.
pub async fn shown_to(view: &View, policy: WantPolicy, hidden: &HiddenRefs) -> Result<Option<Shown>, EngineError> {
    let hidden = policy.hidden(hidden);
    if hidden.is_empty() {
        return Ok(None);
    }
    let (view, graph) = (view.clone(), view.graph().await?);
    Ok(Some(Shown { view, graph, hidden }))
}

/// Those of `wants` that no shown ref names.
fn without_tips(view: &View, wants: &[ObjectId], hidden: &HiddenRefs) -> HashSet<ObjectId> {
    let mut others: HashSet<ObjectId> = wants.iter().copied().collect();
    for (name, target) in view.state().refs() {
        if others.is_empty() {
            break;
        }
        if others.contains(&target.oid) && !hidden.hides(name) {
            others.remove(&target.oid);
        }
    }
    others
}
