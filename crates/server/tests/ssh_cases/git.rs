//! Stock git over SSH: what people do every day.

use super::server;
use crate::ssh_client::{AS_CLIENT, KEEP_OPEN};
use crate::support::{Server, Work};
use std::path::Path;
use std::process::{Command, Output};

/// What git runs to speak SSH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// Ours.
    Own,
    /// Ours, which does not say that it has sent everything: as JGit or libgit2.
    OwnKeptOpen,
    /// OpenSSH.
    OpenSsh,
}

impl Client {
    pub const ALL: [Self; 3] = [Self::Own, Self::OwnKeptOpen, Self::OpenSsh];

    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::OwnKeptOpen => "kept-open",
            Self::OpenSsh => "ssh",
        }
    }

    /// Whether a case is for this client. One that never says that it has sent everything leaves fetches waiting.
    pub fn runs(self, case: &str) -> bool {
        self != Self::OwnKeptOpen || case.starts_with("pushes")
    }

    pub fn is_installed(self) -> bool {
        self != Self::OpenSsh
            || Command::new("ssh")
                .arg("-V")
                .output()
                .is_ok_and(|run| run.status.success())
    }

    /// Runs git over it.
    pub fn git(self, work: &Work, directory: &Path, arguments: &[&str]) -> Output {
        work.command(directory, arguments)
            .envs(self.environment())
            .output()
            .unwrap()
    }

    /// The environment that makes git use it.
    pub fn environment(self) -> Vec<(&'static str, String)> {
        if self == Self::OpenSsh {
            let options = "-F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR";
            return vec![("GIT_SSH_COMMAND", format!("ssh {options}"))];
        }
        let own = std::env::current_exe().unwrap();
        let mut set = vec![
            ("GIT_SSH_COMMAND", own.to_str().unwrap().to_owned()),
            ("GIT_SSH_VARIANT", "ssh".to_owned()),
            (AS_CLIENT, "1".to_owned()),
        ];
        if self == Self::OwnKeptOpen {
            set.push((KEEP_OPEN, "1".to_owned()));
        }
        set
    }
}

type Case = fn(Client);

pub const CASES: &[(&str, Case)] = &[
    ("push_clone_and_fetch_in_every_version_and_format", everyday),
    ("negotiation_takes_many_rounds", many_rounds),
    ("shallow_and_partial_clones", shallow_and_partial),
    ("pushes_of_every_kind", pushes),
    ("pushes_that_are_signed", signed_pushes),
    ("a_large_push_and_clone", large),
    ("what_is_not_there_is_not_found", absent),
    ("archives", archives),
];

/// Git in a directory, over a client.
struct Git<'a> {
    work: &'a Work,
    client: Client,
}

impl Git<'_> {
    fn attempt(&self, directory: &Path, arguments: &[&str]) -> Output {
        self.client.git(self.work, directory, arguments)
    }

    fn run(&self, directory: &Path, arguments: &[&str]) -> String {
        let output = self.attempt(directory, arguments);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:?}: git {arguments:?}: {err}", self.client);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn refused(&self, directory: &Path, arguments: &[&str]) -> String {
        let output = self.attempt(directory, arguments);
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{:?}: git {arguments:?}: {err}", self.client);
        err
    }
}

/// The nonce of the connection is good however long the client takes, and no other is.
fn signed_pushes(client: Client) {
    let (mut server, work) = (server(), Work::new());
    let source = work.repository("source", "sha1");
    let git = Git { work: &work, client };
    let key = work.ssh_key();
    let url = server.ssh_url("a/b");
    git.run(&source, &["push", "-q", &url, "main"]);
    server.cuesta(&["repo", "config", "a/b", "receive.certNonceSeed", "sekrit"]);
    server.cuesta(&["user", "add", "ann"]);
    server.cuesta(&["key", "add", "ann", work.path("key.pub").to_str().unwrap()]);
    work.git_in(&source, &["config", "gpg.format", "ssh"]);
    work.git_in(&source, &["config", "user.signingkey", key.to_str().unwrap()]);
    for name in ["one", "two"] {
        let to = format!("main:refs/heads/{name}");
        git.run(&source, &["push", "-q", "--signed", &url, &to]);
    }
    server.stop();
    let log = server.log();
    let signed: Vec<&str> = log.lines().filter(|line| line.contains("G ann SHA256:")).collect();
    assert!(signed.len() == 2 && !log.contains("SLOP"), "{log}");
}

fn set_version(work: &Work, version: &str) {
    work.git(&["config", "--global", "protocol.version", version]);
}

