//! After the load: is everything there that was acknowledged?

use super::agent::Agent;
use anyhow::{Context, Result, bail, ensure};
use cuesta_git::ObjectId;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

/// A branch and the tips any of which is right.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    reference: String,
    tips: Vec<Option<ObjectId>>,
}

/// What the server must show. The last push to a shared branch is the last of some agent.
pub(super) fn expected(agents: &[Agent]) -> Vec<Expected> {
    let mut branches: BTreeMap<&str, Vec<Option<ObjectId>>> = BTreeMap::new();
    for agent in agents {
        let tips = branches.entry(agent.pusher.reference()).or_default();
        tips.extend(agent.pusher.tips());
    }
    for agent in agents.iter().filter(|agent| agent.pusher.acknowledged().is_some()) {
        // What was pushed once does not disappear.
        let tips = branches.entry(agent.pusher.reference()).or_default();
        tips.retain(Option::is_some);
    }
    let expected = branches.into_iter().map(|(reference, tips)| Expected {
        reference: reference.to_owned(),
        tips,
    });
    expected.collect()
}

/// Runs stock git against the servers.
pub(super) struct Auditor<'a> {
    authorities: Option<&'a Path>,
}

impl<'a> Auditor<'a> {
    /// One that trusts these certificates over HTTPS.
    pub(super) fn new(authorities: Option<&'a Path>) -> Self {
        Self { authorities }
    }

    fn git(&self) -> Command {
        let mut git = Command::new("git");
        if let Some(path) = self.authorities {
            git.env("GIT_SSL_CAINFO", path);
        }
        git
    }

    /// Pushes a commit of a repository here, so that agents can build on it.
    pub(super) fn push(&self, repository: &Path, commit: &ObjectId, url: &str, branch: &str) -> Result<()> {
        let mut pushing = self.git();
        pushing.arg("-C").arg(repository).args(["push", "--quiet", url]);
        pushing.arg(format!("{commit}:refs/heads/{branch}"));
        ensure!(pushing.status()?.success(), "cannot push '{}'", repository.display());
        Ok(())
    }

    /// Compares what `git ls-remote` lists with what was acknowledged.
    pub(super) fn check_refs(&self, url: &str, expected: &[Expected]) -> Result<()> {
        let output = self.git().args(["ls-remote", url]).output()?;
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
    pub(super) fn check_objects(&self, url: &str) -> Result<()> {
        let scratch = tempfile::tempdir()?;
        let clone = scratch.path().join("clone.git");
        let mut cloning = self.git();
        cloning.args(["clone", "--quiet", "--mirror", url]).arg(&clone);
        ensure!(cloning.status()?.success(), "git clone failed");
        let mut checking = Command::new("git");
        checking.arg("-C").arg(&clone).args(["fsck", "--full", "--no-dangling"]);
        ensure!(checking.status()?.success(), "git fsck failed");
        Ok(())
    }
}
