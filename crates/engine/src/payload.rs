//! Layers that clients fetch by themselves, by URI: a pack as it lies in the bucket, or a bundle made of it
//! (gitprotocol-v2 `packfile-uris` and `bundle-uri`, gitformat-bundle).
//!
//! A payload is named by all that it takes to read it, so that it can be read as long as its keys are in the bucket, though
//! its layer has left the layer list meanwhile.

use crate::upload::Reach;
use crate::world::World;
use crate::{EngineError, Layer, Repository, View};
use bytes::Bytes;
use cuesta_format::{LayerId, LayerMeta, Link, LogId, layer_pack_key};
use cuesta_git::{ObjectFormat, ObjectId};
use futures::stream::{BoxStream, StreamExt};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Bytes read at once, and reads in flight, for one client.
const READ_BYTES: u64 = 1 << 20;
const READS_IN_FLIGHT: usize = 4;
/// Commits that a bundle names; a layer with more ends of history is given as a pack only.
const BUNDLE_TIPS_MAX: usize = 10_000;

/// Names a payload, and vouches for nothing: who lets clients give one must have signed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadId {
    /// The layer.
    pub layer: LayerId,
    /// What is made of it.
    pub form: PayloadForm,
    /// Bytes of its pack.
    pub pack_bytes: u64,
    /// Bytes of its cue.
    pub cue_bytes: u64,
    /// Objects in it.
    pub objects: u32,
}

/// What is made of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadForm {
    /// Its pack, byte for byte.
    Pack,
    /// A bundle: a header that names the ends of its history, then its pack.
    Bundle,
}

/// A payload, ready to be read.
pub struct Payload {
    layer: Arc<Layer>,
    /// What comes before the pack.
    head: Bytes,
}

/// A layer whose pack a client is to fetch by itself.
#[derive(Clone, Copy, Debug)]
pub struct OffloadedPack {
    /// What to fetch.
    pub id: PayloadId,
    /// The checksum at the end of the pack, by which git's client knows it.
    pub checksum: ObjectId,
}

impl PayloadId {
    pub(crate) fn of(meta: &LayerMeta, form: PayloadForm) -> Self {
        Self {
            layer: meta.id,
            form,
            pack_bytes: meta.pack_bytes,
            cue_bytes: meta.cue_bytes,
            objects: meta.objects,
        }
    }
}

impl Repository {
    /// The payload of that name. Cost: a bundle's header takes the layer's cue, a pack nothing.
    pub async fn payload(&self, id: &PayloadId) -> Result<Payload, EngineError> {
        let meta = LayerMeta {
            id: id.layer,
            pack_bytes: id.pack_bytes,
            cue_bytes: id.cue_bytes,
            objects: id.objects,
            segments: 0,
            level: 0,
            self_contained: true,
            unreachable: false,
            bases_chosen: false,
        };
        let layer = Arc::new(Layer::in_bucket(meta, self.id(), &self.world().cache));
        let head = match id.form {
            PayloadForm::Pack => Bytes::new(),
            PayloadForm::Bundle => {
                let tips = bundle_tips(&layer).await?;
                let tips = tips.ok_or_else(|| EngineError::Refused("layer is no bundle".to_owned()))?;
                bundle_header(self.object_format(), &tips)
            }
        };
        Ok(Payload { layer, head })
    }

    /// A URL of the store's own for a pack, good for that long and for reading only; `None` where the store has none to give.
    pub async fn payload_url(&self, id: &PayloadId, lifetime: Duration) -> Result<Option<String>, EngineError> {
        match id.form {
            PayloadForm::Pack => Ok(signed_url(self.world(), self.id(), id.layer, lifetime).await?),
            PayloadForm::Bundle => Ok(None),
        }
    }
}

async fn signed_url(
    world: &World,
    log: LogId,
    layer: LayerId,
    lifetime: Duration,
) -> Result<Option<String>, cuesta_store::StoreError> {
    world.bucket.signed_url(&layer_pack_key(log, layer), lifetime).await
}

