//! Makes cues. The builder takes what a layer holds in pack order and refuses what breaks the order's rules.

use super::finished::{EntryFacts, Facts, FinishedCue};
use super::{Base, CueCounts, INDEX_COUNT_MAX, Link};
use crate::error::invalid;
use crate::{FormatError, Result};
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind};
use hashbrown::HashTable;

const WHAT: &str = "cue";
/// A pack's header ends here, so no entry starts earlier (gitformat-pack).
pub(super) const ENTRY_OFFSET_MIN: u64 = 12;
/// Up to so many externals are found by looking at each; a map would cost more.
const EXTERNALS_SCANNED_MAX: usize = 16;

/// Collects the columns of a cue.
///
/// Entries come in pack order: commits (those with segments first, parents before children), tags, trees, blobs. The
/// trees of the first segment come first among the trees, then those of the second, and so on; after the last segment's
/// come those of the root sets; blobs likewise. Trees and blobs left over belong to no set.
#[derive(Clone, Debug)]
pub struct CueBuilder {
    pub(super) format: ObjectFormat,
    pub(super) unreachable: bool,
    pub(super) counts: CueCounts,
    /// Ids back to back and sizes of the entries; empty where the caller has them.
    pub(super) oids: Vec<u8>,
    pub(super) sizes: Vec<u64>,
    facts_are_lent: bool,
    pub(super) offsets: Vec<u64>,
    pub(super) bases: Vec<u32>,
    pub(super) segments: SegmentColumns,
    pub(super) segment_runs: Runs,
    pub(super) parent_ends: Vec<u32>,
    pub(super) parents: Vec<u32>,
    pub(super) roots: Vec<(ObjectId, ObjectKind)>,
    pub(super) root_runs: Runs,
    pub(super) tag_targets: Vec<(ObjectId, ObjectKind)>,
    pub(super) externals: ExternalColumn,
}

/// What a segment says beside its parents and links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentRow {
    /// One more than the highest generation among the parents; 1 where there are none.
    pub generation: u32,
    /// The committer's time, in seconds since the Unix epoch.
    pub commit_time: i64,
    /// The tree of the commit.
    pub root_tree: ObjectId,
    /// How many tree entries the commit adds: the next so many.
    pub trees: u32,
    /// How many blob entries the commit adds: the next so many.
    pub blobs: u32,
}

/// What segments say beside their runs, parents and links.
#[derive(Clone, Debug, Default)]
pub(super) struct SegmentColumns {
    pub(super) commit_times: Vec<i64>,
    pub(super) generations: Vec<u32>,
    /// Ids back to back.
    pub(super) root_trees: Vec<u8>,
}

/// Ids of objects of other layers, back to back, each once; with a table once they are many.
#[derive(Clone, Debug, Default)]
pub(super) struct ExternalColumn {
    pub(super) oids: Vec<u8>,
    table: HashTable<u32>,
}

impl ExternalColumn {
    fn len(&self, width: usize) -> usize {
        self.oids.len() / width
    }

    fn find(&self, oid: &ObjectId) -> Option<u32> {
        let wanted = oid.as_bytes();
        if self.table.is_empty() {
            let position = self.oids.chunks(wanted.len()).position(|external| external == wanted);
            return position.and_then(|position| u32::try_from(position).ok());
        }
        let is_it = |index: &u32| external(&self.oids, wanted.len(), *index) == wanted;
        self.table.find(spread(wanted), is_it).copied()
    }

    fn push(&mut self, oid: &ObjectId, index: u32) {
        let width = oid.as_bytes().len();
        self.oids.extend_from_slice(oid.as_bytes());
        if self.len(width) <= EXTERNALS_SCANNED_MAX {
            return;
        }
        let Self { oids, table } = self;
        let hash = |index: &u32| spread(external(oids, width, *index));
        // The first time for all that were found without it.
        let first = if table.is_empty() { 0 } else { index };
        for index in first..=index {
            table.insert_unique(hash(&index), index, hash);
        }
    }
}

