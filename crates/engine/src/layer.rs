//! One layer: its cue, loaded section by section when first needed, and ranged reads of its pack.

use crate::EngineError;
use crate::graph::{Dates, Slot};
use crate::sweep::GapBounds;
use bytes::Bytes;
use cuesta_format::{
    CueCounts, CueHeader, Entries, Externals, Filter, FormatError, LayerId, LayerMeta, LayerPlace, LogId, Lookup,
    Roots, SectionKind, Segments, layer_cue_key, layer_pack_key,
};
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind};
use cuesta_ledger::LayerRecord;
use cuesta_store::{Access, BlockCache};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::OnceCell;

/// How far apart two ranges of a pack may lie that are read as one. Where a read is a request, the round trip decides.
const REMOTE_GAPS: GapBounds = GapBounds {
    bytes_min: 16 << 10,
    bytes_max: 16 << 10,
};
/// Where it is a system call: a page, or less.
const LOCAL_GAPS: GapBounds = GapBounds {
    bytes_min: 1 << 10,
    bytes_max: 4 << 10,
};

/// To know whether the repository has a blob, no more bytes of a filter than this are loaded for each blob that a push brings:
/// stored twice it would cost about its size.
const FILTER_BYTES_PER_BLOB: u64 = 4 << 10;
/// If the filter lets more than this many of them pass, and more than one in `PASSING_SHARE`, the index of blobs is loaded.
const PASSING_BLOBS_MAX: usize = 64;
const PASSING_SHARE: usize = 16;

/// Bytes of a cue that one request brings when all of it is wanted: small, since one stream from an object store is slow.
const CUE_FETCH_BYTES: usize = 2 << 20;
/// Bytes of a cue that are asked for before its header is known: no more than a small cache holds.
const CUE_AHEAD_BYTES_MAX: u64 = 64 << 20;

/// A layer of a repository. Shared by all views that have the layer, so that its cue is loaded once.
pub struct Layer {
    meta: LayerMeta,
    source: Source,
    header: OnceCell<CueHeader>,
    filter: OnceCell<Option<Filter>>,
    blob_filter: OnceCell<Option<Filter>>,
    externals: OnceCell<Externals>,
    structure: OnceCell<Arc<Index>>,
    index: OnceCell<Arc<Index>>,
    history: OnceCell<Arc<History>>,
    loaded_bytes: AtomicU64,
    /// Of each entry as stored, for pack indexes; worked out when one is first asked for.
    pub(crate) entry_crcs: OnceCell<Arc<[u32]>>,
    /// The checksum at the pack's end.
    pack_checksum: OnceCell<ObjectId>,
    /// For each larger layer asked about: the commits both hold, as (segment here, segment there).
    shared: Mutex<HashMap<LayerId, SharedCommits>>,
    dates: OnceLock<Dates>,
}

/// What a cue says of some of the layer's objects, loaded by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CuePart {
    /// Commits, tags and trees; in cues of version 1 blobs, too.
    Structure,
    /// Blobs.
    Blobs,
}

type SharedCommits = Arc<[(u32, u32)]>;

enum Source {
    Inline {
        pack: Bytes,
        cue: Bytes,
    },
    Bucket {
        cache: BlockCache,
        pack_key: String,
        cue_key: String,
    },
}

/// What it takes to find and read objects of a layer: about 50 bytes an object. [`Layer::structure`] gives one that knows
/// commits, tags and trees only: blobs are past its end, and not found.
#[derive(Debug)]
pub struct Index {
    /// Counts of the layer.
    pub counts: CueCounts,
    /// The layer's object format.
    pub format: ObjectFormat,
    /// Entries in pack order.
    pub entries: Entries,
    /// From id to entry.
    pub lookup: Lookup,
    /// Ids of objects of other layers that this layer names.
    pub externals: Externals,
    filter: Option<Filter>,
    blob_filter: Option<Filter>,
}

/// The part of the commit graph that a layer holds.
#[derive(Debug)]
pub struct History {
    /// One for each commit.
    pub segments: Segments,
    /// Root sets and tags.
    pub roots: Roots,
}

