//! What a copied pack is made of: ranges of layers, and the few bytes between them that were made for it. Who has that need
//! neither plan, nor look at entries, nor hash, to send the same pack from the same layers.

use crate::upload::units::{GAP_BYTES_MAX, UNIT_BYTES};
use bytes::{Bytes, BytesMut};
use cuesta_format::LayerId;
use cuesta_store::{Access, KeptName};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory of all whole recipes that are remembered, and their number.
const RECIPES_BYTES_MAX: usize = 16 << 20;
const RECIPES_MAX: usize = 64;
/// Memory that recipes under way may take together, and what one may take beyond that.
const GROWING_BYTES_MAX: usize = 32 << 20;
const SMALL_BYTES_MAX: usize = 64 << 10;
/// Pieces below this are copied together.
const GATHER_BYTES: usize = 64 << 10;

/// A recipe that grows as its pack is written, read by who follows. Clones share it.
#[derive(Clone)]
pub(in crate::upload) struct Recipe(Arc<Mutex<Parts>>);

struct Parts {
    parts: Vec<Part>,
    /// The bytes that no layer has.
    made: Vec<u8>,
    /// Bytes of the pack so far.
    len: u64,
    end: End,
    memory_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// Nothing follows.
    Whole,
    /// Too long to be held: nothing is noted any more.
    TooLong,
}

/// A run of the pack's bytes, up to the next part.
#[derive(Clone, Copy)]
struct Part {
    /// Where it begins in the pack.
    start: u64,
    source: Source,
}

/// Where a part's bytes come from: in 16 bits the number of a layer, or `MADE`; in 48 where they begin there.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Source(u64);

const MADE: u32 = 0xffff;
const FROM_BITS: u32 = 48;

impl Source {
    /// `None` where numbers are too large, which no layer's are.
    fn new(place: u32, from: u64) -> Option<Self> {
        (place <= MADE && from >> FROM_BITS == 0).then_some(Self(u64::from(place) << FROM_BITS | from))
    }

    /// The layer's number; `None` for bytes that were made.
    fn slot(self) -> Option<u32> {
        u32::try_from(self.0 >> FROM_BITS).ok().filter(|place| *place != MADE)
    }

    fn start(self) -> u64 {
        self.0 & ((1 << FROM_BITS) - 1)
    }

    /// So many bytes on.
    fn after(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes))
    }
}

/// What to do for the bytes at a place in the pack.
pub(super) enum Next {
    /// This.
    Step(Step),
    /// Wait for them, or make them.
    NotYet,
    /// Nothing: the pack ends there.
    End,
    /// Make the pack by oneself.
    TooLong,
}

/// Some bytes of the pack, by one read at most.
pub(super) struct Step {
    /// What is read, if anything.
    pub(super) read: Option<(u32, Range<u64>)>,
    /// The range of the layer that ends in this read goes on to here.
    pub(super) run_end: u64,
    /// Where in the pack the bytes end.
    pub(super) end: u64,
    pieces: Vec<Piece>,
}

enum Piece {
    /// A range of the layer's pack.
    Stored(Range<u64>),
    Made(Bytes),
}

impl Recipe {
    /// One without a part yet, which may take so many bytes of memory.
    pub(super) fn new(memory_max: usize) -> Self {
        Self(Arc::new(Mutex::new(Parts {
            parts: Vec::new(),
            made: Vec::new(),
            len: 0,
            end: End::Open,
            memory_max,
        })))
    }

    /// That of a pack that is a layer's, byte for byte.
    pub(super) fn of_layer(slot: u32, pack_bytes: u64) -> Self {
        let recipe = Self::new(size_of::<Part>());
        recipe.stored(slot, &(0..pack_bytes));
        recipe.end();
        recipe
    }

