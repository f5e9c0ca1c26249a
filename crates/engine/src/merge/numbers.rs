//! The objects of all inputs of a merge, numbered: which copy of each is kept, where it goes, and how it is found by its id.
//!
//! Eight bytes an object, and eight more while they are sorted. Of several copies the first is kept. Ids are looked up in the
//! cues, each several times; where there are few they are copied once.

use super::Input;
use crate::EngineError;
use cuesta_git::{IdKey, ObjectId, sort_by_id};

/// Objects of all inputs together.
const OBJECTS_MAX: u64 = (1 << 31) - 1;
/// Set in the slot of a copy that is not kept; the rest of it is the number of the one that is.
const COPY: u32 = 1 << 31;
/// The slot of a kept copy that has no place.
const UNPLACED: u32 = COPY - 1;
/// A slot of the fan-out stands for about 2 to the power of so many objects.
const FANOUT_SPACING_LOG2: u32 = 3;

/// Objects up to which ids are copied, which takes 4 MiB at most. Merges of what pushes left a moment ago are that small, and go
/// on all the time.
const IDS_COPIED_MAX: u32 = 1 << 17;

/// An entry, segment or root set of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub(super) input: u32,
    pub(super) entry: u32,
}

/// See the module.
pub(super) struct Numbers<'a> {
    inputs: &'a [Input],
    /// Where each input's numbers start.
    starts: Vec<u32>,
    /// The id of each number, or nothing.
    ids: Vec<ObjectId>,
    /// For each number its place in the new pack, if it is kept.
    slots: Vec<u32>,
    /// Kept numbers in the order of their ids.
    sorted: Vec<u32>,
    /// Where in `sorted` the ids of each value of their leading bits end.
    fanout: Vec<u32>,
    fanout_bits: u32,
}

impl<'a> Numbers<'a> {
    pub(super) fn new(inputs: &'a [Input]) -> Result<Self, EngineError> {
        let total: u64 = inputs.iter().map(|input| u64::from(input.index.entries.len())).sum();
        if total >= OBJECTS_MAX {
            return Err(EngineError::limit("objects in a merge", OBJECTS_MAX));
        }
        let mut starts = Vec::with_capacity(inputs.len());
        let mut next = 0;
        for input in inputs {
            starts.push(next);
            next += input.index.entries.len();
        }
        let mut numbers = Self {
            inputs,
            starts,
            ids: Vec::new(),
            slots: vec![UNPLACED; next as usize],
            sorted: Vec::new(),
            fanout: Vec::new(),
            fanout_bits: 0,
        };
        if next <= IDS_COPIED_MAX {
            numbers.copy_ids(next);
        }
        let kept = numbers.sort();
        numbers.spread_out(&kept);
        numbers.sorted = kept.into_iter().map(IdKey::number).collect();
        Ok(numbers)
    }

    /// Copies the ids of all numbers; of none, if one has no id.
    fn copy_ids(&mut self, count: u32) {
        let mut ids = Vec::with_capacity(count as usize);
        for input in self.inputs {
            ids.extend((0..input.index.entries.len()).map_while(|entry| input.index.oid(entry)));
        }
        self.ids = if ids.len() == count as usize { ids } else { Vec::new() };
    }

    /// What is kept, in the order of ids; notes of all other copies which one that is.
    fn sort(&mut self) -> Vec<IdKey> {
        let mut slots = std::mem::take(&mut self.slots);
        let mut keys = Vec::with_capacity(slots.len());
        for (start, input) in self.starts.iter().zip(self.inputs) {
            let ids = (0..input.index.entries.len()).map(|entry| (entry, input.index.oid(entry)));
            keys.extend(ids.filter_map(|(entry, oid)| Some(IdKey::new(&oid?, start + entry))));
        }
        sort_by_id(&mut keys, |number| self.oid(number));
        let mut before: Option<IdKey> = None;
        keys.retain(|key| match before {
            Some(kept) if kept.leading() == key.leading() && self.oid(kept.number()) == self.oid(key.number()) => {
                if let Some(slot) = slots.get_mut(key.number() as usize) {
                    *slot = COPY | kept.number();
                }
                false
            }
            _ => {
                before = Some(*key);
                true
            }
        });
        self.slots = slots;
        keys
    }