/// Adds so many commits to `main`.
fn many_commits(work: &Work, repository: &Path, count: usize) {
    let mut stream = String::new();
    for number in 1..=count {
        let content = format!("{number}\n");
        let time = 1_700_000_000 + number;
        stream += &format!("commit refs/heads/main\ncommitter A <a@x> {time} +0000\ndata 2\nc\n");
        if number == 1 {
            stream += "from refs/heads/main^0\n";
        }
        stream += &format!("M 100644 inline file\ndata {}\n{content}\n", content.len());
    }
    work.git_with(repository, &["fast-import", "--quiet"], stream.as_bytes());
    work.git_in(repository, &["reset", "-q", "--hard", "main"]);
}

/// Puts a commit without the author's address on the branch.
fn bad_commit(work: &Work, repository: &Path) {
    let tree = work.git_in(repository, &["rev-parse", "HEAD^{tree}"]);
    let text = format!("tree {tree}\nauthor A 1700000000 +0000\ncommitter A <a@x> 1700000000 +0000\n\nbad\n");
    let arguments = ["hash-object", "-t", "commit", "-w", "--literally", "--stdin"];
    let bad = work.git_with(repository, &arguments, text.as_bytes());
    work.git_in(repository, &["update-ref", "HEAD", &bad]);
}

fn everyday(client: Client) {
    let (server, work) = (server(), Work::new());
    let git = Git { work: &work, client };
    for format in ["sha1", "sha256"] {
        let origin = work.repository(format, format);
        for version in ["0", "1", "2"] {
            set_version(&work, version);
            let name = format!("ann/{format}-v{version}.git");
            server.cuesta(&["repo", "create", &name, "--object-format", format]);
            let url = server.ssh_url(&name);
            git.run(&origin, &["push", "-q", &url, "--all"]);
            let clone = work.path(&format!("clone-{format}-{version}"));
            git.run(&origin, &["clone", "-q", &url, clone.to_str().unwrap()]);
            let pushed = work.commit(&origin, "more", &format!("{format} {version}\n"));
            work.git_in(&origin, &["tag", "-f", "-a", "-m", "one", "v1"]);
            git.run(&origin, &["push", "-q", &url, "main", "v1"]);
            git.run(&clone, &["pull", "-q"]);
            git.run(&clone, &["fetch", "-q"]);
            assert_eq!(work.git_in(&clone, &["rev-parse", "HEAD"]), pushed);
            assert_eq!(work.git_in(&clone, &["rev-parse", "v1^{}"]), pushed);
            work.git_in(&clone, &["fsck", "--full", "--strict"]);
            // The same refs as over HTTP.
            let over_http = work.git(&["ls-remote", &server.url(&name)]);
            assert_eq!(git.run(&clone, &["ls-remote"]), over_http);
        }
    }
}

/// Both sides have much that the other lacks, so that the first haves do not do.
fn many_rounds(client: Client) {
    let (server, work) = (server(), Work::new());
    let git = Git { work: &work, client };
    let origin = work.repository("origin", "sha1");
    let url = server.ssh_url("ann/b");
    git.run(&origin, &["push", "-q", &url, "main"]);
    for version in ["0", "2"] {
        set_version(&work, version);
        let clone = work.path(&format!("clone{version}"));
        git.run(&origin, &["clone", "-q", &url, clone.to_str().unwrap()]);
        many_commits(&work, &clone, 300);
        let theirs = work.commit(&origin, "theirs", &format!("v{version}\n"));
        git.run(&origin, &["push", "-q", &url, "main"]);
        git.run(&clone, &["fetch", "-q", "origin"]);
        assert_eq!(work.git_in(&clone, &["rev-parse", "origin/main"]), theirs);
        work.git_in(&clone, &["fsck", "--full"]);
    }
}

fn shallow_and_partial(client: Client) {
    let (server, work) = (server(), Work::new());
    let git = Git { work: &work, client };
    let origin = work.repository("origin", "sha1");
    many_commits(&work, &origin, 6);
    let url = server.ssh_url("ann/b");
    git.run(&origin, &["push", "-q", &url, "main"]);
    for name in ["uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"] {
        server.cuesta(&["repo", "config", "ann/b", name, "true"]);
    }
    for version in ["0", "2"] {
        set_version(&work, version);
        let shallow = work.path(&format!("shallow{version}"));
        let count = || work.git_in(&shallow, &["rev-list", "--count", "HEAD"]);
        git.run(&origin, &["clone", "-q", "--depth=2", &url, shallow.to_str().unwrap()]);
        assert_eq!(count(), "2");
        git.run(&shallow, &["fetch", "-q", "--deepen=2"]);
        assert_eq!(count(), "4");
        git.run(&shallow, &["fetch", "-q", "--unshallow"]);
        assert_eq!(count(), "7");
        work.git_in(&shallow, &["fsck", "--full"]);
        let partial = work.path(&format!("partial{version}"));
        git.run(
            &origin,
            &[
                "clone",
                "-q",
                "--filter=blob:none",
                "--no-checkout",
                &url,
                partial.to_str().unwrap(),
            ],
        );
        git.run(&partial, &["checkout", "-q", "main"]);
        assert_eq!(
            work.git_in(&partial, &["rev-parse", "HEAD"]),
            work.git_in(&origin, &["rev-parse", "main"])
        );
    }
}

