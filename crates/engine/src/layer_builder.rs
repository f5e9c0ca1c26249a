//! Writes a layer: a valid pack and its cue, entry by entry in the layer's order.
//!
//! The builder knows nothing of where entries come from. It rewrites their headers, for in a new pack a delta's base lies
//! elsewhere: an offset where the base comes earlier, its id where it comes later or lies outside.

use bytes::Bytes;
use cuesta_format::{Base, CueBuilder, EntryFacts, FormatError, Link, SegmentRow};
use cuesta_git::pack::{ENTRY_HEADER_LEN_MAX, EntryHeader, EntryKind, PackHeader};
use cuesta_git::{Checksum, ObjectFormat, ObjectId, ObjectKind};
use cuesta_store::Buffers;

/// An entry's header or the trailer may come on top of a chunk.
const SLACK_LEN: usize = ENTRY_HEADER_LEN_MAX;

/// Bytes of a cue that are made before they are sent on.
const CUE_CHUNK_LEN: usize = 512 << 10;

/// The next bytes of a layer.
pub(crate) enum Chunk {
    /// Of its pack.
    Pack(Bytes),
    /// Of its cue, once the pack is whole.
    Cue(Bytes),
}

/// Takes the bytes of a layer as they are made.
pub(crate) trait LayerSink {
    /// Why it could not.
    type Error: From<FormatError>;

    /// Takes the next bytes.
    fn write(&mut self, chunk: Chunk) -> Result<(), Self::Error>;

    /// Where the memory of chunks comes from, and goes when they are written; `None` for fresh one.
    fn buffers(&self) -> Option<&Buffers> {
        None
    }
}

/// What an entry of the new layer is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewBase {
    /// Nothing: it is whole.
    None,
    /// An entry of the new layer, earlier or later.
    Entry(u32, ObjectId),
    /// An object of another layer.
    External(ObjectId),
}

/// One entry of the new layer.
pub(crate) struct NewEntry {
    pub(crate) oid: ObjectId,
    pub(crate) kind: ObjectKind,
    /// Size of the object in bytes.
    pub(crate) size: u64,
    /// Size of the entry's own stream, inflated: of the delta, for a delta.
    pub(crate) own_size: u64,
    pub(crate) base: NewBase,
}

/// A layer that is done.
pub(crate) struct Built {
    pub(crate) format: ObjectFormat,
    /// The pack, if it is so small that none of it went to the sink. It has no trailer until it is sealed.
    pub(crate) pack: Option<Vec<u8>>,
    /// Bytes of the pack.
    pub(crate) pack_bytes: u64,
    /// The cue, if the pack is held, too.
    pub(crate) cue: Bytes,
    /// Bytes of the cue.
    pub(crate) cue_bytes: u64,
    pub(crate) objects: u32,
    pub(crate) segments: u32,
    /// Every base is in the layer.
    pub(crate) self_contained: bool,
    /// Its objects' closures were not checked.
    pub(crate) unreachable: bool,
    /// The bases of its deltas were chosen at compaction.
    pub(crate) bases_chosen: bool,
}

impl Built {
    /// Gives a pack that is held here its trailer: in the bucket every pack stands for itself, whereas one inside a
    /// ledger entry is covered by the entry's checksum.
    pub(crate) fn seal(&mut self) {
        if let Some(pack) = &mut self.pack {
            let mut checksum = Checksum::new(self.format);
            checksum.update(pack);
            pack.extend_from_slice(checksum.finish().as_bytes());
            self.pack_bytes = pack.len() as u64;
        }
    }
}

/// Writes one layer.
pub(crate) struct LayerBuilder<S: LayerSink> {
    format: ObjectFormat,
    cue: CueBuilder,
    sink: S,
    chunk_len: usize,
    buffer: Vec<u8>,
    /// Bytes given to the sink.
    flushed: u64,
    checksum: Checksum,
    /// Bytes at the start of the buffer that the checksum has seen.
    summed: usize,
    segments: u32,
    self_contained: bool,
    unreachable: bool,
}

impl<S: LayerSink> LayerBuilder<S> {
    /// Starts a layer of that many objects; bytes go to the sink in chunks of `chunk_len`. Ids and sizes are lent to
    /// [`LayerBuilder::finish`].
    pub(crate) fn new(format: ObjectFormat, objects: u32, chunk_len: usize, buffer_len: usize, sink: S) -> Self {
        let mut buffer = empty(&sink, buffer_len.min(chunk_len) + SLACK_LEN);
        buffer.extend_from_slice(&PackHeader::new(objects).encode());
        Self {
            format,
            cue: CueBuilder::with_lent_facts(format, objects as usize),
            sink,
            chunk_len: chunk_len.max(1),
            buffer,
            flushed: 0,
            checksum: Checksum::new(format),
            summed: 0,
            segments: 0,
            self_contained: true,
            unreachable: false,
        }
    }

