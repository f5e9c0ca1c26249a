//! The body of a request as it comes: chunks, counted, inflated where the client deflated it.

use crate::service::request_memory::Hold;
use bytes::Bytes;
use flate2::{Decompress, FlushDecompress, Status};
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Most that one step inflates: what a gzip body holds in memory beyond what is asked of it.
const INFLATED_CHUNK_LEN_MAX: usize = 64 << 10;
/// How long a client may send nothing in the middle of a body. Packs are made while they are sent, hence minutes.
const SILENCE_MAX: Duration = Duration::from_secs(300);
/// zlib's largest window; `gzip` always uses it.
const GZIP_WINDOW_BITS: u8 = 15;

/// A request's body.
pub struct RequestBody<B = Incoming> {
    source: B,
    inflate: Option<Inflate>,
    received: Arc<AtomicU64>,
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The connection broke, or the body was shorter than announced.
    #[error("the request body ended early: {0}")]
    Cut(String),
    /// A `Content-Encoding` other than gzip.
    #[error("content encoding '{0}' is not supported, expected 'gzip'")]
    Encoding(String),
    /// What should be gzip is not.
    #[error("the request body is not a whole gzip stream")]
    Gzip,
    /// Nothing came for too long.
    #[error("the client stopped sending")]
    Stalled,
    /// Nothing came for too long, while others wait for the memory that the push holds.
    #[error("the client stopped sending while others wait")]
    HoldsUp,
    /// Larger than allowed.
    #[error("the request body is larger than {len_max} bytes")]
    TooLarge {
        /// The limit, after inflating.
        len_max: usize,
    },
}

impl<B> RequestBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    /// Reads `source`, inflating it if `headers` say so. Bytes are counted in `received` as they came over the wire.
    pub fn new(source: B, headers: &HeaderMap, received: Arc<AtomicU64>) -> Result<Self, BodyError> {
        let inflate = match headers
            .get(http::header::CONTENT_ENCODING)
            .map(|value| value.as_bytes())
        {
            None | Some(b"identity") => None,
            Some(b"gzip" | b"x-gzip") => Some(Inflate::new()),
            Some(other) => return Err(BodyError::Encoding(other.escape_ascii().to_string())),
        };
        Ok(Self {
            source,
            inflate,
            received,
        })
    }

    /// The length of what is still to come, where the client announced it. Of what is deflated nobody knows how long it is:
    /// one byte may stand for a thousand.
    pub fn len_hint(&self) -> Option<u64> {
        match self.inflate {
            Some(_) => None,
            None => self.source.size_hint().exact(),
        }
    }

    /// The next bytes, never none of them; `None` at the end of a whole body.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            if let Some(chunk) = self.inflate.as_mut().map_or(Ok(None), Inflate::step)? {
                return Ok(Some(chunk));
            }
            let Some(raw) = self.raw_chunk().await? else {
                let whole = self.inflate.as_ref().is_none_or(|inflate| inflate.done);
                return if whole { Ok(None) } else { Err(BodyError::Gzip) };
            };
            match &mut self.inflate {
                Some(inflate) => inflate.input = raw,
                None => return Ok(Some(raw)),
            }
        }
    }

    /// The whole body, if it is at most `len_max` bytes after inflating. Memory for it is in `hold`.
    pub async fn collect(&mut self, len_max: usize, hold: &mut Hold) -> Result<Bytes, BodyError> {
        let Some(first) = self.chunk().await? else {
            return Ok(Bytes::new());
        };
        if first.len() > len_max {
            return Err(BodyError::TooLarge { len_max });
        }
        let Some(mut next) = hold.bear(self.chunk()).await? else {
            return Ok(first);
        };
        let mut all = first.to_vec();
        loop {
            if next.len() > len_max - all.len() {
                return Err(BodyError::TooLarge { len_max });
            }
            all.extend_from_slice(&next);
            hold.cover(all.len()).await;
            match hold.bear(self.chunk()).await? {
                Some(chunk) => next = chunk,
                None => return Ok(all.into()),
            }
        }
    }

    /// Reads and forgets the rest, up to `len_max` bytes, so that a client that only reads after it has written everything
    /// gets its answer.
    pub async fn drain(&mut self, len_max: u64) {
        let mut left = len_max;
        while let Ok(Some(chunk)) = self.raw_chunk().await {
            match left.checked_sub(chunk.len() as u64) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    }

    async fn raw_chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            let frame = tokio::time::timeout(SILENCE_MAX, self.source.frame()).await;
            let Some(frame) = frame.map_err(|_| BodyError::Stalled)? else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| BodyError::Cut(error.to_string()))?;
            // What is not data are trailers, which nothing here uses.
            let Ok(data) = frame.into_data() else { continue };
            if !data.is_empty() {
                self.received.fetch_add(data.len() as u64, Ordering::Relaxed);
                return Ok(Some(data));
            }
        }
    }
}

/// A gzip stream on its way to be plain.
struct Inflate {
    state: Decompress,
    input: Bytes,
    done: bool,
}

impl Inflate {
    fn new() -> Self {
        Self {
            state: Decompress::new_gzip(GZIP_WINDOW_BITS),
            input: Bytes::new(),
            done: false,
        }
    }

