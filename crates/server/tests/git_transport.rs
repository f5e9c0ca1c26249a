//! Git over `git://` against the built binary, with stock clients and raw packets, beside `git daemon`.

#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{Server, Work};

const LISTEN: [&str; 2] = ["--git-listen", "127.0.0.1:0"];
const NOT_EXPORTED: &str = "access denied or repository not exported";
/// Connections that may be on their way to a request.
const OPENINGS_MAX: usize = 256;

/// A server with one repository, and where it was pushed from.
fn served(flags: &[&str]) -> (Server, Work) {
    let server = Server::start_with(&[&LISTEN, flags].concat());
    let work = Work::new();
    let origin = work.repository("origin", "sha1");
    work.git_in(&origin, &["tag", "-a", "-m", "one", "v1"]);
    work.git_in(&origin, &["push", "-q", &server.url("ann/b"), "main", "v1"]);
    (server, work)
}

/// A server where users are told apart: everyone may read `ann/open`, only ann `ann/closed`.
fn with_accounts() -> Server {
    let server = Server::start_with(&[&LISTEN[..], &["--set", "authentication=accounts"]].concat());
    server.cuesta(&["user", "add", "ann"]);
    for name in ["ann/open", "ann/closed"] {
        server.cuesta(&["repo", "create", name]);
    }
    server.cuesta(&["access", "public", "ann/open", "read"]);
    server
}

fn packet(data: &[u8]) -> Vec<u8> {
    [format!("{:04x}", data.len() + 4).as_bytes(), data].concat()
}

/// A request as a client sends it.
fn request(program: &str, path: &str, version: u8) -> Vec<u8> {
    packet(format!("{program} {path}\0host=localhost\0\0version={version}\0").as_bytes())
}

fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.git_address.unwrap()).unwrap()
}

/// Everything that a server says until it closes the connection.
fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}"),
    }
    said
}

/// Sends all of `bytes` on a connection of its own, and nothing more; everything that comes back.
fn raw(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(server);
    stream.write_all(bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    until_closed(&mut stream)
}

/// What `git daemon` says to the same.
fn stock(root: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut daemon = Command::new("git");
    daemon.args(["daemon", "--inetd", "--export-all", "--log-destination=none"]);
    daemon.arg(format!("--base-path={}", root.display()));
    daemon
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory");
    daemon.env("GIT_CONFIG_VALUE_0", "*").env("HOME", root);
    let mut child = daemon
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It may have refused already.
    let _ = child.stdin.take().unwrap().write_all(bytes);
    child.wait_with_output().unwrap().stdout
}

fn error(text: &str) -> Vec<u8> {
    packet(format!("ERR {text}").as_bytes())
}

#[test]
fn stock_clients_read_in_every_version() {
    let (server, work) = served(&[]);
    let origin = work.path("origin");
    for version in ["0", "1", "2"] {
        let refs = work.git(&["ls-remote", "--symref", &server.url("ann/b")]);
        let setting = format!("protocol.version={version}");
        let clone = work.path(&format!("clone{version}"));
        let url = server.git_url("ann/b.git");
        assert_eq!(work.git(&["-c", &setting, "ls-remote", "--symref", &url]), refs);
        work.git(&["-c", &setting, "clone", "-q", &url, clone.to_str().unwrap()]);
        work.git_in(&clone, &["fsck", "--full"]);
        let head = work.commit(&origin, "next", version);
        work.git_in(&origin, &["push", "-q", &server.url("ann/b"), "main"]);
        work.git_in(&clone, &["-c", &setting, "pull", "-q"]);
        assert_eq!(work.git_in(&clone, &["rev-parse", "HEAD"]), head);
        work.git_in(&clone, &["-c", &setting, "fetch", "-q", "--depth=1", "origin", "main"]);
    }
    let metrics = server.get("GET", "/metrics", &[]).text();
    assert!(metrics.contains("cuesta_http_requests_total{service=\"git-upload-pack\",status=\"200\"}"));
    assert!(!metrics.contains("cuesta_git_connections_total 0\n"));
}

#[test]
fn each_request_has_a_log_line() {
    let (mut server, _work) = served(&[]);
    raw(&server, &request("git-upload-pack", "/ann/none", 2));
    raw(
        &server,
        &[&request("git-upload-pack", "/ann/b", 2)[..], b"0000"].concat(),
    );
    assert!(server.stop().success());
    let log = server.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("method=GIT")).collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(
        lines[0].contains("404") && lines[0].contains("git-upload-pack"),
        "{log}"
    );
    assert!(lines[1].contains("200") && lines[1].contains("ann/b"), "{log}");
}

