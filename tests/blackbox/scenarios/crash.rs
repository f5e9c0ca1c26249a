//! `kill -9` during concurrent pushes, again and again: every acknowledged push is there afterwards, and all is whole.

use super::Check;
use crate::bucket::BucketKind;
use crate::client::Environment;
use crate::cuesta::{Cuesta, Options};
use crate::format::Format;
use crate::history::History;
use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const ROUNDS: usize = 30;
/// Over a network all takes longer.
const REMOTE_ROUNDS: usize = 4;
const PUSHERS: usize = 4;
const REPOSITORY: &str = "suite/crash.git";

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check {
            name: "crash::kill_during_pushes",
            run: kill_during_pushes,
        },
        Check {
            name: "crash::restart_without_cache",
            run: restart_without_cache,
        },
    ]
}

/// A client that pushes commit after commit to a branch of its own, and what was acknowledged.
struct Pusher {
    environment: Environment,
    directory: PathBuf,
    branch: String,
    acknowledged: Option<String>,
    count: u64,
}

impl Pusher {
    fn new(root: &Path, number: usize) -> Result<Self> {
        let pusher = Self {
            environment: Environment::new(root)?,
            directory: root.join(format!("pusher{number}")),
            branch: format!("own{number}"),
            acknowledged: None,
            count: 0,
        };
        std::fs::create_dir_all(&pusher.directory)?;
        pusher.git(&["init", "--quiet"])?;
        Ok(pusher)
    }

