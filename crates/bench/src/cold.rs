//! What an empty disk costs: clones and fetches from a bucket behind a slow link, by a node that has served them before and by
//! one that was just started without a cache.

use crate::compare::{self, CUESTA_NAME, Server};
use crate::slow_link::Link;
use anyhow::{Context, Result, ensure};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The bare repository that is pushed, cloned and fetched.
    pub repository: PathBuf,
    /// The `cuesta` binary.
    pub cuesta: PathBuf,
    /// The bucket's URL. Its keys are taken from the environment, as `cuesta` does.
    pub bucket: String,
    /// The server that has the bucket.
    pub endpoint: SocketAddr,
    /// What lies between it and the node.
    pub link: Link,
    /// Whether to print what the last cold run of each operation asked the bucket for, and when.
    pub list: bool,
    /// Runs of each operation, warm and cold in turn.
    pub runs: usize,
    /// Where the node and the clients keep their files.
    pub scratch: PathBuf,
}

/// How far behind the fetching client is, in commits of the first-parent line.
const BEHIND: u32 = 10;

/// Pushes and compacts, then runs each operation on a warm node and a cold one, and prints a Markdown table.
pub fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.scratch)?;
    let endpoint = options.link.start(options.endpoint)?;
    let shared = compare::Options {
        repository: options.repository.clone(),
        cuesta: options.cuesta.clone(),
        serve_arguments: serve_arguments(options, endpoint),
        runs: options.runs,
        repack: false,
        compact: true,
        aged: None,
        only: String::new(),
        behind: vec![BEHIND],
        scratch: options.scratch.clone(),
    };
    let node = compare::start_cuesta(&shared)?;
    compare::push(&options.repository, &node.url)?;
    compare::set_up_cuesta(&shared)?;
    compare::cuesta_repo(&shared, &["compact", "--quiet", CUESTA_NAME])?;
    stop(node)?;
    let tip = compare::resolve(&options.repository, "HEAD")?;
    let client = compare::fetch_client(&shared, &tip, BEHIND)?;

    println!("| operation | warm s | cold s | difference s | requests, cold | MiB, cold |");
    println!("|---|---|---|---|---|---|");
    for how in [&["--mirror"][..], &["--bare"], &["--no-checkout", "--depth=1"]] {
        let label = format!("clone {}", how.join(" "));
        measure(options, &shared, &label, |url, run| {
            compare::clone(&shared, url, how, run)
        })?;
    }
    let label = format!("fetch, {BEHIND} behind");
    measure(options, &shared, &label, |url, run| {
        compare::fetch(&shared, &client, url, &tip, run)
    })
}

const REQUESTS: &str = "cuesta_bucket_requests_total";
const BYTES: &str = "cuesta_bucket_received_bytes_total";

fn serve_arguments(options: &Options, endpoint: SocketAddr) -> Vec<String> {
    let set = |setting: String| ["--set".to_owned(), setting];
    let bucket = ["--bucket".to_owned(), options.bucket.clone()];
    let endpoint = set(format!("bucket_endpoint=http://{endpoint}"));
    let plain = set("bucket_allow_http=true".to_owned());
    bucket.into_iter().chain(endpoint).chain(plain).collect()
}

impl Options {
    fn noted(&self) -> MutexGuard<'_, Vec<(Instant, String)>> {
        self.link.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line for each request noted: milliseconds since the first, and what was asked for.
    fn listing(&self) -> String {
        let noted = self.noted();
        let first = noted.first().map(|(when, _)| *when);
        let since = |when: &Instant| first.map_or(0, |first| (*when - first).as_millis());
        noted
            .iter()
            .map(|(when, what)| format!("{:6} {what}\n", since(when)))
            .collect()
    }
}

/// What one run took.
struct Run {
    wall: Duration,
    requests: u64,
    bytes: u64,
}

fn measure(
    options: &Options,
    shared: &compare::Options,
    label: &str,
    operation: impl Fn(&str, usize) -> Result<()>,
) -> Result<()> {
    let (mut cold, mut warm, mut listing) = (Vec::new(), Vec::new(), String::new());
    for run in 0..options.runs {
        let cache = compare::cuesta_data(shared).join("cache");
        std::fs::remove_dir_all(&cache).with_context(|| format!("cannot empty '{}'", cache.display()))?;
        let node = compare::start_cuesta(shared)?;
        options.noted().clear();
        cold.push(timed(&node, || operation(&node.url, 2 * run))?);
        listing = options.listing();
        warm.push(timed(&node, || operation(&node.url, 2 * run + 1))?);
        stop(node)?;
    }
    let seconds = |runs: &[Run]| compare::median(runs.iter().map(|run| run.wall.as_secs_f64()).collect());
    println!(
        "| {label} | {:.3} | {:.3} | {:.3} | {} | {:.1} |",
        seconds(&warm),
        seconds(&cold),
        seconds(&cold) - seconds(&warm),
        cold.iter().map(|run| run.requests).max().unwrap_or(0),
        cold.iter().map(|run| run.bytes).max().unwrap_or(0) as f64 / f64::from(1 << 20),
    );
    if options.list {
        eprint!("{listing}");
    }
    Ok(())
}

fn timed(node: &Server, operation: impl Fn() -> Result<()>) -> Result<Run> {
    let metric = |name: &str| compare::bucket_metric(node, name);
    let before = (metric(REQUESTS)?, metric(BYTES)?);
    let start = crate::now();
    operation()?;
    let wall = start.elapsed();
    Ok(Run {
        wall,
        requests: metric(REQUESTS)? - before.0,
        bytes: metric(BYTES)? - before.1,
    })
}

/// Ends a node as an operator does, so that it leaves nothing undone.
fn stop(mut node: Server) -> Result<()> {
    let signalled = Command::new("kill").arg(node.child.id().to_string()).status()?;
    ensure!(
        signalled.success() && node.child.wait()?.success(),
        "cuesta did not stop"
    );
    Ok(())
}
