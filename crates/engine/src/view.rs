//! A view: an immutable snapshot of one repository, and everything that is read through it.

use crate::layer::CuePart;
use crate::upload::Reach;
use crate::{EngineError, Graph, Layer, Settings, objects, world::World};
use bytes::Bytes;
use cuesta_format::{LogId, RepositoryRecord};
use cuesta_git::{HiddenRefs, ObjectFormat, ObjectId, ObjectKind};
use cuesta_ledger::State;
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Layers whose filters are fetched at once.
const LOADS_IN_FLIGHT_MAX: usize = 32;
/// Rules of hiding about which answers are kept: mostly there is one, and the one that hides nothing.
const RULES_MAX: usize = 4;

/// A snapshot of a repository: refs, layers and the objects in them. Cheap to clone; never changes.
///
/// What a view names stays readable for as long as it is held (DESIGN, invariant 3).
#[derive(Clone)]
pub struct View {
    inner: Arc<Inner>,
}

struct Inner {
    state: Arc<State>,
    format: ObjectFormat,
    log: LogId,
    world: Arc<World>,
    /// Layers in the bucket, newest first, their filters loaded. Views in whose states they are the same share them.
    bucket: Arc<OnceCell<Vec<Arc<Layer>>>>,
    /// Set once their filters of blobs are loaded, too.
    blob_filters: Arc<OnceCell<()>>,
    graph: OnceCell<Arc<Graph>>,
    /// What is reachable from refs that certain rules do not hide.
    reaches: Kept<Arc<Reach>>,
    /// Whether certain rules hide any ref.
    hiding: Kept<bool>,
    /// A digest of the annotated tags that certain rules do not hide.
    tags: Kept<[u8; 32]>,
}

