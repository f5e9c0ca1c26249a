//! Writes cues down, whole or in pieces: what a large layer's takes in memory beside its columns is a few bytes an entry.

use super::builder::{CueBuilder, Runs};
use super::{Base, CueHeader, SectionKind, filter, lookup};
use crate::FormatError;
use crate::error::invalid;
use cuesta_git::{IdKey, ObjectId, sort_by_id};
use std::ops::Range;

const WHAT: &str = "cue";

/// Ids and sizes of the entries of a layer that is being written, by their index: for builders whose caller has them anyway.
/// What it says must not change.
pub trait EntryFacts {
    /// The object's id; the null id past the end.
    fn oid(&self, entry: u32) -> ObjectId;
    /// The object's size in bytes.
    fn size(&self, entry: u32) -> u64;
}

/// Where ids and sizes are.
pub(super) enum Facts<'f> {
    /// In the builder.
    Own,
    /// With the caller.
    Lent(&'f dyn EntryFacts),
}

/// A cue that is checked and complete, and not written down yet.
///
/// Memory: the builder's columns, and 11 bytes an entry.
pub struct FinishedCue<'f> {
    builder: CueBuilder,
    facts: Facts<'f>,
    /// Its sections have no checksums yet.
    header: CueHeader,
    structure: Part,
    blobs: Part,
}

/// What follows from the oids of commits, tags and trees, or from those of blobs.
#[derive(Default)]
struct Part {
    entries: Range<u32>,
    /// The entries in the order of their oids.
    order: Vec<u32>,
    /// The place of each entry in that order.
    ranks: Vec<u32>,
    fanout: Vec<u32>,
    filter: Vec<u8>,
}

impl<'f> FinishedCue<'f> {
    /// Of a builder whose own columns are checked.
    pub(super) fn new(builder: CueBuilder, facts: Facts<'f>, order: Option<Vec<u32>>) -> Result<Self, FormatError> {
        let counts = builder.counts;
        let is_own = |base: &u32| !matches!(Base::decode(*base), Base::External(_));
        let self_contained = builder.bases.iter().all(is_own);
        let flags = (self_contained, builder.unreachable);
        let header = CueHeader::lay_out(builder.format, flags, counts)?;
        let mut cue = Self {
            builder,
            facts,
            header,
            structure: Part::default(),
            blobs: Part::default(),
        };
        let mut order = match order {
            Some(order) => order,
            None => cue.sorted(),
        };
        cue.check_order(&order)?;
        let blobs = counts.blob_entries();
        let is_blob = |entry: &u32| *entry >= blobs.start;
        let blob_order = order.iter().copied().filter(is_blob).collect();
        order.retain(|entry| !is_blob(entry));
        cue.structure = cue.part(0..blobs.start, order)?;
        cue.blobs = cue.part(blobs, blob_order)?;
        Ok(cue)
    }

    /// Bytes of the whole.
    pub fn cue_len(&self) -> u64 {
        self.header.cue_len()
    }

    /// All bytes.
    pub fn into_bytes(self) -> Result<Vec<u8>, FormatError> {
        let len = to_usize(self.cue_len())?;
        let mut out = Out {
            buffer: Vec::with_capacity(len),
            piece_len: usize::MAX,
            sink: &mut |_| Ok::<(), FormatError>(()),
        };
        out.buffer.resize(self.header.header_len(), 0);
        for kind in SectionKind::ALL {
            self.put(kind, &mut out)?;
        }
        let mut bytes = out.buffer;
        debug_assert_eq!(bytes.len(), len);
        self.header.seal(&mut bytes)?;
        Ok(bytes)
    }

