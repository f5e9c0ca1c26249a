//! The header of a cue: counts, flags and where each section lies (docs/format/cue.md, "Header").

use super::{CueCounts, lookup};
use crate::error::malformed;
use crate::{FormatError, Result};
use bytes::Bytes;
use cuesta_git::ObjectFormat;
use std::ops::Range;

const WHAT: &str = "cue header";
const MAGIC: [u8; 4] = *b"CUE\0";
const VERSION: u16 = 2;
/// The version before, whose structure sections hold the blobs, too. Read, not written.
const VERSION_WHOLE: u16 = 1;
const FIXED_LEN: usize = 52;
const SECTION_LEN: usize = 24;
const CRC_LEN: usize = 4;
const SELF_CONTAINED: u8 = 1;
const UNREACHABLE: u8 = 2;

/// One part of a cue that can be read by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum SectionKind {
    /// Where each entry is, what it is, and its delta base: commits, tags and trees (version 1: blobs, too).
    Entries = 1,
    /// Oids of the same in order, and the entry of each.
    Lookup = 2,
    /// What each commit adds.
    Segments = 3,
    /// Trees and blobs that refs or tags point at, and what tags point at.
    Roots = 4,
    /// Oids of objects in other layers that this one names.
    Externals = 5,
    /// A filter for cheap negative answers about the same.
    Filter = 6,
    /// As `Entries`, of blobs.
    BlobEntries = 7,
    /// As `Lookup`, of blobs.
    BlobLookup = 8,
    /// As `Filter`, of blobs.
    BlobFilter = 9,
}

impl SectionKind {
    /// All kinds, in the order they have in the file.
    pub const ALL: [Self; 9] = [
        Self::Entries,
        Self::Lookup,
        Self::Segments,
        Self::Roots,
        Self::Externals,
        Self::Filter,
        Self::BlobEntries,
        Self::BlobLookup,
        Self::BlobFilter,
    ];

    /// The name used in messages and in the documentation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Entries => "cue entries",
            Self::Lookup => "cue lookup",
            Self::Segments => "cue segments",
            Self::Roots => "cue roots",
            Self::Externals => "cue externals",
            Self::Filter => "cue filter",
            Self::BlobEntries => "cue blob entries",
            Self::BlobLookup => "cue blob lookup",
            Self::BlobFilter => "cue blob filter",
        }
    }

    const fn slot(self) -> usize {
        self as usize - 1
    }

    fn from_code(code: u32, version: u16) -> Result<Self> {
        let in_version = |kind: &Self| version > VERSION_WHOLE || *kind <= Self::Filter;
        let known = Self::ALL.into_iter().find(|kind| *kind as u32 == code);
        let known = known.filter(in_version);
        known.ok_or(FormatError::Unknown {
            what: "cue section kind",
            got: code.into(),
        })
    }
}

/// Where one section lies, and its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Section {
    offset: u64,
    len: u64,
    crc: u32,
}

/// The header of a cue. Parsed, it vouches for the length of every section, so that a caller may allocate by it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CueHeader {
    /// The format of all oids in the cue.
    pub object_format: ObjectFormat,
    /// Every delta's base is in this layer.
    pub self_contained: bool,
    /// The objects' closures were not checked.
    pub unreachable: bool,
    /// How many there are of everything.
    pub counts: CueCounts,
    version: u16,
    /// Of the structure's lookup, and of the blobs'.
    fanout_bits: [u8; 2],
    sections: [Section; 9],
}

impl CueHeader {
    /// No header is longer: one read of this many bytes from the start of a cue gets it whole.
    pub const LEN_MAX: usize = FIXED_LEN + SectionKind::ALL.len() * SECTION_LEN + CRC_LEN;