/// Answers that depend on rules of hiding, for the rules asked about last.
struct Kept<T>(Mutex<Vec<(HiddenRefs, T)>>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Kept<T> {
    fn find(&self, hidden: &HiddenRefs) -> Option<T> {
        let kept = self.0.lock();
        let found = kept.iter().find(|(rules, _)| rules == hidden);
        found.map(|(_, answer)| answer.clone())
    }

    fn keep(&self, hidden: &HiddenRefs, answer: T) {
        let mut kept = self.0.lock();
        kept.retain(|(rules, _)| rules != hidden);
        kept.truncate(RULES_MAX - 1);
        kept.insert(0, (hidden.clone(), answer));
    }
}

/// Where an object is stored.
#[derive(Clone, Debug)]
pub struct Location {
    /// The layer.
    pub layer: Arc<Layer>,
    /// The entry of the layer's pack.
    pub entry: u32,
}

impl View {
    pub(crate) fn new(state: Arc<State>, record: RepositoryRecord, world: Arc<World>) -> Self {
        Self {
            inner: Arc::new(Inner {
                state,
                format: record.object_format,
                log: record.log,
                world,
                bucket: Arc::default(),
                blob_filters: Arc::default(),
                graph: OnceCell::new(),
                reaches: Kept::default(),
                hiding: Kept::default(),
                tags: Kept::default(),
            }),
        }
    }

    /// The view of another state of the same repository, with what this one has loaded that is the same there.
    pub(crate) fn of_state(&self, state: Arc<State>) -> Self {
        let inner = &self.inner;
        let same = Arc::ptr_eq(state.bucket_layers(), inner.state.bucket_layers());
        let (bucket, blob_filters) = match same {
            true => (Arc::clone(&inner.bucket), Arc::clone(&inner.blob_filters)),
            false => Default::default(),
        };
        Self {
            inner: Arc::new(Inner {
                state,
                format: inner.format,
                log: inner.log,
                world: Arc::clone(&inner.world),
                bucket,
                blob_filters,
                graph: OnceCell::new(),
                reaches: Kept::default(),
                hiding: Kept::default(),
                tags: Kept::default(),
            }),
        }
    }

    /// Refs, settings and layer list.
    pub fn state(&self) -> &Arc<State> {
        &self.inner.state
    }

    /// The settings that apply here: the repository's own, and the node's.
    pub fn settings(&self) -> Settings<'_> {
        Settings::new(&self.inner.state, &self.inner.world.options.settings)
    }

    /// The repository's object format.
    pub fn object_format(&self) -> ObjectFormat {
        self.inner.format
    }

    pub(crate) fn world(&self) -> &World {
        &self.inner.world
    }

    pub(crate) fn is_of(&self, state: &Arc<State>) -> bool {
        Arc::ptr_eq(&self.inner.state, state)
    }

    /// Where `oid` is: in the inline layers, or else in the newest layer that holds it. Cost, in memory: a hash look-up
    /// and one or two filter probes a layer. The index of blobs is loaded only if the object is nothing else.
    pub async fn find(&self, oid: &ObjectId) -> Result<Option<Location>, EngineError> {
        if let Some(location) = self.find_inline(oid)? {
            return Ok(Some(location));
        }
        match self.find_in(CuePart::Structure, oid).await? {
            Some(location) => Ok(Some(location)),
            None => self.find_in(CuePart::Blobs, oid).await,
        }
    }

    /// As [`View::find`], if `oid` is no blob: loads nothing of blobs. (It may find one all the same.)
    pub(crate) async fn find_structure(&self, oid: &ObjectId) -> Result<Option<Location>, EngineError> {
        match self.find_inline(oid)? {
            Some(location) => Ok(Some(location)),
            None => self.find_in(CuePart::Structure, oid).await,
        }
    }

    /// Where blobs are that a push brings. `None` also where it is not worth knowing: a second copy is allowed.
    pub(crate) async fn find_brought_blobs(&self, oids: &[ObjectId]) -> Result<Vec<Option<Location>>, EngineError> {
        let mut found = Vec::with_capacity(oids.len());
        for oid in oids {
            found.push(self.find_inline(oid)?);
        }
        for layer in self.bucket_layers().await? {
            let left = oids.iter().zip(&found).filter(|(_, found)| found.is_none());
            let left: Vec<ObjectId> = left.map(|(oid, _)| *oid).collect();
            if left.is_empty() {
                break;
            }
            let entries = layer.find_brought_blobs(&left).await?;
            let slots = found.iter_mut().filter(|found| found.is_none());
            for (slot, entry) in slots.zip(entries) {
                let at = |entry| Location {
                    layer: Arc::clone(layer),
                    entry,
                };
                *slot = entry.map(at);
            }
        }
        Ok(found)
    }

    fn find_inline(&self, oid: &ObjectId) -> Result<Option<Location>, EngineError> {
        let Some((record, entry)) = self.inner.state.inline_object(oid) else {
            return Ok(None);
        };
        let layer = Layer::of(record, self.inner.log, &self.inner.world.cache)?;
        Ok(Some(Location { layer, entry }))
    }

    /// Where `oid` is in the bucket, newest first, among the objects of one part of each index.
    async fn find_in(&self, part: CuePart, oid: &ObjectId) -> Result<Option<Location>, EngineError> {
        let layers = match part {
            CuePart::Structure => self.bucket_layers().await?,
            CuePart::Blobs => self.blob_layers().await?,
        };
        for layer in layers {
            let found = match layer.find_loaded(part, oid) {
                Some(found) => found,
                None => layer.find_in(part, oid).await?,
            };
            if let Some(entry) = found {
                return Ok(Some(Location {
                    layer: Arc::clone(layer),
                    entry,
                }));
            }
        }
        Ok(None)
    }

    /// Where `oid` is as a delta's base: the oldest copy in the bucket, or else in the inline layers. A base in an older
    /// layer than the delta cannot rest on it.
    pub(crate) async fn find_base(&self, oid: &ObjectId) -> Result<Option<Location>, EngineError> {
        for layer in self.bucket_layers().await?.iter().rev() {
            if let Some(entry) = layer.find(oid).await? {
                return Ok(Some(Location {
                    layer: Arc::clone(layer),
                    entry,
                }));
            }
        }
        self.find(oid).await
    }

    /// Every copy of `oid`, newest first.
    pub(crate) async fn copies(&self, oid: &ObjectId) -> Result<Vec<Location>, EngineError> {
        let mut copies = Vec::new();
        for record in self.inner.state.layers().iter().rev() {
            let layer = Layer::of(record, self.inner.log, &self.inner.world.cache)?;
            if let Some(entry) = layer.find(oid).await? {
                copies.push(Location { layer, entry });
            }
        }
        Ok(copies)
    }

    /// Whether the repository has `oid`.
    pub async fn contains(&self, oid: &ObjectId) -> Result<bool, EngineError> {
        Ok(self.find(oid).await?.is_some())
    }

    /// The kind of `oid` and its size in bytes, from the cue alone.
    pub async fn kind_and_size(&self, oid: &ObjectId) -> Result<Option<(ObjectKind, u64)>, EngineError> {
        let Some(Location { layer, entry }) = self.find(oid).await? else {
            return Ok(None);
        };
        let index = layer.index_of(entry).await?;
        Ok(Some((index.kind(entry), index.entries.size(entry))))
    }

    /// The object `oid`. Cost: one ranged read for each entry of its delta chain, all at once.
    pub async fn object(&self, oid: &ObjectId) -> Result<Option<(ObjectKind, Bytes)>, EngineError> {
        Ok(self.objects(std::slice::from_ref(oid)).await?.pop().flatten())
    }

    /// Many objects, in the order asked for; `None` for those that the repository does not have. Neighbours are read
    /// together, and delta bases that several need once. All contents are held at once: bound what you ask for.
    pub async fn objects(&self, oids: &[ObjectId]) -> Result<Vec<Option<(ObjectKind, Bytes)>>, EngineError> {
        let mut found = Vec::with_capacity(oids.len());
        for oid in oids {
            found.push(self.find(oid).await?);
        }
        let wanted: Vec<Location> = found.iter().flatten().cloned().collect();
        let mut objects = objects::read(self, &wanted).await?.into_iter();
        Ok(found
            .into_iter()
            .map(|location| location.and_then(|_| objects.next()))
            .collect())
    }

    /// The objects at these places, in that order.
    pub(crate) async fn objects_at(&self, locations: &[Location]) -> Result<Vec<(ObjectKind, Bytes)>, EngineError> {
        objects::read(self, locations).await
    }

    /// The commit graph; loaded at the first call, one round trip for all layers together, and then kept.
    pub async fn graph(&self) -> Result<Arc<Graph>, EngineError> {
        let load = || async {
            let open = |record: &Arc<_>| Layer::of(record, self.inner.log, &self.inner.world.cache);
            let layers = self
                .inner
                .state
                .layers()
                .iter()
                .map(open)
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Arc::new(Graph::load(Arc::clone(&self.inner.state), layers).await?))
        };
        self.inner.graph.get_or_try_init(load).await.cloned()
    }

    /// What the refs reach that `hidden` does not hide: worked out at the first call, off the reactor, and kept.
    pub async fn reach(&self, hidden: &HiddenRefs) -> Result<Arc<Reach>, EngineError> {
        if let Some(reach) = self.inner.reaches.find(hidden) {
            return Ok(reach);
        }
        let (view, graph, rules) = (self.clone(), self.graph().await?, hidden.clone());
        self.inner
            .world
            .workers
            .run(move || view.reach_here(graph, &rules))
            .await
    }

    /// The same on this thread, which must not be one of the reactor's.
    pub(crate) fn reach_here(&self, graph: Arc<Graph>, hidden: &HiddenRefs) -> Result<Arc<Reach>, EngineError> {
        if let Some(reach) = self.inner.reaches.find(hidden) {
            return Ok(reach);
        }
        let reach = Arc::new(Reach::new(graph, hidden)?);
        self.inner.reaches.keep(hidden, Arc::clone(&reach));
        Ok(reach)
    }

    /// Whether `hidden` hides any ref. Cost: a look at the refs for the first who asks, if there are rules at all.
    pub fn hides_some(&self, hidden: &HiddenRefs) -> bool {
        if hidden.is_empty() {
            return false;
        }
        if let Some(known) = self.inner.hiding.find(hidden) {
            return known;
        }
        let found = self.inner.state.refs().keys().any(|name| hidden.hides(name));
        self.inner.hiding.keep(hidden, found);
        found
    }

    /// A digest of the annotated tags below `refs/tags/` that `hidden` does not hide, worked out by the first who asks.
    pub(crate) fn tags_digest(&self, hidden: &HiddenRefs, digest: impl FnOnce() -> [u8; 32]) -> [u8; 32] {
        if let Some(known) = self.inner.tags.find(hidden) {
            return known;
        }
        let found = digest();
        self.inner.tags.keep(hidden, found);
        found
    }

    pub(crate) fn log(&self) -> LogId {
        self.inner.log
    }

    async fn bucket_layers(&self) -> Result<&[Arc<Layer>], EngineError> {
        let load = || async {
            let records = self.inner.state.bucket_layers().iter().rev();
            let open = |record: &Arc<_>| Layer::of(record, self.inner.log, &self.inner.world.cache);
            let layers = records.map(open).collect::<Result<Vec<_>, EngineError>>()?;
            load_filters(&layers, CuePart::Structure).await?;
            Ok::<_, EngineError>(layers)
        };
        self.inner.bucket.get_or_try_init(load).await.map(Vec::as_slice)
    }

    /// The same, with the filters of blobs loaded.
    async fn blob_layers(&self) -> Result<&[Arc<Layer>], EngineError> {
        let layers = self.bucket_layers().await?;
        let load = || load_filters(layers, CuePart::Blobs);
        self.inner.blob_filters.get_or_try_init(load).await?;
        Ok(layers)
    }
}

/// Loads filters, many at once.
async fn load_filters(layers: &[Arc<Layer>], part: CuePart) -> Result<(), EngineError> {
    let loads = layers.iter().map(|layer| {
        let layer = Arc::clone(layer);
        async move { layer.load_filter(part).await }
    });
    let loads = futures::stream::iter(loads.collect::<Vec<_>>());
    loads.buffer_unordered(LOADS_IN_FLIGHT_MAX).try_collect::<()>().await
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View")
            .field("log", &self.inner.log)
            .field("number", &self.inner.state.number())
            .finish()
    }
}
