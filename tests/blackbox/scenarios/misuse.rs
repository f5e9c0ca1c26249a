//! A hundred clients that misbehave at once: the server goes on, and within its memory.
//!
//! None of them is silent in the middle of a pack: those hold their share of the memory for pushes until they are given up.

use super::Check;
use crate::bucket::BucketKind;
use crate::client::Environment;
use crate::cuesta::Cuesta;
use crate::format::Format;
use crate::wire::write_packet;
use anyhow::{Context, Result, ensure};
use cuesta_bench::process;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

const CLIENTS: usize = 100;
/// What each cache, and all pushes, may take.
const SHARE_MIB: u64 = 16;
/// The shares, a request of 10 MiB for each of the fetches that are read at once, and the program itself, which is large when
/// built for debugging.
const PEAK_BYTES_MAX: u64 = 512 << 20;
/// More than any request may be once it is inflated (10 MiB).
const BOMB_BYTES: usize = 64 << 20;
const PATH: &str = "/suite/misuse.git";

pub(super) fn checks() -> Vec<Check> {
    vec![Check {
        name: "misuse::hundred_clients",
        run: hundred_clients,
    }]
}

/// A request: its head, but for the host, and its body; whether the client then stays, silent, instead of ending its stream.
struct Misuse {
    head: String,
    body: Vec<u8>,
    stays: bool,
}

fn hundred_clients(bucket: BucketKind) -> Result<()> {
    let root = tempfile::tempdir()?;
    let mut options = bucket.options(root.path())?;
    for setting in ["cache_bytes_max", "push_memory_bytes_max", "refs_cache_bytes_max"] {
        options.set(setting, &format!("{SHARE_MIB}MiB"));
    }
    let mut server = Cuesta::start(&options)?;
    let environment = Environment::new(root.path())?;
    let url = format!("http://{}{PATH}", server.address());
    let git = |arguments: &[&str]| -> Result<String> {
        let output = environment.git(root.path()).args(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "git {arguments:?} failed: {said}");
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    };
    git(&["init", "--quiet", "client"])?;
    git(&["-C", "client", "commit", "--quiet", "--allow-empty", "-m", "one"])?;
    git(&["-C", "client", "push", "--quiet", &url, "HEAD:refs/heads/main"])?;
    let tip = git(&["-C", "client", "rev-parse", "HEAD"])?;
    let kinds = kinds(&tip)?;

    process::reset_peak(server.pid())?;
    let address = server.address();
    let held: Vec<TcpStream> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let misuse = &kinds[number % kinds.len()];
                scope.spawn(move || misbehave(address, misuse))
            })
            .collect();
        let ended = clients.into_iter().map(|client| client.join().ok().flatten());
        ended.flatten().collect()
    });
    ensure!(!held.is_empty(), "nobody stayed");
    // Those who stay are still there: others are served all the same, and what was cut has changed nothing.
    server.check_alive()?;
    let refs = git(&["ls-remote", &url])?;
    ensure!(refs == format!("{tip}\tHEAD\n{tip}\trefs/heads/main"), "refs: {refs}");
    git(&["clone", "--quiet", "--bare", &url, "clone.git"])?;
    let peak = process::peak_resident_bytes(server.pid())?;
    ensure!(peak <= PEAK_BYTES_MAX, "resident memory peaked at {} MiB", peak >> 20);
    drop(held);
    server.terminate()
}

/// Sends what it will take. Returns the connection of one who stays.
fn misbehave(address: SocketAddr, misuse: &Misuse) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).ok()?;
    let head = format!("{}Host: {address}\r\n\r\n", misuse.head);
    let head = if misuse.stays && misuse.body.is_empty() {
        // Not even the head comes to its end.
        head.trim_end()
    } else {
        &head
    };
    let _ = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(&misuse.body));
    if misuse.stays {
        return Some(stream);
    }
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
    None
}

fn kinds(tip: &str) -> Result<Vec<Misuse>> {
    let zero = Format::Sha1.zero();
    let mut haves = want(tip);
    for number in 0..200_000u32 {
        write_packet(&mut haves, format!("have {number:040x}\n").as_bytes());
    }
    let mut wants = Vec::new();
    for number in 1..180_000u32 {
        write_packet(&mut wants, format!("want {number:040x}\n").as_bytes());
    }
    let mut push = Vec::new();
    write_packet(
        &mut push,
        format!("{zero} {tip} refs/heads/cut\0report-status").as_bytes(),
    );
    push.extend_from_slice(b"0000PACK\0\0\0\x02\xff\xff\xff\xff");
    let mut boast = push.clone();
    // A blob that says it is 2^60 bytes.
    boast.extend_from_slice(&[0xbf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f]);
    let long = |body: &[u8]| format!("Content-Length: {}\r\n", body.len() + 1_000_000);
    let exact = |body: &[u8]| format!("Content-Length: {}\r\n", body.len());
    let bomb = bomb()?;
    let upload = |more: &str, body: Vec<u8>, stays| misuse("git-upload-pack", more, body, stays);
    let receive = |more: &str, body: Vec<u8>, stays| misuse("git-receive-pack", more, body, stays);
    Ok(vec![
        upload(&format!("Content-Encoding: gzip\r\n{}", exact(&bomb)), bomb, false),
        upload(&exact(&haves), haves.clone(), false),
        upload(&long(&haves), haves, true),
        upload(&exact(&wants), wants, false),
        upload("Transfer-Encoding: chunked\r\n", b"fffffffffffffff\r\n".to_vec(), true),
        receive(&long(&push), push, false),
        receive(&long(&boast), boast, false),
        receive("", Vec::new(), true),
    ])
}

fn misuse(service: &str, more: &str, body: Vec<u8>, stays: bool) -> Misuse {
    let kind = format!("Content-Type: application/x-{service}-request\r\n");
    Misuse {
        head: format!("POST {PATH}/{service} HTTP/1.1\r\n{kind}{more}"),
        body,
        stays,
    }
}

fn want(tip: &str) -> Vec<u8> {
    let mut body = Vec::new();
    write_packet(&mut body, format!("want {tip} multi_ack_detailed\n").as_bytes());
    body.extend_from_slice(b"0000");
    body
}

/// Zeros that inflate to more than a request may be.
fn bomb() -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&vec![b'0'; BOMB_BYTES])?;
    encoder.finish().context("deflating")
}
