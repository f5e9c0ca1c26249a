//! Layers merged: several become one, entries copied as they are stored, each object once.
//!
//! Only headers are rewritten, for bases and links lead elsewhere in the new layer. The exception is a delta that would
//! come to be based on itself: of an object that two layers hold one copy is kept, and another may have been based on
//! what is based on it; such an entry is stored whole. Memory: a few words an entry, beside the cues; packs stream.
//!
//! Or the bases of deltas are chosen anew ([`Bases::Chosen`]): that takes a look at every object.

mod bases;
mod depth;
mod divide;
mod kept;
mod numbers;
mod paths;
mod plan;
mod source;

use crate::layer::{History, Index, Layer};
use crate::layer_builder::{Built, Chunk, LayerBuilder, LayerSink, NewBase, NewEntry};
use crate::{EngineError, View, Watch};
pub(crate) use divide::{Half, divide};

use bases::{Choice, Chooser};
use bytes::Bytes;
use cuesta_format::{FormatError, Link, SegmentRow};
use cuesta_git::pack::EntryHeader;
use cuesta_git::zlib::Deflater;
use cuesta_store::{Buffers, Workers};
use plan::{At, Base, NewLink, Plan};
use source::Source;
use std::sync::Arc;

/// Bytes read of a layer at once: one request.
const READ_LEN: u64 = 8 << 20;
/// As git's default.
const DEFLATE_LEVEL: u32 = 6;

/// One layer to be merged, its cue loaded.
pub(crate) struct Input {
    pub(crate) layer: Arc<Layer>,
    pub(crate) index: Arc<Index>,
    pub(crate) history: Arc<History>,
}

impl Input {
    pub(crate) async fn load(layer: Arc<Layer>) -> Result<Self, EngineError> {
        let (index, history) = futures::try_join!(layer.index(), layer.history())?;
        Ok(Self { layer, index, history })
    }
}

/// What becomes of the bases of deltas.
#[derive(Clone, Debug)]
pub(crate) enum Bases {
    /// They stay.
    Stored,
    /// They are chosen anew, under the eyes of a watch.
    Chosen(Watch),
}

type Chunks<'a> = &'a mut dyn FnMut(Chunk) -> Result<(), EngineError>;

struct ChunkSink<'a> {
    chunks: Chunks<'a>,
    buffers: &'a Buffers,
}

impl LayerSink for ChunkSink<'_> {
    type Error = EngineError;

    fn write(&mut self, chunk: Chunk) -> Result<(), EngineError> {
        (self.chunks)(chunk)
    }

    fn buffers(&self) -> Option<&Buffers> {
        Some(self.buffers)
    }
}

impl From<FormatError> for EngineError {
    fn from(error: FormatError) -> Self {
        Self::Intake(crate::receive::IntakeError::Layer(error))
    }
}

