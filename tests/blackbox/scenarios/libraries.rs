//! Other implementations of Git as clients: libgit2 (through pygit2), dulwich, isomorphic-git, go-git, JGit and gitoxide (through
//! gitpure, and its own command line).
//!
//! The first three are libraries that scripts drive through their own objects and pushes. The others get objects that stock
//! git made, and do what goes over the network; gitoxide does not push.

use super::Scenario;
use super::partial::publish;
use crate::client::Client;
use crate::session::Session;
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python that has pygit2, dulwich and gitpure.
const PYTHON: &str = "CUESTA_TEST_PYTHON";
/// A directory of Node modules that has isomorphic-git.
const NODE_MODULES: &str = "CUESTA_TEST_NODE_MODULES";
/// `clients/gogit.go`, built.
const GO_GIT: &str = "CUESTA_TEST_GOGIT";
/// The class path of JGit's command line.
const JGIT: &str = "CUESTA_TEST_JGIT";
/// gitoxide's command line.
const GIX: &str = "CUESTA_TEST_GIX";

pub(super) fn scenarios() -> Vec<Scenario> {
    let scenario = |name: &str, needs, run: fn(&Session<'_>) -> Result<()>| {
        let scenario = Scenario::new(format!("libraries::{name}"), run).over_http().with_sha1();
        Scenario {
            needs: Some(needs),
            ..scenario
        }
    };
    vec![
        scenario("pygit2", PYTHON, |session| run_python(session, "pygit2")),
        scenario("dulwich", PYTHON, |session| run_python(session, "dulwich")),
        scenario("pygit2_cuts", PYTHON, run_pygit2_cuts),
        scenario("dulwich_cuts", PYTHON, run_dulwich_cuts),
        scenario("isomorphic_git", NODE_MODULES, run_isomorphic_git),
        scenario("go_git", GO_GIT, run_go_git),
        scenario("jgit", JGIT, run_jgit),
        scenario("gitpure", PYTHON, run_gitpure),
        scenario("gitoxide", GIX, run_gitoxide),
    ]
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name)
}

/// Runs a client that prints the same on every server.
fn record(session: &Session<'_>, command: &mut Command) -> Result<()> {
    let output = command.output()?;
    session.record(&String::from_utf8_lossy(&output.stdout));
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {said}");
    Ok(())
}

fn run_python(session: &Session<'_>, library: &str) -> Result<()> {
    session.create()?;
    record_python(session, &[library, &session.url()])
}

fn record_python(session: &Session<'_>, words: &[&str]) -> Result<()> {
    let python = std::env::var(PYTHON)?;
    let mut command = session.environment().command(&python, session.root());
    record(session, command.arg(script("python.py")).args(words))
}

/// Shallow copies, deepened. libgit2 knows a depth, and has no filters.
fn run_pygit2_cuts(session: &Session<'_>) -> Result<()> {
    publish(session)?;
    record_python(session, &["pygit2-cuts", &session.url()])?;
    Client::new(session, "shallow.git").record_state()
}

/// Shallow copies in every way to ask for them, deepened, and partial ones.
fn run_dulwich_cuts(session: &Session<'_>) -> Result<()> {
    let publisher = publish(session)?;
    session.set("uploadpack.allowFilter", "true")?;
    let middle = publisher.git(&["log", "-1", "--format=%ct", "main~4"])?;
    record_python(session, &["dulwich-cuts", &session.url(), &middle])?;
    for version in ["0", "2"] {
        for name in ["shallow", "since", "excluded"] {
            Client::new(session, &format!("{name}{version}")).record_state()?;
        }
    }
    Ok(())
}

fn run_isomorphic_git(session: &Session<'_>) -> Result<()> {
    session.create()?;
    let modules = std::env::var(NODE_MODULES)?;
    let mut command = session.environment().command("node", session.root());
    record(
        session,
        command.arg(script("isomorphic.mjs")).args([&modules, &session.url()]),
    )
}

/// A client that words drive. Only whether it went well is recorded: what it says is its own affair.
struct Foreign<'a, 's> {
    session: &'a Session<'s>,
    program: String,
    first: Vec<String>,
}

impl Foreign<'_, '_> {
    /// Runs it; whether it went well.
    fn run(&self, directory: &Path, words: &[&str]) -> Result<bool> {
        let environment = self.session.environment();
        let mut command = environment.command(&self.program, directory);
        let output = command.args(&self.first).args(words).output()?;
        let outcome = if output.status.success() { "done" } else { "refused" };
        self.session.record(&format!("{}: {outcome}", words.join(" ")));
        Ok(output.status.success())
    }

    /// The same for what must succeed on every server.
    fn succeed(&self, directory: &Path, words: &[&str]) -> Result<()> {
        ensure!(self.run(directory, words)?, "{words:?} failed");
        Ok(())
    }
}