    /// The pack goes on with a range of a layer's pack.
    pub(in crate::upload) fn stored(&self, slot: u32, range: &Range<u64>) {
        let len = range.end.saturating_sub(range.start);
        let source = (slot != MADE).then(|| Source::new(slot, range.start)).flatten();
        self.0.lock().extend(source, len, b"");
    }

    /// The pack goes on with these bytes.
    pub(in crate::upload) fn made(&self, bytes: &[u8]) {
        let mut parts = self.0.lock();
        let from = parts.made.len() as u64;
        parts.extend(Source::new(MADE, from), bytes.len() as u64, bytes);
    }

    /// The pack is whole.
    pub(in crate::upload) fn end(&self) {
        let mut parts = self.0.lock();
        if parts.end == End::Open {
            parts.end = End::Whole;
            parts.parts.shrink_to_fit();
            parts.made.shrink_to_fit();
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.0.lock().end == End::Whole
    }

    /// Bytes of the pack so far.
    pub(super) fn len(&self) -> u64 {
        self.0.lock().len
    }

    /// What to do for the bytes from `at` on.
    pub(super) fn next(&self, at: u64) -> Next {
        let parts = self.0.lock();
        match parts.end {
            End::TooLong => Next::TooLong,
            _ if at < parts.len => Next::Step(parts.step(at)),
            End::Whole => Next::End,
            End::Open => Next::NotYet,
        }
    }

    fn memory(&self) -> usize {
        self.0.lock().memory()
    }
}

impl Parts {
    fn memory(&self) -> usize {
        self.parts.len() * size_of::<Part>() + self.made.len()
    }

    fn extend(&mut self, source: Option<Source>, len: u64, made: &[u8]) {
        if self.end != End::Open || len == 0 {
            return;
        }
        let Some(source) = source else {
            return self.give_up();
        };
        let goes_on = |last: &Part| last.source.after(self.len - last.start) == source;
        if !self.parts.last().is_some_and(goes_on) {
            self.parts.push(Part {
                start: self.len,
                source,
            });
        }
        self.len += len;
        self.made.extend_from_slice(made);
        if self.memory() > self.memory_max {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        (self.parts, self.made) = Default::default();
        self.end = End::TooLong;
    }

    /// One step from `at`, which lies before the end.
    fn step(&self, at: u64) -> Step {
        let first = self.parts.partition_point(|part| part.start <= at).saturating_sub(1);
        let mut step = Step {
            read: None,
            run_end: 0,
            end: at,
            pieces: Vec::new(),
        };
        for (number, part) in self.parts.iter().enumerate().skip(first) {
            let part_end = self.parts.get(number + 1).map_or(self.len, |next| next.start);
            let from = part.source.start() + (step.end - part.start);
            let len = part_end - step.end;
            let taken = match part.source.slot() {
                None => step.take_made(&self.made, from, len),
                Some(slot) => step.take_stored(slot, from, len),
            };
            step.end += taken;
            if taken < len {
                break;
            }
        }
        step
    }
}

impl Step {
    /// Takes bytes that were made; answers how many.
    fn take_made(&mut self, made: &[u8], from: u64, len: u64) -> u64 {
        let (Ok(start), Ok(length)) = (usize::try_from(from), usize::try_from(len)) else {
            return 0;
        };
        let bytes = made.get(start..start + length).unwrap_or_default();
        self.pieces.push(Piece::Made(Bytes::copy_from_slice(bytes)));
        bytes.len() as u64
    }

    /// Takes bytes of a layer as far as one read goes; answers how many. A read lies in one block of the cache, so that who
    /// reads the same at the same time shares it, and it is not put together of two.
    fn take_stored(&mut self, slot: u32, from: u64, len: u64) -> u64 {
        let start = match &self.read {
            None => from,
            Some((other, range)) if *other == slot && (range.end..=range.end + GAP_BYTES_MAX).contains(&from) => {
                range.start
            }
            Some(_) => return 0,
        };
        let block_end = (start / UNIT_BYTES + 1) * UNIT_BYTES;
        let taken = len.min(block_end.saturating_sub(from));
        if taken == 0 {
            return 0;
        }
        self.read = Some((slot, start..from + taken));
        self.run_end = from + len;
        self.pieces.push(Piece::Stored(from..from + taken));
        taken
    }

