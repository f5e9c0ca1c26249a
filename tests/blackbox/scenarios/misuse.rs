//! A hundred clients that misbehave at once, over HTTP and SSH: the server goes on, serves others, and stays within its memory.

use super::Check;
use crate::bucket::BucketKind;
use crate::client::Environment;
use crate::cuesta::Cuesta;
use crate::format::Format;
use crate::ssh;
use crate::wire::write_packet;
use anyhow::{Context, Result, ensure};
use cuesta_bench::process;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};

const CLIENTS: usize = 100;
/// What the server may take for its caches, for pushes and for requests, in MiB by setting. Requests that are being read have
/// room for four of the longest at once; silent ones among them are given up after ten seconds.
type Bounds = [(&'static str, u64); 4];
const SMALL: Bounds = [
    ("cache_bytes_max", 16),
    ("push_memory_bytes_max", 16),
    ("refs_cache_bytes_max", 16),
    ("request_memory_bytes_max", 64),
];
/// What holds where the settings say nothing.
const DEFAULTS: Bounds = [
    ("cache_bytes_max", 128),
    ("push_memory_bytes_max", 128),
    ("refs_cache_bytes_max", 32),
    ("request_memory_bytes_max", 64),
];
/// Beside them: the ledger's pages (32), what connections hold by themselves, and the program, which is large when built for
/// debugging. Without a bound on requests being read it is exceeded by far.
const ELSE_MIB: u64 = 96;
/// More than any request may be once it is inflated (10 MiB).
const BOMB_BYTES: usize = 64 << 20;
/// Commands that never end, of which a push may have 64 MiB.
const COMMANDS: usize = 200_000;
const PATH: &str = "/suite/misuse.git";
/// What a silent sender is told when others wait for its memory.
const HOLDS_UP: &str = "the client stopped sending while others wait";

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check {
            name: "misuse::hundred_clients",
            run: |bucket| hundred_clients(bucket, &SMALL, true),
        },
        Check {
            name: "misuse::hundred_clients_by_default",
            run: |bucket| hundred_clients(bucket, &DEFAULTS, false),
        },
    ]
}

/// What one client does.
struct Misuse {
    over: Over,
    body: Vec<u8>,
    /// Whether it then stays, silent, instead of ending its stream.
    stays: bool,
}

enum Over {
    /// A request with this head, but for the host.
    Http(String),
    /// A command.
    Ssh(String),
    /// Nothing but a connection to the port of SSH.
    SshPort,
}

/// A client that stays.
enum Staying {
    Stream(TcpStream),
    /// Holds its standard input open.
    Process(Child),
}

/// With these bounds, which must be `set`, or hold by themselves.
fn hundred_clients(bucket: BucketKind, bounds: &Bounds, set: bool) -> Result<()> {
    let root = tempfile::tempdir()?;
    let mut options = bucket.options(root.path())?;
    for (setting, mib) in bounds.iter().filter(|_| set) {
        options.set(setting, &format!("{mib}MiB"));
    }
    let mut server = Cuesta::start(&options)?;
    let environment = Environment::new(root.path())?.with(ssh::client_variables()?);
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
    let mut staying = misbehave_together(&server, &environment, root.path(), &kinds);
    ensure!(!staying.is_empty(), "nobody stayed");
    // Those who stay are still there: others are served all the same, and what was cut has changed nothing.
    server.check_alive()?;
    let over_ssh = format!("ssh://git@{}{PATH}", server.ssh_address());
    for url in [&url, &over_ssh] {
        let refs = git(&["ls-remote", url])?;
        ensure!(refs == format!("{tip}\tHEAD\n{tip}\trefs/heads/main"), "refs: {refs}");
    }
    git(&["clone", "--quiet", "--bare", &url, "clone.git"])?;
    push_behind_silent_ones(&git, &url, root.path())?;
    let peak_mib = process::peak_resident_bytes(server.pid())? >> 20;
    let peak_mib_max = ELSE_MIB + bounds.iter().map(|(_, mib)| mib).sum::<u64>();
    println!("resident memory peaked at {peak_mib} MiB of {peak_mib_max}");
    ensure!(peak_mib <= peak_mib_max, "resident memory peaked at {peak_mib} MiB");
    let told = staying.iter_mut().filter_map(|one| one.told().ok());
    let given_up = told.filter(|told| told.contains(HOLDS_UP)).count();
    ensure!(given_up > 0, "no silent sender was given up");
    server.terminate()
}

/// A push whose length nobody knows beforehand, and so one that waits behind all that hold memory for large ones.
fn push_behind_silent_ones(git: &impl Fn(&[&str]) -> Result<String>, url: &str, root: &Path) -> Result<()> {
    let mut random = vec![0; 2 << 20];
    fastrand::Rng::with_seed(3).fill(&mut random);
    std::fs::write(root.join("client/file"), random)?;
    git(&["-C", "client", "add", "file"])?;
    git(&["-C", "client", "commit", "--quiet", "-m", "two"])?;
    git(&[
        "-C",
        "client",
        "-c",
        "http.postBuffer=65536",
        "push",
        "--quiet",
        url,
        "HEAD:refs/heads/other",
    ])
    .map(drop)
}

