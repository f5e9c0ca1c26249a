//! Writes a pack out of stored entries: straight copies where nothing moved, new headers where a delta's base did.

use super::Plan;
use super::answers::Recipe;
use super::stream::MadeEntry;
use super::units::{Fetched, Unit};
use crate::EngineError;
use crate::graph::{Position, Slot};
use bytes::{Bytes, BytesMut};
use cuesta_format::Base;
use cuesta_git::pack::{ENTRY_HEADER_LEN_MAX, EntryHeader, EntryKind, PackHeader};
use cuesta_git::{Checksum, ObjectId};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Chunks of output are cut at this many bytes.
const CHUNK_BYTES_MAX: usize = 256 << 10;
/// Small pieces are copied together up to this; larger ones are passed on without a copy.
const GATHER_BYTES: usize = 64 << 10;

/// The pack under way.
pub(super) struct Writer {
    plan: Arc<Plan>,
    checksum: Checksum,
    /// Bytes of the pack so far.
    position: u64,
    /// For each slot, how far its entries have moved.
    moved: Vec<Moves>,
    /// Where rebuilt entries start.
    rebuilt: HashMap<Position, u64>,
    made: Vec<MadeEntry>,
    gathered: BytesMut,
    chunks: VecDeque<Bytes>,
    objects: u64,
    /// What it writes is noted there.
    recipe: Option<Recipe>,
}

/// How far entries of a layer moved from their place in the layer to their place in the pack, as (first entry, distance):
/// an element holds from its entry on, until the next. The distance wraps where the pack's place is the lower one.
#[derive(Clone, Default)]
struct Moves(Vec<(u32, u64)>);

impl Moves {
    fn note(&mut self, entry: u32, moved: u64) {
        if self.0.last().is_none_or(|(_, last)| *last != moved) {
            self.0.push((entry, moved));
        }
    }

    fn of(&self, entry: u32) -> Option<u64> {
        match self.0.last() {
            Some((first, moved)) if *first <= entry => Some(*moved),
            _ => {
                let after = self.0.partition_point(|(first, _)| *first <= entry);
                self.0.get(after.checked_sub(1)?).map(|(_, moved)| *moved)
            }
        }
    }
}

impl Writer {
    /// A writer that has written the pack's header. What it writes it notes in the recipe.
    pub(super) fn new(plan: Arc<Plan>, recipe: Option<Recipe>) -> Self {
        let mut writer = Self {
            checksum: Checksum::new(plan.view.object_format()),
            position: 0,
            moved: vec![Moves::default(); plan.graph.slot_count() as usize],
            rebuilt: HashMap::new(),
            made: Vec::new(),
            gathered: BytesMut::new(),
            chunks: VecDeque::new(),
            objects: 0,
            recipe,
            plan,
        };
        let header = PackHeader::new(writer.plan.object_count()).encode();
        writer.put(&header);
        writer
    }

    /// Objects written so far.
    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    /// Where the entries made anew are.
    pub(super) fn take_made(&mut self) -> Vec<MadeEntry> {
        std::mem::take(&mut self.made)
    }

    /// The next chunk that is ready to be sent.
    pub(super) fn next_chunk(&mut self) -> Option<Bytes> {
        self.chunks.pop_front()
    }

    /// Writes one unit.
    pub(super) fn write(&mut self, unit: Unit, fetched: Fetched) -> Result<(), EngineError> {
        match (unit, fetched) {
            (Unit::Rebuild(_), Fetched::Rebuilt(entries)) => {
                for (position, entry) in entries {
                    self.rebuilt.insert(position, self.position);
                    self.made.push(MadeEntry {
                        oid: self.plan.graph.oid(position)?,
                        offset: self.position,
                        len: u32::try_from(entry.len()).unwrap_or(u32::MAX),
                    });
                    self.put_bytes(Bytes::from(entry));
                    self.objects += 1;
                }
                Ok(())
            }
            (
                Unit::Entries {
                    slot, entries, bytes, ..
                },
                Fetched::Stored(stored),
            ) => self.write_entries(
                slot,
                entries,
                &Stored {
                    start: bytes.start,
                    bytes: stored,
                },
            ),
            (
                Unit::Part {
                    slot,
                    entry,
                    bytes,
                    first,
                    last,
                },
                Fetched::Stored(stored),
            ) => {
                self.objects += u64::from(last);
                let stored = Stored {
                    start: bytes.start,
                    bytes: stored,
                };
                let copy = if first {
                    self.begin(slot, entry, bytes, &stored)?
                } else {
                    bytes
                };
                self.copy(slot, copy, &stored)
            }
            _ => Err(EngineError::Internal("a unit was given what another fetched")),
        }
    }

