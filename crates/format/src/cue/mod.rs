//! Cues: the index of a layer (docs/format/cue.md).
//!
//! A cue is a header and up to nine sections, each with its own checksum, so that a reader fetches only what it needs: those of
//! blobs are apart, at its end.
//! Views hold the bytes of one section and read from them in place. Their constructors check the section's length
//! against the header's counts, and its checksum; after that every access is in bounds. *Values* are checked at use:
//! accessors are total and clamp, so that an index that leads nowhere gives an empty answer and never a panic. A whole
//! check of all values is [`Cue::verify`], which costs a pass over the cue and belongs to fsck and recovery: cues are
//! only ever written by [`CueBuilder`], and the checksums tell accidents.

mod builder;
mod column;
mod counts;
mod entries;
mod externals;
mod filter;
mod finished;
mod header;
mod lookup;
mod roots;
mod segments;
mod verify;

pub use builder::{CueBuilder, SegmentRow};
pub use counts::{CueCounts, INDEX_COUNT_MAX};
pub use entries::{Base, Entries};
pub use externals::Externals;
pub use filter::Filter;
pub use finished::{EntryFacts, FinishedCue};
pub use header::{CueHeader, SectionKind};
pub use lookup::Lookup;
pub use roots::Roots;
pub use segments::Segments;

use crate::{FormatError, Result};
use bytes::Bytes;
use column::Column;
use cuesta_git::{ObjectId, ObjectKind};
use std::ops::Range;

const EXTERNAL: u32 = 1 << 31;

/// A reference to something in this layer or in another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Link {
    /// In this layer: a segment for parents, an entry for links.
    Local(u32),
    /// The object of that index in [`Externals`].
    External(u32),
}

impl Link {
    fn encode(self) -> u32 {
        match self {
            Self::Local(index) => index,
            Self::External(index) => index | EXTERNAL,
        }
    }

    #[inline]
    fn decode(code: u32) -> Self {
        if code & EXTERNAL == 0 {
            Self::Local(code)
        } else {
            Self::External(code & !EXTERNAL)
        }
    }
}

/// Links or parents of one segment or root set.
#[derive(Clone, Debug)]
pub struct Links<'a> {
    section: &'a Bytes,
    column: Column,
    range: Range<u32>,
}

impl<'a> Links<'a> {
    fn new(section: &'a Bytes, column: Column, range: Range<u32>) -> Self {
        Self { section, column, range }
    }
}

impl Iterator for Links<'_> {
    type Item = Link;

    #[inline]
    fn next(&mut self) -> Option<Link> {
        let index = self.range.next()?;
        self.column.u32(self.section, index as usize).map(Link::decode)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl ExactSizeIterator for Links<'_> {}

/// A whole cue. Its parts may also be read one by one: make each view from the header and its section's bytes.
#[derive(Clone, Debug)]
pub struct Cue {
    /// Counts and flags.
    pub header: CueHeader,
    /// Entries in pack order.
    pub entries: Entries,
    /// From oid to entry.
    pub lookup: Lookup,
    /// What each commit adds.
    pub segments: Segments,
    /// Root sets and tag targets.
    pub roots: Roots,
    /// Objects of other layers.
    pub externals: Externals,
    /// Cheap negative answers about commits, tags and trees; absent where there are few.
    pub filter: Option<Filter>,
    /// Cheap negative answers about blobs; absent where there are few.
    pub blob_filter: Option<Filter>,
}

impl Cue {
    /// Reads a whole cue, without copying.
    pub fn parse(bytes: Bytes) -> Result<Self> {
        let header = CueHeader::parse(&bytes)?;
        let got = bytes.len() as u64;
        match header.cue_len() {
            expected if expected > got => Err(FormatError::Truncated {
                what: "cue",
                expected,
                got,
            }),
            expected if expected < got => Err(FormatError::Trailing {
                what: "cue",
                extra: got - expected,
            }),
            _ => Self::from_sections(header, |range| slice(&bytes, range)),
        }
    }

    /// Puts a cue together from its header and the bytes of its sections; `read` is asked for those that are present.
    pub fn from_sections(header: CueHeader, mut read: impl FnMut(Range<u64>) -> Bytes) -> Result<Self> {
        let mut section = |kind| match header.section(kind) {
            range if range.is_empty() => Bytes::new(),
            range => read(range),
        };
        Ok(Self {
            entries: Entries::new(&header, section(SectionKind::Entries))?
                .with_blobs(&header, section(SectionKind::BlobEntries))?,
            lookup: Lookup::new(&header, section(SectionKind::Lookup))?
                .with_blobs(&header, section(SectionKind::BlobLookup))?,
            segments: Segments::new(&header, section(SectionKind::Segments))?,
            roots: Roots::new(&header, section(SectionKind::Roots))?,
            externals: Externals::new(&header, section(SectionKind::Externals))?,
            filter: Filter::new(&header, section(SectionKind::Filter))?,
            blob_filter: Filter::of_blobs(&header, section(SectionKind::BlobFilter))?,
            header,
        })
    }

    /// The oid of an entry; null past the end.
    #[inline]
    pub fn oid(&self, entry: u32) -> ObjectId {
        self.lookup.oid(self.entries.rank(entry))
    }

    /// The entry of an object, if the layer holds it: asks the filters first.
    #[inline]
    pub fn find(&self, oid: &ObjectId) -> Option<u32> {
        let may = |filter: &Option<Filter>| filter.as_ref().is_none_or(|filter| filter.may_contain(oid));
        let structure = may(&self.filter).then(|| self.lookup.find_structure(oid));
        let blob = || may(&self.blob_filter).then(|| self.lookup.find_blob(oid)).flatten();
        structure.flatten().or_else(blob)
    }

    /// The oid of an object that a segment or root set links to.
    pub fn link_oid(&self, link: Link) -> ObjectId {
        match link {
            Link::Local(entry) => self.oid(entry),
            Link::External(external) => self.externals.oid(external),
        }
    }
}

/// The bytes of a range; empty where it reaches outside, which the view's constructor then refuses.
fn slice(bytes: &Bytes, range: Range<u64>) -> Bytes {
    match (usize::try_from(range.start), usize::try_from(range.end)) {
        (Ok(start), Ok(end)) if start <= end && end <= bytes.len() => bytes.slice(start..end),
        _ => Bytes::new(),
    }
}

fn kind_from_code(code: u8) -> Option<ObjectKind> {
    match code {
        1 => Some(ObjectKind::Commit),
        2 => Some(ObjectKind::Tree),
        3 => Some(ObjectKind::Blob),
        4 => Some(ObjectKind::Tag),
        _ => None,
    }
}
