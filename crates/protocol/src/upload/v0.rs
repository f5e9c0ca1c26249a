//! v0 requests: wants with capabilities, then haves (gitprotocol-pack, `Packfile Negotiation`). v1 differs in the
//! advertisement only.

mod negotiation;

use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId};

use super::PackRequest;
use super::parse::{Boundary, IdSet};
use crate::capability::Capabilities;
use crate::error::within;
use crate::options::UploadOptions;
use crate::pktline::{self, Packet};
use crate::sideband::SideBand;
use crate::{Limits, ProtocolError};

pub use negotiation::{Negotiation, Step};

/// What a v0 client wants, before it says what it has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// What is wanted, and how.
    pub pack: PackRequest,
    /// Which acknowledgments the client understands.
    pub acks: AckMode,
    /// Whether the pack may follow `ready` at once, without the client's `done`.
    pub no_done: bool,
    /// The side-band of the pack; `None` sends it bare, without progress and without a flush behind it.
    pub side_band: Option<SideBand>,
    /// The `agent` value, as it came.
    pub agent: Option<Bytes>,
    /// The `session-id` value, as it came.
    pub session_id: Option<Bytes>,
}

impl Request {
    /// Whether the answer starts with a shallow list ([`write_v0_shallow`](super::answer::write_v0_shallow)).
    pub fn asks_to_deepen(&self) -> bool {
        self.pack.deepen != super::Deepen::Unchanged
    }
}

/// How haves are acknowledged (gitprotocol-capabilities, `multi_ack`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum AckMode {
    /// The first common object, once.
    #[default]
    Single,
    /// `multi_ack`: every common object, with `continue`.
    Multi,
    /// `multi_ack_detailed`: every common object, with `common`; and `ready`.
    Detailed,
}

/// What a packet says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Nothing yet.
    More,
    /// All wants are in. Check them, answer the shallow list if [it is asked for](Request::asks_to_deepen), and start a
    /// [`Negotiation`].
    Wants(Box<Request>),
    /// Nothing is wanted: the conversation is over.
    Nothing,
    /// The client has this object.
    Have(ObjectId),
    /// The client waits for acknowledgments.
    Flush,
    /// The client waits for the pack.
    Done,
}

/// Parses a v0 fetch packet by packet: over HTTP one request, over SSH all the client says.
///
/// After an error the connection is lost: write an `ERR` packet ([`encode_error`](crate::pktline::encode_error)) and
/// end it.
#[derive(Debug)]
pub struct RequestParser {
    format: ObjectFormat,
    options: UploadOptions,
    limits: Limits,
    stateless: bool,
    size: usize,
    haves: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Wants(Box<Wants>),
    /// All wants are in, and nothing has followed yet.
    Decided,
    Haves,
    Over,
}

#[derive(Debug, Default)]
struct Wants {
    request: Request,
    wants: IdSet,
    boundary: Boundary,
    filter_agreed: bool,
}

impl RequestParser {
    /// A parser of a fetch from a repository of that format. `stateless` is HTTP: each request is a conversation of its
    /// own.
    pub fn new(format: ObjectFormat, options: UploadOptions, limits: Limits, stateless: bool) -> Self {
        let state = State::Wants(Box::default());
        Self {
            format,
            options,
            limits,
            stateless,
            size: 0,
            haves: 0,
            state,
        }
    }

    /// Takes the next packet. There is none to take after [`Event::Nothing`] and [`Event::Done`].
    pub fn handle(&mut self, packet: &Packet) -> Result<Event, ProtocolError> {
        self.account(packet)?;
        match (&mut self.state, packet) {
            (_, Packet::Delim | Packet::ResponseEnd) | (State::Over, _) => Err(ProtocolError::Malformed(
                "git upload-pack: got an unexpected packet".to_owned(),
            )),
            (State::Wants(wants), Packet::Data(data)) => {
                wants.take(pktline::text(data), self.format, &self.options, &self.limits)?;
                Ok(Event::More)
            }
            (State::Wants(wants), Packet::Flush) => {
                let request = std::mem::take(wants).finish()?;
                let wanted = !request.pack.wants.is_empty();
                self.state = if wanted { State::Decided } else { State::Over };
                Ok(if wanted {
                    Event::Wants(Box::new(request))
                } else {
                    Event::Nothing
                })
            }
            (State::Decided | State::Haves, Packet::Flush) => {
                self.state = State::Haves;
                Ok(Event::Flush)
            }
            (State::Decided | State::Haves, Packet::Data(data)) => {
                self.state = State::Haves;
                self.have(pktline::text(data))
            }
        }
    }

