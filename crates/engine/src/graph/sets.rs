//! Sets of positions: one bit an entry, allocated for a layer when its first member comes.

use super::Position;
use crate::bits::Bits;
use std::ops::Range;

/// A set of positions in one view: of commits (then an entry is a segment) or of any objects.
#[derive(Clone, Debug, Default)]
pub struct PositionSet {
    slots: Vec<Option<Bits>>,
}

impl PositionSet {
    /// The empty set over a view of `slots` layers.
    pub fn new(slots: u32) -> Self {
        Self {
            slots: vec![None; slots as usize],
        }
    }

    /// Whether `position` is a member.
    pub fn contains(&self, position: Position) -> bool {
        self.bits(position.slot)
            .is_some_and(|bits| bits.contains(position.entry))
    }

    /// Adds `position`, in a layer whose entries are all below `limit`; true if it is new.
    pub fn insert(&mut self, position: Position, limit: u32) -> bool {
        self.bits_mut(position.slot, limit)
            .is_some_and(|bits| bits.insert(position.entry))
    }

    /// Adds the entries `range` of a layer whose entries are all below `limit`.
    pub fn insert_range(&mut self, slot: u32, range: Range<u32>, limit: u32) {
        if range.is_empty() {
            return;
        }
        if let Some(bits) = self.bits_mut(slot, limit) {
            bits.insert_range(range);
        }
    }

    /// Removes `position`; true if it was a member.
    pub fn remove(&mut self, position: Position) -> bool {
        self.slots
            .get_mut(position.slot as usize)
            .and_then(Option::as_mut)
            .is_some_and(|bits| bits.remove(position.entry))
    }

    /// The members in one layer; `None` if there never was one.
    pub fn bits(&self, slot: u32) -> Option<&Bits> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// Takes the members of one layer out of the set.
    pub(super) fn take(&mut self, slot: u32) -> Option<Bits> {
        self.slots.get_mut(slot as usize)?.take()
    }

    fn bits_mut(&mut self, slot: u32, limit: u32) -> Option<&mut Bits> {
        Some(
            self.slots
                .get_mut(slot as usize)?
                .get_or_insert_with(|| Bits::new(limit)),
        )
    }

    /// How many members there are.
    pub fn count(&self) -> u64 {
        self.slots.iter().flatten().map(Bits::count).sum()
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.slots.iter().flatten().all(Bits::is_empty)
    }

    /// The layers with members, oldest first.
    pub fn layers(&self) -> impl DoubleEndedIterator<Item = (u32, &Bits)> {
        // As many slots as `new` was given, which is a u32.
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(slot, bits)| Some((slot as u32, bits.as_ref()?)))
    }

    /// The members, oldest layer first, ascending within it.
    pub fn iter(&self) -> impl Iterator<Item = Position> + '_ {
        self.layers()
            .flat_map(|(slot, bits)| bits.iter().map(move |entry| Position { slot, entry }))
    }
}
