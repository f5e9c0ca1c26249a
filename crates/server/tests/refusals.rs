//! What is refused, and what the client gets to see of it.

#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use support::{Answer, Server, Work, empty_pack};

const RECEIVE: (&str, &str) = ("Content-Type", "application/x-git-receive-pack-request");

/// The commands of a push that creates `name` at an object nobody has.
fn creation(name: &str, capabilities: &str) -> Vec<u8> {
    let line = format!("{} {} {name}\0{capabilities}", "0".repeat(40), "1".repeat(40));
    format!("{:04x}{line}0000", line.len() + 4).into_bytes()
}

fn push(server: &Server, body: &[u8]) -> Answer {
    server.request("POST", "/a/b/git-receive-pack", &[RECEIVE], body)
}

#[test]
fn broken_packs_are_told_of_in_the_report() {
    let server = Server::start();
    let mut truncated = empty_pack();
    truncated.pop();
    let mut flipped = empty_pack();
    flipped[12] ^= 1;
    for pack in [
        &b""[..],
        b"PACK",
        b"no pack at all, but long enough",
        &truncated,
        &flipped,
    ] {
        let answer = push(
            &server,
            &[&creation("refs/heads/main", "report-status side-band-64k"), pack].concat(),
        );
        let text = answer.text();
        assert_eq!(answer.status, 200);
        assert!(text.contains("unpack ") && !text.contains("unpack ok"), "{text}");
        assert!(text.contains("ng refs/heads/main unpacker error\n"), "{text}");
        assert!(text.ends_with("00000000"), "{text}");
    }
}

#[test]
fn values_nobody_has_are_refused_by_name() {
    let server = Server::start();
    let answer = push(
        &server,
        &[creation("refs/heads/main", "report-status"), empty_pack()].concat(),
    );
    assert_eq!(
        answer.text(),
        "000eunpack ok\n0031ng refs/heads/main missing necessary objects\n0000"
    );
    let funny = push(
        &server,
        &[creation("refs/heads/a..b", "report-status"), empty_pack()].concat(),
    );
    assert!(funny.text().contains("ng refs/heads/a..b "), "{}", funny.text());
}

#[test]
fn broken_commands_are_told_of_on_the_band_that_is_read() {
    let server = Server::start();
    let answer = push(&server, b"0009hello");
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("ERR "), "{}", answer.text());
    let format = creation("refs/heads/main", "report-status side-band-64k object-format=sha256");
    let refused = push(&server, &format).text();
    assert!(
        refused.get(4..5) == Some("\u{3}") && refused.contains("unsupported object format"),
        "{refused:?}"
    );
}

#[test]
fn a_push_that_is_too_large_ends_with_a_reason() {
    let (server, work) = (Server::start_with(&["--set", "push_bytes_max=64KiB"]), Work::new());
    let repository = work.repository("r", "sha1");
    work.git_in(&repository, &["push", "-q", &server.url("a/b"), "main"]);
    let noise: Vec<u8> = (0..1_000_000u64)
        .flat_map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17).to_le_bytes())
        .collect();
    std::fs::write(repository.join("noise"), noise).unwrap();
    work.git_in(&repository, &["add", "noise"]);
    work.git_in(&repository, &["commit", "-q", "-m", "noise"]);
    let refused = work.try_git_in(&repository, &["push", &server.url("a/b"), "main"]);
    let shown = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    assert!(
        shown.contains("exceeds maximum allowed size") && shown.contains("unpacker error"),
        "{shown}"
    );
}

#[test]
fn unknown_objects_cannot_be_fetched() {
    let (server, work) = (Server::start(), Work::new());
    let repository = work.repository("r", "sha1");
    let url = server.url("a/b");
    work.git_in(&repository, &["push", "-q", &url, "main"]);
    let absent = "1".repeat(40);
    let refused = work.try_git_in(&repository, &["-c", "protocol.version=2", "fetch", &url, &absent]);
    let shown = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && shown.contains(&format!("remote error: upload-pack: not our ref {absent}")),
        "{shown}"
    );
    // git itself would not even ask over v0.
    let body = format!("0032want {absent}\n00000009done\n");
    let kind = ("Content-Type", "application/x-git-upload-pack-request");
    let answer = server.request("POST", "/a/b/git-upload-pack", &[kind], body.as_bytes());
    assert!(
        answer
            .text()
            .ends_with(&format!("ERR upload-pack: not our ref {absent}")),
        "{}",
        answer.text()
    );
}

#[test]
fn settings_of_a_repository_bind_pushes() {
    let (server, work) = (Server::start(), Work::new());
    let repository = work.repository("r", "sha1");
    let url = server.url("a/b");
    work.git_in(&repository, &["push", "-q", &url, "main", "main:refs/secret/one"]);
    server.cuesta(&["repo", "config", "a/b", "receive.denyNonFastForwards", "true"]);
    server.cuesta(&["repo", "config", "a/b", "transfer.hideRefs", "refs/secret"]);
    assert_eq!(
        server.cuesta(&["repo", "config", "a/b", "receive.denynonfastforwards"]),
        "true\n"
    );
    work.git_in(&repository, &["commit", "-q", "--amend", "-m", "other"]);
    let refusal = |arguments: &[&str]| {
        let refused = work.try_git_in(&repository, arguments);
        assert!(!refused.status.success());
        String::from_utf8_lossy(&refused.stderr).into_owned()
    };
    assert!(refusal(&["push", "--force", &url, "main"]).contains("non-fast-forward"));
    assert!(refusal(&["push", &url, ":refs/secret/one"]).contains("deny deleting a hidden ref"));
    for version in ["0", "2"] {
        let version = format!("protocol.version={version}");
        assert!(!work.git(&["-c", &version, "ls-remote", &url]).contains("secret"));
    }
    server.cuesta(&["repo", "config", "a/b", "receive.denynonfastforwards", "--unset"]);
    work.git_in(&repository, &["push", "-q", "--force", &url, "main"]);
}

