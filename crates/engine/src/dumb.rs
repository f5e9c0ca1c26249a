//! A repository as the files of a stock one: loose objects, packs and their indexes (gitprotocol-http, `Dumb Clients`).
//!
//! Layers in the bucket whose deltas all have their base inside are served as the packs they are; their indexes are made
//! from the cue. Everything else can be had object by object.

use crate::{EngineError, Index, Layer, View};
use bytes::Bytes;
use cuesta_git::zlib::{Crc32, StreamDeflater};
use cuesta_git::{Checksum, ObjectId};
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a pack that are read at once.
const READ_BYTES: u64 = 4 << 20;
/// Rows of an index that are made at once.
const ROWS_AT_ONCE: u32 = 16_384;
/// Offsets from here on stand in a table of their own.
const LARGE_OFFSET: u64 = 1 << 31;
const READS_AHEAD: usize = 2;

/// Pieces of a file.
pub type FileStream = BoxStream<'static, Result<Bytes, EngineError>>;

/// A layer that is a whole pack.
#[derive(Clone, Debug)]
pub struct PackFile {
    /// Its name: the checksum at its end.
    pub name: ObjectId,
    /// The layer.
    pub layer: Arc<Layer>,
}

impl View {
    /// The layers that can be served as packs, oldest first. Cost: a small read for each layer, once in its life.
    pub async fn pack_files(&self) -> Result<Vec<PackFile>, EngineError> {
        let graph = self.graph().await?;
        let layers = (0..graph.slot_count()).filter_map(|slot| graph.layer(slot).cloned());
        let whole =
            layers.filter(|layer| !layer.is_inline() && layer.meta().self_contained && !layer.meta().unreachable);
        let named = whole.map(|layer| async move {
            let name = layer.pack_checksum().await?;
            Ok(PackFile { name, layer })
        });
        futures::future::try_join_all(named.collect::<Vec<_>>()).await
    }

    /// The object as git stores a loose one: kind and size before the content, deflated. `None` if it is not there.
    pub async fn loose_object(&self, oid: &ObjectId) -> Result<Option<FileStream>, EngineError> {
        let Some(object) = self.object_stream(oid).await? else {
            return Ok(None);
        };
        let head = format!("{} {}\0", object.kind.name(), object.size);
        let deflater = StreamDeflater::new(self.world().options.deflate_level);
        let pieces = futures::stream::once(async move { Ok(Bytes::from(head)) }).chain(object.content);
        let state = (pieces.boxed(), Some(deflater), self.world().workers.clone());
        let deflated = futures::stream::try_unfold(state, |(mut pieces, deflater, workers)| async move {
            let Some(mut deflater) = deflater else { return Ok(None) };
            let piece = pieces.next().await.transpose()?;
            let work = move || {
                let mut out = Vec::new();
                let left = match piece {
                    Some(piece) => deflater.deflate(&piece, &mut out).map(|()| Some(deflater)),
                    None => deflater.finish(&mut out).map(|()| None),
                };
                left.map(|left| (Bytes::from(out), left))
            };
            let done = workers.run(work).await;
            let (out, deflater) = done.map_err(|_| EngineError::Internal("zlib could not compress"))?;
            Ok(Some((out, (pieces, deflater, workers))))
        });
        Ok(Some(
            deflated
                .try_filter(|piece| std::future::ready(!piece.is_empty()))
                .boxed(),
        ))
    }
}

impl PackFile {
    /// Bytes of the pack.
    pub fn pack_len(&self) -> u64 {
        self.layer.meta().pack_bytes
    }

    /// A part of the pack.
    pub fn pack(&self, range: Range<u64>) -> FileStream {
        let layer = Arc::clone(&self.layer);
        let end = range.end.min(self.pack_len());
        let starts = (range.start..end).step_by(usize::try_from(READ_BYTES).unwrap_or(1 << 20));
        let reads = starts.map(move |start| {
            let layer = Arc::clone(&layer);
            async move { layer.scan(start..end.min(start + READ_BYTES)).await }
        });
        futures::stream::iter(reads).buffered(READS_AHEAD).boxed()
    }

    /// The pack's index, version 2 (gitformat-pack), and its length in bytes. The first time in a layer's life here this
    /// reads the whole pack, for the checksum of each entry; then 4 bytes an entry are kept.
    pub async fn index(&self, view: &View) -> Result<(u64, FileStream), EngineError> {
        let index = self.layer.index().await?;
        let count = u64::from(index.entries.len());
        let width = index.format.width() as u64;
        let large = large_count(&index);
        let len = 8 + 1024 + count * (width + 8) + large * 8 + 2 * width;
        let crcs = self.entry_crcs(view, &index).await?;
        let writer = IndexWriter {
            checksum: Some(Checksum::new(index.format)),
            pack: self.name,
            index,
            crcs,
            table: Table::Head,
            row: 0,
            large: 0,
        };
        Ok((len, futures::stream::iter(writer).boxed()))
    }

