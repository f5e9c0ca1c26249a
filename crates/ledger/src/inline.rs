//! The objects of all inline layers by id, kept up by the edits that add and remove such layers.

use crate::conflict::Conflict;
use crate::layers::{LayerRecord, Layers};
use bytes::Bytes;
use cuesta_format::{CueHeader, FormatError, LayerPlace, Lookup, SectionKind};
use cuesta_git::{ObjectFormat, ObjectId};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::sync::{Arc, Weak};

/// Where an object lies: a layer, and the entry there.
struct Place {
    layer: Weak<LayerRecord>,
    entry: u32,
}

/// Where copies of an object lie, in the order in which they came. Nearly always there is one.
type Places = SmallVec<[Place; 1]>;

/// Object id to places: one table for a state and those that follow it, which only grows.
///
/// It may know of more than a state has, and never of less: of layers that left since it was begun, that later states have,
/// or whose edit did not become durable. So a place counts only if its very record is in the state that asks. A state in which
/// most of the table counts no more begins another; older states keep theirs.
#[derive(Clone, Default)]
pub(crate) struct InlineObjects {
    table: Arc<RwLock<Table>>,
    /// Objects of layers that left since the table was begun.
    left: u64,
}

#[derive(Default)]
struct Table {
    rows: HashTable<(ObjectId, Places)>,
}

impl Table {
    fn with_capacity(objects: usize) -> Self {
        Self {
            rows: HashTable::with_capacity(objects),
        }
    }

    fn find(&self, oid: &ObjectId) -> &[Place] {
        let row = self.rows.find(spread(oid), |(held, _)| held == oid);
        row.map_or(&[], |(_, places)| places.as_slice())
    }

    fn add(&mut self, record: &Arc<LayerRecord>, lookup: &Lookup) {
        for (oid, entry) in rows(lookup) {
            let layer = Arc::downgrade(record);
            let place = Place { layer, entry };
            let row = self
                .rows
                .entry(spread(&oid), |(held, _)| *held == oid, |(held, _)| spread(held));
            match row {
                Entry::Occupied(mut row) => {
                    let places = &mut row.get_mut().1;
                    // An edit whose append is repeated is applied again, and makes new records.
                    places.retain(|place| place.layer.strong_count() > 0);
                    places.push(place);
                }
                Entry::Vacant(vacant) => {
                    vacant.insert((oid, Places::from([place])));
                }
            }
        }
    }
}

/// Ids are spread already. Objects ground so that many share a slot cost their maker far more than us, and the table does not
/// live longer than a few flushes.
fn spread(oid: &ObjectId) -> u64 {
    let first = oid.as_bytes().first_chunk::<8>();
    first.map_or(0, |first| u64::from_le_bytes(*first))
}

impl InlineObjects {
    /// The newest of these layers that is inline and has the object, and the object's entry there.
    pub(crate) fn find<'a>(&self, oid: &ObjectId, layers: &'a Layers) -> Option<(&'a Arc<LayerRecord>, u32)> {
        let table = self.table.read();
        let mut places = table.find(oid).iter().rev();
        places.find_map(|place| {
            let record = layers.find(place.layer.upgrade()?.meta.id)?;
            std::ptr::eq(place.layer.as_ptr(), Arc::as_ptr(record)).then_some((record, place.entry))
        })
    }

    /// Performs a change; `kept` are the layers that are there after it.
    pub(crate) fn change(&mut self, change: &InlineChange, kept: &Layers) {
        let gone = change.gone.iter().filter(|record| record.is_inline());
        self.left += gone.map(|record| u64::from(record.meta.objects)).sum::<u64>();
        let added = |layer: &LayerRecord| change.added.iter().any(|(record, _)| record.meta.id == layer.meta.id);
        let held = self.table.read().rows.len();
        if self.left.saturating_mul(2) > held as u64 {
            let mut table = Table::with_capacity(held);
            for record in kept.list().iter().filter(|record| record.is_inline() && !added(record)) {
                // What was taken in before can be taken in again.
                if let Ok(Some(lookup)) = lookup(record) {
                    table.add(record, &lookup);
                }
            }
            *self = Self {
                table: Arc::new(RwLock::new(table)),
                left: 0,
            };
        }
        let mut table = self.table.write();
        for (record, lookup) in &change.added {
            table.add(record, lookup);
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
