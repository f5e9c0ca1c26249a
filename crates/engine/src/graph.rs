//! The commit graph of one view, and the walks that negotiation and planning need: all pure, over cues in memory.
//!
//! A commit is named by its [`Position`]: the slot of a layer in the view, and its segment there. Sets of commits are
//! one bit a segment, so a walk neither hashes nor allocates per commit. A commit that several layers hold has one
//! *canonical* position, the one in the largest of them; every walk steps on canonical positions only.

mod order;
mod sets;
mod walks;

pub(crate) use order::Dates;
pub use sets::PositionSet;
pub use walks::SendSet;

use crate::{
    EngineError, Layer,
    layer::{History, Index},
};
use cuesta_format::{LayerId, Link};
use cuesta_git::ObjectId;
use cuesta_ledger::State;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

/// Where an object is in a view: the layer's slot and the entry in its pack. For a commit the entry is also its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Which layer: its number in the view's layer list, oldest first.
    pub slot: u32,
    /// Which entry of the layer's pack.
    pub entry: u32,
}

/// The parents of a commit, present ones only, in git's order.
pub type Parents = SmallVec<[Position; 2]>;

/// The commit graph of one view. What it resolves it remembers, so keep it as long as the view.
pub struct Graph {
    state: Arc<State>,
    slots: Vec<Slot>,
    /// Slots of layers in the bucket, most segments first: the order in which a copy is canonical.
    ranked: Vec<u32>,
    /// Slots of layers in the bucket that vouch for nothing: looked into last, or their copy of a commit, which has no
    /// segment, would hide one that has.
    unreachable: Vec<u32>,
    slot_of: HashMap<LayerId, u32>,
}

/// One layer of the view.
pub(crate) struct Slot {
    pub(crate) layer: Arc<Layer>,
    pub(crate) index: Arc<Index>,
    pub(crate) history: Arc<History>,
    /// Where each external is; see [`Memo`].
    externals: OnceLock<Box<[Memo]>>,
    /// Segments whose commit has its canonical position elsewhere, ascending.
    aliases: OnceLock<Box<[(u32, Position)]>>,
}

impl Graph {
    /// The graph over `layers`, one for each record of `state.layers` and in that order.
    pub(crate) async fn load(state: Arc<State>, layers: Vec<Arc<Layer>>) -> Result<Self, EngineError> {
        let slots = futures::future::try_join_all(layers.into_iter().map(Slot::load)).await?;
        let number =
            |slot: usize| u32::try_from(slot).map_err(|_| EngineError::limit("layers in a view", u64::from(u32::MAX)));
        let (mut ranked, mut unreachable) = (Vec::new(), Vec::new());
        let mut slot_of = HashMap::with_capacity(slots.len());
        for (at, slot) in slots.iter().enumerate() {
            slot_of.insert(slot.layer.id(), number(at)?);
            if slot.layer.meta().unreachable && !slot.layer.is_inline() {
                unreachable.push(number(at)?);
            } else if !slot.layer.is_inline() {
                ranked.push(number(at)?);
            }
        }
        ranked.sort_by_key(|slot| {
            let segments = slots.get(*slot as usize).map_or(0, |slot| slot.history.segments.len());
            (std::cmp::Reverse(segments), *slot)
        });
        Ok(Self {
            state,
            slots,
            ranked,
            unreachable,
            slot_of,
        })
    }

    /// The state whose layers these are.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// How many layers the view has.
    pub fn slot_count(&self) -> u32 {
        // `load` has refused more.
        self.slots.len() as u32
    }

    /// The layer in a slot.
    pub fn layer(&self, slot: u32) -> Option<&Arc<Layer>> {
        self.slots.get(slot as usize).map(|slot| &slot.layer)
    }

    pub(crate) fn slot(&self, slot: u32) -> Result<&Slot, EngineError> {
        self.slots
            .get(slot as usize)
            .ok_or(EngineError::Internal("slot outside the view"))
    }

    /// Where `oid` is: in the largest layer that holds it.
    pub fn locate(&self, oid: &ObjectId) -> Option<Position> {
        self.locate_vouched(oid)
            .or_else(|| self.locate_in(&self.unreachable, oid))
    }

    /// Where `oid` is, if a layer has it that vouches for its objects: those were reachable when it was made.
    pub(crate) fn locate_vouched(&self, oid: &ObjectId) -> Option<Position> {
        self.locate_in(&self.ranked, oid).or_else(|| self.locate_inline(oid))
    }

    fn locate_in(&self, slots: &[u32], oid: &ObjectId) -> Option<Position> {
        slots.iter().find_map(|&slot| {
            let entry = self.slots.get(slot as usize)?.index.find(oid)?;
            Some(Position { slot, entry })
        })
    }

    fn locate_inline(&self, oid: &ObjectId) -> Option<Position> {
        let (record, entry) = self.state.inline_object(oid)?;
        let slot = *self.slot_of.get(&record.meta.id)?;
        Some(Position { slot, entry })
    }

    /// The canonical position of the commit `oid`; `None` if the view has no commit of that id whose history is known.
    pub fn commit(&self, oid: &ObjectId) -> Option<Position> {
        self.locate(oid).filter(|position| self.is_commit(*position))
    }

    /// Whether a commit with a segment is at `position`.
    pub fn is_commit(&self, position: Position) -> bool {
        self.slots
            .get(position.slot as usize)
            .is_some_and(|slot| position.entry < slot.history.segments.len())
    }

