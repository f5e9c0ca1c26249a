//! Pushes into a repository of very many small files, beside stock git: 65,536 leaf trees two levels down, a few to hundreds
//! of blobs in each, and pushes that change one blob in each of thousands of leaves, so that they send almost every tree.
//!
//! Cuesta is restarted before each push, so that its caches are cold: what it reads from the bucket is told beside the bytes
//! of the trees that the push replaces.

mod features;

use crate::compare::{Server, bucket_metric, start};
use crate::http::{Connection, Target};
use crate::{cgi, now, process};
use anyhow::{Context, Result, ensure};
use cuesta_git::{ObjectFormat, ObjectId};
use cuesta_protocol::pktline;
use features::{Base, Features};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Blobs in all.
    pub blobs: u64,
    /// Leaf trees that pushes change, one blob in each.
    pub changed: Vec<u32>,
    /// Pushes of each size to each server.
    pub runs: u32,
    /// The `cuesta` binary.
    pub cuesta: PathBuf,
    /// Whether cuesta's caches are warm: it is not restarted before each push.
    pub warm: bool,
    /// Whether stock git takes part.
    pub stock: bool,
    /// Where servers keep their files. What an earlier run left is used again.
    pub scratch: PathBuf,
}

const REPOSITORY: &str = "bench/bench";
const STOCK_NAME: &str = "bench.git";
const BASE_REF: &str = "refs/heads/main";

/// One push's cost.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    wall: Duration,
    cpu: Duration,
    peak_bytes: u64,
    bucket_requests: u64,
    bucket_bytes: u64,
}

/// Makes the repository, pushes to it, and prints a Markdown table.
pub fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.scratch)?;
    let pack = options.scratch.join(format!("base-{}.pack", options.blobs));
    let features = Features::new(options.blobs);
    let base = features.base(&pack)?;
    eprintln!(
        "base: {} blobs, trees of {} bytes, pack of {} bytes",
        options.blobs,
        base.tree_bytes,
        std::fs::metadata(&pack)?.len()
    );
    set_up_cuesta(options, &pack, &base)?;
    if options.stock {
        set_up_stock(options, &pack, &base)?;
    }
    println!(
        "| blobs | changed | server | pack MB | old trees MB | wall s | server CPU s | peak MiB | bucket requests | bucket MB read |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let warm = options.warm.then(|| start_cuesta(options)).transpose()?;
    for changed in &options.changed {
        for run in 0..options.runs {
            // Objects that a server has are no work for it: every push brings others.
            let row = |name: &str, version: u32, server: &Server, path: &str| -> Result<()> {
                let version = std::process::id().wrapping_mul(1_000).wrapping_add(4 * run + version);
                let change = features.change(&base, *changed, version)?;
                let branch = format!("refs/heads/c{changed}-{version}");
                let cost = push(server, path, &branch, &change.tip, &change.pack)?;
                let mb = |bytes: u64| bytes as f64 / 1e6;
                println!(
                    "| {} | {changed} | {name} | {:.1} | {:.1} | {:.2} | {:.2} | {} | {} | {:.1} |",
                    options.blobs,
                    mb(change.pack.len() as u64),
                    mb(change.old_tree_bytes),
                    cost.wall.as_secs_f64(),
                    cost.cpu.as_secs_f64(),
                    cost.peak_bytes >> 20,
                    cost.bucket_requests,
                    mb(cost.bucket_bytes),
                );
                Ok(())
            };
            match &warm {
                Some(server) => row("cuesta, warm", 0, server, &format!("/{REPOSITORY}.git"))?,
                None => row(
                    "cuesta, cold",
                    0,
                    &start_cuesta(options)?,
                    &format!("/{REPOSITORY}.git"),
                )?,
            }
            if options.stock {
                for (name, version, checks) in [("git, fsckObjects", 1, "true"), ("git", 2, "false")] {
                    row(name, version, &start_stock(options, checks)?, &format!("/{STOCK_NAME}"))?;
                }
            }
        }
    }
    Ok(())
}

