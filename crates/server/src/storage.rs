//! Opens what the settings name: the bucket, the ledger, and the engine over both.

use crate::config::Settings;
use crate::metered_log::{LogCounters, MeteredLog};
use crate::uncollected::Uncollected;
use crate::unflushed::Unflushed;
use anyhow::{Context, bail};
use cuesta_engine::receive::ReceiveOptions;
use cuesta_engine::{AnswersOptions, Engine, EngineOptions, EngineParts};
use cuesta_ledger::remote::{self, RemoteStore, ServerOptions};
use cuesta_ledger::{EmbeddedOptions, EmbeddedStore, LedgerError, LogStore};
use cuesta_store::{BlockCache, Bucket, BucketOptions, CacheOptions, Clock, Entropy, Workers};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// The embedded ledger's place in the data directory.
const LEDGER_DIRECTORY: &str = "ledger";
const LEDGER_FILE: &str = "ledger.redb";
const LEDGER_SOCKET: &str = "socket";
/// Logs that may hold small pushes.
const UNFLUSHED_FILE: &str = "unflushed";
/// Logs that have payloads to delete.
const UNCOLLECTED_FILE: &str = "uncollected";
/// What fits the operating system's 108 bytes with a suffix.
const SOCKET_PATH_LEN_MAX: usize = 90;
/// How long a command waits for a server that is starting or ending: so many times so long.
const BORROW_ATTEMPTS_MAX: u32 = 50;
const BORROW_PAUSE: Duration = Duration::from_millis(100);
/// Blocks of a remote bucket.
const CACHE_DIRECTORY: &str = "cache";
/// Answers kept for those who ask the same.
const ANSWERS_DIRECTORY: &str = "answers";
/// Pushes being received.
const SPOOL_DIRECTORY: &str = "tmp";
/// What one large push holds before it spills, and of delta bases: its share of `push_memory_bytes_max`.
const PUSH_SPOOL_BYTES_MAX: usize = 8 << 20;
const PUSH_BASE_BYTES_MAX: usize = 16 << 20;
/// What all its threads hold of blobs while deltas are applied: three times, for base, delta and result.
const PUSH_HELD_BYTES_MAX: usize = 8 << 20;
const PUSH_THREADS_MAX: usize = 8;
/// One commit, tree or tag takes at most this part of `push_memory_bytes_max`: it is held three times, too.
const STRUCTURE_SHARE: u64 = 4;
/// What one fetch reads ahead: times `fetches_max`, a part of the memory.
const FETCH_READ_AHEAD_BYTES_MAX: u64 = 2 << 20;
/// Pages of the ledger kept in memory. What is read often is in the logs' own state.
const LEDGER_CACHE_BYTES_MAX: usize = 32 << 20;

/// Opened storage, and the world that it lives in.
pub struct Opened {
    /// All repositories.
    pub engine: Engine,
    /// The operating system's clock.
    pub clock: Clock,
    /// The operating system's randomness.
    pub entropy: Entropy,
    /// The runtime's blocking threads.
    pub workers: Workers,
    /// Blocks of the bucket.
    pub cache: BlockCache,
    /// What has been asked of the ledger.
    pub log_counters: Arc<LogCounters>,
    /// Which repositories wait for background work.
    pub unflushed: Unflushed,
    /// Which repositories have payloads to delete.
    pub uncollected: Uncollected,
    /// The ledger at the socket, while this server owns it.
    pub lent: Option<Lent>,
}

/// Who opens storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The server: it owns the ledger and lends it to commands.
    Server,
    /// A command: it borrows the ledger of a running server, or else owns it for a moment.
    Command,
}

