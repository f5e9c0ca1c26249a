//! `cuesta import` and `cuesta fsck` beside a running server, from directories and from stock git over HTTP.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod support;

use cuesta_bench::cgi::Backend;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use support::{Server, Work};

/// A work tree with a branch and tags, and a bare clone of it that stock git serves.
fn source(work: &Work, format: &str) -> SocketAddr {
    let tree = work.repository("tree", format);
    work.git_in(&tree, &["tag", "-a", "-m", "one", "v1"]);
    work.git_in(&tree, &["branch", "side"]);
    work.commit(&tree, "second", "more\n");
    work.git(&["clone", "-q", "--mirror", "tree", "served/x.git"]);
    Backend::new(work.path("served")).spawn().unwrap()
}

fn refs(work: &Work, repository: &Path) -> String {
    work.git_in(
        repository,
        &["for-each-ref", "--format=%(objectname) %(refname) %(*objectname)"],
    )
}

/// What the server serves is what is there.
fn assert_same(work: &Work, server: &Server, name: &str, source: &Path, clone: &str) {
    work.git(&["clone", "-q", "--mirror", &server.url(name), clone]);
    let clone = work.path(clone);
    work.git_in(&clone, &["fsck", "--full", "--strict"]);
    assert_eq!(refs(work, &clone), refs(work, source));
}

#[test]
fn a_directory_is_imported_beside_a_running_server() {
    for format in ["sha1", "sha256"] {
        let (work, server) = (Work::new(), Server::start());
        source(&work, format);
        let tree = work.path("tree");
        let path = tree.to_str().unwrap();
        assert!(server.cuesta(&["import", "ann/x", path]).contains("3 refs created"));
        assert_same(&work, &server, "ann/x", &tree, "one");
        let tip = work.commit(&tree, "third", "third\n");
        work.git_in(&tree, &["branch", "-D", "side"]);
        assert!(
            server
                .cuesta(&["import", "ann/x", path, "--exact"])
                .contains("1 updated, 1 deleted")
        );
        assert!(work.git(&["ls-remote", &server.url("ann/x"), "main"]).starts_with(&tip));
        assert_same(&work, &server, "ann/x", &tree, "two");
        assert!(
            server
                .cuesta(&["import", "ann/x", path, "--exact"])
                .starts_with("nothing to do")
        );
        assert_eq!(server.cuesta(&["fsck", "ann/x"]), "");
    }
}

#[test]
fn a_remote_is_imported_and_then_updated() {
    for format in ["sha1", "sha256"] {
        let (work, server) = (Work::new(), Server::start());
        let url = format!("http://{}/x.git", source(&work, format));
        server.cuesta(&["import", "ann/x", &url]);
        let served = work.path("served/x.git");
        assert_same(&work, &server, "ann/x", &served, "one");
        assert!(server.cuesta(&["import", "ann/x", &url]).starts_with("nothing to do"));
        work.commit(&work.path("tree"), "third", "third\n");
        work.git_in(&served, &["fetch", "-q", "origin"]);
        let said = server.cuesta(&["import", "ann/x", &url]);
        assert!(said.starts_with("3 objects read; 0 refs created, 1 updated"), "{said}");
        assert_same(&work, &server, "ann/x", &served, "two");
    }
}

#[test]
fn one_of_our_own_is_a_remote_too() {
    let (work, server, other) = (Work::new(), Server::start(), Server::start());
    source(&work, "sha1");
    other.cuesta(&["import", "ann/x", work.path("tree").to_str().unwrap()]);
    server.cuesta(&["import", "bob/y", &other.url("ann/x")]);
    assert_same(&work, &server, "bob/y", &work.path("tree"), "one");
}

#[test]
fn a_host_without_protocol_v2_will_do() {
    let (work, server) = (Work::new(), Server::start());
    let url = format!("http://{}/x.git", without_v2(source(&work, "sha1")));
    server.cuesta(&["import", "ann/x", &url]);
    work.commit(&work.path("tree"), "third", "third\n");
    let served = work.path("served/x.git");
    work.git_in(&served, &["fetch", "-q", "origin"]);
    let said = server.cuesta(&["import", "ann/x", &url]);
    assert!(said.starts_with("3 objects read"), "{said}");
    assert_same(&work, &server, "ann/x", &served, "one");
}

/// Passes everything on but the header that asks for v2.
fn without_v2(backend: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, host) = (client.unwrap(), TcpStream::connect(backend).unwrap());
            let (from_host, to_client) = (host.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || pass(client, host, true));
            std::thread::spawn(move || pass(from_host, to_client, false));
        }
    });
    address
}

fn pass(mut from: TcpStream, mut to: TcpStream, hide: bool) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        let header = buffer
            .windows(12)
            .position(|window| window.eq_ignore_ascii_case(b"git-protocol"));
        if let Some(at) = header.filter(|at| hide && *at < len) {
            buffer.get_mut(at..at + 3).unwrap().copy_from_slice(b"xxx");
        }
        if to.write_all(buffer.get(..len).unwrap()).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

