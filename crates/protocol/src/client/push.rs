//! A push, asked, and its report read.

use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId};

use super::{refusal, unexpected};
use crate::capability::{push, sanitized};
use crate::error::{quote, within};
use crate::pktline::{self, Decoder, FLUSH, Packet};
use crate::receive::{PushCapabilities, PushRequest, RefOutcome, RefReport, RefStatus, Report, ReportVersion};
use crate::sideband::Band;
use crate::{Limits, ProtocolError};

/// Appends a push up to where its pack begins. Ask only for [capabilities](PushRequest::capabilities) that the server
/// advertised. Certificates are not written.
pub fn write_push(out: &mut Vec<u8>, format: ObjectFormat, request: &PushRequest) {
    request
        .shallow
        .iter()
        .for_each(|oid| pktline::encode(out, &[b"shallow ", oid.to_string().as_bytes()]));
    let list = capabilities(format, &request.capabilities);
    for (index, command) in request.commands.iter().enumerate() {
        let mut line = Vec::with_capacity(256);
        command.old.push_hex(&mut line);
        line.push(b' ');
        command.new.push_hex(&mut line);
        line.push(b' ');
        line.extend_from_slice(&command.name);
        let behind: &[&[u8]] = if index == 0 { &[&line, b"\0", &list] } else { &[&line] };
        pktline::encode(out, behind);
    }
    out.extend_from_slice(FLUSH);
    if request.capabilities.push_options {
        request
            .push_options
            .iter()
            .for_each(|option| pktline::encode(out, &[option]));
        out.extend_from_slice(FLUSH);
    }
}

fn capabilities(format: ObjectFormat, asked: &PushCapabilities) -> Vec<u8> {
    let mut list = Vec::new();
    let flags = [
        (asked.report == ReportVersion::V1, "report-status"),
        (asked.report == ReportVersion::V2, "report-status-v2"),
        (asked.side_band, "side-band-64k"),
        (asked.quiet, "quiet"),
        (asked.atomic, "atomic"),
        (asked.push_options, "push-options"),
    ];
    flags
        .iter()
        .filter(|(asked, _)| *asked)
        .for_each(|(_, flag)| push(&mut list, flag, None));
    push(&mut list, "object-format", Some(format.name().as_bytes()));
    for (name, value) in [("agent", &asked.agent), ("session-id", &asked.session_id)] {
        if let Some(value) = value {
            push(
                &mut list,
                name,
                Some(sanitized(&String::from_utf8_lossy(value)).as_bytes()),
            );
        }
    }
    // As git writes it, with a space between the NUL and the first.
    [b" ", &list[..]].concat()
}

/// A piece of the answer to a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushEvent {
    /// Nothing to act on.
    More,
    /// Text of the server for the user, as it came: mind terminals.
    Progress(Bytes),
    /// The report. With a side-band, [`End`](Self::End) follows.
    Report(Report),
    /// The side-band has ended.
    End,
}

/// Takes the answer to a push apart, which must have asked for a report. A fatal message is [`ProtocolError::Remote`].
#[derive(Debug)]
pub struct PushAnswerParser {
    format: ObjectFormat,
    limits: Limits,
    size: usize,
    inner: Option<Decoder>,
    report: Option<Report>,
}

impl PushAnswerParser {
    /// A parser of ids of that format; `side_band` as the push asked.
    pub fn new(format: ObjectFormat, limits: Limits, side_band: bool) -> Self {
        Self {
            format,
            limits,
            size: 0,
            inner: side_band.then(Decoder::new),
            report: None,
        }
    }

    /// Takes the next packet. More than one event can be in it.
    pub fn handle(&mut self, packet: &Packet) -> Result<Vec<PushEvent>, ProtocolError> {
        self.size = self.size.saturating_add(packet.wire_size());
        within(self.size, self.limits.answer_bytes_max, "bytes in a report")?;
        let Some(inner) = &mut self.inner else {
            return self.packet(packet).map(|event| vec![event]);
        };
        let payload = match packet {
            Packet::Flush => return Ok(vec![PushEvent::End]),
            Packet::Data(data) => data,
            Packet::Delim | Packet::ResponseEnd => return Err(unexpected_packet()),
        };
        let Some((first, text)) = payload.split_first() else {
            return Ok(Vec::new());
        };
        match Band::from_byte(*first) {
            Some(Band::Data) => inner.push(text),
            Some(Band::Text) => return Ok(vec![PushEvent::Progress(payload.slice(1..))]),
            Some(Band::Fatal) => return Err(ProtocolError::Remote(quote(pktline::text(text)))),
            None => return Err(ProtocolError::Malformed(format!("protocol error: bad band #{first}"))),
        }
        self.inner_packets()
    }