/// Merges layers of a view, oldest first, on a worker thread; or makes a half of what they are divided into, the first half
/// first. All are `unreachable` or none is. Bytes of the pack go to `chunks` once there are `chunk_len` of them.
pub(crate) fn merge(
    view: &View,
    workers: &Workers,
    inputs: &[Input],
    (bases, half): (&Bases, Option<Half<'_>>),
    chunk_len: usize,
    chunks: Chunks<'_>,
) -> Result<Built, EngineError> {
    let tips = match bases {
        Bases::Stored => Vec::new(),
        Bases::Chosen(_) => divide::tips(view),
    };
    let plan = Plan::new(inputs, &tips, half.as_ref().map(Half::part))?;
    let spools = match bases {
        Bases::Stored => Vec::new(),
        Bases::Chosen(watch) => source::spool(inputs, workers, &view.world().options.receive.spool_directory, watch)?,
    };
    let chooser = match bases {
        Bases::Stored => None,
        Bases::Chosen(watch) => {
            let bytes_max = view.world().options.compact_memory_bytes_max;
            let source = Source::new(view, workers, inputs, &plan, &spools, bytes_max);
            let first_depths = half.as_ref().map(Half::first_depths).unwrap_or_default();
            Some(Chooser::new(view, workers, inputs, &plan, source, first_depths, watch)?)
        }
    };
    let bytes: u64 = inputs.iter().map(|input| input.layer.meta().pack_bytes).sum();
    let buffer_len = usize::try_from(bytes).unwrap_or(chunk_len);
    let objects = plan.objects();
    let buffers = view.world().bucket.buffers();
    let sink = ChunkSink { chunks, buffers };
    let mut layer = LayerBuilder::new(view.object_format(), objects, chunk_len, buffer_len, sink);
    layer.cue().reserve_segments(plan.segments.len());
    let mut merger = Merger {
        view,
        workers,
        inputs,
        plan: &plan,
        layer,
        deflater: None,
        held: None,
        chooser,
    };
    // A layer of layers whose bases were chosen needs no other choice.
    let chosen = merger.chooser.is_some() || inputs.iter().all(|input| input.layer.meta().bases_chosen);
    if inputs.iter().any(|input| input.layer.meta().unreachable) {
        merger.layer.unreachable();
    }
    for place in 0..objects {
        merger.entry(place)?;
    }
    merger.segments()?;
    merger.roots()?;
    merger.tags()?;
    if let (Some(half), Some(chooser)) = (&half, &merger.chooser) {
        half.note_depths(|| chooser.depths());
    }
    let layer = merger.layer;
    // As large as what is to come.
    drop((merger.chooser, merger.held));
    let (mut built, _) = layer.finish(&plan, Some(plan.order()))?;
    built.bases_chosen = chosen;
    Ok(built)
}

struct Merger<'a> {
    view: &'a View,
    workers: &'a Workers,
    inputs: &'a [Input],
    plan: &'a Plan<'a>,
    layer: LayerBuilder<ChunkSink<'a>>,
    deflater: Option<Deflater>,
    /// The part of a pack that was read last: its layer, where it starts, and its bytes.
    held: Option<(u32, u64, Bytes)>,
    chooser: Option<Chooser<'a>>,
}

