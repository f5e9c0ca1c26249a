//! What entries and checkpoints say of layers that left the layer list (docs/format/entry.md, docs/format/checkpoint.md).

use crate::codec::{Reader, Writer, check_flags};
use crate::{LayerId, Result};

const IS_SEEN: u8 = 1;

/// Bytes of a collection without orphans.
const COLLECTION_LEN_MIN: usize = 20;
/// Bytes of a retired layer that nobody has seen yet.
pub(crate) const RETIRED_LEN_MIN: usize = 25;

/// A layer of the bucket that is in the list no more, and whose payloads may still be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetiredLayer {
    /// Its name, which no edit may add again.
    pub id: LayerId,
    /// The entry by which it left.
    pub number: u64,
    /// A moment at which it had certainly left, in milliseconds since the Unix epoch: its grace period begins there. `None`
    /// until a collector has seen that it left.
    pub seen_ms: Option<i64>,
}

/// What a collector did, or is about to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collection {
    /// Layers that left by entries below this number had left at the time of the edit.
    pub seen_below: u64,
    /// Layers that left by entries below this number, and were seen, have no payloads any more and are forgotten.
    pub deleted_below: u64,
    /// Layers whose payloads are in the bucket and that no entry names: from now on none may.
    pub orphans: Vec<LayerId>,
}

/// Bytes a collection takes in an entry.
pub(crate) fn collection_len(collection: &Collection) -> usize {
    COLLECTION_LEN_MIN + 16 * collection.orphans.len()
}

pub(crate) fn put_collection(out: &mut Writer, collection: &Collection) -> Result<()> {
    out.u64(collection.seen_below);
    out.u64(collection.deleted_below);
    out.count(collection.orphans.len())?;
    collection.orphans.iter().for_each(|id| out.u128(id.0));
    Ok(())
}

pub(crate) fn read_collection(from: &mut Reader<'_>) -> Result<Collection> {
    let (seen_below, deleted_below, orphans) = (from.u64()?, from.u64()?, from.u32()?);
    Ok(Collection {
        seen_below,
        deleted_below,
        orphans: from.items(orphans, 16, |from| from.u128().map(LayerId))?,
    })
}

pub(crate) fn put_retired(out: &mut Writer, layer: &RetiredLayer) {
    out.u128(layer.id.0);
    out.u64(layer.number);
    out.u8(if layer.seen_ms.is_some() { IS_SEEN } else { 0 });
    layer.seen_ms.into_iter().for_each(|time| out.i64(time));
}

pub(crate) fn read_retired(from: &mut Reader<'_>) -> Result<RetiredLayer> {
    let (id, number, flags) = (LayerId(from.u128()?), from.u64()?, from.u8()?);
    check_flags("retired layer flags", flags, IS_SEEN)?;
    let seen_ms = match flags & IS_SEEN {
        0 => None,
        _ => Some(from.i64()?),
    };
    Ok(RetiredLayer { id, number, seen_ms })
}
