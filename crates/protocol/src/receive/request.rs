//! What a client sends before the pack (gitprotocol-pack, `Reference Update Request`).

use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId};

use super::{Certificate, Command};
use crate::capability::Capabilities;
use crate::error::within;
use crate::options::ReceiveOptions;
use crate::pktline::{self, Packet};
use crate::sideband::SideBand;
use crate::{Limits, ProtocolError};

/// A push up to its pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushRequest {
    /// The ref updates, in order; never empty. One ref may be named twice: that is for the server to refuse.
    pub commands: Vec<Command>,
    /// Commits whose parents the client does not have.
    pub shallow: Vec<ObjectId>,
    /// The push options, in order, as they came: data, never to be put into a header or a shell.
    pub push_options: Vec<Bytes>,
    /// The certificate that the commands were in.
    pub certificate: Option<Certificate>,
    /// How the client wants to be served.
    pub capabilities: PushCapabilities,
}

/// What a push asked for behind the NUL of its first command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PushCapabilities {
    /// Which report is wanted.
    pub report: ReportVersion,
    /// Whether the answer goes over a side-band (`side-band-64k`).
    pub side_band: bool,
    /// Whether band 2 is to stay silent.
    pub quiet: bool,
    /// Whether all commands are to succeed or none; only if it was offered.
    pub atomic: bool,
    /// Whether push options follow the commands; only if they were offered.
    pub push_options: bool,
    /// The `agent` value, as it came.
    pub agent: Option<Bytes>,
    /// The `session-id` value, as it came.
    pub session_id: Option<Bytes>,
}

/// The reports of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ReportVersion {
    /// The client wants none.
    #[default]
    None,
    /// `report-status`.
    V1,
    /// `report-status-v2`: with option lines.
    V2,
}

impl PushRequest {
    /// Whether a pack follows: not if every command deletes.
    pub fn has_pack(&self) -> bool {
        !self.commands.iter().all(Command::deletes)
    }

    /// Whether the push options and those of the certificate differ: every command is then to fail with
    /// `inconsistent push options`.
    pub fn has_inconsistent_options(&self) -> bool {
        self.certificate
            .as_ref()
            .is_some_and(|certificate| certificate.push_options != self.push_options)
    }
}

/// What a packet completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Nothing yet.
    More,
    /// The request. The pack, if it [has one](PushRequest::has_pack), is all that follows
    /// ([`Decoder::into_rest`](crate::pktline::Decoder::into_rest) and the rest of the stream).
    Request(Box<PushRequest>),
    /// No command at all, as in the probe `0000` that precedes a large push over HTTP: answer success and nothing.
    Empty,
}

/// Parses a push packet by packet.
///
/// After an error the connection is lost: write [`refuse`](Self::refuse) and end it.
#[derive(Debug)]
pub struct RequestParser {
    format: ObjectFormat,
    options: ReceiveOptions,
    limits: Limits,
    size: usize,
    state: State,
    request: PushRequest,
    certificate: Option<Vec<u8>>,
    option_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Commands,
    Certificate,
    PushOptions,
    Complete,
}

impl RequestParser {
    /// A parser of a push to a repository of that format.
    pub fn new(format: ObjectFormat, options: ReceiveOptions, limits: Limits) -> Self {
        let request = PushRequest {
            commands: Vec::new(),
            shallow: Vec::new(),
            push_options: Vec::new(),
            certificate: None,
            capabilities: PushCapabilities::default(),
        };
        Self {
            format,
            options,
            limits,
            size: 0,
            state: State::Commands,
            request,
            certificate: None,
            option_bytes: 0,
        }
    }

    /// Takes the next packet. There is none to take after [`Event::Request`] and [`Event::Empty`].
    pub fn handle(&mut self, packet: &Packet) -> Result<Event, ProtocolError> {
        self.size = self.size.saturating_add(packet.wire_size());
        within(self.size, self.limits.push_bytes_max, "bytes before the pack")?;
        match (self.state, packet) {
            (State::Complete, _) | (_, Packet::Delim | Packet::ResponseEnd) => Err(unexpected_packet()),
            (State::Commands, Packet::Data(data)) => self.line(data),
            (State::Certificate, Packet::Data(data)) => self.certificate_line(data),
            (State::PushOptions, Packet::Data(data)) => self.push_option(pktline::text(data)),
            (State::Commands | State::Certificate, Packet::Flush) => return self.end_of_commands(),
            (State::PushOptions, Packet::Flush) => return Ok(self.complete()),
        }?;
        Ok(Event::More)
    }

    /// Says that the stream has ended: legal only before the first packet.
    pub fn finish(&self) -> Result<(), ProtocolError> {
        if self.size == 0 || self.state == State::Complete {
            Ok(())
        } else {
            Err(ProtocolError::Truncated)
        }
    }