    /// Says that the stream has ended. Legal before the first packet, after the last one, and for stateless clients
    /// right after the wants: they take the shallow list and come back with the rest.
    pub fn finish(&self) -> Result<(), ProtocolError> {
        match self.state {
            State::Over => Ok(()),
            State::Decided if self.stateless => Ok(()),
            State::Wants(_) if self.size == 0 => Ok(()),
            _ => Err(ProtocolError::Truncated),
        }
    }

    /// Haves of a long conversation need no memory here, so only what is kept counts.
    fn account(&mut self, packet: &Packet) -> Result<(), ProtocolError> {
        if self.stateless || matches!(self.state, State::Wants(_)) {
            self.size = self.size.saturating_add(packet.wire_size());
        }
        within(self.size, self.limits.request_bytes_max, "bytes in a request")
    }

    fn have(&mut self, line: &[u8]) -> Result<Event, ProtocolError> {
        if line == b"done" {
            self.state = State::Over;
            return Ok(Event::Done);
        }
        let hex = line
            .strip_prefix(b"have ")
            .ok_or_else(|| ProtocolError::malformed("git upload-pack: expected SHA1 list, got ", line))?;
        let oid = ObjectId::from_hex(self.format, hex)
            .map_err(|_| ProtocolError::malformed("git upload-pack: expected SHA1 object, got ", hex))?;
        if self.stateless {
            self.haves += 1;
            within(self.haves, self.limits.haves_max, "haves")?;
        }
        Ok(Event::Have(oid))
    }
}

impl Wants {
    fn take(
        &mut self,
        line: &[u8],
        format: ObjectFormat,
        options: &UploadOptions,
        limits: &Limits,
    ) -> Result<(), ProtocolError> {
        if self.boundary.take(line, format, limits)? {
            return Ok(());
        }
        if let Some(spec) = line.strip_prefix(b"filter ") {
            let policy = options.filters.as_ref().filter(|_| self.filter_agreed).ok_or_else(|| {
                ProtocolError::Refused("git upload-pack: filtering capability not negotiated".to_owned())
            })?;
            return self.boundary.take_filter(spec, policy, limits);
        }
        let (oid, capabilities) = parse_want(line, format).ok_or_else(|| {
            ProtocolError::malformed("git upload-pack: protocol error, expected to get object ID, not ", line)
        })?;
        self.capabilities(Capabilities::parse(capabilities), format)?;
        self.wants.insert(oid, limits.wants_max, "wants")
    }

    /// The first want carries the capabilities; as in git, those of later ones add to them.
    fn capabilities(&mut self, list: Capabilities<'_>, format: ObjectFormat) -> Result<(), ProtocolError> {
        let request = &mut self.request;
        if list.has("multi_ack_detailed") {
            request.acks = AckMode::Detailed;
        } else if list.has("multi_ack") {
            request.acks = AckMode::Multi;
        }
        if list.has("side-band-64k") {
            request.side_band = Some(SideBand::Large);
        } else if list.has("side-band") {
            request.side_band = Some(SideBand::Small);
        }
        request.no_done |= list.has("no-done");
        request.pack.thin_pack |= list.has("thin-pack");
        request.pack.ofs_delta |= list.has("ofs-delta");
        request.pack.no_progress |= list.has("no-progress");
        request.pack.include_tag |= list.has("include-tag");
        self.boundary.relative |= list.has("deepen-relative");
        self.filter_agreed |= list.has("filter");
        let copied = |name: &str| list.value(name).map(Bytes::copy_from_slice);
        request.agent = copied("agent").or(request.agent.take());
        request.session_id = copied("session-id").or(request.session_id.take());
        match list.value("object-format") {
            Some(name) if name != format.name().as_bytes() => {
                let client = crate::error::quote(name);
                let text = format!("mismatched object format: server {format}; client {client}");
                Err(ProtocolError::Refused(text))
            }
            _ => Ok(()),
        }
    }

    fn finish(self) -> Result<Request, ProtocolError> {
        let (shallow, deepen, filter) = self.boundary.finish()?;
        let pack = PackRequest {
            wants: self.wants.into_order(),
            shallow,
            deepen,
            filter,
            ..self.request.pack
        };
        Ok(Request { pack, ..self.request })
    }
}

/// `want <oid>`, and what follows a space.
fn parse_want(line: &[u8], format: ObjectFormat) -> Option<(ObjectId, &[u8])> {
    let (hex, rest) = line.strip_prefix(b"want ")?.split_at_checked(format.hex_width())?;
    let oid = ObjectId::from_hex(format, hex).ok()?;
    let starts_list = rest.first().is_none_or(u8::is_ascii_whitespace);
    starts_list.then_some((oid, rest))
}

#[cfg(test)]
#[path = "v0_tests.rs"]
mod tests;
