//! The report of a push (gitprotocol-pack, `Report Status`).

use bytes::Bytes;
use cuesta_git::ObjectId;

use super::{PushCapabilities, ReportVersion};
use crate::pktline::{self, FLUSH};
use crate::sideband::SideBand;

/// What became of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Whether the pack was taken, or why not.
    pub unpack: Result<(), String>,
    /// Every command of the push, in its order.
    pub refs: Vec<RefReport>,
}

/// What became of one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefReport {
    /// The name in the command.
    pub name: Bytes,
    /// Its outcome.
    pub status: RefStatus,
}

/// The outcome of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefStatus {
    /// Done. What was done in its place, if anything, is told to clients of `report-status-v2` only.
    Ok(Vec<RefOutcome>),
    /// Refused, and why: in git's words where git has some, as clients look at them.
    Ng(String),
}

/// An update that was made in place of the one asked for; what is `None` or false was as asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RefOutcome {
    /// The ref that was updated.
    pub name: Option<Bytes>,
    /// Its value before.
    pub old: Option<ObjectId>,
    /// Its value now.
    pub new: Option<ObjectId>,
    /// Whether the update was forced.
    pub forced: bool,
}

impl Report {
    /// A report that refuses every command for one reason, with the pack taken.
    pub fn refusal<'a>(names: impl IntoIterator<Item = &'a Bytes>, why: &str) -> Self {
        let refuse = |name: &Bytes| RefReport {
            name: name.clone(),
            status: RefStatus::Ng(why.to_owned()),
        };
        Self {
            unpack: Ok(()),
            refs: names.into_iter().map(refuse).collect(),
        }
    }

    /// Appends the end of the answer to a push: the report in the form asked for, on band 1 if a side-band was, and
    /// then the flush that ends the side-band. Nothing, or that flush alone, if no report was asked for.
    pub fn write(&self, out: &mut Vec<u8>, asked: &PushCapabilities) {
        let mut report = Vec::new();
        if asked.report != ReportVersion::None {
            self.write_lines(&mut report, asked.report);
        }
        if asked.side_band {
            SideBand::Large.data(out, &report);
            out.extend_from_slice(FLUSH);
        } else {
            out.extend_from_slice(&report);
        }
    }

    fn write_lines(&self, out: &mut Vec<u8>, version: ReportVersion) {
        let unpack = self
            .unpack
            .as_ref()
            .map_or_else(|why| one_line(why), |()| "ok".to_owned());
        pktline::encode(out, &[b"unpack ", unpack.as_bytes(), b"\n"]);
        for report in &self.refs {
            match &report.status {
                RefStatus::Ok(outcomes) if version == ReportVersion::V2 => write_outcomes(out, &report.name, outcomes),
                RefStatus::Ok(_) => write_ok(out, &report.name),
                RefStatus::Ng(why) => {
                    pktline::encode(out, &[b"ng ", &report.name, b" ", one_line(why).as_bytes(), b"\n"]);
                }
            }
        }
        out.extend_from_slice(FLUSH);
    }
}

fn write_outcomes(out: &mut Vec<u8>, name: &[u8], outcomes: &[RefOutcome]) {
    write_ok(out, name);
    for (index, outcome) in outcomes.iter().enumerate() {
        if index > 0 {
            write_ok(out, name);
        }
        if let Some(name) = &outcome.name {
            pktline::encode(out, &[b"option refname ", name, b"\n"]);
        }
        if let Some(old) = &outcome.old {
            pktline::encode(out, &[b"option old-oid ", old.to_string().as_bytes(), b"\n"]);
        }
        if let Some(new) = &outcome.new {
            pktline::encode(out, &[b"option new-oid ", new.to_string().as_bytes(), b"\n"]);
        }
        if outcome.forced {
            pktline::encode(out, &[b"option forced-update\n"]);
        }
    }
}

fn write_ok(out: &mut Vec<u8>, name: &[u8]) {
    pktline::encode(out, &[b"ok ", name, b"\n"]);
}

/// A reason without control bytes, and short enough for a packet beside any name.
fn one_line(why: &str) -> String {
    why.chars()
        .take(REASON_MAX)
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect()
}

/// Characters of a reason that are shown.
const REASON_MAX: usize = 8_000;

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
