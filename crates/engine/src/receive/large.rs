//! Blobs that are too large to be held: made from their deltas piece by piece, in nameless files.
//!
//! Commits, trees and tags are held whole and so have a limit of their own; only what is, or becomes, a large blob comes
//! here. A delta that is itself large is read in pieces, too.

use super::entries::{Entries, Stored};
use super::error::{IntakeError, ObjectFault};
use super::known::Known;
use super::options::ReceiveOptions;
use super::source::EntrySource;
use super::spool::{Spool, SpoolReader};
use bytes::Bytes;
use cuesta_git::delta::{DeltaError, DeltaHeader, Instructions, Part};
use cuesta_git::{ObjectHasher, ObjectId, ObjectKind};

/// Bytes read of a file at once.
const PIECE_LEN: u64 = 256 << 10;

/// The content of an object.
pub(super) enum Content {
    Memory(Vec<u8>),
    /// In a file.
    Spooled(Spool),
}

/// A content that someone else keeps.
#[derive(Clone, Copy)]
pub(super) enum ContentRef<'a> {
    Memory(&'a [u8]),
    Spooled(&'a Spool),
}

impl Content {
    pub(super) fn by_ref(&self) -> ContentRef<'_> {
        match self {
            Self::Memory(bytes) => ContentRef::Memory(bytes),
            Self::Spooled(spool) => ContentRef::Spooled(spool),
        }
    }

    /// What it takes of memory and of the disk.
    pub(super) fn weight(&self) -> (usize, u64) {
        match self {
            Self::Memory(bytes) => (bytes.len(), 0),
            Self::Spooled(spool) => (0, spool.len()),
        }
    }
}

impl ContentRef<'_> {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Spooled(spool) => spool.len(),
        }
    }

    /// Gives all of it in pieces.
    pub(super) fn pieces(&self, mut take: impl FnMut(&[u8]) -> Result<(), IntakeError>) -> Result<(), IntakeError> {
        match self {
            Self::Memory(bytes) => take(bytes),
            Self::Spooled(spool) => copy(&mut SpoolReader::new(spool), 0, spool.len(), &mut take),
        }
    }
}

/// Whether an entry must be made here: a blob, and itself, its delta or its base larger than what is held.
pub(super) fn is_large(entries: &Entries, entry: u32, kind: ObjectKind, limits: &ReceiveOptions) -> bool {
    let is_whole_and_large =
        || entries.stored(entry) == Stored::Whole && entries.size(entry) > limits.held_object_bytes_max;
    kind == ObjectKind::Blob && (entries.is_large_delta(entry) || is_whole_and_large())
}

/// Makes a whole entry's content.
pub(super) fn whole(source: &mut EntrySource<'_>, entry: u32, limits: &ReceiveOptions) -> Result<Content, IntakeError> {
    let mut out = room(limits);
    source.inflate_in_pieces(entry, |piece| Ok(out.append(piece)?))?;
    sealed(out)
}

/// Applies the delta of an entry, a blob, to its base; hashes what comes out, too.
pub(super) fn apply(
    source: &mut EntrySource<'_>,
    entry: u32,
    base: ContentRef<'_>,
    limits: &ReceiveOptions,
) -> Result<(Content, ObjectId), IntakeError> {
    let entries = source.entries();
    let mut reader = match base {
        ContentRef::Memory(_) => None,
        ContentRef::Spooled(spool) => Some(SpoolReader::new(spool)),
    };
    let mut out = Hashed::new(entries, limits);
    let mut instructions = Instructions::new(base.len());
    let mut part = |header: DeltaHeader, part: Part<'_>| match (part, &mut reader, base) {
        (Part::Insert(bytes), ..) => out.take(header, bytes),
        (Part::Copy { offset, len }, Some(reader), _) => {
            copy(reader, offset, len, &mut |piece| out.take(header, piece))
        }
        (Part::Copy { offset, len }, None, ContentRef::Memory(bytes)) => out.take(header, slice(bytes, offset, len)?),
        (Part::Copy { .. }, None, ContentRef::Spooled(_)) => Err(Fault::Intake(LOST)),
    };
    let place = |fault: Fault| match fault {
        Fault::Delta(error) => entries.fault(entry, ObjectFault::Delta(error.to_string())).into(),
        Fault::Intake(error) => error,
    };
    source.inflate_in_pieces(entry, |piece| instructions.feed(piece, &mut part).map_err(place))?;
    let header = instructions.finish().map_err(|error| place(error.into()))?;
    out.finish(header)
}

