//! The layer of a push: its entries in segment order, their zlib streams as they were sent.

use super::contents::Contents;
use super::cut::{Cut, Set};
use super::entries::{Entries, Index, Stored};
use super::error::IntakeError;
use super::inspect::{CommitRow, TagRow};
use super::known::Known;
use super::large;
use super::options::ReceiveOptions;
use super::order::{Order, Parent};
use super::source::EntrySource;
use super::spool::Spool;
use crate::layer_builder::{Built, Chunk, LayerBuilder, LayerSink, NewBase, NewEntry};
use cuesta_format::{EntryFacts, FormatError, Link, SegmentRow};
use cuesta_git::zlib::{Deflater, StreamDeflater};
use cuesta_git::{ObjectId, ObjectKind};

/// Bytes of contents kept while entries are stored whole; few are.
const CONTENT_BYTES_MAX: usize = 16 << 20;
/// As git's default.
const DEFLATE_LEVEL: u32 = 6;
/// Marks entries that are not in the layer.
const ABSENT: u32 = u32::MAX;

/// What a layer is built from.
pub(crate) struct Material<'a> {
    pub(crate) spool: &'a Spool,
    pub(crate) entries: &'a Entries,
    pub(crate) index: &'a Index,
    pub(crate) rows: &'a [CommitRow],
    pub(crate) known: &'a dyn Known,
    pub(crate) limits: &'a ReceiveOptions,
}

/// A sink that knows why it failed in the intake's terms.
pub(crate) type Chunks<'a> = &'a mut dyn FnMut(Chunk) -> Result<(), IntakeError>;

/// Gives chunks to a function.
pub(crate) struct ChunkSink<'a>(pub(crate) Chunks<'a>);

impl LayerSink for ChunkSink<'_> {
    type Error = IntakeError;

    fn write(&mut self, chunk: Chunk) -> Result<(), IntakeError> {
        (self.0)(chunk)
    }
}

impl From<FormatError> for IntakeError {
    fn from(error: FormatError) -> Self {
        Self::Layer(error)
    }
}

/// Builds the layer of everything that was cut. Bytes of the pack go to `chunks` once there are `chunk_len` of them.
pub(crate) fn build(
    material: &Material<'_>,
    order: &Order,
    cut: &Cut,
    tags: &[TagRow],
    chunk_len: usize,
    chunks: Chunks<'_>,
) -> Result<Built, IntakeError> {
    let commits: Vec<u32> = order
        .commits
        .iter()
        .filter_map(|commit| row(material.rows, commit.row))
        .collect();
    let tag_entries: Vec<u32> = tags.iter().map(|tag| tag.entry).collect();
    let clusters = [commits.as_slice(), &tag_entries, &cut.trees, &cut.blobs];
    let mut writer = Writer::new(material, &clusters, chunk_len, chunks)?;
    writer.layer.cue().reserve_segments(cut.segments.len());
    for external in &cut.externals {
        writer.layer.cue().external(external)?;
    }
    writer.entries(&clusters)?;
    writer.segments(order, cut)?;
    writer.roots(order, cut)?;
    for tag in tags {
        writer.layer.cue().tag_target(&tag.target, tag.target_kind)?;
    }
    writer.finish(&clusters)
}

/// Builds the layer of all objects that nothing reaches: kept, but vouching for nothing.
pub(crate) fn build_unreachable(
    material: &Material<'_>,
    reached: &[u32],
    tags: &[TagRow],
    chunk_len: usize,
    chunks: Chunks<'_>,
) -> Result<Option<Built>, IntakeError> {
    let entries = material.entries;
    let mut is_reached = vec![false; entries.len() as usize];
    for entry in reached {
        if let Some(slot) = is_reached.get_mut(*entry as usize) {
            *slot = true;
        }
    }
    let left = |kind: ObjectKind| -> Vec<u32> {
        let all = (0..entries.len()).filter(|entry| entries.kind(*entry) == Some(kind));
        let left = all.filter(|entry| is_reached.get(*entry as usize) == Some(&false) && !entries.is_known(*entry));
        left.filter(|entry| material.index.find(entries, &entries.oid(*entry)) == Some(*entry))
            .collect()
    };
    let (commits, tag_entries) = (left(ObjectKind::Commit), left(ObjectKind::Tag));
    let (trees, blobs) = (left(ObjectKind::Tree), left(ObjectKind::Blob));
    let clusters = [commits.as_slice(), &tag_entries, &trees, &blobs];
    if clusters.iter().all(|cluster| cluster.is_empty()) {
        return Ok(None);
    }
    let mut writer = Writer::new(material, &clusters, chunk_len, chunks)?;
    writer.layer.unreachable();
    writer.entries(&clusters)?;
    for entry in &tag_entries {
        let tag = tags
            .iter()
            .find(|tag| tag.entry == *entry)
            .ok_or(IntakeError::Internal("a tag without row"))?;
        writer.layer.cue().tag_target(&tag.target, tag.target_kind)?;
    }
    writer.finish(&clusters).map(Some)
}

