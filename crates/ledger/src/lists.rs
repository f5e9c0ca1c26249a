//! What an edit changes in place: layers, those that left, the objects of inline ones, recent edits.
//!
//! Of nodes that a snapshot shares each change copies a path. The edits of one entry come one after another with no
//! snapshot between them; so what they do to these lists is checked first, and then done to the lists themselves rather
//! than to a copy for each edit.

use crate::conflict::Conflict;
use crate::inline::{InlineChange, InlineObjects};
use crate::layers::{LayerRecord, Layers};
use crate::recent::Recent;
use crate::retired::Retired;
use cuesta_format::{AddedLayer, Edit, LayerId, LayerPlace};
use cuesta_git::ObjectFormat;
use std::sync::Arc;

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Lists {
    pub(crate) layers: Layers,
    pub(crate) retired: Retired,
    pub(crate) inline_objects: InlineObjects,
    pub(crate) recent: Recent,
}

/// What an edit does to the lists, checked: doing it cannot fail.
#[derive(Default)]
pub(crate) struct Planned {
    added: Vec<Arc<LayerRecord>>,
    objects: InlineChange,
}

impl Planned {
    fn add(&mut self, format: Option<ObjectFormat>, added: &AddedLayer) -> Result<(), Conflict> {
        let record = Arc::new(LayerRecord::new(added.meta, added.place.clone()));
        self.added.push(Arc::clone(&record));
        self.objects.add(format, record)
    }
}

impl Lists {
    /// The lists of a checkpoint.
    pub(crate) fn restored(
        format: Option<ObjectFormat>,
        layers: &[AddedLayer],
        retired: Retired,
        recent: Recent,
    ) -> Result<Self, Conflict> {
        let mut lists = Self {
            retired,
            recent,
            ..Self::default()
        };
        let mut planned = Planned::default();
        lists.check_layers(&[], layers)?;
        layers.iter().try_for_each(|added| planned.add(format, added))?;
        lists.change_layers(&[], planned, 0);
        Ok(lists)
    }

    /// Whether an edit of a log of that format may do what it does; changes nothing.
    pub(crate) fn check(&self, format: Option<ObjectFormat>, edit: &Edit) -> Result<Planned, Conflict> {
        let mut planned = Planned::default();
        self.check_layers(&edit.removed, &edit.added)?;
        edit.added.iter().try_for_each(|added| planned.add(format, added))?;
        for orphan in edit.collection.iter().flat_map(|collection| &collection.orphans) {
            let stays = self.layers.find(*orphan).is_some() && !edit.removed.contains(orphan);
            if stays || edit.added.iter().any(|added| added.meta.id == *orphan) {
                return Err(Conflict::LayerExists(*orphan));
            }
        }
        Ok(planned)
    }

    fn check_layers(&self, removed: &[LayerId], added: &[AddedLayer]) -> Result<(), Conflict> {
        self.layers.check(removed, added)?;
        for AddedLayer { meta, .. } in added.iter().filter(|added| added.place == LayerPlace::Bucket) {
            self.retired.check_new(meta.id)?;
            // What this very edit retires cannot come back by it either.
            let leaves = |record: &Arc<LayerRecord>| !record.is_inline() && removed.contains(&meta.id);
            if self.layers.find(meta.id).is_some_and(leaves) {
                return Err(Conflict::LayerRetired(meta.id));
            }
        }
        Ok(())
    }

    /// Does what an edit of entry `number` was planned to do.
    pub(crate) fn apply(&mut self, edit: &Edit, planned: Planned, number: u64) {
        if !(edit.removed.is_empty() && planned.added.is_empty()) {
            self.change_layers(&edit.removed, planned, number);
        }
        if let Some(collection) = &edit.collection {
            self.retired.collect(collection, number, edit.time_ms);
        }
        self.recent.push(edit.id, number);
    }

    fn change_layers(&mut self, removed: &[LayerId], planned: Planned, number: u64) {
        let (gone, mut place) = self.layers.remove(removed);
        self.retired.retire(&gone, number);
        let inline_only = gone.iter().chain(&planned.added).all(|record| record.is_inline());
        for record in planned.added {
            self.layers.insert(record, &mut place);
        }
        if !inline_only {
            self.layers.list_bucket();
        }
        self.inline_objects
            .change(&planned.objects.removing(gone), &self.layers);
    }
}
