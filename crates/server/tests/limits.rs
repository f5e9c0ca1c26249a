//! Limits where a peer meets them: what is at a limit is served, what is above is refused, and the refusal names the limit.
//! docs/limits.md lists all of them, with the tests of those that are not here.

#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod support;

use std::io::{Read, Write};
use support::{Answer, Server, empty_pack};

const RECEIVE: (&str, &str) = ("Content-Type", "application/x-git-receive-pack-request");
const UPLOAD: (&str, &str) = ("Content-Type", "application/x-git-upload-pack-request");
const V2: (&str, &str) = ("Git-Protocol", "version=2");
/// Commands of one push.
const COMMANDS_MAX: usize = 100_000;
/// Bytes of a name in a command.
const REF_NAME_BYTES_MAX: usize = 4096;

fn packet(text: &str) -> String {
    format!("{:04x}{text}", text.len() + 4)
}

/// Creates refs of these names at an object that nobody has: the pack is taken, the refs are not.
fn push<'a>(server: &Server, names: impl Iterator<Item = &'a str>) -> Answer {
    let (zero, absent) = ("0".repeat(40), "1".repeat(40));
    let mut capabilities = "\0report-status";
    let mut body = String::new();
    for name in names {
        body += &packet(&format!("{zero} {absent} {name}{capabilities}"));
        capabilities = "";
    }
    body += "0000";
    let body = [body.into_bytes(), empty_pack()].concat();
    server.request("POST", "/a/b/git-receive-pack", &[RECEIVE], &body)
}

#[test]
fn commands_of_a_push() {
    let server = Server::start();
    let names: Vec<String> = (0..=COMMANDS_MAX)
        .map(|number| format!("refs/heads/{number}"))
        .collect();
    for count in [COMMANDS_MAX - 1, COMMANDS_MAX] {
        let answer = push(&server, names.iter().take(count).map(String::as_str)).text();
        assert!(answer.starts_with("000eunpack ok\n"), "{count}: {}", &answer[..100]);
        assert_eq!(answer.matches("ng refs/heads/").count(), count);
    }
    let above = push(&server, names.iter().map(String::as_str)).text();
    assert!(above.contains("ERR too many commands: the limit is 100000"), "{above}");
}

#[test]
fn names_in_commands() {
    let server = Server::start();
    for (len, served) in [
        (REF_NAME_BYTES_MAX - 1, true),
        (REF_NAME_BYTES_MAX, true),
        (REF_NAME_BYTES_MAX + 1, false),
    ] {
        let name = format!("refs/heads/{}", "x".repeat(len - "refs/heads/".len()));
        let answer = push(&server, std::iter::once(&name[..])).text();
        assert_eq!(answer.contains("unpack ok"), served, "{len}: {answer}");
        assert_eq!(answer.contains("the limit is 4096"), !served, "{len}: {answer}");
    }
}

#[test]
fn bytes_of_a_pack() {
    let pack = empty_pack().len();
    for (limit, served) in [(pack + 1, true), (pack, true), (pack - 1, false)] {
        let server = Server::start_with(&["--set", &format!("push_bytes_max={limit}")]);
        let answer = push(&server, std::iter::once("refs/heads/main")).text();
        assert_eq!(answer.contains("unpack ok"), served, "{limit}: {answer}");
        assert_eq!(
            answer.contains("exceeds maximum allowed size"),
            !served,
            "{limit}: {answer}"
        );
        // A repository's own limit counts where it is the smaller one.
        let server = Server::start();
        server.cuesta(&["repo", "create", "a/b"]);
        server.cuesta(&["repo", "config", "a/b", "receive.maxInputSize", &limit.to_string()]);
        let answer = push(&server, std::iter::once("refs/heads/main")).text();
        assert_eq!(answer.contains("unpack ok"), served, "{limit}: {answer}");
    }
}

#[test]
fn bytes_of_a_fetch_request() {
    const LIMIT: usize = 64 << 10;
    let server = Server::start_with(&["--set", "fetch_request_bytes_max=64KiB"]);
    server.cuesta(&["repo", "create", "a/b"]);
    let request = |len: usize| {
        let mut body = packet("command=ls-refs") + "0001";
        let line = packet(&format!("ref-prefix {}", "x".repeat(1000)));
        while body.len() + 2 * line.len() + 4 < len {
            body += &line;
        }
        let rest = len - body.len() - "0000".len() - "0000ref-prefix ".len();
        body += &packet(&format!("ref-prefix {}", "x".repeat(rest)));
        body + "0000"
    };
    for (len, served) in [(LIMIT - 1, true), (LIMIT, true), (LIMIT + 1, false)] {
        let body = request(len);
        assert_eq!(body.len(), len);
        let answer = server.request("POST", "/a/b/git-upload-pack", &[UPLOAD, V2], body.as_bytes());
        let text = answer.text();
        assert_eq!(text == "0000", served, "{len}: {text}");
        assert_eq!(text.contains("is larger than 65536 bytes"), !served, "{len}: {text}");
    }
}

#[test]
fn labels_of_tokens_and_names_of_users() {
    let server = Server::start_with(&["--set", "authentication=accounts"]);
    let run = |arguments: &[&str]| server.try_cuesta(arguments).status.success();
    for (len, taken) in [(99, true), (100, true), (101, false)] {
        assert_eq!(run(&["user", "add", &"u".repeat(len)]), taken, "{len}");
    }
    assert!(run(&["user", "add", "ann"]));
    for (len, taken) in [(254, true), (255, true), (256, false)] {
        let label = "n".repeat(len);
        assert_eq!(run(&["token", "create", "ann", "--name", &label]), taken, "{len}");
    }
}

#[test]
fn components_of_a_repository_name() {
    let server = Server::start();
    for (len, taken) in [(99, true), (100, true), (101, false)] {
        for name in [format!("a/{}", "n".repeat(len)), format!("{}/b", "o".repeat(len))] {
            let created = server.try_cuesta(&["repo", "create", &name]).status.success();
            assert_eq!(created, taken, "{name}");
            let head = ("GET", format!("/{name}/info/refs?service=git-upload-pack"));
            let status = server.get(head.0, &head.1, &[]).status;
            assert_eq!(status == 200, taken, "{name}");
        }
    }
}

#[test]
fn time_to_drain() {
    // What ends in time is answered.
    let body = |name: &str| {
        let command = format!("{} {} {name}\0report-status", "0".repeat(40), "1".repeat(40));
        [(packet(&command) + "0000").into_bytes(), empty_pack()].concat()
    };
    let mut server = Server::start_with(&["--set", "drain_seconds_max=600"]);
    let sent = body("refs/heads/main");
    let mut stream = server.begin("/a/b/git-receive-pack", &[RECEIVE], sent.len());
    server.ask_to_stop();
    stream.write_all(&sent).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("unpack ok"));
    assert!(server.stop().success());
    assert!(!server.log().contains("were cut off"), "{}", server.log());
    // Who never ends is cut off, and the server ends.
    let mut server = Server::start_with(&["--set", "drain_seconds_max=1"]);
    let mut stream = server.begin("/a/b/git-receive-pack", &[RECEIVE], sent.len());
    stream.write_all(&sent[..20]).unwrap();
    server.stop();
    assert!(server.log().contains("were cut off"), "{}", server.log());
    let mut answer = Vec::new();
    // Whether it is an end or a reset, nothing was answered.
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(answer, b"");
}