    /// Inflates some of the input; `None` if it needs more.
    fn step(&mut self) -> Result<Option<Bytes>, BodyError> {
        while !self.input.is_empty() {
            if self.done {
                return Err(BodyError::Gzip);
            }
            let mut output = Vec::with_capacity(INFLATED_CHUNK_LEN_MAX);
            let before = self.state.total_in();
            let status = self
                .state
                .decompress_vec(&self.input, &mut output, FlushDecompress::None);
            let consumed = usize::try_from(self.state.total_in() - before).map_err(|_| BodyError::Gzip)?;
            self.done = matches!(status.map_err(|_| BodyError::Gzip)?, Status::StreamEnd);
            if consumed == 0 && output.is_empty() && !self.done {
                return Err(BodyError::Gzip);
            }
            self.input = self.input.slice(consumed..);
            if !output.is_empty() {
                return Ok(Some(output.into()));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::request_memory::RequestMemory;
    use flate2::{Compression, write::GzEncoder};
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use std::io::Write;

    fn hold() -> Hold {
        Hold::new(Arc::new(RequestMemory::new(1 << 20)), 1 << 20)
    }

    fn body(
        chunks: Vec<Vec<u8>>,
        encoding: Option<&str>,
    ) -> RequestBody<impl Body<Data = Bytes, Error = String> + Unpin> {
        let frames = chunks.into_iter().map(|chunk| Ok(Frame::data(Bytes::from(chunk))));
        let mut headers = HeaderMap::new();
        if let Some(encoding) = encoding {
            headers.insert(http::header::CONTENT_ENCODING, encoding.parse().unwrap());
        }
        RequestBody::new(StreamBody::new(futures::stream::iter(frames)), &headers, Arc::default()).unwrap()
    }

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn bytewise(bytes: &[u8]) -> Vec<Vec<u8>> {
        bytes.iter().map(|byte| vec![*byte]).collect()
    }

    #[tokio::test]
    async fn plain_and_gzip_read_the_same_however_they_are_cut() {
        let plain: Vec<u8> = (0..50_000u32).flat_map(|i| (i % 251).to_be_bytes()).collect();
        let packed = gzip(&plain);
        for encoding in ["gzip", "x-gzip"] {
            for chunks in [vec![packed.clone()], bytewise(&packed)] {
                assert_eq!(
                    body(chunks, Some(encoding))
                        .collect(plain.len(), &mut hold())
                        .await
                        .unwrap(),
                    plain
                );
            }
        }
        assert_eq!(
            body(bytewise(&plain), None)
                .collect(plain.len(), &mut hold())
                .await
                .unwrap(),
            plain
        );
    }

    #[tokio::test]
    async fn received_counts_wire_bytes() {
        let packed = gzip(&[0; 10_000]);
        let mut body = body(vec![packed.clone()], Some("gzip"));
        assert_eq!(body.collect(10_000, &mut hold()).await.unwrap().len(), 10_000);
        assert_eq!(body.received.load(Ordering::Relaxed), packed.len() as u64);
    }

    #[tokio::test]
    async fn the_limit_holds_after_inflating() {
        for encoding in [None, Some("gzip")] {
            let chunks = |len: usize| match encoding {
                None => vec![vec![7; len / 2], vec![7; len - len / 2]],
                Some(_) => vec![gzip(&vec![7; len])],
            };
            assert_eq!(
                body(chunks(99_999), encoding)
                    .collect(100_000, &mut hold())
                    .await
                    .unwrap()
                    .len(),
                99_999
            );
            assert_eq!(
                body(chunks(100_000), encoding)
                    .collect(100_000, &mut hold())
                    .await
                    .unwrap()
                    .len(),
                100_000
            );
            let above = body(chunks(100_001), encoding).collect(100_000, &mut hold()).await;
            assert!(matches!(above, Err(BodyError::TooLarge { len_max: 100_000 })));
        }
    }

    #[tokio::test]
    async fn a_bomb_is_inflated_step_by_step() {
        let mut body = body(vec![gzip(&vec![0; 64 << 20])], Some("gzip"));
        for _ in 0..10 {
            assert!(body.chunk().await.unwrap().unwrap().len() <= INFLATED_CHUNK_LEN_MAX);
        }
    }

    #[tokio::test]
    async fn broken_gzip_is_an_error() {
        let packed = gzip(b"0032want");
        let mut flipped = packed.clone();
        *flipped.last_mut().unwrap() ^= 1;
        let trailing = [packed.clone(), b"x".to_vec()].concat();
        for broken in [
            packed[..packed.len() - 1].to_vec(),
            flipped,
            trailing,
            b"plain".to_vec(),
            Vec::new(),
        ] {
            assert!(matches!(
                body(vec![broken], Some("gzip")).collect(1000, &mut hold()).await,
                Err(BodyError::Gzip)
            ));
        }
    }

    #[test]
    fn other_encodings_are_refused() {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_ENCODING, "br".parse().unwrap());
        let refused = RequestBody::new(http_body_util::Empty::<Bytes>::new(), &headers, Arc::default());
        assert!(matches!(refused, Err(BodyError::Encoding(name)) if name == "br"));
    }
}
