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
    // Stock git lists some twice.
    lines.dedup();
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

/// Random trees and specifications, some blobs and trees at several paths: what stock git sends, blob by blob.
#[test]
fn sparse_clones_hold_what_stock_ones_do() {
    let (server, work) = (Server::start(), Work::new());
    let (mut random, mut cut) = (Random(20_261_130), 0);
    for case in 0..12 {
        let source = work.repository(&format!("source{case}"), "sha1");
        let stock = format!("file://{}", source.display());
        let url = server.url(&format!("a/r{case}"));
        let names = ["a", "b", "c.x", "d"];
        for _ in 0..1 + random.below(4) {
            for _ in 0..1 + random.below(12) {
                let depth = 1 + random.below(4);
                let parts: Vec<&str> = (0..depth).map(|_| names[random.below(4)]).collect();
                let path = source.join(parts.join("/"));
                if path.is_dir() {
                    std::fs::remove_dir_all(&path).unwrap();
                }
                let mut above = source.clone();
                for part in &parts[..depth - 1] {
                    above.push(part);
                    if above.is_file() {
                        std::fs::remove_file(&above).unwrap();
                    }
                }
                std::fs::create_dir_all(&above).unwrap();
                std::fs::write(&path, format!("{}\n", random.below(9))).unwrap();
            }
            let tokens = ["a", "b", "c.x", "d", "/", "/*", "*", "!", "**/", "\\", "?", "[ab]", " "];
            let line = |random: &mut Random| {
                let count = 1 + random.below(4);
                (0..count)
                    .map(|_| tokens[random.below(tokens.len())])
                    .collect::<String>()
            };
            let lines: Vec<String> = (0..random.below(6)).map(|_| line(&mut random)).collect();
            std::fs::write(source.join("spec"), lines.join("\n")).unwrap();
            work.git_in(&source, &["add", "-A"]);
            work.git_in(&source, &["commit", "-q", "--allow-empty", "-m", "step"]);
        }
        work.git_in(&source, &["push", "-q", &url, "main"]);
        work.git_in(&source, &["config", "uploadpack.allowFilter", "true"]);
        server.cuesta(&[
            "repo",
            "config",
            &format!("a/r{case}"),
            "uploadpack.allowFilter",
            "true",
        ]);
        for (number, filter) in ["sparse:oid=main:spec", "combine:sparse:oid=HEAD:spec+tree:2"]
            .iter()
            .enumerate()
        {
            let filter = format!("--filter={filter}");
            let held = [("ours", &url), ("stock", &stock)].map(|(side, url)| {
                let path = work.path(&format!("clone{case}-{number}-{side}"));
                let (filter, path) = (filter.as_str(), path.to_str().unwrap());
                work.git(&["clone", "-q", "--bare", "--no-local", filter, url, path]);
                let all = ["cat-file", "--batch-check", "--batch-all-objects", "--unordered"];
                let listed = work.git_in(Path::new(path), &all);
                let mut objects: Vec<String> = listed.lines().map(str::to_owned).collect();
                objects.sort();
                objects
            });
            let spec = std::fs::read_to_string(source.join("spec")).unwrap();
            let all = work
                .git_in(&source, &["rev-list", "--objects", "--all"])
                .lines()
                .count();
            if number == 0 {
                cut += usize::from(held[0].len() < all);
                assert_eq!(held[0], held[1], "case {case}: {spec:?}");
            } else {
                // Of combinations stock git may leave out what each part lets pass at another path.
                assert!(
                    held[1].iter().all(|object| held[0].contains(object)),
                    "case {case}: {spec:?}"
                );
            }
        }
    }

    assert!(
        (4..12).contains(&cut),
        "{cut} of the specifications leave something out"
    );
}

/// Numbers that are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