    /// Pushes until the server is gone.
    fn push_all(&mut self, url: &str, acknowledged: &AtomicUsize) -> Result<()> {
        loop {
            let commit = self.commit()?;
            let refs = format!("{commit}:refs/heads/{}", self.branch);
            let mut command = self.environment.git(&self.directory);
            if !command.args(["push", "--quiet", url, &refs]).output()?.status.success() {
                return Ok(());
            }
            self.acknowledged = Some(commit);
            acknowledged.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn commit(&mut self) -> Result<String> {
        self.count += 1;
        let mut history = History::new(Format::Sha1, self.count);
        let parents: Vec<String> = self.tip().into_iter().collect();
        let content = format!("{} of {}\n", self.count, self.branch).repeat(1 + self.count as usize % 50);
        let path = format!("{}/{}", self.branch, self.count % 5);
        history.commit(&self.branch, &parents, &[(&path, Some(&content))]);
        let mut command = self.environment.git(&self.directory);
        let mut child = command.args(["fast-import", "--quiet"]).stdin(Stdio::piped()).spawn()?;
        child.stdin.take().context("no stdin")?.write_all(history.stream())?;
        ensure!(child.wait()?.success(), "fast-import failed");
        self.tip().context("no commit")
    }

    fn tip(&self) -> Option<String> {
        self.git(&["rev-parse", "--verify", "--quiet", &self.branch]).ok()
    }

    fn git(&self, arguments: &[&str]) -> Result<String> {
        let output = self.environment.git(&self.directory).args(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "git {arguments:?} failed: {said}");
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }
}

fn url(server: &Cuesta) -> String {
    format!("http://{}/{REPOSITORY}", server.address())
}

fn kill_during_pushes(bucket: BucketKind) -> Result<()> {
    let root = tempfile::tempdir()?;
    let options = bucket.options(root.path())?;
    let mut pushers = (0..PUSHERS)
        .map(|number| Pusher::new(root.path(), number))
        .collect::<Result<Vec<_>>>()?;
    let mut random = fastrand::Rng::with_seed(1);
    let rounds = if bucket.is_remote() { REMOTE_ROUNDS } else { ROUNDS };
    for round in 0..rounds {
        let server = Cuesta::start(&options)?;
        push_until_killed(server, &mut pushers, random.usize(1..12))?;
        if round % 2 == 1 {
            delete_cache(&options)?;
        }
        let mut server = Cuesta::start(&options)?;
        audit(&url(&server), root.path(), &pushers).with_context(|| format!("round {round}"))?;
        server.check_alive()?;
        if round % 3 == 2 {
            server.terminate()?;
        } else {
            server.kill()?;
        }
    }
    Ok(())
}

/// Kills the server once it has acknowledged `enough` pushes, while others are under way.
fn push_until_killed(server: Cuesta, pushers: &mut [Pusher], enough: usize) -> Result<()> {
    let acknowledged = AtomicUsize::new(0);
    let url = url(&server);
    thread::scope(|scope| {
        let (url, acknowledged) = (&url, &acknowledged);
        let threads: Vec<_> = pushers
            .iter_mut()
            .map(|pusher| scope.spawn(move || pusher.push_all(url, acknowledged)))
            .collect();
        while acknowledged.load(Ordering::SeqCst) < enough && !threads.iter().all(thread::ScopedJoinHandle::is_finished)
        {
            thread::yield_now();
        }
        server.kill()?;
        for thread in threads {
            thread.join().ok().context("a client panicked")??;
        }
        let count = acknowledged.load(Ordering::SeqCst);
        ensure!(count >= enough, "only {count} pushes were acknowledged");
        Ok(())
    })
}

/// A clone is whole, and every branch holds what was acknowledged last, or the push after it whose answer was lost.
fn audit(url: &str, root: &Path, pushers: &[Pusher]) -> Result<()> {
    let mirror = root.join("audit.git");
    let environment = Environment::new(root)?;
    let git = |arguments: &[&str]| -> Result<String> {
        let output = environment.git(root).args(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "git {arguments:?} failed: {said}");
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    };
    git(&["clone", "--quiet", "--mirror", url, "audit.git"])?;
    git(&["-C", "audit.git", "fsck", "--full", "--strict"])?;
    for pusher in pushers {
        let branch = format!("refs/heads/{}", pusher.branch);
        let Some(acknowledged) = &pusher.acknowledged else {
            continue;
        };
        let tip = git(&["-C", "audit.git", "rev-parse", "--verify", &branch])
            .with_context(|| format!("'{branch}' was acknowledged at {acknowledged}"))?;
        git(&["-C", "audit.git", "merge-base", "--is-ancestor", acknowledged, &tip])
            .with_context(|| format!("'{branch}' is at {tip}, acknowledged was {acknowledged}"))?;
        pusher.git(&["merge-base", "--is-ancestor", &tip, &pusher.branch])?;
    }
    std::fs::remove_dir_all(mirror)?;
    Ok(())
}

/// Everything that a later node needs is in bucket and ledger.
fn restart_without_cache(bucket: BucketKind) -> Result<()> {
    let root = tempfile::tempdir()?;
    let options = bucket.options(root.path())?;
    let mut pusher = Pusher::new(root.path(), 0)?;
    let mut history = History::new(Format::Sha1, 71);
    history.line(&pusher.branch, &[], 400);
    let stream = root.path().join("stream");
    std::fs::write(&stream, history.stream())?;
    let mut command = pusher.environment.git(&pusher.directory);
    let status = command
        .args(["fast-import", "--quiet"])
        .stdin(std::fs::File::open(&stream)?)
        .status()?;
    ensure!(status.success(), "fast-import failed");
    for step in ["~300", "~1", "~0"] {
        let server = Cuesta::start(&options)?;
        let commit = pusher.git(&["rev-parse", &format!("{}{step}", pusher.branch)])?;
        pusher.git(&[
            "push",
            "--quiet",
            &url(&server),
            &format!("{commit}:refs/heads/{}", pusher.branch),
        ])?;
        pusher.acknowledged = Some(commit);
        server.terminate()?;
        delete_cache(&options)?;
        let server = Cuesta::start(&options)?;
        audit(&url(&server), root.path(), std::slice::from_ref(&pusher))?;
        server.terminate()?;
    }
    Ok(())
}

fn delete_cache(options: &Options) -> Result<()> {
    match std::fs::remove_dir_all(options.data().join("cache")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
