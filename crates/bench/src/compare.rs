//! Cuesta beside `git http-backend`, in one run, with one client: push, clone, fetch and ls-remote of a real repository.
//!
//! Runs of the two servers are interleaved and each figure is the median of its runs, because wall time on a shared
//! machine drifts; CPU is each server's own, children included.

use crate::load::{self, Operation, Plan, Shape};
use crate::process;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CUESTA: &str = "cuesta";
const PUSH: &str = "push --mirror";
/// How often operations of some milliseconds are repeated in one run.
const CHEAP_REPEATS: u32 = 30;
/// Who uses a repository that is to be aged, and how many operations a second they make together.
const AGED_AGENTS: usize = 8;
const AGED_RATE: f64 = 10.0;
/// Where stock git keeps the repository.
const STOCK_NAME: &str = "bench.git";
/// Where cuesta does.
pub(crate) const CUESTA_NAME: &str = "bench/bench";

/// What to compare.
#[derive(Clone, Debug)]
pub struct Options {
    /// The bare repository that is pushed, cloned and fetched.
    pub repository: PathBuf,
    /// The `cuesta` binary.
    pub cuesta: PathBuf,
    /// More arguments for `cuesta serve`, such as `--bucket URL`.
    pub serve_arguments: Vec<String>,
    /// Runs of each cheap operation; dear ones take a third of them.
    pub runs: usize,
    /// Whether both may put their house in order after the push, as a well-kept host does at night: stock git repacks with
    /// bitmaps and a commit-graph, cuesta compacts.
    pub repack: bool,
    /// Whether cuesta may do so alone. It does by itself once nobody has pushed for a minute.
    pub compact: bool,
    /// For how long agents push to cuesta, fetch from it and clone it before anything else is measured. Stock git then gets
    /// the same refs, and cuesta's layers are as background work left them.
    pub aged: Option<Duration>,
    /// Which operations, by a part of their names; a push comes first in any case.
    pub only: String,
    /// How far behind the fetching clients are, in commits of the first-parent line.
    pub behind: Vec<u32>,
    /// Where servers and clients keep their files.
    pub scratch: PathBuf,
}

/// One server under test.
pub(crate) struct Server {
    name: &'static str,
    pub(crate) child: Child,
    pub(crate) url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What one run of one operation cost.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    wall: Duration,
    client_cpu: Duration,
    server_cpu: Duration,
    server_peak_bytes: u64,
    bucket_requests: u64,
}

/// Runs every operation on both servers and prints a Markdown table.
pub fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.scratch)?;
    let servers = [start_stock(options)?, start_cuesta(options)?];
    println!("| operation | server | wall s | client CPU s | server CPU s | peak MiB | bucket requests |");
    println!("|---|---|---|---|---|---|---|");
    let dear = options.runs.div_ceil(3);
    let measure = |label: &str, runs, repeats, operation: &dyn Fn(&str, usize) -> Result<()>| {
        if label == PUSH || label.contains(&options.only) {
            measure(&servers, label, runs, repeats, operation)?;
        }
        anyhow::Ok(())
    };
    measure(PUSH, 1, 1, &|url, _| push(&options.repository, url))?;
    measure("ls-remote", options.runs, CHEAP_REPEATS, &|url, _| {
        git(&["ls-remote", "--quiet", url])
    })?;
    set_up(options)?;
    if options.repack || options.compact {
        cuesta_repo(options, &["compact", "--quiet", CUESTA_NAME])?;
    }
    if let Some(duration) = options.aged {
        age(options, &servers[1], duration)?;
    }
    if options.repack {
        repack_stock(options)?;
    }
    for how in [
        &["--mirror"][..],
        &["--bare"],
        &["--no-checkout", "--filter=blob:none"],
        &["--no-checkout", "--filter=tree:0"],
        &["--filter=blob:none"],
    ] {
        let label = format!("clone {}", how.join(" "));
        measure(&label, dear, 1, &|url, run| clone(options, url, how, run))?;
    }
    // The first of its kind, and again: servers may remember what they built.
    let shallow = &["--no-checkout", "--depth=1"];
    for (label, runs) in [("clone --depth=1, first", 1), ("clone --depth=1, again", options.runs)] {
        measure(label, runs, 1, &|url, run| clone(options, url, shallow, run))?;
    }
    let tip = resolve(&options.repository, "HEAD")?;
    for behind in &options.behind {
        let label = format!("fetch, {behind} behind");
        if !label.contains(&options.only) {
            continue;
        }
        let client = fetch_client(options, &tip, *behind)?;
        // CPU is told in hundredths of a second, and a fetch of a few commits takes a fraction of one.
        let repeats = if *behind <= 10 { CHEAP_REPEATS } else { 3 };
        measure(&label, options.runs, repeats, &|url, run| {
            fetch(options, &client, url, &tip, run)
        })?;
    }
    Ok(())
}

