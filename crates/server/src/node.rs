//! A node: the settings, the engine, and what all requests share.

use crate::access::Gate;
use crate::config::Settings;
use crate::metered_log::LogCounters;
use crate::metrics::{Metrics, Page, resident_bytes};
use crate::ref_rope::RopeCache;
use crate::service::PushMemory;
use crate::service::dumb::DumbMemory;
use crate::service::request_memory::RequestMemory;
use crate::storage::{self, Lent};
use crate::uncollected::Uncollected;
use crate::unflushed::Unflushed;
use crate::uri_signer::UriSigner;
use cuesta_engine::Engine;
use cuesta_store::{BlockCache, Clock, Entropy, Operation, Tally, Workers};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Semaphore;

/// One figure of a tally.
type OneFigure = fn(&Tally) -> u64;

/// What all requests of one process share.
pub struct Node {
    /// The effective settings.
    pub settings: Settings,
    /// All repositories.
    pub engine: Engine,
    /// Who may do what.
    pub gate: Gate,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Tells the time.
    pub clock: Clock,
    /// Names requests.
    pub entropy: Entropy,
    /// Where long work runs.
    pub workers: Workers,
    /// Packs, archives and files of dumb clients that may be sent at once.
    pub fetches: Arc<Semaphore>,
    /// Memory that pushes may take.
    pub push_memory: PushMemory,
    /// Memory that requests which are being read may take.
    pub request_memory: Arc<RequestMemory>,
    /// Refs as the wire shows them.
    pub ref_ropes: RopeCache,
    /// What is remembered for dumb clients.
    pub dumb: DumbMemory,
    /// Repositories that the next round of background work looks at.
    pub unflushed: Unflushed,
    /// Repositories that have payloads to delete, and when.
    pub uncollected: Uncollected,
    /// Signs the URIs of payloads.
    pub uris: UriSigner,
    cache: BlockCache,
    log_counters: Arc<LogCounters>,
    draining: AtomicBool,
    _lent: Option<Lent>,
}

impl Node {
    /// A node over opened storage.
    pub fn new(settings: Settings, storage: storage::Opened) -> Arc<Self> {
        let uris = UriSigner::new(uri_key(&settings, &storage.entropy), settings.uri_seconds);
        Arc::new(Self {
            gate: Gate::new(&settings, storage.engine.clone(), storage.clock.clone()),
            uris,
            engine: storage.engine,
            metrics: Arc::default(),
            clock: storage.clock,
            entropy: storage.entropy,
            workers: storage.workers,
            fetches: Arc::new(Semaphore::new(settings.fetches_max)),
            push_memory: PushMemory::new(settings.push_memory_bytes_max.0),
            request_memory: Arc::new(RequestMemory::new(settings.request_memory_bytes_max.0)),
            ref_ropes: RopeCache::new(settings.refs_cache_bytes_max.0, Arc::new(settings.git.0.clone())),
            dumb: DumbMemory::default(),
            unflushed: storage.unflushed,
            uncollected: storage.uncollected,
            draining: AtomicBool::new(false),
            cache: storage.cache,
            log_counters: storage.log_counters,
            _lent: storage.lent,
            settings,
        })
    }

