//! Where a push's layers go: into the entry while they are small, else to the bucket, before the entry names them.

use super::error::IntakeError;
use super::lean::Lean;
use super::options::ReceiveOptions;
use super::session::Taken;
use super::tips::Reached;
use crate::View;
use crate::layer_builder::{Built, Chunk};
use bytes::Bytes;
use cuesta_format::{AddedLayer, LayerId, LayerMeta, LayerPlace, LogId, layer_cue_key, layer_pack_key};
use cuesta_store::{Bucket, Entropy, StoreError, Upload, Workers};
use futures::FutureExt as _;

/// Bytes of a pack that are made before they are sent on.
const CHUNK_LEN: usize = 4 << 20;
/// The same where layers are rewritten, which goes on all the time: of memory that the allocator keeps and gives again,
/// for pages new to the process cost more than what is done with them.
const REWRITTEN_CHUNK_LEN: usize = 512 << 10;

/// Where layers of one repository go.
pub(crate) struct Place {
    bucket: Bucket,
    entropy: Entropy,
    workers: Workers,
    log: LogId,
    inline_bytes_max: usize,
    /// The layer's bytes are in other layers already: nobody is about to read them from this one.
    rewrites: bool,
}

impl Place {
    /// Small layers travel in the entry.
    pub(crate) fn new(view: &View, log: LogId, limits: &ReceiveOptions) -> Self {
        let inline_bytes_max = limits
            .inline_bytes_max
            .min(view.world().log_store.limits().inline_bytes_max);
        Self {
            inline_bytes_max,
            rewrites: false,
            ..Self::in_bucket(view, log)
        }
    }

    /// All layers go to the bucket, and are made of others.
    pub(crate) fn in_bucket(view: &View, log: LogId) -> Self {
        let world = view.world();
        Self {
            bucket: world.bucket.clone(),
            entropy: world.entropy.clone(),
            workers: world.workers.clone(),
            log,
            inline_bytes_max: 0,
            rewrites: true,
        }
    }

    /// Builds a layer that is known to be small.
    pub(crate) fn build(&self, taken: &Taken, lean: &Lean, reached: &Reached) -> Result<Built, IntakeError> {
        taken.settled.build(lean, reached, usize::MAX, &mut |_| {
            Err(IntakeError::Internal("a small layer is not small"))
        })
    }

    /// Puts a layer in its place that was built in memory.
    pub(crate) async fn put(&self, mut built: Built) -> Result<AddedLayer, IntakeError> {
        let id = LayerId(self.entropy.bits128());
        let lost = IntakeError::Internal("a small layer is not small");
        let pack_len = built.pack.as_ref().map_or(0, Vec::len);
        if pack_len + built.cue.len() <= self.inline_bytes_max {
            let pack = built.pack.take().ok_or(lost)?.into();
            let meta = meta(id, &built);
            let cue = built.cue;
            return Ok(AddedLayer {
                meta,
                place: LayerPlace::Inline { pack, cue },
            });
        }
        built.seal();
        let pack = Bytes::from(built.pack.take().ok_or(lost)?);
        let (pack_key, cue_key) = (layer_pack_key(self.log, id), layer_cue_key(self.log, id));
        let pack = self.bucket.create_payload(&pack_key, pack);
        let cue = self.bucket.create_payload(&cue_key, built.cue.clone());
        // In a place of its own, as it is not for small layers.
        async { futures::try_join!(pack, cue) }.boxed().await?;
        Ok(AddedLayer {
            meta: meta(id, &built),
            place: LayerPlace::Bucket,
        })
    }

    /// On a worker: builds a layer, which goes to the bucket while it is made if it is large.
    pub(crate) fn stream<E: From<IntakeError> + From<StoreError>>(
        &self,
        build: impl FnOnce(usize, &mut dyn FnMut(Chunk) -> Result<(), E>) -> Result<Option<Built>, E>,
    ) -> Result<Option<AddedLayer>, E> {
        let id = LayerId(self.entropy.bits128());
        let (pack_key, cue_key) = (layer_pack_key(self.log, id), layer_cue_key(self.log, id));
        let (mut pack, mut cue): (Option<Upload>, Option<Upload>) = (None, None);
        let chunk_len = if self.rewrites { REWRITTEN_CHUNK_LEN } else { CHUNK_LEN };
        let built = build(chunk_len, &mut |chunk| {
            let (upload, key, once, bytes) = match chunk {
                Chunk::Pack(bytes) => (&mut pack, &pack_key, self.rewrites, bytes),
                Chunk::Cue(bytes) => (&mut cue, &cue_key, false, bytes),
            };
            let upload = match upload {
                Some(upload) => upload,
                none => none.insert(match once {
                    true => self.bucket.upload_once(key)?,
                    false => self.bucket.upload(key)?,
                }),
            };
            Ok(self.workers.wait(upload.write(bytes))?)
        });
        match (built, pack, cue) {
            (Ok(None), ..) => Ok(None),
            (Ok(Some(built)), None, None) => Ok(Some(self.workers.wait(self.put(built))?)),
            (Ok(Some(built)), Some(pack), Some(cue)) => {
                let both = async { futures::try_join!(pack.finish(), cue.finish()) };
                self.workers.wait(both)?;
                Ok(Some(AddedLayer {
                    meta: meta(id, &built),
                    place: LayerPlace::Bucket,
                }))
            }
            (built, pack, cue) => {
                for upload in [pack, cue].into_iter().flatten() {
                    // What a store keeps of a lost abort is for collection.
                    let _ = self.workers.wait(upload.abort());
                }
                Err(built.err().unwrap_or_else(|| half_a_layer().into()))
            }
        }
    }
}

fn half_a_layer() -> IntakeError {
    IntakeError::Internal("a layer was made without its pack or its cue")
}

fn meta(id: LayerId, built: &Built) -> LayerMeta {
    LayerMeta {
        id,
        pack_bytes: built.pack_bytes,
        cue_bytes: built.cue_bytes,
        objects: built.objects,
        segments: built.segments,
        level: 0,
        self_contained: built.self_contained,
        unreachable: built.unreachable,
        bases_chosen: built.bases_chosen,
    }
}

/// Deletes layers of the bucket that no entry names. Best effort: what stays is for collection.
pub(crate) async fn discard(view: &View, log: LogId, layers: &[AddedLayer]) {
    for layer in layers.iter().filter(|layer| layer.place == LayerPlace::Bucket) {
        let id = layer.meta.id;
        for key in [layer_pack_key(log, id), layer_cue_key(log, id)] {
            if let Err(error) = view.world().bucket.delete(&key).await {
                tracing::warn!(%key, %error, "an orphan layer stays");
            }
        }
    }
}
