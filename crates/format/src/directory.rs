//! Entries and checkpoints of the directory of names (docs/format/entry.md, docs/format/checkpoint.md).

use crate::codec::{Envelope, Reader, Writer, check_flags, object_format, object_format_code};
use crate::error::{invalid, malformed};
use crate::list_entry::ListEntry;
use crate::{DirectoryChange, EditId, FormatError, LogId, NameChange, RepositoryRecord, Result};
use bytes::Bytes;

const ENTRY: Envelope = Envelope {
    what: "directory entry",
    magic: *b"CDE\0",
    version: 1,
};
const CHECKPOINT: Envelope = Envelope {
    what: "directory checkpoint",
    magic: *b"CDC\0",
    version: 2,
};
/// Before logs were abandoned.
const CHECKPOINT_OLDEST: u16 = 1;
const CHANGE_LEN_MIN: usize = 4;
const NAME_LEN_MIN: usize = 20;

const HAS_OLD: u8 = 1;
const HAS_NEW: u8 = 2;
const ABANDONS: u8 = 4;
const FORGETS: u8 = 8;
const IS_SEEN: u8 = 1;
const ABANDONED_LEN_MIN: usize = 17;

/// The whole directory at one place in its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryCheckpoint {
    /// The number of the first entry that is not in it.
    pub number: u64,
    /// Every repository by name, in ascending order.
    pub names: Vec<(String, RepositoryRecord)>,
    /// The most recent edits, oldest first, to recognise one whose reply was lost.
    pub recent_edits: Vec<EditId>,
    /// Logs without a name of which something may be left, in ascending order.
    pub abandoned: Vec<AbandonedLog>,
}

/// A log that lost its name, or never had one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbandonedLog {
    /// The log.
    pub log: LogId,
    /// A moment at which it certainly had no name, in milliseconds since the Unix epoch. `None` until a collector has seen
    /// that it has none.
    pub seen_ms: Option<i64>,
}

/// One numbered record of the directory's log.
pub type DirectoryEntry = ListEntry<DirectoryChange>;

impl DirectoryEntry {
    /// The bytes of the entry; fails where a name or an actor is longer than 65,535 bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.encode_as(ENTRY, put_change)
    }

    /// Reads an entry.
    pub fn decode(bytes: &Bytes) -> Result<Self> {
        Self::decode_as(ENTRY, bytes, CHANGE_LEN_MIN, read_change)
    }
}

fn put_change(out: &mut Writer, change: &DirectoryChange) -> Result<()> {
    let (flag, log) = match change {
        DirectoryChange::Name(change) => return put_name_change(out, change),
        DirectoryChange::Abandon(log) => (ABANDONS, log),
        DirectoryChange::Forget(log) => (FORGETS, log),
    };
    out.u16(0);
    out.u8(flag);
    out.u8(0);
    out.u128(log.0);
    Ok(())
}

fn put_name_change(out: &mut Writer, change: &NameChange) -> Result<()> {
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.name_len(change.name.as_bytes())?;
    out.u8(flag(change.old.is_some(), HAS_OLD) | flag(change.new.is_some(), HAS_NEW));
    out.u8(change.new.map_or(0, |new| object_format_code(new.object_format)));
    out.raw(change.name.as_bytes());
    let logs = [change.old, change.new.map(|new| new.log)];
    logs.iter().flatten().for_each(|log| out.u128(log.0));
    Ok(())
}

