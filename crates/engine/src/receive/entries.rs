//! What is kept in memory of every entry of a push: fixed columns, and no more than about 50 bytes an object.

use super::error::{ObjectFault, PackFault};
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind};
use std::ops::Range;

/// How an entry is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Whole.
    Whole,
    /// As a delta against this entry.
    Delta(u32),
    /// As a delta against the object of this number in the list of named bases: once deltas are resolved, one that is
    /// outside the push.
    Named(u32),
}

/// One entry; until its delta is resolved `size` is the delta's own and there is no kind.
#[derive(Clone, Copy)]
struct Row {
    offset: u64,
    size: u64,
    base: u32,
    header_len: u8,
    form: Form,
    kind: Option<ObjectKind>,
    known: bool,
    large_delta: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Whole,
    Delta,
    Named,
}

/// The entries of one push, numbered as they came, over all its packs.
pub(crate) struct Entries {
    format: ObjectFormat,
    rows: Vec<Row>,
    /// Ids back to back; zeros until known.
    oids: Vec<u8>,
    /// The bases that reference deltas name.
    named_bases: Vec<ObjectId>,
    /// First entry and spool offset of each pack.
    packs: Vec<(u32, u64)>,
    /// Where the last entry ends.
    end: u64,
}

impl Entries {
    pub(crate) fn new(format: ObjectFormat) -> Self {
        Self {
            format,
            rows: Vec::new(),
            oids: Vec::new(),
            named_bases: Vec::new(),
            packs: Vec::new(),
            end: 0,
        }
    }

