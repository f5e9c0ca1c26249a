//! What is kept in memory of every entry of a push: fixed columns, 36 bytes an object in a sha1 repository.

use super::error::{ObjectFault, PackFault};
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind};
use std::collections::BTreeMap;
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

/// Entries for which room is made before they come.
const RESERVED_MAX: usize = 256;

/// One entry; until its delta is resolved the size is the delta's own and there is no kind. Sixteen bytes.
#[derive(Clone, Copy)]
struct Row {
    /// Where it starts: 48 bits are more than any disk holds.
    offset_low: u32,
    offset_high: u16,
    header_len: u8,
    /// Form, kind and marks.
    bits: u8,
    /// [`LONG`] where the size is in a table.
    size: u32,
    base: u32,
}

const _: () = assert!(size_of::<Row>() == 16);

/// Stands for a size that does not fit.
const LONG: u32 = u32::MAX;
/// How it is stored: two bits of a row's.
const FORM: u8 = 0b11;
const DELTA: u8 = 1;
const NAMED: u8 = 2;
/// Its kind, or nothing while that is not known: three bits.
const KIND_SHIFT: u32 = 2;
const KIND: u8 = 0b111 << KIND_SHIFT;
const KNOWN: u8 = 1 << 5;
const LARGE_DELTA: u8 = 1 << 6;

impl Row {
    const NONE: Self = Self {
        offset_low: 0,
        offset_high: 0,
        header_len: 0,
        bits: 0,
        size: 0,
        base: 0,
    };

    fn offset(&self) -> u64 {
        u64::from(self.offset_high) << 32 | u64::from(self.offset_low)
    }

    fn kind(&self) -> Option<ObjectKind> {
        match (self.bits & KIND) >> KIND_SHIFT {
            1 => Some(ObjectKind::Commit),
            2 => Some(ObjectKind::Tree),
            3 => Some(ObjectKind::Blob),
            4 => Some(ObjectKind::Tag),
            _ => None,
        }
    }

    fn set_kind(&mut self, kind: Option<ObjectKind>) {
        self.bits = self.bits & !KIND | kind_bits(kind);
    }

    fn set_stored(&mut self, stored: Stored) {
        let (form, base) = match stored {
            Stored::Whole => (0, 0),
            Stored::Delta(base) => (DELTA, base),
            Stored::Named(base) => (NAMED, base),
        };
        self.bits = self.bits & !FORM | form;
        self.base = base;
    }
}

fn kind_bits(kind: Option<ObjectKind>) -> u8 {
    let code = match kind {
        None => 0,
        Some(ObjectKind::Commit) => 1,
        Some(ObjectKind::Tree) => 2,
        Some(ObjectKind::Blob) => 3,
        Some(ObjectKind::Tag) => 4,
    };
    code << KIND_SHIFT
}

/// The entries of one push, numbered as they came, over all its packs.
pub(crate) struct Entries {
    format: ObjectFormat,
    rows: Vec<Row>,
    /// Sizes that do not fit their rows.
    long_sizes: BTreeMap<u32, u64>,
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
            long_sizes: BTreeMap::new(),
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
        let (entry, size) = (self.len(), self.short_size(self.len(), size));
        debug_assert_eq!(entry as usize, self.rows.len());
        let [low @ .., a, b, _, _] = offset.to_le_bytes();
        let mut row = Row {
            offset_low: u32::from_le_bytes(low),
            offset_high: u16::from_le_bytes([a, b]),
            header_len,
            size,
            ..Row::NONE
        };
        row.set_kind(kind);
        row.set_stored(stored);
        self.rows.push(row);
        self.oids.resize(self.oids.len() + self.format.width(), 0);
    }

    /// Makes room for so many entries, or the first of them: a pack says how many it has before it shows any.
    pub(crate) fn reserve(&mut self, entries: usize) {
        let entries = entries.min(RESERVED_MAX);
        self.rows.reserve(entries);
        self.oids.reserve(entries * self.format.width());
    }

    /// Gives back room kept for more entries, if it is worth the copying.
    pub(crate) fn shrink(&mut self) {
        if self.rows.capacity() <= RESERVED_MAX {
            return;
        }
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
            .binary_search_by_key(&offset, Row::offset)
            .ok()?;
        u32::try_from(first + found).ok()
    }

    /// The header and data of an entry, as offsets in the spool.
    pub(crate) fn span(&self, entry: u32) -> Range<u64> {
        let start = self.row(entry).offset();
        let end = self.rows.get(entry as usize + 1).map_or(self.end, Row::offset);
        start..end
    }

    /// Bytes of the header before the zlib stream.
    pub(crate) fn header_len(&self, entry: u32) -> usize {
        usize::from(self.row(entry).header_len)
    }

    /// Size of the object; of the delta while that is not resolved.
    pub(crate) fn size(&self, entry: u32) -> u64 {
        match self.row(entry).size {
            LONG => self.long_sizes.get(&entry).copied().unwrap_or(0),
            size => size.into(),
        }
    }

    /// Kind of the object, once known.
    pub(crate) fn kind(&self, entry: u32) -> Option<ObjectKind> {
        self.row(entry).kind()
    }

    /// How the entry is stored.
    pub(crate) fn stored(&self, entry: u32) -> Stored {
        let row = self.row(entry);
        match row.bits & FORM {
            DELTA => Stored::Delta(row.base),
            NAMED => Stored::Named(row.base),
            _ => Stored::Whole,
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
            row.set_stored(Stored::Delta(base));
        }
    }

    /// Records what an entry turned out to be.
    pub(crate) fn resolve(&mut self, entry: u32, kind: ObjectKind, size: u64, oid: &ObjectId) {
        let width = self.format.width();
        let start = entry as usize * width;
        let size = self.short_size(entry, size);
        if let (Some(row), Some(bytes)) = (
            self.rows.get_mut(entry as usize),
            self.oids.get_mut(start..start + width),
        ) {
            row.set_kind(Some(kind));
            row.size = size;
            bytes.copy_from_slice(oid.as_bytes());
        }
    }

    /// Records that the repository has the object already: it is not stored again.
    ///
    /// Stored again as a delta it might even be based, over other layers, on itself.
    pub(crate) fn set_known(&mut self, entry: u32) {
        if let Some(row) = self.rows.get_mut(entry as usize) {
            row.bits |= KNOWN;
        }
    }

    /// Records that a delta, its base or its result is larger than what is held in memory.
    pub(crate) fn set_large_delta(&mut self, entry: u32) {
        if let Some(row) = self.rows.get_mut(entry as usize) {
            row.bits |= LARGE_DELTA;
        }
    }

    /// See [`Entries::set_large_delta`].
    pub(crate) fn is_large_delta(&self, entry: u32) -> bool {
        self.row(entry).bits & LARGE_DELTA != 0
    }

    /// Whether the repository has the object already.
    pub(crate) fn is_known(&self, entry: u32) -> bool {
        self.row(entry).bits & KNOWN != 0
    }

    /// The fault of an entry, placed where the peer can find it in its pack.
    pub(crate) fn fault(&self, entry: u32, fault: ObjectFault) -> PackFault {
        PackFault::BadObject {
            offset: self.pack_offset(self.row(entry).offset()),
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
        self.rows.get(entry as usize).copied().unwrap_or(Row::NONE)
    }

    /// A size as a row has it, which is noted where it does not fit.
    fn short_size(&mut self, entry: u32, size: u64) -> u32 {
        match u32::try_from(size).ok().filter(|size| *size != LONG) {
            Some(size) => size,
            None => {
                self.long_sizes.insert(entry, size);
                LONG
            }
        }
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