fn external(oids: &[u8], width: usize, index: u32) -> &[u8] {
    let start = index as usize * width;
    oids.get(start..start + width).unwrap_or_default()
}

/// Ids are spread already.
fn spread(oid: &[u8]) -> u64 {
    oid.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The runs and links of segments or root sets: running totals of trees, blobs and links after each.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    pub(super) ends: Vec<[u32; 3]>,
    pub(super) links: Vec<u32>,
}

impl CueBuilder {
    /// An empty cue.
    pub fn new(format: ObjectFormat) -> Self {
        Self::with_capacity(format, 0)
    }

    /// An empty cue with room for that many entries.
    pub fn with_capacity(format: ObjectFormat, entries: usize) -> Self {
        Self {
            oids: Vec::with_capacity(entries * format.width()),
            sizes: Vec::with_capacity(entries),
            facts_are_lent: false,
            ..Self::with_lent_facts(format, entries)
        }
    }

    /// An empty cue that remembers neither ids nor sizes of its entries: the caller has them, and lends them to
    /// [`CueBuilder::finish_with`]. So it takes 12 bytes an entry.
    pub fn with_lent_facts(format: ObjectFormat, entries: usize) -> Self {
        Self {
            format,
            unreachable: false,
            counts: CueCounts::default(),
            oids: Vec::new(),
            sizes: Vec::new(),
            facts_are_lent: true,
            offsets: Vec::with_capacity(entries + 1),
            bases: Vec::with_capacity(entries),
            segments: SegmentColumns::default(),
            segment_runs: Runs::default(),
            parent_ends: Vec::new(),
            parents: Vec::new(),
            roots: Vec::new(),
            root_runs: Runs::default(),
            tag_targets: Vec::new(),
            externals: ExternalColumn::default(),
        }
    }

    /// Makes room for so many segments, of a parent each: 48 bytes each, or 60 in a sha256 layer.
    pub fn reserve_segments(&mut self, segments: usize) {
        self.segments.commit_times.reserve_exact(segments);
        self.segments.generations.reserve_exact(segments);
        self.segments.root_trees.reserve_exact(segments * self.format.width());
        self.segment_runs.ends.reserve_exact(segments);
        self.parent_ends.reserve_exact(segments);
        self.parents.reserve(segments);
    }

    /// Marks the layer as one whose objects' closures were not checked.
    pub fn unreachable(&mut self) {
        self.unreachable = true;
    }

    /// Adds the next entry of the pack and returns its index. `offset` is where it starts, `size` that of the object
    /// itself, both in bytes.
    pub fn entry(&mut self, oid: &ObjectId, kind: ObjectKind, offset: u64, size: u64, base: Base) -> Result<u32> {
        let index = next_index("cue entries", self.bases.len())?;
        let CueCounts { tags, trees, blobs, .. } = self.counts;
        let (count, later) = match kind {
            ObjectKind::Commit => (&mut self.counts.commits, tags | trees | blobs),
            ObjectKind::Tag => (&mut self.counts.tags, trees | blobs),
            ObjectKind::Tree => (&mut self.counts.trees, blobs),
            ObjectKind::Blob => (&mut self.counts.blobs, 0),
        };
        if later != 0 {
            return invalid(WHAT, "entries are not in the order commits, tags, trees, blobs");
        }
        if oid.format() != self.format {
            return invalid(WHAT, "an entry's oid is of the other object format");
        }
        *count += 1;
        if !self.facts_are_lent {
            self.oids.extend_from_slice(oid.as_bytes());
            self.sizes.push(size);
        }
        self.offsets.push(offset);
        self.bases.push(base.encode());
        Ok(index)
    }

    /// Where an entry that was added starts in the pack.
    #[inline]
    pub fn offset(&self, entry: u32) -> Option<u64> {
        self.offsets.get(entry as usize).copied()
    }

    /// How many entries were added.
    pub fn entries(&self) -> u32 {
        self.counts.entries()
    }

