//! The lookup section: from oid to entry (docs/format/cue.md, "Lookup").

use super::column::{Carver, Column};
use super::{CueHeader, SectionKind};
use crate::Result;
use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId};
use std::cmp::Ordering;
use std::ops::Range;

/// A fan-out slot covers between 8 and 16 oids; layers of fewer than 64 have no fan-out at all.
const ENTRIES_PER_SLOT_LOG2: u32 = 3;
const FANOUT_ENTRIES_MIN: u32 = 64;

/// How many leading bits of an oid the fan-out tells apart in a layer of that many entries.
pub(super) fn fanout_bits(entries: u32) -> u8 {
    match entries {
        0..FANOUT_ENTRIES_MIN => 0,
        // At most 30 - 3.
        _ => u8::try_from(entries.ilog2() - ENTRIES_PER_SLOT_LOG2).unwrap_or(0),
    }
}

/// Slots of the fan-out in a layer of that many entries.
pub(super) fn fanout_slots(entries: u32) -> u64 {
    match fanout_bits(entries) {
        0 => 0,
        bits => 1 << bits,
    }
}

pub(super) fn fanout_len(entries: u32) -> u64 {
    fanout_slots(entries) * 4
}

/// The fan-out slot of an oid.
#[inline]
pub(super) fn fanout_slot(oid: &[u8], bits: u8) -> usize {
    let leading = oid.first_chunk::<4>().map_or(0, |leading| u32::from_be_bytes(*leading));
    leading.checked_shr(32 - u32::from(bits)).unwrap_or(0) as usize
}

/// The oids of commits, tags and trees in ascending order, each with its entry; with [`Lookup::with_blobs`] those of blobs,
/// too, in an order of their own behind them. A position in that list is a *rank*.
///
/// Accessors are total: past the end, the oid is null and the entry `u32::MAX`.
#[derive(Clone, Debug)]
pub struct Lookup {
    format: ObjectFormat,
    structure: Part,
    blobs: Part,
}

/// The oids of one section, ascending.
#[derive(Clone, Debug)]
struct Part {
    section: Bytes,
    format: ObjectFormat,
    fanout_bits: u8,
    fanout: Column,
    oids: Column,
    entries: Column,
}

impl Lookup {
    /// The view of the section's bytes; fails if they are not those the header describes.
    pub fn new(header: &CueHeader, section: Bytes) -> Result<Self> {
        let ([structure, _], [bits, _]) = (header.parts(), header.fanout_bits());
        Ok(Self {
            format: header.object_format,
            structure: Part::new(header, SectionKind::Lookup, section, structure, bits)?,
            blobs: Part::none(header.object_format),
        })
    }

    /// The same with the blobs, whose section's bytes these are; they are empty where the layer has none, or no such section
    /// (version 1).
    pub fn with_blobs(self, header: &CueHeader, section: Bytes) -> Result<Self> {
        let ([_, blobs], [_, bits]) = (header.parts(), header.fanout_bits());
        Ok(Self {
            blobs: Part::new(header, SectionKind::BlobLookup, section, blobs, bits)?,
            ..self
        })
    }

