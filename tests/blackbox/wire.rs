//! Requests written by hand: what stock git would never send.

use crate::session::Session;
use crate::way::Transport;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Stdio;

/// An answer.
pub(crate) struct Answer {
    /// The status code. Over SSH the exit status, of which 0 is shown as HTTP's 200.
    pub(crate) status: u16,
    /// The body, whole.
    pub(crate) body: Vec<u8>,
}

/// Sends one request on a connection of its own. The headers must say how long the body is.
pub(crate) fn request(address: SocketAddr, head: &str, body: &[u8]) -> Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    let head = format!("{head}Host: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    // A server may answer, and close, before it has read what it will not take.
    let sent = stream.write_all(body);
    read_answer(&mut BufReader::new(stream)).with_context(|| format!("sending: {sent:?}"))
}

/// Sends one request whose body ends there, whatever its headers say, and waits until the server is done with it.
pub(crate) fn request_cut(address: SocketAddr, head: &str, body: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    let head = format!("{head}Host: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    // It may have been refused already.
    let _ = stream.write_all(body).and_then(|()| stream.shutdown(Shutdown::Write));
    let _ = stream.read_to_end(&mut Vec::new());
    Ok(())
}

/// Asks a service something by hand, in the version of the protocol that `protocol` (`GIT_PROTOCOL`) names: over HTTP in one
/// POST, over SSH behind the advertisement, which is left out of the answer.
pub(crate) fn ask(session: &Session<'_>, service: &str, protocol: &str, body: &[u8]) -> Result<Answer> {
    match session.transport() {
        Transport::Http => {
            let header = format!("Git-Protocol: {protocol}\r\n");
            post(session, service, if protocol.is_empty() { "" } else { &header }, body)
        }
        Transport::Ssh | Transport::Git => {
            let mut answer = converse(session, service, protocol, body)?;
            let advertised = answer.body.len() - after_flush(&answer.body).len();
            answer.body.drain(..advertised);
            Ok(answer)
        }
    }
}

/// What a service says at first.
pub(crate) fn advertisement(session: &Session<'_>, service: &str, protocol: &str) -> Result<Answer> {
    match session.transport() {
        Transport::Http => {
            let path = session.path();
            let head = format!("GET {path}/info/refs?service={service} HTTP/1.1\r\nGit-Protocol: {protocol}\r\n");
            request(session.address(), &head, b"")
        }
        // A flush ends the conversation politely.
        Transport::Ssh | Transport::Git => converse(session, service, protocol, b"0000"),
    }
}

/// Runs a service, gives it `input` and takes all that it says.
fn converse(session: &Session<'_>, service: &str, protocol: &str, input: &[u8]) -> Result<Answer> {
    match session.transport() {
        Transport::Git => converse_over_git(session, service, protocol, input),
        _ => converse_over_ssh(session, service, protocol, input),
    }
}

/// There is no status over `git://`: whatever comes is shown as HTTP's 200.
fn converse_over_git(session: &Session<'_>, service: &str, protocol: &str, input: &[u8]) -> Result<Answer> {
    let keys: String = protocol.split(':').map(|key| format!("{key}\0")).collect();
    let mut request = Vec::new();
    let line = format!("{service} {}\0host={}\0\0{keys}", session.path(), session.address());
    write_packet(&mut request, line.as_bytes());
    let mut stream = TcpStream::connect(session.address())?;
    stream.write_all(&request)?;
    let mut output = stream.try_clone()?;
    std::thread::scope(|scope| {
        // A server may end before it has read what it will not take.
        scope.spawn(move || stream.write_all(input).and_then(|()| stream.shutdown(Shutdown::Write)));
        let mut body = Vec::new();
        match output.read_to_end(&mut body) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => Err(error.into()),
            _ => Ok(Answer { status: 200, body }),
        }
    })
}

fn converse_over_ssh(session: &Session<'_>, service: &str, protocol: &str, input: &[u8]) -> Result<Answer> {
    let mut command = session.ssh(service, protocol)?;
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipes.stderr(Stdio::null()).spawn()?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    let output = std::thread::scope(|scope| {
        // A server may end before it has read what it will not take.
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output()
    })?;
    let code = output.status.code().context("the client was killed")?;
    Ok(Answer {
        status: if code == 0 { 200 } else { u16::try_from(code)? },
        body: output.stdout,
    })
}

/// What comes behind the first flush; everything where there is none.
fn after_flush(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let Some((digits, _)) = rest.split_at_checked(4) {
        let length = std::str::from_utf8(digits).map(|digits| usize::from_str_radix(digits, 16));
        let Ok(Ok(length)) = length else { return bytes };
        match rest.get(length.max(4)..) {
            Some(behind) if length == 0 => return behind,
            Some(behind) => rest = behind,
            None => return bytes,
        }
    }
    bytes
}

/// A POST of a whole body.
pub(crate) fn post(session: &Session<'_>, service: &str, more_headers: &str, body: &[u8]) -> Result<Answer> {
    let path = session.path();
    let head = format!(
        "POST {path}/{service} HTTP/1.1\r\nContent-Type: application/x-{service}-request\r\nContent-Length: {}\r\n{more_headers}",
        body.len()
    );
    request(session.address(), &head, body)
}

fn read_answer(input: &mut impl BufRead) -> Result<Answer> {
    let (status, headers) = loop {
        let (status, headers) = read_head(input)?;
        if status != 100 {
            break (status, headers);
        }
    };
    let mut body = Vec::new();
    if headers.get("transfer-encoding").is_some_and(|value| value == "chunked") {
        read_chunks(input, &mut body)?;
    } else if let Some(length) = headers.get("content-length") {
        let length = length.parse()?;
        input.take(length).read_to_end(&mut body)?;
        ensure!(body.len() as u64 == length, "the answer is cut short");
    } else {
        input.read_to_end(&mut body)?;
    }
    Ok(Answer { status, body })
}

