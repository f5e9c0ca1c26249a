//! Bytes of a pack that wait to be taken apart.

use bytes::Bytes;
use smallvec::SmallVec;

/// Chunks that are kept as they came; those behind are copied together, for each takes memory of its own, however short it is.
const CHUNKS_MAX: usize = 4;

/// Chunks in the order in which they came. A small push comes in one or two and is never copied.
#[derive(Default)]
pub(super) struct Buffer {
    chunks: SmallVec<[Bytes; CHUNKS_MAX]>,
    tail: Vec<u8>,
    len: usize,
}

impl Buffer {
    /// Adds a chunk.
    pub(super) fn push(&mut self, chunk: Bytes) {
        self.len += chunk.len();
        if self.tail.is_empty() && self.chunks.len() < CHUNKS_MAX {
            self.chunks.push(chunk);
        } else {
            self.tail.extend_from_slice(&chunk);
        }
    }

    /// Bytes in all.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The bytes, in pieces.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let tail = (!self.tail.is_empty()).then_some(&self.tail[..]);
        self.chunks.iter().map(|chunk| &chunk[..]).chain(tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_there_in_order_in_few_pieces() {
        let mut buffer = Buffer::default();
        assert_eq!(buffer.pieces().count(), 0);
        let all: Vec<u8> = (0..=255).collect();
        for chunk in all.chunks(3) {
            buffer.push(Bytes::copy_from_slice(chunk));
        }
        assert_eq!(buffer.len(), 256);
        assert_eq!(buffer.pieces().count(), CHUNKS_MAX + 1);
        assert_eq!(buffer.pieces().flatten().copied().collect::<Vec<u8>>(), all);
    }
}
