//! One life of a node: an engine over the shared bucket and log store, reached through a link that can be cut.

use crate::bucket::{FaultyBucket, SharedBucket};
use crate::chaos::{Chaos, Link};
use crate::forge::FORMAT;
use crate::log_store::{FaultyLog, SharedLogs};
use cuesta_engine::{Engine, EngineError, EngineOptions, EngineParts, ErrorKind, Repository, RepositoryName};
use cuesta_store::{BlockCache, Bucket, BucketOptions, CacheOptions, Clock, Entropy, Workers};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// What outlives every node.
#[derive(Clone)]
pub struct Shared {
    /// The bucket's payloads.
    pub bucket: Arc<SharedBucket>,
    /// The logs.
    pub logs: Arc<SharedLogs>,
    /// The plan of faults.
    pub chaos: Chaos,
    /// Ids of all nodes.
    pub entropy: Entropy,
    /// The simulated time; it also ticks when it is read.
    pub clock: Clock,
    /// Layers up to this size travel in the log.
    pub inline_bytes_max: usize,
    /// Bytes of a part of a multipart upload.
    pub part_bytes: usize,
    /// Bytes of cached blocks in memory.
    pub cache_bytes: u64,
    /// How long what left is kept.
    pub grace: Duration,
}

/// How long it must be kept: no view is used for longer, freezes and outages included.
pub const GRACE: Duration = Duration::from_secs(30);

impl Shared {
    /// An empty world. To be made within its runtime.
    pub fn new(seed: u64, chaos: Chaos) -> Self {
        let (begin, last) = (tokio::time::Instant::now(), AtomicI64::new(0));
        let clock = Clock::new(move || {
            let now = 1_700_000_000_000 + i64::try_from(begin.elapsed().as_millis()).unwrap_or(i64::MAX);
            let before = last.fetch_max(now, Ordering::SeqCst);
            if before < now {
                now
            } else {
                last.fetch_add(1, Ordering::SeqCst) + 1
            }
        });
        Self {
            bucket: Arc::new(SharedBucket::new(clock.clone())),
            logs: Arc::default(),
            chaos,
            entropy: Entropy::seeded(seed),
            clock,
            inline_bytes_max: 1 << 20,
            part_bytes: 1 << 20,
            cache_bytes: 1 << 20,
            grace: GRACE,
        }
    }
}

/// One life of a node.
#[derive(Clone)]
pub struct Node {
    /// Its way to the world.
    pub link: Link,
    /// Its engine.
    pub engine: Engine,
    /// The one repository of the simulation.
    pub repository: Arc<Repository>,
}

/// The name of the repository.
fn name() -> RepositoryName {
    RepositoryName::parse("sim/sim").expect("a good name")
}

impl Node {
    /// Starts a node, cold; makes the repository if there is none.
    pub async fn start(shared: &Shared, link: Link) -> Result<Self, EngineError> {
        let store = Arc::new(FaultyBucket::new(Arc::clone(&shared.bucket), link.clone()));
        let bucket_options = BucketOptions {
            part_bytes: shared.part_bytes,
            upload_parts_max: 2,
            ..BucketOptions::default()
        };
        let cache_options = CacheOptions {
            memory_bytes_max: shared.cache_bytes,
            disk: None,
            block_bytes: 1 << 10,
            fetch_bytes_max: 4 << 10,
            fetches_max: 4,
            // Every cue in parts.
            small_bytes_max: 0,
        };
        let bucket = Bucket::from_store("simulated", store, &bucket_options);
        let mut options = EngineOptions {
            check_ids: true,
            grace: shared.grace,
            divide_bytes_min: 0,
            ..EngineOptions::default()
        };
        options.receive.threads = 1;
        options.receive.inline_bytes_max = shared.inline_bytes_max;
        let logs = FaultyLog::new(
            Arc::clone(&shared.logs),
            link.clone(),
            shared.inline_bytes_max.max(1 << 10),
        );
        let engine = Engine::open(EngineParts {
            cache: BlockCache::new(bucket, cache_options)?,
            log_store: Arc::new(logs),
            clock: shared.clock.clone(),
            entropy: shared.entropy.clone(),
            workers: Workers::Turns(tokio::runtime::Handle::current()),
            options,
        })
        .await?;
        let repository = match engine.repository(&name()).await? {
            Some(repository) => repository,
            None => match engine.create_repository(&name(), FORMAT, "sim").await {
                Err(EngineError::RepositoryExists(_)) => {
                    let found = engine.repository(&name()).await?;
                    found.ok_or(EngineError::Internal("a repository that exists cannot be found"))?
                }
                made => made?,
            },
        };
        Ok(Self {
            link,
            engine,
            repository,
        })
    }

    /// Starts a node whose calls fail by plan, again and again until it comes up.
    pub async fn start_somehow(shared: &Shared, number: u32) -> Self {
        loop {
            match Self::start(shared, Link::new(shared.chaos.clone(), number)).await {
                Ok(node) => return node,
                Err(error) => expect_outage(&error),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Starts a cold node without faults: an observer.
    pub async fn observer(shared: &Shared) -> Self {
        let node = Self::start(shared, Link::quiet(shared.chaos.clone())).await;
        node.unwrap_or_else(|error| panic!("a cold node does not come up: {error}"))
    }
}

/// Faults of the world may make things unavailable, never wrong or gone.
pub fn expect_outage(error: &EngineError) {
    assert_eq!(
        error.kind(),
        ErrorKind::Unavailable,
        "an outage became: {error} ({error:?})"
    );
}
