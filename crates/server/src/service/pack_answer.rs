//! A pack on its way to the client: framed in side-band packets, kept alive while the work is slow.

use crate::http::answer::Answer;
use crate::http::record::Record;
use crate::http::response_body::{Cut, Piece};
use bytes::Bytes;
use cuesta_engine::EngineError;
use cuesta_engine::upload::{self, PackStream};
use cuesta_protocol::pktline::FLUSH;
use cuesta_protocol::sideband::{EMPTY_TEXT, KEEP_ALIVE, SideBand};
use cuesta_protocol::upload::answer::FetchAnswer;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// Packs of fewer objects give their place among the fetches back once they are planned, unless their bytes are many.
const LARGE_OBJECTS_MIN: u32 = 1000;
/// Packs of fewer bytes fit into one read, and mostly into what the sockets hold.
const LARGE_BYTES_MIN: u64 = 1 << 20;

/// How a pack is sent.
pub struct PackForm {
    /// What comes before it: acknowledgments and the like.
    pub before: Vec<u8>,
    /// The side-band; without one the pack is bare, and nothing can be told beside it.
    pub side_band: Option<SideBand>,
    /// Writes what can only be written when the pack is planned: URIs, and the line before the pack.
    pub head: Option<FetchAnswer>,
}

/// What is said beside a pack.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Whether band 2 tells of progress.
    pub progress: bool,
    /// Silence after which a keep-alive packet is sent, if any is.
    pub keep_alive: Option<Duration>,
}

/// A plan, and what it takes to serve it.
pub struct Planned {
    /// What is sent.
    pub pack: upload::Answer,
    /// The place among the fetches.
    pub permit: Option<OwnedSemaphorePermit>,
    /// Checksums and URIs of packs that the client fetches by itself.
    pub uris: Vec<(String, String)>,
}

/// A plan being made.
pub type Planning = BoxFuture<'static, Result<Planned, EngineError>>;

/// A pack being sent.
pub struct PackAnswer {
    state: State,
    queue: VecDeque<Piece>,
    side_band: Option<SideBand>,
    head: Option<FetchAnswer>,
    manner: Manner,
    record: Arc<Record>,
    _permit: Option<OwnedSemaphorePermit>,
}

enum State {
    Planning(Planning),
    Sending(PackStream),
    /// Nothing follows the queue.
    Ended,
    /// Nothing but the end of the connection can tell the client that the pack is not whole.
    Broken(String),
}

impl PackAnswer {
    /// Waits for the plan, so that its failure is a refusal of its own; only if that takes long, starts to send before.
    pub async fn start(
        mut planning: Planning,
        form: PackForm,
        manner: Manner,
        record: Arc<Record>,
    ) -> Result<BoxStream<'static, Result<Piece, Cut>>, EngineError> {
        let mut answer = Self {
            state: State::Ended,
            queue: VecDeque::from([Piece::from(Bytes::from(form.before))]),
            side_band: form.side_band,
            head: form.head,
            manner,
            record,
            _permit: None,
        };
        match within(manner.keep_alive, &mut planning).await {
            Some(planned) => answer.planned(planned?),
            None => answer.state = State::Planning(planning),
        }
        let pieces = futures::stream::unfold(answer, |mut answer| async {
            let next = answer.next().await?;
            Some((next, answer))
        });
        Ok(pieces.boxed())
    }

    fn planned(&mut self, Planned { pack, permit, uris }: Planned) {
        if let Some(answer) = self.head.take() {
            let mut out = Vec::new();
            let pairs = uris.iter().map(|(checksum, uri)| (checksum.as_str(), uri.as_str()));
            answer.packfile_uris(&mut out, pairs);
            answer.packfile(&mut out);
            self.queue.push_back(Bytes::from(out).into());
        }
        let count = pack.object_count();
        self.text(&format!("Enumerating objects: {count}, done.\n"));
        // A small pack holds next to nothing, so it need not keep others waiting.
        self._permit = permit.filter(|_| is_large(count, || pack.bytes()));
        self.state = State::Sending(pack.stream());
    }

    async fn next(&mut self) -> Option<Result<Piece, Cut>> {
        loop {
            if let Some(piece) = self.queue.pop_front() {
                return Some(Ok(piece));
            }
            match &mut self.state {
                State::Ended => return None,
                State::Broken(why) => {
                    let cut = Cut(std::mem::take(why));
                    self.state = State::Ended;
                    return Some(Err(cut));
                }
                State::Planning(planning) => match within(self.manner.keep_alive, planning).await {
                    Some(Ok(planned)) => self.planned(planned),
                    Some(Err(error)) => self.fail(&error),
                    None => self.keep_alive(),
                },
                State::Sending(pack) => match within(self.manner.keep_alive, pack.next()).await {
                    Some(Some(Ok(chunk))) => self.data(chunk),
                    Some(Some(Err(error))) => self.fail(&error),
                    Some(None) => self.end(),
                    None => self.keep_alive(),
                },
            }
        }
    }

    fn data(&mut self, chunk: Bytes) {
        match self.side_band {
            Some(band) => self.queue.extend(
                band.frames(chunk)
                    .map(|frame| Piece::framed(frame.header, frame.payload)),
            ),
            None => self.queue.push_back(chunk.into()),
        }
    }

    fn end(&mut self) {
        if let State::Sending(pack) = &self.state {
            let count = pack.progress().objects();
            self.text(&format!("Total {count} (from {count} stored objects)\n"));
        }
        if self.side_band.is_some() {
            self.queue.push_back(Bytes::from_static(FLUSH).into());
        }
        self.state = State::Ended;
    }

    fn fail(&mut self, error: &EngineError) {
        let text = Answer::engine_text(error, &self.record);
        self.state = match self.side_band {
            Some(band) => {
                let mut out = Vec::new();
                band.fatal(&mut out, &text);
                self.queue.push_back(Bytes::from(out).into());
                State::Ended
            }
            None => State::Broken(text),
        };
    }

    fn text(&mut self, text: &str) {
        if let (Some(band), true) = (self.side_band, self.manner.progress) {
            let mut out = Vec::new();
            band.text(&mut out, text);
            self.queue.push_back(Bytes::from(out).into());
        }
    }

    fn keep_alive(&mut self) {
        if self.side_band.is_some() {
            // Where a section is due, an empty packet of the first band would be read as a line.
            let packet: &[u8] = if self.head.is_some() { EMPTY_TEXT } else { KEEP_ALIVE };
            self.queue.push_back(Bytes::from_static(packet).into());
        }
    }
}

