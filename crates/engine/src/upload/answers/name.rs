//! What determines an answer, as a name: two requests of the same name may be given the same pack.
//!
//! That is the ids that are wanted and had in common, the boundary as it was drawn, the filter, what the client can read, and
//! the tags that may come along. Ids determine contents, so the layer list is no part of it: compaction changes no name. The
//! repository is, so that no answer is found through another, whatever both have in common.

use crate::graph::Graph;
use crate::upload::plan::shown_tags;
use crate::upload::{ObjectFilter, UploadRequest};
use crate::{EngineError, View};
use cuesta_git::{Checksum, ObjectFormat, ObjectId};
use cuesta_store::KeptName;

/// Changes when the same request is answered otherwise, or what is kept beside an answer has another form.
const VERSION: u64 = 1;

/// The name of the answer to `request`. Not for the reactor: it hashes all that is wanted.
pub(super) fn of(view: &View, graph: &Graph, request: &UploadRequest) -> Result<KeptName, EngineError> {
    let cuts = request.boundary.as_ref().is_some_and(|boundary| boundary.cuts());
    let mut digest = Digest::new();
    digest.number(VERSION);
    digest.bytes(&view.log().0.to_le_bytes());
    digest.number(view.object_format().width() as u64);
    digest.filter(&request.filter);
    digest.number(cuts.into());
    let family = digest.clone().finish();
    digest.oids(request.wants.clone());
    digest.oids(request.common.clone());
    match &request.boundary {
        Some(boundary) => boundary.oids(graph)?.into_iter().for_each(|oids| digest.oids(oids)),
        None => digest.number(u64::MAX),
    }
    for flag in [request.thin, request.ofs_delta, request.include_tag] {
        digest.number(flag.into());
    }
    if request.include_tag {
        digest.bytes(&view.tags_digest(&request.hidden, || tags(view, request)));
    }
    let family = family.first_chunk().copied().unwrap_or_default();
    Ok(KeptName {
        family,
        digest: digest.finish(),
    })
}

fn tags(view: &View, request: &UploadRequest) -> [u8; 32] {
    let mut digest = Digest::new();
    digest.oids(shown_tags(view, &request.hidden).map(|(tag, _)| tag).collect());
    digest.finish()
}

/// SHA-256 over values that say how long they are.
#[derive(Clone)]
struct Digest(Vec<u8>);

impl Digest {
    fn new() -> Self {
        Self(Vec::new())
    }

    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A set of ids.
    fn oids(&mut self, mut oids: Vec<ObjectId>) {
        oids.sort_unstable();
        oids.dedup();
        self.number(oids.len() as u64);
        oids.iter().for_each(|oid| self.0.extend_from_slice(oid.as_bytes()));
    }

    fn filter(&mut self, filter: &ObjectFilter) {
        match filter {
            ObjectFilter::All => self.number(0),
            ObjectFilter::NoBlobs => self.number(1),
            ObjectFilter::BlobsBelow(end) => [2, *end].into_iter().for_each(|number| self.number(number)),
            ObjectFilter::TreeDepth(depth) => [3, *depth].into_iter().for_each(|number| self.number(number)),
            ObjectFilter::Kind(kind) => [4, *kind as u64].into_iter().for_each(|number| self.number(number)),
            ObjectFilter::Sparse(oid) => {
                self.number(5);
                self.bytes(oid.as_bytes());
            }
            ObjectFilter::Combined(parts) => {
                self.number(6);
                self.number(parts.len() as u64);
                parts.iter().for_each(|part| self.filter(part));
            }
        }
    }

    fn finish(self) -> [u8; 32] {
        let mut checksum = Checksum::new(ObjectFormat::Sha256);
        checksum.update(&self.0);
        checksum.finish().as_bytes().first_chunk().copied().unwrap_or_default()
    }
}
