//! After the load: is everything there that was acknowledged?

use super::agent::Agent;
use anyhow::{Context, Result, bail, ensure};
use cuesta_git::ObjectId;
use std::collections::HashMap;
use std::process::Command;

/// A branch and the tips any of which is right.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    reference: String,
    tips: Vec<Option<ObjectId>>,
}

impl Expected {
    pub(super) fn of(agent: &Agent) -> Self {
        let (reference, tips) = agent.tips();
        Self {
            reference: reference.to_owned(),
            tips,
        }
    }
}

/// Compares what `git ls-remote` lists with what was acknowledged.
pub(super) fn check_refs(url: &str, expected: &[Expected]) -> Result<()> {
    let output = Command::new("git").args(["ls-remote", url]).output()?;
    ensure!(
        output.status.success(),
        "git ls-remote: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let listed = String::from_utf8(output.stdout).context("refs that are not text")?;
    let listed: HashMap<&str, &str> = listed
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(oid, name)| (name, oid))
        .collect();
    let wrong = expected.iter().filter(|branch| {
        let listed = listed.get(branch.reference.as_str()).map(ToString::to_string);
        !branch.tips.iter().any(|tip| tip.map(|oid| oid.to_string()) == listed)
    });
    let wrong: Vec<&str> = wrong.map(|branch| branch.reference.as_str()).collect();
    match wrong.first() {
        Some(first) => bail!("{} branches are not as acknowledged, '{first}' for one", wrong.len()),
        None => Ok(()),
    }
}

/// Clones everything and has git check it.
pub(super) fn check_objects(url: &str) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let clone = scratch.path().join("clone.git");
    let mut cloning = Command::new("git");
    cloning.args(["clone", "--quiet", "--mirror", url]).arg(&clone);
    ensure!(cloning.status()?.success(), "git clone failed");
    let mut checking = Command::new("git");
    checking.arg("-C").arg(&clone).args(["fsck", "--full", "--no-dangling"]);
    ensure!(checking.status()?.success(), "git fsck failed");
    Ok(())
}
