//! Finding a delta from a base to a target.
//!
//! The base is cut into blocks, indexed by a hash of their bytes; the target is scanned for windows that hash to one of
//! them, and each match is grown both ways. So a copy is found wherever 31 bytes in a row are common to both.

use super::{DELTA_LEN_MIN, DeltaHeader};

/// Bytes of an indexed block, and so of the window that is looked up.
const BLOCK: usize = 16;

/// Blocks of one hash that are tried; repetitive bases have many.
const CANDIDATES_MAX: usize = 64;

/// A match this long is taken without looking for a longer one; this bounds the cost of repetitive targets.
const MATCH_GOOD: usize = 4096;

/// The longest copy of one instruction; the format has more, but git writes no longer ones.
const COPY_MAX: usize = 0x10000;

/// The longest insertion of one instruction.
const INSERT_MAX: usize = 0x7f;

/// The delta that makes `target` of `base`, if it is shorter than the target itself.
pub fn diff(base: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    DeltaIndex::new(base).diff(target, target.len())
}

/// A base prepared for any number of [`diff`](Self::diff)s. Takes about half the base's size in memory.
pub struct DeltaIndex<'a> {
    /// As much of the base as a delta can copy from.
    base: &'a [u8],
    base_size: u64,
    /// Where the blocks of each hash start in `blocks`; one more at the end.
    starts: Vec<u32>,
    /// Offsets of blocks in the base, grouped by hash, ascending within a group.
    blocks: Vec<u32>,
    shift: u32,
}

impl<'a> DeltaIndex<'a> {
    /// Indexes a base; what lies beyond 4 GiB of it is never copied from, for no delta can say so.
    pub fn new(base: &'a [u8]) -> Self {
        let base_size = base.len() as u64;
        let base = base.get(..u32::MAX as usize).unwrap_or(base);
        let bits = (base.len() / BLOCK).max(1).ilog2().clamp(4, 24);
        let (starts, shift) = (vec![0; (1 << bits) + 1], u64::BITS - bits);
        let mut index = Self {
            base,
            base_size,
            starts,
            blocks: Vec::new(),
            shift,
        };
        index.fill();
        index
    }

    /// Counting sort of the blocks by hash. Of a run of equal blocks only the first is kept.
    fn fill(&mut self) {
        let mut count = 0usize;
        for (_, slot) in distinct_blocks(self.base, self.shift) {
            if let Some(end) = self.starts.get_mut(slot + 1) {
                *end += 1;
            }
            count += 1;
        }
        let mut sum = 0;
        for end in &mut self.starts {
            sum += *end;
            *end = sum;
        }
        self.blocks.resize(count, 0);
        let mut cursors = self.starts.clone();
        for (offset, slot) in distinct_blocks(self.base, self.shift) {
            if let Some(cursor) = cursors.get_mut(slot) {
                if let Some(block) = self.blocks.get_mut(*cursor as usize) {
                    *block = offset;
                }
                *cursor += 1;
            }
        }
    }

    /// The delta that makes `target` of the base, if it is shorter than `len_max` bytes. An empty target has none:
    /// git refuses such short deltas.
    pub fn diff(&self, target: &[u8], len_max: usize) -> Option<Vec<u8>> {
        if target.is_empty() || len_max <= DELTA_LEN_MIN {
            return None;
        }
        let mut out = Vec::with_capacity(len_max.min(64));
        DeltaHeader {
            base_size: self.base_size,
            result_size: target.len() as u64,
        }
        .encode(&mut out);
        let (mut at, mut pending) = (0, 0);
        while let Some(window) = target.get(at..).and_then(|rest| rest.first_chunk::<BLOCK>()) {
            // Pending bytes grow by one a step; what they cost at least is known before they are written.
            if out.len() + (at - pending) >= len_max {
                return None;
            }
            let Some((offset, len)) = self.longest_match(window, target.get(at..)?) else {
                at += 1;
                continue;
            };
            let back = common_suffix(self.base.get(..offset)?, target.get(pending..at)?);
            push_insertions(target.get(pending..at - back)?, &mut out);
            push_copies(offset - back, len + back, &mut out);
            at += len;
            pending = at;
        }
        push_insertions(target.get(pending..)?, &mut out);
        (out.len() < len_max).then_some(out)
    }

    /// Where in the base, and how far, it agrees with `rest`, which begins with `window`.
    #[inline]
    fn longest_match(&self, window: &[u8; BLOCK], rest: &[u8]) -> Option<(usize, usize)> {
        let slot = hash(window, self.shift);
        let (start, end) = (*self.starts.get(slot)? as usize, *self.starts.get(slot + 1)? as usize);
        let mut best = (0, 0);
        for &offset in self.blocks.get(start..end)?.iter().take(CANDIDATES_MAX) {
            let len = common_prefix(self.base.get(offset as usize..)?, rest);
            if len > best.1 {
                best = (offset as usize, len);
                if len >= MATCH_GOOD {
                    break;
                }
            }
        }
        (best.1 >= BLOCK).then_some(best)
    }
}

/// Offset and hash of each block that differs from the one before it.
fn distinct_blocks(base: &[u8], shift: u32) -> impl Iterator<Item = (u32, usize)> + '_ {
    let mut previous = None;
    base.as_chunks::<BLOCK>()
        .0
        .iter()
        .enumerate()
        .filter_map(move |(number, block)| {
            let is_other = previous.replace(block) != Some(block);
            is_other.then(|| ((number * BLOCK) as u32, hash(block, shift)))
        })
}

