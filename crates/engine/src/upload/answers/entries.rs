//! Whole objects of a kept answer: entries that were made anew for it serve the next answer as well, and its tree walk.
//!
//! A kept answer's attachment names them: for each its id, its offset (8 bytes, little-endian) and its length (4), sorted by
//! id. Bytes are taken over only if they are the entry that the cue lets expect, whole and of the right size.

use crate::graph::{Graph, Position};
use crate::objects::{self, Object};
use crate::upload::stream::MadeEntry;
use crate::{EngineError, Location, View};
use bytes::Bytes;
use cuesta_git::pack::{ENTRY_HEADER_LEN_MAX, EntryHeader, EntryKind};
use cuesta_git::zlib::WholeInflater;
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind};
use cuesta_store::{KeptFile, PIECE_BYTES};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

const PLACE_BYTES: usize = 12;

/// What a kept answer has whole.
pub(in crate::upload) struct WholeEntries {
    file: Arc<KeptFile>,
    format: ObjectFormat,
    index: Bytes,
}

/// The attachment for these entries.
pub(super) fn index(made: &[MadeEntry]) -> Vec<u8> {
    let mut made: Vec<&MadeEntry> = made.iter().filter(|entry| entry.len < u32::MAX).collect();
    made.sort_unstable();
    let mut index = Vec::new();
    for entry in made {
        index.extend_from_slice(entry.oid.as_bytes());
        index.extend_from_slice(&entry.offset.to_le_bytes());
        index.extend_from_slice(&entry.len.to_le_bytes());
    }
    index
}

impl WholeEntries {
    /// Those of a file; `None` if it has none.
    pub(super) fn of(file: Arc<KeptFile>, format: ObjectFormat) -> Option<Self> {
        let index = file.attachment();
        let is_index = !index.is_empty() && index.len().is_multiple_of(format.width() + PLACE_BYTES);
        is_index.then_some(Self { file, format, index })
    }

    /// Where `oid` is.
    fn find(&self, oid: &ObjectId) -> Option<Range<u64>> {
        let width = self.format.width();
        let record = |number: usize| {
            self.index
                .get(number * (width + PLACE_BYTES)..)?
                .get(..width + PLACE_BYTES)
        };
        let (mut low, mut high) = (0, self.index.len() / (width + PLACE_BYTES));
        while low < high {
            let middle = low.midpoint(high);
            let (id, place) = record(middle)?.split_at(width);
            match id.cmp(oid.as_bytes()) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    let (offset, len) = place.split_at(8);
                    let offset = u64::from_le_bytes(offset.try_into().ok()?);
                    let len = u32::from_le_bytes(len.try_into().ok()?);
                    return Some(offset..offset.checked_add(len.into())?);
                }
            }
        }
        None
    }
}

/// An entry to be looked for.
struct Wanted {
    at: usize,
    range: Range<u64>,
    kind: ObjectKind,
    size: u64,
}

/// Those of `positions` that are there, in the order of their bytes.
fn wanted(graph: &Graph, whole: &WholeEntries, positions: &[Position]) -> Result<Vec<Wanted>, EngineError> {
    let mut wanted = Vec::new();
    for (at, position) in positions.iter().enumerate() {
        let index = &graph.slot(position.slot)?.index;
        let Some(range) = index.oid(position.entry).and_then(|oid| whole.find(&oid)) else {
            continue;
        };
        wanted.push(Wanted {
            at,
            range,
            kind: index.kind(position.entry),
            size: index.entries.size(position.entry),
        });
    }
    wanted.sort_unstable_by_key(|wanted| wanted.range.start);
    Ok(wanted)
}

/// The entries of those of `positions` that are there. Blocks a thread of the workers for the reads.
pub(in crate::upload) async fn entries(
    view: &View,
    graph: &Graph,
    whole: &Arc<WholeEntries>,
    positions: &[Position],
) -> Result<HashMap<Position, Vec<u8>>, EngineError> {
    let (wanted, kept) = (wanted(graph, whole, positions)?, Arc::clone(whole));
    let read = move || {
        let mut reader = Reader::new(&kept);
        let read = wanted
            .into_iter()
            .map(|wanted| Some((wanted.at, reader.entry(&wanted)?)));
        read.flatten().collect::<Vec<_>>()
    };
    let read = view.world().workers.run(read).await;
    if let Some(answers) = &view.world().answers {
        answers.reused(read.len());
    }
    let found = read
        .into_iter()
        .filter_map(|(at, entry)| Some((*positions.get(at)?, entry)));
    Ok(found.collect())
}

