//! What a client asks for, in the engine's terms.

use super::{Boundary, ObjectFilter, Offload};
use cuesta_git::{HiddenRefs, ObjectId};
use std::sync::Arc;

/// A fetch request after negotiation.
#[derive(Clone, Debug, Default)]
pub struct UploadRequest {
    /// Objects whose closure the client wants. Policy ([`crate::upload::refused_want`]) has let them pass.
    pub wants: Vec<ObjectId>,
    /// Objects the client has, with all they reach up to its boundary. What the repository does not know is ignored.
    pub common: Vec<ObjectId>,
    /// The client completes deltas on objects it has (`thin-pack`).
    pub thin: bool,
    /// The client reads deltas whose base is given by its distance (`ofs-delta`).
    pub ofs_delta: bool,
    /// Annotated tags of what is sent are to be sent too (`include-tag`).
    pub include_tag: bool,
    /// Tags that are not to be sent for that reason: those of refs that these rules hide.
    pub hidden: HiddenRefs,
    /// Where its history is to end, for the same wants and the same view ([`crate::upload::boundary`]); `None` if neither
    /// its history nor the answer's has an end before the roots.
    pub boundary: Option<Arc<Boundary>>,
    /// Which objects the client wants.
    pub filter: ObjectFilter,
    /// Whether the client may be left to fetch layers by URI ([`crate::upload::Plan::offloaded`]); `None` sends everything.
    pub offload: Option<Offload>,
    /// Objects that the client fetches by URIs of their own, if it would be sent them ([`crate::upload::Plan::left_out`]).
    pub left_out: Vec<ObjectId>,
}