/// Opens bucket, ledger and engine. Must be called within a tokio runtime.
pub async fn open(settings: &Settings, role: Role) -> anyhow::Result<Opened> {
    let (clock, entropy) = (Clock::system(), Entropy::system());
    let workers = Workers::Pool(tokio::runtime::Handle::current());
    std::fs::create_dir_all(&settings.data)
        .with_context(|| format!("cannot make the data directory '{}'", settings.data.display()))?;
    let bucket = open_bucket(settings)?;
    if role == Role::Server {
        check_bucket(&bucket, &entropy).await?;
    }
    let ledger = open_ledger(settings, role, &workers).await?;
    let cache = open_cache(settings, bucket, role)?;
    let log_counters = Arc::new(LogCounters::default());
    let parts = EngineParts {
        cache: cache.clone(),
        log_store: Arc::new(MeteredLog::new(ledger.store, log_counters.clone())),
        clock: clock.clone(),
        entropy: entropy.clone(),
        workers: workers.clone(),
        options: engine_options(settings, role)?,
    };
    let engine = Engine::open(parts).await.context("cannot open the ledger")?;
    Ok(Opened {
        engine,
        clock,
        entropy,
        workers,
        cache,
        log_counters,
        unflushed: open_unflushed(settings, role)?,
        uncollected: open_uncollected(settings, role)?,
        lent: ledger.lent,
    })
}

/// For the server, which has the data directory to itself by now.
fn open_unflushed(settings: &Settings, role: Role) -> anyhow::Result<Unflushed> {
    if role == Role::Command {
        return Ok(Unflushed::default());
    }
    let path = settings.data.join(LEDGER_DIRECTORY).join(UNFLUSHED_FILE);
    let shown = path.display().to_string();
    Unflushed::open(path).with_context(|| format!("cannot open '{shown}'"))
}

/// Likewise.
fn open_uncollected(settings: &Settings, role: Role) -> anyhow::Result<Uncollected> {
    if role == Role::Command {
        return Ok(Uncollected::default());
    }
    let path = settings.data.join(LEDGER_DIRECTORY).join(UNCOLLECTED_FILE);
    let shown = path.display().to_string();
    Uncollected::open(path).with_context(|| format!("cannot open '{shown}'"))
}

fn open_cache(settings: &Settings, bucket: Bucket, role: Role) -> anyhow::Result<BlockCache> {
    let disk_bytes = settings.disk_cache_bytes_max.0;
    // The directory belongs to one process.
    let on_disk = disk_bytes > 0 && role == Role::Server;
    let options = CacheOptions {
        memory_bytes_max: settings.cache_bytes_max.0,
        disk: (on_disk && !bucket.is_local()).then(|| (settings.data.join(CACHE_DIRECTORY), disk_bytes)),
        ..CacheOptions::default()
    };
    BlockCache::new(bucket, options).context("cannot open the cache of blocks")
}

/// Limits that together with the caches keep to the memory that the settings allow.
fn engine_options(settings: &Settings, role: Role) -> anyhow::Result<EngineOptions> {
    let spool = settings.data.join(SPOOL_DIRECTORY);
    std::fs::create_dir_all(&spool).with_context(|| format!("cannot make '{}'", spool.display()))?;
    let pack_bytes_max = settings.push_bytes_max.0;
    let threads = ReceiveOptions::default().threads.clamp(1, PUSH_THREADS_MAX);
    let receive = ReceiveOptions {
        pack_bytes_max: (pack_bytes_max > 0).then_some(pack_bytes_max),
        spool_memory_bytes_max: PUSH_SPOOL_BYTES_MAX,
        base_bytes_max: PUSH_BASE_BYTES_MAX,
        held_object_bytes_max: (PUSH_HELD_BYTES_MAX / threads) as u64,
        threads,
        structure_bytes_max: settings.push_memory_bytes_max.0 / STRUCTURE_SHARE,
        spool_directory: spool,
        ..ReceiveOptions::default()
    };
    Ok(EngineOptions {
        read_ahead_bytes_max: FETCH_READ_AHEAD_BYTES_MAX,
        compact_memory_bytes_max: usize::try_from(settings.compact_memory_bytes_max.0).unwrap_or(usize::MAX),
        receive,
        grace: Duration::from_secs(settings.collect_grace_seconds),
        answers: answers_options(settings, role),
        settings: settings.git.0.clone(),
        ..EngineOptions::default()
    })
}

/// Like the cache's, it belongs to one process.
fn answers_options(settings: &Settings, role: Role) -> Option<AnswersOptions> {
    let bytes_max = settings.answers_cache_bytes_max.0;
    (bytes_max > 0 && role == Role::Server)
        .then(|| AnswersOptions::new(settings.data.join(ANSWERS_DIRECTORY), bytes_max))
}

