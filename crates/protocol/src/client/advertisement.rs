//! What a server says first, as a client reads it.

use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId};

use super::{refusal, split_oid, unexpected};
use crate::capability::{Capabilities, split_value};
use crate::error::within;
use crate::pktline::{self, Packet};
use crate::{Limits, ProtocolError, Version};

/// A whole advertisement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advertisement {
    /// v2: capabilities only.
    Capabilities(ServerCapabilities),
    /// v0 or v1: refs, and capabilities with them.
    Refs(RefAdvertisement),
}

/// The capability lines of a v2 server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerCapabilities {
    lines: Vec<Bytes>,
}

impl ServerCapabilities {
    /// Whether the server has the capability or command.
    pub fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// The value of a capability; empty if it has none.
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        let mut pairs = self.lines.iter().map(|line| split_value(line));
        pairs
            .find(|(found, _)| *found == name.as_bytes())
            .map(|(_, value)| value.unwrap_or_default())
    }

    /// Whether a command has a feature, such as `filter` of `fetch`.
    pub fn has_feature(&self, command: &str, feature: &str) -> bool {
        self.value(command)
            .is_some_and(|features| Capabilities::parse(features).has(feature))
    }

    /// The format of the ids; sha1 for servers that do not say.
    pub fn object_format(&self) -> Result<ObjectFormat, ProtocolError> {
        object_format(self.value("object-format"))
    }
}

/// A v0 or v1 advertisement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefAdvertisement {
    /// V0 or V1.
    pub version: Version,
    /// The format of the ids.
    pub format: ObjectFormat,
    /// The refs, in the server's order.
    pub refs: Vec<RemoteRef>,
    /// Objects the server has besides (`.have`).
    pub haves: Vec<ObjectId>,
    /// Commits whose parents the server does not have.
    pub shallow: Vec<ObjectId>,
    list: Bytes,
}

impl RefAdvertisement {
    /// The server's capabilities.
    pub fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::parse(&self.list)
    }
}

/// A ref of another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteRef {
    /// The name, as it came.
    pub name: Bytes,
    /// The object it is at; `None` if it follows a ref that does not exist.
    pub oid: Option<ObjectId>,
    /// The object an annotated tag comes down to.
    pub peeled: Option<ObjectId>,
    /// The ref it follows.
    pub symref_target: Option<Bytes>,
}

/// Parses an advertisement of any version, with or without the banner of HTTP. A stream that ends before the
/// advertisement is given was cut off.
#[derive(Debug)]
pub struct AdvertisementParser {
    limits: Limits,
    size: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Start,
    Banner,
    Capabilities(ServerCapabilities),
    Refs(RefAdvertisement),
}