    /// Appends what tells the client of an error of this parser: on band 3 if a side-band was agreed, else an `ERR`
    /// packet.
    pub fn refuse(&self, out: &mut Vec<u8>, error: &ProtocolError) {
        if self.request.capabilities.side_band {
            SideBand::Large.fatal(out, &error.to_string());
        } else {
            pktline::encode_error(out, &error.to_string());
        }
    }

    fn line(&mut self, data: &[u8]) -> Result<(), ProtocolError> {
        let data = pktline::text(data);
        if let Some(hex) = data.strip_prefix(b"shallow ") {
            let expected = "protocol error: expected shallow sha, got ";
            let oid = ObjectId::from_hex(self.format, hex).map_err(|_| ProtocolError::malformed(expected, hex))?;
            self.request.shallow.push(oid);
            return within(self.request.shallow.len(), self.limits.shallows_max, "shallow lines");
        }
        let mut halves = data.splitn(2, |byte| *byte == 0);
        let line = halves.next().unwrap_or_default();
        if let Some(list) = halves.next() {
            self.capabilities(Capabilities::parse(list))?;
        }
        if line == b"push-cert" {
            return self.start_certificate();
        }
        if self.certificate.is_some() {
            return Err(both_kinds());
        }
        self.request
            .commands
            .push(Command::parse(line, self.format, &self.limits)?);
        within(self.request.commands.len(), self.limits.commands_max, "commands")
    }

    fn capabilities(&mut self, list: Capabilities<'_>) -> Result<(), ProtocolError> {
        let asked = &mut self.request.capabilities;
        asked.report = match (list.has("report-status-v2"), list.has("report-status")) {
            (true, _) => ReportVersion::V2,
            (false, true) => asked.report.max(ReportVersion::V1),
            (false, false) => asked.report,
        };
        asked.side_band |= list.has("side-band-64k");
        asked.quiet |= list.has("quiet");
        asked.atomic |= self.options.atomic && list.has("atomic");
        asked.push_options |= self.options.push_options && list.has("push-options");
        asked.agent = list.value("agent").map(Bytes::copy_from_slice);
        asked.session_id = list.value("session-id").map(Bytes::copy_from_slice);
        let format = list.value("object-format").unwrap_or(b"sha1");
        if format != self.format.name().as_bytes() {
            return Err(ProtocolError::refused("error: unsupported object format ", format));
        }
        Ok(())
    }

    fn start_certificate(&mut self) -> Result<(), ProtocolError> {
        if self.options.push_cert_nonce.is_none() {
            return Err(ProtocolError::Refused(
                "push certificates are not accepted here".to_owned(),
            ));
        }
        if self.certificate.is_some() || !self.request.commands.is_empty() {
            return Err(both_kinds());
        }
        self.certificate = Some(Vec::new());
        self.state = State::Certificate;
        Ok(())
    }

    /// Certificates are signed byte for byte: their lines keep their LF.
    fn certificate_line(&mut self, data: &[u8]) -> Result<(), ProtocolError> {
        if data == b"push-cert-end\n" {
            self.state = State::Commands;
        } else if let Some(certificate) = &mut self.certificate {
            certificate.extend_from_slice(data);
            return within(
                certificate.len(),
                self.limits.certificate_bytes_max,
                "bytes in a push certificate",
            );
        }
        Ok(())
    }

    fn push_option(&mut self, option: &[u8]) -> Result<(), ProtocolError> {
        within(
            option.len(),
            self.limits.push_option_bytes_max,
            "bytes in a push option",
        )?;
        self.option_bytes += option.len();
        within(
            self.option_bytes,
            self.limits.push_options_bytes_max,
            "bytes in push options",
        )?;
        self.request.push_options.push(Bytes::copy_from_slice(option));
        within(
            self.request.push_options.len(),
            self.limits.push_options_max,
            "push options",
        )
    }

    fn end_of_commands(&mut self) -> Result<Event, ProtocolError> {
        if let Some(text) = self.certificate.take() {
            let (certificate, commands) = Certificate::parse(&text, self.format, &self.limits)?;
            self.request.certificate = Some(certificate);
            self.request.commands = commands;
        }
        if self.request.commands.is_empty() {
            self.state = State::Complete;
            return Ok(Event::Empty);
        }
        if self.request.capabilities.push_options {
            self.state = State::PushOptions;
            return Ok(Event::More);
        }
        Ok(self.complete())
    }

    fn complete(&mut self) -> Event {
        self.state = State::Complete;
        let emptied = PushRequest {
            commands: Vec::new(),
            shallow: Vec::new(),
            push_options: Vec::new(),
            certificate: None,
            capabilities: self.request.capabilities.clone(),
        };
        Event::Request(Box::new(std::mem::replace(&mut self.request, emptied)))
    }
}

fn both_kinds() -> ProtocolError {
    ProtocolError::Malformed("protocol error: got both push certificate and unsigned commands".to_owned())
}

fn unexpected_packet() -> ProtocolError {
    ProtocolError::Malformed("protocol error: got an unexpected packet".to_owned())
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
