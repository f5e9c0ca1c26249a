//! Large objects piece by piece: what is stored whole is inflated as it is read, and never held whole.

use crate::{EngineError, Layer, Location, View};
use bytes::{Buf, Bytes};
use cuesta_git::pack::{ENTRY_HEADER_LEN_MAX, EntryHeader, EntryKind};
use cuesta_git::zlib::Inflater;
use cuesta_git::{ObjectId, ObjectKind};
use futures::stream::{BoxStream, StreamExt};
use std::ops::Range;
use std::sync::Arc;

/// Stored bytes read at once.
const READ_BYTES: u64 = 1 << 20;
/// Bytes of content in one piece, at most.
const PIECE_BYTES: usize = 256 << 10;
/// Largest object that is put together from deltas in memory.
const DELTA_BYTES_MAX: u64 = 512 << 20;

/// An object whose content comes in pieces.
pub struct ObjectStream {
    /// Its kind.
    pub kind: ObjectKind,
    /// Bytes of its content in all.
    pub size: u64,
    /// The content, in pieces of up to 256 KiB, or in one where the object is stored as a delta.
    pub content: BoxStream<'static, Result<Bytes, EngineError>>,
}

impl View {
    /// The object `oid` as a stream. Memory: about 2 MiB if it is stored whole; deltas are put together first, those of
    /// objects above 512 MiB are refused.
    pub async fn object_stream(&self, oid: &ObjectId) -> Result<Option<ObjectStream>, EngineError> {
        let Some(location) = self.find(oid).await? else {
            return Ok(None);
        };
        let index = location.layer.index_of(location.entry).await?;
        let (kind, size) = (index.kind(location.entry), index.entries.size(location.entry));
        if index.entries.base(location.entry) != cuesta_format::Base::None {
            if size > DELTA_BYTES_MAX {
                return Err(EngineError::limit(
                    "bytes of an object stored as a delta",
                    DELTA_BYTES_MAX,
                ));
            }
            let content = crate::objects::read(self, std::slice::from_ref(&location)).await?;
            let content = content.into_iter().map(|(_, content)| Ok(content));
            return Ok(Some(ObjectStream {
                kind,
                size,
                content: futures::stream::iter(content.collect::<Vec<_>>()).boxed(),
            }));
        }
        let stored = index.entries.range(location.entry);
        let inflating = Inflating::new(self.clone(), location, kind, size, stored);
        let content = futures::stream::try_unfold(inflating, Inflating::next).boxed();
        Ok(Some(ObjectStream { kind, size, content }))
    }
}

/// One entry being inflated.
struct Inflating {
    view: View,
    layer: Arc<Layer>,
    entry: u32,
    kind: ObjectKind,
    /// Bytes of content still to come.
    left: u64,
    /// What of the pack is still to be read.
    unread: Range<u64>,
    /// Read, not inflated.
    input: Bytes,
    /// Whether the entry's header was taken off.
    begun: bool,
    /// The inflater has given all that its input holds.
    starved: bool,
    done: bool,
    inflater: Inflater,
}

impl Inflating {
    fn new(view: View, location: Location, kind: ObjectKind, size: u64, unread: Range<u64>) -> Self {
        let Location { layer, entry } = location;
        let (input, inflater) = (Bytes::new(), Inflater::new());
        Self {
            view,
            layer,
            entry,
            kind,
            left: size,
            unread,
            input,
            begun: false,
            starved: true,
            done: false,
            inflater,
        }
    }

    async fn next(mut self) -> Result<Option<(Bytes, Self)>, EngineError> {
        while !self.done {
            if self.starved {
                self.read().await?;
            }
            let workers = self.view.world().workers.clone();
            let (piece, inflating) = workers.run(move || self.inflate()).await?;
            self = inflating;
            if !piece.is_empty() {
                return Ok(Some((piece, self)));
            }
        }
        match self.left {
            0 => Ok(None),
            _ => Err(self.wrong(&"the object is shorter than the cue says")),
        }
    }

    async fn read(&mut self) -> Result<(), EngineError> {
        let end = self.unread.end.min(self.unread.start + READ_BYTES);
        if end == self.unread.start {
            return Err(self.wrong(&"the stream ends early"));
        }
        self.input = self.layer.scan(self.unread.start..end).await?;
        self.unread.start = end;
        if !self.begun {
            self.begin()?;
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), EngineError> {
        let head = self.input.get(..ENTRY_HEADER_LEN_MAX).unwrap_or(&self.input);
        let header = EntryHeader::decode(self.view.object_format(), head).map_err(|error| self.wrong(&error))?;
        match header {
            Some((
                EntryHeader {
                    kind: EntryKind::Object(kind),
                    size,
                },
                len,
            )) if kind == self.kind && size == self.left => {
                self.input.advance(len);
                self.begun = true;
                Ok(())
            }
            _ => Err(self.wrong(&"the pack's header is not what the cue says")),
        }
    }

    fn inflate(mut self) -> Result<(Bytes, Self), EngineError> {
        let mut piece = vec![0; PIECE_BYTES];
        let step = self
            .inflater
            .inflate(&self.input, &mut piece)
            .map_err(|error| self.wrong(&error))?;
        let too_long = || self.wrong(&"the object is longer than the cue says");
        self.left = self.left.checked_sub(step.produced as u64).ok_or_else(too_long)?;
        self.input.advance(step.consumed.min(self.input.len()));
        self.done = step.done;
        self.starved = step.produced < PIECE_BYTES;
        if self.starved && !self.done && !self.input.is_empty() {
            return Err(self.wrong(&"the stream makes no progress"));
        }
        piece.truncate(step.produced);
        Ok((piece.into(), self))
    }

    fn wrong(&self, what: &dyn std::fmt::Display) -> EngineError {
        self.layer.corrupt(format!("entry {}: {what}", self.entry))
    }
}