fn pushes(client: Client) {
    let (server, work) = (server(), Work::new());
    let git = Git { work: &work, client };
    let origin = work.repository("origin", "sha1");
    let url = server.ssh_url("ann/b");
    git.run(
        &origin,
        &[
            "push",
            "-q",
            &url,
            "main",
            "main:refs/heads/topic",
            "main:refs/heads/third",
        ],
    );
    // No pack at all.
    git.run(&origin, &["push", "-q", &url, ":topic"]);
    git.run(&origin, &["push", "-q", &url, "main"]);
    work.git_in(&origin, &["commit", "-q", "--amend", "-m", "other"]);
    assert!(
        git.refused(&origin, &["push", &url, "main"])
            .contains("non-fast-forward")
    );
    git.run(&origin, &["push", "-q", "--force", "--atomic", &url, "main", ":third"]);
    let refs = work.git_in(&origin, &["ls-remote", &server.url("ann/b"), "refs/*"]);
    assert_eq!(
        refs,
        format!("{}\trefs/heads/main", work.git_in(&origin, &["rev-parse", "main"]))
    );
    // Refused by the server, in its report.
    server.cuesta(&["repo", "config", "ann/b", "receive.denyDeletes", "true"]);
    let denied = git.refused(&origin, &["push", &url, ":main"]);
    assert!(denied.contains("remote rejected"), "{denied}");
    let bad = work.path("bad");
    work.git_in(&origin, &["clone", "-q", ".", bad.to_str().unwrap()]);
    bad_commit(&work, &bad);
    let denied = git.refused(&bad, &["push", &url, "HEAD:refs/heads/bad"]);
    assert!(
        denied.contains("unpack failed") && denied.contains("missingEmail"),
        "{denied}"
    );
}

/// More than fits in a window, both ways.
fn large(client: Client) {
    let (server, work) = (server(), Work::new());
    let git = Git { work: &work, client };
    let origin = work.repository("origin", "sha1");
    let mut noise = 1u64;
    let mut content = Vec::new();
    while content.len() < 9 << 20 {
        noise = noise
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        content.extend_from_slice(&noise.to_be_bytes()[..4]);
    }
    std::fs::write(origin.join("large"), content).unwrap();
    work.git_in(&origin, &["add", "large"]);
    work.git_in(&origin, &["commit", "-q", "-m", "large"]);
    let url = server.ssh_url("ann/b");
    git.run(&origin, &["push", "-q", &url, "main"]);
    for version in ["0", "2"] {
        set_version(&work, version);
        let clone = work.path(&format!("clone{version}"));
        git.run(&origin, &["clone", "-q", &url, clone.to_str().unwrap()]);
        work.git_in(&clone, &["fsck", "--full"]);
    }
}

fn archives(client: Client) {
    let (server, work) = (server(), Work::new());
    let git = Git { work: &work, client };
    let origin = work.repository("origin", "sha1");
    let url = server.ssh_url("ann/b");
    git.run(&origin, &["push", "-q", &url, "main"]);
    let (ours, stock) = (work.path("ours.tar"), work.path("stock.tar"));
    let remote = format!("--remote={url}");
    git.run(&origin, &["archive", &remote, "-o", ours.to_str().unwrap(), "main"]);
    work.git_in(&origin, &["archive", "-o", stock.to_str().unwrap(), "main"]);
    assert_eq!(std::fs::read(ours).unwrap(), std::fs::read(stock).unwrap());
    let refused = git.refused(&origin, &["archive", &remote, "none"]);
    assert!(refused.contains("none"), "{refused}");
}

fn absent(client: Client) {
    let (server, work) = (
        Server::start_with(&["--ssh-listen", "127.0.0.1:0", "--set", "create_on_push=false"]),
        Work::new(),
    );
    let git = Git { work: &work, client };
    let origin = work.repository("origin", "sha1");
    let url = server.ssh_url("ann/none.git");
    for arguments in [&["ls-remote", &url][..], &["push", &url, "main"]] {
        let said = git.refused(&origin, arguments);
        assert!(said.contains("ERROR: Repository not found."), "{said}");
        assert!(said.contains("Could not read from remote repository"), "{said}");
    }
}