impl Layer {
    /// The layer of a record of the layer list in the log `log`; made at the first call, then shared by all views.
    pub fn of(record: &LayerRecord, log: LogId, cache: &BlockCache) -> Result<Arc<Self>, EngineError> {
        let attached = record.attached(|| Arc::new(Self::new(record, log, cache)));
        attached.ok_or(EngineError::Internal("something else is attached to a layer record"))
    }

    /// A layer that need not be in the layer list any more, as long as its keys are in the bucket.
    pub(crate) fn in_bucket(meta: LayerMeta, log: LogId, cache: &BlockCache) -> Self {
        let source = Source::Bucket {
            cache: cache.clone(),
            pack_key: layer_pack_key(log, meta.id),
            cue_key: layer_cue_key(log, meta.id),
        };
        Self::from_source(meta, source)
    }

    fn new(record: &LayerRecord, log: LogId, cache: &BlockCache) -> Self {
        let source = match &record.place {
            LayerPlace::Inline { pack, cue } => Source::Inline {
                pack: pack.clone(),
                cue: cue.clone(),
            },
            LayerPlace::Bucket => Source::Bucket {
                cache: cache.clone(),
                pack_key: layer_pack_key(log, record.meta.id),
                cue_key: layer_cue_key(log, record.meta.id),
            },
        };
        Self::from_source(record.meta, source)
    }

    fn from_source(meta: LayerMeta, source: Source) -> Self {
        Self {
            meta,
            source,
            header: OnceCell::new(),
            filter: OnceCell::new(),
            blob_filter: OnceCell::new(),
            externals: OnceCell::new(),
            structure: OnceCell::new(),
            index: OnceCell::new(),
            history: OnceCell::new(),
            loaded_bytes: AtomicU64::new(0),
            entry_crcs: OnceCell::new(),
            pack_checksum: OnceCell::new(),
            shared: Mutex::default(),
            dates: OnceLock::new(),
        }
    }

    /// The layer's name.
    pub fn id(&self) -> LayerId {
        self.meta.id
    }

    /// What the layer list says of it.
    pub fn meta(&self) -> &LayerMeta {
        &self.meta
    }

    /// Whether its bytes are in the ledger still.
    pub fn is_inline(&self) -> bool {
        matches!(self.source, Source::Inline { .. })
    }

    /// Bytes of cue sections held in memory for this layer, beyond what the ledger itself holds and what is mapped.
    pub fn loaded_bytes(&self) -> u64 {
        self.loaded_bytes.load(Ordering::Relaxed)
    }

    /// The entry of `oid`, if what is loaded already tells; the outer `None` if it does not. A push asks every layer for every
    /// object that it brings, and nearly always this answers.
    pub(crate) fn find_loaded(&self, part: CuePart, oid: &ObjectId) -> Option<Option<u32>> {
        let (index, filter) = match part {
            CuePart::Structure => (self.structure.get(), &self.filter),
            CuePart::Blobs => (self.index.get(), &self.blob_filter),
        };
        if let Some(index) = index {
            return Some(index.find_in(part, oid));
        }
        let filter = filter.get()?.as_ref()?;
        (!filter.may_contain(oid)).then_some(None)
    }

    /// The entry of `oid`. Loads a part of the index only if its filter does not rule the object out.
    pub async fn find(&self, oid: &ObjectId) -> Result<Option<u32>, EngineError> {
        match self.find_in(CuePart::Structure, oid).await? {
            Some(entry) => Ok(Some(entry)),
            None => self.find_in(CuePart::Blobs, oid).await,
        }
    }

    /// As [`Layer::find`], in one part of the index.
    pub(crate) async fn find_in(&self, part: CuePart, oid: &ObjectId) -> Result<Option<u32>, EngineError> {
        if let Some(found) = self.find_loaded(part, oid) {
            return Ok(found);
        }
        let filter = self.filter_of(part).await?;
        if filter.as_ref().is_some_and(|filter| !filter.may_contain(oid)) || !self.has(part).await? {
            return Ok(None);
        }
        let index = match part {
            CuePart::Structure => self.structure().await?,
            CuePart::Blobs => self.index().await?,
        };
        Ok(index.find_in(part, oid))
    }

