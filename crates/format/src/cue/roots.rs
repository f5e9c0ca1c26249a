//! The roots section: trees and blobs that refs or tags point at, and what tags point at (docs/format/cue.md, "Roots").

use super::column::{Carver, Column};
use super::{CueCounts, CueHeader, Links, SectionKind, kind_from_code};
use crate::Result;
use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind};
use std::ops::Range;

/// The root sets of a layer, and the targets of its tags. A root set is what a segment is, without a commit.
///
/// Accessors are total, as those of [`super::Segments`].
#[derive(Clone, Debug)]
pub struct Roots {
    section: Bytes,
    format: ObjectFormat,
    counts: CueCounts,
    tree_starts: Column,
    blob_starts: Column,
    link_starts: Column,
    links: Column,
    oids: Column,
    target_oids: Column,
    kinds: Column,
    target_kinds: Column,
}

impl Roots {
    /// The view of the section's bytes, which are empty where the layer has neither root sets nor tags.
    pub fn new(header: &CueHeader, section: Bytes) -> Result<Self> {
        header.check(SectionKind::Roots, &section)?;
        let (format, counts) = (header.object_format, header.counts);
        let (count, tags) = (u64::from(counts.roots), u64::from(counts.tags));
        let starts = if count == 0 && tags == 0 { 0 } else { count + 1 };
        let mut carver = Carver::new(SectionKind::Roots.name(), &section);
        let roots = Self {
            format,
            counts,
            tree_starts: carver.column(starts, 4)?,
            blob_starts: carver.column(starts, 4)?,
            link_starts: carver.column(starts, 4)?,
            links: carver.column(counts.root_links.into(), 4)?,
            oids: carver.column(count, format.width())?,
            target_oids: carver.column(tags, format.width())?,
            kinds: carver.column(count, 1)?,
            target_kinds: carver.column(tags, 1)?,
            section: section.clone(),
        };
        carver.finish()?;
        Ok(roots)
    }

    /// How many root sets there are.
    #[inline]
    pub fn len(&self) -> u32 {
        self.counts.roots
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tree or blob whose closure the set is.
    pub fn oid(&self, root: u32) -> ObjectId {
        self.oids.oid(&self.section, root as usize, self.format)
    }

    /// Whether that is a tree or a blob.
    pub fn kind(&self, root: u32) -> ObjectKind {
        self.stored_kind(root).unwrap_or(ObjectKind::Blob)
    }

    pub(super) fn stored_kind(&self, root: u32) -> Option<ObjectKind> {
        self.kinds.u8(&self.section, root as usize).and_then(kind_from_code)
    }

    /// The tree entries that the set adds.
    pub fn trees(&self, root: u32) -> Range<u32> {
        self.tree_starts
            .range(&self.section, root as usize, self.counts.tree_entries().end)
    }

    /// The blob entries that the set adds.
    pub fn blobs(&self, root: u32) -> Range<u32> {
        self.blob_starts
            .range(&self.section, root as usize, self.counts.blob_entries().end)
    }

    /// What the set names that is stored outside its runs.
    pub fn links(&self, root: u32) -> Links<'_> {
        let range = self
            .link_starts
            .range(&self.section, root as usize, self.counts.root_links);
        Links::new(&self.section, self.links, range)
    }

    /// The root set whose run the entry is in.
    pub fn of_entry(&self, entry: u32) -> Option<u32> {
        match self.counts.kind(entry) {
            ObjectKind::Commit | ObjectKind::Tag => None,
            ObjectKind::Tree => self.tree_starts.run_of(&self.section, entry),
            ObjectKind::Blob => self.blob_starts.run_of(&self.section, entry),
        }
    }

    /// What the tag that is this entry points at; `None` if the entry is no tag.
    pub fn tag_target(&self, entry: u32) -> Option<(ObjectId, ObjectKind)> {
        let tag = self
            .counts
            .tag_entries()
            .contains(&entry)
            .then(|| entry - self.counts.commits)? as usize;
        let kind = self.target_kinds.u8(&self.section, tag).and_then(kind_from_code)?;
        Some((self.target_oids.oid(&self.section, tag, self.format), kind))
    }
}
