//! Which entries cannot be sent as the deltas they are stored as.

use crate::EngineError;
use crate::graph::{Graph, Position, PositionSet, SendSet};
use cuesta_format::Base;

/// Deltas whose base the client would not find. They are sent whole instead.
///
/// A delta stays a delta if its base is in the pack, in the layer that chose it or an older one; or, for a thin pack, if its base
/// belongs to the segment of a commit that the client has. `entries` is what is sent, `send` how it came about, `common`
/// the commits both sides have.
pub(super) fn to_rebuild(
    graph: &Graph,
    entries: &PositionSet,
    send: &SendSet,
    common: &[Position],
    thin: bool,
) -> Result<PositionSet, EngineError> {
    let mut rebuild = PositionSet::new(graph.slot_count());
    let mut undecided: Vec<(Position, Position)> = Vec::new();
    for (slot, bits) in entries.layers() {
        let index = &graph.slot(slot)?.index;
        for entry in bits.iter() {
            let delta = Position { slot, entry };
            match base_of(graph, entries, delta, index.entries.base(entry))? {
                Fate::Kept => {}
                Fate::Absent(Some(commit)) if thin && send.common.contains(commit) => {}
                Fate::Absent(Some(commit)) if thin && !common.is_empty() && !send.send.contains(commit) => {
                    undecided.push((delta, commit));
                }
                Fate::Absent(_) => {
                    rebuild.insert(delta, bits.limit());
                }
            }
        }
    }
    if let Some(generation_min) = undecided.iter().map(|(_, commit)| graph.generation(*commit)).min() {
        let had = graph.ancestors(common, generation_min)?;
        for (delta, commit) in undecided {
            if !had.contains(commit) {
                rebuild.insert(delta, graph.slot(delta.slot)?.index.entries.len());
            }
        }
    }
    Ok(rebuild)
}

enum Fate {
    /// No delta, or its base is in the pack where it does no harm.
    Kept,
    /// The base is not in the pack; it is of this commit's segment, if of any.
    Absent(Option<Position>),
}

fn base_of(graph: &Graph, entries: &PositionSet, delta: Position, stored: Base) -> Result<Fate, EngineError> {
    let base = match stored {
        Base::None => return Ok(Fate::Kept),
        Base::Entry(entry) => Position {
            slot: delta.slot,
            entry,
        },
        Base::External(external) => {
            let missing = || graph_corrupt(graph, delta, "a delta's base is in no layer of the view");
            graph.external(delta.slot, external)?.ok_or_else(missing)?
        }
    };
    if entries.contains(base) && matches!(stored, Base::Entry(_)) {
        return Ok(Fate::Kept);
    }
    // Chains within a layer have no cycle, and every step to another layer leads to an older one: no mix of copies from
    // several layers can make the client's deltas run in a circle.
    let copy = if entries.contains(base) {
        Some(base)
    } else {
        selected_copy(graph, entries, base)?
    };
    if let Some(copy) = copy {
        return Ok(if copy.slot < delta.slot {
            Fate::Kept
        } else {
            Fate::Absent(None)
        });
    }
    let segment = graph.slot(base.slot)?.history.segments.of_entry(base.entry);
    let commit = segment
        .map(|entry| graph.canonical(Position { slot: base.slot, entry }))
        .transpose()?;
    Ok(Fate::Absent(commit))
}

/// Another copy of the object at `base` that is in the pack.
fn selected_copy(graph: &Graph, entries: &PositionSet, base: Position) -> Result<Option<Position>, EngineError> {
    let oid = graph.oid(base)?;
    for (number, bits) in entries.layers() {
        let found = graph
            .slot(number)?
            .index
            .find(&oid)
            .filter(|entry| bits.contains(*entry));
        if let Some(entry) = found {
            return Ok(Some(Position { slot: number, entry }));
        }
    }
    Ok(None)
}

fn graph_corrupt(graph: &Graph, at: Position, what: &str) -> EngineError {
    match graph.layer(at.slot) {
        Some(layer) => layer.corrupt(what),
        None => EngineError::Internal("slot outside the view"),
    }
}
