//! v2 `fetch`, asked and taken apart.

use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId};

use super::ls_refs::write_command;
use super::{ServerCapabilities, refusal, split_oid, unexpected};
use crate::error::{quote, within};
use crate::pktline::{self, FLUSH, Packet};
use crate::sideband::Band;
use crate::upload::v2::Fetch;
use crate::upload::{Deepen, PackRequest};
use crate::{Limits, ProtocolError};

/// Appends a `fetch` request.
///
/// Filters, `want-ref`, `sideband-all`, `packfile-uris` are refused by servers that do not have the
/// [feature](ServerCapabilities::has_feature) of `fetch`: ask first.
pub fn write_fetch(out: &mut Vec<u8>, server: &ServerCapabilities, agent: &str, request: &Fetch) {
    write_command(out, "fetch", server, agent);
    write_flags(out, request);
    write_boundary(out, &request.pack);
    if let Some(filter) = &request.pack.filter {
        let mut spec = Vec::new();
        filter.write(&mut spec);
        pktline::encode(out, &[b"filter ", &spec, b"\n"]);
    }
    if !request.packfile_uris.is_empty() {
        pktline::encode(out, &[b"packfile-uris ", &request.packfile_uris.join(&b","[..]), b"\n"]);
    }
    request.pack.wants.iter().for_each(|oid| write_oid(out, b"want ", oid));
    request
        .want_refs
        .iter()
        .for_each(|name| pktline::encode(out, &[b"want-ref ", name, b"\n"]));
    request.haves.iter().for_each(|oid| write_oid(out, b"have ", oid));
    if request.done {
        pktline::encode(out, &[b"done\n"]);
    }
    out.extend_from_slice(FLUSH);
}

fn write_flags(out: &mut Vec<u8>, request: &Fetch) {
    let flags = [
        (request.pack.thin_pack, "thin-pack"),
        (request.pack.no_progress, "no-progress"),
        (request.pack.include_tag, "include-tag"),
        (request.pack.ofs_delta, "ofs-delta"),
        (request.sideband_all, "sideband-all"),
        (request.wait_for_done, "wait-for-done"),
    ];
    for (_, flag) in flags.iter().filter(|(asked, _)| *asked) {
        pktline::encode(out, &[flag.as_bytes()]);
    }
}

fn write_boundary(out: &mut Vec<u8>, pack: &PackRequest) {
    pack.shallow.iter().for_each(|oid| write_oid(out, b"shallow ", oid));
    let mut line = |text: String| pktline::encode(out, &[text.as_bytes()]);
    match &pack.deepen {
        Deepen::Unchanged => {}
        Deepen::Depth(depth) => line(format!("deepen {depth}")),
        Deepen::Relative(depth) => {
            line(format!("deepen {depth}"));
            line("deepen-relative".to_owned());
        }
        Deepen::Excluding { since, not } => {
            since.iter().for_each(|since| line(format!("deepen-since {since}")));
            not.iter()
                .for_each(|name| pktline::encode(out, &[b"deepen-not ", name, b"\n"]));
        }
    }
}

fn write_oid(out: &mut Vec<u8>, key: &[u8], oid: &ObjectId) {
    let mut line = key.to_vec();
    oid.push_hex(&mut line);
    pktline::encode(out, &[&line, b"\n"]);
}

/// A piece of the answer to a fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchEvent {
    /// Nothing to act on.
    More,
    /// The server has this object, of the haves.
    Common(ObjectId),
    /// The haves are enough: the pack follows.
    Ready,
    /// This commit is to be shallow.
    Shallow(ObjectId),
    /// This commit is no longer shallow.
    Unshallow(ObjectId),
    /// The value of a ref that was wanted by name.
    WantedRef(Bytes, ObjectId),
    /// A pack to get elsewhere: its checksum in hex and its URI, both as they came.
    PackfileUri(Bytes, Bytes),
    /// The next bytes of the pack.
    Pack(Bytes),
    /// Text of the server for the user, as it came: mind terminals.
    Progress(Bytes),
    /// The answer is whole; whether it had a pack. If not, negotiate on.
    End {
        /// Whether there was a packfile section.
        pack: bool,
    },
}

/// Takes the answer to a v2 fetch apart. A server's refusal, by `ERR` or on band 3, is [`ProtocolError::Remote`]. A
/// stream that ends before [`FetchEvent::End`] was cut off, however whole the pack looks.
#[derive(Debug)]
pub struct FetchAnswerParser {
    format: ObjectFormat,
    limits: Limits,
    size: usize,
    section: Section,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    /// The name of one is due.
    Header,
    Acknowledgments,
    ShallowInfo,
    WantedRefs,
    PackfileUris,
    Packfile,
}