impl AdvertisementParser {
    /// A parser at the start of the server's output.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            size: 0,
            state: State::Start,
        }
    }

    /// Takes the next packet; the advertisement comes with the last one.
    pub fn handle(&mut self, packet: &Packet) -> Result<Option<Advertisement>, ProtocolError> {
        self.size = self.size.saturating_add(packet.wire_size());
        within(self.size, self.limits.answer_bytes_max, "bytes in an advertisement")?;
        match packet {
            Packet::Data(data) => self.line(pktline::text(data)).map(|()| None),
            Packet::Flush => self.flush(),
            Packet::Delim | Packet::ResponseEnd => Err(ProtocolError::Malformed(
                "unexpected packet in an advertisement".to_owned(),
            )),
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), ProtocolError> {
        refusal(line)?;
        match &mut self.state {
            State::Start => self.first_line(line),
            State::Banner => Err(unexpected("expected flush after the service line, got ", line)),
            State::Capabilities(capabilities) => {
                capabilities.lines.push(Bytes::copy_from_slice(line));
                Ok(())
            }
            State::Refs(refs) => refs.take(line, &self.limits),
        }
    }

    fn first_line(&mut self, line: &[u8]) -> Result<(), ProtocolError> {
        if line.starts_with(b"# service=") {
            self.state = State::Banner;
        } else if line == b"version 2" {
            self.state = State::Capabilities(ServerCapabilities::default());
        } else {
            let mut refs = RefAdvertisement::new();
            if line == b"version 1" {
                refs.version = Version::V1;
            } else {
                refs.take(line, &self.limits)?;
            }
            self.state = State::Refs(refs);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<Option<Advertisement>, ProtocolError> {
        match std::mem::replace(&mut self.state, State::Start) {
            State::Banner => Ok(None),
            State::Start => Ok(Some(Advertisement::Refs(RefAdvertisement::new()))),
            State::Capabilities(capabilities) => Ok(Some(Advertisement::Capabilities(capabilities))),
            State::Refs(refs) => Ok(Some(Advertisement::Refs(refs.finish()))),
        }
    }
}

impl RefAdvertisement {
    fn new() -> Self {
        Self {
            version: Version::V0,
            format: ObjectFormat::Sha1,
            refs: Vec::new(),
            haves: Vec::new(),
            shallow: Vec::new(),
            list: Bytes::new(),
        }
    }

    fn take(&mut self, line: &[u8], limits: &Limits) -> Result<(), ProtocolError> {
        let mut halves = line.splitn(2, |byte| *byte == 0);
        let line = halves.next().unwrap_or_default();
        if let Some(list) = halves.next() {
            self.list = Bytes::copy_from_slice(list);
            self.format = object_format(self.capabilities().value("object-format").map(|name| name as &[u8]))?;
        }
        if let Some(hex) = line.strip_prefix(b"shallow ") {
            let oid = ObjectId::from_hex(self.format, hex);
            self.shallow
                .push(oid.map_err(|_| unexpected("invalid shallow line: ", line))?);
            return within(self.shallow.len(), limits.remote_refs_max, "shallow lines");
        }
        let (oid, name) = split_oid(line, self.format).ok_or_else(|| unexpected("invalid ref line: ", line))?;
        self.take_ref(oid, name, limits)
    }

    fn take_ref(&mut self, oid: ObjectId, name: &[u8], limits: &Limits) -> Result<(), ProtocolError> {
        within(name.len(), limits.ref_name_bytes_max, "bytes in a ref name")?;
        if let Some(tag) = name.strip_suffix(b"^{}") {
            match self.refs.last_mut().filter(|last| last.name == tag) {
                Some(last) => last.peeled = Some(oid),
                None if tag == b"capabilities" => {}
                None => return Err(unexpected("peeled value of no ref: ", name)),
            }
        } else if name == b".have" {
            self.haves.push(oid);
        } else {
            let name = Bytes::copy_from_slice(name);
            self.refs.push(RemoteRef {
                name,
                oid: Some(oid),
                peeled: None,
                symref_target: None,
            });
        }
        within(self.refs.len() + self.haves.len(), limits.remote_refs_max, "refs")
    }

    fn finish(mut self) -> Self {
        let list = self.list.clone();
        for value in Capabilities::parse(&list).values("symref") {
            let mut halves = value.splitn(2, |byte| *byte == b':');
            let (name, target) = (halves.next().unwrap_or_default(), halves.next());
            // Only HEAD in practice, and HEAD comes first.
            if let Some(shown) = self.refs.iter_mut().find(|shown| shown.name == name) {
                shown.symref_target = target.map(Bytes::copy_from_slice);
            }
        }
        self
    }
}

fn object_format(name: Option<&[u8]>) -> Result<ObjectFormat, ProtocolError> {
    let name = name.unwrap_or(b"sha1");
    let known = std::str::from_utf8(name).ok().and_then(ObjectFormat::from_name);
    known.ok_or_else(|| unexpected("unknown object format ", name))
}

#[cfg(test)]
#[path = "advertisement_tests.rs"]
mod tests;
