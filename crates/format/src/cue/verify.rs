//! The whole check of a cue's values.

use super::builder::ENTRY_OFFSET_MIN;
use super::{Base, Cue, Link, Links, lookup};
use crate::Result;
use crate::error::malformed;
use cuesta_git::ObjectKind;
use std::ops::Range;

const ENTRIES: &str = "cue entries";
const LOOKUP: &str = "cue lookup";
const SEGMENTS: &str = "cue segments";
const ROOTS: &str = "cue roots";

impl Cue {
    /// Checks every value: that indices lead where they must, orders hold, runs follow one another, deltas do not go
    /// round in circles. Linear in the cue; takes four bytes of memory for each entry.
    ///
    /// It does not look at the pack: that entries are where the cue says is for the reader of the pack to check.
    pub fn verify(&self) -> Result<()> {
        self.verify_offsets()?;
        self.verify_bases()?;
        self.verify_lookup()?;
        self.verify_filter()?;
        self.verify_segments()?;
        self.verify_roots()
    }

    fn verify_offsets(&self) -> Result<()> {
        if self.entries.offset(0) < ENTRY_OFFSET_MIN {
            return malformed(ENTRIES, "the first entry starts inside the pack's header");
        }
        for entry in 0..self.entries.len() {
            if self.entries.offset(entry) >= self.entries.offset(entry + 1) {
                return malformed(ENTRIES, "offsets do not ascend");
            }
        }
        if !self.entries.parts_meet() {
            return malformed(ENTRIES, "the blobs do not start where the trees end");
        }
        Ok(())
    }

    fn verify_bases(&self) -> Result<()> {
        let mut external = false;
        for entry in 0..self.entries.len() {
            let fits = match self.entries.base(entry) {
                Base::None => true,
                Base::Entry(base) => base < self.entries.len() && self.entries.kind(base) == self.entries.kind(entry),
                Base::External(index) => {
                    external = true;
                    index < self.externals.len()
                }
            };
            if !fits {
                return malformed(ENTRIES, "a delta's base is not an entry of its kind, nor an external");
            }
        }
        if external == self.header.self_contained {
            return malformed(ENTRIES, "the flag self-contained does not fit the delta bases");
        }
        self.verify_delta_chains()
    }

    /// Follows each chain until it ends or meets an entry walked before; meeting one of the same walk is a circle.
    fn verify_delta_chains(&self) -> Result<()> {
        let mut walked_by = vec![u32::MAX; self.entries.len() as usize];
        for start in 0..self.entries.len() {
            let mut entry = start;
            while let Some(mark) = walked_by.get_mut(entry as usize).filter(|mark| **mark == u32::MAX) {
                *mark = start;
                match self.entries.base(entry) {
                    Base::Entry(base) => entry = base,
                    Base::None | Base::External(_) => break,
                }
                if walked_by.get(entry as usize) == Some(&start) {
                    return malformed(ENTRIES, "a chain of deltas is a circle");
                }
            }
        }
        Ok(())
    }

    fn verify_lookup(&self) -> Result<()> {
        let [structure, blobs] = self.parts();
        for part in [structure, blobs] {
            for rank in part.clone() {
                if rank + 1 < part.end && self.lookup.oid(rank) >= self.lookup.oid(rank + 1) {
                    return malformed(LOOKUP, "oids do not ascend");
                }
                let entry = self.lookup.entry(rank);
                if !part.contains(&entry) || self.entries.rank(entry) != rank {
                    return malformed(LOOKUP, "ranks and entries do not mirror each other");
                }
            }
        }
        self.verify_apart()?;
        self.verify_fanout()
    }

    /// The entries, and as well the ranks, of the structure's sections and of the blobs'.
    fn parts(&self) -> [Range<u32>; 2] {
        let first_blob = self.header.structure_entries();
        [0..first_blob, first_blob..self.lookup.len()]
    }

    /// Nothing is both a blob and something else.
    fn verify_apart(&self) -> Result<()> {
        let mut last = None;
        for rank in self.lookup.ascending(0) {
            let oid = self.lookup.oid(rank);
            if last.replace(oid) == Some(oid) {
                return malformed(LOOKUP, "an object comes twice");
            }
        }
        Ok(())
    }

