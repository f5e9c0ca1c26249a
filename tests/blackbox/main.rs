//! The black-box suite: real Git clients over HTTP against the built `cuesta`, and the same against `git http-backend`.
//!
//! A scenario is a function over a [`session::Session`]: it drives a client and everything the client shows goes into a
//! transcript. Stock git's transcript is what Cuesta's must be, and both must end with a whole, clean repository. Some
//! checks have no counterpart in stock git (crashes, memory): they assert for themselves.
//!
//! Environment:
//! * `CUESTA_TEST_BINARY`: the binary, by default the one that cargo built beside this program.
//! * `CUESTA_TEST_BUCKETS`: which buckets, of `dir`, `s3`, `azure` (the last two need `CUESTA_TEST_S3_*`,
//!   `CUESTA_TEST_AZURE_*`) and `none`, which compares stock git with itself, to test the suite. Default: `dir`.
//! * `CUESTA_TEST_GIT`: the git that clients are, by default the one found in `PATH`. The programs beside it are found where
//!   `CUESTA_TEST_GIT_EXEC_PATH` says.
//! * `CUESTA_TEST_PYTHON`: a Python that has pygit2 and dulwich; `CUESTA_TEST_NODE_MODULES`: a directory that has
//!   isomorphic-git; `CUESTA_TEST_GOGIT` and `CUESTA_TEST_JGIT`: see `clients/README.md`. Without one of them those clients are
//!   reported as ignored.

mod bucket;
mod client;
mod cuesta;
mod history;
mod packs;
mod scenarios;
mod session;
mod stock;
mod transcript;
mod wire;

use anyhow::{Context, Result};
use bucket::BucketKind;
use libtest_mimic::{Arguments, Failed, Trial};
use scenarios::{Check, Scenario};
use session::{Host, Session};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use transcript::Transcript;

fn main() -> Result<ExitCode> {
    let arguments = Arguments::from_args();
    let hosts = Arc::new(Hosts::start(&bucket::chosen()?)?);
    let mut trials = Vec::new();
    for scenario in scenarios::compared() {
        trials.extend(comparisons(scenario, &hosts));
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

/// One trial a bucket; whichever runs first drives stock git for all of them.
fn comparisons(scenario: Scenario, hosts: &Arc<Hosts>) -> Vec<Trial> {
    let expected = Arc::new(OnceLock::new());
    let trial = |index: usize, kind: BucketKind| {
        let (hosts, expected, scenario) = (hosts.clone(), expected.clone(), scenario.clone());
        let name = format!("{kind}::{}", scenario.name);
        let ignored = scenario.missing().is_some();
        let run = move || compare(&scenario, &hosts, index, &expected);
        Trial::test(name, run).with_ignored_flag(ignored)
    };
    let kinds = hosts.buckets.iter().map(|(kind, _)| *kind);
    kinds.enumerate().map(|(index, kind)| trial(index, kind)).collect()
}

fn compare(
    scenario: &Scenario,
    hosts: &Hosts,
    bucket: usize,
    expected: &OnceLock<Result<Transcript, String>>,
) -> Result<(), Failed> {
    let (kind, host) = hosts.buckets.get(bucket).context("no such bucket")?;
    let run = |host: &Host| Session::run(host, scenario).map_err(|error| explain(&error));
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