fn read_change(from: &mut Reader<'_>) -> Result<DirectoryChange> {
    let (name_len, flags, format) = (from.u16()?, from.u8()?, from.u8()?);
    match (flags, name_len, format) {
        (ABANDONS, 0, 0) => return Ok(DirectoryChange::Abandon(LogId(from.u128()?))),
        (FORGETS, 0, 0) => return Ok(DirectoryChange::Forget(LogId(from.u128()?))),
        (ABANDONS | FORGETS, ..) => return malformed(ENTRY.what, "a name for a log that has none"),
        _ => check_flags("name flags", flags, HAS_OLD | HAS_NEW)?,
    }
    let name = from.text(name_len.into())?;
    let old = if flags & HAS_OLD == 0 {
        None
    } else {
        Some(LogId(from.u128()?))
    };
    let new = match (flags & HAS_NEW, format) {
        (0, 0) => None,
        (0, _) => return malformed(ENTRY.what, "an object format for a name that is freed"),
        _ => Some(RepositoryRecord {
            object_format: object_format(format)?,
            log: LogId(from.u128()?),
        }),
    };
    Ok(DirectoryChange::Name(NameChange { name, old, new }))
}

impl DirectoryCheckpoint {
    /// The bytes of the checkpoint; fails where names do not ascend or one is longer than 65,535 bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.check_order().or_else(|reason| invalid(CHECKPOINT.what, reason))?;
        let lists_len = 64 * self.names.len() + 16 * self.recent_edits.len() + 25 * self.abandoned.len();
        let mut out = Writer::new(CHECKPOINT, lists_len);
        out.u64(self.number);
        out.count(self.names.len())?;
        out.count(self.recent_edits.len())?;
        out.count(self.abandoned.len())?;
        for (name, record) in &self.names {
            out.name_len(name.as_bytes())?;
            out.u8(object_format_code(record.object_format));
            out.u8(0);
            out.u128(record.log.0);
            out.raw(name.as_bytes());
        }
        self.recent_edits.iter().for_each(|id| out.u128(id.0));
        for AbandonedLog { log, seen_ms } in &self.abandoned {
            out.u128(log.0);
            out.u8(if seen_ms.is_some() { IS_SEEN } else { 0 });
            seen_ms.iter().for_each(|time| out.i64(*time));
        }
        Ok(out.finish())
    }

    /// Reads a checkpoint.
    pub fn decode(bytes: &Bytes) -> Result<Self> {
        let (mut from, version) = Reader::since(CHECKPOINT_OLDEST, CHECKPOINT, bytes)?;
        let (number, names, recent_edits) = (from.u64()?, from.u32()?, from.u32()?);
        let abandoned = if version == CHECKPOINT_OLDEST { 0 } else { from.u32()? };
        let names = from.items(names, NAME_LEN_MIN, read_name)?;
        let recent_edits = from.items(recent_edits, 16, |from| from.u128().map(EditId))?;
        let abandoned = from.items(abandoned, ABANDONED_LEN_MIN, read_abandoned)?;
        from.finish()?;
        let checkpoint = Self {
            number,
            names,
            recent_edits,
            abandoned,
        };
        match checkpoint.check_order() {
            Ok(()) => Ok(checkpoint),
            Err(reason) => Err(FormatError::Malformed {
                what: CHECKPOINT.what,
                reason,
            }),
        }
    }

    fn check_order(&self) -> std::result::Result<(), &'static str> {
        if !self.names.is_sorted_by(|left, right| left.0 < right.0) {
            return Err("names do not ascend");
        }
        if !self.abandoned.is_sorted_by(|left, right| left.log < right.log) {
            return Err("abandoned logs do not ascend");
        }
        Ok(())
    }
}

fn read_abandoned(from: &mut Reader<'_>) -> Result<AbandonedLog> {
    let (log, flags) = (LogId(from.u128()?), from.u8()?);
    check_flags("abandoned log flags", flags, IS_SEEN)?;
    let seen_ms = match flags {
        0 => None,
        _ => Some(from.i64()?),
    };
    Ok(AbandonedLog { log, seen_ms })
}

fn read_name(from: &mut Reader<'_>) -> Result<(String, RepositoryRecord)> {
    let (name_len, object_format) = (from.u16()?, object_format(from.u8()?)?);
    from.reserved::<1>()?;
    let log = LogId(from.u128()?);
    Ok((from.text(name_len.into())?, RepositoryRecord { log, object_format }))
}
