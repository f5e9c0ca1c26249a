//! The client: a log store that another process holds.

use super::frame::{self, Answer, Request};
use crate::{Appended, Base, LedgerError, Limits, LogStore};
use async_trait::async_trait;
use bytes::Bytes;
use cuesta_format::LogId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

/// Frames that wait to be written.
const FRAMES_MAX: usize = 64;

/// A log store over a socket. When the connection is lost every call fails [`LedgerError::Unavailable`]; a command that
/// outlives the server connects anew.
pub struct RemoteStore {
    limits: Limits,
    shared: Arc<Shared>,
    frames: mpsc::Sender<Bytes>,
}

struct Shared {
    next_id: AtomicU64,
    /// Those who wait; `None` once the connection is lost.
    waiting: Mutex<Option<BTreeMap<u64, oneshot::Sender<Answer>>>>,
}

impl RemoteStore {
    /// Connects to the socket at `path`. Must be called within a tokio runtime, which carries the connection.
    pub async fn connect(path: &Path) -> Result<Self, LedgerError> {
        let mut stream = UnixStream::connect(path).await.map_err(frame::lost)?;
        frame::greet(&mut stream, None).await.map_err(frame::lost)?;
        frame::read_greeting(&mut stream).await?;
        let limits = frame::read_limits(&mut stream).await?;
        let (reader, writer) = stream.into_split();
        let shared = Arc::new(Shared {
            next_id: AtomicU64::new(1),
            waiting: Mutex::new(Some(BTreeMap::new())),
        });
        let (frames, queue) = mpsc::channel(FRAMES_MAX);
        tokio::spawn(write_frames(writer, queue));
        tokio::spawn(read_answers(reader, frame::frame_bytes_max(limits), shared.clone()));
        Ok(Self { limits, shared, frames })
    }

    async fn ask(&self, request: Request) -> Result<Answer, LedgerError> {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        match &mut *self.shared.waiting.lock() {
            Some(waiting) => drop(waiting.insert(id, reply)),
            None => return Err(connection_lost()),
        }
        let mut asking = Asking {
            store: self,
            id,
            answered: false,
        };
        let sent = self.frames.send(frame::encode_request(id, &request)).await;
        sent.map_err(|_| connection_lost())?;
        let answer = answer.await.map_err(|_| connection_lost())?;
        asking.answered = true;
        match answer {
            Answer::Failed(error) => Err(error),
            answer => Ok(answer),
        }
    }

    async fn number(&self, request: Request) -> Result<u64, LedgerError> {
        match self.ask(request).await? {
            Answer::Number(number) => Ok(number),
            other => Err(unfitting(other)),
        }
    }

    async fn done(&self, request: Request) -> Result<(), LedgerError> {
        match self.ask(request).await? {
            Answer::Done => Ok(()),
            other => Err(unfitting(other)),
        }
    }
}

/// A call under way; given up, it tells the server so.
struct Asking<'a> {
    store: &'a RemoteStore,
    id: u64,
    answered: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        if let Some(waiting) = &mut *self.store.shared.waiting.lock() {
            waiting.remove(&self.id);
        }
        // Where the queue is full the server keeps a waiter that it could free; it is bounded there.
        let _ = self
            .store
            .frames
            .try_send(frame::encode_request(self.id, &Request::Cancel));
    }
}

async fn write_frames(mut writer: OwnedWriteHalf, mut queue: mpsc::Receiver<Bytes>) {
    while let Some(frame) = queue.recv().await {
        if writer.write_all(&frame).await.is_err() {
            break;
        }
    }
    // Half-closed, the server ends its half too, and with that the reader.
    let _ = writer.shutdown().await;
}

async fn read_answers(reader: OwnedReadHalf, bytes_max: usize, shared: Arc<Shared>) {
    let mut reader = BufReader::new(reader);
    loop {
        let answer = match frame::read_frame(&mut reader, bytes_max).await {
            Ok(Some(frame)) => frame::decode_answer(frame),
            Ok(None) => break,
            Err(error) => Err(error),
        };
        match answer {
            Ok((id, answer)) => {
                let waiting = shared.waiting.lock().as_mut().and_then(|waiting| waiting.remove(&id));
                waiting.map(|reply| reply.send(answer));
            }
            Err(error) => {
                tracing::warn!(%error, "the lent log store is lost");
                break;
            }
        }
    }
    // Dropping the replies tells all who wait.
    *shared.waiting.lock() = None;
}

#[async_trait]
impl LogStore for RemoteStore {
    fn limits(&self) -> Limits {
        self.limits
    }

    async fn append(&self, log: LogId, number: u64, entry: Bytes) -> Result<Appended, LedgerError> {
        self.limits.check(&entry)?;
        match self.ask(Request::Append { log, number, entry }).await? {
            Answer::Appended(appended) => Ok(appended),
            other => Err(unfitting(other)),
        }
    }

    async fn read(&self, log: LogId, from: u64, bytes_max: usize) -> Result<Vec<(u64, Bytes)>, LedgerError> {
        match self
            .ask(Request::Read {
                log,
                from,
                bytes_max: bytes_max as u64,
            })
            .await?
        {
            Answer::Entries(entries) => Ok(entries),
            other => Err(unfitting(other)),
        }
    }

    async fn end(&self, log: LogId) -> Result<u64, LedgerError> {
        self.number(Request::End { log }).await
    }

    async fn base(&self, log: LogId) -> Result<Base, LedgerError> {
        match self.ask(Request::Base { log }).await? {
            Answer::Base(base) => Ok(base),
            other => Err(unfitting(other)),
        }
    }

    async fn advance(&self, log: LogId, base: Base) -> Result<(), LedgerError> {
        self.done(Request::Advance { log, base }).await
    }

    async fn changed(&self, log: LogId, than: u64) -> Result<u64, LedgerError> {
        self.number(Request::Changed { log, than }).await
    }

    async fn drop_log(&self, log: LogId) -> Result<(), LedgerError> {
        self.done(Request::Drop { log }).await
    }
}

fn connection_lost() -> LedgerError {
    frame::lost(std::io::ErrorKind::ConnectionReset.into())
}

fn unfitting(answer: Answer) -> LedgerError {
    LedgerError::Protocol {
        expected: "an answer to what was asked",
        got: format!("{answer:?}"),
    }
}