impl Merger<'_> {
    fn input(&self, number: u32) -> Result<&Input, EngineError> {
        self.inputs
            .get(number as usize)
            .ok_or(EngineError::Internal("no such input of a merge"))
    }

    fn entry(&mut self, place: u32) -> Result<(), EngineError> {
        let at = self.plan.entry(place);
        let at = at.ok_or(EngineError::Internal("no such entry of a merge"))?;
        let input = self.input(at.input)?;
        let corrupt = |what| input.layer.corrupt(what);
        let oid = self.plan.oid_at(place);
        let oid = oid.ok_or_else(|| corrupt("entry outside the lookup"))?;
        let (kind, size) = (input.index.kind(at.entry), input.index.entries.size(at.entry));
        let range = input.index.entries.range(at.entry);
        let choice = match &mut self.chooser {
            Some(chooser) => chooser.choose_next()?,
            None => Choice::Stored(self.plan.base(place)),
        };
        let whole = NewEntry {
            oid,
            kind,
            size,
            own_size: size,
            base: NewBase::None,
        };
        let base = match choice {
            Choice::Stored(Base::Circular) => return self.whole(whole),
            Choice::Stored(base) => self.new_base(base)?,
            Choice::Made { base, own_size, stream } => {
                let base = self.new_base(base)?;
                self.layer.entry(&NewEntry {
                    own_size,
                    base,
                    ..whole
                })?;
                return self.layer.stream(&stream);
            }
        };
        let head = self.read(at.input, range.start, range.end)?;
        let header = EntryHeader::decode(self.view.object_format(), &head);
        let Ok(Some((header, header_len))) = header else {
            return Err(self.input(at.input)?.layer.corrupt("an entry has no header"));
        };
        self.layer.entry(&NewEntry {
            oid,
            kind,
            size,
            own_size: header.size,
            base,
        })?;
        self.layer.stream(head.get(header_len..).unwrap_or_default())?;
        let mut done = range.start + head.len() as u64;
        while done < range.end {
            let piece = self.read(at.input, done, range.end)?;
            self.layer.stream(&piece)?;
            done += piece.len() as u64;
        }
        Ok(())
    }

    fn new_base(&self, base: Base) -> Result<NewBase, EngineError> {
        Ok(match base {
            Base::None | Base::Circular => NewBase::None,
            Base::Merged(base) => {
                let oid = self.plan.oid_at(base);
                NewBase::Entry(base, oid.ok_or(EngineError::Internal("no such entry of a merge"))?)
            }
            Base::External(oid) => NewBase::External(oid),
        })
    }

    fn whole(&mut self, entry: NewEntry) -> Result<(), EngineError> {
        let object = self.workers.wait(self.view.object(&entry.oid))?;
        let (_, content) = object.ok_or(EngineError::Internal("an object of a merged layer is gone"))?;
        let mut stream = Vec::new();
        let deflater = self.deflater.get_or_insert_with(|| Deflater::new(DEFLATE_LEVEL));
        deflater
            .deflate(&content, &mut stream)
            .map_err(|_| EngineError::Internal("deflating failed"))?;
        self.layer.entry(&entry)?;
        self.layer.stream(&stream)
    }

    /// Bytes of a pack from `start` on, at least one and none from `end` on. Reads ahead: the next entries are wanted next.
    fn read(&mut self, number: u32, start: u64, end: u64) -> Result<Bytes, EngineError> {
        if let Some(chooser) = &mut self.chooser {
            let range = start..end.min(start + READ_LEN);
            return Ok(Bytes::copy_from_slice(chooser.stored(number, range)?));
        }
        if let Some((held, held_start, bytes)) = &self.held
            && *held == number
            && let Some(skip) = start.checked_sub(*held_start)
            && skip < bytes.len() as u64
            && (end - held_start <= bytes.len() as u64 || bytes.len() as u64 - skip >= READ_LEN / 2)
        {
            let until = (end - held_start).min(bytes.len() as u64);
            return Ok(bytes.slice(to_usize(skip)?..to_usize(until)?));
        }
        let layer = &self.input(number)?.layer;
        let read_end = layer.meta().pack_bytes.min(start + READ_LEN);
        let bytes = self.workers.wait(layer.read_once(start..read_end))?;
        if bytes.is_empty() {
            return Err(layer.corrupt("an entry ends outside the pack"));
        }
        let until = (end - start).min(bytes.len() as u64);
        let wanted = bytes.slice(..to_usize(until)?);
        self.held = Some((number, start, bytes));
        Ok(wanted)
    }

    fn new_links(&mut self, links: Vec<NewLink>) -> Result<Vec<Link>, EngineError> {
        let new = |link| match link {
            NewLink::Entry(place) => Ok(Link::Local(place)),
            NewLink::External(oid) => Ok(Link::External(self.layer.cue().external(&oid)?)),
        };
        links.into_iter().map(new).collect()
    }

    fn segments(&mut self) -> Result<(), EngineError> {
        for (number, set) in (0u32..).zip(&self.plan.segments) {
            let segments = &self.input(set.at.input)?.history.segments;
            let row = SegmentRow {
                generation: segments.generation(set.at.entry),
                commit_time: segments.commit_time(set.at.entry),
                root_tree: segments.root_tree(set.at.entry),
                trees: set.trees,
                blobs: set.blobs,
            };
            let parents = self.new_links(self.plan.parents(set))?;
            let links = self.new_links(self.plan.segment_links(number))?;
            self.layer.segment(row, parents, links)?;
        }
        Ok(())
    }

    fn roots(&mut self) -> Result<(), EngineError> {
        for set in &self.plan.roots {
            let roots = &self.input(set.at.input)?.history.roots;
            let (oid, kind) = (roots.oid(set.at.entry), roots.kind(set.at.entry));
            let links = self.new_links(self.plan.root_links(set))?;
            self.layer.cue().root(&oid, kind, set.trees, set.blobs, links)?;
        }
        Ok(())
    }

    fn tags(&mut self) -> Result<(), EngineError> {
        for place in self.plan.first_tag..self.plan.first_tree {
            let at = self.plan.entry(place);
            let At { input, entry } = at.ok_or(EngineError::Internal("no such entry of a merge"))?;
            let input = self.input(input)?;
            let target = input.history.roots.tag_target(entry);
            let (oid, kind) = target.ok_or_else(|| input.layer.corrupt("a tag without target"))?;
            self.layer.cue().tag_target(&oid, kind)?;
        }
        Ok(())
    }
}

fn to_usize(len: u64) -> Result<usize, EngineError> {
    usize::try_from(len).map_err(|_| EngineError::Internal("a range is larger than memory"))
}
