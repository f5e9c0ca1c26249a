//! How entries and checkpoints name a layer (docs/format/entry.md, "Layer").

use crate::codec::{Reader, Writer, check_flags};
use crate::error::invalid;
use crate::{AddedLayer, LayerId, LayerMeta, LayerPlace, Result};

const SELF_CONTAINED: u8 = 1;
const UNREACHABLE: u8 = 2;
const INLINE: u8 = 4;
const BASES_CHOSEN: u8 = 8;

/// Bytes of a layer that is in the bucket; an inline one's pack and cue follow.
pub(crate) const LAYER_LEN_MIN: usize = 44;

/// Bytes the layer takes when encoded.
pub(crate) fn layer_len(layer: &AddedLayer) -> usize {
    match &layer.place {
        LayerPlace::Inline { pack, cue } => LAYER_LEN_MIN + pack.len() + cue.len(),
        LayerPlace::Bucket => LAYER_LEN_MIN,
    }
}

pub(crate) fn put_layer(out: &mut Writer, layer: &AddedLayer) -> Result<()> {
    let LayerMeta {
        id,
        pack_bytes,
        cue_bytes,
        objects,
        segments,
        level,
        self_contained,
        unreachable,
        bases_chosen,
    } = layer.meta;
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let inline = matches!(layer.place, LayerPlace::Inline { .. });
    out.u128(id.0);
    out.u64(pack_bytes);
    out.u64(cue_bytes);
    out.u32(objects);
    out.u32(segments);
    out.u8(level);
    out.u8(flag(self_contained, SELF_CONTAINED)
        | flag(unreachable, UNREACHABLE)
        | flag(inline, INLINE)
        | flag(bases_chosen, BASES_CHOSEN));
    out.u16(0);
    if let LayerPlace::Inline { pack, cue } = &layer.place {
        if (pack.len() as u64, cue.len() as u64) != (pack_bytes, cue_bytes) {
            return invalid("inline layer", "its bytes are not as many as its sizes say");
        }
        out.raw(pack);
        out.raw(cue);
    }
    Ok(())
}

pub(crate) fn read_layer(from: &mut Reader<'_>) -> Result<AddedLayer> {
    let (id, pack_bytes, cue_bytes) = (LayerId(from.u128()?), from.u64()?, from.u64()?);
    let (objects, segments, level, flags) = (from.u32()?, from.u32()?, from.u8()?, from.u8()?);
    from.reserved::<2>()?;
    check_flags(
        "layer flags",
        flags,
        SELF_CONTAINED | UNREACHABLE | INLINE | BASES_CHOSEN,
    )?;
    let place = match flags & INLINE {
        0 => LayerPlace::Bucket,
        _ => LayerPlace::Inline {
            pack: from.shared(pack_bytes)?,
            cue: from.shared(cue_bytes)?,
        },
    };
    let self_contained = flags & SELF_CONTAINED != 0;
    let unreachable = flags & UNREACHABLE != 0;
    let bases_chosen = flags & BASES_CHOSEN != 0;
    let meta = LayerMeta {
        id,
        pack_bytes,
        cue_bytes,
        objects,
        segments,
        level,
        self_contained,
        unreachable,
        bases_chosen,
    };
    Ok(AddedLayer { meta, place })
}