/// Interleaves `runs` of an operation over the servers; each run repeats it `repeats` times, since CPU is told in
/// hundredths of a second.
fn measure(
    servers: &[Server],
    label: &str,
    runs: usize,
    repeats: u32,
    operation: impl Fn(&str, usize) -> Result<()>,
) -> Result<()> {
    let mut costs = vec![Vec::new(); servers.len()];
    for run in 0..runs {
        for (server, costs) in servers.iter().zip(&mut costs) {
            costs.push(cost_of(server, repeats, |repeat| {
                operation(&server.url, run * 1000 + repeat)
            })?);
        }
    }
    for (server, costs) in servers.iter().zip(&costs) {
        print_row(label, server.name, costs);
    }
    Ok(())
}

// Benches measure wall time; nothing here is simulated.
#[allow(clippy::disallowed_methods)]
fn cost_of(server: &Server, repeats: u32, operation: impl Fn(usize) -> Result<()>) -> Result<Cost> {
    let pid = server.child.id();
    process::reset_peak(pid)?;
    let before = (process::cpu(pid)?, process::children_cpu()?, bucket_requests(server)?);
    let start = Instant::now();
    for repeat in 0..repeats {
        operation(repeat as usize).with_context(|| format!("on {}", server.name))?;
    }
    let wall = start.elapsed();
    Ok(Cost {
        wall: wall / repeats,
        server_cpu: (process::cpu(pid)? - before.0) / repeats,
        client_cpu: (process::children_cpu()? - before.1) / repeats,
        server_peak_bytes: process::peak_resident_bytes(pid)?,
        bucket_requests: (bucket_requests(server)? - before.2) / u64::from(repeats),
    })
}

fn print_row(label: &str, server: &str, costs: &[Cost]) {
    let seconds = |of: fn(&Cost) -> Duration| median(costs.iter().map(|cost| of(cost).as_secs_f64()).collect());
    println!(
        "| {label} | {server} | {:.3} | {:.3} | {:.4} | {} | {} |",
        seconds(|cost| cost.wall),
        seconds(|cost| cost.client_cpu),
        seconds(|cost| cost.server_cpu),
        peak_mib(server, costs),
        costs.iter().map(|cost| cost.bucket_requests).max().unwrap_or(0),
    );
}

