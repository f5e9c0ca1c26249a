//! The dumb protocol: a stock client that knows nothing else, a mirror that copies files, and `git http-backend` beside.

#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use support::{Answer, Server, Work};

/// Packs are old as soon as they are seen.
const AT_ONCE: [&str; 2] = ["--set", "dumb_packs_after_seconds=0"];

/// Git, made to use the dumb protocol.
fn dumb_git(work: &Work, directory: &Path, arguments: &[&str]) -> Output {
    Command::new("git")
        .current_dir(directory)
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", work.path(""))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_SMART_HTTP", "0")
        .output()
        .unwrap()
}

fn clone(work: &Work, url: &str, name: &str) -> PathBuf {
    let output = dumb_git(work, &work.path(""), &["clone", "-q", "--mirror", url, name]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    work.path(name)
}

/// The same refs, and all objects there.
fn assert_same(work: &Work, source: &Path, copy: &Path) {
    let refs = |of: &Path| work.git_in(of, &["for-each-ref"]);
    assert_eq!(refs(source), refs(copy));
    work.git_in(copy, &["fsck", "--full", "--strict"]);
    let objects = |of: &Path| {
        let list = work.git_in(of, &["rev-list", "--objects", "--all"]);
        let mut ids: Vec<String> = list
            .lines()
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect();
        ids.sort();
        ids
    };
    assert_eq!(objects(source), objects(copy));
}

/// A history of files that change a little, so that there are deltas.
fn history(work: &Work, source: &Path, commits: usize) {
    for number in 0..commits {
        let lines: String = (0..400)
            .map(|line| format!("line {line} of {}\n", if line == number { number } else { 0 }))
            .collect();
        work.commit(source, &format!("commit {number}"), &lines);
    }
}

fn setup(server: &Server, work: &Work, format: &str) -> PathBuf {
    let source = work.repository("source", format);
    history(work, &source, 30);
    work.git_in(&source, &["tag", "-a", "-m", "x", "v1"]);
    server.cuesta(&["repo", "create", "a/b", "--object-format", format]);
    work.git_in(&source, &["push", "-q", "--mirror", &server.url("a/b")]);
    source
}

/// Waits for nothing: a server that ends flushes what it has.
fn flush(server: &mut Server) {
    assert!(server.stop().success());
}

#[test]
fn a_dumb_client_clones_what_is_still_inline_and_fetches_more() {
    for format in ["sha1", "sha256"] {
        let (server, work) = (Server::start(), Work::new());
        let source = setup(&server, &work, format);
        let copy = clone(&work, &server.url("a/b"), "copy");
        assert_same(&work, &source, &copy);
        history(&work, &source, 3);
        work.git_in(&source, &["push", "-q", "--mirror", &server.url("a/b")]);
        let fetched = dumb_git(&work, &copy, &["fetch", "-q"]);
        assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
        assert_same(&work, &source, &copy);
    }
}

#[test]
fn a_dumb_client_takes_packs_and_what_is_outside_them() {
    for format in ["sha1", "sha256"] {
        let (mut server, work) = (Server::start(), Work::new());
        let source = setup(&server, &work, format);
        flush(&mut server);
        server.restart_with(&AT_ONCE);
        // On top of the pack, deltas whose bases are in it.
        history(&work, &source, 2);
        work.git_in(&source, &["push", "-q", "--mirror", &server.url("a/b")]);
        let packs = server.get("GET", "/a/b/objects/info/packs", &[]).text();
        assert!(packs.starts_with("P pack-"), "{packs}");
        let first = work.git_in(&source, &["rev-list", "--max-parents=0", "HEAD"]);
        let loose = server.get("GET", &format!("/a/b/objects/{}/{}", &first[..2], &first[2..]), &[]);
        assert_eq!(loose.status, 404, "an object of a pack is for the pack");
        let copy = clone(&work, &server.url("a/b"), "copy");
        assert_same(&work, &source, &copy);
        let stored = std::fs::read_dir(copy.join("objects/pack")).unwrap().count();
        assert!(stored > 0, "no pack was taken");
    }
}

#[test]
fn a_mirror_of_the_files_is_a_repository() {
    for format in ["sha1", "sha256"] {
        let (mut server, work) = (Server::start(), Work::new());
        let source = setup(&server, &work, format);
        flush(&mut server);
        server.restart_with(&AT_ONCE);
        let copy = work.path("mirror.git");
        work.git(&[
            "init",
            "-q",
            "--bare",
            &format!("--object-format={format}"),
            copy.to_str().unwrap(),
        ]);
        let list = server.get("GET", "/a/b/objects/info/packs", &[]).text();
        for name in list.lines().filter_map(|line| line.strip_prefix("P ")) {
            for name in [name.to_owned(), name.replace(".pack", ".idx")] {
                let file = server.get("GET", &format!("/a/b/objects/pack/{name}"), &[]);
                assert_eq!(file.status, 200);
                assert_eq!(file.header("content-length").unwrap(), file.body.len().to_string());
                std::fs::write(copy.join("objects/pack").join(&name), &file.body).unwrap();
            }
            let pack = copy.join("objects/pack").join(name);
            // Stock git's own index of the pack is the same, byte for byte.
            let own = work.path("own.idx");
            work.git_in(
                &copy,
                &["index-pack", "-o", own.to_str().unwrap(), pack.to_str().unwrap()],
            );
            assert_eq!(
                std::fs::read(&own).unwrap(),
                std::fs::read(pack.with_extension("idx")).unwrap()
            );
        }
        let refs = server.get("GET", "/a/b/info/refs", &[]).text();
        for line in refs.lines().filter(|line| !line.ends_with("^{}")) {
            let (oid, name) = line.split_once('\t').unwrap();
            work.git_in(&copy, &["update-ref", name, oid]);
        }
        assert_same(&work, &source, &copy);
    }
}

#[test]
fn hidden_refs_and_what_only_they_reach_stay_hidden() {
    let (mut server, work) = (Server::start(), Work::new());
    let source = setup(&server, &work, "sha1");
    work.git_in(&source, &["checkout", "-q", "-b", "secret"]);
    let secret = work.commit(&source, "secret", "nobody's business\n");
    let blob = work.git_in(&source, &["rev-parse", "HEAD:file"]);
    work.git_in(&source, &["push", "-q", &server.url("a/b"), "secret"]);
    flush(&mut server);
    server.restart_with(&AT_ONCE);
    let list = server.get("GET", "/a/b/objects/info/packs", &[]).text();
    server.cuesta(&["repo", "config", "a/b", "transfer.hideRefs", "refs/heads/secret"]);
    let refs = server.get("GET", "/a/b/info/refs", &[]).text();
    assert!(
        refs.contains("\trefs/heads/main\n") && !refs.contains("secret"),
        "{refs}"
    );
    for oid in [&secret, &blob] {
        let loose = server.get("GET", &format!("/a/b/objects/{}/{}", &oid[..2], &oid[2..]), &[]);
        assert_eq!(loose.status, 404);
    }
    assert_eq!(server.get("GET", "/a/b/objects/info/packs", &[]).text(), "\n");
    for name in list.lines().filter_map(|line| line.strip_prefix("P ")) {
        assert_eq!(server.get("GET", &format!("/a/b/objects/pack/{name}"), &[]).status, 404);
        let index = name.replace(".pack", ".idx");
        assert_eq!(
            server.get("GET", &format!("/a/b/objects/pack/{index}"), &[]).status,
            404
        );
    }
    let copy = clone(&work, &server.url("a/b"), "copy");
    work.git_in(&source, &["checkout", "-q", "main"]);
    work.git_in(&source, &["branch", "-q", "-D", "secret"]);
    assert_same(&work, &source, &copy);
}

#[test]
fn parts_of_a_pack() {
    let (mut server, work) = (Server::start(), Work::new());
    setup(&server, &work, "sha1");
    flush(&mut server);
    server.restart_with(&AT_ONCE);
    let list = server.get("GET", "/a/b/objects/info/packs", &[]).text();
    let name = list.lines().next().unwrap().strip_prefix("P ").unwrap();
    for name in [name.to_owned(), name.replace(".pack", ".idx")] {
        let target = format!("/a/b/objects/pack/{name}");
        let whole = server.get("GET", &target, &[]);
        let len = whole.body.len();
        assert_eq!(whole.header("accept-ranges"), Some("bytes"));
        let part = server.get("GET", &target, &[("Range", "bytes=1000-")]);
        assert_eq!(
            (part.status, part.header("content-range")),
            (206, Some(&*format!("bytes 1000-{}/{len}", len - 1)))
        );
        assert_eq!(part.header("content-length"), Some(&*(len - 1000).to_string()));
        assert!(part.body == whole.body[1000..]);
        let part = server.get("GET", &target, &[("Range", "bytes=7-20")]);
        assert!(part.body == whole.body[7..=20]);
        let beyond = server.get("GET", &target, &[("Range", &format!("bytes={len}-"))]);
        assert_eq!(
            (beyond.status, beyond.header("content-range")),
            (416, Some(&*format!("bytes */{len}")))
        );
        let head = server.get("HEAD", &target, &[]);
        assert_eq!(
            (head.status, head.header("content-length"), head.body.len()),
            (200, Some(&*len.to_string()), 0)
        );
    }
}

/// What `git http-backend` answers for the same file.
fn backend(root: &Path, path: &str) -> Answer {
    let output = Command::new("git")
        .arg("http-backend")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .envs([
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_HTTP_EXPORT_ALL", "1"),
            ("REQUEST_METHOD", "GET"),
            ("QUERY_STRING", ""),
        ])
        .env("GIT_PROJECT_ROOT", root)
        .env("HOME", root)
        .env("PATH_INFO", path)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = &output.stdout;
    let head = String::from_utf8_lossy(text);
    let status = head
        .split("\r\n")
        .take_while(|line| !line.is_empty())
        .find_map(|line| line.strip_prefix("Status: "));
    let status = status.map_or("200", |line| &line[..3]);
    Answer::parse(&[format!("HTTP/1.1 {status} X\r\n").as_bytes(), text].concat())
}

#[test]
fn headers_and_texts_are_those_of_http_backend() {
    let (server, work) = (Server::start(), Work::new());
    let source = setup(&server, &work, "sha1");
    let root = work.path("root");
    work.git_in(
        &source,
        &["clone", "-q", "--mirror", ".", root.join("a/b").to_str().unwrap()],
    );
    let commit = work.git_in(&source, &["rev-parse", "HEAD"]);
    let object = work.commit(&source, "loose", "loose\n");
    work.git_in(&source, &["push", "-q", &server.url("a/b"), "main"]);
    work.git_in(&source, &["push", "-q", root.join("a/b").to_str().unwrap(), "main"]);
    let loose = format!("/a/b/objects/{}/{}", &object[..2], &object[2..]);
    for path in [
        "/a/b/HEAD",
        "/a/b/info/refs",
        &loose,
        "/a/b/objects/info/alternates",
        "/a/b/objects/info/http-alternates",
    ] {
        let (ours, stock) = (server.get("GET", path, &[]), backend(&root, path));
        assert_eq!(ours.status, stock.status, "{path}");
        // Stock says nothing of keeping `HEAD`, which changes.
        let stock_keeps = path == "/a/b/HEAD";
        for header in ["content-type", "cache-control", "pragma"] {
            if stock_keeps && header != "content-type" {
                continue;
            }
            if stock.status == 200 || header != "content-type" {
                assert_eq!(ours.header(header), stock.header(header), "{header} of {path}");
            }
        }
        assert_eq!(
            ours.header("expires").is_some(),
            stock_keeps || stock.header("expires").is_some(),
            "{path}"
        );
        if path != loose && stock.status == 200 {
            assert_eq!(ours.text(), stock.text(), "{path}");
        }
    }
    let none = format!("/a/b/objects/{}/{}", &commit[..2], "0".repeat(38));
    assert_eq!(
        (server.get("GET", &none, &[]).status, backend(&root, &none).status),
        (404, 404)
    );
    assert_eq!(server.get("GET", &loose.replace("/a/b/", "/a/none/"), &[]).status, 404);
    assert_eq!(server.get("POST", &loose, &[]).status, 405);

    server.cuesta(&["repo", "config", "a/b", "http.getanyfile", "false"]);
    work.git_in(&root.join("a/b"), &["config", "http.getanyfile", "false"]);
    for path in ["/a/b/HEAD", "/a/b/info/refs", "/a/b/objects/info/packs", &loose] {
        assert_eq!(
            (server.get("GET", path, &[]).status, backend(&root, path).status),
            (403, 403),
            "{path}"
        );
    }
}