fn read_line(input: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    ensure!(input.read_line(&mut line)? > 0, "the connection was closed");
    Ok(line.trim_end().to_owned())
}

fn read_head(input: &mut impl BufRead) -> Result<(u16, BTreeMap<String, String>)> {
    let first = read_line(input)?;
    let status = first.split(' ').nth(1).context("no status")?.parse()?;
    let mut headers = BTreeMap::new();
    loop {
        let line = read_line(input)?;
        match line.split_once(':') {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.trim().to_ascii_lowercase()),
            None => return Ok((status, headers)),
        };
    }
}

fn read_chunks(input: &mut impl BufRead, body: &mut Vec<u8>) -> Result<()> {
    loop {
        let length = u64::from_str_radix(&read_line(input)?, 16)?;
        input.take(length).read_to_end(body)?;
        read_line(input)?;
        if length == 0 {
            return Ok(());
        }
    }
}

/// One packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    /// `0000`.
    Flush,
    /// `0001`.
    Delimiter,
    /// `0002`.
    ResponseEnd,
    /// Anything with data.
    Data(Vec<u8>),
}

/// Appends a data packet.
pub(crate) fn write_packet(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(format!("{:04x}", data.len() + 4).as_bytes());
    out.extend_from_slice(data);
}

/// Splits bytes into packets.
pub(crate) fn packets(mut bytes: &[u8]) -> Result<Vec<Packet>> {
    let mut packets = Vec::new();
    while !bytes.is_empty() {
        let digits = bytes.get(..4).context("a packet is cut short")?;
        let length = usize::from_str_radix(std::str::from_utf8(digits)?, 16)?;
        let end = length.max(4);
        packets.push(match length {
            0 => Packet::Flush,
            1 => Packet::Delimiter,
            2 => Packet::ResponseEnd,
            3 => bail!("a packet of length 3"),
            _ => Packet::Data(bytes.get(4..end).context("a packet is cut short")?.to_vec()),
        });
        bytes = bytes.get(end..).unwrap_or_default();
    }
    Ok(packets)
}

/// One command of a push.
pub(crate) struct Command<'a> {
    /// The value the client believes the ref has.
    pub(crate) old: &'a str,
    /// The value it is to get.
    pub(crate) new: &'a str,
    /// The ref.
    pub(crate) name: &'a str,
}

/// What a server said of a push.
#[derive(Debug)]
pub(crate) struct Report {
    /// `ok`, or why not.
    pub(crate) unpack: String,
    /// For each ref the reason, or none if it went well.
    pub(crate) refs: BTreeMap<String, Option<String>>,
    /// Text for the user (band 2).
    pub(crate) messages: String,
}

impl Report {
    /// The verdict without the words: `unpack ok`, `ok <ref>`, `ng <ref>`.
    pub(crate) fn verdict(&self) -> String {
        let word = if self.unpack == "ok" { "ok" } else { "failed" };
        format!("unpack {word}\n{}", self.refs_verdict())
    }

    /// The verdict on the refs alone: whether a pack was refused as such or for the sake of its ref is the server's
    /// affair where nothing of it is kept.
    pub(crate) fn refs_verdict(&self) -> String {
        let word = |reason: &Option<String>| if reason.is_none() { "ok" } else { "ng" };
        let lines = self
            .refs
            .iter()
            .map(|(name, reason)| format!("{} {name}\n", word(reason)));
        lines.collect()
    }
}

/// Pushes by hand. `pack` is sent as it is.
pub(crate) fn push(session: &Session<'_>, capabilities: &str, commands: &[Command<'_>], pack: &[u8]) -> Result<Report> {
    let mut body = Vec::new();
    for (number, Command { old, new, name }) in commands.iter().enumerate() {
        let tail = if number == 0 {
            format!("\0{capabilities}")
        } else {
            String::new()
        };
        write_packet(&mut body, format!("{old} {new} {name}{tail}").as_bytes());
    }
    body.extend_from_slice(b"0000");
    body.extend_from_slice(pack);
    let answer = ask(session, "git-receive-pack", "", &body)?;
    ensure!(answer.status == 200, "status {}", answer.status);
    read_report(&answer.body)
}

fn read_report(body: &[u8]) -> Result<Report> {
    let mut status = Vec::new();
    let mut messages = Vec::new();
    for packet in packets(body)? {
        if let Packet::Data(data) = packet {
            let (band, rest) = data.split_first().context("an empty packet")?;
            match band {
                1 => status.extend_from_slice(rest),
                2 => messages.extend_from_slice(rest),
                3 => bail!("fatal: {}", String::from_utf8_lossy(rest)),
                _ => bail!("not a band: {band}"),
            }
        }
    }
    let mut report = Report {
        unpack: String::new(),
        refs: BTreeMap::new(),
        messages: String::from_utf8_lossy(&messages).into_owned(),
    };
    for packet in packets(&status)? {
        let Packet::Data(data) = packet else { continue };
        let line = String::from_utf8_lossy(&data);
        match line.trim_end().split_once(' ') {
            Some(("unpack", result)) => result.clone_into(&mut report.unpack),
            Some(("ok", name)) => drop(report.refs.insert(name.to_owned(), None)),
            Some(("ng", rest)) => {
                let (name, reason) = rest.split_once(' ').unwrap_or((rest, ""));
                report.refs.insert(name.to_owned(), Some(reason.to_owned()));
            }
            Some(("option", _)) => {}
            _ => bail!("an odd line of a report: '{line}'"),
        }
    }
    ensure!(!report.unpack.is_empty(), "no report");
    Ok(report)
}