#[test]
fn a_shallow_remote_stays_shallow() {
    let (work, server) = (Work::new(), Server::start());
    let address = source(&work, "sha1");
    let url = format!("file://{}", work.path("tree").display());
    work.git(&["clone", "-q", "--bare", "--depth=1", &url, "served/shallow.git"]);
    server.cuesta(&["import", "ann/x", &format!("http://{address}/shallow.git")]);
    let tip = work.git_in(&work.path("tree"), &["rev-parse", "main"]);
    assert!(work.git(&["ls-remote", &server.url("ann/x"), "main"]).starts_with(&tip));
    assert_eq!(server.cuesta(&["fsck", "ann/x"]), "");
}

#[test]
fn what_cannot_be_imported_is_refused_and_no_password_is_shown() {
    let (work, server) = (Work::new(), Server::start());
    let address = source(&work, "sha1");
    for (source, expected) in [
        ("ssh://example.org/x".to_owned(), "only http:// and https://"),
        ("ext::sh -c true".to_owned(), "cannot read"),
        (
            "http://ann:secret@127.0.0.1:1/x.git".to_owned(),
            "cannot reach 'http://127.0.0.1:1/",
        ),
        (format!("http://ann:secret@{address}/none.git"), "answers 404"),
        ("/nonexistent".to_owned(), "cannot read '/nonexistent'"),
    ] {
        let output = server.try_cuesta(&["import", "ann/x", &source]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(expected), "{source}: {said}");
        assert!(!said.contains("secret"), "{said}");
        assert_eq!(server.cuesta(&["repo", "list"]), "");
    }
}

/// A host that answers every request with that, and what it was asked.
fn host(answer: impl Fn(SocketAddr) -> String) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (answer, asked) = (answer(address), Arc::new(Mutex::new(Vec::new())));
    let heads = Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
                head.extend(byte);
            }
            heads
                .lock()
                .unwrap()
                .push(String::from_utf8(head).unwrap().to_ascii_lowercase());
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (address, asked)
}

/// An answer without a body, the last one of its connection.
fn empty(status: &str, more: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{more}Content-Length: 0\r\nConnection: close\r\n\r\n")
}

/// Where a host sends an import, it goes without credentials, or not at all.
#[test]
fn a_redirect_leads_to_no_other_place_with_credentials() {
    let server = Server::start();
    let import = |address: SocketAddr| {
        let output = server.try_cuesta(&["import", "ann/x", &format!("http://ann:secret@{address}/x.git")]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && !said.contains("secret"), "{said}");
        said
    };
    for status in ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"] {
        let (other, asked_there) = host(|_| empty("404 None", ""));
        let target = format!("Location: http://{other}/x.git/info/refs?service=git-upload-pack\r\n");
        let (first, asked) = host(|_| empty(status, &target));
        import(first);
        let (asked, there) = (asked.lock().unwrap(), asked_there.lock().unwrap());
        assert!(
            asked.len() == 1 && asked[0].contains("authorization: basic "),
            "{asked:?}"
        );
        assert!(there.len() == 1 && !there[0].contains("authorization"), "{there:?}");
    }
    for target in [
        "file:///etc/passwd",
        "ftp://127.0.0.1/x",
        "gopher://127.0.0.1/x",
        "http://169.254.169.254/latest/meta-data/info/refs",
        "http://[fe80::1]/info/refs",
        "http://[::ffff:169.254.169.254]/info/refs",
    ] {
        let (address, asked) = host(|_| empty("302 Found", &format!("Location: {target}\r\n")));
        let said = import(address);
        // Redirects to other schemes are answers like any other.
        let is_followed = !said.contains("a redirect to ") && !said.contains("answers 302");
        assert!(!is_followed, "{target}: {said}");
        assert_eq!(asked.lock().unwrap().len(), 1, "{target}");
    }
    let (address, asked) = host(|own| empty("302 Found", &format!("Location: http://{own}/x.git/info/refs\r\n")));
    assert!(import(address).contains("too many redirects"));
    assert!(asked.lock().unwrap().len() <= 6);
    assert_eq!(server.cuesta(&["repo", "list"]), "");
}

#[test]
fn damage_is_an_exit_status() {
    let (work, server) = (Work::new(), Server::start());
    source(&work, "sha1");
    server.cuesta(&["import", "ann/x", work.path("tree").to_str().unwrap()]);
    let push = ["push", "-q", &server.url("ann/y"), "main"];
    work.git_in(&work.path("tree"), &push);
    let mut server = server;
    assert!(server.stop().success());
    let packs: Vec<_> = walk(&server.data().join("bucket"))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "pack"))
        .collect();
    assert!(!packs.is_empty());
    for pack in packs {
        let mut bytes = std::fs::read(&pack).unwrap();
        let middle = bytes.len() / 2;
        if let Some(byte) = bytes.get_mut(middle) {
            *byte ^= 4;
        }
        std::fs::write(&pack, bytes).unwrap();
    }
    for flags in [&["fsck", "ann/y"][..], &["fsck", "ann/y", "--quick", "--quiet"]] {
        let output = server.try_cuesta(flags);
        assert!(!output.status.success());
        let found = String::from_utf8(output.stdout).unwrap();
        assert!(found.starts_with("error: layer "), "{found}");
    }
}

fn walk(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] })
        .collect()
}
