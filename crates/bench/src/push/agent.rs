//! One client: builds a commit, pushes it in two requests, and remembers what the server acknowledged.

use super::history::{History, Shape};
use crate::http::{Connection, Target};
use crate::now;
use anyhow::{Context, Result, ensure};
use cuesta_git::{ObjectFormat, ObjectId};
use cuesta_protocol::pktline;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One push that ended.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// When its first request was sent.
    pub(super) start: Instant,
    /// From then to the end of the last answer.
    pub(super) latency: Duration,
    /// How it ended.
    pub(super) outcome: Outcome,
}

/// How a push ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Acknowledged.
    Done,
    /// Refused because the ref had moved.
    Conflict,
    /// Anything else.
    Failed(String),
}

/// A closed loop over one branch of its own.
pub(super) struct Agent {
    target: Arc<Target>,
    reference: String,
    history: History,
    connection: Option<Connection>,
    advertisement: Vec<u8>,
    request: Vec<u8>,
    /// The last tip the server acknowledged.
    acknowledged: Option<ObjectId>,
    /// Tips sent since, whose fate is not known.
    in_doubt: Vec<ObjectId>,
    /// Pushes that ended, in order.
    pub(super) samples: Vec<Sample>,
    /// Bytes sent so far.
    pub(super) sent_bytes: u64,
    received_bytes: u64,
}

impl Agent {
    /// An agent of that name, which is also what its branch is called.
    pub(super) fn new(target: Arc<Target>, name: &str, shape: Shape) -> Self {
        let mut advertisement = Vec::new();
        target.write_head(&mut advertisement, "GET", "/info/refs?service=git-receive-pack", "");
        Self {
            target,
            reference: format!("refs/heads/{name}"),
            history: History::new(name, shape),
            connection: None,
            advertisement,
            request: Vec::new(),
            acknowledged: None,
            in_doubt: Vec::new(),
            samples: Vec::new(),
            sent_bytes: 0,
            received_bytes: 0,
        }
    }

    /// Pushes without end; to be cancelled.
    pub(super) async fn work(&mut self) -> Result<()> {
        loop {
            self.step().await?;
        }
    }

    /// Pushes once. Building the commit is outside the time taken.
    pub(super) async fn step(&mut self) -> Result<()> {
        let (oid, old_at) = self.prepare()?;
        let start = now();
        let outcome = match self.push(oid, old_at).await {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        let latency = start.elapsed();
        if outcome != Outcome::Done {
            self.recover().await;
        }
        self.samples.push(Sample {
            start,
            latency,
            outcome,
        });
        Ok(())
    }

    /// The branch, and the tips any of which the server may show for it: one, unless a push's fate is not known.
    pub(super) fn tips(&self) -> (&str, Vec<Option<ObjectId>>) {
        let in_doubt = self.in_doubt.iter().map(|oid| Some(*oid));
        (
            &self.reference,
            std::iter::once(self.acknowledged).chain(in_doubt).collect(),
        )
    }

    /// Bytes received so far.
    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes + self.connection.as_ref().map_or(0, |open| open.received_bytes)
    }

    /// Writes the whole POST with a null old id, which the advertisement will tell; and where that id stands.
    fn prepare(&mut self) -> Result<(ObjectId, usize)> {
        let mut pack = Vec::with_capacity(32 << 10);
        let oid = self.history.write_next(&mut pack)?;
        let command = format!("{} {oid} {}", ObjectId::null(ObjectFormat::Sha1), self.reference);
        let mut body = Vec::with_capacity(pack.len() + 256);
        let behind = "\0report-status agent=cuesta-bench";
        pktline::encode(&mut body, &[command.as_bytes(), behind.as_bytes()]);
        body.extend_from_slice(pktline::FLUSH);
        body.extend_from_slice(&pack);
        self.request.clear();
        let headers = format!(
            "Content-Type: application/x-git-receive-pack-request\r\nAccept: application/x-git-receive-pack-result\r\n\
             Content-Length: {}\r\n",
            body.len()
        );
        self.target
            .write_head(&mut self.request, "POST", "/git-receive-pack", &headers);
        let old_at = self.request.len() + 4;
        self.request.extend_from_slice(&body);
        Ok((oid, old_at))
    }

    async fn push(&mut self, oid: ObjectId, old_at: usize) -> Result<Outcome> {
        if self.connection.is_none() {
            self.connection = Some(Connection::open(&self.target).await?);
        }
        let connection = self.connection.as_mut().context("no connection")?;
        let status = connection.exchange(&self.advertisement).await?;
        self.sent_bytes += self.advertisement.len() as u64;
        ensure!(status == 200, "info/refs: status {status}");
        let old = find_ref(connection.body(), &self.reference)?;
        let known = old == self.acknowledged || old.is_some_and(|old| self.in_doubt.contains(&old));
        ensure!(known, "an acknowledged push is not in the advertisement");
        let mut digits = Vec::with_capacity(40);
        old.unwrap_or(ObjectId::null(ObjectFormat::Sha1)).push_hex(&mut digits);
        let place = self.request.get_mut(old_at..old_at + digits.len());
        place.context("no command in the request")?.copy_from_slice(&digits);
        // What has been seen must not disappear; pushes in doubt may still arrive until another is acknowledged.
        self.acknowledged = old;
        self.in_doubt.push(oid);
        let status = connection.exchange(&self.request).await?;
        self.sent_bytes += self.request.len() as u64;
        ensure!(status == 200, "git-receive-pack: status {status}");
        let outcome = read_report(connection.body())?;
        if outcome == Outcome::Done {
            self.acknowledged = Some(oid);
            self.in_doubt.clear();
        } else {
            self.in_doubt.retain(|doubtful| *doubtful != oid);
        }
        Ok(outcome)
    }

