//! What a client asks for, in the engine's terms.

use crate::EngineError;
use cuesta_git::{ObjectId, ObjectKind, RefName};

/// A fetch request after negotiation.
#[derive(Clone, Debug, Default)]
pub struct UploadRequest {
    /// Objects whose closure the client wants. Policy ([`crate::upload::refused_want`]) has let them pass.
    pub wants: Vec<ObjectId>,
    /// Objects the client has, with all they reach. What the repository does not know is ignored.
    pub common: Vec<ObjectId>,
    /// The client completes deltas on objects it has (`thin-pack`).
    pub thin: bool,
    /// The client reads deltas whose base is given by its distance (`ofs-delta`).
    pub ofs_delta: bool,
    /// Annotated tags of what is sent are to be sent too (`include-tag`).
    pub include_tag: bool,
    /// Commits the client has without their parents. Not built yet.
    pub shallow: Vec<ObjectId>,
    /// How much history the client wants.
    pub deepen: Deepen,
    /// Which objects the client wants.
    pub filter: ObjectFilter,
}

/// How much history a client wants (gitprotocol-v2, fetch: `deepen`, `deepen-since`, `deepen-not`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Deepen {
    /// All of it.
    #[default]
    Full,
    /// That many commits from the wants, or (`relative`) beyond the client's present boundary. Not built yet.
    Depth {
        /// How many commits.
        commits: u32,
        /// Counted from the client's boundary.
        relative: bool,
    },
    /// What was committed after a time, or is not reachable from certain refs. Not built yet.
    Since {
        /// Seconds since the Unix epoch.
        time: Option<i64>,
        /// Refs whose history is left out.
        not: Vec<RefName>,
    },
}

/// Which objects a client wants (git-rev-list, `--filter`). Only [`ObjectFilter::All`] is built yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ObjectFilter {
    /// All of them.
    #[default]
    All,
    /// `blob:none`.
    NoBlobs,
    /// `blob:limit=<n>`: blobs below that many bytes.
    BlobsBelow(u64),
    /// `tree:<depth>`.
    TreeDepth(u32),
    /// `object:type=<kind>`.
    Kind(ObjectKind),
    /// `sparse:oid=<blob>`.
    Sparse(ObjectId),
    /// `combine:`, what passes all of them.
    Combined(Vec<ObjectFilter>),
}

impl UploadRequest {
    /// Refuses what is not built yet.
    pub(super) fn check_supported(&self) -> Result<(), EngineError> {
        if self.deepen != Deepen::Full {
            Err(EngineError::Unsupported("deepen"))
        } else if !self.shallow.is_empty() {
            Err(EngineError::Unsupported("fetching into a shallow repository"))
        } else if self.filter != ObjectFilter::All {
            Err(EngineError::Unsupported("filter"))
        } else {
            Ok(())
        }
    }
}