/// Histories to push: `main` of two commits with a tag, and `other` beside its second.
fn prepare<'s, 'h>(session: &'s Session<'h>) -> Result<Client<'s, 'h>> {
    session.create()?;
    let work = session.init("work")?;
    let first = work.commit("main", "a", &"1\n".repeat(1000))?;
    work.git(&["branch", "other", &first])?;
    work.commit("main", "a", &"2\n".repeat(1000))?;
    work.commit("other", "b", "3\n")?;
    work.git(&["tag", "-a", "-m", "tag", "t", "main"])?;
    Ok(work)
}

fn run_go_git(session: &Session<'_>) -> Result<()> {
    let work = prepare(session)?;
    let go_git = Foreign {
        session,
        program: std::env::var(GO_GIT)?,
        first: Vec::new(),
    };
    let (root, url) = (session.root(), session.url());
    let branches = "refs/heads/main:refs/heads/main";
    go_git.succeed(root, &["push", "work", branches, "refs/heads/main:refs/heads/side"])?;
    go_git.succeed(root, &["push", "work", "refs/tags/t:refs/tags/t"])?;
    go_git.succeed(root, &["clone", &url, "clone"])?;
    go_git.succeed(root, &["clone", &url, "shallow", "1"])?;
    work.commit("main", "a", "4\n")?;
    go_git.succeed(root, &["push", "work", branches, ":refs/heads/side"])?;
    go_git.succeed(root, &["fetch", "clone", "+refs/heads/*:refs/heads/*"])?;
    go_git.run(root, &["push", "work", "refs/heads/other:refs/heads/main"])?;
    go_git.succeed(root, &["push", "work", "+refs/heads/other:refs/heads/main"])?;
    go_git.run(root, &["fetch", "clone", "+refs/heads/*:refs/heads/*"])?;
    for name in ["clone", "shallow"] {
        Client::new(session, name).record_state()?;
    }
    Ok(())
}

fn run_jgit(session: &Session<'_>) -> Result<()> {
    let work = prepare(session)?;
    let words = ["-cp", &std::env::var(JGIT)?, "org.eclipse.jgit.pgm.Main"];
    let jgit = Foreign {
        session,
        program: "java".to_owned(),
        first: words.map(str::to_owned).to_vec(),
    };
    let (root, url) = (session.root(), session.url());
    let branches = "refs/heads/main:refs/heads/main";
    let at = work.directory();
    jgit.succeed(at, &["push", &url, branches, "refs/heads/main:refs/heads/side"])?;
    jgit.succeed(at, &["push", &url, "refs/tags/t:refs/tags/t"])?;
    jgit.succeed(root, &["clone", "--bare", &url, "clone"])?;
    work.commit("main", "a", "4\n")?;
    jgit.succeed(at, &["push", &url, branches, ":refs/heads/side"])?;
    let clone = Client::new(session, "clone");
    jgit.succeed(clone.directory(), &["fetch", &url, "+refs/heads/*:refs/heads/*"])?;
    jgit.run(at, &["push", &url, "refs/heads/other:refs/heads/main"])?;
    jgit.succeed(at, &["push", &url, "+refs/heads/other:refs/heads/main"])?;
    jgit.succeed(clone.directory(), &["fetch", &url, "+refs/heads/*:refs/heads/*"])?;
    jgit.succeed(root, &["ls-remote", &url])?;
    clone.record_state()
}

fn run_gitpure(session: &Session<'_>) -> Result<()> {
    let work = prepare(session)?;
    let gitpure = Foreign {
        session,
        program: std::env::var(PYTHON)?,
        first: vec![script("python.py").display().to_string(), "gitoxide".to_owned()],
    };
    let (root, url) = (session.root(), session.url());
    work.git(&["push", "--quiet", &url, "main", "t"])?;
    gitpure.succeed(root, &[&url, "one"])?;
    work.commit("main", "a", "4\n")?;
    work.git(&["push", "--quiet", &url, "main", "+other:side"])?;
    gitpure.succeed(root, &[&url, "two"])?;
    for name in ["one", "two"] {
        Client::new(session, name).record_state()?;
    }
    Ok(())
}

fn run_gitoxide(session: &Session<'_>) -> Result<()> {
    let work = prepare(session)?;
    let gix = Foreign {
        session,
        program: std::env::var(GIX)?,
        first: vec!["--no-verbose".to_owned()],
    };
    let (root, url) = (session.root(), session.url());
    work.git(&["push", "--quiet", &url, "main", "t"])?;
    gix.succeed(root, &["clone", "--bare", &url, "clone"])?;
    gix.succeed(root, &["clone", "--bare", "--depth", "1", &url, "shallow"])?;
    work.commit("main", "a", "4\n")?;
    work.git(&["push", "--quiet", &url, "main", "+other:side"])?;
    let all = "+refs/heads/*:refs/heads/*";
    gix.succeed(root, &["-r", "clone", "fetch", "--remote", &url, all])?;
    gix.succeed(
        root,
        &["-r", "shallow", "fetch", "--deepen", "1", "--remote", &url, all],
    )?;
    for name in ["clone", "shallow"] {
        Client::new(session, name).record_state()?;
    }
    Ok(())
}