fn start_cuesta(options: &Options) -> Result<Server> {
    let mut command = Command::new(&options.cuesta);
    command.arg("serve").arg("--data").arg(cuesta_data(options));
    command.args(["--listen", "127.0.0.1:0", "--set", "log_level=error"]);
    start("cuesta", command, "")
}

fn cuesta_data(options: &Options) -> PathBuf {
    options.scratch.join(format!("cuesta-{}", options.blobs))
}

fn start_stock(options: &Options, checks: &str) -> Result<Server> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("http-backend").arg("--root").arg(stock_root(options));
    command.args(["--listen", "127.0.0.1:0", "--set"]);
    command.arg(format!("receive.fsckObjects={checks}"));
    start("git", command, "")
}

fn stock_root(options: &Options) -> PathBuf {
    options.scratch.join(format!("stock-{}", options.blobs))
}

fn set_up_cuesta(options: &Options, pack: &Path, base: &Base) -> Result<()> {
    if cuesta_data(options).exists() {
        return Ok(());
    }
    let server = start_cuesta(options)?;
    let path = format!("/{REPOSITORY}.git");
    let cost = push(&server, &path, BASE_REF, &base.tip, &std::fs::read(pack)?)?;
    eprintln!(
        "base into cuesta: {:.1} s, {:.1} s of CPU, peak {} MiB",
        cost.wall.as_secs_f64(),
        cost.cpu.as_secs_f64(),
        cost.peak_bytes >> 20
    );
    Ok(())
}

fn set_up_stock(options: &Options, pack: &Path, base: &Base) -> Result<()> {
    let root = stock_root(options);
    if root.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(&root)?;
    let repository = cgi::init_bare(&root, STOCK_NAME, "sha1")?;
    let mut index = Command::new("git");
    index.arg("-C").arg(&repository).args(["index-pack", "--stdin"]);
    let status = index.stdin(std::fs::File::open(pack)?).stdout(Stdio::null()).status()?;
    ensure!(status.success(), "git index-pack failed");
    let mut update = Command::new("git");
    update
        .arg("-C")
        .arg(&repository)
        .args(["update-ref", BASE_REF, &base.tip.to_string()]);
    ensure!(update.status()?.success(), "git update-ref failed");
    Ok(())
}

/// Pushes one new branch.
fn push(server: &Server, path: &str, branch: &str, tip: &ObjectId, pack: &[u8]) -> Result<Cost> {
    let target = Target::parse(&format!("{}{path}", server.url), None)?;
    let mut command = Vec::new();
    let line = format!("{} {tip} {branch}", ObjectId::null(ObjectFormat::Sha1));
    pktline::encode(&mut command, &[line.as_bytes(), b"\0report-status agent=cuesta-bench"]);
    command.extend_from_slice(pktline::FLUSH);
    let mut request = Vec::new();
    target.write_rpc(&mut request, "git-receive-pack", "", &[&command, pack]);
    let pid = server.child.id();
    process::reset_peak(pid)?;
    let before = (process::cpu(pid)?, bucket_of(server)?);
    let begin = now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        let mut connection = Connection::open(&target).await?;
        let status = connection.exchange(&request).await?;
        ensure!(status == 200, "push: status {status}");
        anyhow::Ok(connection.body().to_vec())
    })?;
    let wall = begin.elapsed();
    let report = String::from_utf8_lossy(&report);
    ensure!(report.contains(&format!("ok {branch}")), "push refused: {report}");
    let after = bucket_of(server)?;
    // Stock's processes end after their answer, and count when they have.
    std::thread::sleep(Duration::from_millis(500));
    Ok(Cost {
        wall,
        cpu: process::cpu(pid)?.saturating_sub(before.0),
        peak_bytes: process::peak_resident_bytes(pid)?,
        bucket_requests: after.0.saturating_sub(before.1.0),
        bucket_bytes: after.1.saturating_sub(before.1.1),
    })
}

/// Requests to the bucket, and bytes from it, so far.
fn bucket_of(server: &Server) -> Result<(u64, u64)> {
    let requests = bucket_metric(server, "cuesta_bucket_requests_total").context("no metrics")?;
    Ok((requests, bucket_metric(server, "cuesta_bucket_received_bytes_total")?))
}
