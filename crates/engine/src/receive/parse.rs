//! Packs taken apart as they stream in (gitformat-pack).
//!
//! Each entry is inflated once, to find its end; whole objects are hashed and looked at on the way. Memory holds the
//! columns of [`Entries`], one entry being inflated, and the [`Spool`] up to its bound.

use super::entries::{Entries, Stored};
use super::error::{IntakeError, ObjectFault, PackFault};
use super::inspect::{Inspector, Refused};
use super::options::IntakeOptions;
use super::spool::Spool;
use cuesta_git::delta::{DELTA_HEADER_LEN_MAX, DeltaHeader};
use cuesta_git::pack::{self, ENTRY_HEADER_LEN_MAX, EntryHeader, EntryKind, PackHeader};
use cuesta_git::zlib::{Inflated, Inflater};
use cuesta_git::{Checksum, ObjectHasher, ObjectId, ObjectKind};

/// Bytes in a pack's header.
pub(crate) const PACK_HEADER_LEN: u64 = pack::PACK_HEADER_LEN as u64;
/// Whole blobs larger than this are hashed as they stream and never held.
const STREAMED_BLOB_LEN_MIN: u64 = 1 << 20;
/// Bytes inflated at once.
const STEP_LEN: usize = 32 << 10;

/// Takes packs apart, one after another, in chunks of any size.
pub(crate) struct PackParser {
    options: IntakeOptions,
    spool: Spool,
    entries: Entries,
    inspector: Inspector,
    state: State,
    /// The start of something that was cut by the end of a chunk; short.
    carry: Vec<u8>,
    checksum: Checksum,
    /// Bytes of all packs so far.
    bytes: u64,
    /// Inflated bytes that all entries so far promise.
    work: u64,
    /// Entries of this pack still to come.
    left: u32,
    inflater: Inflater,
    room: Room,
}

/// Where inflated bytes go.
struct Room {
    /// The object being held, or the start of a delta.
    content: Vec<u8>,
    /// What is not held.
    scratch: Vec<u8>,
}

enum State {
    PackHeader,
    EntryHeader,
    Data(Data),
    Trailer,
    Done,
}

/// The zlib stream of one entry, being inflated.
struct Data {
    /// Size the header promises.
    size: u64,
    /// Inflated so far.
    inflated: u64,
    sink: Sink,
}

enum Sink {
    /// Gather it all in `content`, then look at it.
    Hold(ObjectKind),
    /// Hash it.
    Hash(Box<ObjectHasher>),
    /// Look only at the sizes at its start.
    Delta,
}

impl Room {
    fn scratch_of(&mut self, len: usize) -> &mut [u8] {
        if self.scratch.len() < len {
            self.scratch.resize(len, 0);
        }
        self.scratch.get_mut(..len).unwrap_or_default()
    }
}

/// What streamed in, taken apart.
pub(crate) struct Parsed {
    pub(crate) spool: Spool,
    pub(crate) entries: Entries,
    pub(crate) inspector: Inspector,
}

impl PackParser {
    pub(crate) fn new(options: IntakeOptions) -> Self {
        let format = options.object_format;
        let mut parser = Self {
            spool: Spool::new(
                options.limits.spool_directory.clone(),
                options.limits.spool_memory_bytes_max,
            ),
            entries: Entries::new(format),
            inspector: Inspector::new(format, options.fsck.clone()),
            state: State::Done,
            carry: Vec::new(),
            checksum: Checksum::new(format),
            bytes: 0,
            work: 0,
            left: 0,
            inflater: Inflater::new(),
            room: Room {
                content: Vec::new(),
                scratch: Vec::new(),
            },
            options,
        };
        parser.begin();
        parser
    }

    /// Entries taken apart so far, and how many the current pack says it has in all.
    pub(crate) fn progress(&self) -> (u32, u32) {
        (self.entries.len(), self.entries.len().saturating_add(self.left))
    }