    pub(crate) fn format(&self) -> ObjectFormat {
        self.format
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u32 {
        // `PackParser` refuses more objects than a `u32` counts.
        u32::try_from(self.rows.len()).unwrap_or(u32::MAX)
    }

    /// Starts the next pack.
    pub(crate) fn begin_pack(&mut self, spool_offset: u64) {
        self.packs.push((self.len(), spool_offset));
        self.end = spool_offset;
    }

    /// Adds the next entry. Its end is not known yet.
    pub(crate) fn push(&mut self, offset: u64, header_len: u8, size: u64, kind: Option<ObjectKind>, stored: Stored) {
        let (form, base) = match stored {
            Stored::Whole => (Form::Whole, 0),
            Stored::Delta(base) => (Form::Delta, base),
            Stored::Named(base) => (Form::Named, base),
        };
        self.rows.push(Row {
            offset,
            size,
            base,
            header_len,
            form,
            kind,
            known: false,
            large_delta: false,
        });
        self.oids.resize(self.oids.len() + self.format.width(), 0);
    }

    /// Gives back room kept for more entries.
    pub(crate) fn shrink(&mut self) {
        self.rows.shrink_to_fit();
        self.oids.shrink_to_fit();
        self.named_bases.shrink_to_fit();
    }

    /// Says where the last entry ends.
    pub(crate) fn end_at(&mut self, end: u64) {
        self.end = end;
    }

    /// Remembers a base named by id; its number goes into [`Stored::Named`].
    pub(crate) fn name_base(&mut self, oid: ObjectId) -> u32 {
        self.named_bases.push(oid);
        u32::try_from(self.named_bases.len() - 1).unwrap_or(u32::MAX)
    }

    /// The id of a named base.
    pub(crate) fn named_base(&self, number: u32) -> ObjectId {
        self.named_bases
            .get(number as usize)
            .copied()
            .unwrap_or(ObjectId::null(self.format))
    }

    /// The entry that starts at a spool offset, in the pack now being read.
    pub(crate) fn at_offset(&self, offset: u64) -> Option<u32> {
        let first = self.packs.last().map_or(0, |pack| pack.0) as usize;
        let found = self
            .rows
            .get(first..)?
            .binary_search_by_key(&offset, |row| row.offset)
            .ok()?;
        u32::try_from(first + found).ok()
    }

    /// The header and data of an entry, as offsets in the spool.
    pub(crate) fn span(&self, entry: u32) -> Range<u64> {
        let start = self.row(entry).offset;
        let end = self.rows.get(entry as usize + 1).map_or(self.end, |next| next.offset);
        start..end
    }

    /// Bytes of the header before the zlib stream.
    pub(crate) fn header_len(&self, entry: u32) -> usize {
        usize::from(self.row(entry).header_len)
    }

    /// Size of the object; of the delta while that is not resolved.
    pub(crate) fn size(&self, entry: u32) -> u64 {
        self.row(entry).size
    }

    /// Kind of the object, once known.
    pub(crate) fn kind(&self, entry: u32) -> Option<ObjectKind> {
        self.row(entry).kind
    }

    /// How the entry is stored.
    pub(crate) fn stored(&self, entry: u32) -> Stored {
        let row = self.row(entry);
        match row.form {
            Form::Whole => Stored::Whole,
            Form::Delta => Stored::Delta(row.base),
            Form::Named => Stored::Named(row.base),
        }
    }

    /// The id of the object, once known; else the null id.
    pub(crate) fn oid(&self, entry: u32) -> ObjectId {
        let width = self.format.width();
        let start = entry as usize * width;
        let bytes = self.oids.get(start..start + width).unwrap_or_default();
        ObjectId::from_bytes(self.format, bytes).unwrap_or(ObjectId::null(self.format))
    }

    /// Records which entry a delta with a named base was resolved against.
    pub(crate) fn rebase(&mut self, entry: u32, base: u32) {
        if let Some(row) = self.rows.get_mut(entry as usize) {
            row.form = Form::Delta;
            row.base = base;
        }
    }

    /// Records what an entry turned out to be.
    pub(crate) fn resolve(&mut self, entry: u32, kind: ObjectKind, size: u64, oid: &ObjectId) {
        let width = self.format.width();
        let start = entry as usize * width;
        if let (Some(row), Some(bytes)) = (
            self.rows.get_mut(entry as usize),
            self.oids.get_mut(start..start + width),
        ) {
            row.kind = Some(kind);
            row.size = size;
            bytes.copy_from_slice(oid.as_bytes());
        }
    }

    /// Records that the repository has the object already: it is not stored again.
    ///
    /// Stored again as a delta it might even be based, over other layers, on itself.
    pub(crate) fn set_known(&mut self, entry: u32) {
        if let Some(row) = self.rows.get_mut(entry as usize) {
            row.known = true;
        }
    }

    /// Records that a delta, its base or its result is larger than what is held in memory.
    pub(crate) fn set_large_delta(&mut self, entry: u32) {
        if let Some(row) = self.rows.get_mut(entry as usize) {
            row.large_delta = true;
        }
    }

    /// See [`Entries::set_large_delta`].
    pub(crate) fn is_large_delta(&self, entry: u32) -> bool {
        self.row(entry).large_delta
    }

    /// Whether the repository has the object already.
    pub(crate) fn is_known(&self, entry: u32) -> bool {
        self.row(entry).known
    }

    /// The fault of an entry, placed where the peer can find it in its pack.
    pub(crate) fn fault(&self, entry: u32, fault: ObjectFault) -> PackFault {
        PackFault::BadObject {
            offset: self.pack_offset(self.row(entry).offset),
            fault,
        }
    }

    /// The offset in its own pack of a spool offset.
    pub(crate) fn pack_offset(&self, spool_offset: u64) -> u64 {
        let after = self.packs.partition_point(|pack| pack.1 <= spool_offset);
        let start = after
            .checked_sub(1)
            .and_then(|pack| self.packs.get(pack))
            .map_or(0, |pack| pack.1);
        spool_offset - start + super::parse::PACK_HEADER_LEN
    }

    fn row(&self, entry: u32) -> Row {
        const NONE: Row = Row {
            offset: 0,
            size: 0,
            base: 0,
            header_len: 0,
            form: Form::Whole,
            kind: None,
            known: false,
            large_delta: false,
        };
        self.rows.get(entry as usize).copied().unwrap_or(NONE)
    }
}

/// Finds entries by id. Of several with one id the first counts.
pub(crate) struct Index {
    table: hashbrown::HashTable<u32>,
}

impl Index {
    /// Indexes all entries.
    pub(crate) fn new(entries: &Entries) -> Self {
        let mut table = hashbrown::HashTable::with_capacity(entries.len() as usize);
        for entry in 0..entries.len() {
            let oid = entries.oid(entry);
            let slot = table.entry(
                spread(&oid),
                |held| entries.oid(*held) == oid,
                |held| spread(&entries.oid(*held)),
            );
            slot.or_insert(entry);
        }
        Self { table }
    }

    /// The entry that holds the object.
    pub(crate) fn find(&self, entries: &Entries, oid: &ObjectId) -> Option<u32> {
        self.table.find(spread(oid), |held| entries.oid(*held) == *oid).copied()
    }
}

/// Ids are spread already. Objects ground so that many share a slot cost their maker far more than us: 2^20 hashes each.
fn spread(oid: &ObjectId) -> u64 {
    oid.as_bytes()
        .first_chunk()
        .map_or(0, |first: &[u8; 8]| u64::from_le_bytes(*first))
}
