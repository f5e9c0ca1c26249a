//! Repositories that a push makes: not before it succeeds, and with a `HEAD` that names what was pushed.

#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use support::{Server, Work};

fn is_nowhere(server: &Server) {
    assert_eq!(server.cuesta(&["repo", "list"]), "");
    for version in ["", "version=2"] {
        let headers = [("Git-Protocol", version)];
        let fetch = server.get("GET", "/a/b/info/refs?service=git-upload-pack", &headers);
        assert_eq!((fetch.status, fetch.text().as_str()), (404, "repository not found\n"));
        let push = server.get("GET", "/a/b/info/refs?service=git-receive-pack", &headers);
        assert!(push.status == 200 && push.text().contains(" capabilities^{}\0"));
    }
}

/// The commands of a push, without their end.
fn command(name: &str) -> Vec<u8> {
    let line = format!("{} {} {name}\0report-status", "0".repeat(40), "1".repeat(40));
    format!("{:04x}{line}", line.len() + 4).into_bytes()
}

#[test]
fn what_is_refused_leaves_no_repository() {
    let (server, work) = (Server::start(), Work::new());
    let repository = work.repository("r", "sha1");
    let url = server.url("a/b");
    let kind = ("Content-Type", "application/x-git-receive-pack-request");
    let to_main = command("refs/heads/main");
    let bodies: [&[u8]; 4] = [
        b"0000",
        &[&to_main[..], b"0000PACK"].concat(),
        &[&to_main[..], b"0000no pack at all, but long enough"].concat(),
        b"0009hello",
    ];
    for body in bodies {
        let answer = server.request("POST", "/a/b/git-receive-pack", &[kind], body);
        assert_eq!(answer.status, 200);
        is_nowhere(&server);
    }
    for refspec in ["main:refs/one", ":refs/heads/gone"] {
        assert!(!work.try_git_in(&repository, &["push", &url, refspec]).status.success());
        is_nowhere(&server);
    }
    work.git_in(&repository, &["push", "-q", "--dry-run", &url, "main"]);
    is_nowhere(&server);
    work.git_in(&repository, &["push", "-q", &url, "main"]);
    assert!(server.cuesta(&["repo", "list"]).contains("a/b"));
}

#[test]
fn a_client_that_goes_away_leaves_no_repository_and_nobody_sees_one_meanwhile() {
    let server = Server::start();
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = "POST /a/b/git-receive-pack HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\
        Content-Type: application/x-git-receive-pack-request\r\n\r\n";
    let body = [&command("refs/heads/main")[..], b"0000PACK\0\0\0\x02"].concat();
    stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
    is_nowhere(&server);
    stream.shutdown(Shutdown::Write).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
    is_nowhere(&server);
}

#[test]
fn a_clone_checks_out_what_was_pushed_first() {
    let (server, work) = (Server::start(), Work::new());
    let repository = work.repository("r", "sha1");
    let pushes: [(&[&str], &str); 3] = [
        (&["main:topic", "main"], "main"),
        (&["main:a", "main:master"], "master"),
        (&["main:topic", "main:z"], "topic"),
    ];
    for (number, (refspecs, head)) in pushes.into_iter().enumerate() {
        let url = server.url(&format!("a/made{number}"));
        work.git_in(&repository, &[&["push", "-q", &url], refspecs].concat());
        let shown = work.git(&["ls-remote", "--symref", &url, "HEAD"]);
        assert!(shown.starts_with(&format!("ref: refs/heads/{head}\tHEAD")), "{shown}");
        let clone = format!("clone{number}");
        work.git(&["clone", "-q", &url, &clone]);
        assert!(work.path(&clone).join("file").exists());
    }
}

/// Writes an object that `git` would not make.
fn literal(work: &Work, repository: &Path, content: &[u8]) -> String {
    let path = work.path("literal");
    std::fs::write(&path, content).unwrap();
    let path = path.to_str().unwrap();
    work.git_in(repository, &["hash-object", "-t", "tree", "-w", "--literally", path])
}

fn entry(mode: &str, name: &str, hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    let oid = digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
    [format!("{mode} {name}\0").as_bytes(), &oid.collect::<Vec<_>>()].concat()
}

/// As `git receive-pack` says it, also to a client that wants no progress; but not without end.
#[test]
fn what_fsck_lets_pass_is_told() {
    let (server, work) = (Server::start(), Work::new());
    let repository = work.repository("r", "sha1");
    let blob = work.git_in(&repository, &["rev-parse", "main:file"]);
    let odd: Vec<String> = (100..220)
        .map(|n| literal(&work, &repository, &entry("100664", &format!("f{n}"), &blob)))
        .collect();
    let push = |trees: &[String], options: &[&str]| {
        let entries = trees.iter().enumerate();
        let entries = entries.map(|(n, tree)| entry("40000", &format!("d{:03}", n + 100), tree));
        let root = literal(&work, &repository, &entries.collect::<Vec<_>>().concat());
        let commit = work.git_in(&repository, &["commit-tree", &root, "-m", "odd"]);
        let refspec = format!("{commit}:refs/heads/odd{}", trees.len());
        let url = server.url("a/b");
        let pushed = work.try_git_in(&repository, &[&["push"], options, &[&url, &refspec]].concat());
        assert!(pushed.status.success());
        String::from_utf8(pushed.stderr).unwrap()
    };
    let warning = |oid: &String| format!("remote: warning: object {oid}: badFilemode: contains bad file modes");
    for (count, options) in [(1, &[][..]), (2, &["--quiet"])] {
        let shown = push(&odd[..count], options);
        for oid in &odd[..count] {
            assert_eq!(shown.matches(&warning(oid)).count(), 1, "{shown}");
        }
    }
    let shown = push(&odd, &[]);
    assert_eq!(shown.matches("badFilemode").count(), 100, "{shown}");
}
