//! The filter section: a blocked Bloom filter over the layer's oids (docs/format/cue.md, "Filter").

use super::{CueHeader, SectionKind};
use crate::Result;
use bytes::Bytes;

/// A block is as long as a cache line.
pub(super) const BLOCK_LEN: usize = 64;
/// 512 bits for 48 oids are 10.7 bits an oid: 0.74 % of absent oids pass.
const OIDS_PER_BLOCK: u64 = 48;
/// Bits set for an oid. Each takes nine bits of the oid, so six take 54 of 64.
const PROBES: u32 = 6;
/// Below this, a search of the lookup is as cheap as a probe of the filter.
const ENTRIES_MIN: u32 = 256;

/// Answers "surely not here" for at least 99 of 100 oids that are not in the layer, in one access to one block.
#[derive(Clone, Debug)]
pub struct Filter {
    section: Bytes,
}

impl Filter {
    /// The view of the section's bytes; `None` where the layer has no filter.
    pub fn new(header: &CueHeader, section: Bytes) -> Result<Option<Self>> {
        Self::of(header, SectionKind::Filter, section)
    }

    /// The view of the blobs' filter; `None` where there is none.
    pub fn of_blobs(header: &CueHeader, section: Bytes) -> Result<Option<Self>> {
        Self::of(header, SectionKind::BlobFilter, section)
    }

    fn of(header: &CueHeader, kind: SectionKind, section: Bytes) -> Result<Option<Self>> {
        header.check(kind, &section)?;
        Ok((!section.is_empty()).then_some(Self { section }))
    }

    /// `false` if the oid is not in the layer; `true` if it may be.
    #[inline]
    pub fn may_contain(&self, oid: &cuesta_git::ObjectId) -> bool {
        let blocks = (self.section.len() / BLOCK_LEN) as u64;
        let Some((block, mut bits)) = place(oid.as_bytes(), blocks) else {
            return true;
        };
        let start = block * BLOCK_LEN;
        let Some(block) = self.section.get(start..start + BLOCK_LEN) else {
            return true;
        };
        (0..PROBES).all(|_| {
            let (byte, mask) = next_bit(&mut bits);
            block.get(byte).is_none_or(|byte| byte & mask != 0)
        })
    }
}

/// Bytes of the filter of a part with that many entries; 0 where it has none.
pub(super) fn filter_len(entries: u32) -> u64 {
    match entries {
        0..ENTRIES_MIN => 0,
        _ => u64::from(entries).div_ceil(OIDS_PER_BLOCK) * BLOCK_LEN as u64,
    }
}

/// Adds an oid to the filter's bytes.
pub(super) fn insert(filter: &mut [u8], oid: &[u8]) {
    let Some((block, mut bits)) = place(oid, (filter.len() / BLOCK_LEN) as u64) else {
        return;
    };
    let start = block * BLOCK_LEN;
    let Some(block) = filter.get_mut(start..start + BLOCK_LEN) else {
        return;
    };
    for _ in 0..PROBES {
        let (byte, mask) = next_bit(&mut bits);
        if let Some(byte) = block.get_mut(byte) {
            *byte |= mask;
        }
    }
}

/// The block of an oid, and the bits that choose within it. Oids are uniform, so they need no further hashing; blocks
/// ascend with the oids, so that filling a filter in their order runs through memory once.
#[inline]
fn place(oid: &[u8], blocks: u64) -> Option<(usize, u64)> {
    let (first, rest) = oid.split_first_chunk::<8>()?;
    let bits = u64::from_le_bytes(*rest.first_chunk::<8>()?);
    let block = (u128::from(u64::from_be_bytes(*first)) * u128::from(blocks)) >> 64;
    Some((usize::try_from(block).ok()?, bits))
}

/// The byte and mask of the next bit: bit `n` of a block is bit `n % 8` of its byte `n / 8`.
#[inline]
fn next_bit(bits: &mut u64) -> (usize, u8) {
    let bit = (*bits % 512) as usize;
    *bits >>= 9;
    (bit / 8, 1 << (bit % 8))
}
