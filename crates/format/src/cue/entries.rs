//! The entries section: where each entry is, what it is, and its delta base (docs/format/cue.md, "Entries").

use super::column::{Carver, Column};
use super::{CueCounts, CueHeader, Link, SectionKind};
use crate::Result;
use bytes::Bytes;
use cuesta_git::ObjectKind;
use std::ops::Range;

const NO_BASE: u32 = u32::MAX;

/// The object that an entry's delta applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// The entry is not a delta.
    None,
    /// Another entry of this layer.
    Entry(u32),
    /// The object of that index in [`super::Externals`], which is in another layer.
    External(u32),
}

impl Base {
    pub(super) fn encode(self) -> u32 {
        match self {
            Self::None => NO_BASE,
            Self::Entry(entry) => Link::Local(entry).encode(),
            Self::External(external) => Link::External(external).encode(),
        }
    }

    #[inline]
    pub(super) fn decode(code: u32) -> Self {
        match Link::decode(code) {
            _ if code == NO_BASE => Self::None,
            Link::Local(entry) => Self::Entry(entry),
            Link::External(external) => Self::External(external),
        }
    }
}

/// The entries of a layer's pack, in pack order: those of commits, tags and trees, and with [`Entries::with_blobs`] all.
///
/// Accessors are total: an entry past the end has offset and length 0, no base, and is a blob.
#[derive(Clone, Debug)]
pub struct Entries {
    counts: CueCounts,
    structure: Part,
    blobs: Part,
}

/// The entries of one section.
#[derive(Clone, Debug, Default)]
struct Part {
    section: Bytes,
    count: u32,
    offsets: Column,
    sizes: Column,
    bases: Column,
    ranks: Column,
}

impl Part {
    fn new(header: &CueHeader, kind: SectionKind, section: Bytes, count: u32) -> Result<Self> {
        header.check(kind, &section)?;
        let items = u64::from(count);
        let mut carver = Carver::new(kind.name(), &section);
        let part = Self {
            count,
            offsets: carver.column(items + 1, 8)?,
            sizes: carver.column(items, 8)?,
            bases: carver.column(items, 4)?,
            ranks: carver.column(items, 4)?,
            section: section.clone(),
        };
        carver.finish()?;
        Ok(part)
    }
}

impl Entries {
    /// The view of the section's bytes; fails if they are not those the header describes.
    pub fn new(header: &CueHeader, section: Bytes) -> Result<Self> {
        let [structure, _] = header.parts();
        Ok(Self {
            counts: header.counts,
            structure: Part::new(header, SectionKind::Entries, section, structure)?,
            blobs: Part::default(),
        })
    }

    /// The same with the blobs, whose section's bytes these are; they are empty where the layer has none, or no such section
    /// (version 1).
    pub fn with_blobs(self, header: &CueHeader, section: Bytes) -> Result<Self> {
        let blobs = match header.parts() {
            [_, 0] => {
                header.check(SectionKind::BlobEntries, &section)?;
                Part::default()
            }
            [_, blobs] => Part::new(header, SectionKind::BlobEntries, section, blobs)?,
        };
        Ok(Self { blobs, ..self })
    }

    /// The section that holds an entry, and the entry's place there. The structure's holds the end of its last entry, too.
    #[inline]
    fn part(&self, entry: u32) -> (&Part, usize) {
        match entry.checked_sub(self.structure.count) {
            Some(blob) if self.blobs.count > 0 => (&self.blobs, blob as usize),
            _ => (&self.structure, entry as usize),
        }
    }

    /// Whether the structure's section says of its end what the blobs' says of their start.
    pub(super) fn parts_meet(&self) -> bool {
        let end = self
            .structure
            .offsets
            .u64(&self.structure.section, self.structure.count as usize);
        self.blobs.count == 0 || end == self.blobs.offsets.u64(&self.blobs.section, 0)
    }

    /// How many entries it covers.
    #[inline]
    pub fn len(&self) -> u32 {
        // A header with more entries than a `u32` counts does not parse.
        self.structure.count.saturating_add(self.blobs.count)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the entry starts in the pack, in bytes. That of entry `len()` is where the last entry ends.
    #[inline]
    pub fn offset(&self, entry: u32) -> u64 {
        let (part, at) = self.part(entry);
        part.offsets.u64(&part.section, at).unwrap_or(0)
    }

    /// Bytes the entry takes in the pack: its header and its compressed data.
    #[inline]
    pub fn stored_len(&self, entry: u32) -> u64 {
        let range = self.range(entry);
        range.end - range.start
    }

    /// The bytes of the pack that are the entry.
    #[inline]
    pub fn range(&self, entry: u32) -> Range<u64> {
        self.run(entry..entry.saturating_add(1))
    }

    /// The bytes of the pack that are a run of entries.
    #[inline]
    pub fn run(&self, entries: Range<u32>) -> Range<u64> {
        let start = self.offset(entries.start);
        start..self.offset(entries.end).max(start)
    }

    /// Size of the object itself, inflated and with its delta applied, in bytes.
    #[inline]
    pub fn size(&self, entry: u32) -> u64 {
        let (part, at) = self.part(entry);
        part.sizes.u64(&part.section, at).unwrap_or(0)
    }

    /// What the entry's delta applies to.
    #[inline]
    pub fn base(&self, entry: u32) -> Base {
        let (part, at) = self.part(entry);
        Base::decode(part.bases.u32(&part.section, at).unwrap_or(NO_BASE))
    }

    /// The position of the entry's oid in [`super::Lookup`].
    #[inline]
    pub fn rank(&self, entry: u32) -> u32 {
        let (part, at) = self.part(entry);
        let rank = part.ranks.u32(&part.section, at).unwrap_or(u32::MAX);
        match entry < self.structure.count {
            true => rank,
            false => rank.saturating_add(self.structure.count),
        }
    }

    /// The kind of the object.
    #[inline]
    pub fn kind(&self, entry: u32) -> ObjectKind {
        self.counts.kind(entry)
    }
}