fn is_large(objects: u32, bytes: impl FnOnce() -> u64) -> bool {
    objects >= LARGE_OBJECTS_MIN || bytes() >= LARGE_BYTES_MIN
}

/// What `work` comes to; `None` if that takes longer than `silence`.
pub(super) async fn within<T>(silence: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match silence {
        Some(silence) => tokio::time::timeout(silence, work).await.ok(),
        None => Some(work.await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::record::RequestId;
    use bytes::Buf;
    use cuesta_store::{Bucket, BucketOptions};

    /// The bytes before an error that a plan comes to after 23 s, for a client that hears of silence after so many.
    async fn slow(keep_alive: Option<Duration>, side_band: Option<SideBand>) -> Vec<u8> {
        let planning = async {
            tokio::time::sleep(Duration::from_secs(23)).await;
            Err(EngineError::Internal("late"))
        };
        let form = PackForm {
            before: b"NAK".to_vec(),
            side_band,
            head: None,
        };
        let manner = Manner {
            progress: false,
            keep_alive,
        };
        let bucket = Bucket::open("memory:", &BucketOptions::default()).unwrap();
        let record = Record::new(RequestId(1), http::Method::POST, Arc::default(), bucket);
        let pieces = match PackAnswer::start(Box::pin(planning), form, manner, Arc::new(record)).await {
            Ok(pieces) => pieces,
            Err(_) => return Vec::new(),
        };
        let pieces: Vec<_> = pieces.collect().await;
        let bytes = pieces.into_iter().filter_map(Result::ok).map(|mut piece| {
            let len = piece.remaining();
            piece.copy_to_bytes(len)
        });
        bytes.collect::<Vec<_>>().concat()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_hears_that_its_pack_is_being_planned() {
        let (large, seconds) = (Some(SideBand::Large), |seconds| Some(Duration::from_secs(seconds)));
        let count = |answer: &[u8], packet: &[u8]| answer.windows(packet.len()).filter(|part| *part == packet).count();
        for (keep_alive, packets) in [(seconds(5), 3), (seconds(10), 1)] {
            let answer = slow(keep_alive, large).await;
            // What comes before the pack breaks the first silence.
            assert!(answer.starts_with(b"NAK0005\x01"));
            assert_eq!(count(&answer, KEEP_ALIVE), packets, "{}", answer.escape_ascii());
            // A bare pack has no room for more, and says by its end alone that it is broken.
            assert_eq!(slow(keep_alive, None).await, b"NAK");
        }
        // Whoever hears nothing meanwhile is refused as by a plan that fails at once.
        for silent in [None, seconds(60)] {
            assert_eq!(slow(silent, large).await, b"");
        }
    }

    #[test]
    fn a_pack_is_large_by_its_objects_or_its_bytes() {
        assert!(!is_large(LARGE_OBJECTS_MIN - 1, || LARGE_BYTES_MIN - 1));
        assert!(is_large(1, || LARGE_BYTES_MIN));
        assert!(is_large(LARGE_OBJECTS_MIN, || unreachable!("a pass over all entries")));
    }
}