/// Makes the content of an entry, a blob, whose chain of deltas has something large in it. For what is rare: nothing is
/// kept for the next call.
pub(super) fn content(
    source: &mut EntrySource<'_>,
    known: &dyn Known,
    entry: u32,
    limits: &ReceiveOptions,
) -> Result<Content, IntakeError> {
    let entries = source.entries();
    let (mut chain, mut at) = (Vec::new(), entry);
    let mut content = loop {
        match entries.stored(at) {
            Stored::Whole => break whole(source, at, limits)?,
            Stored::Delta(base) => {
                chain.push(at);
                at = base;
            }
            Stored::Named(number) => {
                chain.push(at);
                break Content::Memory(outside(known, entries.named_base(number))?.to_vec());
            }
        }
    };
    while let Some(at) = chain.pop() {
        content = apply(source, at, content.by_ref(), limits)?.0;
    }
    Ok(content)
}

/// Whether something in the chain of deltas of an entry, a blob, is large.
pub(super) fn has_large(entries: &Entries, entry: u32, limits: &ReceiveOptions) -> bool {
    let mut at = entry;
    loop {
        if is_large(entries, at, ObjectKind::Blob, limits) {
            return true;
        }
        match entries.stored(at) {
            Stored::Delta(base) => at = base,
            Stored::Named(_) | Stored::Whole => return false,
        }
    }
}

fn outside(known: &dyn Known, oid: ObjectId) -> Result<Bytes, IntakeError> {
    let object = known.objects(&[oid])?.pop().flatten();
    let (_, bytes) = object.ok_or(IntakeError::Internal("a thin base is gone"))?;
    Ok(bytes)
}

/// Small results stay in memory.
fn room(limits: &ReceiveOptions) -> Spool {
    let memory_bytes_max = usize::try_from(limits.held_object_bytes_max).unwrap_or(usize::MAX);
    Spool::new(limits.spool_directory.clone(), memory_bytes_max)
}

fn sealed(mut out: Spool) -> Result<Content, IntakeError> {
    out.seal()?;
    Ok(match out.into_memory() {
        Ok(bytes) => Content::Memory(bytes),
        Err(spool) => Content::Spooled(spool),
    })
}

const LOST: IntakeError = IntakeError::Internal("a checked copy leaves its base");

fn slice(bytes: &[u8], offset: u64, len: u64) -> Result<&[u8], Fault> {
    let tail = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..));
    let piece = usize::try_from(len).ok().and_then(|len| tail?.get(..len));
    piece.ok_or(Fault::Intake(LOST))
}

fn copy<E: From<std::io::Error>>(
    reader: &mut SpoolReader<'_>,
    mut offset: u64,
    len: u64,
    take: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let end = offset.saturating_add(len);
    while offset < end {
        let piece_end = end.min(offset + PIECE_LEN);
        take(reader.read(offset..piece_end)?)?;
        offset = piece_end;
    }
    Ok(())
}

enum Fault {
    Delta(DeltaError),
    Intake(IntakeError),
}

impl From<DeltaError> for Fault {
    fn from(error: DeltaError) -> Self {
        Self::Delta(error)
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Self::Intake(error.into())
    }
}

/// A result on its way to where it is kept.
struct Hashed<'a> {
    entries: &'a Entries,
    out: Spool,
    hasher: Option<ObjectHasher>,
}

impl<'a> Hashed<'a> {
    fn new(entries: &'a Entries, limits: &ReceiveOptions) -> Self {
        Self {
            entries,
            out: room(limits),
            hasher: None,
        }
    }

    fn hasher(&mut self, header: DeltaHeader) -> &mut ObjectHasher {
        let format = self.entries.format();
        self.hasher
            .get_or_insert_with(|| ObjectHasher::new(format, ObjectKind::Blob, header.result_size))
    }

    fn take(&mut self, header: DeltaHeader, bytes: &[u8]) -> Result<(), Fault> {
        self.hasher(header).update(bytes);
        Ok(self.out.append(bytes)?)
    }

    fn finish(mut self, header: DeltaHeader) -> Result<(Content, ObjectId), IntakeError> {
        self.hasher(header);
        let hasher = self.hasher.take().ok_or(IntakeError::Internal("no hasher"))?;
        let oid = hasher.finish().map_err(super::error::PackFault::from)?;
        Ok((sealed(self.out)?, oid))
    }
}