fn row(rows: &[CommitRow], row: u32) -> Option<u32> {
    rows.get(row as usize).map(|row| row.entry)
}

struct Writer<'a, 'c> {
    material: &'a Material<'a>,
    layer: LayerBuilder<ChunkSink<'c>>,
    source: EntrySource<'a>,
    /// Made when the first delta has lost its base.
    contents: Option<(Contents<'a>, Deflater)>,
    /// The place in the layer of each entry of the push, or [`ABSENT`].
    places: Vec<u32>,
}

impl<'a, 'c> Writer<'a, 'c> {
    fn new(
        material: &'a Material<'a>,
        clusters: &[&[u32]],
        chunk_len: usize,
        chunks: Chunks<'c>,
    ) -> Result<Self, IntakeError> {
        let mut places = vec![ABSENT; material.entries.len() as usize];
        let mut objects = 0;
        for entry in clusters.iter().flat_map(|cluster| cluster.iter()) {
            let place = places.get_mut(*entry as usize).filter(|place| **place == ABSENT);
            *place.ok_or(IntakeError::Internal("an entry has two places in the layer"))? = objects;
            objects += 1;
        }
        let buffer_len = usize::try_from(material.spool.len())
            .unwrap_or(chunk_len)
            .saturating_add(256);
        let format = material.entries.format();
        Ok(Self {
            material,
            layer: LayerBuilder::new(format, objects, chunk_len, buffer_len, ChunkSink(chunks)),
            source: EntrySource::new(material.spool, material.entries),
            contents: None,
            places,
        })
    }

    fn finish(self, clusters: &[&[u32]; 4]) -> Result<Built, IntakeError> {
        let (layer, entries) = (self.layer, self.material.entries);
        // Not needed any more, and as large as what is to come.
        drop((self.places, self.contents, self.source));
        Ok(layer.finish(&Facts { entries, clusters }, None)?.0)
    }

    fn place(&self, entry: u32) -> Option<u32> {
        self.places
            .get(entry as usize)
            .copied()
            .filter(|place| *place != ABSENT)
    }

    fn entries(&mut self, clusters: &[&[u32]]) -> Result<(), IntakeError> {
        clusters
            .iter()
            .flat_map(|cluster| cluster.iter())
            .try_for_each(|entry| self.entry(*entry))
    }

    fn entry(&mut self, entry: u32) -> Result<(), IntakeError> {
        let entries = self.material.entries;
        let base = match entries.stored(entry) {
            Stored::Whole => NewBase::None,
            Stored::Named(number) => NewBase::External(entries.named_base(number)),
            // Of several entries with one id only the first has a place. What was based on another is stored whole: based
            // on the first it might be based on itself in the end.
            Stored::Delta(base) => match self.place(base) {
                Some(place) => NewBase::Entry(place, entries.oid(base)),
                None if entries.is_known(base) => NewBase::External(entries.oid(base)),
                None => return self.whole(entry),
            },
        };
        let new = NewEntry {
            own_size: self.source.own_size(entry)?,
            base,
            ..described(entries, entry)?
        };
        self.layer.entry(&new)?;
        let layer = &mut self.layer;
        self.source.stream(entry, |bytes| layer.stream(bytes))
    }

    /// Stores whole what was a delta.
    fn whole(&mut self, entry: u32) -> Result<(), IntakeError> {
        let Material {
            spool, entries, known, ..
        } = *self.material;
        if entries.kind(entry) == Some(ObjectKind::Blob) && large::has_large(entries, entry, self.material.limits) {
            return self.large(entry);
        }
        let (contents, deflater) = self.contents.get_or_insert_with(|| {
            (
                Contents::new(spool, entries, known, CONTENT_BYTES_MAX),
                Deflater::new(DEFLATE_LEVEL),
            )
        });
        let content = contents.content(entry)?;
        let mut stream = Vec::new();
        let deflated = deflater.deflate(&content, &mut stream);
        deflated.map_err(|_| IntakeError::Internal("deflating failed"))?;
        self.layer.entry(&described(entries, entry)?)?;
        self.layer.stream(&stream)
    }

