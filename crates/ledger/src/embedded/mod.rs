//! The log store of a single node: one redb file in the data directory (docs/decisions/embedded-ledger.md).
//!
//! One committer thread writes: it takes every waiting append of every log into one transaction, which costs one fsync.
//! Reads go to redb's snapshots and never wait for it. The file is locked: a second process gets
//! [`LedgerError::Locked`] and connects to the first one's socket instead ([`crate::remote`]).

mod committer;
mod ends;
mod tables;

#[cfg(test)]
mod crash_tests;

use crate::{Appended, Base, LedgerError, Limits, LogStore};
use async_trait::async_trait;
use bytes::Bytes;
use committer::{Committer, Request, Verb};
use cuesta_format::LogId;
use cuesta_store::Workers;
use ends::Ends;
use redb::{Database, DatabaseError, StorageError};
use std::path::Path;
use std::sync::Arc;
use tables::ReadTables;
use tokio::sync::{mpsc, oneshot};

/// An entry may take what a repository's largest import may need, and memory can hold.
const LIMITS: Limits = Limits {
    entry_bytes_max: 64 << 20,
    inline_bytes_max: 1 << 20,
};
/// Requests that wait for the committer; more wait before it.
const REQUESTS_MAX: usize = 1024;

/// How the store uses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddedOptions {
    /// Pages kept in memory, in bytes.
    pub cache_bytes_max: usize,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            cache_bytes_max: 64 << 20,
        }
    }
}

/// The store. Dropping it finishes what the committer has begun and gives the file free.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    workers: Workers,
    requests: Option<mpsc::Sender<Request>>,
    committer: Option<std::thread::JoinHandle<()>>,
}

/// What the committer and the readers share.
struct Shared {
    database: Database,
    ends: Ends,
}

impl EmbeddedStore {
    /// Opens the file at `path`, which is made if it is not there. Blocks; after a crash it reads the whole file to
    /// verify it. [`LedgerError::Locked`] if another process has it open.
    pub fn open(path: &Path, options: EmbeddedOptions, workers: Workers) -> Result<Self, LedgerError> {
        let name = path.display().to_string();
        let database = Database::builder()
            .set_cache_size(options.cache_bytes_max)
            .create(path)
            .map_err(|error| open_error(&name, error))?;
        sync_directory(path)?;
        Self::start(database, &name, workers)
    }

    fn start(database: Database, name: &str, workers: Workers) -> Result<Self, LedgerError> {
        tables::prepare(&database, name)?;
        let shared = Arc::new(Shared {
            database,
            ends: Ends::default(),
        });
        let (requests, queue) = mpsc::channel(REQUESTS_MAX);
        let committer = Committer::new(shared.clone(), queue);
        let committer = std::thread::Builder::new()
            .name("ledger-commit".to_owned())
            .spawn(move || committer.run())
            .map_err(|error| LedgerError::unavailable("start the committer", error))?;
        Ok(Self {
            shared,
            workers,
            requests: Some(requests),
            committer: Some(committer),
        })
    }

    async fn request<T>(
        &self,
        log: LogId,
        verb: impl FnOnce(oneshot::Sender<Result<T, LedgerError>>) -> Verb,
    ) -> Result<T, LedgerError> {
        let (reply, answer) = oneshot::channel();
        let requests = self.requests.as_ref().ok_or(LedgerError::Closed)?;
        requests
            .send(Request { log, verb: verb(reply) })
            .await
            .map_err(|_| LedgerError::Closed)?;
        answer.await.map_err(|_| LedgerError::Closed)?
    }

    async fn query<T: Send + 'static>(
        &self,
        log: LogId,
        query: impl FnOnce(&ReadTables, LogId) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let shared = self.shared.clone();
        self.workers
            .run(move || query(&ReadTables::begin(&shared.database)?, log))
            .await
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(committer) = self.committer.take()
            && committer.join().is_err()
        {
            tracing::error!("the ledger's committer had panicked");
        }
    }
}

#[async_trait]
impl LogStore for EmbeddedStore {
    fn limits(&self) -> Limits {
        LIMITS
    }

    async fn append(&self, log: LogId, number: u64, entry: Bytes) -> Result<Appended, LedgerError> {
        self.limits().check(&entry)?;
        self.request(log, |reply| Verb::Append { number, entry, reply }).await
    }

    async fn read(&self, log: LogId, from: u64, bytes_max: usize) -> Result<Vec<(u64, Bytes)>, LedgerError> {
        self.query(log, move |tables, log| tables.entries(log, from, bytes_max))
            .await
    }

    async fn end(&self, log: LogId) -> Result<u64, LedgerError> {
        match self.shared.ends.known(log) {
            Some(end) => end,
            None => {
                let since = self.shared.ends.moment();
                let end = self.query(log, |tables, log| Ok(tables.head(log)?.end)).await?;
                self.shared.ends.learn(log, end, since);
                Ok(end)
            }
        }
    }

    /// The file has one owner, which is this process.
    fn end_known(&self, log: LogId) -> Option<u64> {
        self.shared.ends.known(log)?.ok()
    }

    async fn base(&self, log: LogId) -> Result<Base, LedgerError> {
        self.query(log, |tables, log| Ok(tables.head(log)?.base)).await
    }

    async fn advance(&self, log: LogId, base: Base) -> Result<(), LedgerError> {
        self.request(log, |reply| Verb::Advance { base, reply }).await
    }

    async fn changed(&self, log: LogId, than: u64) -> Result<u64, LedgerError> {
        // Watching begins before the end is read, so that no append falls between.
        let mut watch = self.shared.ends.watch(log);
        let end = self.end(log).await?;
        if end > than {
            return Ok(end);
        }
        match watch.beyond(than).await {
            Some(end) => Ok(end),
            None => self.end(log).await.and(Err(LedgerError::Closed)),
        }
    }

    async fn drop_log(&self, log: LogId) -> Result<(), LedgerError> {
        self.request(log, |reply| Verb::Drop { reply }).await
    }
}

fn open_error(path: &str, error: DatabaseError) -> LedgerError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => LedgerError::Locked { path },
        DatabaseError::Storage(StorageError::Io(error)) => LedgerError::unavailable(format!("open '{path}'"), error),
        other => LedgerError::BadStore {
            path,
            what: other.to_string(),
        },
    }
}

/// A new file is only there after a crash if its directory says so.
fn sync_directory(path: &Path) -> Result<(), LedgerError> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    std::fs::File::open(parent)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| LedgerError::unavailable(format!("sync '{}'", parent.display()), error))
}