    /// Adds the segment of the next commit and returns its index.
    pub fn segment(
        &mut self,
        row: SegmentRow,
        parents: impl IntoIterator<Item = Link>,
        links: impl IntoIterator<Item = Link>,
    ) -> Result<u32> {
        let index = next_index("cue segments", self.segments.generations.len())?;
        if row.root_tree.format() != self.format {
            return invalid(WHAT, "a root tree is of the other object format");
        }
        self.segment_runs.push(row.trees, row.blobs, links)?;
        self.parents.extend(parents.into_iter().map(Link::encode));
        self.parent_ends.push(next_index("cue parents", self.parents.len())?);
        self.segments.commit_times.push(row.commit_time);
        self.segments.generations.push(row.generation);
        self.segments.root_trees.extend_from_slice(row.root_tree.as_bytes());
        Ok(index)
    }

    /// Adds a root set: a tree or blob that a ref or tag points at, with the next so many tree and blob entries.
    pub fn root(
        &mut self,
        oid: &ObjectId,
        kind: ObjectKind,
        trees: u32,
        blobs: u32,
        links: impl IntoIterator<Item = Link>,
    ) -> Result<u32> {
        let index = next_index("cue roots", self.roots.len())?;
        if !matches!(kind, ObjectKind::Tree | ObjectKind::Blob) || oid.format() != self.format {
            return invalid(WHAT, "a root is no tree or blob of the layer's object format");
        }
        self.root_runs.push(trees, blobs, links)?;
        self.roots.push((*oid, kind));
        Ok(index)
    }

    /// Says what the next tag entry points at; needed once for each tag.
    pub fn tag_target(&mut self, oid: &ObjectId, kind: ObjectKind) -> Result<()> {
        if oid.format() != self.format {
            return invalid(WHAT, "a tag's target is of the other object format");
        }
        self.tag_targets.push((*oid, kind));
        Ok(())
    }

    /// The index of an object of another layer, which is added where it is new.
    pub fn external(&mut self, oid: &ObjectId) -> Result<u32> {
        if oid.format() != self.format {
            return invalid(WHAT, "an external is of the other object format");
        }
        if let Some(index) = self.externals.find(oid) {
            return Ok(index);
        }
        let new = next_index("cue externals", self.externals.len(self.format.width()))?;
        self.externals.push(oid, new);
        Ok(new)
    }

    /// The bytes of the cue. `entries_end` is where the last entry of the pack ends and its trailer starts.
    ///
    /// Fails where an index leads nowhere, offsets do not ascend, an oid comes twice, runs hold more than there is, or a
    /// limit is exceeded ([`INDEX_COUNT_MAX`]).
    pub fn encode(self, entries_end: u64) -> Result<Vec<u8>> {
        self.finish(entries_end)?.into_bytes()
    }

