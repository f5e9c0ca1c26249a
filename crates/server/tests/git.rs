//! Stock git against the built binary: what people do every day.

#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod support;

use std::path::Path;
use support::{Server, Work};

/// Pushes `repository` and clones it again; the clone must be whole and equal.
fn round_trip(server: &Server, work: &Work, repository: &Path, name: &str) {
    let url = server.url(name);
    work.git_in(repository, &["push", "-q", &url, "--all"]);
    let clone = work.path(&format!("clone-of-{}", name.replace('/', "-")));
    work.git(&["clone", "-q", &url, clone.to_str().unwrap()]);
    work.git_in(&clone, &["fsck", "--full", "--strict"]);
    assert_eq!(
        work.git_in(&clone, &["rev-parse", "HEAD"]),
        work.git_in(repository, &["rev-parse", "main"])
    );
}

#[test]
fn push_and_clone_in_every_version_and_format() {
    let (server, work) = (Server::start(), Work::new());
    for format in ["sha1", "sha256"] {
        let repository = work.repository(format, format);
        for version in ["0", "1", "2"] {
            let name = format!("{format}/v{version}.git");
            server.cuesta(&["repo", "create", &name, "--object-format", format]);
            work.git(&["config", "--global", "protocol.version", version]);
            round_trip(&server, &work, &repository, &name);
        }
    }
}

#[test]
fn the_first_push_makes_the_repository() {
    let (server, work) = (Server::start(), Work::new());
    let repository = work.repository("r", "sha1");
    round_trip(&server, &work, &repository, "alice/notes.git");
    assert_eq!(server.cuesta(&["repo", "list"]), "alice/notes\n");
    // Every spelling is the same repository.
    for spelling in ["alice/notes", "alice/notes/", "alice/notes.git/", "alice/%6eotes"] {
        assert!(
            work.git(&["ls-remote", &server.url(spelling), "refs/heads/main"])
                .ends_with("refs/heads/main")
        );
    }
}

#[test]
fn fetches_bring_what_is_new() {
    let (server, work) = (Server::start(), Work::new());
    let repository = work.repository("r", "sha1");
    let url = server.url("a/b");
    work.git_in(&repository, &["push", "-q", &url, "main"]);
    for version in ["0", "1", "2"] {
        work.git(&["config", "--global", "protocol.version", version]);
        let clone = work.path(&format!("clone{version}"));
        work.git(&["clone", "-q", &url, clone.to_str().unwrap()]);
        for step in 0..3 {
            let pushed = work.commit(&repository, "more", &format!("version {version} step {step}\n"));
            work.git_in(&repository, &["push", "-q", &url, "main"]);
            work.git_in(&clone, &["pull", "-q"]);
            assert_eq!(work.git_in(&clone, &["rev-parse", "HEAD"]), pushed);
        }
        // Nothing new.
        work.git_in(&clone, &["fetch", "-q"]);
        work.git_in(&clone, &["fsck", "--full"]);
    }
}

#[test]
fn tags_come_with_what_they_name() {
    let (server, work) = (Server::start(), Work::new());
    let repository = work.repository("r", "sha1");
    let url = server.url("a/b");
    work.git_in(&repository, &["push", "-q", &url, "main"]);
    let clone = work.path("clone");
    work.git(&["clone", "-q", &url, clone.to_str().unwrap()]);
    work.commit(&repository, "second", "2\n");
    work.git_in(&repository, &["tag", "-a", "-m", "one", "v1"]);
    work.git_in(&repository, &["tag", "-a", "-m", "of a tag", "v1-again", "v1"]);
    work.git_in(&repository, &["tag", "of-a-tree", "HEAD^{tree}"]);
    work.git_in(&repository, &["tag", "of-a-blob", "HEAD:file"]);
    work.git_in(&repository, &["push", "-q", &url, "main", "--tags"]);
    work.git_in(&clone, &["pull", "-q"]);
    assert_eq!(
        work.git_in(&clone, &["show-ref", "--tags"]),
        work.git_in(&repository, &["show-ref", "--tags"])
    );
    assert!(work.git(&["ls-remote", &url]).contains("refs/tags/v1^{}"));
    work.git_in(&clone, &["fsck", "--full"]);
}

#[test]
fn refs_are_deleted_forced_and_refused() {
    let (server, work) = (Server::start(), Work::new());
    let repository = work.repository("r", "sha1");
    let url = server.url("a/b");
    let refs = || work.git(&["ls-remote", &url, "refs/*"]);
    work.git_in(&repository, &["push", "-q", &url, "main", "main:refs/heads/topic"]);
    work.git_in(&repository, &["push", "-q", &url, ":topic"]);
    assert!(!refs().contains("topic"));
    let before = refs();
    work.git_in(&repository, &["commit", "-q", "--amend", "-m", "other"]);
    let refused = work.try_git_in(&repository, &["push", "-q", &url, "main"]);
    assert!(!refused.status.success());
    assert_eq!(refs(), before);
    work.git_in(&repository, &["push", "-q", "--force", &url, "main"]);
    assert!(refs().starts_with(&work.git_in(&repository, &["rev-parse", "main"])));
    // A name below another's.
    let conflict = work.try_git_in(&repository, &["push", &url, "main:refs/heads/main/sub"]);
    assert!(
        String::from_utf8_lossy(&conflict.stderr).contains("remote rejected"),
        "{conflict:?}"
    );
}

