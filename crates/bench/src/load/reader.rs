//! Fetches as stock git does over protocol v2: capabilities, `ls-refs`, and a pack where something is missing. Packs are
//! checked and thrown away.

use super::link::Link;
use super::pack_reader::PackReader;
use super::packets::next_packet;
use crate::http::Target;
use anyhow::{Context, Result, ensure};
use cuesta_git::{ObjectFormat, ObjectId};
use cuesta_protocol::pktline;
use std::collections::{BTreeSet, HashSet};

/// Haves sent at most: git sends the newest first and stops when the server is ready.
const HAVES_MAX: usize = 64;

/// What a client knows of a repository.
pub(super) struct Reader {
    capabilities: Vec<u8>,
    ls_refs: Vec<u8>,
    /// All tips it has.
    known: HashSet<ObjectId>,
    /// Those of the last listing, and what it made since: the newest first, no more than are sent.
    newest: Vec<ObjectId>,
    verified: bool,
}

impl Reader {
    pub(super) fn new(target: &Target) -> Self {
        let mut capabilities = Vec::new();
        target.write_head(&mut capabilities, "GET", "/info/refs?service=git-upload-pack", VERSION);
        let mut command = Vec::new();
        for line in ["command=ls-refs\n", "agent=git/cuesta-bench", "object-format=sha1"] {
            pktline::encode(&mut command, &[line.as_bytes()]);
        }
        command.extend_from_slice(pktline::DELIM);
        for line in [
            "peel\n",
            "symrefs\n",
            "ref-prefix HEAD\n",
            "ref-prefix refs/heads/\n",
            "ref-prefix refs/tags/\n",
        ] {
            pktline::encode(&mut command, &[line.as_bytes()]);
        }
        command.extend_from_slice(pktline::FLUSH);
        Self {
            capabilities,
            ls_refs: post(target, &command),
            known: HashSet::new(),
            newest: Vec::new(),
            verified: false,
        }
    }

    /// Forgets everything, so that the next fetch is a clone.
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.newest.clear();
    }

    /// The client made this itself.
    pub(super) fn has(&mut self, oid: ObjectId) {
        if self.known.insert(oid) {
            self.newest.truncate(HAVES_MAX - 1);
            self.newest.insert(0, oid);
        }
    }

    /// Gets what is missing. Answers the value of `name`, if it was listed.
    pub(super) async fn fetch(&mut self, link: &mut Link, name: &str) -> Result<Option<ObjectId>> {
        link.exchange("info/refs", &self.capabilities).await?;
        let listed = link.exchange("ls-refs", &self.ls_refs).await?;
        let (tips, own) = read_listing(listed, name)?;
        let missing: BTreeSet<&ObjectId> = tips.iter().filter(|tip| !self.known.contains(*tip)).collect();
        if !missing.is_empty() {
            let request = post(&link.target, &fetch_request(missing.into_iter(), self.newest.iter()));
            // One whole pack of each client is checked to the last byte.
            let verify = !std::mem::replace(&mut self.verified, true);
            let mut pack = if verify {
                PackReader::verifying()
            } else {
                PackReader::default()
            };
            link.exchange_into("fetch", &request, &mut pack).await?;
            pack.finish()?;
        }
        self.known.extend(tips.iter().copied());
        self.newest = tips;
        self.newest.truncate(HAVES_MAX);
        Ok(own)
    }
}

const VERSION: &str = "Git-Protocol: version=2\r\n";

fn post(target: &Target, body: &[u8]) -> Vec<u8> {
    let mut request = Vec::new();
    target.write_rpc(&mut request, "git-upload-pack", VERSION, &[body]);
    request
}

fn fetch_request<'a>(wants: impl Iterator<Item = &'a ObjectId>, haves: impl Iterator<Item = &'a ObjectId>) -> Vec<u8> {
    let mut body = Vec::new();
    for line in ["command=fetch", "agent=git/cuesta-bench", "object-format=sha1"] {
        pktline::encode(&mut body, &[line.as_bytes()]);
    }
    body.extend_from_slice(pktline::DELIM);
    for line in ["thin-pack", "no-progress", "ofs-delta"] {
        pktline::encode(&mut body, &[line.as_bytes()]);
    }
    let mut list = |key: &str, oid: &ObjectId| {
        let mut line = key.as_bytes().to_vec();
        oid.push_hex(&mut line);
        pktline::encode(&mut body, &[&line, b"\n"]);
    };
    wants.for_each(|oid| list("want ", oid));
    haves.for_each(|oid| list("have ", oid));
    pktline::encode(&mut body, &[b"done\n"]);
    body.extend_from_slice(pktline::FLUSH);
    body
}

/// All values in a listing, and that of one ref.
fn read_listing(listing: &[u8], name: &str) -> Result<(Vec<ObjectId>, Option<ObjectId>)> {
    let (mut tips, mut own) = (Vec::new(), None);
    let mut rest = listing;
    loop {
        let (packet, behind) = next_packet(rest)?;
        rest = behind;
        let Some(packet) = packet else {
            ensure!(rest.is_empty(), "something follows the refs");
            return Ok((tips, own));
        };
        let line = pktline::text(packet);
        let digits = line.get(..40).context("a listed ref is cut short")?;
        let Ok(oid) = ObjectId::from_hex(ObjectFormat::Sha1, digits) else {
            // A HEAD that leads nowhere yet.
            continue;
        };
        let listed = line.get(41..).unwrap_or_default().split(|byte| *byte == b' ').next();
        if listed == Some(name.as_bytes()) {
            own = Some(oid);
        }
        tips.push(oid);
    }
}
