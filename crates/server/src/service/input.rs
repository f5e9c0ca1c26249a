//! Where the bytes of a push come from: the body of an HTTP request, which has an end of its own, or a stream that may stay
//! open after the last byte of the pack, as over SSH.

use super::admission::Queue;
use super::patience::Patience;
use super::request_memory::Hold;
use crate::http::request_body::{BodyError, RequestBody};
use bytes::Bytes;
use cuesta_protocol::ProtocolError;
use cuesta_protocol::pktline::{Decoder, Packet};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// How long a client may send nothing where something is due.
const SILENCE_MAX: Duration = Duration::from_secs(300);
/// A pause in a stream after which it is worth finding out whether it was the end.
const LULL: Duration = Duration::from_millis(10);
/// What is this short is read before anything is held for it; so much of a stream is read to find out how long it is.
const SHORT_LEN_MAX: usize = 64 << 10;

/// The bytes of a push.
pub struct Input {
    source: Source,
    /// Read already, to be given first.
    ahead: VecDeque<Bytes>,
    /// How reading ahead ended, if it did; told after what was read.
    ended: Option<Result<(), BodyError>>,
    patience: Patience,
    /// Nothing more is expected of the client.
    given_up: bool,
    listens: Arc<AtomicBool>,
}

enum Source {
    /// An HTTP request's.
    Body(Box<RequestBody>),
    /// A stream's.
    Stream(ByteStream),
}

/// What [`Input::chunk_or_lull`] found.
pub enum Came {
    /// Bytes, never none of them.
    Chunk(Bytes),
    /// Nothing yet: a stream pauses.
    Lull,
    /// The end.
    End,
}

impl Input {
    /// The body of an HTTP request.
    pub fn body(body: RequestBody) -> Self {
        Self::of(Source::Body(Box::new(body)))
    }

    /// A stream.
    pub fn stream(stream: ByteStream) -> Self {
        Self::of(Source::Stream(stream))
    }

    fn of(source: Source) -> Self {
        let listens = matches!(source, Source::Stream(_));
        Self {
            source,
            ahead: VecDeque::new(),
            ended: None,
            patience: Patience::new(),
            given_up: false,
            listens: Arc::new(listens.into()),
        }
    }

    /// Whether the client reads what it is answered: of a stream at any time, over HTTP once all of its request was read.
    pub fn listens(&self) -> Arc<AtomicBool> {
        self.listens.clone()
    }

    /// From now on a silent client is given up early whenever there is such a queue.
    pub fn holds_up(&mut self, queue: Queue) {
        self.patience.holds_up(queue);
    }

    /// Puts bytes back that were taken too many.
    pub fn put_back(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.ahead.push_front(bytes);
        }
    }

    /// Waits for the first bytes, and for all of what is short, so that what is held for a push is not held for a client that
    /// is silent. Gives the length, if it is known: announced, or short and here.
    pub async fn begin(&mut self) -> Option<u64> {
        if self.ahead.is_empty() {
            self.read_ahead().await;
        }
        if let Source::Body(body) = &self.source {
            let len = body.len_hint()?.saturating_add(self.len_ahead() as u64);
            while self.ended.is_none() && len <= SHORT_LEN_MAX as u64 {
                self.read_ahead().await;
            }
            return Some(len);
        }
        let enough = self.len_ahead() + SHORT_LEN_MAX;
        while self.ended.is_none() && self.len_ahead() < enough {
            tokio::time::timeout(LULL, self.read_ahead()).await.ok()?;
        }
        matches!(self.ended, Some(Ok(()))).then(|| self.len_ahead() as u64)
    }

    async fn read_ahead(&mut self) {
        match self.next().await {
            Ok(Some(chunk)) => self.ahead.push_back(chunk),
            Ok(None) => self.ended = Some(Ok(())),
            Err(error) => self.ended = Some(Err(error)),
        }
    }

    fn len_ahead(&self) -> usize {
        self.ahead.iter().map(Bytes::len).sum()
    }

    /// The next bytes of the source.
    async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        let next = self.patience.bear(self.source.chunk()).await;
        self.given_up = matches!(next, Err(BodyError::Stalled | BodyError::HoldsUp));
        if matches!(next, Ok(None)) {
            self.listens.store(true, Ordering::Relaxed);
        }
        next
    }

    /// The next bytes, never none of them; `None` at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        if let Some(chunk) = self.ahead.pop_front() {
            return Ok(Some(chunk));
        }
        match self.ended.take() {
            Some(ended) => ended.map(|()| None),
            None => self.next().await,
        }
    }

    /// The next bytes, or that a stream pauses, which may be all the end it has.
    pub async fn chunk_or_lull(&mut self) -> Result<Came, BodyError> {
        let next = if self.goes_both_ways() {
            match tokio::time::timeout(LULL, self.chunk()).await {
                Ok(next) => next,
                Err(_) => return Ok(Came::Lull),
            }
        } else {
            self.chunk().await
        };
        Ok(next?.map_or(Came::End, Came::Chunk))
    }

    /// Reads and forgets the rest of a body, up to `len_max` bytes: its sender reads no answer before that. Streams go both
    /// ways at once, and nobody knows where theirs would end.
    pub async fn drain(&mut self, len_max: u64) {
        match &mut self.source {
            Source::Body(body) if !self.given_up => body.drain(len_max).await,
            Source::Body(_) | Source::Stream(_) => return,
        }
        self.listens.store(true, Ordering::Relaxed);
    }

    /// Whether the client reads while it sends.
    pub fn goes_both_ways(&self) -> bool {
        matches!(self.source, Source::Stream(_))
    }
}