    /// Ends the pack: everything gathered, then the checksum.
    pub(super) fn finish(&mut self) -> Result<(), EngineError> {
        if self.objects != u64::from(self.plan.object_count()) {
            return Err(EngineError::Internal(
                "the pack does not hold as many objects as planned",
            ));
        }
        self.flush();
        let checksum = std::mem::replace(&mut self.checksum, Checksum::new(self.plan.view.object_format()));
        let checksum = checksum.finish();
        self.note_made(checksum.as_bytes());
        if let Some(recipe) = &self.recipe {
            recipe.end();
        }
        self.chunks.push_back(Bytes::copy_from_slice(checksum.as_bytes()));
        Ok(())
    }

    fn write_entries(&mut self, number: u32, entries: Range<u32>, stored: &Stored) -> Result<(), EngineError> {
        let plan = Arc::clone(&self.plan);
        let index = &plan.graph.slot(number)?.index.entries;
        let Some(bits) = plan.copied.bits(number) else {
            return Ok(());
        };
        // Bytes of the layer that are to be copied and have been counted in `position`, but not put out yet.
        let mut pending: Range<u64> = 0..0;
        let mut at = entries.start;
        while let Some(entry) = bits.next(at).filter(|entry| *entry < entries.end) {
            at = entry + 1;
            let range = index.range(entry);
            let header = self.header_for(number, entry, range.start, stored)?;
            if header.is_none() && pending.end == range.start {
                pending.end = range.end;
            } else {
                self.put_stored(number, &pending, stored)?;
                pending = self.put_header(header, range.clone());
            }
            self.position += pending.end - range.start.max(pending.start);
            self.objects += 1;
        }
        self.put_stored(number, &pending, stored)
    }

    /// Starts an entry that is copied in parts; answers what of `bytes` is left to be copied.
    fn begin(&mut self, slot: u32, entry: u32, bytes: Range<u64>, stored: &Stored) -> Result<Range<u64>, EngineError> {
        let header = self.header_for(slot, entry, bytes.start, stored)?;
        Ok(self.put_header(header, bytes))
    }

    fn copy(&mut self, slot: u32, bytes: Range<u64>, stored: &Stored) -> Result<(), EngineError> {
        self.position += bytes.end - bytes.start;
        self.put_stored(slot, &bytes, stored)
    }

    /// Puts a new header in the place of the old one; answers what of `range` follows it.
    fn put_header(&mut self, header: Option<NewHeader>, range: Range<u64>) -> Range<u64> {
        match header {
            Some(NewHeader { bytes, old_len }) => {
                self.put(&bytes);
                (range.start + old_len).min(range.end)..range.end
            }
            None => range,
        }
    }

