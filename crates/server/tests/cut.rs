//! A server that fails in the middle of an answer: its client sees that, and keeps nothing.

#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod support;

use std::path::{Path, PathBuf};
use support::pair::v2;
use support::{Answer, Server, Work};

/// Size of each file, and how many make a layer that is sent in many pieces.
const FILE_LEN: usize = 3 << 20;
const FILES: u64 = 6;

const SSH: &str =
    "ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR";

/// Bytes that do not deflate.
fn noise(seed: u64) -> Vec<u8> {
    let words = (0..).map(|n: u64| ((seed << 32) + n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17);
    words.flat_map(u64::to_le_bytes).take(FILE_LEN).collect()
}

fn packs(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.map(|path| match path.is_dir() {
        true => packs(&path),
        false => vec![path],
    });
    let is_pack = |path: &PathBuf| path.extension().is_some_and(|end| end == "pack");
    found.flatten().filter(is_pack).collect()
}

/// A repository whose one layer ends in the middle; the commit, too.
fn damaged(work: &Work) -> (Server, String) {
    let mut server = Server::start_with(&["--ssh-listen", "127.0.0.1:0"]);
    let source = work.repository("source", "sha1");
    for seed in 0..FILES {
        std::fs::write(source.join(format!("file-{seed}")), noise(seed)).unwrap();
    }
    work.git_in(&source, &["add", "."]);
    work.git_in(&source, &["commit", "-q", "-m", "large"]);
    work.git_in(&source, &["push", "-q", &server.url("a/b"), "main"]);
    assert!(server.stop().success());
    let packs = packs(&server.data().join("bucket"));
    assert_eq!(packs.len(), 1);
    let pack = std::fs::File::options().write(true).open(&packs[0]).unwrap();
    let len = pack.metadata().unwrap().len();
    pack.set_len(len / 2).unwrap();
    server.restart_with(&["--ssh-listen", "127.0.0.1:0"]);
    (server, work.git_in(&source, &["rev-parse", "main"]))
}

/// Neither a clone nor a fetch that breaks off leaves anything.
fn assert_keeps_nothing(work: &Work, (way, url): (&str, &str), more: &[&str], tip: &str) {
    for version in ["0", "2"] {
        let version = format!("protocol.version={version}");
        let git = |directory: &Path, arguments: &[&str]| {
            let arguments = [&["-c", &version, "-c", "fetch.unpackLimit=1"], more, arguments].concat();
            let mut command = work.command(directory, &arguments);
            command.env("GIT_SSH_COMMAND", SSH).output().unwrap()
        };
        let into = work.repository(&format!("into-{way}-{version}"), "sha1");
        let clone = work.path("clone");
        let output = git(&into, &["clone", "-q", url, clone.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{way}, {version}: {said}");
        assert!(said.contains("(request "), "the client is not told: {said}");
        assert!(!clone.exists(), "{way}, {version}");
        assert!(!git(&into, &["fetch", "-q", url, "main:theirs"]).status.success());
        assert!(!git(&into, &["rev-parse", "-q", "--verify", "theirs"]).status.success());
        assert!(!git(&into, &["cat-file", "-e", tip]).status.success());
    }
}

#[test]
fn an_answer_that_breaks_off_leaves_nothing_at_the_client() {
    let work = Work::new();
    let (mut server, tip) = damaged(&work);
    assert_keeps_nothing(&work, ("http", &server.url("a/b")), &[], &tip);
    assert_keeps_nothing(&work, ("ssh", &server.ssh_url("a/b")), &[], &tip);
    // With a side-band the last packet is an error, and no flush follows; without one the last chunk is missing.
    let kind = ("Content-Type", "application/x-git-upload-pack-request");
    let want = format!("want {tip}");
    let body = v2("fetch", &[], &[&want, "done"]);
    let answer = post(&server, &[kind, ("Git-Protocol", "version=2")], &body);
    let end = answer.body.len().saturating_sub(200);
    let tail = String::from_utf8_lossy(&answer.body[end..]).into_owned();
    assert!(answer.body.len() > FILE_LEN, "it broke off before half of it was sent");
    assert!(
        tail.contains('\u{3}') && tail.contains("(request ") && !tail.contains("0000\r\n"),
        "{tail}"
    );
    let bare = format!("{:04x}want {tip}\n00000009done\n", tip.len() + 10);
    let answer = post(&server, &[kind], bare.as_bytes());
    assert_eq!(
        (answer.status, answer.header("Transfer-Encoding")),
        (200, Some("chunked"))
    );
    assert!(answer.body.len() > FILE_LEN);
    assert!(!answer.body.ends_with(b"\r\n0\r\n\r\n"), "a cut answer looks whole");
    assert_eq!(server.get("GET", "/healthz", &[]).status, 200);
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls");
    let files = [("tls_certificate", "crt"), ("tls_key", "key")];
    let [certificate, key] = files.map(|(name, end)| format!("{name}={directory}/first.{end}"));
    server.restart_with(&["--set", &certificate, "--set", &key]);
    let url = format!("https://{}/a/b", server.address);
    let authority = format!("http.sslCAInfo={directory}/first.crt");
    let http2 = ["-c", &authority, "-c", "http.version=HTTP/2"];
    assert_keeps_nothing(&work, ("http2", &url), &http2, &tip);
}

/// A POST whose answer may break off.
fn post(server: &Server, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    server.request("POST", "/a/b/git-upload-pack", headers, body)
}
