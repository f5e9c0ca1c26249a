//! The server's half of a fetch: requests parsed, negotiation decided, answers written (git: upload-pack).
//!
//! What v0 and v2 ask for is the same [`PackRequest`]; how they ask and are answered is in [`v0`] and [`v2`].

pub mod answer;
pub mod ls_refs;
mod parse;
pub mod v0;
pub mod v2;

use std::num::NonZeroU32;

use bytes::Bytes;
use cuesta_git::ObjectId;

use crate::filter::FilterSpec;

pub(crate) use parse::decimal;

/// The depth that stands for a whole history: asked for by `fetch --unshallow`.
pub const DEPTH_INFINITE: u32 = 0x7fff_ffff;

/// Which objects a fetch is for, and how its pack may be made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PackRequest {
    /// The objects wanted, each once, in the order asked for. Whether the client may have them is for the server to
    /// check.
    pub wants: Vec<ObjectId>,
    /// Commits whose parents the client does not have, each once. Ids that are unknown here are to be ignored.
    pub shallow: Vec<ObjectId>,
    /// Where the history sent is to end.
    pub deepen: Deepen,
    /// Objects to leave out; already allowed by the server's policy.
    pub filter: Option<FilterSpec>,
    /// Whether deltas may have a base that only the client has.
    pub thin_pack: bool,
    /// Whether deltas may name their base by its offset.
    pub ofs_delta: bool,
    /// Whether annotated tags are to be added whose target is in the pack.
    pub include_tag: bool,
    /// Whether band 2 is to stay silent.
    pub no_progress: bool,
}

/// Where the history of a shallow fetch is to end (gitprotocol-pack, `deepen`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Deepen {
    /// Nothing was asked: the client's boundary stays.
    #[default]
    Unchanged,
    /// So many commits deep, counted from the wants.
    Depth(NonZeroU32),
    /// So many commits deeper than the client's boundary.
    Relative(NonZeroU32),
    /// Without commits that are too old or that some refs reach; at least one of the two is given.
    Excluding {
        /// No commits older than this, in seconds since 1970.
        since: Option<i64>,
        /// No commits that these refs reach. Names as the client gave them, full or short: unknown and ambiguous ones
        /// are to be refused.
        not: Vec<Bytes>,
    },
}

impl Deepen {
    /// Whether the whole history was asked for, whatever the client's boundary.
    pub fn is_infinite(&self) -> bool {
        matches!(self, Self::Depth(depth) if depth.get() == DEPTH_INFINITE)
    }
}