    /// Gives all bytes, in order, in pieces of about `piece_len`. They are made twice, for the checksums come first.
    pub fn write<E>(mut self, piece_len: usize, sink: &mut dyn FnMut(Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        for kind in SectionKind::ALL {
            let mut crc = 0;
            let mut add = |piece: Vec<u8>| {
                crc = crc32c::crc32c_append(crc, &piece);
                Ok::<(), E>(())
            };
            let mut out = Out::new(piece_len, &mut add);
            self.put(kind, &mut out)?;
            out.flush()?;
            self.header.set_crc(kind, crc);
        }
        let mut out = Out::new(piece_len, sink);
        out.bytes(&self.header.encode())?;
        for kind in SectionKind::ALL {
            self.put(kind, &mut out)?;
        }
        out.flush()
    }

    fn put<E>(&self, kind: SectionKind, out: &mut Out<'_, E>) -> Result<(), E> {
        match kind {
            SectionKind::Entries => self.put_entries(&self.structure, out),
            SectionKind::Lookup => self.put_lookup(&self.structure, out),
            SectionKind::Filter => put_filter(&self.structure, out),
            // Sections that are not there.
            SectionKind::BlobEntries | SectionKind::BlobLookup | SectionKind::BlobFilter
                if self.blobs.order.is_empty() =>
            {
                Ok(())
            }
            SectionKind::BlobEntries => self.put_entries(&self.blobs, out),
            SectionKind::BlobLookup => self.put_lookup(&self.blobs, out),
            SectionKind::BlobFilter => put_filter(&self.blobs, out),
            SectionKind::Segments => self.put_segments(out),
            SectionKind::Roots => self.put_roots(out),
            SectionKind::Externals => {
                let mut oids = self.builder.externals.oids.chunks(self.builder.format.width());
                oids.try_for_each(|oid| out.bytes(oid))
            }
        }
    }

    fn oid(&self, entry: u32) -> ObjectId {
        let format = self.builder.format;
        match self.facts {
            Facts::Lent(facts) => facts.oid(entry),
            Facts::Own => {
                let start = entry as usize * format.width();
                let bytes = self.builder.oids.get(start..start + format.width());
                let oid = bytes.and_then(|bytes| ObjectId::from_bytes(format, bytes).ok());
                oid.unwrap_or(ObjectId::null(format))
            }
        }
    }

    fn size(&self, entry: u32) -> u64 {
        match self.facts {
            Facts::Lent(facts) => facts.size(entry),
            Facts::Own => self.builder.sizes.get(entry as usize).copied().unwrap_or(0),
        }
    }

    /// The entries in the order of their oids; eight bytes each on the way.
    fn sorted(&self) -> Vec<u32> {
        let entries = 0..self.builder.counts.entries();
        let mut keys: Vec<IdKey> = entries.map(|entry| IdKey::new(&self.oid(entry), entry)).collect();
        sort_by_id(&mut keys, |entry| self.oid(entry));
        keys.into_iter().map(IdKey::number).collect()
    }

    /// The order must be that of the oids, and have each entry once: then no oid comes twice.
    fn check_order(&self, order: &[u32]) -> Result<(), FormatError> {
        let entries = self.builder.counts.entries();
        if order.len() != entries as usize || order.iter().any(|entry| *entry >= entries) {
            return invalid(WHAT, "the order does not have every entry once");
        }
        let mut before: Option<ObjectId> = None;
        for entry in order {
            let oid = self.oid(*entry);
            if oid.format() != self.builder.format {
                return invalid(WHAT, "an entry's oid is of the other object format");
            }
            if before.is_some_and(|before| before >= oid) {
                return invalid(WHAT, "an object comes twice");
            }
            before = Some(oid);
        }
        Ok(())
    }

    /// What follows from the order of these entries.
    fn part(&self, entries: Range<u32>, order: Vec<u32>) -> Result<Part, FormatError> {
        let count = entries.end - entries.start;
        if order.len() != count as usize {
            return invalid(WHAT, "the order does not have every entry once");
        }
        let bits = lookup::fanout_bits(count);
        let mut ranks = vec![0; order.len()];
        let mut fanout = vec![0; to_usize(lookup::fanout_slots(count))?];
        let mut filter = vec![0; to_usize(filter::filter_len(count))?];
        for (rank, entry) in (0u32..).zip(&order) {
            let oid = self.oid(*entry);
            let at = entry.checked_sub(entries.start);
            if let Some(slot) = at.and_then(|at| ranks.get_mut(at as usize)) {
                *slot = rank;
            }
            if bits > 0
                && let Some(slot) = fanout.get_mut(lookup::fanout_slot(oid.as_bytes(), bits))
            {
                *slot = rank + 1;
            }
            filter::insert(&mut filter, oid.as_bytes());
        }
        // A slot without oids ends where the one before it does.
        let mut end = 0;
        for slot in &mut fanout {
            end = (*slot).max(end);
            *slot = end;
        }
        Ok(Part {
            entries,
            order,
            ranks,
            fanout,
            filter,
        })
    }

    fn put_entries<E>(&self, part: &Part, out: &mut Out<'_, E>) -> Result<(), E> {
        let Range { start, end } = part.entries.clone();
        let (first, last) = (start as usize, end as usize);
        out.u64s(
            self.builder
                .offsets
                .get(first..=last)
                .unwrap_or_default()
                .iter()
                .copied(),
        )?;
        out.u64s((start..end).map(|entry| self.size(entry)))?;
        out.u32s(self.builder.bases.get(first..last).unwrap_or_default().iter().copied())?;
        out.u32s(part.ranks.iter().copied())
    }

    fn put_lookup<E>(&self, part: &Part, out: &mut Out<'_, E>) -> Result<(), E> {
        out.u32s(part.fanout.iter().copied())?;
        for entry in &part.order {
            out.bytes(self.oid(*entry).as_bytes())?;
        }
        out.u32s(part.order.iter().copied())
    }

    fn put_segments<E>(&self, out: &mut Out<'_, E>) -> Result<(), E> {
        let CueBuilder { segments, counts, .. } = &self.builder;
        if segments.generations.is_empty() {
            return Ok(());
        }
        out.u64s(segments.commit_times.iter().map(|time| time.cast_unsigned()))?;
        out.u32s(segments.generations.iter().copied())?;
        out.u32s(std::iter::once(0).chain(self.builder.parent_ends.iter().copied()))?;
        let (first_tree, first_blob) = (counts.tree_entries().start, counts.blob_entries().start);
        put_starts(&self.builder.segment_runs, first_tree, first_blob, out)?;
        let mut root_trees = segments.root_trees.chunks(self.builder.format.width());
        root_trees.try_for_each(|oid| out.bytes(oid))?;
        out.u32s(self.builder.parents.iter().copied())?;
        out.u32s(self.builder.segment_runs.links.iter().copied())
    }

    fn put_roots<E>(&self, out: &mut Out<'_, E>) -> Result<(), E> {
        let CueBuilder {
            roots,
            tag_targets,
            counts,
            ..
        } = &self.builder;
        if roots.is_empty() && tag_targets.is_empty() {
            return Ok(());
        }
        let [trees, blobs, _] = self.builder.segment_runs.end();
        let (first_tree, first_blob) = (counts.tree_entries().start, counts.blob_entries().start);
        put_starts(&self.builder.root_runs, first_tree + trees, first_blob + blobs, out)?;
        out.u32s(self.builder.root_runs.links.iter().copied())?;
        put_oids(roots.iter().map(|(oid, _)| oid), out)?;
        put_oids(tag_targets.iter().map(|(oid, _)| oid), out)?;
        for (_, kind) in roots.iter().chain(tag_targets) {
            out.bytes(&[*kind as u8])?;
        }
        Ok(())
    }
}

fn put_filter<E>(part: &Part, out: &mut Out<'_, E>) -> Result<(), E> {
    let mut blocks = part.filter.chunks(filter::BLOCK_LEN);
    blocks.try_for_each(|block| out.bytes(block))
}

/// Three columns of starts: trees and blobs as entries, links as positions.
fn put_starts<E>(runs: &Runs, first_tree: u32, first_blob: u32, out: &mut Out<'_, E>) -> Result<(), E> {
    let mut column = |first: u32, part: fn(&[u32; 3]) -> u32| {
        let ends = runs.ends.iter().map(|ends| first + part(ends));
        out.u32s(std::iter::once(first).chain(ends))
    };
    column(first_tree, |[trees, ..]| *trees)?;
    column(first_blob, |[_, blobs, _]| *blobs)?;
    column(0, |[.., links]| *links)
}

fn put_oids<'o, E>(mut oids: impl Iterator<Item = &'o ObjectId>, out: &mut Out<'_, E>) -> Result<(), E> {
    oids.try_for_each(|oid| out.bytes(oid.as_bytes()))
}

