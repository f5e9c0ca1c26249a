//! A fixed set of small numbers, one bit each: which segments or entries of one layer belong to something.

use std::ops::Range;

const WORD: u32 = u64::BITS;

/// A set of numbers below a limit fixed when it is made. Numbers at or above the limit are never members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    words: Vec<u64>,
    limit: u32,
}

impl Bits {
    /// No member; numbers below `limit` may become one. Costs `limit / 8` bytes.
    pub fn new(limit: u32) -> Self {
        Self {
            words: vec![0; limit.div_ceil(WORD) as usize],
            limit,
        }
    }

    /// The number that no member reaches.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Whether `number` is a member.
    pub fn contains(&self, number: u32) -> bool {
        self.words
            .get(word_of(number))
            .is_some_and(|word| word & mask_of(number) != 0)
    }

    /// Adds `number`; true if it is new. A number outside the limit is not added.
    pub fn insert(&mut self, number: u32) -> bool {
        if number >= self.limit {
            return false;
        }
        let Some(word) = self.words.get_mut(word_of(number)) else {
            return false;
        };
        let new = *word & mask_of(number) == 0;
        *word |= mask_of(number);
        new
    }

    /// Removes `number`; true if it was a member.
    pub fn remove(&mut self, number: u32) -> bool {
        let Some(word) = self.words.get_mut(word_of(number)) else {
            return false;
        };
        let member = *word & mask_of(number) != 0;
        *word &= !mask_of(number);
        member
    }

    /// Adds all numbers of `range` that are below the limit, a word at a time.
    pub fn insert_range(&mut self, range: Range<u32>) {
        let end = range.end.min(self.limit);
        let mut at = range.start;
        while at < end {
            let stop = ((at / WORD + 1) * WORD).min(end);
            if let Some(word) = self.words.get_mut(word_of(at)) {
                let width = stop - at;
                let ones = if width == WORD { u64::MAX } else { (1u64 << width) - 1 };
                *word |= ones << (at % WORD);
            }
            at = stop;
        }
    }

    /// How many members there are.
    pub fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The smallest member at or above `from`.
    pub fn next(&self, from: u32) -> Option<u32> {
        let mut index = word_of(from);
        let mut word = self.words.get(index)? & (u64::MAX << (from % WORD));
        while word == 0 {
            index += 1;
            word = *self.words.get(index)?;
        }
        number_at(index, word.trailing_zeros())
    }

    /// The largest member at or below `from`.
    pub fn previous(&self, from: u32) -> Option<u32> {
        let from = from.min(self.limit.checked_sub(1)?);
        let mut index = word_of(from);
        let mut word = self.words.get(index)? & (u64::MAX >> (WORD - 1 - from % WORD));
        while word == 0 {
            index = index.checked_sub(1)?;
            word = *self.words.get(index)?;
        }
        number_at(index, WORD - 1 - word.leading_zeros())
    }

    /// The members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words
            .iter()
            .enumerate()
            .flat_map(|(index, word)| WordBits(*word).filter_map(move |bit| number_at(index, bit)))
    }

    /// The members as maximal runs of neighbours, in ascending order.
    pub fn runs(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let start = self.next(from)?;
            let end = self.next_absent(start);
            from = end;
            Some(start..end)
        })
    }

    /// The smallest number at or above `from` that is no member, at most the limit.
    pub fn next_absent(&self, from: u32) -> u32 {
        let mut index = word_of(from);
        let Some(first) = self.words.get(index) else {
            return self.limit;
        };
        let mut absent = !first & (u64::MAX << (from % WORD));
        while absent == 0 {
            index += 1;
            let Some(word) = self.words.get(index) else {
                return self.limit;
            };
            absent = !word;
        }
        number_at(index, absent.trailing_zeros()).map_or(self.limit, |number| number.min(self.limit))
    }
}

/// The bits of one word, ascending.
struct WordBits(u64);

impl Iterator for WordBits {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        (self.0 != 0).then(|| {
            let bit = self.0.trailing_zeros();
            self.0 &= self.0 - 1;
            bit
        })
    }
}

fn word_of(number: u32) -> usize {
    (number / WORD) as usize
}

fn mask_of(number: u32) -> u64 {
    1 << (number % WORD)
}

fn number_at(word: usize, bit: u32) -> Option<u32> {
    u32::try_from(word).ok()?.checked_mul(WORD)?.checked_add(bit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set(limit in 0u32..300, ranges in prop::collection::vec((0u32..310, 0u32..90), 0..6), single in prop::collection::vec(0u32..310, 0..20), gone in prop::collection::vec(0u32..310, 0..20)) {
            let mut bits = Bits::new(limit);
            let mut model = BTreeSet::new();
            for (start, len) in ranges {
                bits.insert_range(start..start + len);
                model.extend((start..start + len).filter(|n| *n < limit));
            }
            for number in single {
                prop_assert_eq!(bits.insert(number), number < limit && model.insert(number));
            }
            for number in gone {
                prop_assert_eq!(bits.remove(number), model.remove(&number));
            }
            prop_assert_eq!(bits.count(), model.len() as u64);
            prop_assert_eq!(bits.is_empty(), model.is_empty());
            prop_assert!(bits.iter().eq(model.iter().copied()));
            prop_assert!(bits.runs().flatten().eq(model.iter().copied()));
            prop_assert!(bits.runs().zip(bits.runs().skip(1)).all(|(a, b)| a.end < b.start));
            for from in 0..310 {
                prop_assert_eq!(bits.next(from), model.range(from..).next().copied());
                prop_assert_eq!(bits.previous(from), model.range(..=from).next_back().copied());
            }
        }
    }
}
