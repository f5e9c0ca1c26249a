//! The pack of what a remote has and we have not.
//!
//! One request: the tips of our refs are the haves, and `done` ends the negotiation. The pack is handed on as it comes.

use super::discover::{Discovered, Server};
use super::{AGENT, Remote, RemoteError};
use bytes::Bytes;
use cuesta_engine::import::{PackStream, SourceRefs};
use cuesta_git::{ObjectFormat, ObjectId};
use cuesta_protocol::client::{FetchAnswerParser, FetchEvent, write_fetch};
use cuesta_protocol::pktline::{self, Decoder, FLUSH, Packet};
use cuesta_protocol::sideband::Band;
use cuesta_protocol::upload::PackRequest;
use cuesta_protocol::upload::v2::Fetch;
use cuesta_protocol::{Limits, ProtocolError};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// Haves that are sent; hosts bound requests, git's own to 10 MiB.
const HAVES_MAX: usize = 16_384;

/// Is given texts of the host, made plain: no control characters.
pub type OnText = Arc<dyn Fn(&str) + Send + Sync>;

/// What a fetch brings.
pub struct Fetched {
    /// The format of the ids.
    pub format: ObjectFormat,
    /// The refs, with the host's shallow boundary.
    pub refs: SourceRefs,
    /// The pack, if there is anything to fetch.
    pub pack: Option<PackStream>,
}

impl Discovered {
    /// Fetches `wants`, given what we have and our own shallow boundary.
    pub async fn fetch(
        mut self,
        remote: &Remote,
        wants: Vec<ObjectId>,
        haves: Vec<ObjectId>,
        shallow: Vec<ObjectId>,
        on_text: OnText,
    ) -> Result<Fetched, RemoteError> {
        let unique = |oids: Vec<ObjectId>| {
            let mut seen = HashSet::new();
            oids.into_iter().filter(|oid| seen.insert(*oid)).collect::<Vec<_>>()
        };
        let wants = unique(wants);
        let mut pack = None;
        if !wants.is_empty() {
            let mut haves = unique(haves);
            haves.truncate(HAVES_MAX);
            if let Server::V0(server) = &self.server
                && !server.capabilities().has("side-band-64k")
            {
                return Err(ProtocolError::Refused("the remote has no side-band-64k".to_owned()).into());
            }
            let (body, v2) = match &self.server {
                Server::V2(server) => (v2_request(server, wants, haves, shallow), true),
                Server::V0(server) => (v0_request(server, &wants, &haves, &shallow), false),
            };
            let answer = remote.post(&self.url, body, v2).await?;
            let parser = match v2 {
                true => Parser::V2(FetchAnswerParser::new(self.format, Limits::new())),
                false => Parser::V0 { in_pack: false },
            };
            let mut answer = Answer::new(answer, parser, on_text);
            answer.begin(&mut self.refs.shallow).await?;
            self.refs.shallow.sort_unstable();
            self.refs.shallow.dedup();
            let pieces = futures::stream::try_unfold(answer, Answer::next);
            pack = Some(pieces.map_err(Into::into).boxed());
        }
        let (format, refs) = (self.format, self.refs);
        Ok(Fetched { format, refs, pack })
    }
}

fn v2_request(
    server: &cuesta_protocol::client::ServerCapabilities,
    wants: Vec<ObjectId>,
    haves: Vec<ObjectId>,
    shallow: Vec<ObjectId>,
) -> Vec<u8> {
    let request = Fetch {
        pack: PackRequest {
            wants,
            shallow,
            thin_pack: true,
            ofs_delta: true,
            ..PackRequest::default()
        },
        haves,
        done: true,
        ..Fetch::default()
    };
    let mut body = Vec::new();
    write_fetch(&mut body, server, AGENT, &request);
    body
}

/// See gitprotocol-pack, "Packfile Negotiation". Without `multi_ack` the answer begins with one line, ACK or NAK.
fn v0_request(
    server: &cuesta_protocol::client::RefAdvertisement,
    wants: &[ObjectId],
    haves: &[ObjectId],
    shallow: &[ObjectId],
) -> Vec<u8> {
    let offered = server.capabilities();
    let mut capabilities = String::new();
    for name in ["side-band-64k", "thin-pack", "ofs-delta"] {
        if offered.has(name) {
            capabilities += &format!(" {name}");
        }
    }
    if offered.has("object-format") {
        capabilities += &format!(" object-format={}", server.format);
    }
    if offered.has("agent") {
        capabilities += &format!(" agent={AGENT}");
    }
    let mut body = Vec::new();
    for (number, want) in wants.iter().enumerate() {
        let capabilities = if number == 0 { capabilities.as_str() } else { "" };
        pktline::encode(&mut body, &[format!("want {want}{capabilities}\n").as_bytes()]);
    }
    for oid in shallow {
        pktline::encode(&mut body, &[format!("shallow {oid}\n").as_bytes()]);
    }
    body.extend_from_slice(FLUSH);
    for have in haves {
        pktline::encode(&mut body, &[format!("have {have}\n").as_bytes()]);
    }
    pktline::encode(&mut body, &[b"done\n"]);
    body
}