    /// Checks everything, as [`CueBuilder::encode`] does, and leaves the bytes to be written piece by piece.
    pub fn finish(mut self, entries_end: u64) -> Result<FinishedCue<'static>> {
        self.check(entries_end)?;
        FinishedCue::new(self, Facts::Own, None)
    }

    /// As [`CueBuilder::finish`], with the caller's ids and sizes. `order` is that of the entries by their oids, if the
    /// caller knows it.
    pub fn finish_with(
        mut self,
        entries_end: u64,
        facts: &dyn EntryFacts,
        order: Option<Vec<u32>>,
    ) -> Result<FinishedCue<'_>> {
        self.check(entries_end)?;
        FinishedCue::new(self, Facts::Lent(facts), order)
    }

    fn check(&mut self, entries_end: u64) -> Result<()> {
        self.offsets.push(entries_end);
        self.complete_counts()?;
        self.check_entries()?;
        self.check_sets()
    }

    fn complete_counts(&mut self) -> Result<()> {
        self.counts.segments = next_index("cue segments", self.segments.generations.len())?;
        self.counts.parents = next_index("cue parents", self.parents.len())?;
        self.counts.links = next_index("cue links", self.segment_runs.links.len())?;
        self.counts.roots = next_index("cue roots", self.roots.len())?;
        self.counts.root_links = next_index("cue root links", self.root_runs.links.len())?;
        self.counts.externals = next_index("cue externals", self.externals.len(self.format.width()))?;
        if self.counts.segments > self.counts.commits {
            return invalid(WHAT, "there are more segments than commits");
        }
        if self.tag_targets.len() != self.counts.tags as usize {
            return invalid(WHAT, "there are not as many tag targets as tags");
        }
        Ok(())
    }

    fn check_entries(&self) -> Result<()> {
        let ascending = self.offsets.is_sorted_by(|left, right| left < right);
        if !ascending || self.offsets.first().is_some_and(|first| *first < ENTRY_OFFSET_MIN) {
            return invalid(WHAT, "entries' offsets do not ascend from the end of the pack's header");
        }
        let CueCounts { externals, .. } = self.counts;
        for (entry, base) in (0u32..).zip(&self.bases) {
            let fits = match Base::decode(*base) {
                Base::None => true,
                Base::Entry(base) => {
                    base != entry && base < self.counts.entries() && self.counts.kind(base) == self.counts.kind(entry)
                }
                Base::External(external) => external < externals,
            };
            if !fits {
                return invalid(WHAT, "a delta's base is not another entry of its kind, nor an external");
            }
        }
        Ok(())
    }

    fn check_sets(&self) -> Result<()> {
        let [segment_trees, segment_blobs, _] = self.segment_runs.end();
        let [root_trees, root_blobs, _] = self.root_runs.end();
        let trees_fit = segment_trees.saturating_add(root_trees) <= self.counts.trees;
        if !trees_fit || segment_blobs.saturating_add(root_blobs) > self.counts.blobs {
            return invalid(WHAT, "segments and root sets claim more trees or blobs than there are");
        }
        let CueCounts { externals, .. } = self.counts;
        let (trees, blobs) = (self.counts.tree_entries(), self.counts.blob_entries());
        let link_fits = |link: &u32| match Link::decode(*link) {
            Link::Local(entry) => trees.contains(&entry) || blobs.contains(&entry),
            Link::External(external) => external < externals,
        };
        if !self
            .segment_runs
            .links
            .iter()
            .chain(&self.root_runs.links)
            .all(link_fits)
        {
            return invalid(WHAT, "a link names neither a tree, a blob nor an external");
        }
        let mut start = 0;
        for (segment, end) in (0u32..).zip(&self.parent_ends) {
            let parent_fits = |parent: &u32| match Link::decode(*parent) {
                Link::Local(parent) => parent < segment,
                Link::External(external) => external < externals,
            };
            if !self
                .parents
                .get(start..*end as usize)
                .unwrap_or_default()
                .iter()
                .all(parent_fits)
            {
                return invalid(WHAT, "a parent is neither an earlier segment nor an external");
            }
            start = *end as usize;
        }
        Ok(())
    }
}

impl Runs {
    /// Totals saturate: `check_sets` then finds more claimed than there is.
    fn push(&mut self, trees: u32, blobs: u32, links: impl IntoIterator<Item = Link>) -> Result<()> {
        self.links.extend(links.into_iter().map(Link::encode));
        let links = next_index("cue links", self.links.len())?;
        let [trees_before, blobs_before, _] = self.end();
        self.ends.push([
            trees_before.saturating_add(trees),
            blobs_before.saturating_add(blobs),
            links,
        ]);
        Ok(())
    }

    pub(super) fn end(&self) -> [u32; 3] {
        self.ends.last().copied().unwrap_or_default()
    }
}

/// `len` as an index, if that many fit a cue.
fn next_index(what: &'static str, len: usize) -> Result<u32> {
    let index = u32::try_from(len).ok().filter(|index| *index < INDEX_COUNT_MAX);
    index.ok_or(FormatError::Limit {
        what,
        max: INDEX_COUNT_MAX.into(),
        got: len as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_stop_at_the_limit() {
        let max = INDEX_COUNT_MAX as usize;
        assert_eq!(next_index("entries", max - 1), Ok(INDEX_COUNT_MAX - 1));
        for over in [max, max + 1, usize::MAX] {
            assert!(
                matches!(next_index("entries", over), Err(FormatError::Limit { .. })),
                "{over}"
            );
        }
    }
}
