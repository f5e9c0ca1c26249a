//! Entries whose edits are plain lists of changes: the directory's and the accounts' (docs/format/entry.md,
//! docs/format/accounts.md).

use crate::codec::{Envelope, Reader, Writer};
use crate::{EditId, Result};
use bytes::Bytes;

const EDIT_LEN_MIN: usize = 32;

/// One atomic list of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEdit<C> {
    /// Tells this edit from every other.
    pub id: EditId,
    /// When it was made, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// Who made it; empty where nobody was authenticated.
    pub actor: String,
    /// What changes, applied one after another.
    pub changes: Vec<C>,
}

/// One numbered record of a log of such edits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntry<C> {
    /// Its place in the log.
    pub number: u64,
    /// The edits, to be applied one after another.
    pub edits: Vec<ListEdit<C>>,
}

impl<C> ListEntry<C> {
    pub(crate) fn encode_as(
        &self,
        envelope: Envelope,
        put_change: impl Fn(&mut Writer, &C) -> Result<()>,
    ) -> Result<Vec<u8>> {
        let mut out = Writer::new(envelope, 256);
        out.u64(self.number);
        out.count(self.edits.len())?;
        for edit in &self.edits {
            out.u128(edit.id.0);
            out.i64(edit.time_ms);
            out.name_len(edit.actor.as_bytes())?;
            out.u16(0);
            out.count(edit.changes.len())?;
            out.raw(edit.actor.as_bytes());
            edit.changes
                .iter()
                .try_for_each(|change| put_change(&mut out, change))?;
        }
        Ok(out.finish())
    }

    pub(crate) fn decode_as(
        envelope: Envelope,
        bytes: &Bytes,
        change_len_min: usize,
        read_change: impl Fn(&mut Reader<'_>) -> Result<C>,
    ) -> Result<Self> {
        let mut from = Reader::new(envelope, bytes)?;
        let (number, count) = (from.u64()?, from.u32()?);
        let edits = from.items(count, EDIT_LEN_MIN, |from| {
            read_edit(from, change_len_min, &read_change)
        })?;
        from.finish()?;
        Ok(Self { number, edits })
    }
}

fn read_edit<C>(
    from: &mut Reader<'_>,
    change_len_min: usize,
    read_change: impl Fn(&mut Reader<'_>) -> Result<C>,
) -> Result<ListEdit<C>> {
    let (id, time_ms, actor_len) = (EditId(from.u128()?), from.i64()?, from.u16()?);
    from.reserved::<2>()?;
    let count = from.u32()?;
    let actor = from.text(actor_len.into())?;
    Ok(ListEdit {
        id,
        time_ms,
        actor,
        changes: from.items(count, change_len_min, read_change)?,
    })
}
