//! The same repository served by us and by stock git, to be asked the same by hand.

use super::{Server, Work};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Both sides.
pub struct Pair {
    pub server: Server,
    pub work: Work,
    /// Where commits are made.
    pub source: PathBuf,
    /// Stock git's bare repository.
    pub stock: PathBuf,
}

/// What the two sides answered.
#[derive(Debug)]
pub struct Answers {
    pub ours: Vec<u8>,
    pub stock: Vec<u8>,
}

impl Answers {
    /// Both answers as text; they must be the same bytes.
    pub fn same(&self) -> String {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        assert_eq!(text(&self.ours), text(&self.stock));
        String::from_utf8_lossy(&self.ours).into_owned()
    }

    /// As [`Answers::same`], for what comes before the pack.
    pub fn same_before_pack(self) -> String {
        let cut = |bytes: Vec<u8>| {
            let end = bytes.windows(4).position(|four| four == b"PACK").expect("no pack");
            bytes[..end - 5].to_vec()
        };
        let answers = Self {
            ours: cut(self.ours),
            stock: cut(self.stock),
        };
        answers.same()
    }
}

impl Pair {
    /// A history of three commits on `main`, an annotated tag, a hidden branch, and a commit that no ref reaches any more.
    pub fn new() -> Self {
        let (server, work) = (Server::start(), Work::new());
        let source = work.repository("source", "sha1");
        let stock = work.path("stock.git");
        work.git(&["init", "-q", "--bare", "-b", "main", stock.to_str().unwrap()]);
        let pair = Self {
            server,
            work,
            source,
            stock,
        };
        pair.work.commit(&pair.source, "second", "two\n");
        pair.work.commit(&pair.source, "third", "three\n");
        pair.git(&["tag", "-a", "-m", "t", "v1"]);
        pair.git(&["checkout", "-q", "-b", "secret"]);
        pair.work.commit(&pair.source, "secret", "hidden\n");
        pair.git(&["checkout", "-q", "-b", "gone", "main"]);
        pair.work.commit(&pair.source, "gone", "unreachable\n");
        pair.git(&["checkout", "-q", "main"]);
        pair.push(&["main", "v1", "secret:refs/secret/x", "gone"]);
        pair.push(&[":gone"]);
        pair
    }

    /// Pushes the same to both sides.
    pub fn push(&self, what: &[&str]) {
        for url in [self.url(), self.stock.display().to_string()] {
            self.git(&[&["push", "-q", &url], what].concat());
        }
    }

    pub fn git(&self, arguments: &[&str]) -> String {
        self.work.git_in(&self.source, arguments)
    }

    pub fn oid(&self, revision: &str) -> String {
        self.git(&["rev-parse", revision])
    }

    pub fn url(&self) -> String {
        self.server.url("a/b")
    }

    /// Gives a setting the same value on both sides.
    pub fn config(&self, key: &str, value: &str) {
        self.work.git_in(&self.stock, &["config", key, value]);
        self.server.cuesta(&["repo", "config", "a/b", key, value]);
    }

    /// Asks both sides, over HTTP and by `git <service> --stateless-rpc`.
    pub fn ask(&self, service: &str, version: &str, request: &[u8]) -> Answers {
        let target = format!("/a/b/git-{service}");
        let kind = format!("application/x-git-{service}-request");
        let headers = [("Content-Type", &*kind), ("Git-Protocol", version), ("X", "y")];
        let answer = self.server.request("POST", &target, &headers, request);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let ours = match answer.header("Transfer-Encoding") {
            Some("chunked") => unchunked(&answer.body),
            _ => answer.body,
        };
        Answers {
            ours,
            stock: self.ask_stock(&[service, "--stateless-rpc"], version, request),
        }
    }

    /// What both sides say first.
    pub fn advertisements(&self, service: &str, version: &str) -> Answers {
        let target = format!("/a/b/info/refs?service=git-{service}");
        let answer = self.server.get("GET", &target, &[("Git-Protocol", version)]);
        let stock = self.ask_stock(&[service, "--stateless-rpc", "--http-backend-info-refs"], version, b"");
        let banner = format!("# service=git-{service}\n");
        let banner = format!("{:04x}{banner}0000", banner.len() + 4);
        let ours = answer
            .body
            .strip_prefix(banner.as_bytes())
            .unwrap_or(&answer.body)
            .to_vec();
        Answers { ours, stock }
    }

    pub fn ask_stock(&self, arguments: &[&str], version: &str, request: &[u8]) -> Vec<u8> {
        let mut child = Command::new("git")
            .args(arguments)
            .arg(&self.stock)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("HOME", "/nonexistent")
            .env("GIT_PROTOCOL", version)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Git may end before it has read everything.
        let _ = child.stdin.take().unwrap().write_all(request);
        child.wait_with_output().unwrap().stdout
    }
}

/// The content of a chunked body.
fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let len = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        if len == 0 {
            break;
        }
        content.extend_from_slice(&body[end + 2..end + 2 + len]);
        body = &body[end + 2 + len + 2..];
    }
    content
}

/// A v2 request.
pub fn v2(command: &str, capabilities: &[&str], arguments: &[&str]) -> Vec<u8> {
    let mut out = lines(&[&[&*format!("command={command}")], capabilities].concat());
    out.extend(b"0001");
    out.extend(lines(arguments));
    out.extend(b"0000");
    out
}

/// Lines as packets.
pub fn lines(lines: &[&str]) -> Vec<u8> {
    let line = |line: &&str| format!("{:04x}{line}\n", line.len() + 5);
    lines.iter().map(line).collect::<String>().into_bytes()
}