#[test]
fn what_is_not_served_is_refused_as_by_git_daemon() {
    let (server, work) = served(&[]);
    let root = work.path("root");
    work.git(&["init", "-q", "--bare", root.join("ann/b.git").to_str().unwrap()]);
    for path in [
        "/ann/none",
        "/ann/none.git",
        "/",
        "",
        "ann/b",
        "//ann/b",
        "/ann//b",
        "/../ann/b",
        "/ann/../ann/b",
        "/./ann/b",
        "/ann/b/..",
        "/.git",
        "~bob/b",
        "~",
        "/ann/b.git/refs",
        "/-c",
        "--help",
        "/ann/%62",
        "/ann/b ",
    ] {
        for version in 0..=2 {
            let request = request("git-upload-pack", path, version);
            let said = raw(&server, &request);
            assert_eq!(said, stock(&root, &request), "'{path}': {}", said.escape_ascii());
            assert_eq!(said, error(&format!("{NOT_EXPORTED}: {path}")));
        }
    }
}

#[test]
fn what_is_no_request_gets_no_answer_as_from_git_daemon() {
    let (server, work) = served(&[]);
    let root = work.path("root");
    work.git(&["init", "-q", "--bare", root.join("ann/b.git").to_str().unwrap()]);
    let whole = [
        &b"git-upload-pack"[..],
        b"git-upload-packs /ann/b",
        b"git upload-pack /ann/b",
        b"ls /",
        b"git-upload-pack /ann/b\0version=2\0",
        b"git-upload-pack /ann/b\0host=x\0version=2\0",
    ];
    let no_packets = [
        &b""[..],
        b"0000",
        b"0001",
        b"0003",
        b"0004",
        b"zzzz",
        b"00",
        b"ffff",
        b"GET / HTTP/1.1\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"0020git-upload-pack /ann/b",
    ];
    let whole = whole.map(packet);
    for bytes in no_packets.into_iter().chain(whole.iter().map(|bytes| &bytes[..])) {
        let said = raw(&server, bytes);
        assert_eq!(said, b"", "{}: {}", bytes.escape_ascii(), said.escape_ascii());
        assert_eq!(stock(&root, bytes), b"", "{}", bytes.escape_ascii());
    }
}

#[test]
fn control_bytes_are_not_repeated() {
    let (server, _work) = served(&[]);
    let said = raw(&server, &request("git-upload-pack", "/a\x1b[31m\nb", 0));
    assert_eq!(said, error(&format!("{NOT_EXPORTED}: /a [31m b")));
}

#[test]
fn nobody_pushes() {
    for (server, path) in [
        (served(&[]).0, "/ann/b"),
        (served(&[]).0, "/ann/none"),
        (with_accounts(), "/ann/open"),
    ] {
        if path == "/ann/open" {
            server.cuesta(&["access", "public", "ann/open", "write"]);
        }
        for version in 0..=2 {
            let said = raw(&server, &request("git-receive-pack", path, version));
            assert_eq!(said, error(&format!("service not enabled: {path}")));
        }
    }
    let (server, work) = served(&[]);
    let pushed = work.try_git_in(&work.path("origin"), &["push", &server.git_url("ann/b"), "main:new"]);
    let said = String::from_utf8(pushed.stderr).unwrap();
    assert!(
        said.starts_with("fatal: remote error: service not enabled: /ann/b"),
        "{said}"
    );
}