    fn verify_fanout(&self) -> Result<()> {
        for (of_blobs, (part, bits)) in [false, true]
            .into_iter()
            .zip(self.parts().into_iter().zip(self.header.fanout_bits()))
        {
            let mut rank = part.start;
            let slots = lookup::fanout_slots(part.end - part.start);
            for slot in 0..usize::try_from(slots).unwrap_or(0) {
                while rank < part.end && lookup::fanout_slot(self.lookup.oid(rank).as_bytes(), bits) == slot {
                    rank += 1;
                }
                if self.lookup.fanout(of_blobs, slot) != Some(rank - part.start) {
                    return malformed(LOOKUP, "the fan-out does not count the oids");
                }
            }
        }
        Ok(())
    }

    fn verify_filter(&self) -> Result<()> {
        for (part, filter) in self.parts().into_iter().zip([&self.filter, &self.blob_filter]) {
            let Some(filter) = filter else { continue };
            if !part.clone().all(|rank| filter.may_contain(&self.lookup.oid(rank))) {
                return malformed("cue filter", "it denies an oid of the layer");
            }
        }
        Ok(())
    }

    fn verify_segments(&self) -> Result<()> {
        let counts = &self.header.counts;
        let (mut trees_end, mut blobs_end) = (counts.tree_entries().start, counts.blob_entries().start);
        let (mut parents, mut links) = (0, 0);
        for segment in 0..self.segments.len() {
            let (trees, blobs) = (self.segments.trees(segment), self.segments.blobs(segment));
            if trees.start != trees_end || blobs.start != blobs_end {
                return malformed(SEGMENTS, "a run does not start where the one before ends");
            }
            (trees_end, blobs_end) = (trees.end, blobs.end);
            self.verify_parents(segment)?;
            self.verify_links(SEGMENTS, self.segments.links(segment), trees, blobs)?;
            parents += self.segments.parents(segment).len();
            links += self.segments.links(segment).len();
        }
        if parents != counts.parents as usize || links != counts.links as usize {
            return malformed(SEGMENTS, "parents or links are not used once each");
        }
        Ok(())
    }

    fn verify_parents(&self, segment: u32) -> Result<()> {
        let generation = self.segments.generation(segment);
        if generation == 0 {
            return malformed(SEGMENTS, "a generation is zero");
        }
        for parent in self.segments.parents(segment) {
            match parent {
                Link::Local(parent) if parent >= segment => {
                    return malformed(SEGMENTS, "a parent does not come before its child");
                }
                Link::Local(parent) if self.segments.generation(parent) >= generation => {
                    return malformed(SEGMENTS, "a generation is not above a parent's");
                }
                Link::External(external) if external >= self.externals.len() => {
                    return malformed(SEGMENTS, "a parent leads nowhere");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn verify_links(
        &self,
        what: &'static str,
        mut links: Links<'_>,
        trees: Range<u32>,
        blobs: Range<u32>,
    ) -> Result<()> {
        let counts = &self.header.counts;
        let (first, end) = (counts.tree_entries().start, counts.blob_entries().end);
        let fits = |link| match link {
            Link::Local(entry) => (first..end).contains(&entry) && !trees.contains(&entry) && !blobs.contains(&entry),
            Link::External(external) => external < self.externals.len(),
        };
        if links.all(fits) {
            Ok(())
        } else {
            malformed(what, "a link leads nowhere, or into its own run")
        }
    }

    fn verify_roots(&self) -> Result<()> {
        let counts = &self.header.counts;
        let last = self.segments.len().checked_sub(1);
        let mut trees_end = last.map_or(counts.tree_entries().start, |last| self.segments.trees(last).end);
        let mut blobs_end = last.map_or(counts.blob_entries().start, |last| self.segments.blobs(last).end);
        let mut links = 0;
        for root in 0..self.roots.len() {
            let (trees, blobs) = (self.roots.trees(root), self.roots.blobs(root));
            if trees.start != trees_end || blobs.start != blobs_end {
                return malformed(ROOTS, "a run does not start where the one before ends");
            }
            (trees_end, blobs_end) = (trees.end, blobs.end);
            if !matches!(self.roots.stored_kind(root), Some(ObjectKind::Tree | ObjectKind::Blob)) {
                return malformed(ROOTS, "a root is neither a tree nor a blob");
            }
            self.verify_links(ROOTS, self.roots.links(root), trees, blobs)?;
            links += self.roots.links(root).len();
        }
        if links != counts.root_links as usize {
            return malformed(ROOTS, "links are not used once each");
        }
        match counts.tag_entries().all(|tag| self.roots.tag_target(tag).is_some()) {
            true => Ok(()),
            false => malformed(ROOTS, "a tag's target is of no kind"),
        }
    }
}