/// The objects at `positions`, whose locations are given: from there if they are there, or else from the layers.
pub(in crate::upload) async fn read(
    view: &View,
    whole: &Arc<WholeEntries>,
    graph: &Graph,
    (positions, locations): (&[Position], &[Location]),
) -> Result<Vec<Object>, EngineError> {
    let (wanted, kept) = (wanted(graph, whole, positions)?, Arc::clone(whole));
    let inflate = move || {
        let (mut reader, mut inflater) = (Reader::new(&kept), WholeInflater::new());
        let read = wanted.into_iter().map(|wanted| {
            let content = inflated(&reader.entry(&wanted)?, &wanted, &mut inflater, kept.format)?;
            Some((wanted.at, (wanted.kind, content)))
        });
        read.flatten().collect::<HashMap<usize, Object>>()
    };
    let mut kept = view.world().workers.run(inflate).await;
    let others = locations.iter().enumerate().filter(|(at, _)| !kept.contains_key(at));
    let others: Vec<Location> = others.map(|(_, location)| location.clone()).collect();
    let mut others = objects::read(view, &others).await?.into_iter();
    let mut object = |at: usize| kept.remove(&at).or_else(|| others.next());
    let all: Option<Vec<_>> = (0..locations.len()).map(&mut object).collect();
    all.ok_or(EngineError::Internal("an object was not read"))
}

fn inflated(entry: &[u8], wanted: &Wanted, inflater: &mut WholeInflater, format: ObjectFormat) -> Option<Bytes> {
    let head = entry.get(..ENTRY_HEADER_LEN_MAX).unwrap_or(entry);
    let (_, header_len) = EntryHeader::decode(format, head).ok()??;
    let mut content = Vec::new();
    let size = usize::try_from(wanted.size).ok()?;
    inflater.inflate(entry.get(header_len..)?, size, &mut content).ok()?;
    Some(content.into())
}

/// Reads entries in the order of their bytes, each piece once.
struct Reader<'a> {
    whole: &'a WholeEntries,
    piece: Option<(u64, Bytes)>,
}

impl<'a> Reader<'a> {
    fn new(whole: &'a WholeEntries) -> Self {
        Self { whole, piece: None }
    }

    /// An entry that is what its cue says.
    fn entry(&mut self, wanted: &Wanted) -> Option<Vec<u8>> {
        let bytes = self.bytes(wanted.range.clone())?;
        let head = bytes.get(..ENTRY_HEADER_LEN_MAX).unwrap_or(&bytes);
        let (header, _) = EntryHeader::decode(self.whole.format, head).ok()??;
        (header.kind == EntryKind::Object(wanted.kind) && header.size == wanted.size).then_some(bytes)
    }

    fn bytes(&mut self, mut range: Range<u64>) -> Option<Vec<u8>> {
        const PIECE: u64 = PIECE_BYTES as u64;
        let mut bytes = Vec::with_capacity(usize::try_from(range.end - range.start).ok()?);
        while range.start < range.end {
            let number = range.start / PIECE;
            let piece = self.piece(number)?;
            let from = usize::try_from(range.start % PIECE).ok()?;
            let to = usize::try_from((range.end - number * PIECE).min(PIECE)).ok()?;
            bytes.extend_from_slice(piece.get(from..to)?);
            range.start = (number + 1) * PIECE;
        }
        Some(bytes)
    }

    fn piece(&mut self, number: u64) -> Option<&Bytes> {
        if self.piece.as_ref().is_none_or(|(held, _)| *held != number) {
            self.piece = Some((number, self.whole.file.piece(number)?));
        }
        self.piece.as_ref().map(|(_, piece)| piece)
    }
}