#[test]
fn what_is_private_is_not_there() {
    let server = with_accounts();
    for program in ["git-upload-pack", "git-upload-archive"] {
        for version in 0..=2 {
            for (path, absent) in [
                ("/ann/closed", "/ann/absent"),
                ("/ann/closed.git", "/ann/absent.git"),
                ("~ann/closed", "~ann/absent"),
            ] {
                let closed = raw(&server, &request(program, path, version));
                let none = raw(&server, &request(program, absent, version));
                assert_eq!(closed, error(&format!("{NOT_EXPORTED}: {path}")));
                assert_eq!(none, error(&format!("{NOT_EXPORTED}: {absent}")));
            }
        }
    }
    let open = raw(
        &server,
        &[&request("git-upload-pack", "/ann/open", 2)[..], b"0000"].concat(),
    );
    assert!(open.starts_with(b"000eversion 2\n"), "{}", open.escape_ascii());
}

#[test]
fn what_is_made_private_ends_at_once() {
    let server = with_accounts();
    let mut stream = connect(&server);
    stream.write_all(&request("git-upload-pack", "/ann/open", 2)).unwrap();
    let mut version = [0; 14];
    stream.read_exact(&mut version).unwrap();
    assert_eq!(&version, b"000eversion 2\n");
    server.cuesta(&["access", "public", "ann/open", "none"]);
    let refs = [&packet(b"command=ls-refs\n")[..], b"00010000", b"0000"].concat();
    stream.write_all(&refs).unwrap();
    let said = until_closed(&mut stream);
    assert!(
        said.ends_with(&error(&format!("{NOT_EXPORTED}: /ann/open"))),
        "{}",
        said.escape_ascii()
    );
}

#[test]
fn settings_take_a_repository_off_it() {
    let (server, work) = served(&[]);
    let url = server.git_url("ann/b");
    let archive = |file: &str| {
        let output = format!("--output={}", work.path(file).display());
        work.try_git_in(
            &work.path("origin"),
            &["archive", &output, &format!("--remote={url}"), "main"],
        )
    };
    // As in git, archives are made only where a setting says so.
    let refused = archive("no.tar");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("remote error: service not enabled: /ann/b"), "{said}");
    server.cuesta(&["repo", "config", "ann/b", "daemon.uploadArch", "true"]);
    assert!(archive("yes.tar").status.success());
    let here = format!("--output={}", work.path("here.tar").display());
    work.git_in(&work.path("origin"), &["archive", &here, "main"]);
    assert_eq!(
        std::fs::read(work.path("yes.tar")).unwrap(),
        std::fs::read(work.path("here.tar")).unwrap()
    );
    server.cuesta(&["repo", "config", "ann/b", "daemon.uploadPack", "false"]);
    for version in 0..=2 {
        let said = raw(&server, &request("git-upload-pack", "/ann/b", version));
        assert_eq!(said, error("service not enabled: /ann/b"), "{version}");
    }
    assert!(!work.git(&["ls-remote", &server.url("ann/b")]).is_empty());
    server.cuesta(&["repo", "config", "ann/b", "daemon.uploadPack", "true"]);
    assert!(!work.git(&["ls-remote", &url]).is_empty());
}

/// Over `git://` as over a pipe: what a client says at once is answered like what it says bit by bit, and who has said all
/// still gets the whole answer.
#[test]
fn conversations_are_those_of_stock_git() {
    let (server, work) = served(&[]);
    let origin = work.path("origin");
    let head = work.git_in(&origin, &["rev-parse", "main"]);
    let want = packet(format!("want {head} ofs-delta no-progress\n").as_bytes());
    let v0 = [&want[..], b"0000", &packet(b"done\n")].concat();
    let v2 = [
        &packet(b"command=fetch\n")[..],
        b"0001",
        &packet(format!("want {head}\n").as_bytes()),
        &packet(b"no-progress\n"),
        &packet(b"done\n"),
        b"00000000",
    ]
    .concat();
    for (version, body) in [(0, &v0), (1, &v0), (2, &v2)] {
        let whole = [&request("git-upload-pack", "/ann/b", version)[..], body].concat();
        let at_once = raw(&server, &whole);
        let mut stream = connect(&server);
        for byte in &whole {
            stream.write_all(&[*byte]).unwrap();
        }
        assert_eq!(until_closed(&mut stream), at_once, "{version}");
        assert_eq!(at_once.starts_with(b"000eversion "), version > 0);
        assert!(at_once.windows(4).any(|four| four == b"PACK"), "{version}");
        // What is advertised as a ref is what stock git advertises.
        if version < 2 {
            let root = work.path("");
            let beside = stock(
                &root,
                &[&request("git-upload-pack", "/origin", version)[..], b"0000"].concat(),
            );
            let tag = format!("{}\trefs/tags/v1", work.git_in(&origin, &["rev-parse", "v1"])).replace('\t', " ");
            for said in [&beside, &at_once] {
                assert!(String::from_utf8_lossy(said).contains(&tag), "{version}");
            }
        }
    }
}