    async fn entry_crcs(&self, view: &View, index: &Arc<Index>) -> Result<Arc<[u32]>, EngineError> {
        let layer = &self.layer;
        let load = || async {
            let mut scan = CrcScan {
                index: Arc::clone(index),
                crcs: Vec::new(),
                crc: Crc32::new(),
                at: index.entries.offset(0),
            };
            let end = index.entries.offset(index.entries.len());
            let mut pieces = self.pack(scan.at..end);
            while let Some(piece) = pieces.next().await {
                let piece = piece?;
                scan = view.world().workers.run(move || scan.take(&piece)).await;
            }
            if scan.crcs.len() as u64 != u64::from(index.entries.len()) {
                return Err(layer.corrupt("the pack is shorter than its cue says"));
            }
            layer.count_loaded(scan.crcs.len() as u64 * 4);
            Ok(Arc::from(scan.crcs))
        };
        layer.entry_crcs.get_or_try_init(load).await.cloned()
    }
}

/// How many entries lie beyond what a short offset can say. They are in the order of the pack, so they are its last.
fn large_count(index: &Index) -> u64 {
    let (mut small, mut large) = (0, index.entries.len());
    while small < large {
        let middle = small + (large - small) / 2;
        if index.entries.offset(middle) < LARGE_OFFSET {
            small = middle + 1;
        } else {
            large = middle;
        }
    }
    u64::from(index.entries.len() - large)
}

/// The checksum of each entry, from a pack's bytes as they come.
struct CrcScan {
    index: Arc<Index>,
    crcs: Vec<u32>,
    crc: Crc32,
    at: u64,
}

impl CrcScan {
    fn take(mut self, mut piece: &[u8]) -> Self {
        while let (false, Ok(entry)) = (piece.is_empty(), u32::try_from(self.crcs.len())) {
            let left = self.index.entries.range(entry).end.saturating_sub(self.at);
            let taken = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
            let (now, later) = piece.split_at(taken);
            self.crc.update(now);
            self.at += taken as u64;
            if taken as u64 == left {
                self.crcs.push(std::mem::take(&mut self.crc).value());
            }
            piece = later;
        }
        self
    }
}

/// The tables of an index, one after the other.
#[derive(Clone, Copy)]
enum Table {
    Head,
    Names,
    Crcs,
    Offsets,
    LargeOffsets,
    Trailer,
}

/// Makes an index piece by piece.
struct IndexWriter {
    index: Arc<Index>,
    crcs: Arc<[u32]>,
    pack: ObjectId,
    /// Of all bytes so far; gone when they are all made.
    checksum: Option<Checksum>,
    table: Table,
    row: u32,
    large: u32,
}

impl Iterator for IndexWriter {
    type Item = Result<Bytes, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut checksum = self.checksum.take()?;
        let mut out = Vec::new();
        let rows = self.row..self.index.lookup.len().min(self.row.saturating_add(ROWS_AT_ONCE));
        let index = Arc::clone(&self.index);
        let mut ranks = index.lookup.ascending(rows.start).take(rows.len());
        let written = ranks.try_for_each(|rank| self.row(rank, &mut out));
        if let Err(error) = written {
            return Some(Err(error));
        }
        if matches!(self.table, Table::Head) {
            self.head(&mut out);
        }
        if matches!(self.table, Table::Trailer) {
            out.extend_from_slice(self.pack.as_bytes());
            checksum.update(&out);
            out.extend_from_slice(checksum.finish().as_bytes());
            return Some(Ok(out.into()));
        }
        checksum.update(&out);
        self.checksum = Some(checksum);
        self.advance(rows.end);
        Some(Ok(out.into()))
    }
}

impl IndexWriter {
    fn advance(&mut self, row: u32) {
        self.row = row;
        if !matches!(self.table, Table::Head) && row < self.index.lookup.len() {
            return;
        }
        self.row = 0;
        self.table = match self.table {
            Table::Head => Table::Names,
            Table::Names => Table::Crcs,
            Table::Crcs => Table::Offsets,
            Table::Offsets => Table::LargeOffsets,
            Table::LargeOffsets | Table::Trailer => Table::Trailer,
        };
    }

    fn head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\xfftOc\0\0\0\x02");
        for first in 0..=u8::MAX {
            let below = self.index.lookup.rows_with_prefix(&[first]).end;
            out.extend_from_slice(&below.to_be_bytes());
        }
    }

    fn row(&mut self, rank: u32, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let entry = self.index.lookup.entry(rank);
        match self.table {
            Table::Head | Table::Trailer => {}
            Table::Names => out.extend_from_slice(self.index.lookup.oid(rank).as_bytes()),
            Table::Crcs => {
                let crc = self.crcs.get(entry as usize);
                let crc = crc.ok_or(EngineError::Internal("an entry has no checksum"))?;
                out.extend_from_slice(&crc.to_be_bytes());
            }
            Table::Offsets => {
                let small = u32::try_from(self.index.entries.offset(entry))
                    .ok()
                    .filter(|offset| *offset < 1 << 31);
                let field = small.unwrap_or_else(|| {
                    self.large += 1;
                    1 << 31 | (self.large - 1)
                });
                out.extend_from_slice(&field.to_be_bytes());
            }
            Table::LargeOffsets => {
                let offset = self.index.entries.offset(entry);
                if offset >= LARGE_OFFSET {
                    out.extend_from_slice(&offset.to_be_bytes());
                }
            }
        }
        Ok(())
    }
}
