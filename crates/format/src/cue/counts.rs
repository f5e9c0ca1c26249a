//! How many there are of everything in a layer, and what follows from it about the entries (docs/format/layer.md).

use crate::error::malformed;
use crate::{FormatError, Result};
use cuesta_git::ObjectKind;
use std::ops::Range;

/// The most entries, externals or links a cue can hold: the highest bit of an index says "external".
pub const INDEX_COUNT_MAX: u32 = i32::MAX as u32;

/// How many there are of everything a cue describes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CueCounts {
    /// Commits: entries `0..commits`.
    pub commits: u32,
    /// Annotated tags: the entries after the commits.
    pub tags: u32,
    /// Trees: the entries after the tags.
    pub trees: u32,
    /// Blobs: the entries after the trees.
    pub blobs: u32,
    /// Segments; segment `i` belongs to the commit that is entry `i`. Commits past the last segment have none.
    pub segments: u32,
    /// Parents of all segments together.
    pub parents: u32,
    /// Links of all segments together.
    pub links: u32,
    /// Root sets.
    pub roots: u32,
    /// Links of all root sets together.
    pub root_links: u32,
    /// Externals.
    pub externals: u32,
}

impl CueCounts {
    /// All entries. Saturates; a parsed header has checked that they are at most [`INDEX_COUNT_MAX`].
    #[inline]
    pub fn entries(&self) -> u32 {
        self.commits
            .saturating_add(self.tags)
            .saturating_add(self.trees)
            .saturating_add(self.blobs)
    }

    /// The entries that are tags.
    #[inline]
    pub fn tag_entries(&self) -> Range<u32> {
        self.commits..self.commits.saturating_add(self.tags)
    }

    /// The entries that are trees.
    #[inline]
    pub fn tree_entries(&self) -> Range<u32> {
        let start = self.tag_entries().end;
        start..start.saturating_add(self.trees)
    }

    /// The entries that are blobs.
    #[inline]
    pub fn blob_entries(&self) -> Range<u32> {
        let start = self.tree_entries().end;
        start..start.saturating_add(self.blobs)
    }

    /// The kind of an entry, which its position tells. Past the end, a blob.
    #[inline]
    pub fn kind(&self, entry: u32) -> ObjectKind {
        if entry < self.commits {
            ObjectKind::Commit
        } else if entry < self.tag_entries().end {
            ObjectKind::Tag
        } else if entry < self.tree_entries().end {
            ObjectKind::Tree
        } else {
            ObjectKind::Blob
        }
    }

    /// The counts in the order of the header.
    pub(super) fn fields(&self) -> [u32; 10] {
        [
            self.commits,
            self.tags,
            self.trees,
            self.blobs,
            self.segments,
            self.parents,
            self.links,
            self.roots,
            self.root_links,
            self.externals,
        ]
    }

    pub(super) fn from_fields(fields: [u32; 10]) -> Self {
        let [
            commits,
            tags,
            trees,
            blobs,
            segments,
            parents,
            links,
            roots,
            root_links,
            externals,
        ] = fields;
        Self {
            commits,
            tags,
            trees,
            blobs,
            segments,
            parents,
            links,
            roots,
            root_links,
            externals,
        }
    }

    /// Checks the limits, and that the counts agree with each other.
    pub(super) fn check(&self) -> Result<()> {
        let entries = [self.commits, self.tags, self.trees, self.blobs]
            .into_iter()
            .map(u64::from)
            .sum();
        let bounded = [
            ("cue entries", entries),
            ("cue parents", self.parents.into()),
            ("cue links", self.links.into()),
            ("cue roots", self.roots.into()),
            ("cue root links", self.root_links.into()),
            ("cue externals", self.externals.into()),
        ];
        for (what, got) in bounded {
            if got > u64::from(INDEX_COUNT_MAX) {
                return Err(FormatError::Limit {
                    what,
                    max: INDEX_COUNT_MAX.into(),
                    got,
                });
            }
        }
        if self.segments > self.commits {
            return malformed("cue header", "more segments than commits");
        }
        Ok(())
    }
}
