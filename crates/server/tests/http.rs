//! What HTTP itself demands of the server, by raw requests.

#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod support;

use support::{Answer, Server};

const UPLOAD: &str = "application/x-git-upload-pack-request";
const RECEIVE: &str = "application/x-git-receive-pack-request";

#[test]
fn health_readiness_and_metrics() {
    let server = Server::start();
    assert_eq!(server.get("GET", "/healthz", &[]).text(), "ok\n");
    assert_eq!(server.get("GET", "/readyz", &[]).status, 200);
    let metrics = server.get("GET", "/metrics", &[]);
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain"));
    assert!(
        metrics
            .text()
            .contains("cuesta_http_requests_total{service=\"other\",status=\"200\"} 2"),
        "{}",
        metrics.text()
    );
    assert_eq!(server.get("POST", "/healthz", &[]).status, 405);
}

#[test]
fn what_is_not_there_is_404_in_plain_text() {
    let server = Server::start();
    for target in [
        "/",
        "/x",
        "/a/b",
        "/a/b/info/refs?service=git-upload-pack",
        "/a/b.git/HEAD",
        "/a/b/objects/info/packs",
        "/a/../b/c/info/refs?service=git-receive-pack",
        "//a/b/info/refs?service=git-receive-pack",
        "/a/b%2fc/info/refs?service=git-receive-pack",
    ] {
        let answer = server.get("GET", target, &[]);
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (404, "repository not found\n"),
            "{target}"
        );
        assert!(answer.header("content-type").unwrap().starts_with("text/plain"));
    }
}

#[test]
fn a_push_may_begin_where_nothing_is() {
    let server = Server::start();
    let answer = server.get("GET", "/a/b.git/info/refs?service=git-receive-pack", &[]);
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.header("content-type"),
        Some("application/x-git-receive-pack-advertisement")
    );
    assert!(answer.header("cache-control").unwrap().starts_with("no-cache"));
    assert_eq!(answer.header("x-request-id").unwrap().len(), 16);
    let text = answer.text();
    assert!(text.starts_with("001f# service=git-receive-pack\n0000"), "{text}");
    assert!(
        text.contains(
            " capabilities^{}\0report-status report-status-v2 delete-refs side-band-64k quiet atomic ofs-delta"
        ),
        "{text}"
    );
    assert!(
        text.contains("object-format=sha1 agent=cuesta/") && text.ends_with("0000"),
        "{text}"
    );
    let closed = Server::start_with(&["--set", "create_on_push=false"]);
    assert_eq!(
        closed
            .get("GET", "/a/b.git/info/refs?service=git-receive-pack", &[])
            .status,
        404
    );
    assert!(server.cuesta(&["repo", "list"]).is_empty());
}

#[test]
fn an_empty_repository_says_what_it_offers() {
    let server = Server::start();
    server.cuesta(&["repo", "create", "a/b", "--object-format", "sha256"]);
    let v2 = server
        .get(
            "GET",
            "/a/b/info/refs?service=git-upload-pack",
            &[("Git-Protocol", "version=2")],
        )
        .text();
    assert!(v2.starts_with("000eversion 2\n"), "{v2}");
    for line in [
        "ls-refs=unborn\n",
        "wait-for-done",
        "server-option\n",
        "object-format=sha256\n",
    ] {
        assert!(v2.contains(line), "{v2}");
    }
    let v1 = server
        .get(
            "GET",
            "/a/b/info/refs?service=git-upload-pack",
            &[("Git-Protocol", "x:version=1")],
        )
        .text();
    assert!(
        v1.starts_with("001e# service=git-upload-pack\n0000000eversion 1\n"),
        "{v1}"
    );
    let v0 = server.get("GET", "/a/b/info/refs?service=git-upload-pack", &[]).text();
    assert!(
        v0.contains(&format!("{} capabilities^{{}}\0multi_ack thin-pack", "0".repeat(64))),
        "{v0}"
    );
    assert!(v0.contains(" no-done ") && !v0.contains("symref="), "{v0}");
}