impl Source {
    async fn chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        match self {
            Self::Body(body) => body.chunk().await,
            Self::Stream(stream) => stream.chunk().await,
        }
    }
}

/// Bytes as they come, from a task that reads them off a connection.
pub struct ByteStream {
    chunks: mpsc::Receiver<Bytes>,
    received: Arc<AtomicU64>,
}

impl ByteStream {
    /// The chunks that come out of `chunks`; dropping its other end is the end of the stream.
    pub fn new(chunks: mpsc::Receiver<Bytes>) -> Self {
        Self {
            chunks,
            received: Arc::default(),
        }
    }

    /// From now on bytes are counted in `received`.
    pub fn count_in(&mut self, received: Arc<AtomicU64>) {
        self.received = received;
    }

    /// The next bytes, never none of them; `None` at the end.
    async fn chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        let next = tokio::time::timeout(SILENCE_MAX, self.receive()).await;
        next.map_err(|_| BodyError::Stalled)
    }

    async fn receive(&mut self) -> Option<Bytes> {
        loop {
            let chunk = self.chunks.recv().await?;
            self.received.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            if !chunk.is_empty() {
                return Some(chunk);
            }
        }
    }
}

/// The packets of a stream.
pub struct Packets {
    stream: ByteStream,
    decoder: Decoder,
    hold: Hold,
    /// Bytes that came since the last release.
    taken: usize,
}

impl Packets {
    /// Reads packets off `stream`. What makes up a request is held in `hold`.
    pub fn new(stream: ByteStream, hold: Hold) -> Self {
        Self {
            stream,
            decoder: Decoder::new(),
            hold,
            taken: 0,
        }
    }

    /// The request is done with: nothing is held for it any more.
    pub fn release(&mut self) {
        self.hold.release();
        self.taken = 0;
    }

    /// The stream below.
    pub fn stream(&mut self) -> &mut ByteStream {
        &mut self.stream
    }

    /// The next packet; `None` at an end between packets.
    pub async fn next(&mut self) -> Result<Option<Packet>, ProtocolError> {
        loop {
            if let Some(packet) = self.decoder.poll()? {
                return Ok(Some(packet));
            }
            self.hold.cover(self.taken).await;
            match self.hold.bear(self.stream.chunk()).await {
                Ok(Some(chunk)) => {
                    self.taken = self.taken.saturating_add(chunk.len());
                    self.decoder.push(&chunk);
                }
                Ok(None) => return self.decoder.finish().map(|()| None),
                Err(stalled) => return Err(ProtocolError::Refused(stalled.to_string())),
            }
        }
    }