    /// Whether the current pack has come to its end.
    pub(crate) fn is_pack_whole(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Makes room for so many bytes at once.
    pub(crate) fn expect(&mut self, bytes: usize) {
        self.spool.reserve(bytes);
    }

    /// Takes the next bytes.
    pub(crate) fn feed(&mut self, mut input: &[u8]) -> Result<(), IntakeError> {
        self.bytes += input.len() as u64;
        if let Some(bytes_max) = self.options.limits.pack_bytes_max.filter(|max| self.bytes > *max) {
            return Err(PackFault::TooLarge { bytes_max }.into());
        }
        while !input.is_empty() {
            let used = match self.state {
                State::PackHeader => self.pack_header(input)?,
                State::EntryHeader => self.entry_header(input)?,
                State::Data(_) => self.data(input)?,
                State::Trailer => self.trailer(input)?,
                State::Done => return Err(PackFault::Junk.into()),
            };
            input = input.get(used..).unwrap_or_default();
        }
        Ok(())
    }

    /// Ends one pack, so that another may follow.
    pub(crate) fn finish_pack(&mut self) -> Result<(), IntakeError> {
        if !matches!(self.state, State::Done) {
            return Err(PackFault::EarlyEof.into());
        }
        self.begin();
        Ok(())
    }

    /// Ends the push; the last pack has been ended by [`PackParser::finish_pack`].
    pub(crate) fn into_parsed(mut self) -> Result<Parsed, IntakeError> {
        self.spool.seal()?;
        self.entries.shrink();
        Ok(Parsed {
            spool: self.spool,
            entries: self.entries,
            inspector: self.inspector,
        })
    }

    fn begin(&mut self) {
        self.state = State::PackHeader;
        self.checksum = Checksum::new(self.options.object_format);
        self.entries.begin_pack(self.spool.len());
    }

    fn pack_header(&mut self, input: &[u8]) -> Result<usize, IntakeError> {
        let used = self.gather(input, pack::PACK_HEADER_LEN);
        let Some(header) = self.carry.first_chunk::<{ pack::PACK_HEADER_LEN }>() else {
            return Ok(used);
        };
        let header_fault = |error| match error {
            pack::PackError::Version(version) => PackFault::Version(version),
            _ => PackFault::Signature,
        };
        let count = PackHeader::decode(header).map_err(header_fault)?.count;
        let objects = u64::from(self.entries.len()) + u64::from(count);
        let objects_max = self.options.limits.objects_max;
        if objects > u64::from(objects_max) {
            return Err(PackFault::TooManyObjects { objects, objects_max }.into());
        }
        self.checksum.update(&self.carry);
        self.carry.clear();
        self.left = count;
        self.entries.reserve(count as usize);
        self.next_entry();
        Ok(used)
    }

    fn next_entry(&mut self) {
        self.state = if self.left == 0 {
            State::Trailer
        } else {
            State::EntryHeader
        };
    }

    fn entry_header(&mut self, input: &[u8]) -> Result<usize, IntakeError> {
        let format = self.options.object_format;
        let offset = self.spool.len();
        let carried = self.carry.len();
        let decoded = if carried == 0 {
            EntryHeader::decode(format, input)
        } else {
            let wanted = ENTRY_HEADER_LEN_MAX.saturating_sub(carried).min(input.len());
            self.carry.extend_from_slice(input.get(..wanted).unwrap_or_default());
            EntryHeader::decode(format, &self.carry)
        };
        let decoded = decoded.map_err(|error| {
            let fault = match error {
                pack::PackError::BaseDistance => ObjectFault::BaseOutOfBound,
                other => ObjectFault::Header(other.to_string()),
            };
            self.fault(offset, fault)
        })?;
        let Some((header, header_len)) = decoded else {
            if carried == 0 {
                self.carry.extend_from_slice(input);
            }
            return Ok(input.len());
        };
        let used = header_len.saturating_sub(carried);
        if carried == 0 {
            self.keep(input.get(..used).unwrap_or_default())?;
        } else {
            let carry = std::mem::take(&mut self.carry);
            self.keep(carry.get(..header_len).unwrap_or_default())?;
        }
        self.begin_entry(offset, header, header_len)?;
        Ok(used)
    }

    fn begin_entry(&mut self, offset: u64, header: EntryHeader, header_len: usize) -> Result<(), IntakeError> {
        let (stored, kind, sink) = match header.kind {
            EntryKind::Object(kind) => (Stored::Whole, Some(kind), self.sink(kind, header.size)),
            EntryKind::OfsDelta { distance } => {
                let base = offset
                    .checked_sub(distance)
                    .and_then(|base| self.entries.at_offset(base));
                let base = base.ok_or_else(|| self.fault(offset, ObjectFault::BaseOutOfBound))?;
                (Stored::Delta(base), None, Sink::Delta)
            }
            EntryKind::RefDelta { base } => (Stored::Named(self.entries.name_base(base)), None, Sink::Delta),
        };
        let (what, size_max) = match sink {
            Sink::Hash(_) | Sink::Hold(ObjectKind::Blob) => ("blob", self.options.limits.blob_bytes_max),
            Sink::Hold(kind) => (kind.name(), self.options.limits.structure_bytes_max),
            Sink::Delta => ("delta", self.options.limits.delta_bytes_max),
        };
        if header.size > size_max {
            return Err(self
                .fault(
                    offset,
                    ObjectFault::TooLarge {
                        what,
                        size: header.size,
                        size_max,
                    },
                )
                .into());
        }
        self.add_work(header.size)?;
        let header_len = u8::try_from(header_len).map_err(|_| IntakeError::Internal("entry header too long"))?;
        self.entries.push(offset, header_len, header.size, kind, stored);
        self.inflater.reset();
        self.room.content.clear();
        self.state = State::Data(Data {
            size: header.size,
            inflated: 0,
            sink,
        });
        Ok(())
    }

    fn sink(&self, kind: ObjectKind, size: u64) -> Sink {
        if kind == ObjectKind::Blob && size > STREAMED_BLOB_LEN_MIN {
            Sink::Hash(Box::new(ObjectHasher::new(self.options.object_format, kind, size)))
        } else {
            Sink::Hold(kind)
        }
    }

    /// Inflates until the stream or the input ends.
    fn data(&mut self, input: &[u8]) -> Result<usize, IntakeError> {
        let offset = self.entries.span(self.entries.len().saturating_sub(1)).start;
        let State::Data(data) = &mut self.state else {
            return Err(IntakeError::Internal("no entry is open"));
        };
        let mut used = 0;
        let outcome = loop {
            match data.step(
                &mut self.inflater,
                input.get(used..).unwrap_or_default(),
                &mut self.room,
            ) {
                Ok(step) if step.done => {
                    used += step.consumed;
                    break Ok(true);
                }
                Ok(step) if step.produced == 0 && (step.consumed == 0 || used + step.consumed == input.len()) => {
                    used += step.consumed;
                    break Ok(false);
                }
                Ok(step) => used += step.consumed,
                Err(fault) => break Err(fault),
            }
        };
        let done = outcome.map_err(|fault| self.fault(offset, fault))?;
        if used == 0 && !done {
            return Err(IntakeError::Internal("the inflater makes no progress"));
        }
        self.keep(input.get(..used).unwrap_or_default())?;
        if done {
            self.end_entry(offset)?;
        }
        Ok(used)
    }

    fn end_entry(&mut self, offset: u64) -> Result<(), IntakeError> {
        let entry = self.entries.len().saturating_sub(1);
        let State::Data(data) = std::mem::replace(&mut self.state, State::EntryHeader) else {
            return Err(IntakeError::Internal("no entry is open"));
        };
        let known = match data.sink {
            Sink::Hold(kind) => Some((kind, self.inspector.inspect(entry, kind, &self.room.content))),
            Sink::Hash(hasher) => {
                let oid = hasher.finish().map_err(|attack| Refused::Pack(attack.into()));
                Some((ObjectKind::Blob, oid))
            }
            Sink::Delta => {
                self.check_delta(offset)?;
                None
            }
        };
        if let Some((kind, oid)) = known {
            let oid = oid.map_err(|refused| match refused {
                Refused::Fault(fault) => self.fault(offset, fault),
                Refused::Pack(fault) => fault,
            })?;
            self.entries.resolve(entry, kind, data.size, &oid);
        }
        self.entries.end_at(self.spool.len());
        self.left = self.left.saturating_sub(1);
        self.next_entry();
        Ok(())
    }

    /// The sizes a delta starts with must be within the limits; whether it is one for a file is remembered.
    fn check_delta(&mut self, offset: u64) -> Result<(), IntakeError> {
        let header = DeltaHeader::decode(&self.room.content);
        let (header, _) = header.map_err(|error| self.fault(offset, ObjectFault::Delta(error.to_string())))?;
        let size_max = self.options.limits.delta_bytes_max;
        let size = header.base_size.max(header.result_size);
        if size > size_max {
            return Err(self
                .fault(
                    offset,
                    ObjectFault::TooLarge {
                        what: "delta result",
                        size,
                        size_max,
                    },
                )
                .into());
        }
        let entry = self.entries.len().saturating_sub(1);
        if size.max(self.entries.size(entry)) > self.options.limits.held_object_bytes_max {
            self.entries.set_large_delta(entry);
        }
        self.add_work(header.result_size)
    }

    fn add_work(&mut self, bytes: u64) -> Result<(), IntakeError> {
        self.work = self.work.saturating_add(bytes);
        if self.work > self.options.work_bytes_max {
            Err(IntakeError::WouldWait)
        } else {
            Ok(())
        }
    }

    fn trailer(&mut self, input: &[u8]) -> Result<usize, IntakeError> {
        let format = self.options.object_format;
        let used = self.gather(input, format.width());
        if self.carry.len() == format.width() {
            let checksum = std::mem::replace(&mut self.checksum, Checksum::new(format));
            let expected = checksum.finish();
            let got = ObjectId::from_bytes(format, &self.carry).unwrap_or(ObjectId::null(format));
            if expected != got {
                return Err(PackFault::Trailer { expected, got }.into());
            }
            self.carry.clear();
            self.state = State::Done;
        }
        Ok(used)
    }

    /// Fills `carry` up to `len` bytes.
    fn gather(&mut self, input: &[u8], len: usize) -> usize {
        let used = len.saturating_sub(self.carry.len()).min(input.len());
        self.carry.extend_from_slice(input.get(..used).unwrap_or_default());
        used
    }

    /// Spools bytes of an entry.
    fn keep(&mut self, bytes: &[u8]) -> Result<(), IntakeError> {
        self.checksum.update(bytes);
        self.spool.append(bytes)?;
        Ok(())
    }

    fn fault(&self, spool_offset: u64, fault: ObjectFault) -> PackFault {
        PackFault::BadObject {
            offset: self.entries.pack_offset(spool_offset),
            fault,
        }
    }
}

impl Data {
    /// Inflates a piece into the sink; never asks for more than one byte beyond the promised size.
    fn step(&mut self, inflater: &mut Inflater, input: &[u8], room: &mut Room) -> Result<Inflated, ObjectFault> {
        let left = self.size.saturating_sub(self.inflated).saturating_add(1);
        let len = usize::try_from(left).unwrap_or(STEP_LEN).min(STEP_LEN);
        let step = match &mut self.sink {
            Sink::Hold(_) => {
                let start = room.content.len();
                room.content.resize(start + len, 0);
                let step = inflate(inflater, input, room.content.get_mut(start..))?;
                room.content.truncate(start + step.produced);
                step
            }
            Sink::Hash(hasher) => {
                let step = inflate(inflater, input, Some(room.scratch_of(len)))?;
                hasher.update(room.scratch.get(..step.produced).unwrap_or_default());
                step
            }
            Sink::Delta => {
                let step = inflate(inflater, input, Some(room.scratch_of(len)))?;
                let wanted = DELTA_HEADER_LEN_MAX
                    .saturating_sub(room.content.len())
                    .min(step.produced);
                room.content
                    .extend_from_slice(room.scratch.get(..wanted).unwrap_or_default());
                step
            }
        };
        self.inflated += step.produced as u64;
        if self.inflated > self.size || (step.done && self.inflated != self.size) {
            return Err(ObjectFault::Size {
                expected: self.size,
                got: self.inflated,
            });
        }
        Ok(step)
    }
}

fn inflate(inflater: &mut Inflater, input: &[u8], output: Option<&mut [u8]>) -> Result<Inflated, ObjectFault> {
    let output = output.unwrap_or_default();
    inflater
        .inflate(input, output)
        .map_err(|error| ObjectFault::Inflate(error.to_string()))
}
