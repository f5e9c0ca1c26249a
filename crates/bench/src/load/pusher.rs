//! Pushes: a commit is built, pushed in two requests, and remembered if the server acknowledges it.

use super::history::History;
use super::link::Link;
use super::packets::next_packet;
use crate::http::Target;
use anyhow::{Context, Result, ensure};
use cuesta_git::{ObjectFormat, ObjectId};
use cuesta_protocol::pktline;

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Acknowledged, or read whole.
    Done,
    /// Refused because the ref had moved.
    Conflict,
    /// Anything else.
    Failed(String),
}

/// Pushes to one branch, forced: in two requests, of which the first tells the branch's value for the second to name.
pub(super) struct Pusher {
    reference: String,
    /// Whether other agents push to the same branch.
    shares: bool,
    history: History,
    advertisement: Vec<u8>,
    request: Vec<u8>,
    /// What is ready to be pushed, and where in the request the old value stands.
    next: Option<(ObjectId, usize)>,
    /// The last tip the server acknowledged.
    acknowledged: Option<ObjectId>,
    /// Tips sent since, whose fate is not known.
    in_doubt: Vec<ObjectId>,
}

impl Pusher {
    /// Pushes what `history` makes to the branch `branch`.
    pub(super) fn new(target: &Target, branch: &str, shares: bool, history: History) -> Self {
        let mut advertisement = Vec::new();
        target.write_head(&mut advertisement, "GET", "/info/refs?service=git-receive-pack", "");
        Self {
            reference: format!("refs/heads/{branch}"),
            shares,
            history,
            advertisement,
            request: Vec::new(),
            next: None,
            acknowledged: None,
            in_doubt: Vec::new(),
        }
    }

    /// The branch.
    pub(super) fn reference(&self) -> &str {
        &self.reference
    }

    /// The tips any of which the server may show for the branch as far as this agent knows: one, unless a push's fate is
    /// not known.
    pub(super) fn tips(&self) -> Vec<Option<ObjectId>> {
        let in_doubt = self.in_doubt.iter().map(|oid| Some(*oid));
        std::iter::once(self.acknowledged).chain(in_doubt).collect()
    }

    /// Whether the server may show this value.
    pub(super) fn may_show(&self, value: Option<ObjectId>) -> bool {
        // A shared branch shows what others pushed; but what was pushed once does not disappear.
        let others = self.shares && (value.is_some() || self.acknowledged.is_none());
        others || value == self.acknowledged || value.is_some_and(|value| self.in_doubt.contains(&value))
    }

    /// Makes the next commit and the request that pushes it, with a null old value.
    pub(super) fn prepare(&mut self, target: &Target) -> Result<()> {
        if self.next.is_some() {
            return Ok(());
        }
        let mut pack = Vec::with_capacity(32 << 10);
        let oid = self.history.write_next(&mut pack)?;
        let command = format!("{} {oid} {}", ObjectId::null(ObjectFormat::Sha1), self.reference);
        let mut commands = Vec::new();
        let behind = "\0report-status agent=cuesta-bench";
        pktline::encode(&mut commands, &[command.as_bytes(), behind.as_bytes()]);
        commands.extend_from_slice(pktline::FLUSH);
        self.request.clear();
        target.write_rpc(&mut self.request, "git-receive-pack", "", &[&commands, &pack]);
        let body_start = self.request.len() - commands.len() - pack.len();
        self.next = Some((oid, body_start + 4));
        Ok(())
    }

    /// Pushes what is prepared. The tip, if it was acknowledged, is then in [`tips`](Self::tips).
    pub(super) async fn push(&mut self, link: &mut Link) -> Result<Outcome> {
        let (oid, old_at) = self.next.take().context("nothing is prepared")?;
        let listed = link.exchange("info/refs", &self.advertisement).await?;
        let old = find_ref(listed, &self.reference)?;
        ensure!(self.may_show(old), "an acknowledged push is not in the advertisement");
        let mut digits = Vec::with_capacity(40);
        old.unwrap_or(ObjectId::null(ObjectFormat::Sha1)).push_hex(&mut digits);
        let place = self.request.get_mut(old_at..old_at + digits.len());
        place.context("no command in the request")?.copy_from_slice(&digits);
        if !self.shares {
            // What has been seen must not disappear; pushes in doubt may still arrive until another is acknowledged.
            self.acknowledged = old;
        }
        self.in_doubt.push(oid);
        let report = link.exchange("git-receive-pack", &self.request).await?;
        let outcome = read_report(report)?;
        if outcome == Outcome::Done {
            self.acknowledged = Some(oid);
            self.in_doubt.clear();
        } else {
            self.in_doubt.retain(|doubtful| *doubtful != oid);
        }
        Ok(outcome)
    }

    /// The last push did not arrive: the next commit must not build on it.
    pub(super) fn restart(&mut self) {
        self.next = None;
        self.history.restart();
    }

    /// The last tip that was acknowledged.
    pub(super) fn acknowledged(&self) -> Option<ObjectId> {
        self.acknowledged
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
    // What git says of a ref that is not what the command takes it for, here and in its own `receive-pack`.
    const CONFLICTS: [&str; 7] = [
        "non-fast-forward",
        "fetch first",
        "stale info",
        "incorrect old value",
        "reference already exists",
        "reference does not exist",
        "failed to update ref",
    ];
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