    fn inner_packets(&mut self) -> Result<Vec<PushEvent>, ProtocolError> {
        let mut events = Vec::new();
        while let Some(packet) = self.inner.as_mut().map(Decoder::poll).transpose()?.flatten() {
            events.push(self.packet(&packet)?);
        }
        events.retain(|event| *event != PushEvent::More);
        Ok(events)
    }

    fn packet(&mut self, packet: &Packet) -> Result<PushEvent, ProtocolError> {
        match packet {
            Packet::Data(data) => self.line(pktline::text(data)).map(|()| PushEvent::More),
            Packet::Flush => self.report.take().map(PushEvent::Report).ok_or_else(unexpected_packet),
            Packet::Delim | Packet::ResponseEnd => Err(unexpected_packet()),
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), ProtocolError> {
        refusal(line)?;
        let mut halves = line.splitn(2, |byte| *byte == b' ');
        let (key, rest) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
        let Some(report) = &mut self.report else {
            if key != b"unpack" {
                return Err(unexpected("unable to parse remote unpack status: ", line));
            }
            let unpack = if rest == b"ok" { Ok(()) } else { Err(quote(rest)) };
            self.report = Some(Report {
                unpack,
                refs: Vec::new(),
            });
            return Ok(());
        };
        match key {
            b"ok" => take_ok(report, rest),
            b"ng" => take_ng(report, rest),
            b"option" => take_option(report, rest, self.format).ok_or_else(|| unexpected("invalid option: ", line))?,
            _ => return Err(unexpected("invalid ref status from remote: ", line)),
        }
        Ok(())
    }
}

/// One ref may have several `ok` blocks in a row: one for each update made in its place.
fn take_ok(report: &mut Report, name: &[u8]) {
    match report.refs.last_mut() {
        Some(RefReport {
            name: last,
            status: RefStatus::Ok(outcomes),
        }) if last == name => {
            let blocks = outcomes.len().max(1) + 1;
            outcomes.resize(blocks, RefOutcome::default());
        }
        _ => report.refs.push(RefReport {
            name: Bytes::copy_from_slice(name),
            status: RefStatus::Ok(Vec::new()),
        }),
    }
}

fn take_ng(report: &mut Report, rest: &[u8]) {
    let mut halves = rest.splitn(2, |byte| *byte == b' ');
    let name = Bytes::copy_from_slice(halves.next().unwrap_or_default());
    let why = halves.next().map_or_else(|| "failed".to_owned(), quote);
    report.refs.push(RefReport {
        name,
        status: RefStatus::Ng(why),
    });
}

fn take_option(report: &mut Report, rest: &[u8], format: ObjectFormat) -> Option<()> {
    let RefStatus::Ok(outcomes) = &mut report.refs.last_mut()?.status else {
        return None;
    };
    if outcomes.is_empty() {
        outcomes.push(RefOutcome::default());
    }
    let outcome = outcomes.last_mut()?;
    let mut halves = rest.splitn(2, |byte| *byte == b' ');
    let (key, value) = (halves.next()?, halves.next().unwrap_or_default());
    match key {
        b"refname" => outcome.name = Some(Bytes::copy_from_slice(value)),
        b"old-oid" => outcome.old = Some(ObjectId::from_hex(format, value).ok()?),
        b"new-oid" => outcome.new = Some(ObjectId::from_hex(format, value).ok()?),
        b"forced-update" => outcome.forced = true,
        _ => {}
    }
    Some(())
}

fn unexpected_packet() -> ProtocolError {
    ProtocolError::Malformed("unexpected packet in a report".to_owned())
}

#[cfg(test)]
#[path = "push_tests.rs"]
mod tests;
