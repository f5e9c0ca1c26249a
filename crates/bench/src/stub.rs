//! A server that acknowledges every push at once and keeps nothing but ids: what the load costs without one.

use anyhow::{Context, Result};
use cuesta_protocol::pktline;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

/// Names and the hex ids they were last pushed to.
type Refs = Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>;

/// Serves one repository, whatever the path, until accepting fails.
pub fn serve(listen: std::net::SocketAddr) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(listen).await?;
        println!("acknowledging everything at http://{}", listener.local_addr()?);
        let refs = Refs::default();
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let refs = refs.clone();
            // Clients cut connections at the end of a run: nothing to report.
            tokio::spawn(async move { serve_connection(stream, &refs).await });
        }
    })
}

async fn serve_connection(mut stream: TcpStream, refs: &Refs) -> Result<()> {
    let mut input = Vec::with_capacity(64 << 10);
    loop {
        let head_len = loop {
            if let Some(at) = memchr::memmem::find(&input, b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut input).await? == 0 {
                return Ok(());
            }
        };
        let head = std::str::from_utf8(input.get(..head_len).unwrap_or_default())?;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "))
            .map_or(Ok(0), str::parse::<usize>)?;
        let push = head.starts_with("POST");
        let service = if head.contains("git-upload-pack") {
            "git-upload-pack"
        } else {
            "git-receive-pack"
        };
        while input.len() < head_len + length {
            if stream.read_buf(&mut input).await? == 0 {
                return Ok(());
            }
        }
        let answer = if push {
            acknowledge(input.get(head_len..).unwrap_or_default(), refs).await?
        } else {
            advertise(service, refs).await
        };
        input.drain(..head_len + length);
        stream.write_all(&answer).await?;
    }
}

async fn advertise(service: &str, refs: &Refs) -> Vec<u8> {
    let mut body = Vec::new();
    pktline::encode(&mut body, &[b"# service=", service.as_bytes(), b"\n"]);
    body.extend_from_slice(pktline::FLUSH);
    let mut behind: &[u8] = b"\0report-status\n";
    for (name, oid) in refs.lock().await.iter() {
        pktline::encode(&mut body, &[oid, b" ", name, behind]);
        behind = b"\n";
    }
    body.extend_from_slice(pktline::FLUSH);
    answer(&format!("application/x-{service}-advertisement"), &body)
}

async fn acknowledge(body: &[u8], refs: &Refs) -> Result<Vec<u8>> {
    let command = body.get(4..).context("no command")?;
    let command = command.split(|byte| *byte == 0).next().unwrap_or_default();
    let (oid, name) = (command.get(41..81), command.get(82..));
    let (oid, name) = oid.zip(name).context("no command")?;
    refs.lock().await.insert(name.to_vec(), oid.to_vec());
    let mut report = Vec::new();
    pktline::encode(&mut report, &[b"unpack ok\n"]);
    pktline::encode(&mut report, &[b"ok ", name, b"\n"]);
    report.extend_from_slice(pktline::FLUSH);
    Ok(answer("application/x-git-receive-pack-result", &report))
}

fn answer(content_type: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}