/// An answer being read.
struct Answer {
    chunks: BoxStream<'static, Result<Bytes, reqwest::Error>>,
    url: Box<reqwest::Url>,
    decoder: Decoder,
    parser: Parser,
    /// Pieces of the pack not given yet.
    ready: VecDeque<Bytes>,
    done: bool,
    on_text: OnText,
}

enum Parser {
    V2(FetchAnswerParser),
    V0 { in_pack: bool },
}

impl Answer {
    fn new(answer: reqwest::Response, parser: Parser, on_text: OnText) -> Self {
        Self {
            url: Box::new(answer.url().clone()),
            chunks: answer.bytes_stream().boxed(),
            decoder: Decoder::new(),
            parser,
            ready: VecDeque::new(),
            done: false,
            on_text,
        }
    }

    /// Reads up to the first bytes of the pack; the host's boundary comes before them.
    async fn begin(&mut self, shallow: &mut Vec<ObjectId>) -> Result<(), RemoteError> {
        while self.ready.is_empty() && !self.done {
            self.read(shallow).await?;
        }
        match self.ready.is_empty() {
            true => Err(ProtocolError::Malformed("the remote sends no pack".to_owned()).into()),
            false => Ok(()),
        }
    }

    async fn next(mut self) -> Result<Option<(Bytes, Self)>, RemoteError> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Ok(Some((piece, self)));
            }
            if self.done {
                return Ok(None);
            }
            self.read(&mut Vec::new()).await?;
        }
    }

    /// Reads one chunk of the answer.
    async fn read(&mut self, shallow: &mut Vec<ObjectId>) -> Result<(), RemoteError> {
        let Some(chunk) = self.chunks.next().await else {
            return Err(ProtocolError::Truncated.into());
        };
        let chunk = chunk.map_err(|error| RemoteError::Unreachable {
            url: self.url.clone(),
            error: super::reason(&error),
        })?;
        self.decoder.push(&chunk);
        while let Some(packet) = self.decoder.poll()? {
            match self.parser.handle(&packet)? {
                FetchEvent::Pack(piece) => self.ready.push_back(piece),
                FetchEvent::Progress(text) => self.show(&text),
                FetchEvent::Shallow(oid) => shallow.push(oid),
                FetchEvent::End { .. } => self.done = true,
                _ => {}
            }
        }
        Ok(())
    }

    fn show(&self, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let last = text.split(['\r', '\n']).rfind(|line| !line.trim().is_empty());
        if let Some(line) = last {
            let plain: String = line.chars().filter(|letter| !letter.is_control()).collect();
            (self.on_text)(plain.trim());
        }
    }
}

impl Parser {
    fn handle(&mut self, packet: &Packet) -> Result<FetchEvent, ProtocolError> {
        match self {
            Self::V2(parser) => parser.handle(packet),
            Self::V0 { in_pack } => match packet {
                Packet::Data(data) if matches!(data.first(), Some(1..=3)) => {
                    *in_pack = true;
                    side_band(data)
                }
                Packet::Data(data) => negotiation_line(pktline::text(data)).map(|()| FetchEvent::More),
                _ if *in_pack => Ok(FetchEvent::End { pack: true }),
                // The end of shallow lines.
                _ => Ok(FetchEvent::More),
            },
        }
    }
}

/// What may come before v0's side-band: hosts may acknowledge more than once.
fn negotiation_line(line: &[u8]) -> Result<(), ProtocolError> {
    let expected: [&[u8]; 4] = [b"ACK ", b"NAK", b"shallow ", b"unshallow "];
    if let Some(text) = line.strip_prefix(b"ERR ") {
        Err(ProtocolError::Remote(text.escape_ascii().to_string()))
    } else if expected.iter().any(|prefix| line.starts_with(prefix)) {
        Ok(())
    } else {
        let got = line.escape_ascii();
        Err(ProtocolError::Malformed(format!("expected ACK/NAK, got '{got}'")))
    }
}

/// A packet of v0's side-band.
fn side_band(data: &Bytes) -> Result<FetchEvent, ProtocolError> {
    let Some(first) = data.first() else {
        return Ok(FetchEvent::More);
    };
    let payload = data.slice(1..);
    match Band::from_byte(*first) {
        Some(Band::Data) if payload.is_empty() => Ok(FetchEvent::More),
        Some(Band::Data) => Ok(FetchEvent::Pack(payload)),
        Some(Band::Text) => Ok(FetchEvent::Progress(payload)),
        Some(Band::Fatal) => Err(ProtocolError::Remote(payload.escape_ascii().to_string())),
        None => Err(ProtocolError::Malformed(format!("protocol error: bad band #{first}"))),
    }
}
