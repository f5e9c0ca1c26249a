//! Delta bases: where they lie in a pack, and which entries cannot be sent as the deltas they are stored as.

use crate::EngineError;
use crate::graph::{Graph, Position, PositionSet, SendSet};
use cuesta_format::Base;

/// What a pack holds, as up to two sets of positions.
pub(super) struct Contents<'a> {
    pub(super) graph: &'a Graph,
    pub(super) sets: [&'a PositionSet; 2],
}

impl Contents<'_> {
    pub(super) fn holds(&self, position: Position) -> bool {
        self.sets.iter().any(|set| set.contains(position))
    }

    /// Where in the pack the base of `delta` is: the entry its own layer chose, or a copy in an older layer.
    pub(super) fn base(&self, delta: Position, stored: Base) -> Result<Option<Position>, EngineError> {
        Ok(match self.find_base(delta, stored)? {
            Found::Here(base) => Some(base),
            Found::Newer | Found::Nowhere => None,
        })
    }

    /// Chains within a layer have no cycle, and every step to another layer leads to an older one: no mix of copies from
    /// several layers can make the client's deltas run in a circle.
    fn find_base(&self, delta: Position, stored: Base) -> Result<Found, EngineError> {
        let base = match stored {
            Base::None => return Ok(Found::Nowhere),
            Base::Entry(entry) => {
                let base = Position {
                    slot: delta.slot,
                    entry,
                };
                if self.holds(base) {
                    return Ok(Found::Here(base));
                }
                base
            }
            Base::External(_) => stored_base(self.graph, delta, stored)?,
        };
        let copy = if self.holds(base) { Some(base) } else { self.copy(base)? };
        Ok(match copy {
            Some(copy) if copy.slot < delta.slot => Found::Here(copy),
            Some(_) => Found::Newer,
            None => Found::Nowhere,
        })
    }

    /// Another copy of the object at `base` that is in the pack.
    fn copy(&self, base: Position) -> Result<Option<Position>, EngineError> {
        let oid = self.graph.oid(base)?;
        for slot in 0..self.graph.slot_count() {
            if self.sets.iter().all(|set| set.bits(slot).is_none()) {
                continue;
            }
            if let Some(entry) = self.graph.slot(slot)?.index.find(&oid) {
                let copy = Position { slot, entry };
                if self.holds(copy) {
                    return Ok(Some(copy));
                }
            }
        }
        Ok(None)
    }
}

/// Whether and where a pack holds a delta's base.
enum Found {
    Here(Position),
    /// In a newer layer only, where it may rest on the delta.
    Newer,
    Nowhere,
}

/// Where the view keeps the base of `delta`.
fn stored_base(graph: &Graph, delta: Position, stored: Base) -> Result<Position, EngineError> {
    match stored {
        Base::Entry(entry) => Ok(Position {
            slot: delta.slot,
            entry,
        }),
        Base::External(external) => {
            let corrupt =
                |layer: &std::sync::Arc<crate::Layer>| layer.corrupt("a delta's base is in no layer of the view");
            let missing = || graph.layer(delta.slot).map_or(NO_BASE, corrupt);
            graph.external(delta.slot, external)?.ok_or_else(missing)
        }
        Base::None => Err(NO_BASE),
    }
}

const NO_BASE: EngineError = EngineError::Internal("a delta has no base");

/// Which client a pack is for.
pub(super) struct Client<'a> {
    /// What it is sent, as commits.
    pub(super) send: &'a SendSet,
    /// Commits it has.
    pub(super) common: &'a [Position],
    pub(super) thin: bool,
    pub(super) ofs_delta: bool,
}

/// The deltas among `entries` that the client could not resolve, or that would lead its `index-pack` astray. They are
/// sent whole instead. The second answer says whether some deltas are left on what the client has: then every base that
/// can be given by its distance must be.
pub(super) fn to_rebuild(
    graph: &Graph,
    entries: &PositionSet,
    client: &Client<'_>,
) -> Result<(PositionSet, bool), EngineError> {
    let contents = Contents {
        graph,
        sets: [entries, entries],
    };
    let empty = PositionSet::new(graph.slot_count());
    let mut bases = Bases {
        contents,
        rebuild: empty.clone(),
        thin: empty.clone(),
        named: empty,
    };
    bases.sort_out(entries, client)?;
    let thin = !bases.thin.is_empty();
    if thin {
        bases.cut_hanging_chains(entries)?;
    }
    Ok((bases.rebuild, thin))
}

