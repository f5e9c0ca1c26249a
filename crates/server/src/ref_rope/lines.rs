//! What an answer about refs sends: bytes of its own and runs of a rope's chunks, none of them copied.

use super::Form;
use super::chunk::Chunk;
use bytes::{Buf, Bytes};
use imbl::Vector;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

/// The bytes of an answer, to be read once. Holds a few reference counts, whatever its length.
#[derive(Clone, Debug, Default)]
pub struct RefLines {
    parts: VecDeque<Part>,
    left: u64,
}

/// None is empty.
#[derive(Clone, Debug)]
enum Part {
    Bytes(Bytes),
    Chunks(Run),
}

/// Chunks of a rope, in one form.
#[derive(Clone, Debug)]
struct Run {
    chunks: Vector<Arc<Chunk>>,
    form: Form,
    places: Range<usize>,
    /// Bytes of the first that were read.
    offset: usize,
}

impl RefLines {
    /// Appends bytes.
    pub fn push(&mut self, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        self.left += bytes.len() as u64;
        if !bytes.is_empty() {
            self.parts.push_back(Part::Bytes(bytes));
        }
    }

    /// Appends chunks, which together have `len` bytes.
    pub(super) fn push_chunks(&mut self, chunks: &Vector<Arc<Chunk>>, places: Range<usize>, form: Form, len: u64) {
        if places.is_empty() {
            return;
        }
        self.left += len;
        self.parts.push_back(Part::Chunks(Run {
            chunks: chunks.clone(),
            form,
            places,
            offset: 0,
        }));
    }

    /// Bytes that are left.
    pub fn len(&self) -> u64 {
        self.left
    }

    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl Run {
    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let chunks = self.places.clone().filter_map(|place| self.chunks.get(place));
        let mut skipped = self.offset;
        chunks.map(move |chunk| {
            let from = std::mem::take(&mut skipped);
            chunk.bytes(self.form).get(from..).unwrap_or_default()
        })
    }

    /// Moves on by up to `count` bytes; answers how many of them are left for what follows.
    fn advance(&mut self, mut count: usize) -> usize {
        while let Some(chunk) = self.chunks.get(self.places.start).filter(|_| !self.places.is_empty()) {
            let left = (chunk.len(self.form) as usize).saturating_sub(self.offset);
            if count < left {
                self.offset += count;
                return 0;
            }
            count -= left;
            self.offset = 0;
            self.places.start += 1;
        }
        count
    }
}

impl Part {
    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let (bytes, run) = match self {
            Self::Bytes(bytes) => (Some(&bytes[..]), None),
            Self::Chunks(run) => (None, Some(run.slices())),
        };
        bytes.into_iter().chain(run.into_iter().flatten())
    }

    /// As [`Run::advance`].
    fn advance(&mut self, count: usize) -> usize {
        match self {
            Self::Bytes(bytes) => {
                let taken = count.min(bytes.len());
                bytes.advance(taken);
                count - taken
            }
            Self::Chunks(run) => run.advance(count),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::Chunks(run) => run.places.is_empty(),
        }
    }
}

impl Buf for RefLines {
    fn remaining(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX)
    }

    fn chunk(&self) -> &[u8] {
        self.parts
            .front()
            .and_then(|part| part.slices().next())
            .unwrap_or_default()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let parts = self.parts.iter().flat_map(Part::slices);
        slices
            .iter_mut()
            .zip(parts)
            .map(|(slice, part)| *slice = IoSlice::new(part))
            .count()
    }

    fn advance(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count as u64);
        let mut count = count;
        while let Some(part) = self.parts.front_mut() {
            count = part.advance(count);
            if !part.is_empty() {
                return;
            }
            self.parts.pop_front();
        }
    }
}