    /// Marks the layer as one that vouches for nothing.
    pub(crate) fn unreachable(&mut self) {
        self.cue.unreachable();
        self.unreachable = true;
    }

    /// The cue being built, for what is not an entry.
    pub(crate) fn cue(&mut self) -> &mut CueBuilder {
        &mut self.cue
    }

    /// Starts the next entry; its zlib stream follows by [`LayerBuilder::stream`].
    pub(crate) fn entry(&mut self, entry: &NewEntry) -> Result<(), S::Error> {
        let offset = self.offset();
        let (kind, base) = match entry.base {
            NewBase::None => (EntryKind::Object(entry.kind), Base::None),
            NewBase::Entry(base, oid) => match self.cue.offset(base) {
                Some(earlier) => (
                    EntryKind::OfsDelta {
                        distance: offset - earlier,
                    },
                    Base::Entry(base),
                ),
                None => (EntryKind::RefDelta { base: oid }, Base::Entry(base)),
            },
            NewBase::External(oid) => {
                self.self_contained = false;
                (
                    EntryKind::RefDelta { base: oid },
                    Base::External(self.cue.external(&oid)?),
                )
            }
        };
        self.cue.entry(&entry.oid, entry.kind, offset, entry.size, base)?;
        EntryHeader {
            kind,
            size: entry.own_size,
        }
        .encode(&mut self.buffer);
        Ok(())
    }

    /// Adds bytes of the current entry's zlib stream.
    pub(crate) fn stream(&mut self, mut bytes: &[u8]) -> Result<(), S::Error> {
        // Cut where a chunk is full: growing a chunk's buffer would copy all of it.
        loop {
            let room = self.chunk_len.saturating_sub(self.buffer.len()).min(bytes.len());
            let (now, later) = bytes.split_at(room);
            self.buffer.extend_from_slice(now);
            if self.buffer.len() >= self.chunk_len {
                self.flush()?;
            }
            if later.is_empty() {
                return Ok(());
            }
            bytes = later;
        }
    }

    fn flush(&mut self) -> Result<(), S::Error> {
        self.sum();
        let next = empty(&self.sink, self.chunk_len + SLACK_LEN);
        let chunk = std::mem::replace(&mut self.buffer, next);
        self.summed = 0;
        self.flushed += chunk.len() as u64;
        let chunk = lend(&self.sink, chunk);
        self.sink.write(Chunk::Pack(chunk))
    }

    /// Adds the segment of the next commit.
    pub(crate) fn segment(
        &mut self,
        row: SegmentRow,
        parents: impl IntoIterator<Item = Link>,
        links: impl IntoIterator<Item = Link>,
    ) -> Result<(), S::Error> {
        self.cue.segment(row, parents, links)?;
        self.segments += 1;
        Ok(())
    }

    /// Ends the pack and makes the cue, with ids and sizes of the entries; `order` is theirs by their ids, if that is known.
    pub(crate) fn finish(mut self, facts: &dyn EntryFacts, order: Option<Vec<u32>>) -> Result<(Built, S), S::Error> {
        let entries_end = self.offset();
        let is_held = self.flushed == 0;
        if !is_held {
            self.sum();
            let trailer = std::mem::replace(&mut self.checksum, Checksum::new(self.format)).finish();
            self.buffer.extend_from_slice(trailer.as_bytes());
        }
        let pack_bytes = self.offset();
        let pack = if is_held {
            Some(self.buffer)
        } else {
            let chunk = lend(&self.sink, self.buffer);
            self.sink.write(Chunk::Pack(chunk))?;
            None
        };
        let objects = self.cue.entries();
        let finished = self.cue.finish_with(entries_end, facts, order)?;
        let cue_bytes = finished.cue_len();
        let cue = if is_held {
            Bytes::from(finished.into_bytes()?)
        } else {
            let sink = &mut self.sink;
            finished.write(CUE_CHUNK_LEN, &mut |piece| sink.write(Chunk::Cue(Bytes::from(piece))))?;
            Bytes::new()
        };
        let (segments, self_contained, unreachable) = (self.segments, self.self_contained, self.unreachable);
        Ok((
            Built {
                format: self.format,
                pack,
                pack_bytes,
                cue,
                cue_bytes,
                objects,
                segments,
                self_contained,
                unreachable,
                bases_chosen: false,
            },
            self.sink,
        ))
    }

    fn offset(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    fn sum(&mut self) {
        self.checksum.update(self.buffer.get(self.summed..).unwrap_or_default());
        self.summed = self.buffer.len();
    }
}

fn empty(sink: &impl LayerSink, capacity: usize) -> Vec<u8> {
    let fresh = || Vec::with_capacity(capacity);
    sink.buffers().map_or_else(fresh, |buffers| buffers.empty(capacity))
}

fn lend(sink: &impl LayerSink, chunk: Vec<u8>) -> Bytes {
    match sink.buffers() {
        Some(buffers) => buffers.lend(chunk),
        None => Bytes::from(chunk),
    }
}
