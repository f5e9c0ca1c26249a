//! The layer list: order for those who read layers, ids for those who replace them.

use crate::conflict::Conflict;
use cuesta_format::{AddedLayer, LayerId, LayerMeta, LayerPlace};
use imbl::{OrdMap, Vector};
use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A layer of a repository, shared by all snapshots it is part of.
pub struct LayerRecord {
    /// What the layer list says of it.
    pub meta: LayerMeta,
    /// Where its bytes are.
    pub place: LayerPlace,
    attached: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl LayerRecord {
    /// A layer that nothing is attached to yet.
    pub fn new(meta: LayerMeta, place: LayerPlace) -> Self {
        Self {
            meta,
            place,
            attached: OnceLock::new(),
        }
    }

    /// As an edit or a checkpoint names it.
    pub fn to_added(&self) -> AddedLayer {
        AddedLayer {
            meta: self.meta,
            place: self.place.clone(),
        }
    }

    /// Whether its bytes are in the ledger.
    pub fn is_inline(&self) -> bool {
        matches!(self.place, LayerPlace::Inline { .. })
    }

    /// What a reader hung here, made by `make` if nothing is here yet. A record carries one type only: `None` if it
    /// carries another.
    pub fn attached<T: Any + Send + Sync>(&self, make: impl FnOnce() -> Arc<T>) -> Option<Arc<T>> {
        self.attached.get_or_init(|| make()).clone().downcast().ok()
    }
}

impl fmt::Debug for LayerRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerRecord")
            .field("meta", &self.meta)
            .field("inline", &self.is_inline())
            .finish()
    }
}

/// The layers of a state, newest last. `list` and `by_id` hold the same records.
#[derive(Clone, Default)]
pub(crate) struct Layers {
    list: Vector<Arc<LayerRecord>>,
    by_id: OrdMap<LayerId, Arc<LayerRecord>>,
    /// Those of the list that are in the bucket: few, where a second of pushes leaves thousands that are not.
    bucket: Arc<[Arc<LayerRecord>]>,
}

impl Layers {
    pub(crate) fn list(&self) -> &Vector<Arc<LayerRecord>> {
        &self.list
    }

    /// Those in the bucket, newest last; the same list as before as long as none came or went.
    pub(crate) fn bucket(&self) -> &Arc<[Arc<LayerRecord>]> {
        &self.bucket
    }

    /// Works out anew which are in the bucket. Cost: a pass over the list.
    pub(crate) fn list_bucket(&mut self) {
        let in_bucket = self.list.iter().filter(|record| !record.is_inline());
        self.bucket = in_bucket.cloned().collect();
    }

    pub(crate) fn find(&self, id: LayerId) -> Option<&Arc<LayerRecord>> {
        self.by_id.get(&id)
    }

    /// Whether layers can be removed, each of which must be there, and then others added, which must not.
    pub(crate) fn check(&self, removed: &[LayerId], added: &[AddedLayer]) -> Result<(), Conflict> {
        let mut leaving = BTreeSet::new();
        for id in removed {
            if !self.by_id.contains_key(id) || !leaving.insert(*id) {
                return Err(Conflict::LayerMissing(*id));
            }
        }
        let mut coming = BTreeSet::new();
        for id in added.iter().map(|added| added.meta.id) {
            let stays = self.by_id.contains_key(&id) && !leaving.contains(&id);
            if stays || !coming.insert(id) {
                return Err(Conflict::LayerExists(id));
            }
        }
        Ok(())
    }

    /// Takes layers out; answers them and the position where what replaces them belongs: that of the newest, so that a
    /// layer never comes after one whose deltas build on it. Without any, that is the end.
    pub(crate) fn remove(&mut self, ids: &[LayerId]) -> (Vec<Arc<LayerRecord>>, usize) {
        if ids.is_empty() {
            return (Vec::new(), self.list.len());
        }
        let gone = ids.iter().filter_map(|id| self.by_id.remove(id)).collect();
        let gone_ids: BTreeSet<LayerId> = ids.iter().copied().collect();
        let (mut kept, mut place) = (Vector::new(), 0);
        for record in &self.list {
            if gone_ids.contains(&record.meta.id) {
                place = kept.len();
            } else {
                kept.push_back(record.clone());
            }
        }
        self.list = kept;
        (gone, place)
    }

    /// Puts a layer at `place`, which moves on.
    pub(crate) fn insert(&mut self, record: Arc<LayerRecord>, place: &mut usize) {
        self.by_id.insert(record.meta.id, record.clone());
        // The usual place is the end, where a push is constant time.
        if *place == self.list.len() {
            self.list.push_back(record);
        } else {
            self.list.insert(*place, record);
        }
        *place += 1;
    }
}