    /// One request of protocol v2, as it came: all packets up to a flush. `None` where the client is done: it sends a lone
    /// flush, or nothing more. Takes at most `len_max` bytes.
    pub async fn request(&mut self, len_max: usize) -> Result<Option<Bytes>, ProtocolError> {
        let mut request = Vec::new();
        while let Some(packet) = self.next().await? {
            if packet == Packet::Flush && request.is_empty() {
                return Ok(None);
            }
            packet.encode(&mut request);
            if packet == Packet::Flush {
                return Ok(Some(request.into()));
            }
            if request.len() > len_max {
                return Err(ProtocolError::Refused(format!(
                    "the request is larger than {len_max} bytes"
                )));
            }
        }
        if request.is_empty() {
            Ok(None)
        } else {
            Err(ProtocolError::Truncated)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::admission::{PushMemory, Share};
    use super::super::patience::{CROWDED_BYTES_PER_SECOND_MIN, CROWDED_SILENCE_MAX};
    use super::super::request_memory::RequestMemory;
    use super::*;
    use tokio::time::Instant;

    /// A stream of these chunks, which ends if `ends`.
    async fn stream(chunks: &[&'static [u8]], ends: bool) -> (ByteStream, Option<mpsc::Sender<Bytes>>) {
        let (sender, receiver) = mpsc::channel(chunks.len().max(1));
        for chunk in chunks {
            sender.send(Bytes::from_static(chunk)).await.unwrap();
        }
        (ByteStream::new(receiver), (!ends).then_some(sender))
    }

    async fn packets(chunks: &[&'static [u8]]) -> Packets {
        let memory = Arc::new(RequestMemory::new(1 << 20));
        Packets::new(stream(chunks, true).await.0, Hold::new(memory, 1 << 20))
    }

    #[tokio::test]
    async fn requests_end_with_a_flush_however_they_are_cut() {
        for chunks in [
            &[&b"0008abcd00010000"[..], b"0006xy0000", b"0000junk"][..],
            &[b"0008ab", b"cd0001", b"00000", b"006xy00000000"],
        ] {
            let mut packets = packets(chunks).await;
            assert_eq!(packets.request(100).await.unwrap().unwrap(), &b"0008abcd00010000"[..]);
            assert_eq!(packets.request(100).await.unwrap().unwrap(), &b"0006xy0000"[..]);
            assert_eq!(packets.request(100).await.unwrap(), None);
        }
        assert_eq!(packets(&[]).await.request(100).await.unwrap(), None);
        assert_eq!(
            packets(&[b"0008abcd"]).await.request(100).await,
            Err(ProtocolError::Truncated)
        );
        assert_eq!(
            packets(&[b"0008ab"]).await.request(100).await,
            Err(ProtocolError::Truncated)
        );
        assert!(packets(&[b"zzzz"]).await.request(100).await.is_err());
    }

    #[tokio::test]
    async fn requests_have_a_limit() {
        assert!(packets(&[b"0008abcd0000"]).await.request(8).await.is_ok());
        assert!(packets(&[b"0008abcd0000"]).await.request(7).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_no_end() {
        let (open, _sender) = stream(&[b"abc"], false).await;
        let mut input = Input::stream(open);
        assert_eq!(input.begin().await, None);
        assert!(matches!(input.chunk_or_lull().await.unwrap(), Came::Chunk(chunk) if chunk == b"abc"[..]));
        assert!(matches!(input.chunk_or_lull().await.unwrap(), Came::Lull));
        assert!(matches!(input.chunk().await, Err(BodyError::Stalled)));
    }

    /// A push that holds all memory for large ones, and has sent this much so far.
    async fn holder(memory: &PushMemory, sent: &'static [u8]) -> (Input, mpsc::Sender<Bytes>, Share) {
        let (open, sender) = stream(&[sent], false).await;
        let mut input = Input::stream(open);
        assert_eq!(input.begin().await, None);
        let share = memory.admit(None).await.unwrap();
        input.holds_up(share.queue());
        assert!(input.chunk().await.unwrap().is_some());
        (input, sender.unwrap(), share)
    }

    #[tokio::test(start_paused = true)]
    async fn silent_clients_hold_nobody_up() {
        let memory = PushMemory::new(1 << 20);
        let (mut input, _open, share) = holder(&memory, b"abc").await;
        let second = memory.admit(None);
        let silent = Instant::now();
        let evicted = async {
            assert!(matches!(input.chunk().await, Err(BodyError::HoldsUp)));
            let silence = silent.elapsed();
            assert!(
                silence > CROWDED_SILENCE_MAX / 2 && silence < CROWDED_SILENCE_MAX * 2,
                "{silence:?}"
            );
            input.drain(1 << 30).await;
            drop(share);
        };
        let ((), second) = tokio::join!(evicted, second);
        assert!(second.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_borne_while_nobody_waits_and_ends_when_somebody_does() {
        let memory = PushMemory::new(1 << 20);
        let (mut input, _open, share) = holder(&memory, b"abc").await;
        let begun = Instant::now();
        let waits = async {
            tokio::time::sleep(Duration::from_secs(100)).await;
            memory.admit(None).await
        };
        let evicted = async {
            assert!(matches!(input.chunk().await, Err(BodyError::HoldsUp)));
            assert_eq!(begun.elapsed().as_secs(), 100);
            drop(share);
        };
        assert!(tokio::join!(evicted, waits).1.is_some());
        let (mut alone, _open, _share) = holder(&memory, b"abc").await;
        assert!(matches!(alone.chunk().await, Err(BodyError::Stalled)));
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_on_sending_stays() {
        let memory = PushMemory::new(1 << 20);
        let (mut input, sender, _share) = holder(&memory, b"abc").await;
        let mut second = std::pin::pin!(memory.admit(None));
        assert!(futures::poll!(second.as_mut()).is_pending());
        let pause = CROWDED_SILENCE_MAX * 9 / 10;
        for _ in 0..20 {
            assert!(matches!(
                after(pause, &sender, &mut input, enough(pause)).await,
                Ok(Some(_))
            ));
        }
        // The time in which nobody listens does not count.
        tokio::time::sleep(CROWDED_SILENCE_MAX * 5).await;
        assert!(matches!(after(pause, &sender, &mut input, 1).await, Ok(Some(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn who_sends_a_byte_now_and_then_does_not() {
        for (pause, len) in [
            (Duration::from_millis(900), 1),
            (CROWDED_SILENCE_MAX / 2, 1),
            (CROWDED_SILENCE_MAX / 2, enough(CROWDED_SILENCE_MAX / 2) * 3 / 4),
        ] {
            let memory = PushMemory::new(1 << 20);
            let (mut input, sender, _share) = holder(&memory, b"abc").await;
            let mut second = std::pin::pin!(memory.admit(None));
            assert!(futures::poll!(second.as_mut()).is_pending());
            let begun = Instant::now();
            let ended = loop {
                match after(pause, &sender, &mut input, len).await {
                    Ok(_) => assert!(begun.elapsed() < CROWDED_SILENCE_MAX * 6, "{len} bytes every {pause:?}"),
                    ended => break ended,
                }
            };
            assert!(matches!(ended, Err(BodyError::HoldsUp)));
            assert!(begun.elapsed() >= CROWDED_SILENCE_MAX, "{:?}", begun.elapsed());
        }
    }

    /// Over a stream a wait is given up after a lull, and begun anew.
    #[tokio::test(start_paused = true)]
    async fn the_time_before_a_lull_counts() {
        let memory = PushMemory::new(1 << 20);
        let (mut input, sender, _share) = holder(&memory, b"abc").await;
        let mut second = std::pin::pin!(memory.admit(None));
        assert!(futures::poll!(second.as_mut()).is_pending());
        let begun = Instant::now();
        let ended = loop {
            let sent = async {
                tokio::time::sleep(LULL + Duration::from_millis(1)).await;
                // Fails where the other end has been given up.
                let _ = sender.send(Bytes::from_static(b"8 bytes.")).await;
            };
            let read = async {
                match input.chunk_or_lull().await? {
                    Came::Chunk(bytes) => Ok(Some(bytes)),
                    Came::End => Ok(None),
                    Came::Lull => input.chunk().await,
                }
            };
            match tokio::join!(read, sent).0 {
                Ok(_) => assert!(begun.elapsed() < CROWDED_SILENCE_MAX * 6),
                ended => break ended,
            }
        };
        assert!(matches!(ended, Err(BodyError::HoldsUp)));
    }

    /// So many bytes are enough for that time.
    fn enough(time: Duration) -> usize {
        usize::try_from(time.as_secs()).unwrap() * CROWDED_BYTES_PER_SECOND_MIN as usize
    }

    /// What is read by one who listens while so many bytes are sent, after a pause.
    async fn after(
        pause: Duration,
        sender: &mpsc::Sender<Bytes>,
        input: &mut Input,
        len: usize,
    ) -> Result<Option<Bytes>, BodyError> {
        let sent = async {
            tokio::time::sleep(pause).await;
            // Fails where the other end has been given up.
            let _ = sender.send(vec![b'x'; len].into()).await;
        };
        tokio::join!(input.chunk(), sent).0
    }

    #[tokio::test]
    async fn a_short_stream_tells_its_length() {
        let (short, _) = stream(&[b"abc", b"", b"de"], true).await;
        let mut input = Input::stream(short);
        assert_eq!(input.begin().await, Some(5));
        assert_eq!(input.chunk().await.unwrap().unwrap(), &b"abc"[..]);
        assert_eq!(input.chunk().await.unwrap().unwrap(), &b"de"[..]);
        assert!(matches!(input.chunk_or_lull().await.unwrap(), Came::End));
    }

    #[tokio::test]
    async fn what_was_put_back_comes_first() {
        let (rest, _) = stream(&[b"CK"], true).await;
        let mut input = Input::stream(rest);
        input.put_back(Bytes::from_static(b"PA"));
        assert_eq!(input.chunk().await.unwrap().unwrap(), &b"PA"[..]);
        assert_eq!(input.chunk().await.unwrap().unwrap(), &b"CK"[..]);
        assert_eq!(input.chunk().await.unwrap(), None);
    }
}