    /// The bytes, given what was read; `None` if that is too short.
    pub(super) fn assemble(self, read: &Bytes) -> Option<VecDeque<Bytes>> {
        let origin = self.read.map_or(0, |(_, range)| range.start);
        let (mut chunks, mut gathered) = (VecDeque::new(), BytesMut::new());
        for piece in self.pieces {
            let bytes = match piece {
                Piece::Made(bytes) => bytes,
                Piece::Stored(range) => {
                    let start = usize::try_from(range.start - origin).ok()?;
                    let end = usize::try_from(range.end - origin).ok()?;
                    (end <= read.len()).then(|| read.slice(start..end))?
                }
            };
            if bytes.len() >= GATHER_BYTES {
                flush(&mut gathered, &mut chunks);
                chunks.push_back(bytes);
                continue;
            }
            gathered.extend_from_slice(&bytes);
            if gathered.len() >= GATHER_BYTES {
                flush(&mut gathered, &mut chunks);
            }
        }
        flush(&mut gathered, &mut chunks);
        Some(chunks)
    }
}

fn flush(gathered: &mut BytesMut, chunks: &mut VecDeque<Bytes>) {
    if !gathered.is_empty() {
        chunks.push_back(gathered.split().freeze());
    }
}

/// A whole recipe, and what it holds for.
#[derive(Clone)]
pub(super) struct Remembered {
    pub(super) recipe: Recipe,
    /// The layers of the view, in order: the recipe has their numbers only.
    pub(super) layers: Arc<[LayerId]>,
    pub(super) objects: u32,
    pub(super) access: Access,
}

/// The recipes of the last packs that were copied, the latest last.
#[derive(Default)]
pub(super) struct Recipes {
    whole: Mutex<VecDeque<(KeptName, Remembered)>>,
    growing_bytes: Arc<AtomicUsize>,
}

/// Memory set aside for a recipe that grows.
pub(super) struct Room {
    bytes: usize,
    growing_bytes: Arc<AtomicUsize>,
}

impl Room {
    /// What the recipe may take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.max(SMALL_BYTES_MAX)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.growing_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Recipes {
    /// Room for a recipe of so many bytes, or for a small one.
    pub(super) fn room(&self, bytes: usize) -> Room {
        let add = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= GROWING_BYTES_MAX);
        let taken = self
            .growing_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        Room {
            bytes: taken.map_or(0, |_| bytes),
            growing_bytes: Arc::clone(&self.growing_bytes),
        }
    }

    /// The recipe of that name, if it is one for these layers.
    pub(super) fn find(&self, name: &KeptName, layers: &[LayerId]) -> Option<Remembered> {
        let mut recipes = self.whole.lock();
        let at = recipes.iter().position(|(known, _)| known == name)?;
        let entry = recipes.remove(at).filter(|(_, found)| *found.layers == *layers)?;
        let found = entry.1.clone();
        recipes.push_back(entry);
        Some(found)
    }

    /// Remembers a whole one; the longest unused go.
    pub(super) fn remember(&self, name: KeptName, remembered: Remembered) {
        let mut recipes = self.whole.lock();
        recipes.retain(|(known, _)| *known != name);
        recipes.push_back((name, remembered));
        let memory = |(_, remembered): &(KeptName, Remembered)| remembered.recipe.memory();
        let mut bytes: usize = recipes.iter().map(memory).sum();
        while bytes > RECIPES_BYTES_MAX || recipes.len() > RECIPES_MAX {
            let Some(oldest) = recipes.pop_front() else { break };
            bytes -= memory(&oldest);
        }
    }
}

#[cfg(test)]
#[path = "recipe_tests.rs"]
mod tests;
