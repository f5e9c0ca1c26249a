//! Shallow and partial clones by stock git from the built binary, beside those it makes of the same repository itself.

#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod support;

use std::path::{Path, PathBuf};
use support::{Server, Work};

const VERSIONS: [&str; 2] = ["0", "2"];

/// A history with a merge, a tag and files in directories, served by stock git (from its path) and by us.
struct Both {
    server: Server,
    work: Work,
    source: PathBuf,
}

impl Both {
    fn new() -> Self {
        let (server, work) = (Server::start(), Work::new());
        let source = work.repository("source", "sha1");
        let both = Self { server, work, source };
        for step in 0..6 {
            both.commit(step);
        }
        both.work.git_in(&both.source, &["tag", "-a", "-m", "six", "six"]);
        both.work
            .git_in(&both.source, &["checkout", "-q", "-b", "side", "HEAD~3"]);
        both.commit(20);
        both.work.git_in(&both.source, &["checkout", "-q", "main"]);
        both.commit(7);
        both.work
            .git_in(&both.source, &["merge", "-q", "-X", "ours", "-m", "merge", "side"]);
        both.commit(8);
        both.push();
        let config = [
            ["uploadpack.allowFilter", "true"],
            ["uploadpack.allowAnySHA1InWant", "true"],
        ];
        for [key, value] in config {
            both.work.git_in(&both.source, &["config", key, value]);
            both.server.cuesta(&["repo", "config", "a/b", key, value]);
        }
        both
    }

    fn commit(&self, step: u32) {
        std::fs::create_dir_all(self.source.join("dir/sub")).unwrap();
        std::fs::write(
            self.source.join(format!("dir/sub/f{}", step % 3)),
            format!("{step}\n").repeat(9 * step as usize),
        )
        .unwrap();
        self.work.git_in(&self.source, &["add", "dir"]);
        let date = format!("@{} +0000", 1_700_000_000 + step);
        std::fs::write(self.source.join("file"), format!("file {step}\n")).unwrap();
        self.work.git_in(&self.source, &["add", "file"]);
        let commit = ["commit", "-q", "-m", "step", "--date", &date];
        self.work.git_in(&self.source, &commit);
    }

    fn push(&self) {
        self.work
            .git_in(&self.source, &["push", "-q", &self.url(), "--all", "--follow-tags"]);
    }

    fn url(&self) -> String {
        self.server.url("a/b")
    }

    /// Clones from both sides, then runs more commands in both clones; each step must leave both equal.
    fn clones(&self, name: &str, version: &str, clone: &[&str], steps: &[&[&str]]) -> PathBuf {
        let protocol = format!("protocol.version={version}");
        let stock = format!("file://{}", self.source.display());
        let made = [("ours", self.url()), ("stock", stock)].map(|(side, url)| {
            let path = self.work.path(&format!("{name}-{version}-{side}"));
            let mut args = vec!["-c", &protocol, "clone", "-q"];
            args.extend(clone);
            args.extend([url.as_str(), path.to_str().unwrap()]);
            self.work.git(&args);
            path
        });
        self.compare(&made, &[clone]);
        for step in steps {
            for path in &made {
                let mut args = vec!["-c", &protocol];
                args.extend(*step);
                self.work.git_in(path, &args);
            }
            self.compare(&made, &[clone, step]);
        }
        let [ours, _] = made;
        ours
    }

    fn compare(&self, [ours, stock]: &[PathBuf; 2], what: &[&[&str]]) {
        assert_eq!(shallow(ours), shallow(stock), "{what:?}");
        let objects = |path: &Path| self.objects(path);
        assert_eq!(objects(ours), objects(stock), "{what:?}");
        self.work.git_in(ours, &["fsck", "--full", "--no-dangling"]);
    }

    /// What a clone holds of what its refs reach, missing objects by name.
    fn objects(&self, path: &Path) -> Vec<String> {
        let list = self
            .work
            .git_in(path, &["rev-list", "--objects", "--all", "--missing=print"]);
        let mut ids: Vec<String> = list
            .lines()
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect();
        ids.sort();
        ids
    }
}