#[test]
fn sparse_clones_fetch_what_they_lack_and_more() {
    let both = Both::new();
    std::fs::write(both.source.join("spec"), "/*\n!/dir/\n/dir/sub/f1\n").unwrap();
    both.work.git_in(&both.source, &["add", "spec"]);
    both.commit(9);
    both.push();
    let blob = both.work.git_in(&both.source, &["rev-parse", "main:spec"]);
    for version in VERSIONS {
        for (number, name) in [&*blob, "main:spec", "refs/heads/main:spec", "HEAD:spec"]
            .iter()
            .enumerate()
        {
            let filter = format!("--filter=sparse:oid={name}");
            let clone = ["--no-checkout", filter.as_str()];
            let ours = both.clones(
                &format!("sparse{number}"),
                version,
                &clone,
                &[&["checkout", "-q", "main"]],
            );
            assert_eq!(std::fs::read_to_string(ours.join("file")).unwrap(), "file 9\n");
        }
        let filter = format!("--filter=sparse:oid={blob}");
        both.clones("sparse-shallow", version, &["--depth=1", "--no-checkout", &filter], &[]);
        let later = both.clones(
            "sparse-later",
            version,
            &["--no-checkout", "--single-branch", "-b", "side", &filter],
            &[],
        );
        both.work.git_in(&later, &["fetch", "-q", "origin", "main"]);
        both.work.git_in(&later, &["fsck"]);
        let said = |name: &str| {
            let args = [
                "clone",
                "--no-checkout",
                &format!("--filter=sparse:oid={name}"),
                &both.url(),
                "never",
            ];
            let refused = both.work.try_git_in(&both.source, &args);
            assert!(!refused.status.success());
            String::from_utf8_lossy(&refused.stderr).into_owned()
        };
        for name in ["main:none", "none:spec", "main:file/x", &"1".repeat(40), ""] {
            let expected = format!("unable to access sparse blob in '{name}'");
            assert!(said(name).contains(&expected), "{}", said(name));
        }
        let tree = both.work.git_in(&both.source, &["rev-parse", "main:dir"]);
        let expected = format!("unable to parse sparse filter data in {tree}");
        assert!(said("main:dir").contains(&expected) && said(&tree).contains(&expected));
    }
    both.server
        .cuesta(&["repo", "config", "a/b", "uploadpack.allowAnySHA1InWant", "false"]);
    both.server
        .cuesta(&["repo", "config", "a/b", "uploadpack.hideRefs", "refs/heads/main"]);
    let args = ["clone", &format!("--filter=sparse:oid={blob}"), &both.url(), "never"];
    let refused = both.work.try_git_in(&both.source, &args);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("unable to access sparse blob"),
        "a hidden ref alone reaches it: {said}"
    );
    both.server
        .cuesta(&["repo", "config", "a/b", "uploadpackfilter.sparse:oid.allow", "false"]);
    let refused = both.work.try_git_in(&both.source, &args);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("filter 'sparse:oid' not supported"), "{said}");
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

/// Where `receive.shallowUpdate` lets a push end somewhere, the repository's history ends there, too.
#[test]
fn shallow_pushes_move_the_boundary_where_they_may() {
    let both = Both::new();
    let ours = both.work.path("cut");
    let stock = both.work.path("stock.git");
    let source = format!("file://{}", both.source.display());
    let depth = ["clone", "-q", "--depth=2", &source, ours.to_str().unwrap()];
    both.work.git(&depth);
    both.work.git(&["init", "-q", "--bare", stock.to_str().unwrap()]);
    let git = |arguments: &[&str]| both.work.git_in(&ours, arguments);
    let said = |url: &str, what: &str| {
        let output = both.work.try_git_in(&ours, &["push", "--porcelain", url, what]);
        let lines = String::from_utf8(output.stdout).unwrap();
        let lines = lines.lines().filter(|line| !line.starts_with("To ")).map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    let (mirror, bare) = (both.server.url("cut/off"), stock.to_str().unwrap());
    git(&["push", "-q", &mirror, "HEAD^{tree}:refs/x/tree"]);
    git(&["push", "-q", bare, "HEAD^{tree}:refs/x/tree"]);
    for [value, expected] in [["false", "(shallow update not allowed)"], ["true", "[new branch]"]] {
        both.work.git_in(&stock, &["config", "receive.shallowUpdate", value]);
        both.server
            .cuesta(&["repo", "config", "cut/off", "receive.shallowUpdate", value]);
        let answers = [&mirror, bare].map(|url| said(url, "HEAD:refs/heads/new"));
        assert_eq!(answers[0], answers[1]);
        assert!(answers[0].iter().any(|line| line.contains(expected)), "{answers:?}");
    }
    let boundary = |url: &str, branch: &str| {
        let path = both.work.path("boundary");
        let _ = std::fs::remove_dir_all(&path);
        let clone = ["clone", "-q", "--no-local", "-b", branch, url, path.to_str().unwrap()];
        both.work.git(&clone);
        both.work.git_in(&path, &["fsck", "--full"]);
        (shallow(&path), both.objects(&path))
    };
    let file = format!("file://{}", stock.display());
    let cut = boundary(&mirror, "new");
    assert_eq!(cut, boundary(&file, "new"));
    assert!(!cut.0.is_empty());
    // What is known to end there needs no leave, and does so for whole histories, too.
    both.server
        .cuesta(&["repo", "config", "cut/off", "receive.shallowUpdate", "false"]);
    both.work.commit(&ours, "on top", "x\n");
    for url in [&mirror, bare] {
        git(&["push", "-q", url, "HEAD:refs/heads/new"]);
        both.work
            .git_in(&both.source, &["push", "-q", url, "main:refs/heads/whole"]);
    }
    for branch in ["new", "whole"] {
        assert_eq!(boundary(&mirror, branch), boundary(&file, branch), "{branch}");
    }
    both.server.cuesta(&["fsck", "cut/off"]);
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