    /// How many oids there are.
    #[inline]
    pub fn len(&self) -> u32 {
        self.structure.len().saturating_add(self.blobs.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry of an object; an oid of the other format is in no layer of this one.
    #[inline]
    pub fn find(&self, oid: &ObjectId) -> Option<u32> {
        self.structure.find(oid).or_else(|| self.blobs.find(oid))
    }

    /// As [`find`](Self::find), but not among the blobs that [`with_blobs`](Self::with_blobs) added.
    #[inline]
    pub fn find_structure(&self, oid: &ObjectId) -> Option<u32> {
        self.structure.find(oid)
    }

    /// As [`find`](Self::find), only among the blobs that [`with_blobs`](Self::with_blobs) added.
    #[inline]
    pub fn find_blob(&self, oid: &ObjectId) -> Option<u32> {
        self.blobs.find(oid)
    }

    /// The rank of an object.
    pub fn find_rank(&self, oid: &ObjectId) -> Option<u32> {
        let in_blobs = || Some(self.structure.len().saturating_add(self.blobs.find_rank(oid)?));
        self.structure.find_rank(oid).or_else(in_blobs)
    }

    /// The ranks of the oids that start with the bytes `prefix`, for abbreviated ids: those of the structure, and those of
    /// blobs. At most an oid's width counts.
    pub fn ranks_with_prefix(&self, prefix: &[u8]) -> [Range<u32>; 2] {
        let (structure, blobs) = (
            self.structure.ranks_with_prefix(prefix),
            self.blobs.ranks_with_prefix(prefix),
        );
        let first = self.structure.len();
        [
            structure,
            blobs.start.saturating_add(first)..blobs.end.saturating_add(first),
        ]
    }

    /// Which of all oids in ascending order start with the bytes `prefix`.
    pub fn rows_with_prefix(&self, prefix: &[u8]) -> Range<u32> {
        let (structure, blobs) = (
            self.structure.ranks_with_prefix(prefix),
            self.blobs.ranks_with_prefix(prefix),
        );
        structure.start.saturating_add(blobs.start)..structure.end.saturating_add(blobs.end)
    }

    /// All ranks in the order of their oids, without the first `skip` of them, as a pack index lists objects. The start costs a
    /// search, each step a comparison.
    pub fn ascending(&self, skip: u32) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.split(skip);
        std::iter::from_fn(move || {
            let [structure, blob] = at;
            let first_is_structure = match (self.structure.oid_at(structure), self.blobs.oid_at(blob)) {
                (None, None) => return None,
                (Some(left), Some(right)) => left < right,
                (left, _) => left.is_some(),
            };
            at = match first_is_structure {
                true => [structure + 1, blob],
                false => [structure, blob + 1],
            };
            Some(match first_is_structure {
                true => structure,
                false => self.structure.len().saturating_add(blob),
            })
        })
    }

    /// How many of the first `count` oids of all are the structure's, and how many are blobs'.
    fn split(&self, count: u32) -> [u32; 2] {
        let count = count.min(self.len());
        let (mut low, mut high) = (count.saturating_sub(self.blobs.len()), count.min(self.structure.len()));
        while low < high {
            let middle = low + (high - low) / 2;
            let last_blob = self.blobs.oid_at(count - middle - 1);
            match self.structure.oid_at(middle) < last_blob {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        [low, count - low]
    }

    /// The oid of a rank.
    #[inline]
    pub fn oid(&self, rank: u32) -> ObjectId {
        let (part, rank) = self.part(rank);
        part.oids.oid(&part.section, rank as usize, self.format)
    }

    /// The entry of a rank.
    #[inline]
    pub fn entry(&self, rank: u32) -> u32 {
        let (part, rank) = self.part(rank);
        part.entries.u32(&part.section, rank as usize).unwrap_or(u32::MAX)
    }

    #[inline]
    fn part(&self, rank: u32) -> (&Part, u32) {
        match rank.checked_sub(self.structure.len()) {
            Some(blob) => (&self.blobs, blob),
            None => (&self.structure, rank),
        }
    }

    /// The end of a fan-out slot, of the structure or of the blobs: how many oids lie in it and the slots before it.
    pub(super) fn fanout(&self, of_blobs: bool, slot: usize) -> Option<u32> {
        let part = if of_blobs { &self.blobs } else { &self.structure };
        part.fanout.u32(&part.section, slot)
    }
}

impl Part {
    fn new(header: &CueHeader, kind: SectionKind, section: Bytes, count: u32, fanout_bits: u8) -> Result<Self> {
        header.check(kind, &section)?;
        let format = header.object_format;
        let mut carver = Carver::new(kind.name(), &section);
        let part = Self {
            format,
            fanout_bits,
            fanout: carver.column(fanout_slots(count), 4)?,
            oids: carver.column(count.into(), format.width())?,
            entries: carver.column(count.into(), 4)?,
            section: section.clone(),
        };
        carver.finish()?;
        Ok(part)
    }

    fn none(format: ObjectFormat) -> Self {
        Self {
            section: Bytes::new(),
            format,
            fanout_bits: 0,
            fanout: Column::default(),
            oids: Column::default(),
            entries: Column::default(),
        }
    }

    #[inline]
    fn len(&self) -> u32 {
        u32::try_from(self.oids.count()).unwrap_or(u32::MAX)
    }

    #[inline]
    fn oid_at(&self, rank: u32) -> Option<&[u8]> {
        self.oids.oid_bytes(&self.section, rank as usize, self.format)
    }

    #[inline]
    fn find(&self, oid: &ObjectId) -> Option<u32> {
        let rank = self.find_rank(oid)?;
        self.entries.u32(&self.section, rank as usize)
    }

    #[inline]
    fn find_rank(&self, oid: &ObjectId) -> Option<u32> {
        if oid.format() != self.format {
            return None;
        }
        let wanted = oid.as_bytes();
        let rank = self.lower_bound(wanted);
        (self.oids.oid_bytes(&self.section, rank, self.format)? == wanted).then_some(())?;
        u32::try_from(rank).ok()
    }

    fn ranks_with_prefix(&self, prefix: &[u8]) -> Range<u32> {
        let width = self.format.width();
        let prefix = prefix.get(..width).unwrap_or(prefix);
        let bound = |fill: u8| {
            let mut bytes = [fill; 32];
            bytes.iter_mut().zip(prefix).for_each(|(byte, given)| *byte = *given);
            bytes
        };
        let rank = |bytes: [u8; 32]| self.lower_bound(bytes.get(..width).unwrap_or(&bytes));
        let (low, high) = (bound(0), bound(u8::MAX));
        let last = rank(high);
        let last_matches = self.oids.oid_bytes(&self.section, last, self.format) == high.get(..width);
        let to_u32 = |rank: usize| u32::try_from(rank).unwrap_or(u32::MAX);
        to_u32(rank(low))..to_u32(last + usize::from(last_matches))
    }

    /// The first rank whose oid is not below `wanted`.
    #[inline]
    fn lower_bound(&self, wanted: &[u8]) -> usize {
        let Range {
            start: mut low,
            end: mut high,
        } = self.bracket(wanted);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.is_below(middle, wanted) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// Narrows the slot of an oid down to a few ranks.
    ///
    /// Oids are uniform, so the first look is where the wanted one would be if they lay evenly; from there the steps
    /// double until they have passed it. Oids chosen by somebody else cost two binary searches, no more.
    #[inline]
    fn bracket(&self, wanted: &[u8]) -> Range<usize> {
        let Range {
            start: mut low,
            end: mut high,
        } = self.slot(wanted);
        if low >= high {
            return low..low;
        }
        let (mut probe, mut step) = (guess(wanted, self.fanout_bits, &(low..high)), 1);
        if self.is_below(probe, wanted) {
            while probe < high && self.is_below(probe, wanted) {
                low = probe + 1;
                probe += step;
                step *= 2;
            }
            high = high.min(probe);
        } else {
            while probe >= low && !self.is_below(probe, wanted) {
                high = probe;
                let Some(next) = probe.checked_sub(step) else {
                    return low..high;
                };
                probe = next;
                step *= 2;
            }
            low = low.max(probe + 1);
        }
        low..high
    }

    #[inline]
    fn is_below(&self, rank: usize, wanted: &[u8]) -> bool {
        self.oids
            .oid_bytes(&self.section, rank, self.format)
            .is_some_and(|oid| compare(oid, wanted) == Ordering::Less)
    }

    /// The ranks among which an oid must be.
    #[inline]
    fn slot(&self, wanted: &[u8]) -> Range<usize> {
        let count = self.oids.count();
        if self.fanout_bits == 0 {
            return 0..count;
        }
        let slot = fanout_slot(wanted, self.fanout_bits);
        let end = |slot| {
            self.fanout
                .u32(&self.section, slot)
                .map_or(count, |end| end as usize)
                .min(count)
        };
        let start = slot.checked_sub(1).map_or(0, end);
        start..end(slot)
    }
}

/// Compares oids of one width: eight bytes at once decide it nearly always.
#[inline]
fn compare(left: &[u8], right: &[u8]) -> Ordering {
    match (left.first_chunk::<8>(), right.first_chunk::<8>()) {
        (Some(l), Some(r)) if l != r => u64::from_be_bytes(*l).cmp(&u64::from_be_bytes(*r)),
        _ => left.cmp(right),
    }
}

/// Where among `ranks`, which share their first `bits` bits, an oid would lie if they lay evenly. Never past the last.
#[inline]
fn guess(wanted: &[u8], bits: u8, ranks: &Range<usize>) -> usize {
    let leading = wanted
        .first_chunk::<8>()
        .map_or(0, |leading| u64::from_be_bytes(*leading));
    let fraction = (leading << bits) >> 32;
    let count = ranks.end.saturating_sub(ranks.start) as u64;
    let within = (fraction * count) >> 32;
    ranks.start + usize::try_from(within).unwrap_or(0)
}
