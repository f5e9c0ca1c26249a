//! The closure of trees that no segment or root set stands for: read and walked, level by level.

use crate::graph::{Graph, Position};
use crate::{EngineError, View, objects};
use cuesta_git::{ObjectKind, TreeIter};
use std::collections::HashSet;

/// Objects one request may reach by walking trees; each takes about 50 bytes while the walk goes on.
const WALKED_OBJECTS_MAX: usize = 4_000_000;
/// Trees read and held at once.
const TREES_AT_ONCE_MAX: usize = 512;

/// Positions of `roots` and everything below them, each once.
pub(super) async fn closure(view: &View, graph: &Graph, roots: &[Position]) -> Result<Vec<Position>, EngineError> {
    let mut seen: HashSet<Position> = roots.iter().copied().collect();
    let mut order: Vec<Position> = roots.to_vec();
    let mut unread: Vec<Position> = roots.to_vec();
    while !unread.is_empty() {
        let now = unread.split_off(unread.len().saturating_sub(TREES_AT_ONCE_MAX));
        let locations = objects::locations(graph, &now)?;
        for ((kind, content), location) in objects::read(view, &locations).await?.iter().zip(&locations) {
            if *kind != ObjectKind::Tree {
                return Err(location.layer.corrupt("a tree entry names something else as a tree"));
            }
            for entry in TreeIter::new(view.object_format(), content) {
                let entry =
                    entry.map_err(|error| location.layer.corrupt(format!("entry {}: {error}", location.entry)))?;
                if entry.mode.is_gitlink() {
                    continue;
                }
                let missing = || {
                    location
                        .layer
                        .corrupt(format!("{} is in no layer of the view", entry.oid))
                };
                let position = graph.locate(&entry.oid).ok_or_else(missing)?;
                if seen.insert(position) {
                    order.push(position);
                    if entry.mode.is_tree() {
                        unread.push(position);
                    }
                }
            }
        }
        if order.len() > WALKED_OBJECTS_MAX {
            return Err(EngineError::limit(
                "objects below the trees asked for",
                WALKED_OBJECTS_MAX as u64,
            ));
        }
    }
    Ok(order)
}