    /// The id of what is at `position`.
    pub fn oid(&self, position: Position) -> Result<ObjectId, EngineError> {
        let slot = self.slot(position.slot)?;
        slot.index
            .oid(position.entry)
            .ok_or_else(|| slot.layer.corrupt("entry outside the lookup"))
    }

    /// The generation of a commit: 1 for a root, else one more than its parents' greatest.
    pub fn generation(&self, commit: Position) -> u32 {
        self.slots
            .get(commit.slot as usize)
            .map_or(0, |slot| slot.history.segments.generation(commit.entry))
    }

    /// When a commit was committed, in seconds since the Unix epoch.
    pub fn commit_time(&self, commit: Position) -> i64 {
        self.slots
            .get(commit.slot as usize)
            .map_or(0, |slot| slot.history.segments.commit_time(commit.entry))
    }

    /// The parents of the commit at `commit`, at their canonical positions. A parent that lies beyond the repository's
    /// own shallow boundary is left out.
    pub fn parents(&self, commit: Position) -> Result<Parents, EngineError> {
        let slot = self.slot(commit.slot)?;
        let mut parents = Parents::new();
        for link in slot.history.segments.parents(commit.entry) {
            match link {
                Link::Local(entry) => parents.push(self.canonical(Position {
                    slot: commit.slot,
                    entry,
                })?),
                Link::External(external) => match self.external(commit.slot, external)? {
                    Some(parent) if self.is_commit(parent) => parents.push(parent),
                    _ if !self.state.shallow().is_empty() => {}
                    _ => return Err(slot.layer.corrupt("a parent is in no layer of the view")),
                },
            }
        }
        Ok(parents)
    }

    /// Where `link`, found in a cue of `slot`, leads.
    pub(crate) fn follow(&self, slot: u32, link: Link) -> Result<Option<Position>, EngineError> {
        match link {
            Link::Local(entry) => Ok(Some(Position { slot, entry })),
            Link::External(external) => self.external(slot, external),
        }
    }

    pub(crate) fn external(&self, slot: u32, external: u32) -> Result<Option<Position>, EngineError> {
        let layer = self.slot(slot)?;
        let memos = layer
            .externals
            .get_or_init(|| (0..layer.index.externals.len()).map(|_| Memo::default()).collect());
        let missing = || layer.layer.corrupt("external outside its table");
        let memo = memos.get(external as usize).ok_or_else(missing)?;
        if let Some(known) = memo.value() {
            return Ok(known);
        }
        let found = self.locate(&layer.index.externals.oid(external));
        memo.remember(found);
        Ok(found)
    }

    /// The canonical position of the commit at `commit`.
    pub fn canonical(&self, commit: Position) -> Result<Position, EngineError> {
        let aliases = self.aliases(commit.slot)?;
        if aliases.is_empty() {
            return Ok(commit);
        }
        let at = aliases.binary_search_by_key(&commit.entry, |(segment, _)| *segment);
        Ok(at
            .ok()
            .and_then(|at| aliases.get(at))
            .map_or(commit, |(_, canonical)| *canonical))
    }

    fn aliases(&self, number: u32) -> Result<&[(u32, Position)], EngineError> {
        let slot = self.slot(number)?;
        Ok(slot.aliases.get_or_init(|| self.find_aliases(number, slot)))
    }

    /// Cost: for each segment of the layer a probe of each larger layer's filter, once for each pair of layers in the
    /// process's life.
    fn find_aliases(&self, number: u32, slot: &Slot) -> Box<[(u32, Position)]> {
        let larger = self.ranked.iter().take_while(|other| **other != number);
        let mut found: HashMap<u32, Position> = HashMap::new();
        for &other in larger {
            let Some(other_slot) = self.slots.get(other as usize) else {
                continue;
            };
            for &(segment, entry) in slot.layer.shared_commits(&slot.index, &slot.history, other_slot).iter() {
                found.entry(segment).or_insert(Position { slot: other, entry });
            }
        }
        if slot.layer.is_inline() {
            for segment in 0..slot.history.segments.len() {
                let inline = slot.index.oid(segment).and_then(|oid| self.locate_inline(&oid));
                if let Some(position) = inline.filter(|position| position.slot != number) {
                    found.entry(segment).or_insert(position);
                }
            }
        }
        let mut aliases: Box<[_]> = found.into_iter().collect();
        aliases.sort_unstable_by_key(|(segment, _)| *segment);
        aliases
    }
}

impl Slot {
    async fn load(layer: Arc<Layer>) -> Result<Self, EngineError> {
        layer.prefetch_cue();
        let (index, history) = futures::try_join!(layer.index(), layer.history())?;
        Ok(Self {
            index,
            history,
            layer,
            externals: OnceLock::new(),
            aliases: OnceLock::new(),
        })
    }
}

/// A position resolved at most a few times and then remembered, without a lock: 0 unknown, 1 absent, else the position.
#[derive(Default)]
struct Memo(AtomicU64);

const ABSENT: u64 = 1;
const FIRST: u64 = 2;

impl Memo {
    fn value(&self) -> Option<Option<Position>> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            ABSENT => Some(None),
            packed => {
                let packed = packed - FIRST;
                // The two halves of what `remember` packed.
                Some(Some(Position {
                    slot: (packed >> 32) as u32,
                    entry: packed as u32,
                }))
            }
        }
    }

    fn remember(&self, position: Option<Position>) {
        let packed = position.map_or(ABSENT, |at| (u64::from(at.slot) << 32 | u64::from(at.entry)) + FIRST);
        self.0.store(packed, Ordering::Relaxed);
    }
}