/// Gathers bytes into pieces.
struct Out<'s, E> {
    buffer: Vec<u8>,
    piece_len: usize,
    sink: &'s mut dyn FnMut(Vec<u8>) -> Result<(), E>,
}

impl<'s, E> Out<'s, E> {
    fn new(piece_len: usize, sink: &'s mut dyn FnMut(Vec<u8>) -> Result<(), E>) -> Self {
        Self {
            buffer: Vec::new(),
            piece_len,
            sink,
        }
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) -> Result<(), E> {
        if self.buffer.len() >= self.piece_len {
            self.flush()?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn u32s(&mut self, mut values: impl Iterator<Item = u32>) -> Result<(), E> {
        values.try_for_each(|value| self.bytes(&value.to_le_bytes()))
    }

    fn u64s(&mut self, mut values: impl Iterator<Item = u64>) -> Result<(), E> {
        values.try_for_each(|value| self.bytes(&value.to_le_bytes()))
    }

    fn flush(&mut self) -> Result<(), E> {
        let piece = std::mem::take(&mut self.buffer);
        self.buffer.reserve(piece.len().min(self.piece_len));
        (self.sink)(piece)
    }
}

fn to_usize(len: u64) -> Result<usize, FormatError> {
    usize::try_from(len).map_err(|_| FormatError::Invalid {
        what: WHAT,
        reason: "it does not fit in memory",
    })
}

impl std::fmt::Debug for FinishedCue<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FinishedCue").field("header", &self.header).finish()
    }
}