#[test]
fn an_address_has_so_many_connections() {
    let (server, _work) = served(&["--set", "git_connections_per_address_max=2"]);
    let refusal = error("too many connections from your address, try again later");
    let first = connect(&server);
    let mut second = connect(&server);
    second.write_all(&request("git-upload-pack", "/ann/b", 0)).unwrap();
    second.read_exact(&mut [0; 4]).unwrap();
    assert_eq!(until_closed(&mut connect(&server)), refusal);
    drop(first);
    // The place is free once the server has seen that the client is gone.
    loop {
        let mut third = connect(&server);
        let mut start = [0; 4];
        // A silent connection that was let in: nothing comes before its request.
        third.write_all(&request("git-upload-pack", "/ann/none", 0)).unwrap();
        if third.read_exact(&mut start).is_err() {
            continue;
        }
        let mut rest = start.to_vec();
        rest.extend(until_closed(&mut third));
        if rest == error(&format!("{NOT_EXPORTED}: /ann/none")) {
            break;
        }
        assert_eq!(rest, refusal);
    }
    let metrics = server.get("GET", "/metrics", &[]).text();
    assert!(
        !metrics.contains("cuesta_git_connections_refused_total 0\n"),
        "{metrics}"
    );
}

/// More silent connections than may be: the oldest go, and who means it gets in.
#[test]
fn silent_connections_keep_nobody_out() {
    let (server, work) = served(&["--set", "git_connections_per_address_max=1000"]);
    let mut silent: Vec<TcpStream> = (0..OPENINGS_MAX + 50).map(|_| connect(&server)).collect();
    assert!(!work.git(&["ls-remote", &server.git_url("ann/b")]).is_empty());
    for stream in silent.iter_mut().take(50) {
        // Long before their time for a request is over.
        stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
        assert_eq!(until_closed(stream), b"");
    }
    // The newest is still there.
    let newest = silent.last_mut().unwrap();
    newest.write_all(&request("git-upload-pack", "/ann/b", 2)).unwrap();
    let mut version = [0; 14];
    newest.read_exact(&mut version).unwrap();
    assert_eq!(&version, b"000eversion 2\n");
}

#[test]
fn sigterm_drains() {
    let (mut server, _work) = served(&[]);
    let mut silent = connect(&server);
    let mut busy = connect(&server);
    busy.write_all(&request("git-upload-pack", "/ann/b", 2)).unwrap();
    let mut version = [0; 14];
    busy.read_exact(&mut version).unwrap();
    server.ask_to_stop();
    // Who has asked for nothing yet is let go.
    assert_eq!(until_closed(&mut silent), b"");
    let refs = [&packet(b"command=ls-refs\n")[..], b"00010000", b"0000"].concat();
    busy.write_all(&refs).unwrap();
    let said = until_closed(&mut busy);
    assert!(String::from_utf8_lossy(&said).contains("refs/heads/main"));
    assert!(server.stop().success());
    assert!(!server.log().contains("cut off"), "{}", server.log());
}

#[test]
fn it_is_off_unless_asked_for_and_for_nobody_beyond_without_accounts() {
    assert!(Server::start().git_address.is_none());
    let directory = tempfile::tempdir().unwrap();
    for address in ["0.0.0.0:0", "[::]:0", "nonsense"] {
        let run = Command::new(env!("CARGO_BIN_EXE_cuesta"))
            .args(["serve", "--listen", "127.0.0.1:0", "--git-listen", address, "--data"])
            .arg(directory.path())
            .env_clear()
            .output()
            .unwrap();
        assert!(!run.status.success());
        let said = String::from_utf8(run.stderr).unwrap();
        assert!(
            said.contains("git_listen") || said.contains("not a loopback address"),
            "{said}"
        );
    }
}
