//! Layers that the client fetches by itself (gitprotocol-v2, `packfile-uris`), and what that leaves for the pack.
//!
//! A layer can be given so if stock git reads its pack alone and the client may have all that is in it. What the client does
//! not need of it, it gets on top: less than a quarter. The pack that is sent rests on none of it: git's client reads that pack
//! first.

use super::Reach;
use super::select::Selection;
use crate::EngineError;
use crate::graph::Graph;
use std::sync::Arc;

/// Lets a plan leave layers to be fetched by URI.
#[derive(Clone, Debug)]
pub struct Offload {
    /// What the client may have.
    pub reach: Arc<Reach>,
    /// Layers whose pack has fewer bytes are sent.
    pub bytes_min: u64,
}

/// Of a layer's objects, the part that must be wanted: 3 of 4.
const WANTED_MIN: (u64, u64) = (3, 4);

impl Offload {
    /// The layers, by slot, that a selection can leave out.
    pub(super) fn choose(&self, graph: &Graph, selection: &Selection<'_>) -> Result<Vec<u32>, EngineError> {
        let mut slots = Vec::new();
        for slot in 0..graph.slot_count() {
            let Some(layer) = graph.layer(slot) else { continue };
            let meta = layer.meta();
            let alone = !layer.is_inline() && meta.self_contained && meta.pack_bytes >= self.bytes_min;
            let (wanted, of) = WANTED_MIN;
            let worth_it =
                || selection.count_in(slot).saturating_mul(of) >= u64::from(meta.objects).saturating_mul(wanted);
            if alone && worth_it() && self.reach.has_whole_layer(slot)? {
                slots.push(slot);
            }
        }
        Ok(slots)
    }
}