/// The server's peak; stock git's work is done by processes that are gone by then, so its own says nothing.
fn peak_mib(server: &str, costs: &[Cost]) -> String {
    let peak = costs.iter().map(|cost| cost.server_peak_bytes >> 20).max().unwrap_or(0);
    if server == CUESTA {
        peak.to_string()
    } else {
        "-".to_owned()
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Starts this very program as the stock server, in a process of its own so that its CPU can be told.
fn start_stock(options: &Options) -> Result<Server> {
    let root = options.scratch.join("stock");
    std::fs::create_dir_all(&root)?;
    crate::cgi::init_bare(&root, STOCK_NAME, "sha1")?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("http-backend")
        .arg("--root")
        .arg(&root)
        .args(["--listen", "127.0.0.1:0"]);
    start("git http-backend", command, &format!("/{STOCK_NAME}"))
}

pub(crate) fn start_cuesta(options: &Options) -> Result<Server> {
    let mut command = Command::new(&options.cuesta);
    command
        .arg("serve")
        .arg("--data")
        .arg(cuesta_data(options))
        .args(["--listen", "127.0.0.1:0"]);
    command.args(&options.serve_arguments);
    start(CUESTA, command, &format!("/{CUESTA_NAME}.git"))
}

/// Starts a server and reads its address from the first line that has one.
pub(crate) fn start(name: &'static str, mut command: Command, path: &str) -> Result<Server> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
    while let Some(line) = lines.next().transpose()? {
        if let Some((_, rest)) = line.split_once("http://") {
            let address = rest
                .split(|c: char| c.is_whitespace() || c == '/')
                .next()
                .unwrap_or_default();
            let url = format!("http://{address}{path}");
            std::thread::spawn(move || lines.for_each(drop));
            return Ok(Server { name, child, url });
        }
    }
    bail!("{name} ended without telling its address");
}

/// Requests to the bucket so far.
fn bucket_requests(server: &Server) -> Result<u64> {
    bucket_metric(server, "cuesta_bucket_requests_total")
}

/// The sum of a counter's samples in `/metrics`; 0 for a server that has none.
pub(crate) fn bucket_metric(server: &Server, name: &str) -> Result<u64> {
    if server.name != CUESTA {
        return Ok(0);
    }
    let address = server
        .url
        .trim_start_matches("http://")
        .split('/')
        .next()
        .unwrap_or_default();
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let counts = lines.filter(|line| line.starts_with(name));
    Ok(counts
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum::<f64>() as u64)
}

fn git(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("git");
    command
        .args([
            "-c",
            "protocol.version=2",
            "-c",
            "gc.auto=0",
            "-c",
            "maintenance.auto=false",
        ])
        .args(arguments);
    let status = command.stdout(Stdio::null()).status()?;
    ensure!(status.success(), "git {} failed", arguments.join(" "));
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path is not text")
}

pub(crate) fn resolve(repository: &Path, revision: &str) -> Result<String> {
    output(Command::new("git").args(["-C", text(repository)?, "rev-parse", "--verify", revision]))
}

pub(crate) fn push(repository: &Path, url: &str) -> Result<()> {
    git(&["-C", text(repository)?, "push", "--quiet", "--mirror", url])
}

/// Lets clients leave objects out.
const FILTERS: &str = "uploadpack.allowFilter";

/// Both servers serve partial clones, and their `HEAD` is the source's.
fn set_up(options: &Options) -> Result<()> {
    let stock = stock_repository(options);
    let stock = text(&stock)?;
    git(&["-C", stock, "config", FILTERS, "true"])?;
    git(&["-C", stock, "symbolic-ref", "HEAD", &head(options)?])?;
    set_up_cuesta(options)
}

/// Cuesta's part of that.
pub(crate) fn set_up_cuesta(options: &Options) -> Result<()> {
    cuesta_repo(options, &["config", CUESTA_NAME, FILTERS, "true"])?;
    cuesta_repo(options, &["set-head", CUESTA_NAME, &head(options)?])
}

/// The branch that the source's `HEAD` names.
fn head(options: &Options) -> Result<String> {
    let source = text(&options.repository)?;
    output(Command::new("git").args(["-C", source, "symbolic-ref", "HEAD"]))
}

/// Runs `cuesta repo` beside the server.
pub(crate) fn cuesta_repo(options: &Options, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(&options.cuesta);
    command
        .arg("--data")
        .arg(cuesta_data(options))
        .arg("repo")
        .args(arguments);
    command.args(&options.serve_arguments);
    output(&mut command).map(drop)
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "{command:?} failed");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Uses cuesta's repository as its users do, and gives stock git what it holds then.
fn age(options: &Options, cuesta: &Server, duration: Duration) -> Result<()> {
    load::run(&load::Options {
        servers: vec![load::Server {
            name: CUESTA.to_owned(),
            url: cuesta.url.clone(),
            pid: Some(cuesta.child.id()),
            directory: Some(cuesta_data(options)),
            probe: None,
        }],
        plan: Plan::Mixed(vec![
            (Operation::Push, 16),
            (Operation::Fetch, 8),
            (Operation::Clone, 1),
        ]),
        levels: vec![AGED_AGENTS],
        rounds: 1,
        warmup: Duration::ZERO,
        duration,
        shape: Shape {
            files: 1..=4,
            file_bytes: 2048,
        },
        base: Some(options.repository.clone()),
        branches: 0,
        rate: Some(AGED_RATE),
        operations_per_connection: 0,
        preload: 0,
        authorities: None,
        fsck: false,
    })?;
    let stock = stock_repository(options);
    git(&["-C", text(&stock)?, "fetch", "--quiet", &cuesta.url, "+refs/*:refs/*"])
}

fn repack_stock(options: &Options) -> Result<()> {
    let repository = stock_repository(options);
    let repository = text(&repository)?;
    git(&["-C", repository, "pack-refs", "--all"])?;
    git(&["-C", repository, "repack", "-adbq"])?;
    git(&[
        "-C",
        repository,
        "commit-graph",
        "write",
        "--reachable",
        "--no-progress",
    ])
}

fn stock_repository(options: &Options) -> PathBuf {
    options.scratch.join("stock").join(STOCK_NAME)
}

pub(crate) fn cuesta_data(options: &Options) -> PathBuf {
    options.scratch.join(CUESTA)
}

pub(crate) fn clone(options: &Options, url: &str, how: &[&str], run: usize) -> Result<()> {
    let target = options.scratch.join(format!("clone-{run}"));
    let cloned = git(&[&["clone", "--quiet"], how, &[url, text(&target)?]].concat());
    std::fs::remove_dir_all(&target).context("cannot remove the clone")?;
    cloned
}

/// A bare repository with the history of the commit so far behind the tip.
pub(crate) fn fetch_client(options: &Options, tip: &str, behind: u32) -> Result<PathBuf> {
    let client = crate::cgi::init_bare(&options.scratch, &format!("behind-{behind}.git"), "sha1")?;
    let base = resolve(&options.repository, &format!("{tip}~{behind}"))?;
    let mut pack = Command::new("git")
        .arg("-C")
        .arg(&options.repository)
        .args(["pack-objects", "--revs", "--stdout", "--quiet", "--delta-base-offset"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    writeln!(pack.stdin.take().context("no stdin")?, "{base}")?;
    let stdout = pack.stdout.take().context("no stdout")?;
    let index = Command::new("git")
        .arg("-C")
        .arg(&client)
        .args(["index-pack", "--stdin"])
        .stdin(stdout)
        .output()?;
    ensure!(
        pack.wait()?.success() && index.status.success(),
        "cannot make a client {behind} commits behind"
    );
    git(&["-C", text(&client)?, "update-ref", "refs/heads/main", &base])?;
    Ok(client)
}

/// Fetches the tip into a new repository that borrows the client's objects, so that every run starts equally far behind.
pub(crate) fn fetch(options: &Options, client: &Path, url: &str, tip: &str, run: usize) -> Result<()> {
    let target = crate::cgi::init_bare(&options.scratch, &format!("fetch-{run}.git"), "sha1")?;
    std::fs::write(
        target.join("objects/info/alternates"),
        format!("{}/objects\n", client.display()),
    )?;
    std::fs::copy(client.join("refs/heads/main"), target.join("refs/heads/main"))?;
    let refspec = format!("+{tip}:refs/heads/new");
    let fetched = git(&["-C", text(&target)?, "fetch", "--quiet", "--no-tags", url, &refspec]);
    std::fs::remove_dir_all(&target).context("cannot remove the client")?;
    fetched
}