#[test]
fn atomic_pushes_are_all_or_nothing() {
    let (server, work) = (Server::start(), Work::new());
    let repository = work.repository("r", "sha1");
    let url = server.url("a/b");
    work.git_in(&repository, &["push", "-q", &url, "main"]);
    let both = [
        "push",
        "--atomic",
        &url,
        "main:refs/heads/one",
        "main:refs/heads/main/two",
    ];
    assert!(!work.try_git_in(&repository, &both).status.success());
    assert!(!work.git(&["ls-remote", &url]).contains("refs/heads/one"));
    work.git_in(
        &repository,
        &[
            "push",
            "-q",
            "--atomic",
            &url,
            "main:refs/heads/one",
            "main:refs/heads/two",
        ],
    );
    assert!(work.git(&["ls-remote", &url]).contains("refs/heads/two"));
}

#[test]
fn an_empty_repository_tells_its_branch() {
    let (server, work) = (Server::start(), Work::new());
    server.cuesta(&["repo", "create", "a/b"]);
    server.cuesta(&["repo", "set-head", "a/b", "refs/heads/trunk"]);
    let clone = work.path("clone");
    work.git(&["clone", "-q", &server.url("a/b"), clone.to_str().unwrap()]);
    assert_eq!(work.git_in(&clone, &["symbolic-ref", "HEAD"]), "refs/heads/trunk");
}

#[test]
fn large_pushes_come_in_chunks() {
    let (server, work) = (Server::start(), Work::new());
    let repository = work.repository("r", "sha1");
    let noise: Vec<u8> = (0..400_000u64)
        .flat_map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17).to_le_bytes())
        .collect();
    std::fs::write(repository.join("noise"), noise).unwrap();
    work.git_in(&repository, &["add", "noise"]);
    work.git_in(&repository, &["commit", "-q", "-m", "noise"]);
    work.git_in(&repository, &["config", "http.postBuffer", "65536"]);
    round_trip(&server, &work, &repository, "a/b");
}

#[test]
fn negotiations_over_a_kilobyte_come_deflated() {
    let (server, work) = (Server::start(), Work::new());
    let repository = work.repository("r", "sha1");
    let url = server.url("a/b");
    for step in 0..40 {
        work.commit(&repository, "shared", &format!("{step}\n"));
    }
    work.git_in(&repository, &["push", "-q", &url, "main"]);
    let clone = work.path("clone");
    work.git(&["clone", "-q", &url, clone.to_str().unwrap()]);
    for step in 0..40 {
        work.commit(&clone, "only here", &format!("clone {step}\n"));
    }
    let pushed = work.commit(&repository, "new", "new\n");
    work.git_in(&repository, &["push", "-q", &url, "main"]);
    for version in ["0", "2"] {
        work.git_in(
            &clone,
            &[
                "-c",
                &format!("protocol.version={version}"),
                "fetch",
                "-q",
                &url,
                "main:refs/heads/theirs",
            ],
        );
        assert_eq!(work.git_in(&clone, &["rev-parse", "theirs"]), pushed);
        work.git_in(&clone, &["update-ref", "-d", "refs/heads/theirs"]);
    }
    work.git_in(&clone, &["fsck", "--full"]);
}

#[test]
fn what_was_acknowledged_is_there_after_a_crash_and_after_a_stop() {
    let (mut server, work) = (Server::start(), Work::new());
    let repository = work.repository("r", "sha1");
    work.git_in(&repository, &["push", "-q", &server.url("a/b"), "main"]);
    server.restart();
    let pushed = work.commit(&repository, "after", "after\n");
    work.git_in(&repository, &["push", "-q", &server.url("a/b"), "main"]);
    assert!(server.stop().success());
    // What was small is in the bucket now.
    let layers = server.cuesta(&["layers", "a/b"]);
    assert!(layers.contains("bucket") && !layers.contains("ledger"), "{layers}");
    server.restart();
    let clone = work.path("clone");
    work.git(&["clone", "-q", &server.url("a/b"), clone.to_str().unwrap()]);
    assert_eq!(work.git_in(&clone, &["rev-parse", "HEAD"]), pushed);
    work.git_in(&clone, &["fsck", "--full"]);
}

#[test]
fn commands_see_what_the_server_serves() {
    let (server, work) = (Server::start(), Work::new());
    let repository = work.repository("r", "sha1");
    work.git_in(&repository, &["push", "-q", &server.url("a/b"), "main"]);
    let blob = work.git_in(&repository, &["rev-parse", "HEAD:file"]);
    assert_eq!(server.cuesta(&["cat", "a/b", &blob]), "a file\n");
    assert!(server.cuesta(&["layers", "a/b"]).lines().count() >= 2);
    assert!(server.cuesta(&["repo", "show", "a/b"]).contains("refs/heads/main"));
    server.cuesta(&["repo", "rename", "a/b", "c/d"]);
    assert!(
        !work
            .try_git_in(&repository, &["ls-remote", &server.url("a/b")])
            .status
            .success()
    );
    work.git(&["ls-remote", &server.url("c/d")]);
    server.cuesta(&["repo", "delete", "c/d"]);
    assert!(
        !work
            .try_git_in(&repository, &["ls-remote", &server.url("c/d")])
            .status
            .success()
    );
}

#[test]
fn commands_reach_a_server_with_a_long_path() {
    let server = Server::start_far_down();
    server.cuesta(&["repo", "create", "a/b"]);
    assert_eq!(server.cuesta(&["repo", "list"]), "a/b\n");
}

#[test]
fn one_server_owns_a_data_directory() {
    let server = Server::start();
    let second = server.try_cuesta(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(!second.status.success());
    assert!(String::from_utf8_lossy(&second.stderr).contains("is in use"));
}
