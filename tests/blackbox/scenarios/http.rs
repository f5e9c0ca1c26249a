//! HTTP itself: what is refused, and encodings of bodies.

use super::Scenario;
use crate::session::Session;
use crate::wire;
use anyhow::{Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("http::statuses", statuses).over_http(),
        Scenario::new("http::bodies", bodies).over_http(),
        Scenario::new("http::nonsense", nonsense).over_http(),
    ]
}

fn publish(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    client.commit("main", "a", "1\n")?;
    client.git(&["push", "--quiet", "origin", "main"]).map(drop)
}

fn statuses(session: &Session<'_>) -> Result<()> {
    publish(session)?;
    let path = session.path();
    let nothing = path.replace(".git", "-nothing.git");
    for (method, target) in [
        ("GET", format!("{path}/info/refs?service=git-upload-pack")),
        ("GET", format!("{path}/info/refs?service=git-receive-pack")),
        ("GET", format!("{path}/info/refs?service=git-none")),
        ("GET", format!("{nothing}/info/refs?service=git-upload-pack")),
        ("GET", format!("{path}/config")),
        ("POST", format!("{nothing}/git-upload-pack")),
        ("POST", format!("{path}/git-none")),
    ] {
        let head = format!(
            "{method} {target} HTTP/1.1\r\nContent-Length: 0\r\nContent-Type: application/x-git-upload-pack-request\r\n"
        );
        let status = wire::request(session.address(), &head, b"")?.status;
        // Which of the codes for a refusal is a matter of taste.
        let class = if status < 400 {
            status.to_string()
        } else {
            format!("{}xx", status / 100)
        };
        session.record(&format!("{method} {target}: {class}"));
    }
    Ok(())
}

fn ls_refs(session: &Session<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    wire::write_packet(&mut body, b"command=ls-refs\n");
    wire::write_packet(&mut body, format!("object-format={}", session.format()).as_bytes());
    body.extend_from_slice(b"0001");
    wire::write_packet(&mut body, b"ref-prefix refs/heads/\n");
    body.extend_from_slice(b"0000");
    body
}

fn bodies(session: &Session<'_>) -> Result<()> {
    publish(session)?;
    let plain = ls_refs(session);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&plain)?;
    let zipped = encoder.finish()?;
    let encoding = "Content-Encoding: gzip\r\n";
    let version = "Git-Protocol: version=2\r\n";
    let expect = "Expect: 100-continue\r\n";
    for (what, headers, body) in [
        ("plain", version.to_owned(), &plain),
        ("expect", format!("{version}{expect}"), &plain),
        ("gzip", format!("{version}{encoding}"), &zipped),
        ("gzip, expect", format!("{version}{encoding}{expect}"), &zipped),
        (
            "a later version",
            "Git-Protocol: version=2:other=1\r\n".to_owned(),
            &plain,
        ),
    ] {
        let answer = wire::post(session, "git-upload-pack", &headers, body)?;
        session.record(&format!("{what}: {}", answer.status));
        session.record(&String::from_utf8_lossy(&answer.body));
        let answer = post_chunked(session, &headers, body)?;
        session.record(&format!("{what}, chunked: {}", answer.status));
        session.record(&String::from_utf8_lossy(&answer.body));
    }
    Ok(())
}

/// In chunks of three bytes.
fn post_chunked(session: &Session<'_>, headers: &str, body: &[u8]) -> Result<wire::Answer> {
    let path = session.path();
    let head = format!(
        "POST {path}/git-upload-pack HTTP/1.1\r\nContent-Type: application/x-git-upload-pack-request\r\n\
         Transfer-Encoding: chunked\r\n{headers}"
    );
    let mut chunks = Vec::new();
    for chunk in body.chunks(3) {
        chunks.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        chunks.extend_from_slice(chunk);
        chunks.extend_from_slice(b"\r\n");
    }
    chunks.extend_from_slice(b"0\r\n\r\n");
    wire::request(session.address(), &head, &chunks)
}

/// Bytes that are no request of git: whatever is said of them, the server must go on.
fn nonsense(session: &Session<'_>) -> Result<()> {
    publish(session)?;
    let unfinished = ls_refs(session).into_iter().take(30).collect::<Vec<_>>();
    for service in ["git-upload-pack", "git-receive-pack"] {
        for body in [&b"xxxx"[..], b"0003", b"fff0", b"0008done", b"", b"0000", &unfinished] {
            for version in ["", "Git-Protocol: version=2\r\n"] {
                // Stock git may close without an answer.
                let answer = wire::post(session, service, version, body);
                let status = answer.map_or(200, |answer| answer.status);
                ensure!(status != 500, "{service} {body:?}: an internal error");
            }
        }
    }
    let bad_gzip = wire::post(
        session,
        "git-upload-pack",
        "Content-Encoding: gzip\r\n",
        b"no gzip at all",
    );
    ensure!(
        bad_gzip.map_or(200, |answer| answer.status) != 500,
        "bad gzip: an internal error"
    );
    session.git(&["ls-remote", &session.url()]).map(drop)
}
