//! Objects larger than the server's share of memory.

use super::Check;
use crate::bucket::BucketKind;
use crate::client::Environment;
use crate::cuesta::Cuesta;
use anyhow::{Context, Result, ensure};
use cuesta_bench::process;
use std::io::Write;
use std::process::Stdio;

/// Size of the object.
const OBJECT_BYTES: u64 = 200 << 20;
/// What each cache, and all pushes, may take.
const SHARE_MIB: u64 = 16;
/// The shares, the ledger's pages, buffers in flight, and the program itself, which is large when built for debugging.
const PEAK_BYTES_MAX: u64 = 160 << 20;

pub(super) fn checks() -> Vec<Check> {
    vec![Check {
        name: "large::one_object",
        run: one_object,
    }]
}

fn one_object(bucket: BucketKind) -> Result<()> {
    let root = tempfile::tempdir()?;
    let mut options = bucket.options(root.path())?;
    for setting in ["cache_bytes_max", "push_memory_bytes_max", "refs_cache_bytes_max"] {
        options.set(setting, &format!("{SHARE_MIB}MiB"));
    }
    let server = Cuesta::start(&options)?;
    let url = format!("http://{}/suite/large.git", server.address());
    let environment = Environment::new(root.path())?;
    let git = |arguments: &[&str]| -> Result<String> {
        let mut command = environment.git(root.path());
        // Stored as they come: random bytes do not shrink.
        let settings = [
            "-c",
            "core.bigFileThreshold=1m",
            "-c",
            "core.compression=0",
            "-c",
            "pack.compression=0",
        ];
        let output = command.args(settings).args(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "git {arguments:?} failed: {said}");
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    };
    git(&["init", "--quiet", "--bare", "client.git"])?;
    let mut command = environment.git(&root.path().join("client.git"));
    command.args([
        "-c",
        "core.compression=0",
        "fast-import",
        "--quiet",
        "--big-file-threshold=1m",
    ]);
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    write_history(child.stdin.take().context("no stdin")?)?;
    ensure!(child.wait()?.success(), "fast-import failed");
    let blob = git(&["-C", "client.git", "rev-parse", "main:big"])?;

    process::reset_peak(server.pid())?;
    git(&["-C", "client.git", "push", "--quiet", &url, "main"])?;
    let after_push = process::peak_resident_bytes(server.pid())?;
    git(&["clone", "--quiet", "--bare", &url, "clone.git"])?;
    let after_clone = process::peak_resident_bytes(server.pid())?;
    git(&["-C", "clone.git", "fsck", "--full"])?;
    let size = git(&["-C", "clone.git", "cat-file", "-s", &blob])?;
    ensure!(size == OBJECT_BYTES.to_string(), "the object has {size} bytes");
    let mib = |bytes: u64| bytes >> 20;
    let figures = format!("push {} MiB, clone {} MiB", mib(after_push), mib(after_clone));
    ensure!(after_clone <= PEAK_BYTES_MAX, "resident memory peaked at: {figures}");
    server.terminate()
}

/// A commit with one file of random bytes, and a small one.
fn write_history(mut out: impl Write) -> Result<()> {
    write!(
        out,
        "commit refs/heads/main\ncommitter C <c@example.com> 1700000000 +0000\ndata 2\nm\n"
    )?;
    write!(
        out,
        "M 100644 inline small\ndata 2\nx\n\nM 100644 inline big\ndata {OBJECT_BYTES}\n"
    )?;
    let mut random = fastrand::Rng::with_seed(2);
    let mut block = vec![0; 1 << 20];
    for _ in 0..OBJECT_BYTES >> 20 {
        random.fill(&mut block);
        out.write_all(&block)?;
    }
    write!(out, "\n\n")?;
    Ok(())
}
