//! What lies below trees that no segment or root set stands for: read and walked, level by level.

use super::answers::{self, WholeEntries};
use crate::graph::{Graph, Position};
use crate::{EngineError, View, objects};
use cuesta_git::{ObjectKind, TreeIter};
use std::collections::HashSet;
use std::sync::Arc;

/// Trees read and held at once.
pub(super) const TREES_AT_ONCE_MAX: usize = 512;

/// A walk down trees.
#[derive(Clone, Copy)]
pub(super) struct Walk<'a> {
    /// Levels that are looked at, the roots being the first; `None` is all. Trees of the last one are not read.
    pub(super) levels: Option<u64>,
    /// Whether blobs are looked at.
    pub(super) blobs: bool,
    /// Objects to pass over, with all below them.
    pub(super) known: Option<&'a HashSet<Position>>,
    /// Objects that a kept answer has whole: cheaper to read than from layers.
    pub(super) whole: Option<&'a Arc<WholeEntries>>,
}

impl Walk<'_> {
    /// Down to the last blob.
    pub(super) const WHOLE: Self = Self {
        levels: None,
        blobs: true,
        known: None,
        whole: None,
    };

    /// The positions of `roots` and what lies below them, each once.
    pub(super) async fn below(
        self,
        view: &View,
        graph: &Graph,
        roots: &[Position],
    ) -> Result<HashSet<Position>, EngineError> {
        let mut seen = HashSet::new();
        if self.levels == Some(0) {
            return Ok(seen);
        }
        let mut level: Vec<Position> = roots.iter().copied().filter(|root| !self.passes(*root)).collect();
        seen.extend(level.iter().copied());
        let mut depth = 1;
        let objects_max = view.world().options.walked_objects_max;
        while !level.is_empty() && self.levels.is_none_or(|levels| depth < levels) {
            let mut deeper = Vec::new();
            for trees in level.chunks(TREES_AT_ONCE_MAX) {
                self.step(view, graph, trees, &mut seen, &mut deeper).await?;
                if seen.len() > objects_max {
                    let what = "objects below the trees asked for";
                    return Err(EngineError::limit(what, objects_max as u64));
                }
            }
            (level, depth) = (deeper, depth.saturating_add(1));
        }
        Ok(seen)
    }

    fn passes(self, position: Position) -> bool {
        self.known.is_some_and(|known| known.contains(&position))
    }

    /// Reads some trees of one level.
    async fn step(
        self,
        view: &View,
        graph: &Graph,
        trees: &[Position],
        seen: &mut HashSet<Position>,
        deeper: &mut Vec<Position>,
    ) -> Result<(), EngineError> {
        let locations = objects::locations(graph, trees)?;
        let objects = match self.whole {
            Some(whole) => answers::read(view, whole, graph, (trees, &locations)).await?,
            None => objects::read(view, &locations).await?,
        };
        for ((kind, content), location) in objects.iter().zip(&locations) {
            let corrupt = |what: String| location.layer.corrupt(what);
            if *kind != ObjectKind::Tree {
                return Err(corrupt("a tree entry names something else as a tree".to_owned()));
            }
            for entry in TreeIter::new(view.object_format(), content) {
                let entry = entry.map_err(|error| corrupt(format!("entry {}: {error}", location.entry)))?;
                let is_tree = entry.mode.is_tree();
                if entry.mode.is_gitlink() || !(self.blobs || is_tree) {
                    continue;
                }
                let missing = || corrupt(format!("{} is in no layer of the view", entry.oid));
                let position = graph.locate(&entry.oid).ok_or_else(missing)?;
                if !self.passes(position) && seen.insert(position) && is_tree {
                    deeper.push(position);
                }
            }
        }
        Ok(())
    }
}