/// The top bits of a multiplicative hash; both halves are mixed before, so that no byte of the window is ignored.
#[inline]
fn hash(window: &[u8; BLOCK], shift: u32) -> usize {
    let word = u128::from_le_bytes(*window);
    let (low, high) = (word as u64, (word >> 64) as u64);
    let mixed = (low.wrapping_mul(0x9e37_79b9_7f4a_7c15)).rotate_left(29) ^ high;
    (mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> shift) as usize
}

#[inline]
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let mut len = 0;
    for (x, y) in words {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if difference != 0 {
            return len + difference.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    let (a, b) = (a.get(len..).unwrap_or_default(), b.get(len..).unwrap_or_default());
    len + a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count()
}

fn push_insertions(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.chunks(INSERT_MAX) {
        out.push(chunk.len() as u8);
        out.extend_from_slice(chunk);
    }
}

/// Copies of `len` bytes at `offset`; all of it lies below 4 GiB.
fn push_copies(mut offset: usize, mut len: usize, out: &mut Vec<u8>) {
    while len > 0 {
        let piece = len.min(COPY_MAX);
        push_copy(offset as u32, piece as u32, out);
        offset += piece;
        len -= piece;
    }
}

/// One copy instruction, zero bytes of its operands left out; a length of 64 KiB is written as 0.
fn push_copy(offset: u32, len: u32, out: &mut Vec<u8>) {
    let opcode_at = out.len();
    out.push(0);
    let mut opcode = 0x80;
    let operands = offset
        .to_le_bytes()
        .into_iter()
        .chain((len & 0xffff).to_le_bytes().into_iter().take(2));
    for (bit, byte) in operands.enumerate() {
        if byte != 0 {
            out.push(byte);
            opcode |= 1 << bit;
        }
    }
    if let Some(slot) = out.get_mut(opcode_at) {
        *slot = opcode;
    }
}

#[cfg(test)]
mod tests {
    use super::super::apply;
    use super::*;
    use proptest::prelude::*;

    /// Random bytes, or a text of few words, where matches are many and short.
    fn content() -> impl Strategy<Value = Vec<u8>> {
        let words = prop_oneof![
            "[ab]{1,3}",
            "[a-z]{5,20}",
            Just("\0".repeat(40)),
            Just("the same line again\n".to_owned())
        ];
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..400),
            proptest::collection::vec(words, 0..80).prop_map(|words| words.concat().into_bytes()),
        ]
    }

    /// A base, and a target with some of its stretches cut, moved or replaced.
    fn edited() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let cuts = proptest::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), content()),
            0..5,
        );
        (content(), cuts).prop_map(|(base, cuts)| {
            let target = cuts.iter().flat_map(|(from, to, fresh)| {
                let (from, to) = (from.index(base.len() + 1), to.index(base.len() + 1));
                [&base[from.min(to)..from.max(to)], fresh].concat()
            });
            let target = target.collect();
            (base, target)
        })
    }

    proptest! {
        #[test]
        fn applying_the_diff_gives_the_target((base, target) in edited()) {
            if let Some(delta) = DeltaIndex::new(&base).diff(&target, usize::MAX) {
                prop_assert_eq!(apply(&base, &delta).unwrap(), target);
            } else {
                prop_assert!(target.is_empty());
            }
        }

        #[test]
        fn a_diff_keeps_to_its_limit((base, target) in edited(), len_max in 0..300usize) {
            let unbounded = DeltaIndex::new(&base).diff(&target, usize::MAX);
            let bounded = DeltaIndex::new(&base).diff(&target, len_max);
            prop_assert_eq!(bounded, unbounded.filter(|delta| delta.len() < len_max));
        }

        #[test]
        fn one_changed_byte_costs_little(base in proptest::collection::vec(any::<u8>(), 200..5000), at in any::<prop::sample::Index>()) {
            let mut target = base.clone();
            *at.get_mut(&mut target) ^= 1;
            prop_assert!(diff(&base, &target).unwrap().len() < 60);
        }
    }

    #[test]
    fn neighbours_of_one_hash_are_both_found() {
        let shift = u64::BITS - 4;
        let block = |number: u8| [number; BLOCK];
        let twin = (1..)
            .find(|number| hash(&block(*number), shift) == hash(&block(0), shift))
            .unwrap();
        let base = [block(0), block(twin), block(twin), block(0)].concat();
        let offsets: Vec<u32> = distinct_blocks(&base, shift).map(|(offset, _)| offset).collect();
        assert_eq!(offsets, [0, 16, 48]);
    }

    #[test]
    fn long_copies_and_insertions_are_split() {
        let base: Vec<u8> = (0..300_000u32)
            .flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes())
            .collect();
        let fresh: Vec<u8> = (0..1000u32)
            .flat_map(|i| (!i).wrapping_mul(0x85eb_ca6b).to_le_bytes())
            .collect();
        let target = [&base[1000..900_000], &fresh[..], &base[..70_000]].concat();
        let delta = diff(&base, &target).unwrap();
        assert_eq!(apply(&base, &delta).unwrap(), target);
        assert!(delta.len() < fresh.len() + 200, "{}", delta.len());
    }

    #[test]
    fn repetition_is_cheap() {
        let (base, target) = (vec![0; 1 << 20], vec![0; 3 << 20]);
        let delta = diff(&base, &target).unwrap();
        assert_eq!(apply(&base, &delta).unwrap(), target);
        assert!(delta.len() < 400, "{}", delta.len());
    }

    #[test]
    fn nothing_in_common_has_no_delta() {
        assert_eq!(diff(b"", b"some text that is quite long"), None);
        assert_eq!(
            diff(b"0123456789abcdef0123456789abcdef", b"THE QUICK BROWN FOX JUMPS OVER"),
            None
        );
        assert_eq!(diff(b"0123456789abcdef", b""), None);
    }
}