    /// The entries of blobs that a push brings, as far as it is cheap to know them: `None` also where an answer would load more
    /// than a second copy of the blob costs.
    pub(crate) async fn find_brought_blobs(&self, oids: &[ObjectId]) -> Result<Vec<Option<u32>>, EngineError> {
        let unknown = || Ok(vec![None; oids.len()]);
        if !self.has(CuePart::Blobs).await? {
            // Version 1 has blobs among the rest.
            let mut found = Vec::with_capacity(oids.len());
            for oid in oids {
                found.push(self.find_in(CuePart::Structure, oid).await?);
            }
            return Ok(found);
        }
        if self.index.get().is_none() && !self.is_small() {
            let range = self.header().await?.section(SectionKind::BlobFilter);
            let filter_len_max = FILTER_BYTES_PER_BLOB.saturating_mul(oids.len() as u64);
            if self.blob_filter.get().is_none() && range.end - range.start > filter_len_max {
                return unknown();
            }
            let filter = self.filter_of(CuePart::Blobs).await?.as_ref();
            let passes = |oid: &&ObjectId| filter.is_none_or(|filter| filter.may_contain(oid));
            let passing = oids.iter().filter(passes).count();
            if passing <= PASSING_BLOBS_MAX || passing <= oids.len() / PASSING_SHARE {
                return unknown();
            }
        }
        let index = self.index().await?;
        Ok(oids.iter().map(|oid| index.find_in(CuePart::Blobs, oid)).collect())
    }

    /// Loads the filter of a part, so that [`Layer::find_loaded`] can answer.
    pub(crate) async fn load_filter(&self, part: CuePart) -> Result<(), EngineError> {
        self.filter_of(part).await.map(|_| ())
    }

    /// The filter; `None` for parts of few objects, which are searched at once.
    async fn filter_of(&self, part: CuePart) -> Result<&Option<Filter>, EngineError> {
        match part {
            CuePart::Structure => {
                let load = || self.section(SectionKind::Filter, Filter::new);
                self.filter.get_or_try_init(load).await
            }
            CuePart::Blobs => {
                let load = || self.section(SectionKind::BlobFilter, Filter::of_blobs);
                self.blob_filter.get_or_try_init(load).await
            }
        }
    }

    /// Whether the part has any objects of its own.
    async fn has(&self, part: CuePart) -> Result<bool, EngineError> {
        let header = self.header().await?;
        let structure = header.structure_entries();
        Ok(match part {
            CuePart::Structure => structure > 0,
            CuePart::Blobs => structure < header.counts.entries(),
        })
    }

    /// The index of commits, tags and trees: about 48 bytes for each of them, however many blobs there are. (Of layers with cues
    /// of version 1 it is the whole index.)
    pub async fn structure(&self) -> Result<Arc<Index>, EngineError> {
        let load = || async {
            let (header, filter) = (self.header().await?, self.filter_of(CuePart::Structure));
            let entries = self.section(SectionKind::Entries, Entries::new);
            let lookup = self.section(SectionKind::Lookup, Lookup::new);
            let (filter, entries, lookup, externals) = futures::try_join!(filter, entries, lookup, self.externals())?;
            Ok(Arc::new(Index {
                counts: header.counts,
                format: header.object_format,
                entries,
                lookup,
                externals: externals.clone(),
                filter: filter.clone(),
                blob_filter: None,
            }))
        };
        self.structure.get_or_try_init(load).await.cloned()
    }