impl FetchAnswerParser {
    /// A parser of ids of that format. For one answer; not for those to `sideband-all`.
    pub fn new(format: ObjectFormat, limits: Limits) -> Self {
        Self {
            format,
            limits,
            size: 0,
            section: Section::Header,
        }
    }

    /// Takes the next packet.
    pub fn handle(&mut self, packet: &Packet) -> Result<FetchEvent, ProtocolError> {
        match (packet, self.section) {
            (Packet::Data(data), Section::Packfile) => demultiplex(data),
            (Packet::Data(data), _) => {
                self.size = self.size.saturating_add(packet.wire_size());
                within(self.size, self.limits.answer_bytes_max, "bytes before a pack")?;
                self.line(pktline::text(data))
            }
            (Packet::Flush, Section::Packfile) => Ok(FetchEvent::End { pack: true }),
            (Packet::Flush, Section::Acknowledgments) => Ok(FetchEvent::End { pack: false }),
            (Packet::Delim, Section::Header | Section::Packfile) | (Packet::Flush | Packet::ResponseEnd, _) => Err(
                ProtocolError::Malformed("unexpected packet in a fetch answer".to_owned()),
            ),
            (Packet::Delim, _) => {
                self.section = Section::Header;
                Ok(FetchEvent::More)
            }
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<FetchEvent, ProtocolError> {
        refusal(line)?;
        match self.section {
            Section::Header => self.header(line),
            Section::Acknowledgments => self.acknowledgment(line),
            Section::ShallowInfo => self.boundary(line),
            Section::WantedRefs => {
                let (oid, name) =
                    split_oid(line, self.format).ok_or_else(|| unexpected("expected wanted-ref, got ", line))?;
                Ok(FetchEvent::WantedRef(Bytes::copy_from_slice(name), oid))
            }
            Section::PackfileUris | Section::Packfile => {
                let mut words = line.splitn(2, |byte| *byte == b' ').map(Bytes::copy_from_slice);
                let expected = || unexpected("expected '<hash> <uri>', got: ", line);
                let (checksum, uri) = words.next().zip(words.next()).ok_or_else(expected)?;
                Ok(FetchEvent::PackfileUri(checksum, uri))
            }
        }
    }

    fn header(&mut self, line: &[u8]) -> Result<FetchEvent, ProtocolError> {
        self.section = match line {
            b"acknowledgments" => Section::Acknowledgments,
            b"shallow-info" => Section::ShallowInfo,
            b"wanted-refs" => Section::WantedRefs,
            b"packfile-uris" => Section::PackfileUris,
            b"packfile" => Section::Packfile,
            _ => return Err(unexpected("expected 'packfile', received ", line)),
        };
        Ok(FetchEvent::More)
    }

    fn acknowledgment(&self, line: &[u8]) -> Result<FetchEvent, ProtocolError> {
        match line {
            b"NAK" => Ok(FetchEvent::More),
            b"ready" => Ok(FetchEvent::Ready),
            _ => {
                let oid = self.oid_behind(b"ACK ", line);
                oid.map(FetchEvent::Common)
                    .ok_or_else(|| unexpected("unexpected acknowledgment line: ", line))
            }
        }
    }

    fn boundary(&self, line: &[u8]) -> Result<FetchEvent, ProtocolError> {
        let shallow = self.oid_behind(b"shallow ", line).map(FetchEvent::Shallow);
        let unshallow = || self.oid_behind(b"unshallow ", line).map(FetchEvent::Unshallow);
        shallow
            .or_else(unshallow)
            .ok_or_else(|| unexpected("expected shallow/unshallow, got ", line))
    }

    fn oid_behind(&self, key: &[u8], line: &[u8]) -> Option<ObjectId> {
        ObjectId::from_hex(self.format, line.strip_prefix(key)?).ok()
    }
}

fn demultiplex(data: &Bytes) -> Result<FetchEvent, ProtocolError> {
    let Some(first) = data.first() else {
        return Ok(FetchEvent::More);
    };
    let payload = data.slice(1..);
    match Band::from_byte(*first) {
        Some(Band::Data) if payload.is_empty() => Ok(FetchEvent::More),
        Some(Band::Data) => Ok(FetchEvent::Pack(payload)),
        Some(Band::Text) => Ok(FetchEvent::Progress(payload)),
        Some(Band::Fatal) => Err(ProtocolError::Remote(quote(pktline::text(&payload)))),
        None => {
            refusal(data)?;
            Err(ProtocolError::Malformed(format!("protocol error: bad band #{first}")))
        }
    }
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
