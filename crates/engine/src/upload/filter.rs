//! Filters of partial clones (`git rev-list --filter`): which objects of a selection are left out.

use crate::graph::Slot;
use cuesta_git::{ObjectId, ObjectKind};

/// Which objects a client wants. What it names among its wants it gets in spite of its filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ObjectFilter {
    /// All of them.
    #[default]
    All,
    /// `blob:none`.
    NoBlobs,
    /// `blob:limit=<n>`: blobs below that many bytes.
    BlobsBelow(u64),
    /// `tree:<depth>`: trees and blobs fewer levels below a root tree than that, the root tree itself being at 0.
    TreeDepth(u64),
    /// `object:type=<kind>`.
    Kind(ObjectKind),
    /// `sparse:oid=<blob>`: blobs that stand at a path which the patterns in that blob mean.
    Sparse(ObjectId),
    /// `combine:`, what passes all of them.
    Combined(Vec<ObjectFilter>),
}

/// A filter, taken apart into what each object is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sieve {
    kinds: [bool; 4],
    /// Blobs are smaller than this.
    blob_bytes_end: Option<u64>,
    /// Trees and blobs are fewer levels deep than this; never 0.
    tree_levels: Option<u64>,
    /// Blobs stand at certain paths.
    sparse: bool,
}

/// The kinds, in the order of [`Sieve::kinds`].
const KINDS: [ObjectKind; 4] = [ObjectKind::Commit, ObjectKind::Tag, ObjectKind::Tree, ObjectKind::Blob];

impl Sieve {
    const ALL: Self = Self {
        kinds: [true; 4],
        blob_bytes_end: None,
        tree_levels: None,
        sparse: false,
    };

    pub(super) fn of(filter: &ObjectFilter) -> Self {
        let mut sieve = Self::ALL;
        sieve.narrow(filter);
        sieve
    }

    fn narrow(&mut self, filter: &ObjectFilter) {
        match filter {
            ObjectFilter::All => {}
            ObjectFilter::NoBlobs | ObjectFilter::BlobsBelow(0) => self.keep_kinds(|kind| kind != ObjectKind::Blob),
            ObjectFilter::TreeDepth(0) => self.keep_kinds(|kind| !matches!(kind, ObjectKind::Tree | ObjectKind::Blob)),
            ObjectFilter::BlobsBelow(end) => self.blob_bytes_end = least(self.blob_bytes_end, *end),
            ObjectFilter::TreeDepth(levels) => self.tree_levels = least(self.tree_levels, *levels),
            ObjectFilter::Kind(only) => self.keep_kinds(|kind| kind == *only),
            ObjectFilter::Sparse(_) => self.sparse = true,
            ObjectFilter::Combined(parts) => parts.iter().for_each(|part| self.narrow(part)),
        }
    }

    fn keep_kinds(&mut self, keep: impl Fn(ObjectKind) -> bool) {
        for (kept, kind) in self.kinds.iter_mut().zip(KINDS) {
            *kept &= keep(kind);
        }
    }

    /// Whether everything passes.
    pub(super) fn is_open(&self) -> bool {
        *self == Self::ALL
    }

    /// Whether any object of that kind may pass.
    pub(super) fn takes(&self, kind: ObjectKind) -> bool {
        self.kinds.iter().zip(KINDS).any(|(kept, one)| *kept && one == kind)
    }

    /// How many levels of trees are looked at, if not all.
    pub(super) fn tree_levels(&self) -> Option<u64> {
        self.tree_levels
    }

    /// Whether it matters at which paths blobs stand.
    pub(super) fn is_sparse(&self) -> bool {
        self.sparse && self.takes(ObjectKind::Blob)
    }

    /// Whether the entry passes, as far as its cue tells: all but its depth and its paths.
    pub(super) fn passes(&self, slot: &Slot, entry: u32) -> bool {
        let kind = slot.index.kind(entry);
        let small = |end: u64| kind != ObjectKind::Blob || slot.index.entries.size(entry) < end;
        self.takes(kind) && self.blob_bytes_end.is_none_or(small)
    }
}

fn least(a: Option<u64>, b: u64) -> Option<u64> {
    Some(a.map_or(b, |a| a.min(b)))
}