#[test]
fn a_body_is_asked_for_before_it_is_sent() {
    let server = Server::start();
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = "POST /a/b/git-receive-pack HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\n\
        Content-Type: application/x-git-receive-pack-request\r\nContent-Length: 4\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"0000").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(Answer::parse(&answer).status, 200);
    // A wrong type is refused before the body is asked for.
    let refused = server.raw(head.replace("receive-pack-request", "x").as_bytes());
    assert_eq!(Answer::parse(&refused).status, 415);
}

#[test]
fn a_body_that_is_cut_changes_nothing() {
    let server = Server::start();
    server.cuesta(&["repo", "create", "a/b"]);
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = "POST /a/b/git-receive-pack HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-git-receive-pack-request\r\n\
        Content-Length: 1000\r\n\r\n";
    stream
        .write_all(&[head.as_bytes(), &creation("refs/heads/main", "report-status"), b"PACK"].concat())
        .unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
    assert!(server.cuesta(&["repo", "show", "a/b"]).contains("refs           0"));
    assert_eq!(server.get("GET", "/healthz", &[]).status, 200);
}

#[test]
fn a_log_line_is_one_json_object_whatever_peers_say() {
    let mut server = Server::start_with(&["--set", "log_format=json"]);
    let id = {
        let body = [creation("refs/heads/\u{1b}[31m\n\"}", "report-status"), empty_pack()].concat();
        let answer = push(&server, &body);
        answer.header("x-request-id").unwrap().to_owned()
    };
    assert!(server.stop().success());
    let log = server.log();
    let line = log.lines().find(|line| line.contains(&id)).unwrap();
    let parsed: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(parsed["id"], id.as_str());
    assert_eq!(
        (&parsed["repo"], &parsed["service"], &parsed["status"]),
        (&"a/b".into(), &"receive-pack".into(), &200.into())
    );
    assert!(parsed["error"].as_str().unwrap().contains("\\u{1b}[31m\\n"), "{line}");
    assert!(log.bytes().all(|byte| byte == b'\n' || !byte.is_ascii_control()));
}

/// A body whose end is said twice. Whoever stands between takes one for the end, and we might take the other.
#[test]
fn a_length_beside_chunks_smuggles_nothing() {
    let server = Server::start();
    server.cuesta(&["repo", "create", "a/b"]);
    let smuggled = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    let kind = "Content-Type: application/x-git-upload-pack-request";
    let post = |framing: &str, body: &str| {
        let head = format!("POST /a/b/git-upload-pack HTTP/1.1\r\nHost: x\r\n{kind}\r\n{framing}\r\n\r\n");
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(format!("{head}{body}{smuggled}").as_bytes()).unwrap();
        let mut answers = Vec::new();
        // What the server has not read when it closes may reset the connection, behind the answer.
        let _ = stream.read_to_end(&mut answers);
        String::from_utf8(answers).unwrap()
    };
    let chunked = "4\r\n0000\r\n0\r\n\r\n";
    let chunks = "Transfer-Encoding: chunked";
    let length = format!("Content-Length: {}", chunked.len());
    let cases = [
        (format!("{length}\r\n{chunks}"), chunked, "200"),
        (format!("Content-Length: 0\r\n{chunks}"), chunked, "200"),
        (format!("{chunks}\r\n{length}"), chunked, "200"),
        (format!("{chunks}\r\nContent-Length: 0"), chunked, "200"),
        ("Transfer-Encoding: chunked, identity".to_owned(), chunked, "400"),
        ("Transfer-Encoding: xchunked".to_owned(), chunked, "400"),
        ("Content-Length: 4\r\nContent-Length: 5".to_owned(), "0000", "400"),
        ("Content-Length: 4, 4".to_owned(), "0000", "400"),
        ("Content-Length: +4".to_owned(), "0000", "400"),
    ];
    for (framing, body, status) in cases {
        let answers = post(&framing, body);
        assert!(
            answers.starts_with(&format!("HTTP/1.1 {status} ")),
            "{framing}: {answers}"
        );
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{framing}: {answers}");
    }
    // An end that is beyond doubt leaves the connection open: there, two requests are two.
    for (framing, body) in [("Content-Length: 4", "0000"), (chunks, chunked)] {
        let kept = format!("POST /a/b/git-upload-pack HTTP/1.1\r\nHost: x\r\n{kind}\r\n{framing}\r\n\r\n{body}");
        let last = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let answers = String::from_utf8(server.raw(format!("{kept}{last}").as_bytes())).unwrap();
        assert_eq!(answers.matches("HTTP/1.1 200 ").count(), 2, "{framing}: {answers}");
    }
}
