//! Layers that left the list while their payloads are in the bucket: what a collector may delete, and when.
//!
//! A layer is *retired* by the edit that removes it, *seen* by the first collector's edit after that, whose time is
//! certainly no earlier than the moment at which the layer left, and *forgotten* by the edit that says that its payloads
//! are gone. As long as it is here nobody can add it again.

use crate::conflict::Conflict;
use crate::layers::LayerRecord;
use cuesta_format::{Collection, LayerId, RetiredLayer};
use imbl::Vector;
use std::sync::Arc;

/// In the order in which they left.
#[derive(Clone, Default)]
pub(crate) struct Retired(Vector<RetiredLayer>);

impl Retired {
    pub(crate) fn list(&self) -> &Vector<RetiredLayer> {
        &self.0
    }

    pub(crate) fn restored(layers: Vec<RetiredLayer>) -> Self {
        Self(layers.into())
    }

    /// Takes in what entry `number` removed. Inline layers have no payloads.
    pub(crate) fn retire(&mut self, gone: &[Arc<LayerRecord>], number: u64) {
        for record in gone.iter().filter(|record| !record.is_inline()) {
            self.push(record.meta.id, number);
        }
    }

    /// A layer that is here must not come back: it is about to be deleted. One pass over all of them.
    pub(crate) fn check_new(&self, id: LayerId) -> Result<(), Conflict> {
        match self.0.iter().any(|layer| layer.id == id) {
            true => Err(Conflict::LayerRetired(id)),
            false => Ok(()),
        }
    }

    /// Does what a collector says in entry `number`, at `time_ms`; none of its orphans is in the list.
    pub(crate) fn collect(&mut self, collection: &Collection, number: u64, time_ms: i64) {
        let deleted = self.0.iter().take_while(|layer| {
            // What nobody has seen cannot have had its time.
            layer.number < collection.deleted_below && layer.seen_ms.is_some()
        });
        self.0 = self.0.skip(deleted.count());
        // Those that nobody has seen are the last ones.
        let unseen = self.0.iter().rev().take_while(|layer| layer.seen_ms.is_none()).count();
        for layer in self.0.iter_mut().rev().take(unseen) {
            if layer.number < collection.seen_below {
                layer.seen_ms = Some(time_ms);
            }
        }
        for id in &collection.orphans {
            if self.check_new(*id).is_ok() {
                self.push(*id, number);
            }
        }
    }

    fn push(&mut self, id: LayerId, number: u64) {
        self.0.push_back(RetiredLayer {
            id,
            number,
            seen_ms: None,
        });
    }
}
