//! The `fetch` command (gitprotocol-v2, `fetch`).

use std::collections::HashSet;

use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId};

use crate::error::{quote, within};
use crate::options::UploadOptions;
use crate::upload::PackRequest;
use crate::upload::parse::{Boundary, IdSet};
use crate::{Limits, ProtocolError};

/// The arguments of one `fetch`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fetch {
    /// What is wanted, and how.
    pub pack: PackRequest,
    /// Refs wanted by name, each once: their values join the wants, and are told in `wanted-refs`. A server refuses a
    /// name that is hidden or not there by [`unknown_ref`](Self::unknown_ref).
    pub want_refs: Vec<Bytes>,
    /// What the client says it has, each once, in its order.
    pub haves: Vec<ObjectId>,
    /// Whether the client ends the negotiation: a pack follows in any case.
    pub done: bool,
    /// Whether the server must not end the negotiation by `ready`.
    pub wait_for_done: bool,
    /// Whether the whole answer goes over a side-band.
    pub sideband_all: bool,
    /// The URI schemes from which the client takes parts of the pack; empty unless it may be answered with such.
    pub packfile_uris: Vec<Bytes>,
}

/// How a fetch is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchStep {
    /// Not at all: nothing was wanted.
    Nothing,
    /// By acknowledgments; the pack follows only if they end in `ready`.
    Acknowledge,
    /// By a pack without acknowledgments.
    Pack,
}

impl Fetch {
    /// How to answer.
    pub fn step(&self) -> FetchStep {
        let wants_nothing = self.pack.wants.is_empty() && self.want_refs.is_empty();
        if wants_nothing && !self.wait_for_done {
            FetchStep::Nothing
        } else if self.haves.is_empty() || self.done {
            FetchStep::Pack
        } else {
            FetchStep::Acknowledge
        }
    }

    /// Whether it is worth finding out if every want has a common ancestor: [`FetchAnswer::acknowledgments`] wants to
    /// know.
    ///
    /// [`FetchAnswer::acknowledgments`]: crate::upload::answer::FetchAnswer::acknowledgments
    pub fn asks_ready(&self) -> bool {
        self.step() == FetchStep::Acknowledge && !self.wait_for_done
    }

    /// The refusal of a `want-ref` that is hidden or not there.
    pub fn unknown_ref(name: &[u8]) -> ProtocolError {
        ProtocolError::Refused(format!("unknown ref {}", quote(name)))
    }
}

/// Collects the arguments of one fetch.
#[derive(Debug, Default)]
pub(super) struct FetchParser {
    parsed: Fetch,
    wants: IdSet,
    haves: IdSet,
    names: HashSet<Bytes>,
    boundary: Boundary,
}

impl FetchParser {
    pub(super) fn sideband_all(&self) -> bool {
        self.parsed.sideband_all
    }

    pub(super) fn take(
        &mut self,
        line: &[u8],
        format: ObjectFormat,
        options: &UploadOptions,
        limits: &Limits,
    ) -> Result<(), ProtocolError> {
        if let Some(hex) = line.strip_prefix(b"want ") {
            let expected = "git upload-pack: protocol error, expected to get oid, not ";
            let oid = ObjectId::from_hex(format, hex).map_err(|_| ProtocolError::malformed(expected, line))?;
            return self.wants.insert(oid, limits.wants_max, "wants");
        }
        if let Some(hex) = line.strip_prefix(b"have ") {
            let expected = "git upload-pack: expected SHA1 object, got ";
            let oid = ObjectId::from_hex(format, hex).map_err(|_| ProtocolError::malformed(expected, hex))?;
            return self.haves.insert(oid, limits.haves_max, "haves");
        }
        if self.take_flag(line, options) || self.boundary.take(line, format, limits)? {
            return Ok(());
        }
        self.take_optional(line, options, limits)
    }

    pub(super) fn finish(self) -> Result<Fetch, ProtocolError> {
        let (shallow, deepen, filter) = self.boundary.finish()?;
        let mut fetch = self.parsed;
        fetch.pack = PackRequest {
            wants: self.wants.into_order(),
            shallow,
            deepen,
            filter,
            ..fetch.pack
        };
        fetch.haves = self.haves.into_order();
        if !fetch.sideband_all {
            fetch.packfile_uris.clear();
        }
        Ok(fetch)
    }

    fn take_flag(&mut self, line: &[u8], options: &UploadOptions) -> bool {
        let flag = match line {
            b"thin-pack" => &mut self.parsed.pack.thin_pack,
            b"ofs-delta" => &mut self.parsed.pack.ofs_delta,
            b"no-progress" => &mut self.parsed.pack.no_progress,
            b"include-tag" => &mut self.parsed.pack.include_tag,
            b"done" => &mut self.parsed.done,
            b"wait-for-done" => &mut self.parsed.wait_for_done,
            b"deepen-relative" => &mut self.boundary.relative,
            b"sideband-all" if options.sideband_all => &mut self.parsed.sideband_all,
            _ => return false,
        };
        *flag = true;
        true
    }

    /// The arguments that are lines like any other unless they were offered.
    fn take_optional(&mut self, line: &[u8], options: &UploadOptions, limits: &Limits) -> Result<(), ProtocolError> {
        if let (Some(name), true) = (line.strip_prefix(b"want-ref "), options.ref_in_want) {
            return self.take_want_ref(name, limits);
        }
        if let (Some(spec), Some(policy)) = (line.strip_prefix(b"filter "), &options.filters) {
            return self.boundary.take_filter(spec, policy, limits);
        }
        if let (Some(schemes), true) = (line.strip_prefix(b"packfile-uris "), options.packfile_uris) {
            return self.take_packfile_uris(schemes);
        }
        Err(ProtocolError::refused("unexpected line: ", line))
    }

    fn take_want_ref(&mut self, name: &[u8], limits: &Limits) -> Result<(), ProtocolError> {
        let name = Bytes::copy_from_slice(name);
        if !self.names.insert(name.clone()) {
            return Err(ProtocolError::Malformed(format!("duplicate want-ref {}", quote(&name))));
        }
        self.parsed.want_refs.push(name);
        within(self.parsed.want_refs.len(), limits.want_refs_max, "want-ref lines")
    }

    fn take_packfile_uris(&mut self, schemes: &[u8]) -> Result<(), ProtocolError> {
        if !self.parsed.packfile_uris.is_empty() {
            return Err(ProtocolError::Malformed(
                "multiple packfile-uris lines forbidden".to_owned(),
            ));
        }
        let schemes = schemes.split(|byte| *byte == b',');
        self.parsed.packfile_uris = schemes.map(Bytes::copy_from_slice).collect();
        Ok(())
    }
}