    fn spread_out(&mut self, kept: &[IdKey]) {
        self.fanout_bits = kept.len().max(1).ilog2().saturating_sub(FANOUT_SPACING_LOG2);
        let mut fanout = vec![0u32; 1 << self.fanout_bits];
        for (end, key) in (1u32..).zip(kept) {
            if let Some(slot) = fanout.get_mut(self.fanout_slot(key.leading())) {
                *slot = end;
            }
        }
        let mut end = 0;
        for slot in &mut fanout {
            end = (*slot).max(end);
            *slot = end;
        }
        self.fanout = fanout;
    }

    fn fanout_slot(&self, leading: u32) -> usize {
        leading.checked_shr(32 - self.fanout_bits).unwrap_or(0) as usize
    }

    /// How many there are, copies included.
    pub(super) fn len(&self) -> u32 {
        // Fewer than `OBJECTS_MAX`.
        u32::try_from(self.slots.len()).unwrap_or(UNPLACED)
    }

    /// Kept numbers in the order of their ids.
    pub(super) fn sorted(&self) -> &[u32] {
        &self.sorted
    }

    pub(super) fn number(&self, at: At) -> Option<u32> {
        self.starts.get(at.input as usize).map(|start| start + at.entry)
    }

    pub(super) fn at(&self, number: u32) -> Option<At> {
        let input = self.starts.partition_point(|start| *start <= number).checked_sub(1)?;
        Some(At {
            input: u32::try_from(input).ok()?,
            entry: number - self.starts.get(input)?,
        })
    }

    pub(super) fn oid(&self, number: u32) -> Option<ObjectId> {
        if let Some(oid) = self.ids.get(number as usize) {
            return Some(*oid);
        }
        let at = self.at(number)?;
        self.inputs.get(at.input as usize)?.index.oid(at.entry)
    }

    /// The kept copy of what has that number.
    pub(super) fn kept(&self, number: u32) -> Option<u32> {
        let slot = self.slots.get(number as usize)?;
        Some(if slot & COPY == 0 { number } else { slot & !COPY })
    }

    /// The kept number of an object, if it is among the inputs.
    pub(super) fn find(&self, oid: &ObjectId) -> Option<u32> {
        let slot = self.fanout_slot(IdKey::new(oid, 0).leading());
        let start = slot.checked_sub(1).and_then(|slot| self.fanout.get(slot)).copied();
        let range = start.unwrap_or(0) as usize..*self.fanout.get(slot)? as usize;
        let candidates = self.sorted.get(range)?;
        let found = candidates.binary_search_by(|number| self.oid(*number).as_ref().cmp(&Some(oid)));
        candidates.get(found.ok()?).copied()
    }

    /// Where a kept copy goes.
    pub(super) fn place(&self, number: u32) -> Option<u32> {
        let slot = self.slots.get(number as usize).copied();
        slot.filter(|slot| *slot < UNPLACED)
    }

    /// Gives a kept copy a place; `false` if it has one, or is not kept.
    pub(super) fn set_place(&mut self, number: u32, place: u32) -> bool {
        match self.slots.get_mut(number as usize).filter(|slot| **slot == UNPLACED) {
            Some(slot) => {
                *slot = place;
                true
            }
            None => false,
        }
    }

    /// Takes all places back.
    pub(super) fn clear_places(&mut self) {
        let placed = self.slots.iter_mut().filter(|slot| **slot < UNPLACED);
        placed.for_each(|slot| *slot = UNPLACED);
    }
}
