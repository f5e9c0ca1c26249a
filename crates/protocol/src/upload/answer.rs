//! What a fetch is answered with (gitprotocol-v2, `fetch` output; gitprotocol-pack for v0).

use std::collections::BTreeMap;

use cuesta_git::ObjectId;

use super::v2::{Fetch, ObjectInfo};
use crate::pktline::{self, DELIM, FLUSH};
use crate::sideband::{Band, SideBand};

/// Writes the sections of a v2 fetch answer. In order, each at most once: acknowledgments, shallow-info, wanted-refs,
/// packfile-uris, packfile; then the pack by [`SideBand::Large`], then a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchAnswer {
    /// Whether every line goes over band 1.
    pub sideband_all: bool,
}

impl FetchAnswer {
    /// The writer for the answer to this request.
    pub const fn new(request: &Fetch) -> Self {
        Self {
            sideband_all: request.sideband_all,
        }
    }

    /// Appends the acknowledgments, where [`Fetch::step`] says so. `common` are the haves that are known here; `ready`
    /// whether every want has one of them as an ancestor. Says whether the other sections follow: if not, the answer is
    /// whole.
    pub fn acknowledgments(self, out: &mut Vec<u8>, request: &Fetch, common: &[ObjectId], ready: bool) -> bool {
        self.line(out, &[b"acknowledgments\n"]);
        if common.is_empty() {
            self.line(out, &[b"NAK\n"]);
        }
        for oid in common {
            self.oid_line(out, b"ACK ", oid, &[b"\n"]);
        }
        let ready = ready && !common.is_empty() && request.asks_ready();
        if ready {
            self.line(out, &[b"ready\n"]);
        }
        out.extend_from_slice(if ready { DELIM } else { FLUSH });
        ready
    }

    /// Appends the boundary of what will be sent: commits that become shallow on the client, and those that are shallow
    /// there and cease to be. Send it, even empty, if the client asked to deepen, or named shallow commits, or the
    /// server lacks history; not otherwise.
    pub fn shallow_info(self, out: &mut Vec<u8>, shallow: &[ObjectId], unshallow: &[ObjectId]) {
        self.line(out, &[b"shallow-info\n"]);
        shallow.iter().for_each(|oid| self.oid_line(out, b"shallow ", oid, &[]));
        unshallow
            .iter()
            .for_each(|oid| self.oid_line(out, b"unshallow ", oid, &[]));
        out.extend_from_slice(DELIM);
    }

    /// Appends the values of the refs that were wanted by name; nothing if there are none.
    pub fn wanted_refs<'a>(self, out: &mut Vec<u8>, refs: impl IntoIterator<Item = (&'a [u8], ObjectId)>) {
        let mut refs = refs.into_iter().peekable();
        if refs.peek().is_none() {
            return;
        }
        self.line(out, &[b"wanted-refs\n"]);
        refs.for_each(|(name, oid)| self.oid_line(out, b"", &oid, &[b" ", name, b"\n"]));
        out.extend_from_slice(DELIM);
    }

    /// Appends where to get packs that are not in the pack sent; nothing if there are none. Each is the pack's checksum
    /// in hex and its URI; URIs must be %-encoded.
    pub fn packfile_uris<'a>(self, out: &mut Vec<u8>, uris: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let mut uris = uris.into_iter().peekable();
        if uris.peek().is_none() {
            return;
        }
        self.line(out, &[b"packfile-uris\n"]);
        uris.for_each(|(checksum, uri)| self.line(out, &[checksum.as_bytes(), b" ", uri.as_bytes(), b"\n"]));
        out.extend_from_slice(DELIM);
    }

    /// Appends the line before the pack. What follows it is side-band packets and a flush.
    pub fn packfile(self, out: &mut Vec<u8>) {
        self.line(out, &[b"packfile\n"]);
    }

    /// Appends the refusal of a request, in place of a section. Once the packfile line is written, use
    /// [`SideBand::fatal`].
    pub fn error(self, out: &mut Vec<u8>, text: &str) {
        if self.sideband_all {
            SideBand::Large.fatal(out, text);
        } else {
            pktline::encode_error(out, text);
        }
    }

    fn oid_line(self, out: &mut Vec<u8>, key: &[u8], oid: &ObjectId, rest: &[&[u8]]) {
        let mut line = key.to_vec();
        oid.push_hex(&mut line);
        rest.iter().for_each(|part| line.extend_from_slice(part));
        self.line(out, &[&line]);
    }

    fn line(self, out: &mut Vec<u8>, parts: &[&[u8]]) {
        let line = parts.concat();
        if self.sideband_all {
            pktline::encode(out, &[&[Band::Data as u8], &line]);
        } else {
            pktline::encode(out, &[&line]);
        }
    }
}

/// Appends the shallow list of a v0 fetch, in answer to its wants, if it asked to deepen: without that, nothing.
pub fn write_v0_shallow(out: &mut Vec<u8>, shallow: &[ObjectId], unshallow: &[ObjectId]) {
    let plain = FetchAnswer { sideband_all: false };
    shallow
        .iter()
        .for_each(|oid| plain.oid_line(out, b"shallow ", oid, &[]));
    unshallow
        .iter()
        .for_each(|oid| plain.oid_line(out, b"unshallow ", oid, &[]));
    out.extend_from_slice(FLUSH);
}

/// Appends the answer to `object-info`: `sizes` in the order of the request, `None` for what is not here.
pub fn write_object_info(out: &mut Vec<u8>, request: &ObjectInfo, sizes: &[Option<u64>]) {
    let plain = FetchAnswer { sideband_all: false };
    if request.size && !request.oids.is_empty() {
        plain.line(out, &[b"size"]);
    }
    for (oid, size) in request.oids.iter().zip(sizes) {
        match size {
            Some(size) if request.size => plain.oid_line(out, b"", oid, &[format!(" {size}").as_bytes()]),
            Some(_) => plain.oid_line(out, b"", oid, &[]),
            None => plain.oid_line(out, b"", oid, &[b" "]),
        }
    }
    out.extend_from_slice(FLUSH);
}

/// Appends the answer to `bundle-uri`: `key=value` lines such as `bundle.version=1`. Pairs whose value could inject a
/// line into the client's configuration (control bytes or spaces) are left out.
pub fn write_bundle_uri(out: &mut Vec<u8>, values: &BTreeMap<String, String>) {
    let fit = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    for (key, value) in values.iter().filter(|(key, value)| fit(key) && fit(value)) {
        pktline::encode(out, &[key.as_bytes(), b"=", value.as_bytes()]);
    }
    out.extend_from_slice(FLUSH);
}
