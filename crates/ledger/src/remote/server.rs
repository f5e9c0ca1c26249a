//! The server half: lends a log store to commands on the same machine.

use super::frame::{self, Answer, Request};
use crate::{LedgerError, LogStore};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};

/// What the server allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// Connections at once; more wait to be accepted.
    pub connections_max: usize,
    /// Requests of one connection under way at once; more are not read.
    pub requests_max: usize,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            connections_max: 32,
            requests_max: 256,
        }
    }
}

/// Answers that wait to be written to one connection.
const ANSWERS_MAX: usize = 64;

/// Lends `store` at the socket `path` until the future is dropped, which ends all connections. A socket file that a dead
/// server left is replaced: whoever holds the embedded store's lock is the only server. The file has mode 0600 from the
/// moment it has its name.
pub async fn serve(path: &Path, store: Arc<dyn LogStore>, options: ServerOptions) -> Result<(), LedgerError> {
    let listener =
        bind(path).map_err(|error| LedgerError::unavailable(format!("lend at '{}'", path.display()), error))?;
    let connections = Arc::new(Semaphore::new(options.connections_max.max(1)));
    let mut served = JoinSet::new();
    loop {
        let Ok(permit) = connections.clone().acquire_owned().await else {
            return Ok(());
        };
        let (stream, _) = listener.accept().await.map_err(frame::lost)?;
        let store = store.clone();
        served.spawn(async move {
            if let Err(error) = serve_connection(stream, store, options).await {
                tracing::warn!(%error, "a client of the lent log store is lost");
            }
            drop(permit);
        });
        while served.try_join_next().is_some() {}
    }
}

/// Binds under a name nobody knows, narrows the mode, then gives the file its name.
fn bind(path: &Path) -> std::io::Result<UnixListener> {
    let mut unnamed = path.as_os_str().to_owned();
    unnamed.push(".new");
    let unnamed = Path::new(&unnamed);
    if let Err(error) = std::fs::remove_file(unnamed)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let listener = UnixListener::bind(unnamed)?;
    std::fs::set_permissions(unnamed, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(unnamed, path)?;
    Ok(listener)
}

async fn serve_connection(
    mut stream: UnixStream,
    store: Arc<dyn LogStore>,
    options: ServerOptions,
) -> Result<(), LedgerError> {
    let limits = store.limits();
    frame::read_greeting(&mut stream).await?;
    frame::greet(&mut stream, Some(limits)).await.map_err(frame::lost)?;
    let (reader, writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let (answers, queue) = mpsc::channel(ANSWERS_MAX);
    let slots = Arc::new(Semaphore::new(options.requests_max.max(1)));
    // Dropped with the connection, and with it what nobody waits for any more.
    let mut running = JoinSet::new();
    running.spawn(write_answers(writer, queue));
    let mut by_id: BTreeMap<u64, AbortHandle> = BTreeMap::new();
    while let Some(frame) = frame::read_frame(&mut reader, frame::frame_bytes_max(limits)).await? {
        let (id, request) = frame::decode_request(frame)?;
        while running.try_join_next().is_some() {}
        by_id.retain(|_, task| !task.is_finished());
        if request == Request::Cancel {
            // Only what waits may be cut short; an append goes its way.
            by_id.remove(&id).inspect(AbortHandle::abort);
            continue;
        }
        let Ok(slot) = slots.clone().acquire_owned().await else {
            return Ok(());
        };
        let waits = matches!(request, Request::Changed { .. });
        let (store, answers) = (store.clone(), answers.clone());
        let task = running.spawn(async move {
            let answer = perform(&*store, request).await.unwrap_or_else(Answer::Failed);
            // The client may be gone.
            let _ = answers.send(frame::encode_answer(id, &answer)).await;
            drop(slot);
        });
        if waits {
            by_id.insert(id, task);
        }
    }
    Ok(())
}

async fn write_answers(mut writer: OwnedWriteHalf, mut queue: mpsc::Receiver<Bytes>) {
    while let Some(frame) = queue.recv().await {
        if writer.write_all(&frame).await.is_err() {
            return;
        }
    }
}

async fn perform(store: &dyn LogStore, request: Request) -> Result<Answer, LedgerError> {
    Ok(match request {
        Request::Append { log, number, entry } => Answer::Appended(store.append(log, number, entry).await?),
        Request::Read { log, from, bytes_max } => {
            let bytes_max = usize::try_from(bytes_max)
                .unwrap_or(usize::MAX)
                .min(frame::READ_BYTES_MAX);
            Answer::Entries(frame::entries_of_one_answer(store.read(log, from, bytes_max).await?))
        }
        Request::End { log } => Answer::Number(store.end(log).await?),
        Request::Base { log } => Answer::Base(store.base(log).await?),
        Request::Advance { log, base } => store.advance(log, base).await.map(|()| Answer::Done)?,
        Request::Changed { log, than } => Answer::Number(store.changed(log, than).await?),
        Request::Drop { log } => store.drop_log(log).await.map(|()| Answer::Done)?,
        Request::Cancel => Answer::Done,
    })
}
