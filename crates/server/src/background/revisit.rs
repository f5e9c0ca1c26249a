//! Each repository looked at once after a start, a few at a time: what says which have payloads to delete is a hint that goes
//! with a disk, a power cut or a node, and a repository that nobody pushes to any more would be asked by nobody.

use crate::node::Node;
use std::ops::Bound;

/// Repositories looked at in one step.
const LOOKS_MAX: usize = 16;

/// A walk over all names.
#[derive(Default)]
pub(super) struct Revisit {
    after: Option<String>,
    is_done: bool,
}

impl Revisit {
    /// Looks at the next few. Cost: the reads that open each, unless it is open; nothing once all were seen.
    pub(super) async fn step(&mut self, node: &Node) {
        if self.is_done {
            return;
        }
        let directory = match node.engine.directory().log().fresh().await {
            Ok(directory) => directory,
            Err(error) => {
                tracing::warn!(error = ?error.to_string(), "cannot look for what is to be deleted; trying again");
                return;
            }
        };
        let from = self.after.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let next = directory.names().range::<_, String>((from, Bound::Unbounded));
        let next: Vec<_> = next.take(LOOKS_MAX).collect();
        self.is_done = next.len() < LOOKS_MAX;
        for (name, record) in next {
            match node.engine.open_repository(*record).await {
                Ok(repository) => {
                    if let Some(due_ms) = repository.collection_due_ms() {
                        node.uncollected.note_first(record.log, due_ms);
                    }
                }
                Err(error) => {
                    tracing::warn!(repository = %record.log, error = ?error.to_string(), "cannot see what is to be deleted");
                }
            }
            self.after = Some(name.clone());
        }
    }
}