    /// The same for a blob that memory need not hold.
    fn large(&mut self, entry: u32) -> Result<(), IntakeError> {
        let Material {
            entries, known, limits, ..
        } = *self.material;
        let content = large::content(&mut self.source, known, entry, limits)?;
        self.layer.entry(&described(entries, entry)?)?;
        let (mut deflater, mut stream) = (StreamDeflater::new(DEFLATE_LEVEL), Vec::new());
        let failed = |_| IntakeError::Internal("deflating failed");
        content.by_ref().pieces(|piece| {
            deflater.deflate(piece, &mut stream).map_err(failed)?;
            self.layer.stream(&stream)?;
            stream.clear();
            Ok(())
        })?;
        deflater.finish(&mut stream).map_err(failed)?;
        self.layer.stream(&stream)
    }

    fn segments(&mut self, order: &Order, cut: &Cut) -> Result<(), IntakeError> {
        let mut before = Set::default();
        for (place, set) in cut.segments.iter().enumerate() {
            let commit = order
                .commits
                .get(place)
                .ok_or(IntakeError::Internal("a segment without commit"))?;
            let row = self.material.rows.get(commit.row as usize);
            let row = row.ok_or(IntakeError::Internal("a commit without row"))?;
            let segment = SegmentRow {
                generation: cut.generations.get(place).copied().unwrap_or(1),
                commit_time: row.commit.committer_time,
                root_tree: row.commit.tree,
                trees: set.trees_end - before.trees_end,
                blobs: set.blobs_end - before.blobs_end,
            };
            let parents = self.parents(order, place)?;
            let links = self.links(cut, before, *set)?;
            self.layer.segment(segment, parents, links)?;
            before = *set;
        }
        Ok(())
    }

    fn parents(&mut self, order: &Order, place: usize) -> Result<Vec<Link>, IntakeError> {
        let mut links = Vec::new();
        for parent in order.parents(place) {
            links.push(match parent {
                Parent::New(place) => Link::Local(*place),
                Parent::Outside(index) => {
                    let outside = order.outside.get(*index as usize);
                    let (oid, _) = outside.ok_or(IntakeError::Internal("a parent without id"))?;
                    Link::External(self.layer.cue().external(oid)?)
                }
            });
        }
        Ok(links)
    }

    fn links(&self, cut: &Cut, before: Set, set: Set) -> Result<Vec<Link>, IntakeError> {
        let range = before.links_end as usize..set.links_end as usize;
        let links = cut.links.get(range).unwrap_or_default().iter();
        links
            .map(|link| match link {
                Link::External(external) => Ok(Link::External(*external)),
                Link::Local(entry) => self
                    .place(*entry)
                    .map(Link::Local)
                    .ok_or(IntakeError::Internal("a link leads out of the layer")),
            })
            .collect()
    }

    fn roots(&mut self, order: &Order, cut: &Cut) -> Result<(), IntakeError> {
        debug_assert_eq!(order.commits.len(), cut.segments.len());
        let mut before = cut.segments.last().copied().unwrap_or_default();
        for (oid, kind, set) in &cut.roots {
            let links = self.links(cut, before, *set)?;
            let (trees, blobs) = (set.trees_end - before.trees_end, set.blobs_end - before.blobs_end);
            self.layer.cue().root(oid, *kind, trees, blobs, links)?;
            before = *set;
        }
        Ok(())
    }
}

/// Ids and sizes by place: clusters of entries of the push, one after the other.
struct Facts<'a> {
    entries: &'a Entries,
    clusters: &'a [&'a [u32]; 4],
}

impl Facts<'_> {
    fn entry(&self, place: u32) -> u32 {
        let mut place = place as usize;
        for cluster in self.clusters {
            match cluster.get(place) {
                Some(entry) => return *entry,
                None => place -= cluster.len(),
            }
        }
        ABSENT
    }
}

impl EntryFacts for Facts<'_> {
    fn oid(&self, place: u32) -> ObjectId {
        self.entries.oid(self.entry(place))
    }

    fn size(&self, place: u32) -> u64 {
        self.entries.size(self.entry(place))
    }
}

/// A whole entry of the layer for an entry of the push.
fn described(entries: &Entries, entry: u32) -> Result<NewEntry, IntakeError> {
    let kind = entries
        .kind(entry)
        .ok_or(IntakeError::Internal("an entry is not resolved"))?;
    let size = entries.size(entry);
    Ok(NewEntry {
        oid: entries.oid(entry),
        kind,
        size,
        own_size: size,
        base: NewBase::None,
    })
}
