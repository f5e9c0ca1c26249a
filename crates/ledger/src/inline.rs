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

    /// Takes in the objects of a layer, if it is inline.
    pub(crate) fn add(&mut self, format: Option<ObjectFormat>, record: &Arc<LayerRecord>) -> Result<(), Conflict> {
        for (oid, entry) in objects(record)? {
            if Some(oid.format()) != format {
                return Err(bad_cue(record, "object ids of another object format"));
            }
            self.places.entry(oid).or_default().push((record.clone(), entry));
        }
        Ok(())
    }

    /// Forgets layers; `kept` are those that stay. A flush takes nearly all, so that starting anew from the few that
    /// stay is cheaper than taking out one object after the other.
    pub(crate) fn remove(&mut self, gone: &[Arc<LayerRecord>], kept: &Layers) {
        let gone: Vec<_> = gone.iter().filter(|record| record.is_inline()).collect();
        if gone.is_empty() {
            return;
        }
        let objects_gone: u64 = gone.iter().map(|record| u64::from(record.meta.objects)).sum();
        if objects_gone.saturating_mul(2) >= self.places.len() as u64 {
            self.restart(kept);
        } else {
            gone.into_iter().for_each(|record| self.remove_one(record));
        }
    }

    fn restart(&mut self, kept: &Layers) {
        self.places = HashMap::default();
        for record in kept.list().iter().filter(|record| record.is_inline()) {
            // What was taken in before can be taken in again.
            for (oid, entry) in objects(record).into_iter().flatten() {
                self.places.entry(oid).or_default().push((record.clone(), entry));
            }
        }
    }

    fn remove_one(&mut self, record: &LayerRecord) {
        for (oid, _) in objects(record).into_iter().flatten() {
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

/// The objects of an inline layer with their entries, as its cue's lookup has them; none for one in the bucket.
fn objects(record: &LayerRecord) -> Result<impl Iterator<Item = (ObjectId, u32)>, Conflict> {
    let lookup = match &record.place {
        LayerPlace::Inline { cue, .. } => Some(read_lookup(cue).map_err(|error| bad_cue(record, error))?),
        LayerPlace::Bucket => None,
    };
    Ok(lookup.into_iter().flat_map(|lookup| {
        let ranks = 0..lookup.len();
        ranks.map(move |rank| (lookup.oid(rank), lookup.entry(rank)))
    }))
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