    /// The whole index.
    pub async fn index(&self) -> Result<Arc<Index>, EngineError> {
        let load = || async {
            let bytes = |_: &CueHeader, bytes| Ok(bytes);
            let entries = self.section(SectionKind::BlobEntries, bytes);
            let lookup = self.section(SectionKind::BlobLookup, bytes);
            let (structure, filter) = (self.structure(), self.filter_of(CuePart::Blobs));
            let (structure, filter, entries, lookup) = futures::try_join!(structure, filter, entries, lookup)?;
            let (header, damaged) = (self.header().await?, |error| EngineError::cue(self.id(), &error));
            Ok(Arc::new(Index {
                counts: structure.counts,
                format: structure.format,
                entries: structure.entries.clone().with_blobs(header, entries).map_err(damaged)?,
                lookup: structure.lookup.clone().with_blobs(header, lookup).map_err(damaged)?,
                externals: structure.externals.clone(),
                filter: structure.filter.clone(),
                blob_filter: filter.clone(),
            }))
        };
        self.index.get_or_try_init(load).await.cloned()
    }

    /// An index that knows this entry: the structure's, unless it is a blob's.
    pub async fn index_of(&self, entry: u32) -> Result<Arc<Index>, EngineError> {
        match self.index.get() {
            Some(index) => Ok(Arc::clone(index)),
            None if entry < self.header().await?.structure_entries() => self.structure().await,
            None => self.index().await,
        }
    }

    /// The segments and roots.
    pub async fn history(&self) -> Result<Arc<History>, EngineError> {
        let load = || async {
            let segments = self.section(SectionKind::Segments, Segments::new);
            let roots = self.section(SectionKind::Roots, Roots::new);
            let (segments, roots) = futures::try_join!(segments, roots)?;
            Ok(Arc::new(History { segments, roots }))
        };
        self.history.get_or_try_init(load).await.cloned()
    }

    async fn externals(&self) -> Result<&Externals, EngineError> {
        self.externals
            .get_or_try_init(|| self.section(SectionKind::Externals, Externals::new))
            .await
    }

    async fn header(&self) -> Result<&CueHeader, EngineError> {
        let load = || async {
            let header = match &self.source {
                Source::Inline { cue, .. } => CueHeader::parse(cue),
                Source::Bucket { .. } => {
                    let len = (CueHeader::LEN_MAX as u64).min(self.meta.cue_bytes);
                    CueHeader::parse(&self.read_cue(0..len).await?)
                }
            };
            let header = header.map_err(|error| EngineError::cue(self.id(), &error))?;
            self.check(&header)?;
            Ok(header)
        };
        self.header.get_or_try_init(load).await
    }

    /// The header must describe the very layer that the ledger names.
    fn check(&self, header: &CueHeader) -> Result<(), EngineError> {
        if header.cue_len() != self.meta.cue_bytes {
            Err(self.corrupt("the cue's length is not what the ledger says"))
        } else if header.counts.entries() != self.meta.objects {
            Err(self.corrupt("the cue's object count is not what the ledger says"))
        } else {
            Ok(())
        }
    }