/// Opens the bucket alone.
pub fn open_bucket(settings: &Settings) -> anyhow::Result<Bucket> {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let options = BucketOptions {
        endpoint: given(&settings.bucket_endpoint),
        region: given(&settings.bucket_region),
        access_key_id: given(&settings.bucket_access_key_id),
        secret_access_key: given(&settings.bucket_secret_access_key.0),
        allow_http: settings.bucket_allow_http,
        ..BucketOptions::default()
    };
    Bucket::open(&settings.bucket, &options).with_context(|| format!("cannot open the bucket '{}'", settings.bucket))
}

/// Refuses a bucket that does not keep what it was given: better no start than a lost push.
async fn check_bucket(bucket: &Bucket, entropy: &Entropy) -> anyhow::Result<()> {
    let report = bucket.probe_for_layers(entropy).await;
    if !report.safe_for_layers() {
        bail!("the bucket cannot be trusted with repositories (see 'cuesta doctor'):\n{report}");
    }
    Ok(())
}

/// The ledger's store, lent at the socket beside it until this is dropped.
pub struct Lent(JoinHandle<()>);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn open_ledger(settings: &Settings, role: Role, workers: &Workers) -> anyhow::Result<Ledger> {
    let directory = settings.data.join(LEDGER_DIRECTORY);
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot make '{}'", directory.display()))?;
    let socket = Socket::of(&directory)?;
    match role {
        Role::Server => own(&directory, workers).await.map(|store| Ledger {
            lent: Some(lend(socket, store.clone())),
            store,
        }),
        Role::Command => borrow_or_own(&directory, &socket, workers)
            .await
            .map(|store| Ledger { lent: None, store }),
    }
}

struct Ledger {
    store: Arc<dyn LogStore>,
    lent: Option<Lent>,
}

async fn own(directory: &Path, workers: &Workers) -> anyhow::Result<Arc<dyn LogStore>> {
    match open_embedded(directory, workers).await {
        Ok(store) => Ok(store),
        Err(LedgerError::Locked { path }) => bail!("another process serves this data directory: '{path}' is in use"),
        Err(error) => Err(error).context("cannot open the ledger"),
    }
}

async fn open_embedded(directory: &Path, workers: &Workers) -> Result<Arc<dyn LogStore>, LedgerError> {
    let (path, for_store) = (directory.join(LEDGER_FILE), workers.clone());
    let options = EmbeddedOptions {
        cache_bytes_max: LEDGER_CACHE_BYTES_MAX,
    };
    // After a crash this reads the whole file.
    let opened = workers
        .run(move || EmbeddedStore::open(&path, options, for_store))
        .await?;
    Ok(Arc::new(opened))
}

fn lend(socket: Socket, store: Arc<dyn LogStore>) -> Lent {
    Lent(tokio::spawn(async move {
        if let Err(error) = remote::serve(socket.path(), store, ServerOptions::default()).await {
            tracing::warn!(error = ?error.to_string(), "commands cannot reach this server's ledger");
        }
    }))
}

/// The socket's path, short enough for the operating system.
struct Socket {
    path: PathBuf,
    /// Keeps the short path true.
    _directory: Option<std::fs::File>,
}

impl Socket {
    /// A method, so that whoever uses the path holds the directory too.
    fn path(&self) -> &Path {
        &self.path
    }

    fn of(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join(LEDGER_SOCKET);
        if path.as_os_str().len() <= SOCKET_PATH_LEN_MAX {
            return Ok(Self { path, _directory: None });
        }
        let opened =
            std::fs::File::open(directory).with_context(|| format!("cannot open '{}'", directory.display()))?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd())).join(LEDGER_SOCKET);
        Ok(Self {
            path,
            _directory: Some(opened),
        })
    }
}

/// The running server's store, or else the file itself. A server that is about to start or to end has neither for a moment.
async fn borrow_or_own(directory: &Path, socket: &Socket, workers: &Workers) -> anyhow::Result<Arc<dyn LogStore>> {
    let mut attempts_left = BORROW_ATTEMPTS_MAX;
    loop {
        if let Ok(store) = RemoteStore::connect(socket.path()).await {
            return Ok(Arc::new(store));
        }
        match open_embedded(directory, workers).await {
            Err(LedgerError::Locked { .. }) if attempts_left > 0 => {
                attempts_left -= 1;
                tokio::time::sleep(BORROW_PAUSE).await;
            }
            opened => return opened.context("cannot open the ledger"),
        }
    }
}