    /// Whether requests are welcome, or why not.
    pub fn ready(&self) -> Result<(), &'static str> {
        if self.draining.load(Ordering::Relaxed) {
            Err("shutting down")
        } else {
            Ok(())
        }
    }

    /// From now on the node is not ready: load balancers are to look elsewhere.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Everything that is counted, in Prometheus' text format.
    pub fn metrics_page(&self) -> String {
        let mut page = Page::default();
        self.metrics.render(&mut page);
        self.render_bucket(&mut page);
        self.render_ledger(&mut page);
        self.render_cache(&mut page);
        self.render_answers(&mut page);
        let (hits, misses) = self.ref_ropes.hits_and_misses();
        page.value(
            "cuesta_refs_cache_hits_total",
            "counter",
            "answers about refs made from what was in memory",
            hits,
        );
        page.value(
            "cuesta_refs_cache_misses_total",
            "counter",
            "answers about refs for which all refs were written",
            misses,
        );
        page.value(
            "cuesta_unflushed_repositories",
            "gauge",
            "repositories that wait for background work",
            self.unflushed.len(),
        );
        page.value(
            "cuesta_uncollected_repositories",
            "gauge",
            "repositories with payloads that nothing needs once their grace period is over",
            self.uncollected.len(),
        );
        if let Some(bytes) = resident_bytes() {
            page.value("process_resident_memory_bytes", "gauge", "resident memory", bytes);
        }
        page.finish()
    }

    fn render_ledger(&self, page: &mut Page) {
        let tally = self.log_counters.tally();
        let families = [
            (
                "cuesta_ledger_appends_total",
                "entries appended; each is a group of pushes",
                tally.appends,
            ),
            (
                "cuesta_ledger_append_bytes_total",
                "bytes of entries appended",
                tally.appended_bytes,
            ),
            (
                "cuesta_ledger_append_failures_total",
                "appends overtaken or failed",
                tally.append_failures,
            ),
            (
                "cuesta_ledger_end_requests_total",
                "times the end of a log was asked for",
                tally.ends,
            ),
        ];
        for (name, help, value) in families {
            page.value(name, "counter", help, value);
        }
    }

    fn render_cache(&self, page: &mut Page) {
        let counters = self.cache.counters();
        page.family(
            "cuesta_cache_reads_total",
            "counter",
            "reads of blocks of the bucket, by where they were found",
        );
        let sources = [
            ("memory", counters.memory_hits),
            ("disk", counters.disk_hits),
            ("shared", counters.shared),
            ("bucket", counters.misses),
        ];
        for (source, count) in sources {
            page.sample(&[("source", source)], count);
        }
        page.value(
            "cuesta_cache_corrupt_blocks_total",
            "counter",
            "blocks on disk that were damaged",
            counters.corrupt,
        );
    }

    fn render_answers(&self, page: &mut Page) {
        let Some(counters) = self.engine.answer_counters() else {
            return;
        };
        page.family(
            "cuesta_answers_total",
            "counter",
            "packs that were not made for one client alone, by where they came from",
        );
        let sources = [
            ("kept", counters.kept),
            ("recalled", counters.recalled),
            ("joined", counters.joined),
            ("made", counters.made),
        ];
        for (source, count) in sources {
            page.sample(&[("source", source)], count);
        }
        let files = counters.files;
        let families = [
            (
                "cuesta_answers_reused_entries_total",
                "counter",
                "objects of kept packs that an earlier one had",
                counters.reused,
            ),
            ("cuesta_answers_kept", "gauge", "packs that are kept", files.files),
            (
                "cuesta_answers_kept_bytes",
                "gauge",
                "disk that kept packs take",
                files.bytes,
            ),
            (
                "cuesta_answers_evicted_total",
                "counter",
                "kept packs removed to make room",
                files.evicted,
            ),
            (
                "cuesta_answers_corrupt_total",
                "counter",
                "kept packs that were damaged",
                files.corrupt,
            ),
        ];
        for (name, kind, help, value) in families {
            page.value(name, kind, help, value);
        }
    }

    fn render_bucket(&self, page: &mut Page) {
        let counters = self.engine.bucket().counters();
        let families: [(&str, &str, OneFigure); 4] = [
            ("cuesta_bucket_requests_total", "requests to the bucket", |tally| {
                tally.requests
            }),
            (
                "cuesta_bucket_errors_total",
                "requests to the bucket that failed",
                |tally| tally.errors,
            ),
            (
                "cuesta_bucket_received_bytes_total",
                "payload bytes from the bucket",
                |tally| tally.bytes_in,
            ),
            (
                "cuesta_bucket_sent_bytes_total",
                "payload bytes to the bucket",
                |tally| tally.bytes_out,
            ),
        ];
        for (name, help, value) in families {
            page.family(name, "counter", help);
            for operation in Operation::ALL {
                page.sample(&[("operation", operation.name())], value(&counters.of(operation)));
            }
        }
    }
}

/// The key that the settings give, or one of this process alone.
fn uri_key(settings: &Settings, entropy: &Entropy) -> Vec<u8> {
    if settings.uri_key.0.is_empty() {
        return [entropy.bits128(), entropy.bits128()].map(u128::to_le_bytes).concat();
    }
    settings.uri_key.0.clone().into_bytes()
}
