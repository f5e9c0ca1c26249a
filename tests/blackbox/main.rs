//! The black-box suite: real Git clients over HTTP, SSH and `git://` against the built `cuesta`, and the same against
//! `git http-backend`, `git-shell` and `git daemon`.
//!
//! A scenario is a function over a [`session::Session`]: it drives a client and everything the client shows goes into a
//! transcript. Stock git's transcript is what Cuesta's must be, and both must end with a whole, clean repository. Some
//! checks have no counterpart in stock git (crashes, memory): they assert for themselves.
//!
//! Environment:
//! * `CUESTA_TEST_BINARY`: the binary, by default the one that cargo built beside this program.
//! * `CUESTA_TEST_BUCKETS`: which buckets, of `dir`, `s3`, `azure` (the last two need `CUESTA_TEST_S3_*`,
//!   `CUESTA_TEST_AZURE_*`) and `none`, which compares stock git with itself, to test the suite. Default: `dir`.
//! * `CUESTA_TEST_WAYS`: which ways to a repository, of `http-sha1`, `http-sha256`, `ssh-sha1`, `git-sha1` and `ssh-sha256`.
//!   Default: all over a directory; elsewhere the first and the last. What is about one transport or format is listed and ignored on
//!   the others; `git-sha1` takes what is about reading, and pushes over HTTP.
//! * `CUESTA_TEST_GIT`: the git that clients are, by default the one found in `PATH`. The programs beside it are found where
//!   `CUESTA_TEST_GIT_EXEC_PATH` says. What needs a newer one is listed and ignored. Servers are always the git in `PATH`.
//! * `CUESTA_TEST_PYTHON`: a Python that has pygit2, dulwich and gitpure; `CUESTA_TEST_NODE_MODULES`: a directory that has
//!   isomorphic-git; `CUESTA_TEST_GOGIT`, `CUESTA_TEST_JGIT` and `CUESTA_TEST_GIX`: see `clients/README.md`. Without one of them those clients are
//!   reported as ignored.

mod bucket;
mod client;
mod cuesta;
mod format;
mod history;
mod packs;
mod scenarios;
mod session;
mod ssh;
mod stock;
mod transcript;
mod way;
mod wire;

use anyhow::{Context, Result};
use bucket::BucketKind;
use libtest_mimic::{Arguments, Failed, Trial};
use scenarios::{Check, Scenario};
use session::{Host, Session};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use transcript::Transcript;
use way::Way;

fn main() -> Result<ExitCode> {
    if let Some(code) = ssh::part() {
        return Ok(code);
    }
    let arguments = Arguments::from_args();
    let git = client::version()?;
    let hosts = Arc::new(Hosts::start(&bucket::chosen()?)?);
    let mut trials = Vec::new();
    for scenario in scenarios::compared() {
        trials.extend(comparisons(&scenario, git, &hosts)?);
    }
    for check in scenarios::checks() {
        let kinds = hosts.buckets.iter().map(|(kind, _)| *kind);
        trials.extend(kinds.filter_map(|kind| check_trial(&check, kind)));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(hosts);
    Ok(conclusion.exit_code())
}

/// The servers that all scenarios share: stock git, and one Cuesta for each bucket.
struct Hosts {
    stock: Host,
    buckets: Vec<(BucketKind, Host)>,
}

impl Hosts {
    fn start(kinds: &[BucketKind]) -> Result<Self> {
        let start = |kind: &BucketKind| Ok((*kind, kind.host().with_context(|| format!("bucket '{kind}'"))?));
        Ok(Self {
            stock: stock::host()?,
            buckets: kinds.iter().map(start).collect::<Result<_>>()?,
        })
    }
}

/// What stock git shows on one way; whichever trial comes first drives it for all buckets.
type Expected = Arc<OnceLock<Result<Transcript, String>>>;

/// One trial a bucket and way. Those that a scenario does not go are listed with the reason, and ignored.
fn comparisons(scenario: &Scenario, git: client::Version, hosts: &Arc<Hosts>) -> Result<Vec<Trial>> {
    let mut trials = Vec::new();
    let mut expectations: Vec<(Way, Expected)> = Vec::new();
    for (index, (kind, _)) in hosts.buckets.iter().enumerate() {
        for way in way::chosen(*kind)? {
            if !expectations.iter().any(|(known, _)| *known == way) {
                expectations.push((way, Expected::default()));
            }
            let expected = expectations.iter().find(|(known, _)| *known == way);
            let expected = expected.map(|(_, expected)| expected.clone()).unwrap_or_default();
            let (only, missing) = (scenario.only(way, git), scenario.missing());
            let name = format!("{kind}::{way}::{}", scenario.name);
            let (hosts, scenario) = (hosts.clone(), scenario.clone());
            let trial = Trial::test(name, move || compare(&scenario, &hosts, index, way, &expected));
            let ignored = only.is_some() || missing.is_some();
            trials.push(trial.with_kind(only.unwrap_or_default()).with_ignored_flag(ignored));
        }
    }
    Ok(trials)
}

fn compare(scenario: &Scenario, hosts: &Hosts, bucket: usize, way: Way, expected: &Expected) -> Result<(), Failed> {
    let (kind, host) = hosts.buckets.get(bucket).context("no such bucket")?;
    let run = |host: &Host| Session::run(host, way, scenario).map_err(|error| explain(&error));
    let expected = expected.get_or_init(|| run(&hosts.stock));
    let expected = expected.as_ref().map_err(|error| format!("on stock git: {error}"))?;
    let actual = run(host).map_err(|error| format!("on cuesta: {error}"))?;
    transcript::compare(expected, &actual).map_err(|error| format!("stock git and cuesta ({kind}) differ: {error}"))?;
    Ok(())
}

/// An error and its causes, without a backtrace.
fn explain(error: &anyhow::Error) -> String {
    error.chain().map(|cause| format!("{cause}\n")).collect()
}

fn check_trial(check: &Check, kind: BucketKind) -> Option<Trial> {
    if kind == BucketKind::None {
        return None;
    }
    let run = check.run;
    Some(Trial::test(format!("{kind}::{}", check.name), move || Ok(run(kind)?)))
}