    /// Reads a header from the start of a cue; what follows it is ignored.
    ///
    /// Fails where the bytes are no header, or of an unknown version, or its counts and section lengths do not agree.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let fixed = bytes.first_chunk::<FIXED_LEN>().ok_or(short(bytes, FIXED_LEN))?;
        let (magic, rest) = fixed.split_first_chunk::<4>().ok_or(short(bytes, FIXED_LEN))?;
        if *magic != MAGIC {
            return Err(FormatError::Magic {
                what: "cue",
                got: *magic,
            });
        }
        let (prelude, counts) = rest.split_first_chunk::<8>().ok_or(short(bytes, FIXED_LEN))?;
        let [
            version_low,
            version_high,
            format,
            flags,
            fanout_bits,
            section_count,
            blob_fanout_bits,
            reserved,
        ] = *prelude;
        let version = u16::from_le_bytes([version_low, version_high]);
        if !(VERSION_WHOLE..=VERSION).contains(&version) {
            return Err(FormatError::Version {
                what: "cue",
                known: VERSION,
                got: version,
            });
        }
        let table = Self::table(bytes, section_count)?;
        if reserved != 0 || version == VERSION_WHOLE && blob_fanout_bits != 0 {
            return Err(FormatError::Unknown {
                what: "cue header reserved",
                got: u16::from_le_bytes([blob_fanout_bits, reserved]).into(),
            });
        }
        if flags & !(SELF_CONTAINED | UNREACHABLE) != 0 {
            return Err(FormatError::Unknown {
                what: "cue flags",
                got: flags.into(),
            });
        }
        let mut fields = [0; 10];
        for (field, bytes) in fields.iter_mut().zip(counts.as_chunks::<4>().0) {
            *field = u32::from_le_bytes(*bytes);
        }
        let mut header = Self {
            object_format: crate::codec::object_format(format)?,
            self_contained: flags & SELF_CONTAINED != 0,
            unreachable: flags & UNREACHABLE != 0,
            counts: CueCounts::from_fields(fields),
            version,
            fanout_bits: [fanout_bits, blob_fanout_bits],
            sections: Default::default(),
        };
        header.counts.check()?;
        header.read_table(table)?;
        Ok(header)
    }

    /// The section table, once the checksum over the whole header holds.
    fn table(bytes: &[u8], section_count: u8) -> Result<&[[u8; SECTION_LEN]]> {
        let end = FIXED_LEN + usize::from(section_count) * SECTION_LEN;
        let needed = end + CRC_LEN;
        let (covered, rest) = bytes.split_at_checked(end).ok_or(short(bytes, needed))?;
        let stored = rest.first_chunk::<CRC_LEN>().ok_or(short(bytes, needed))?;
        check_crc(WHAT, u32::from_le_bytes(*stored), covered)?;
        Ok(covered.get(FIXED_LEN..).unwrap_or_default().as_chunks().0)
    }

    fn read_table(&mut self, table: &[[u8; SECTION_LEN]]) -> Result<()> {
        let mut end = (FIXED_LEN + table.len() * SECTION_LEN + CRC_LEN) as u64;
        let mut last = None;
        for row in table {
            let (kind, section) = read_section(row, self.version)?;
            if last >= Some(kind) {
                return malformed(WHAT, "sections are not in ascending order");
            }
            if section.offset != end {
                return malformed(WHAT, "a section does not start where the one before ends");
            }
            if section.len == 0 {
                return malformed(WHAT, "an empty section is listed");
            }
            last = Some(kind);
            end = end.checked_add(section.len).ok_or(FormatError::Malformed {
                what: WHAT,
                reason: "too long",
            })?;
            if let Some(slot) = self.sections.get_mut(kind.slot()) {
                *slot = section;
            }
        }
        self.check_lens()
    }

    fn check_lens(&self) -> Result<()> {
        if self.fanout_bits != self.parts().map(lookup::fanout_bits) {
            return malformed(WHAT, "the fan-out does not fit the number of entries");
        }
        for kind in SectionKind::ALL {
            let got = self.slot(kind).len;
            let fits = match kind {
                SectionKind::Filter | SectionKind::BlobFilter => got.is_multiple_of(super::filter::BLOCK_LEN as u64),
                _ => got == self.section_len(kind),
            };
            if !fits {
                return malformed(kind.name(), "its length does not fit the header's counts");
            }
        }
        Ok(())
    }

    /// A header over sections whose checksums are not known yet.
    pub(super) fn lay_out(object_format: ObjectFormat, flags: (bool, bool), counts: CueCounts) -> Result<Self> {
        counts.check()?;
        let (self_contained, unreachable) = flags;
        let mut header = Self {
            object_format,
            self_contained,
            unreachable,
            counts,
            version: VERSION,
            fanout_bits: [0; 2],
            sections: Default::default(),
        };
        let parts = header.parts();
        header.fanout_bits = parts.map(lookup::fanout_bits);
        let [filter_len, blob_filter_len] = parts.map(super::filter::filter_len);
        let lens = SectionKind::ALL.map(|kind| match kind {
            SectionKind::Filter => filter_len,
            SectionKind::BlobFilter => blob_filter_len,
            _ => header.section_len(kind),
        });
        let present = lens.iter().filter(|len| **len > 0).count();
        let mut end = (FIXED_LEN + present * SECTION_LEN + CRC_LEN) as u64;
        header.sections = lens.map(|len| {
            let offset = if len > 0 { end } else { 0 };
            end += len;
            Section { offset, len, crc: 0 }
        });
        Ok(header)
    }

    /// Writes the header over the start of `cue`, whose sections are already in place.
    pub(super) fn seal(mut self, cue: &mut [u8]) -> Result<()> {
        for section in &mut self.sections {
            section.crc = crc32c::crc32c(bytes_of(cue, section).unwrap_or_default());
        }
        let header = self.encode();
        let written = header.len();
        match cue.get_mut(..written) {
            Some(start) => start.copy_from_slice(&header),
            None => return Err(short(cue, written)),
        }
        Ok(())
    }

    /// Notes the checksum of a section.
    pub(super) fn set_crc(&mut self, kind: SectionKind, crc: u32) {
        if let Some(section) = self.sections.get_mut(kind.slot()) {
            section.crc = crc;
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let present = || SectionKind::ALL.into_iter().filter(|kind| self.slot(*kind).len > 0);
        let mut out = Vec::with_capacity(Self::LEN_MAX);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.push(crate::codec::object_format_code(self.object_format));
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.push(flag(self.self_contained, SELF_CONTAINED) | flag(self.unreachable, UNREACHABLE));
        let [fanout_bits, blob_fanout_bits] = self.fanout_bits;
        out.push(fanout_bits);
        out.push(present().map(|_| 1).sum());
        out.extend_from_slice(&[blob_fanout_bits, 0]);
        super::column::push_u32s(&mut out, &self.counts.fields());
        for kind in present() {
            let section = self.slot(kind);
            out.extend_from_slice(&(kind as u32).to_le_bytes());
            out.extend_from_slice(&section.crc.to_le_bytes());
            out.extend_from_slice(&section.offset.to_le_bytes());
            out.extend_from_slice(&section.len.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    fn slot(&self, kind: SectionKind) -> Section {
        self.sections.get(kind.slot()).copied().unwrap_or_default()
    }

    /// Where a section lies in the cue, in bytes; empty if it is absent.
    pub fn section(&self, kind: SectionKind) -> Range<u64> {
        let section = self.slot(kind);
        section.offset..section.offset.saturating_add(section.len)
    }

    /// Bytes of the header: the first section starts there.
    pub(super) fn header_len(&self) -> usize {
        let present = SectionKind::ALL
            .into_iter()
            .filter(|kind| self.slot(*kind).len > 0)
            .count();
        FIXED_LEN + present * SECTION_LEN + CRC_LEN
    }

    /// Bytes of the whole cue.
    pub fn cue_len(&self) -> u64 {
        SectionKind::ALL
            .into_iter()
            .map(|kind| self.section(kind).end)
            .max()
            .unwrap_or(0)
    }

    /// Entries in the structure's sections, and in the blobs'.
    #[inline]
    pub(super) fn parts(&self) -> [u32; 2] {
        match self.version {
            VERSION_WHOLE => [self.counts.entries(), 0],
            _ => [self.counts.blob_entries().start, self.counts.blobs],
        }
    }

    /// Entries that [`super::Entries::new`] and [`super::Lookup::new`] cover: commits, tags and trees, and in version 1 blobs.
    pub fn structure_entries(&self) -> u32 {
        let [structure, _] = self.parts();
        structure
    }

    /// How many leading bits of an oid the fan-out of each lookup tells apart; 0 where there is none.
    #[inline]
    pub(super) fn fanout_bits(&self) -> [u8; 2] {
        self.fanout_bits
    }

    /// The length that the counts give a section; a filter's is its own.
    fn section_len(&self, kind: SectionKind) -> u64 {
        let width = self.object_format.width() as u64;
        let counts = &self.counts;
        let [entries, blobs] = self.parts().map(u64::from);
        let lookup_len = |entries: u32| lookup::fanout_len(entries) + u64::from(entries) * (width + 4);
        let [lookup, blob_lookup] = self.parts().map(lookup_len);
        let [segments, parents, links] = [counts.segments, counts.parents, counts.links].map(u64::from);
        let [roots, root_links, tags] = [counts.roots, counts.root_links, counts.tags].map(u64::from);
        match kind {
            SectionKind::Entries => entries * 24 + 8,
            SectionKind::Lookup => lookup,
            SectionKind::Segments if segments == 0 => 0,
            SectionKind::Segments => segments * (28 + width) + 16 + 4 * (parents + links),
            SectionKind::Roots if roots == 0 && tags == 0 => 0,
            SectionKind::Roots => roots * (13 + width) + 12 + 4 * root_links + tags * (width + 1),
            SectionKind::Externals => u64::from(counts.externals) * width,
            SectionKind::BlobEntries if blobs == 0 => 0,
            SectionKind::BlobEntries => blobs * 24 + 8,
            SectionKind::BlobLookup => blob_lookup,
            SectionKind::Filter | SectionKind::BlobFilter => 0,
        }
    }

    /// Checks that `bytes` are the section's: their length, then their checksum.
    pub(super) fn check(&self, kind: SectionKind, bytes: &Bytes) -> Result<()> {
        let Section { len: expected, crc, .. } = self.slot(kind);
        let (what, got) = (kind.name(), bytes.len() as u64);
        if got < expected {
            return Err(FormatError::Truncated { what, expected, got });
        }
        if got > expected {
            return Err(FormatError::Trailing {
                what,
                extra: got - expected,
            });
        }
        if got == 0 { Ok(()) } else { check_crc(what, crc, bytes) }
    }
}

fn read_section(row: &[u8; SECTION_LEN], version: u16) -> Result<(SectionKind, Section)> {
    let [kind, crc, offset_low, offset_high, len_low, len_high] = *row.as_chunks::<4>().0 else {
        return malformed(WHAT, "a section row is cut short");
    };
    let wide = |low, high| u64::from(u32::from_le_bytes(high)) << 32 | u64::from(u32::from_le_bytes(low));
    let section = Section {
        offset: wide(offset_low, offset_high),
        len: wide(len_low, len_high),
        crc: u32::from_le_bytes(crc),
    };
    Ok((SectionKind::from_code(u32::from_le_bytes(kind), version)?, section))
}

fn bytes_of<'a>(cue: &'a [u8], section: &Section) -> Option<&'a [u8]> {
    let start = usize::try_from(section.offset).ok()?;
    let len = usize::try_from(section.len).ok()?;
    cue.get(start..start.checked_add(len)?)
}

fn short(bytes: &[u8], expected: usize) -> FormatError {
    FormatError::Truncated {
        what: WHAT,
        expected: expected as u64,
        got: bytes.len() as u64,
    }
}

fn check_crc(what: &'static str, expected: u32, bytes: &[u8]) -> Result<()> {
    match crc32c::crc32c(bytes) {
        got if got == expected => Ok(()),
        got => Err(FormatError::Checksum { what, expected, got }),
    }
}
