//! Many identical clones at once: what they cost a server together, beside one of them and beside their bytes alone.
//!
//! Requests are made over protocol v2 and answers thrown away, since clients that index 32 packs would leave the server no CPU.
//! The bytes' own cost is measured: as many are written to a socket of this machine by a thread that does nothing else.

use crate::http::{Connection, Sink, Target};
use crate::process;
use anyhow::{Context, Result, ensure};
use cuesta_protocol::pktline;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

/// What to clone, and how often.
#[derive(Clone, Debug)]
pub struct Options {
    /// The repository.
    pub url: String,
    /// The server's process.
    pub pid: u32,
    /// Clones at once.
    pub clones: u32,
    /// Of that depth, if any.
    pub depth: Option<u32>,
    /// With that filter, if any.
    pub filter: Option<String>,
}

/// Bytes written at once to learn what a socket costs, and in all.
const POUR_BYTES: usize = 256 << 10;
const POURED_BYTES: usize = 2 << 30;

/// Clones once, then many times at once, then once again, and prints a table.
pub fn run(options: &Options) -> Result<()> {
    let target = Target::parse(&options.url, None)?;
    let wants = wants(options)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cost = |clones: u32, capability: Option<&str>| -> Result<(Duration, u64)> {
        let request = request(&target, options, &wants, capability);
        let before = process::cpu(options.pid)?;
        let bytes = runtime.block_on(clone_together(&target, &request, clones))?;
        Ok((process::cpu(options.pid)?.saturating_sub(before), bytes))
    };
    // A server that keeps answers must not know the second request by the first: a capability without effect on a clone
    // makes the difference.
    let (one, one_bytes) = cost(1, None)?;
    let (many, many_bytes) = cost(options.clones, Some("thin-pack"))?;
    let (again, _) = cost(1, Some("thin-pack"))?;
    let a_byte = pour()?.as_secs_f64() / POURED_BYTES as f64;
    let socket = |bytes: u64| bytes as f64 * a_byte;
    let else_of_one = (one.as_secs_f64() - socket(one_bytes)).max(0.0);
    let allowed = socket(many_bytes) + 2.0 * else_of_one;
    println!(
        "| clones at once | bytes of one | CPU s of one | of it the socket's | CPU s of all | of it the socket's | sockets + 2 x all else of one | one again |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    println!(
        "| {} | {one_bytes} | {:.3} | {:.3} | {:.3} | {:.3} | {allowed:.3} | {:.3} |",
        options.clones,
        one.as_secs_f64(),
        socket(one_bytes),
        many.as_secs_f64(),
        socket(many_bytes),
        again.as_secs_f64(),
    );
    Ok(())
}

/// The tip of `HEAD` for a shallow clone; else what heads and tags name.
fn wants(options: &Options) -> Result<Vec<String>> {
    let mut command = Command::new("git");
    command.args(["-c", "protocol.version=2", "ls-remote", "--quiet", &options.url]);
    match options.depth {
        Some(_) => command.arg("HEAD"),
        None => command.args(["HEAD", "refs/heads/*", "refs/tags/*"]),
    };
    let listed = command.output()?;
    ensure!(listed.status.success(), "git ls-remote failed");
    let lines = String::from_utf8(listed.stdout)?;
    let peeled = |line: &&str| !line.ends_with("^{}");
    let mut wants: Vec<String> = lines
        .lines()
        .filter(peeled)
        .filter_map(|line| line.get(..40))
        .map(str::to_owned)
        .collect();
    wants.sort_unstable();
    wants.dedup();
    ensure!(!wants.is_empty(), "nothing to clone");
    Ok(wants)
}

fn request(target: &Target, options: &Options, wants: &[String], capability: Option<&str>) -> Vec<u8> {
    let mut lines = vec!["no-progress".to_owned(), "ofs-delta".to_owned()];
    lines.extend(capability.map(str::to_owned));
    lines.extend(wants.iter().map(|want| format!("want {want}")));
    lines.extend(options.depth.map(|depth| format!("deepen {depth}")));
    lines.extend(options.filter.iter().map(|filter| format!("filter {filter}")));
    lines.push("done".to_owned());
    let mut body = Vec::new();
    for line in ["command=fetch", "object-format=sha1"] {
        pktline::encode(&mut body, &[line.as_bytes()]);
    }
    body.extend_from_slice(pktline::DELIM);
    for line in lines {
        pktline::encode(&mut body, &[line.as_bytes(), b"\n"]);
    }
    body.extend_from_slice(pktline::FLUSH);
    let mut request = Vec::new();
    target.write_rpc(&mut request, "git-upload-pack", "Git-Protocol: version=2\r\n", &[&body]);
    request
}

/// Bytes of all answers.
async fn clone_together(target: &Target, request: &[u8], clones: u32) -> Result<u64> {
    let clone = || async {
        let mut connection = Connection::open(target).await?;
        let mut answer = Answer::default();
        let status = connection.exchange_into(request, &mut answer).await?;
        ensure!(status == 200, "status {status}");
        ensure!(answer.last == *pktline::FLUSH, "an answer was cut off");
        Ok(connection.received_bytes)
    };
    let all = futures::future::try_join_all((0..clones).map(|_| clone())).await?;
    Ok(all.into_iter().sum())
}

/// The last packet of an answer.
#[derive(Default)]
struct Answer {
    last: Vec<u8>,
}

impl Sink for Answer {
    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        let from = bytes.len().saturating_sub(pktline::FLUSH.len());
        self.last.extend_from_slice(bytes.get(from..).unwrap_or_default());
        let surplus = self.last.len().saturating_sub(pktline::FLUSH.len());
        self.last.drain(..surplus);
        Ok(())
    }
}

/// CPU of writing [`POURED_BYTES`] to a socket whose other end reads them.
fn pour() -> Result<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let reader = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, mut buffer) = (listener.accept()?.0, vec![0; POUR_BYTES]);
        while stream.read(&mut buffer)? > 0 {}
        Ok(())
    });
    let writer = std::thread::spawn(move || -> Result<Duration> {
        let (mut stream, buffer) = (TcpStream::connect(address)?, vec![7; POUR_BYTES]);
        let before = process::thread_cpu()?;
        for _ in 0..POURED_BYTES / POUR_BYTES {
            stream.write_all(&buffer)?;
        }
        Ok(process::thread_cpu()?.saturating_sub(before))
    });
    let spent = writer.join().ok().context("the writer ended early")??;
    reader.join().ok().context("the reader ended early")??;
    Ok(spent)
}