    /// Notes where an entry comes to lie, and makes the header it needs there; `None` if its own will do.
    fn header_for(
        &mut self,
        number: u32,
        entry: u32,
        offset: u64,
        stored: &Stored,
    ) -> Result<Option<NewHeader>, EngineError> {
        let moved = self.position.wrapping_sub(offset);
        self.moves(number)?.note(entry, moved);
        let plan = Arc::clone(&self.plan);
        let slot = plan.graph.slot(number)?;
        let base = slot.index.entries.base(entry);
        if base == Base::None {
            return Ok(None);
        }
        if let Base::Entry(base) = base {
            // The common case: base and delta have moved alike. A base that comes later is named in the stored header.
            let base = Position {
                slot: number,
                entry: base,
            };
            let keeps = plan.ofs_delta && !plan.distances_only;
            let alike = base.entry > entry || (keeps && self.moves(number)?.of(base.entry) == Some(moved));
            if alike && plan.copied.contains(base) {
                return Ok(None);
            }
        }
        let (header, old_len) = stored.header(slot, entry, offset)?;
        let place = plan.contents().base(Position { slot: number, entry }, base)?;
        let place = place.map(|base| self.place(base)).transpose()?.flatten();
        let kind = match place.and_then(|place| self.position.checked_sub(place)) {
            Some(distance) if plan.ofs_delta && distance > 0 => EntryKind::OfsDelta { distance },
            _ => EntryKind::RefDelta {
                base: base_oid(slot, base)?,
            },
        };
        if kind == header.kind {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(ENTRY_HEADER_LEN_MAX);
        EntryHeader {
            kind,
            size: header.size,
        }
        .encode(&mut bytes);
        Ok(Some(NewHeader { bytes, old_len }))
    }

    /// Where the pack holds the entry at `position`, which it does already: a rebuilt one, one of an older layer, or an
    /// earlier one of the layer being written.
    fn place(&mut self, position: Position) -> Result<Option<u64>, EngineError> {
        if let Some(offset) = self.rebuilt.get(&position) {
            return Ok(Some(*offset));
        }
        let offset = self
            .plan
            .graph
            .slot(position.slot)?
            .index
            .entries
            .offset(position.entry);
        Ok(self
            .moves(position.slot)?
            .of(position.entry)
            .map(|moved| offset.wrapping_add(moved)))
    }

    fn moves(&mut self, slot: u32) -> Result<&mut Moves, EngineError> {
        self.moved
            .get_mut(slot as usize)
            .ok_or(EngineError::Internal("slot outside the view"))
    }

    /// Puts out bytes that are counted already.
    fn put_stored(&mut self, slot: u32, range: &Range<u64>, stored: &Stored) -> Result<(), EngineError> {
        if range.is_empty() {
            return Ok(());
        }
        let bytes = stored.slice(range);
        let bytes = bytes.ok_or_else(|| {
            self.plan
                .graph
                .layer(slot)
                .map_or(SHORT, |layer| layer.corrupt("a read came back short"))
        })?;
        if let Some(recipe) = &self.recipe {
            recipe.stored(slot, range);
        }
        self.gather(bytes);
        Ok(())
    }

    fn put_bytes(&mut self, bytes: Bytes) {
        self.note_made(&bytes);
        self.position += bytes.len() as u64;
        self.gather(bytes);
    }

    fn note_made(&self, bytes: &[u8]) {
        if let Some(recipe) = &self.recipe {
            recipe.made(bytes);
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.note_made(bytes);
        self.position += bytes.len() as u64;
        self.gathered.extend_from_slice(bytes);
    }

    fn gather(&mut self, mut bytes: Bytes) {
        if bytes.len() < GATHER_BYTES {
            self.gathered.extend_from_slice(&bytes);
            if self.gathered.len() >= GATHER_BYTES {
                self.flush();
            }
            return;
        }
        self.flush();
        while !bytes.is_empty() {
            let chunk = bytes.split_to(bytes.len().min(CHUNK_BYTES_MAX));
            self.checksum.update(&chunk);
            self.chunks.push_back(chunk);
        }
    }

    fn flush(&mut self) {
        if !self.gathered.is_empty() {
            let chunk = self.gathered.split().freeze();
            self.checksum.update(&chunk);
            self.chunks.push_back(chunk);
        }
    }
}

/// The id of the base of an entry of `slot`.
fn base_oid(slot: &Slot, base: Base) -> Result<ObjectId, EngineError> {
    let missing = || slot.layer.corrupt("a delta's base is no entry");
    match base {
        Base::Entry(entry) => slot.index.oid(entry).ok_or_else(missing),
        Base::External(external) => Ok(slot.index.externals.oid(external)),
        Base::None => Err(missing()),
    }
}

const SHORT: EngineError = EngineError::Internal("a read came back short");

/// A header to put in the place of one of `old_len` bytes.
struct NewHeader {
    bytes: Vec<u8>,
    old_len: u64,
}

/// Bytes of a layer's pack from `start` on.
struct Stored {
    start: u64,
    bytes: Bytes,
}

impl Stored {
    fn slice(&self, range: &Range<u64>) -> Option<Bytes> {
        let start = usize::try_from(range.start.checked_sub(self.start)?).ok()?;
        let end = usize::try_from(range.end.checked_sub(self.start)?).ok()?;
        (start <= end && end <= self.bytes.len()).then(|| self.bytes.slice(start..end))
    }

    fn header(&self, slot: &Slot, entry: u32, offset: u64) -> Result<(EntryHeader, u64), EngineError> {
        let wrong = |what: &dyn std::fmt::Display| slot.layer.corrupt(format!("entry {entry}: {what}"));
        let start = offset
            .checked_sub(self.start)
            .and_then(|start| usize::try_from(start).ok());
        let bytes = start.and_then(|start| self.bytes.get(start..)).unwrap_or_default();
        let bytes = bytes.get(..ENTRY_HEADER_LEN_MAX).unwrap_or(bytes);
        let header = EntryHeader::decode(slot.index.format, bytes).map_err(|error| wrong(&error))?;
        let (header, len) = header.ok_or_else(|| wrong(&"the header is cut short"))?;
        Ok((header, len as u64))
    }
}