#[test]
fn methods_types_and_services_are_checked() {
    let server = Server::start();
    server.cuesta(&["repo", "create", "a/b"]);
    let status =
        |method: &str, target: &str, kind: &str| server.request(method, target, &[("Content-Type", kind)], b"0000");
    let wrong = status("GET", "/a/b/git-upload-pack", UPLOAD);
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("POST")));
    let wrong = status("POST", "/a/b/info/refs?service=git-upload-pack", UPLOAD);
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET, HEAD")));
    for kind in [
        "text/plain",
        RECEIVE,
        "application/x-git-upload-pack-request; charset=utf-8",
        "application/x-www-form-urlencoded",
    ] {
        assert_eq!(status("POST", "/a/b/git-upload-pack", kind).status, 415, "{kind}");
    }
    for target in [
        "/a/b/info/refs?service=",
        "/a/b/info/refs?service=git-upload-archive",
        "/a/b/info/refs?service=x",
    ] {
        assert_eq!(server.get("GET", target, &[]).status, 403, "{target}");
    }
    server.cuesta(&["repo", "config", "a/b", "http.receivepack", "false"]);
    assert_eq!(
        server.get("GET", "/a/b/info/refs?service=git-receive-pack", &[]).status,
        403
    );
    assert_eq!(status("POST", "/a/b/git-receive-pack", RECEIVE).status, 403);
}

#[test]
fn probes_are_answered_at_once() {
    let server = Server::start();
    server.cuesta(&["repo", "create", "a/b"]);
    for (service, kind) in [("git-upload-pack", UPLOAD), ("git-receive-pack", RECEIVE)] {
        let answer = server.request("POST", &format!("/a/b/{service}"), &[("Content-Type", kind)], b"0000");
        assert_eq!((answer.status, answer.body.len()), (200, 0), "{service}");
        assert_eq!(
            answer.header("content-type"),
            Some(format!("application/x-{service}-result").as_str())
        );
    }
    let absent = server.request(
        "POST",
        "/new/one/git-receive-pack",
        &[("Content-Type", RECEIVE)],
        b"0000",
    );
    assert_eq!(absent.status, 200);
    assert_eq!(server.cuesta(&["repo", "list"]), "a/b\n");
}

#[test]
fn head_has_no_body_and_old_clients_get_no_chunks() {
    let server = Server::start();
    let head = server.get("HEAD", "/a/b/info/refs?service=git-receive-pack", &[]);
    assert_eq!((head.status, head.body.len()), (200, 0));
    let old = Answer::parse(&server.raw(b"GET /a/b/info/refs?service=git-receive-pack HTTP/1.0\r\n\r\n"));
    assert_eq!(old.status, 200);
    assert!(old.header("transfer-encoding").is_none() && old.body.ends_with(b"0000"));
    let wrong = Answer::parse(&server.raw(b"DELETE /a/b/git-upload-pack HTTP/1.0\r\n\r\n"));
    assert_eq!(wrong.status, 400);
}

#[test]
fn broken_requests_get_an_answer() {
    let server = Server::start();
    server.cuesta(&["repo", "create", "a/b"]);
    let post = |encoding: &str, body: &[u8]| {
        let headers = [
            ("Content-Type", UPLOAD),
            ("Content-Encoding", encoding),
            ("Git-Protocol", "version=2"),
        ];
        server.request("POST", "/a/b/git-upload-pack", &headers, body)
    };
    assert_eq!(post("br", b"0000").status, 415);
    assert_eq!(post("gzip", b"0000").status, 400);
    for body in [
        &b"zzzz"[..],
        b"0003",
        b"0010want",
        b"0015command=ls-refs\n",
        b"0012command=steal\n0000",
    ] {
        let answer = post("identity", body);
        assert_eq!(answer.status, 200);
        assert!(answer.text().get(4..8) == Some("ERR "), "{}", answer.text());
    }
    let large = vec![b'0'; (10 << 20) + 1];
    assert!(
        post("identity", &large)
            .text()
            .contains("ERR the request body is larger than 10485760 bytes")
    );
}

#[test]
fn refuses_to_listen_to_strangers() {
    let directory = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_cuesta"))
        .args(["serve", "--listen", "0.0.0.0:0", "--data"])
        .arg(directory.path())
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no authentication"));
}
