//! The reads a pack takes, in the order of its bytes: known from the plan alone, so that they can run ahead.

use super::{Plan, rebuild};
use crate::EngineError;
use crate::graph::Position;
use bytes::Bytes;
use cuesta_store::Access;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of one read, but for a gap at its end.
pub(super) const UNIT_BYTES: u64 = 1 << 20;
/// Where entries follow one another without a gap, this much is fetched at once, so that requests are few; and another as much
/// while that is on its way, since one stream from an object store is slow.
pub(super) const FETCH_BYTES: u64 = 4 << 20;
/// Two runs of entries with no more between them than this are read as one.
pub(super) const GAP_BYTES_MAX: u64 = 32 << 10;
/// Blocks of a pack are kept if they take no more than this part of the memory for blocks.
const MEMORY_SHARE: u64 = 4;
/// Bytes of whole objects made for one unit, unless a single object is larger.
const REBUILD_BYTES: u64 = 4 << 20;

/// One step of writing a pack.
#[derive(Debug)]
pub(super) enum Unit {
    /// Objects to be sent whole. They come first, so that every delta on them comes later.
    Rebuild(Vec<Position>),
    /// The copied ones among neighbouring entries of a layer, from one read. `ahead`, which will be read next, is to be fetched
    /// meanwhile.
    Entries {
        slot: u32,
        entries: Range<u32>,
        bytes: Range<u64>,
        ahead: Option<Range<u64>>,
    },
    /// A part of an entry that is larger than a read; the first part holds its header.
    Part {
        slot: u32,
        entry: u32,
        bytes: Range<u64>,
        first: bool,
        last: bool,
    },
}

/// What a unit's reads brought.
pub(super) enum Fetched {
    /// Entries made anew, header and all.
    Rebuilt(Vec<(Position, Vec<u8>)>),
    /// Bytes of a layer's pack.
    Stored(Bytes),
}

impl Unit {
    pub(super) async fn fetch(self, plan: Arc<Plan>, access: Access) -> Result<(Self, Fetched), EngineError> {
        let fetched = match &self {
            Self::Rebuild(positions) => Fetched::Rebuilt(rebuild::entries(plan, positions.clone()).await?),
            Self::Entries { slot, bytes, ahead, .. } => {
                let layer = Arc::clone(&plan.graph.slot(*slot)?.layer);
                if let Some(ahead) = ahead {
                    layer.prefetch(ahead.clone(), access);
                }
                Fetched::Stored(layer.read_as(bytes.clone(), access).await?)
            }
            Self::Part { slot, bytes, .. } => {
                let layer = Arc::clone(&plan.graph.slot(*slot)?.layer);
                Fetched::Stored(layer.read_as(bytes.clone(), access).await?)
            }
        };
        Ok((self, fetched))
    }
}

impl Plan {
    /// How the copied entries are read: to be kept if the blocks they lie in are few, for others who are as far behind.
    pub(super) fn access(&self) -> Access {
        let cache = &self.view.world().cache;
        let mut bytes = 0;
        for (slot, bits) in self.copied.layers() {
            let Ok(slot) = self.graph.slot(slot) else { continue };
            if slot.layer.is_inline() {
                continue;
            }
            let mut counted_to = 0;
            for entry in bits.iter() {
                let blocks = cache.blocks_around(slot.index.entries.range(entry));
                bytes += blocks.end.saturating_sub(blocks.start.max(counted_to));
                counted_to = blocks.end;
                if cache.access(bytes, MEMORY_SHARE) == Access::Scan {
                    return Access::Scan;
                }
            }
        }
        cache.access(bytes, MEMORY_SHARE)
    }
}

/// The units of a plan: objects to be rebuilt, then layer after layer, oldest first.
pub(super) struct Units {
    plan: Arc<Plan>,
    rebuild_from: Option<Position>,
    slot: u32,
    entry: u32,
    /// The rest of an entry whose first part was given.
    rest: Option<(u32, Range<u64>)>,
    /// The present layer's pack is being fetched up to here.
    fetched_to: u64,
}

impl Units {
    pub(super) fn new(plan: Arc<Plan>) -> Self {
        Self {
            plan,
            rebuild_from: Some(Position { slot: 0, entry: 0 }),
            slot: 0,
            entry: 0,
            rest: None,
            fetched_to: 0,
        }
    }

    fn rebuild(&mut self) -> Option<Unit> {
        let mut from = self.rebuild_from.take()?;
        let (mut positions, mut bytes) = (Vec::new(), 0);
        while from.slot < self.plan.graph.slot_count() && bytes < REBUILD_BYTES {
            match self.plan.rebuilt.bits(from.slot).and_then(|bits| bits.next(from.entry)) {
                Some(entry) => {
                    let position = Position { slot: from.slot, entry };
                    bytes += self
                        .plan
                        .graph
                        .slot(from.slot)
                        .map_or(0, |slot| slot.index.entries.size(entry));
                    positions.push(position);
                    from.entry = entry + 1;
                }
                None => {
                    from = Position {
                        slot: from.slot + 1,
                        entry: 0,
                    }
                }
            }
        }
        if positions.is_empty() {
            return None;
        }
        self.rebuild_from = Some(from);
        Some(Unit::Rebuild(positions))
    }

    fn part(&mut self) -> Option<Unit> {
        let (entry, bytes) = self.rest.take()?;
        Some(self.split(entry, bytes, false))
    }

    fn split(&mut self, entry: u32, bytes: Range<u64>, first: bool) -> Unit {
        let end = bytes.end.min(bytes.start + UNIT_BYTES);
        let last = end == bytes.end;
        self.rest = (!last).then_some((entry, end..bytes.end));
        Unit::Part {
            slot: self.slot,
            entry,
            bytes: bytes.start..end,
            first,
            last,
        }
    }

    /// The next read of the present layer; `None` at its end.
    fn entries(&mut self) -> Option<Unit> {
        let plan = Arc::clone(&self.plan);
        let bits = plan.copied.bits(self.slot)?;
        let index = &plan.graph.slot(self.slot).ok()?.index.entries;
        let start = bits.next(self.entry)?;
        let mut bytes = index.range(start);
        self.entry = start + 1;
        if bytes.end - bytes.start > UNIT_BYTES {
            return Some(self.split(start, bytes, true));
        }
        while let Some(next) = bits.next(self.entry) {
            let range = index.range(next);
            if range.start.saturating_sub(bytes.end) > GAP_BYTES_MAX || range.end - bytes.start > UNIT_BYTES {
                break;
            }
            bytes.end = range.end;
            self.entry = next + 1;
        }
        let mut ahead = None;
        if bytes.end + FETCH_BYTES > self.fetched_to {
            let run_end = index.offset(bits.next_absent(start)).max(bytes.end);
            let from = self.fetched_to.max(bytes.start);
            self.fetched_to = run_end.min(from + FETCH_BYTES).max(from);
            ahead = (from < self.fetched_to).then_some(from..self.fetched_to);
        }
        Some(Unit::Entries {
            slot: self.slot,
            entries: start..self.entry,
            bytes,
            ahead,
        })
    }
}

impl Iterator for Units {
    type Item = Unit;

    fn next(&mut self) -> Option<Unit> {
        if let Some(unit) = self.rebuild().or_else(|| self.part()) {
            return Some(unit);
        }
        while self.slot < self.plan.graph.slot_count() {
            match self.entries() {
                Some(unit) => return Some(unit),
                None => (self.slot, self.entry, self.fetched_to) = (self.slot + 1, 0, 0),
            }
        }
        None
    }
}
