//! The objects of all inline layers by id, kept up by the edits that add and remove such layers.

use crate::conflict::Conflict;
use crate::layers::{LayerRecord, Layers};
use bytes::Bytes;
use cuesta_format::{CueHeader, FormatError, LayerId, LayerPlace, Lookup, SectionKind};
use cuesta_git::{ObjectFormat, ObjectId};
use imbl::HashMap;
use imbl::hashmap::Entry;
use std::sync::Arc;

/// Where an object lies: a layer's id, as bytes that need no alignment, and the entry there.
#[derive(Clone, Copy)]
struct Place {
    layer: [u8; 16],
    entry: u32,
}

/// Where copies of an object lie, oldest layer first. Nearly always there is one. Every change of a map that is shared
/// copies tens of these, so that it must cost little.
#[derive(Clone)]
enum Places {
    One(Place),
    Several(Arc<[Place]>),
}

impl Place {
    fn new(layer: LayerId, entry: u32) -> Self {
        Self {
            layer: layer.0.to_be_bytes(),
            entry,
        }
    }

    fn layer(self) -> LayerId {
        LayerId(u128::from_be_bytes(self.layer))
    }
}

impl Places {
    fn list(&self) -> &[Place] {
        match self {
            Self::One(place) => std::slice::from_ref(place),
            Self::Several(places) => places,
        }
    }

    fn push(&mut self, place: Place) {
        *self = Self::Several(self.list().iter().copied().chain([place]).collect());
    }

    /// What remains without a layer.
    fn without(&self, layer: LayerId) -> Option<Self> {
        let rest: Vec<Place> = self
            .list()
            .iter()
            .copied()
            .filter(|place| place.layer() != layer)
            .collect();
        match rest.as_slice() {
            [] => None,
            [place] => Some(Self::One(*place)),
            several => Some(Self::Several(several.into())),
        }
    }
}

/// Object id to places.
#[derive(Clone, Default)]
pub(crate) struct InlineObjects {
    places: HashMap<ObjectId, Places>,
}

impl InlineObjects {
    /// The newest inline layer that has the object, and the object's entry there.
    pub(crate) fn find(&self, oid: &ObjectId) -> Option<(LayerId, u32)> {
        let newest = self.places.get(oid)?.list().last()?;
        Some((newest.layer(), newest.entry))
    }

    /// Performs a change; `kept` are the layers that are there after it.
    pub(crate) fn change(&mut self, change: InlineChange, kept: &Layers) {
        let added = |layer: &LayerRecord| change.added.iter().any(|(record, _)| record.meta.id == layer.meta.id);
        self.remove(&change.gone, kept, added);
        for (record, lookup) in &change.added {
            self.add(record, lookup);
        }
    }

    fn add(&mut self, record: &Arc<LayerRecord>, lookup: &Lookup) {
        for (oid, entry) in rows(lookup) {
            let place = Place::new(record.meta.id, entry);
            match self.places.entry(oid) {
                Entry::Occupied(mut places) => places.get_mut().push(place),
                Entry::Vacant(vacant) => {
                    vacant.insert(Places::One(place));
                }
            }
        }
    }

    /// Forgets layers; `kept` are those that stay, but for those `added` only now. A flush takes nearly all, so that
    /// starting anew from the few that stay is cheaper than taking out one object after the other.
    fn remove(&mut self, gone: &[Arc<LayerRecord>], kept: &Layers, added: impl Fn(&LayerRecord) -> bool) {
        let gone: Vec<_> = gone.iter().filter(|record| record.is_inline()).collect();
        if gone.is_empty() {
            return;
        }
        let objects_gone: u64 = gone.iter().map(|record| u64::from(record.meta.objects)).sum();
        if objects_gone.saturating_mul(2) < self.places.len() as u64 {
            return gone.into_iter().for_each(|record| self.remove_one(record));
        }
        self.places = HashMap::default();
        for record in kept.list().iter().filter(|record| record.is_inline() && !added(record)) {
            // What was taken in before can be taken in again.
            if let Ok(Some(lookup)) = lookup(record) {
                self.add(record, &lookup);
            }
        }
    }

    fn remove_one(&mut self, record: &LayerRecord) {
        let Ok(Some(lookup)) = lookup(record) else { return };
        for (oid, _) in rows(&lookup) {
            match self.places.get(&oid).map(|places| places.without(record.meta.id)) {
                Some(Some(rest)) => drop(self.places.insert(oid, rest)),
                Some(None) => drop(self.places.remove(&oid)),
                None => {}
            }
        }
    }
}

/// What an edit does to the inline layers, each cue read and checked: performing it cannot fail.
#[derive(Default)]
pub(crate) struct InlineChange {
    gone: Vec<Arc<LayerRecord>>,
    added: Vec<(Arc<LayerRecord>, Lookup)>,
}

impl InlineChange {
    /// The same, and layers that are removed.
    pub(crate) fn removing(self, gone: Vec<Arc<LayerRecord>>) -> Self {
        Self { gone, ..self }
    }

    /// Has it add a layer, too, which need not be inline.
    pub(crate) fn add(&mut self, format: Option<ObjectFormat>, record: Arc<LayerRecord>) -> Result<(), Conflict> {
        let Some(lookup) = lookup(&record)? else { return Ok(()) };
        if rows(&lookup).any(|(oid, _)| Some(oid.format()) != format) {
            return Err(bad_cue(&record, "object ids of another object format"));
        }
        self.added.push((record, lookup));
        Ok(())
    }
}

/// Ids and entries of a lookup.
fn rows(lookup: &Lookup) -> impl Iterator<Item = (ObjectId, u32)> {
    (0..lookup.len()).map(|rank| (lookup.oid(rank), lookup.entry(rank)))
}

/// The lookup of an inline layer's cue; none of a layer in the bucket.
fn lookup(record: &LayerRecord) -> Result<Option<Lookup>, Conflict> {
    match &record.place {
        LayerPlace::Inline { cue, .. } => read_lookup(cue).map(Some).map_err(|error| bad_cue(record, error)),
        LayerPlace::Bucket => Ok(None),
    }
}

fn read_lookup(cue: &Bytes) -> Result<Lookup, FormatError> {
    let header = CueHeader::parse(cue)?;
    let bound = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(cue.len());
    let section = |kind| {
        let range = header.section(kind);
        cue.slice(bound(range.start)..bound(range.end))
    };
    Lookup::new(&header, section(SectionKind::Lookup))?.with_blobs(&header, section(SectionKind::BlobLookup))
}

fn bad_cue(record: &LayerRecord, what: impl ToString) -> Conflict {
    Conflict::BadCue {
        layer: record.meta.id,
        what: what.to_string(),
    }
}