/// All clients at once, of every kind in turn. Returns those who stay.
fn misbehave_together(server: &Cuesta, environment: &Environment, root: &Path, kinds: &[Misuse]) -> Vec<Staying> {
    let (address, ssh_address) = (server.address(), server.ssh_address());
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let misuse = &kinds[number % kinds.len()];
                scope.spawn(move || match &misuse.over {
                    Over::Http(head) => over_http(address, head, misuse).ok().flatten(),
                    Over::Ssh(command) => over_ssh(environment, root, ssh_address, command, misuse).ok().flatten(),
                    Over::SshPort => over_tcp(ssh_address, b"", misuse).ok().flatten(),
                })
            })
            .collect();
        let ended = clients.into_iter().map(|client| client.join().ok().flatten());
        ended.flatten().collect()
    })
}

fn over_http(address: SocketAddr, head: &str, misuse: &Misuse) -> Result<Option<Staying>> {
    let head = format!("{head}Host: {address}\r\n\r\n");
    // With nothing behind it, not even the head comes to its end.
    let unfinished = misuse.stays && misuse.body.is_empty();
    let head = if unfinished { head.trim_end() } else { &head };
    over_tcp(address, head.as_bytes(), misuse)
}

/// Sends what the server will take.
fn over_tcp(address: SocketAddr, head: &[u8], misuse: &Misuse) -> Result<Option<Staying>> {
    let mut stream = TcpStream::connect(address)?;
    let _ = stream.write_all(head).and_then(|()| stream.write_all(&misuse.body));
    if misuse.stays {
        return Ok(Some(Staying::Stream(stream)));
    }
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
    Ok(None)
}

fn over_ssh(
    environment: &Environment,
    root: &Path,
    address: SocketAddr,
    command: &str,
    misuse: &Misuse,
) -> Result<Option<Staying>> {
    let mut client = environment.command(&ssh::program()?, root);
    client.args([
        "-p",
        &address.port().to_string(),
        &format!("git@{}", address.ip()),
        command,
    ]);
    client.env("GIT_PROTOCOL", "version=2");
    let pipes = client
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = pipes.spawn()?;
    let stdin = child.stdin.as_mut().context("no stdin")?;
    let _ = stdin.write_all(&misuse.body);
    if misuse.stays {
        return Ok(Some(Staying::Process(child)));
    }
    child.wait_with_output()?;
    Ok(None)
}

impl Staying {
    /// What the server has said to it. Waits for the end of silent pushes; others are let go.
    fn told(&mut self) -> Result<String> {
        let mut told = Vec::new();
        match self {
            Self::Stream(stream) => {
                stream.set_nonblocking(true)?;
                let _ = stream.read_to_end(&mut told);
            }
            Self::Process(child) => {
                drop(child.stdin.take());
                child.stdout.take().context("no stdout")?.read_to_end(&mut told)?;
                child.wait()?;
            }
        }
        Ok(String::from_utf8_lossy(&told).into_owned())
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        if let Self::Process(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
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
    let mut commands = Vec::new();
    for number in 0..COMMANDS {
        let capabilities = if number == 0 { "\0report-status" } else { "" };
        let line = format!("{zero} {tip} refs/heads/{number:0200}{capabilities}");
        write_packet(&mut commands, line.as_bytes());
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
    let upload = |more: &str, body: Vec<u8>, stays| http("git-upload-pack", more, body, stays);
    let receive = |more: &str, body: Vec<u8>, stays| http("git-receive-pack", more, body, stays);
    Ok(vec![
        upload(&format!("Content-Encoding: gzip\r\n{}", exact(&bomb)), bomb, false),
        upload(&exact(&haves), haves.clone(), false),
        ssh_command("git-upload-pack", haves.clone(), false),
        upload(&long(&haves), haves, true),
        upload(&exact(&wants), wants.clone(), false),
        ssh_command("git-upload-pack", wants.clone(), false),
        upload("Transfer-Encoding: chunked\r\n", b"fffffffffffffff\r\n".to_vec(), true),
        receive(&exact(&commands), commands.clone(), false),
        ssh_command("git-receive-pack", commands, false),
        receive(&long(&push), push.clone(), false),
        receive(&long(&push), push.clone(), true),
        ssh_command("git-receive-pack", push, true),
        receive(&long(&boast), boast.clone(), false),
        ssh_command("git-receive-pack", boast, false),
        receive("", Vec::new(), true),
        Misuse {
            over: Over::SshPort,
            body: Vec::new(),
            stays: true,
        },
        Misuse {
            over: Over::SshPort,
            body: b"SSH-2.0-x\r\n\0\xff\xff\xff".repeat(10_000),
            stays: false,
        },
        ssh_command("nonsense", wants, false),
    ])
}

fn http(service: &str, more: &str, body: Vec<u8>, stays: bool) -> Misuse {
    let kind = format!("Content-Type: application/x-{service}-request\r\n");
    let over = Over::Http(format!("POST {PATH}/{service} HTTP/1.1\r\n{kind}{more}"));
    Misuse { over, body, stays }
}

fn ssh_command(service: &str, body: Vec<u8>, stays: bool) -> Misuse {
    let over = Over::Ssh(format!("{service} '{PATH}'"));
    Misuse { over, body, stays }
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
