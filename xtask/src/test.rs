//! `cargo xtask test`: every check, in one command and in one build profile.

use crate::services::Services;
use crate::tidy;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How much to test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All there is.
    Everything,
    /// What needs nothing but Rust and git.
    Quick,
}

/// Runs everything; fails at the first step that fails, except that all tests are run.
pub(crate) fn run(extent: Extent) -> Result<()> {
    let start = now();
    // Downloads wait for the network, builds for the processor.
    let installing = (extent == Extent::Everything).then(|| std::thread::spawn(Services::install));
    step("format", || cargo(&["fmt", "--all", "--check"], &[]))?;
    step("tidy", tidy::check)?;
    step("lints", || {
        cargo(
            &["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"],
            &[],
        )
    })?;
    step("build", || cargo(&["build", "--workspace", "--bin", "cuesta"], &[]))?;
    let services = match installing {
        Some(thread) => step("services", || {
            let installed = thread.join().ok().context("the installation panicked")?;
            start_services(installed)
        })?,
        None => None,
    };
    let variables = services.as_ref().map_or_else(Vec::new, Services::variables);
    // Always the whole workspace, so that no dependency is built a second time with fewer features.
    let crates = step("tests of the crates", || {
        cargo(&["test", "--workspace", "--no-fail-fast"], &[])
    });
    let stores = step("tests of the bucket over all stores", || {
        cargo(&["test", "--workspace", "--test", "conformance"], &variables)
    });
    for name in ["CUESTA_TEST_JGIT", "CUESTA_TEST_GOGIT", "CUESTA_TEST_GIX"] {
        if std::env::var_os(name).is_none() {
            println!("!! SKIPPED: '{name}' is not set: see tests/blackbox/clients/README.md");
        }
    }
    let clients = step("real clients", || {
        let mut variables = variables.clone();
        variables.push(("CUESTA_TEST_BUCKETS".to_owned(), buckets(services.as_ref()).to_owned()));
        cargo(&["test", "--workspace", "--test", "clients"], &variables)
    });
    drop(services);
    crates.and(stores).and(clients)?;
    println!("== all passed in {}", seconds(start.elapsed()));
    Ok(())
}

fn buckets(services: Option<&Services>) -> &'static str {
    if services.is_some() { "dir,s3,azure" } else { "dir" }
}

/// Without services there is less to test. On a developer's machine that is said aloud; in CI it is a failure.
fn start_services(installed: Result<Services>) -> Result<Option<Services>> {
    match installed.and_then(Services::start) {
        Ok(services) => Ok(Some(services)),
        Err(error) if std::env::var_os("CI").is_some() => Err(error.context("no services to test with")),
        Err(error) => {
            eprintln!("!! SKIPPED: S3, Azure, pygit2, dulwich, gitoxide and isomorphic-git are not tested: {error:#}");
            Ok(None)
        }
    }
}

fn step<T>(name: &str, action: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("== {name}");
    let start = now();
    let outcome = action();
    let word = if outcome.is_ok() { "done" } else { "FAILED" };
    println!("== {name}: {word} in {}", seconds(start.elapsed()));
    outcome.with_context(|| format!("step '{name}' failed"))
}

fn seconds(duration: Duration) -> String {
    format!("{:.0} s", duration.as_secs_f64())
}

// For people to read; nothing depends on it.
#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}

fn cargo(arguments: &[&str], variables: &[(String, String)]) -> Result<()> {
    let status = Command::new(env!("CARGO"))
        .args(arguments)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .current_dir(workspace())
        .status()?;
    ensure!(status.success(), "cargo {} ended with {status}", arguments.join(" "));
    Ok(())
}

/// The workspace's directory.
pub(crate) fn workspace() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}