impl Payload {
    /// Bytes of the whole.
    pub fn size(&self) -> u64 {
        (self.head.len() as u64).saturating_add(self.layer.meta().pack_bytes)
    }

    /// The bytes of `range`, which must lie within the size. Not kept in the cache: it would serve nobody else.
    pub fn stream(self, range: Range<u64>) -> BoxStream<'static, Result<Bytes, EngineError>> {
        let head_len = self.head.len() as u64;
        let (from, to) = (range.start.min(head_len), range.end.min(head_len));
        let head = match (usize::try_from(from), usize::try_from(to)) {
            (Ok(from), Ok(to)) if from < to => Some(Ok(self.head.slice(from..to))),
            _ => None,
        };
        let (start, end) = (range.start.saturating_sub(head_len), range.end.saturating_sub(head_len));
        let layer = self.layer;
        let reads = (0..end.saturating_sub(start).div_ceil(READ_BYTES)).map(move |at| {
            let from = start.saturating_add(at.saturating_mul(READ_BYTES));
            let layer = Arc::clone(&layer);
            async move { layer.scan(from..end.min(from.saturating_add(READ_BYTES))).await }
        });
        let pack = futures::stream::iter(reads).buffered(READS_IN_FLIGHT);
        futures::stream::iter(head).chain(pack).boxed()
    }
}

impl View {
    /// The layers that can be given as bundles to clients who may have what `reach` reaches: whole histories, with nothing in
    /// them that is not reachable. Oldest first; only those of at least `bytes_min`.
    pub async fn bundles(&self, reach: &Reach, bytes_min: u64) -> Result<Vec<PayloadId>, EngineError> {
        let graph = self.graph().await?;
        let mut bundles = Vec::new();
        for slot in 0..graph.slot_count() {
            let Some(layer) = graph.layer(slot) else { continue };
            let meta = layer.meta();
            if layer.is_inline()
                || !meta.self_contained
                || meta.pack_bytes < bytes_min
                || !reach.has_whole_layer(slot)?
            {
                continue;
            }
            if bundle_tips(layer).await?.is_some() {
                bundles.push(PayloadId::of(meta, PayloadForm::Bundle));
            }
        }
        Ok(bundles)
    }
}

/// The commits of a layer that no other of it has as a parent; `None` if its history does not end within it, so that it is no
/// bundle by itself.
async fn bundle_tips(layer: &Layer) -> Result<Option<Vec<ObjectId>>, EngineError> {
    let (index, history) = futures::try_join!(layer.index(), layer.history())?;
    let segments = &history.segments;
    if !index.externals.is_empty() || segments.is_empty() || index.counts.commits > index.counts.segments {
        return Ok(None);
    }
    let mut is_parent = vec![false; segments.len() as usize];
    for segment in 0..segments.len() {
        for link in segments.parents(segment) {
            if let Link::Local(parent) = link
                && let Some(mark) = is_parent.get_mut(parent as usize)
            {
                *mark = true;
            }
        }
    }
    let tips = (0..segments.len()).zip(is_parent).filter(|(_, is_parent)| !is_parent);
    let tips: Vec<ObjectId> = tips
        .filter_map(|(segment, _)| index.oid(segment))
        .take(BUNDLE_TIPS_MAX + 1)
        .collect();
    Ok((tips.len() <= BUNDLE_TIPS_MAX).then_some(tips))
}

/// The header of a bundle without prerequisites. The names of its refs say nothing about the repository's: the client keeps
/// them below `refs/bundles/`, and only to tell what it has.
fn bundle_header(format: ObjectFormat, tips: &[ObjectId]) -> Bytes {
    let mut head = match format {
        ObjectFormat::Sha1 => "# v2 git bundle\n".to_owned(),
        ObjectFormat::Sha256 => "# v3 git bundle\n@object-format=sha256\n".to_owned(),
    };
    for tip in tips {
        let name = tip.to_string();
        head.push_str(&format!("{name} refs/heads/{name}\n"));
    }
    head.push('\n');
    Bytes::from(head)
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Payload")
            .field("layer", &self.layer)
            .field("size", &self.size())
            .finish()
    }
}