    /// After a failure: a new connection and a new root, and a pause so that a server that is down is not stormed.
    async fn recover(&mut self) {
        self.received_bytes = self.received_bytes();
        self.connection = None;
        self.history.restart();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Reads a v0 advertisement to its end and finds a ref in it.
fn find_ref(advertisement: &[u8], name: &str) -> Result<Option<ObjectId>> {
    let mut found = None;
    let mut rest = advertisement;
    let mut flushes = 0;
    while !rest.is_empty() {
        let (packet, behind) = next_packet(rest)?;
        rest = behind;
        let Some(packet) = packet else {
            flushes += 1;
            continue;
        };
        let line = packet.split(|byte| *byte == 0).next().unwrap_or_default();
        let matches = line.get(41..).map(pktline::text) == Some(name.as_bytes());
        if matches {
            found = Some(ObjectId::from_hex(
                ObjectFormat::Sha1,
                line.get(..40).unwrap_or_default(),
            )?);
        }
    }
    // One flush behind the service's name, one at the end.
    ensure!(flushes == 2, "the advertisement is cut short");
    Ok(found)
}

/// The first packet (`None` for a flush) and what follows it; without a copy, for there may be 100,000.
fn next_packet(bytes: &[u8]) -> Result<(Option<&[u8]>, &[u8])> {
    let digits = bytes.get(..4).context("a pkt-line is cut short")?;
    let length = usize::from_str_radix(std::str::from_utf8(digits)?, 16)?;
    if length == 0 {
        return Ok((None, bytes.get(4..).unwrap_or_default()));
    }
    let packet = bytes.get(4..length).context("a pkt-line is cut short")?;
    Ok((Some(packet), bytes.get(length..).unwrap_or_default()))
}

/// Reads `unpack ok` and one `ok <ref>`. An error leaves the push in doubt; a refusal does not.
fn read_report(report: &[u8]) -> Result<Outcome> {
    let (unpack, rest) = next_packet(report)?;
    let unpack = pktline::text(unpack.context("an empty report")?);
    if unpack != b"unpack ok" {
        return Ok(Outcome::Failed(String::from_utf8_lossy(unpack).into_owned()));
    }
    let (status, _) = next_packet(rest)?;
    let status = pktline::text(status.context("no status in the report")?);
    if status.starts_with(b"ok ") {
        return Ok(Outcome::Done);
    }
    // `ng <ref> <reason>`; names of refs hold no space.
    let status = String::from_utf8_lossy(status);
    let reason = status.splitn(3, ' ').nth(2).unwrap_or(&status);
    const CONFLICTS: [&str; 4] = ["non-fast-forward", "fetch first", "stale info", "incorrect old value"];
    if CONFLICTS.iter().any(|conflict| reason.contains(conflict)) {
        return Ok(Outcome::Conflict);
    }
    Ok(Outcome::Failed(reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(lines: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            match line {
                [] => out.extend_from_slice(pktline::FLUSH),
                line => pktline::encode(&mut out, &[line]),
            }
        }
        out
    }

    #[test]
    fn a_ref_is_found_first_last_or_not() {
        let [one, two] = ["1", "2"].map(|digit| digit.repeat(40));
        let first = format!("{one} refs/heads/a\0report-status\n");
        let second = format!("{two} refs/heads/ab\n");
        let all = packets(&[
            b"# service=git-receive-pack\n",
            b"",
            first.as_bytes(),
            second.as_bytes(),
            b"",
        ]);
        let find = |name| find_ref(&all, name).unwrap().map(|oid| oid.to_string());
        assert_eq!(find("refs/heads/a"), Some(one));
        assert_eq!(find("refs/heads/ab"), Some(two));
        assert_eq!(find("refs/heads/b"), None);
        assert!(find_ref(&all[..all.len() - 4], "refs/heads/a").is_err());
    }

    #[test]
    fn reports_are_told_apart() {
        let report = |line: &[u8]| read_report(&packets(&[b"unpack ok\n", line, b""]));
        assert_eq!(report(b"ok refs/heads/a\n").unwrap(), Outcome::Done);
        assert_eq!(
            report(b"ng refs/heads/a non-fast-forward\n").unwrap(),
            Outcome::Conflict
        );
        let failed = |reason: &str| Outcome::Failed(reason.to_owned());
        assert_eq!(
            report(b"ng refs/heads/a hook declined\n").unwrap(),
            failed("hook declined")
        );
        let unpack = read_report(&packets(&[b"unpack bad pack\n", b""]));
        assert_eq!(unpack.unwrap(), failed("unpack bad pack"));
        assert!(read_report(b"000eunpack").is_err());
    }
}