    async fn section<T>(
        &self,
        kind: SectionKind,
        view: impl FnOnce(&CueHeader, Bytes) -> Result<T, FormatError>,
    ) -> Result<T, EngineError> {
        let header = self.header().await?;
        let range = header.section(kind);
        let (bytes, is_mapped) = match &self.source {
            _ if range.is_empty() => (Bytes::new(), false),
            Source::Bucket { cache, cue_key, .. } if !self.is_small() => {
                // In boxes, here and below: a future that waits for the bucket is large, and those of inline layers, which never
                // do, are made and moved many times for every push.
                let held = Box::pin(cache.hold(cue_key, self.meta.cue_bytes, range)).await?;
                (held.bytes, held.is_mapped)
            }
            Source::Inline { .. } | Source::Bucket { .. } => (self.read_cue(range).await?, false),
        };
        if !self.is_inline() && !is_mapped {
            self.loaded_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        view(header, bytes).map_err(|error| EngineError::cue(self.id(), &error))
    }

    /// Whether the cue is read whole in one request: cheaper than a header first and sections after it.
    fn is_small(&self) -> bool {
        match &self.source {
            Source::Inline { .. } => true,
            Source::Bucket { cache, .. } => self.meta.cue_bytes <= cache.small_bytes_max(),
        }
    }

    async fn read_cue(&self, range: Range<u64>) -> Result<Bytes, EngineError> {
        match &self.source {
            Source::Inline { cue, .. } => self.slice(cue, range),
            Source::Bucket { cache, cue_key, .. } => {
                let size = self.meta.cue_bytes;
                if self.is_small() {
                    let cue = Box::pin(cache.read(cue_key, size, 0..size)).await?;
                    return self.slice(&cue, range);
                }
                if cache.bucket().is_local() {
                    // The header: no block need be read for it.
                    return Ok(Box::pin(cache.bucket().get_range(cue_key, range)).await?);
                }
                Ok(Box::pin(cache.read(cue_key, size, range)).await?)
            }
        }
    }

    /// Bytes of the pack, to be kept in the cache. Cost: ranged GETs for the blocks of the range that it does not hold.
    pub async fn read(&self, range: Range<u64>) -> Result<Bytes, EngineError> {
        self.read_as(range, Access::Keep).await
    }

    /// As [`Layer::read`], for one pass over much: what it reads pushes nothing else out of the cache.
    pub async fn scan(&self, range: Range<u64>) -> Result<Bytes, EngineError> {
        self.read_as(range, Access::Scan).await
    }

    /// As [`Layer::read`], for a reader that knows better what to keep.
    pub(crate) async fn read_as(&self, range: Range<u64>, access: Access) -> Result<Bytes, EngineError> {
        match &self.source {
            Source::Inline { pack, .. } => self.slice(pack, range),
            Source::Bucket { .. } if range.end > self.meta.pack_bytes => {
                Err(self.corrupt("an entry ends outside the pack"))
            }
            Source::Bucket { cache, pack_key, .. } => {
                let size = self.meta.pack_bytes;
                Ok(match access {
                    Access::Keep => Box::pin(cache.read(pack_key, size, range)).await?,
                    Access::Scan => Box::pin(cache.pass(pack_key, size, range)).await?,
                })
            }
        }
    }

    /// How far apart two ranges may lie that are better read as one.
    pub(crate) fn gap_bounds(&self) -> GapBounds {
        match &self.source {
            Source::Bucket { cache, .. } if cache.bucket().is_local() => LOCAL_GAPS,
            Source::Bucket { .. } | Source::Inline { .. } => REMOTE_GAPS,
        }
    }

    /// Whether [`Layer::read_scattered`] costs less than reads one by one.
    pub(crate) fn reads_scattered(&self) -> bool {
        matches!(&self.source, Source::Bucket { cache, .. } if cache.bucket().is_local())
    }

    /// Ranges of the pack, past the cache: in a local directory one hop to a thread, elsewhere a request for each.
    pub(crate) async fn read_scattered(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, EngineError> {
        match &self.source {
            Source::Bucket { cache, pack_key, .. } => Ok(cache.bucket().get_ranges(pack_key, ranges).await?),
            Source::Inline { pack, .. } => ranges.iter().map(|range| self.slice(pack, range.clone())).collect(),
        }
    }

    /// As [`Layer::read`], for bytes that nobody is about to ask for again, such as those of a layer that is merged away.
    pub(crate) async fn read_once(&self, range: Range<u64>) -> Result<Bytes, EngineError> {
        match &self.source {
            Source::Bucket { cache, pack_key, .. } if range.end <= self.meta.pack_bytes => {
                Ok(cache.read_once(pack_key, self.meta.pack_bytes, range).await?)
            }
            Source::Bucket { .. } | Source::Inline { .. } => self.read(range).await,
        }
    }

    /// The checksum that ends the pack, by which stock git names packs. Cost: one small read, once.
    pub(crate) async fn pack_checksum(&self) -> Result<ObjectId, EngineError> {
        let load = || async {
            let format = self.header().await?.object_format;
            let end = self.meta.pack_bytes;
            let start = end.saturating_sub(format.width() as u64);
            let checksum = ObjectId::from_bytes(format, &self.read(start..end).await?);
            checksum.map_err(|_| self.corrupt("the pack has no room for a checksum"))
        };
        self.pack_checksum.get_or_try_init(load).await.copied()
    }

    /// Counts memory that is held for this layer from now on.
    pub(crate) fn count_loaded(&self, bytes: u64) {
        self.loaded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Starts fetching the whole cue from a remote bucket, in several requests at once: who is about to load index and history
    /// needs all of it, and would else wait for the header first.
    pub(crate) fn prefetch_cue(&self) {
        if let Source::Bucket { cache, cue_key, .. } = &self.source
            && self.index.get().is_none()
            && !cache.bucket().is_local()
        {
            let size = self.meta.cue_bytes.min(CUE_AHEAD_BYTES_MAX);
            for start in (0..size).step_by(CUE_FETCH_BYTES) {
                let end = size.min(start + CUE_FETCH_BYTES as u64);
                cache.prefetch(cue_key, self.meta.cue_bytes, start..end, Access::Keep);
            }
        }
    }

    /// Starts fetching what will soon be read so: one request, for the cache's largest fetch.
    pub(crate) fn prefetch(&self, range: Range<u64>, access: Access) {
        if let Source::Bucket { cache, pack_key, .. } = &self.source {
            cache.prefetch(pack_key, self.meta.pack_bytes, range, access);
        }
    }

    fn slice(&self, bytes: &Bytes, range: Range<u64>) -> Result<Bytes, EngineError> {
        match (usize::try_from(range.start), usize::try_from(range.end)) {
            (Ok(start), Ok(end)) if start <= end && end <= bytes.len() => Ok(bytes.slice(start..end)),
            _ => Err(self.corrupt("a range lies outside the layer")),
        }
    }

    pub(crate) fn corrupt(&self, what: impl Into<String>) -> EngineError {
        EngineError::Corrupt {
            layer: self.id(),
            what: what.into(),
        }
    }

    /// The dates of its commits, of which there are `segments`.
    pub(crate) fn dates(&self, segments: u32) -> &Dates {
        self.dates.get_or_init(|| {
            self.count_loaded(u64::from(segments) * 8);
            Dates::unknown(segments)
        })
    }

    /// The commits that this layer and a larger one both hold, as (segment here, segment there), ascending. Worked out
    /// once for each pair of layers and then remembered: layers never change.
    pub(crate) fn shared_commits(&self, index: &Index, history: &History, larger: &Slot) -> SharedCommits {
        if let Some(known) = self.shared.lock().get(&larger.layer.id()) {
            return Arc::clone(known);
        }
        let theirs = |segment| {
            let entry = larger.index.find(&index.oid(segment)?)?;
            (entry < larger.history.segments.len()).then_some((segment, entry))
        };
        let shared: SharedCommits = (0..history.segments.len()).filter_map(theirs).collect();
        self.shared.lock().insert(larger.layer.id(), Arc::clone(&shared));
        shared
    }
}

impl Index {
    /// The entry of `oid`; asks the filters first.
    pub fn find(&self, oid: &ObjectId) -> Option<u32> {
        self.find_in(CuePart::Structure, oid)
            .or_else(|| self.find_in(CuePart::Blobs, oid))
    }

    fn find_in(&self, part: CuePart, oid: &ObjectId) -> Option<u32> {
        let filter = match part {
            CuePart::Structure => &self.filter,
            CuePart::Blobs => &self.blob_filter,
        };
        match filter {
            Some(filter) if !filter.may_contain(oid) => None,
            _ if part == CuePart::Structure => self.lookup.find_structure(oid),
            _ => self.lookup.find_blob(oid),
        }
    }

    /// The id of an entry.
    pub fn oid(&self, entry: u32) -> Option<ObjectId> {
        (entry < self.entries.len()).then(|| self.lookup.oid(self.entries.rank(entry)))
    }

    /// The kind of an entry's object.
    pub fn kind(&self, entry: u32) -> ObjectKind {
        self.counts.kind(entry)
    }
}

impl std::fmt::Debug for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Layer").field(&self.id()).finish()
    }
}
