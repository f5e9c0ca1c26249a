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

/// The entries of a layer's pack, in pack order.
///
/// Accessors are total: an entry past the end has offset and length 0, no base, and is a blob.
#[derive(Clone, Debug)]
pub struct Entries {
    section: Bytes,
    counts: CueCounts,
    offsets: Column,
    sizes: Column,
    bases: Column,
    ranks: Column,
}

impl Entries {
    /// The view of the section's bytes; fails if they are not those the header describes.
    pub fn new(header: &CueHeader, section: Bytes) -> Result<Self> {
        header.check(SectionKind::Entries, &section)?;
        let counts = header.counts;
        let count = u64::from(counts.entries());
        let mut carver = Carver::new(SectionKind::Entries.name(), &section);
        let offsets = carver.column(count + 1, 8)?;
        let sizes = carver.column(count, 8)?;
        let bases = carver.column(count, 4)?;
        let ranks = carver.column(count, 4)?;
        carver.finish()?;
        Ok(Self {
            section,
            counts,
            offsets,
            sizes,
            bases,
            ranks,
        })
    }

    /// How many entries there are.
    #[inline]
    pub fn len(&self) -> u32 {
        self.counts.entries()
    }

    /// Whether the pack has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the entry starts in the pack, in bytes. That of entry `len()` is where the last entry ends.
    #[inline]
    pub fn offset(&self, entry: u32) -> u64 {
        self.offsets.u64(&self.section, entry as usize).unwrap_or(0)
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
        self.sizes.u64(&self.section, entry as usize).unwrap_or(0)
    }

    /// What the entry's delta applies to.
    #[inline]
    pub fn base(&self, entry: u32) -> Base {
        Base::decode(self.bases.u32(&self.section, entry as usize).unwrap_or(NO_BASE))
    }

    /// The position of the entry's oid in [`super::Lookup`].
    #[inline]
    pub fn rank(&self, entry: u32) -> u32 {
        self.ranks.u32(&self.section, entry as usize).unwrap_or(u32::MAX)
    }

    /// The kind of the object.
    #[inline]
    pub fn kind(&self, entry: u32) -> ObjectKind {
        self.counts.kind(entry)
    }
}
