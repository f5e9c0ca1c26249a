//! The objects of all inline layers by id, kept up by the edits that add and remove such layers.

use crate::conflict::Conflict;
use crate::layers::{LayerRecord, Layers};
use bytes::Bytes;
use cuesta_format::{CueHeader, FormatError, LayerPlace, Lookup, SectionKind};
use cuesta_git::{ObjectFormat, ObjectId};
use imbl::HashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// Where an object lies. Nearly always one place; two pushes may bring the same object.
type Places = SmallVec<[(Arc<LayerRecord>, u32); 1]>;

/// Object id to places, oldest layer first.
#[derive(Clone, Default)]
pub(crate) struct InlineObjects {
    places: HashMap<ObjectId, Places>,
}

impl InlineObjects {
    /// The newest inline layer that has the object, and the object's entry there.
    pub(crate) fn find(&self, oid: &ObjectId) -> Option<(&Arc<LayerRecord>, u32)> {
        self.places.get(oid)?.last().map(|(record, entry)| (record, *entry))
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
            self.places.entry(oid).or_default().push((record.clone(), entry));
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
            let Some(places) = self.places.get_mut(&oid) else {
                continue;
            };
            places.retain(|(other, _)| other.meta.id != record.meta.id);
            if places.is_empty() {
                self.places.remove(&oid);
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
    /// A change that removes layers.
    pub(crate) fn removing(gone: Vec<Arc<LayerRecord>>) -> Self {
        Self {
            gone,
            added: Vec::new(),
        }
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
    let range = header.section(SectionKind::Lookup);
    let bound = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(cue.len());
    Lookup::new(&header, cue.slice(bound(range.start)..bound(range.end)))
}

fn bad_cue(record: &LayerRecord, what: impl ToString) -> Conflict {
    Conflict::BadCue {
        layer: record.meta.id,
        what: what.to_string(),
    }
}