fn shallow(path: &Path) -> Vec<String> {
    let listed = std::fs::read_to_string(path.join(".git/shallow")).unwrap_or_default();
    let mut lines: Vec<String> = listed.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn shallow_clones_deepen_as_stock_ones() {
    let both = Both::new();
    for version in VERSIONS {
        both.clones(
            "one",
            version,
            &["--depth=1"],
            &[&["fetch", "-q", "--deepen=1"], &["fetch", "-q", "--unshallow"]],
        );
        both.clones(
            "five",
            version,
            &["--depth=5", "--no-single-branch"],
            &[&["fetch", "-q", "--depth=1"], &["fetch", "-q", "--depth=3"]],
        );
        both.clones(
            "exclude",
            version,
            &["--shallow-exclude=six"],
            &[&["fetch", "-q", "--unshallow"]],
        );
        let since = ["--shallow-since=2000-01-01", "-b", "side"];
        both.clones("since", version, &since, &[&["fetch", "-q", "origin", "main:new"]]);
    }
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let both = Both::new();
    for version in VERSIONS {
        let protocol = format!("protocol.version={version}");
        let url = both.url();
        for (how, why) in [
            ("--shallow-exclude=nothing", "deepen-not is not a ref: nothing"),
            ("--shallow-exclude=main", "no commits selected for shallow requests"),
        ] {
            let args = ["-c", &protocol, "clone", how, &url, "never"];
            let output = both.work.try_git_in(&both.source, &args);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && said.contains(why), "{said}");
        }
    }
}

#[test]
fn partial_clones_fetch_what_they_lack() {
    let both = Both::new();
    let filters = [
        "blob:none",
        "blob:limit=40",
        "tree:0",
        "tree:2",
        "combine:tree:3+blob:none",
    ];
    for version in VERSIONS {
        for (number, filter) in filters.into_iter().enumerate() {
            let filter = format!("--filter={filter}");
            let name = format!("partial{number}");
            let clone = ["--no-checkout", filter.as_str()];
            let ours = both.clones(&name, version, &clone, &[&["checkout", "-q", "main"]]);
            assert_eq!(std::fs::read_to_string(ours.join("file")).unwrap(), "file 8\n");
            // All of the history's files, one lazy fetch after the other.
            both.work.git_in(&ours, &["log", "-p", "--all"]);
        }
        both.clones("both", version, &["--depth=2", "--filter=blob:none"], &[]);
    }
}

#[test]
fn filters_are_off_unless_they_are_allowed() {
    let both = Both::new();
    both.server
        .cuesta(&["repo", "config", "a/b", "uploadpackfilter.tree.allow", "false"]);
    let clone = |filter: &str, name: &str| {
        let args = ["clone", "--no-checkout", filter, &both.url(), name];
        both.work.try_git_in(&both.source, &args)
    };
    let banned = clone("--filter=tree:0", "banned");
    let said = String::from_utf8_lossy(&banned.stderr);
    assert!(
        !banned.status.success() && said.contains("filter 'tree' not supported"),
        "{said}"
    );
    both.server
        .cuesta(&["repo", "config", "a/b", "uploadpack.allowFilter", "false"]);
    let ignored = clone("--filter=blob:none", "whole");
    let said = String::from_utf8_lossy(&ignored.stderr);
    assert!(
        ignored.status.success() && said.contains("filtering not recognized"),
        "{said}"
    );
}

#[test]
fn shallow_clones_push() {
    let both = Both::new();
    for version in VERSIONS {
        let ours = both.clones("push", version, &["--depth=1"], &[]);
        let pushed = both.work.commit(&ours, "from a shallow clone", version);
        both.work
            .git_in(&ours, &["push", "-q", "origin", "HEAD:refs/heads/new"]);
        both.work.git_in(&both.source, &["fetch", "-q", &both.url(), "new"]);
        assert_eq!(both.work.git_in(&both.source, &["rev-parse", "FETCH_HEAD"]), pushed);
        both.work.git_in(&ours, &["push", "-q", "origin", ":refs/heads/new"]);
        // Where the boundary is unknown, a root would be made up.
        let elsewhere = both.server.url("else/where");
        let refused = both
            .work
            .try_git_in(&ours, &["push", &elsewhere, "HEAD:refs/heads/new"]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && said.contains("shallow update not allowed"),
            "{said}"
        );
    }
}

/// A repository whose own history ends somewhere tells so to its clones.
#[test]
fn a_shallow_repository_is_cloned() {
    let both = Both::new();
    let bare = both.work.path("shallow.git");
    let stock = format!("file://{}", both.source.display());
    both.work
        .git(&["clone", "-q", "--bare", "--depth=3", &stock, bare.to_str().unwrap()]);
    both.server.cuesta(&["import", "cut/off", bare.to_str().unwrap()]);
    let url = both.server.url("cut/off");
    for version in VERSIONS {
        let protocol = format!("protocol.version={version}");
        for (name, more) in [("all", None), ("two", Some("--depth=2")), ("nine", Some("--depth=9"))] {
            let made = [("ours", &url), ("theirs", &format!("file://{}", bare.display()))].map(|(side, from)| {
                let path = both.work.path(&format!("{name}-{version}-{side}"));
                let mut args = vec!["-c", &protocol, "clone", "-q"];
                args.extend(more);
                args.extend([from.as_str(), path.to_str().unwrap()]);
                both.work.git(&args);
                path
            });
            both.compare(&made, &[]);
        }
    }
}