struct Bases<'a> {
    contents: Contents<'a>,
    /// Sent whole.
    rebuild: PositionSet,
    /// Deltas whose base the client takes from what it has.
    thin: PositionSet,
    /// Bases in the pack that a delta refers to by name.
    named: PositionSet,
}

impl Bases<'_> {
    /// Decides on each delta by itself: kept if its base is in the pack, or, for a thin pack, if its base belongs to the
    /// segment of a commit that the client has.
    fn sort_out(&mut self, entries: &PositionSet, client: &Client<'_>) -> Result<(), EngineError> {
        let graph = self.contents.graph;
        let mut undecided: Vec<(Position, Position)> = Vec::new();
        for (slot, bits) in entries.layers() {
            let index = &graph.slot(slot)?.index;
            for entry in bits.iter() {
                let stored = index.entries.base(entry);
                if stored == Base::None {
                    continue;
                }
                let delta = Position { slot, entry };
                match self.contents.find_base(delta, stored)? {
                    Found::Here(base) if client.ofs_delta && base < delta => {}
                    Found::Here(base) => {
                        self.named.insert(base, graph.slot(base.slot)?.index.entries.len());
                    }
                    Found::Newer => {
                        self.rebuild.insert(delta, bits.limit());
                    }
                    Found::Nowhere => match self.commit_of_base(delta, stored)?.filter(|_| client.thin) {
                        Some(commit) if client.send.common.contains(commit) => {
                            self.thin.insert(delta, bits.limit());
                        }
                        Some(commit) if !client.common.is_empty() => undecided.push((delta, commit)),
                        _ => {
                            self.rebuild.insert(delta, bits.limit());
                        }
                    },
                }
            }
        }
        let Some(generation_min) = undecided.iter().map(|(_, commit)| graph.generation(*commit)).min() else {
            return Ok(());
        };
        let had = graph.ancestors(client.common, generation_min)?;
        for (delta, commit) in undecided {
            let set = if had.contains(commit) {
                &mut self.thin
            } else {
                &mut self.rebuild
            };
            set.insert(delta, graph.slot(delta.slot)?.index.entries.len());
        }
        Ok(())
    }

    /// The commit whose segment holds the base of `delta`, if one does.
    fn commit_of_base(&self, delta: Position, stored: Base) -> Result<Option<Position>, EngineError> {
        let graph = self.contents.graph;
        let base = stored_base(graph, delta, stored)?;
        let segment = graph.slot(base.slot)?.history.segments.of_entry(base.entry);
        segment
            .map(|entry| graph.canonical(Position { slot: base.slot, entry }))
            .transpose()
    }

    /// Rebuilds what hangs, over however many deltas, on a base outside the pack and is itself a base by name.
    ///
    /// Such an object may be one the client has already. Its `index-pack` would then take its own copy to resolve those
    /// that name it, later resolve the object itself, and die of the duplicate ("already resolved").
    fn cut_hanging_chains(&mut self, entries: &PositionSet) -> Result<(), EngineError> {
        let graph = self.contents.graph;
        let mut known = PositionSet::new(graph.slot_count());
        let mut hanging = PositionSet::new(graph.slot_count());
        let mut chain = Vec::new();
        for position in entries.iter() {
            let mut at = Some(position);
            let mut hangs = false;
            while let Some(delta) = at {
                if known.contains(delta) {
                    hangs = hanging.contains(delta);
                    break;
                }
                chain.push(delta);
                at = match self.rebuild.contains(delta) {
                    true => None,
                    false => self
                        .contents
                        .base(delta, graph.slot(delta.slot)?.index.entries.base(delta.entry))?,
                };
            }
            while let Some(delta) = chain.pop() {
                let limit = graph.slot(delta.slot)?.index.entries.len();
                hangs = (hangs || self.thin.contains(delta)) && !self.rebuild.contains(delta);
                if hangs && self.named.contains(delta) {
                    self.rebuild.insert(delta, limit);
                    hangs = false;
                }
                known.insert(delta, limit);
                if hangs {
                    hanging.insert(delta, limit);
                }
            }
        }
        Ok(())
    }
}
