//! The segments section: what each commit adds (docs/format/cue.md, "Segments").

use super::column::{Carver, Column};
use super::{CueCounts, CueHeader, Links, SectionKind};
use crate::Result;
use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind};
use std::ops::Range;

/// The segments of a layer, parents before children. Segment `i` is that of the commit which is entry `i`.
///
/// Accessors are total: past the end, ranges and iterators are empty and values are zero. Ranges never reach outside the
/// entries of their kind; links and parents may name anything until [`super::Cue::verify`] has checked them.
#[derive(Clone, Debug)]
pub struct Segments {
    section: Bytes,
    format: ObjectFormat,
    counts: CueCounts,
    commit_times: Column,
    generations: Column,
    parent_starts: Column,
    tree_starts: Column,
    blob_starts: Column,
    link_starts: Column,
    root_trees: Column,
    parents: Column,
    links: Column,
}

impl Segments {
    /// The view of the section's bytes, which are empty where the layer has no segments.
    pub fn new(header: &CueHeader, section: Bytes) -> Result<Self> {
        header.check(SectionKind::Segments, &section)?;
        let (format, counts) = (header.object_format, header.counts);
        let count = u64::from(counts.segments);
        // An absent section has no starts either.
        let starts = if count == 0 { 0 } else { count + 1 };
        let mut carver = Carver::new(SectionKind::Segments.name(), &section);
        let segments = Self {
            format,
            counts,
            commit_times: carver.column(count, 8)?,
            generations: carver.column(count, 4)?,
            parent_starts: carver.column(starts, 4)?,
            tree_starts: carver.column(starts, 4)?,
            blob_starts: carver.column(starts, 4)?,
            link_starts: carver.column(starts, 4)?,
            root_trees: carver.column(count, format.width())?,
            parents: carver.column(counts.parents.into(), 4)?,
            links: carver.column(counts.links.into(), 4)?,
            section: section.clone(),
        };
        carver.finish()?;
        Ok(segments)
    }

    /// How many segments there are.
    #[inline]
    pub fn len(&self) -> u32 {
        self.counts.segments
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The commit's parents in its own order: segments of this layer, or externals.
    #[inline]
    pub fn parents(&self, segment: u32) -> Links<'_> {
        let range = self
            .parent_starts
            .range(&self.section, segment as usize, self.counts.parents);
        Links::new(&self.section, self.parents, range)
    }

    /// One more than the highest generation among the parents; 1 where there are none.
    #[inline]
    pub fn generation(&self, segment: u32) -> u32 {
        self.generations.u32(&self.section, segment as usize).unwrap_or(0)
    }

    /// The committer's time, in seconds since the Unix epoch.
    #[inline]
    pub fn commit_time(&self, segment: u32) -> i64 {
        self.commit_times.i64(&self.section, segment as usize).unwrap_or(0)
    }

    /// The tree of the commit.
    #[inline]
    pub fn root_tree(&self, segment: u32) -> ObjectId {
        self.root_trees.oid(&self.section, segment as usize, self.format)
    }

    /// The tree entries that the commit adds.
    #[inline]
    pub fn trees(&self, segment: u32) -> Range<u32> {
        self.tree_starts
            .range(&self.section, segment as usize, self.counts.tree_entries().end)
    }

    /// The blob entries that the commit adds.
    #[inline]
    pub fn blobs(&self, segment: u32) -> Range<u32> {
        self.blob_starts
            .range(&self.section, segment as usize, self.counts.blob_entries().end)
    }

    /// What the commit adds that is stored outside its runs: entries of this layer, or externals.
    #[inline]
    pub fn links(&self, segment: u32) -> Links<'_> {
        let range = self
            .link_starts
            .range(&self.section, segment as usize, self.counts.links);
        Links::new(&self.section, self.links, range)
    }

    /// The segment whose commit or run the entry is. `None` for tags and for what only roots hold.
    pub fn of_entry(&self, entry: u32) -> Option<u32> {
        match self.counts.kind(entry) {
            ObjectKind::Commit => Some(entry).filter(|segment| *segment < self.len()),
            ObjectKind::Tag => None,
            ObjectKind::Tree => self.tree_starts.run_of(&self.section, entry),
            ObjectKind::Blob => self.blob_starts.run_of(&self.section, entry),
        }
    }
}
