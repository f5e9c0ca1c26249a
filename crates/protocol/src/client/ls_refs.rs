//! v2 `ls-refs`, asked and read.

use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId};

use super::{RemoteRef, ServerCapabilities, refusal, unexpected};
use crate::error::within;
use crate::pktline::{self, DELIM, FLUSH, Packet};
use crate::{Limits, ProtocolError};

/// The arguments of an `ls-refs`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LsRefsRequest {
    /// Ask for peeled values.
    pub peel: bool,
    /// Ask for the targets of symbolic refs.
    pub symrefs: bool,
    /// Ask for a HEAD that follows no existing ref; written only if the server knows of it.
    pub unborn: bool,
    /// Ask only for refs whose names start so. A hint: the server may show others.
    pub prefixes: Vec<Bytes>,
}

/// Appends an `ls-refs` request.
pub fn write_ls_refs(out: &mut Vec<u8>, server: &ServerCapabilities, agent: &str, request: &LsRefsRequest) {
    write_command(out, "ls-refs", server, agent);
    let unborn = request.unborn && server.has_feature("ls-refs", "unborn");
    for (asked, argument) in [
        (request.peel, "peel\n"),
        (request.symrefs, "symrefs\n"),
        (unborn, "unborn\n"),
    ] {
        if asked {
            pktline::encode(out, &[argument.as_bytes()]);
        }
    }
    request
        .prefixes
        .iter()
        .for_each(|prefix| pktline::encode(out, &[b"ref-prefix ", prefix, b"\n"]));
    out.extend_from_slice(FLUSH);
}

/// Appends the start of a request, up to where arguments begin.
pub(super) fn write_command(out: &mut Vec<u8>, command: &str, server: &ServerCapabilities, agent: &str) {
    pktline::encode(out, &[b"command=", command.as_bytes()]);
    if server.has("agent") {
        pktline::encode(out, &[b"agent=", crate::capability::sanitized(agent).as_bytes()]);
    }
    if let Some(format) = server.value("object-format") {
        pktline::encode(out, &[b"object-format=", format]);
    }
    out.extend_from_slice(DELIM);
}

/// Parses the answer to an `ls-refs`. A stream that ends before the refs are given was cut off: no ref is to be
/// believed gone.
#[derive(Debug)]
pub struct LsRefsParser {
    format: ObjectFormat,
    limits: Limits,
    size: usize,
    refs: Vec<RemoteRef>,
}

impl LsRefsParser {
    /// A parser of ids of that format.
    pub fn new(format: ObjectFormat, limits: Limits) -> Self {
        Self {
            format,
            limits,
            size: 0,
            refs: Vec::new(),
        }
    }

    /// Takes the next packet; the refs, in the server's order, come with the last one.
    pub fn handle(&mut self, packet: &Packet) -> Result<Option<Vec<RemoteRef>>, ProtocolError> {
        self.size = self.size.saturating_add(packet.wire_size());
        within(self.size, self.limits.answer_bytes_max, "bytes in a list of refs")?;
        match packet {
            Packet::Data(data) => {
                let shown = self.parse(pktline::text(data))?;
                self.refs.push(shown);
                within(self.refs.len(), self.limits.remote_refs_max, "refs").map(|()| None)
            }
            Packet::Flush => Ok(Some(std::mem::take(&mut self.refs))),
            Packet::Delim | Packet::ResponseEnd => {
                Err(ProtocolError::Malformed("expected flush after ref listing".to_owned()))
            }
        }
    }

    fn parse(&self, line: &[u8]) -> Result<RemoteRef, ProtocolError> {
        refusal(line)?;
        let invalid = || unexpected("invalid ls-refs response: ", line);
        let mut words = line.split(|byte| *byte == b' ');
        let id = words.next().unwrap_or_default();
        let name = words.next().filter(|name| !name.is_empty()).ok_or_else(invalid)?;
        within(name.len(), self.limits.ref_name_bytes_max, "bytes in a ref name")?;
        let oid = if id == b"unborn" {
            None
        } else {
            Some(self.oid(id).ok_or_else(invalid)?)
        };
        let mut shown = RemoteRef {
            name: Bytes::copy_from_slice(name),
            oid,
            peeled: None,
            symref_target: None,
        };
        for word in words {
            if let Some(target) = word.strip_prefix(b"symref-target:") {
                shown.symref_target = Some(Bytes::copy_from_slice(target));
            } else if let Some(peeled) = word.strip_prefix(b"peeled:") {
                shown.peeled = Some(self.oid(peeled).ok_or_else(invalid)?);
            }
        }
        Ok(shown)
    }

    fn oid(&self, hex: &[u8]) -> Option<ObjectId> {
        ObjectId::from_hex(self.format, hex).ok()
    }
}
