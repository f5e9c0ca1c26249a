//! The body of a response: nothing, one buffer, refs, or a stream of pieces; all written without being copied together.

use super::record::Record;
use crate::ref_rope::RefLines;
use bytes::{Buf, Bytes};
use futures::Stream;
use futures::stream::BoxStream;
use hyper::body::{Body, Frame, SizeHint};
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Longest head of a [`Piece`]: a pkt-line's length and a band.
const HEAD_LEN: usize = 5;

/// What is sent at once: bytes that are shared with a cache, and written from there.
#[derive(Clone, Debug)]
pub struct Piece {
    head: [u8; HEAD_LEN],
    head_start: usize,
    payload: Payload,
}

/// What comes behind a head, if there is one.
#[derive(Clone, Debug)]
enum Payload {
    /// A packet of a side-band, or a whole answer.
    Bytes(Bytes),
    /// Refs.
    Lines(Box<RefLines>),
}

impl Piece {
    /// `payload` behind `head`.
    pub fn framed(head: [u8; HEAD_LEN], payload: Bytes) -> Self {
        Self {
            head,
            head_start: 0,
            payload: Payload::Bytes(payload),
        }
    }

    fn bare(payload: Payload) -> Self {
        Self {
            head: [0; HEAD_LEN],
            head_start: HEAD_LEN,
            payload,
        }
    }

    fn head_left(&self) -> &[u8] {
        self.head.get(self.head_start..).unwrap_or_default()
    }
}

impl From<Bytes> for Piece {
    fn from(payload: Bytes) -> Self {
        Self::bare(Payload::Bytes(payload))
    }
}

impl From<RefLines> for Piece {
    fn from(lines: RefLines) -> Self {
        Self::bare(Payload::Lines(Box::new(lines)))
    }
}

impl Payload {
    fn buf(&self) -> &dyn Buf {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Lines(lines) => &**lines,
        }
    }

    fn buf_mut(&mut self) -> &mut dyn Buf {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Lines(lines) => &mut **lines,
        }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.head_left().len() + self.payload.buf().remaining()
    }

    fn chunk(&self) -> &[u8] {
        if self.head_left().is_empty() {
            self.payload.buf().chunk()
        } else {
            self.head_left()
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        match slices.split_first_mut() {
            Some((slice, others)) if !self.head_left().is_empty() => {
                *slice = IoSlice::new(self.head_left());
                1 + self.payload.buf().chunks_vectored(others)
            }
            _ => self.payload.buf().chunks_vectored(slices),
        }
    }

    fn advance(&mut self, count: usize) {
        let from_head = count.min(self.head_left().len());
        self.head_start += from_head;
        self.payload.buf_mut().advance(count - from_head);
    }
}

/// Ends a response early: the client sees a cut body, never a whole one (PROTOCOL rule: a missing flush tells it).
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Cut(pub String);

/// What a response sends.
pub enum Content {
    /// One buffer, of known length; perhaps empty.
    Whole(Bytes),
    /// Refs, of known length.
    Lines(RefLines),
    /// Pieces as they become ready.
    Stream(BoxStream<'static, Result<Piece, Cut>>),
    /// Pieces that are so many bytes together, less those that were sent.
    Sized(BoxStream<'static, Result<Piece, Cut>>, u64),
}

/// A response's body. When it has been sent, or dropped because the client went away, its [`Record`] is closed.
pub struct ResponseBody {
    content: Content,
    record: Arc<Record>,
    ended: bool,
}

impl ResponseBody {
    /// Sends `content` and tells `record` of every byte.
    pub fn new(content: Content, record: Arc<Record>) -> Self {
        Self {
            content,
            record,
            ended: false,
        }
    }
}

impl Body for ResponseBody {
    type Data = Piece;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, Cut>>> {
        let next = match &mut self.content {
            Content::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Whole(bytes) => Poll::Ready(Some(Ok(Piece::from(std::mem::take(bytes))))),
            Content::Lines(lines) if lines.is_empty() => Poll::Ready(None),
            Content::Lines(lines) => Poll::Ready(Some(Ok(Piece::from(std::mem::take(lines))))),
            Content::Stream(stream) | Content::Sized(stream, _) => Pin::new(stream).poll_next(cx),
        };
        if let (Content::Sized(_, left), Poll::Ready(Some(Ok(piece)))) = (&mut self.content, &next) {
            *left = left.saturating_sub(piece.remaining() as u64);
        }
        match &next {
            Poll::Ready(Some(Ok(piece))) => self.record.sent(piece.remaining()),
            Poll::Ready(None) => self.ended = true,
            Poll::Ready(Some(Err(cut))) => self.record.failed(&cut.0),
            Poll::Pending => {}
        }
        next.map(|next| next.map(|result| result.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_empty(),
            Content::Lines(lines) => lines.is_empty(),
            Content::Sized(_, left) => *left == 0,
            Content::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Lines(lines) => SizeHint::with_exact(lines.len()),
            Content::Stream(_) => SizeHint::default(),
            Content::Sized(_, len) => SizeHint::with_exact(*len),
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        let whole = self.ended || self.is_end_stream();
        self.record.close(whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_reads_as_head_and_payload() {
        let piece = Piece::framed(*b"0009\x01", Bytes::from_static(b"PACK"));
        assert_eq!(piece.clone().copy_to_bytes(9), b"0009\x01PACK"[..]);
        for cut in 0..=9 {
            let mut rest = piece.clone();
            rest.advance(cut);
            assert_eq!(rest.remaining(), 9 - cut);
            let mut slices = [IoSlice::new(&[]); 4];
            let count = rest.chunks_vectored(&mut slices);
            let joined: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
            assert_eq!(joined, b"0009\x01PACK"[cut..]);
            assert_eq!(rest.chunk().is_empty(), cut == 9);
        }
    }
}
