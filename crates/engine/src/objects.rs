//! Reading objects: delta chains planned from cues, their bytes read in few sweeps, then inflated and applied.
//!
//! The cue names every base, so the whole chain of every object is known before the first byte of a pack is read: one
//! dependent round trip, however deep the deltas.

use crate::graph::{Graph, Position};
use crate::sweep::{self, Wanted};
use crate::{EngineError, Layer, Location, View, layer::Index};
use bytes::Bytes;
use cuesta_format::{Base, LayerId};
use cuesta_git::pack::{ENTRY_HEADER_LEN_MAX, EntryHeader, EntryKind};
use cuesta_git::zlib::WholeInflater;
use cuesta_git::{ObjectKind, delta, object_id};
use futures::future::BoxFuture;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Deltas between an object and the whole object it rests on. Git itself writes at most 4,095.
pub const DELTA_DEPTH_MAX: usize = 4_095;

/// Stored bytes read for one batch, unless a single chain needs more.
const BATCH_BYTES_MAX: u64 = 32 << 20;
/// Decoding less than this stays on the reactor: well under a millisecond.
const INLINE_DECODE_BYTES_MAX: u64 = 64 << 10;

/// An object, as views give it: its kind and its content.
pub(crate) type Object = (ObjectKind, Bytes);

/// The objects at `wanted`, in that order.
// Boxed for the reason `Layer::read` is.
pub(crate) fn read<'a>(view: &'a View, wanted: &'a [Location]) -> BoxFuture<'a, Result<Vec<Object>, EngineError>> {
    Box::pin(async move {
        if let [location] = wanted
            && let Some(object) = read_inline(view, location).await?
        {
            return Ok(vec![object]);
        }
        let mut objects = Vec::with_capacity(wanted.len());
        let mut batch = Batch::default();
        for location in wanted {
            batch.add(view, location.clone()).await?;
            if batch.stored_bytes >= BATCH_BYTES_MAX {
                objects.append(&mut std::mem::take(&mut batch).finish(view).await?);
            }
        }
        objects.append(&mut batch.finish(view).await?);
        Ok(objects)
    })
}

/// One small object that is whole and in memory: as a push finds the trees of the one before.
async fn read_inline(view: &View, location: &Location) -> Result<Option<Object>, EngineError> {
    let Location { layer, entry } = location;
    if !layer.is_inline() {
        return Ok(None);
    }
    let index = layer.index().await?;
    let is_simple = *entry < index.entries.len()
        && index.entries.base(*entry) == Base::None
        && index.entries.size(*entry) <= INLINE_DECODE_BYTES_MAX;
    if !is_simple {
        return Ok(None);
    }
    let mut node = Node {
        layer: Arc::clone(layer),
        stored: layer.read(index.entries.range(*entry)).await?,
        index,
        entry: *entry,
        base: None,
        uses: 1,
        object: None,
    };
    let object = node.decode(None, view.world().options.check_ids, &mut WholeInflater::new())?;
    Ok(Some((node.index.kind(*entry), object)))
}

/// Positions in a graph as locations.
pub(crate) fn locations(graph: &Graph, positions: &[Position]) -> Result<Vec<Location>, EngineError> {
    let locate = |at: &Position| {
        Ok(Location {
            layer: Arc::clone(&graph.slot(at.slot)?.layer),
            entry: at.entry,
        })
    };
    positions.iter().map(locate).collect()
}

/// Objects to be read together, and all the entries that takes.
#[derive(Default)]
struct Batch {
    nodes: Vec<Node>,
    node_of: HashMap<(LayerId, u32), usize>,
    /// For each object asked for, its node.
    wanted: Vec<usize>,
    stored_bytes: u64,
    object_bytes: u64,
}

fn key(location: &Location) -> (LayerId, u32) {
    (location.layer.id(), location.entry)
}

/// One entry: an object, or a delta on another node.
struct Node {
    layer: Arc<Layer>,
    index: Arc<Index>,
    entry: u32,
    base: Option<usize>,
    /// How often its object will be taken: as a base, or as an answer.
    uses: u32,
    stored: Bytes,
    object: Option<Bytes>,
}

impl Batch {
    async fn add(&mut self, view: &View, location: Location) -> Result<(), EngineError> {
        let chain = match self.chain(view, &location).await? {
            Some(chain) => chain,
            None => self.chain_through_any_copies(view, location).await?,
        };
        let mut child = None;
        for location in chain {
            let node = match self.node_of.get(&key(&location)) {
                Some(node) => *node,
                None => self.add_node(&location).await?,
            };
            self.link(child, node);
            child = Some(node);
        }
        Ok(())
    }

    /// From an entry down to one that is no delta or is known already. `None` if the copies of bases that come first lead
    /// back to an entry on the way: a later layer may hold a copy of a base that is in turn a delta on what rests on it.
    async fn chain(&self, view: &View, location: &Location) -> Result<Option<Vec<Location>>, EngineError> {
        let mut chain = vec![location.clone()];
        let mut seen = HashSet::new();
        loop {
            let at = chain.last().ok_or(LOST)?;
            if !seen.insert(key(at)) {
                return Ok(None);
            }
            if chain.len() > DELTA_DEPTH_MAX {
                return Err(at
                    .layer
                    .corrupt(format!("entry {} is a delta deeper than {DELTA_DEPTH_MAX}", at.entry)));
            }
            if self.node_of.contains_key(&key(at)) {
                return Ok(Some(chain));
            }
            let index = at.layer.index_of(at.entry).await?;
            let next = match index.entries.base(at.entry) {
                Base::None => return Ok(Some(chain)),
                Base::Entry(entry) => Location {
                    layer: Arc::clone(&at.layer),
                    entry,
                },
                Base::External(external) => {
                    let oid = index.externals.oid(external);
                    let missing = || at.layer.corrupt(format!("delta base {oid} is in no layer of the view"));
                    view.find_base(&oid).await?.ok_or_else(missing)?
                }
            };
            chain.push(next);
        }
    }

    /// As [`Batch::chain`], trying every copy of every base. There always is a way: when a delta was stored, its base was
    /// readable without it.
    async fn chain_through_any_copies(&self, view: &View, start: Location) -> Result<Vec<Location>, EngineError> {
        let mut seen = HashSet::from([key(&start)]);
        let mut path = vec![(start.clone(), self.bases(view, &start).await?)];
        while let Some((_, bases)) = path.last_mut() {
            let Some(base) = bases.pop() else {
                path.pop();
                continue;
            };
            if !seen.insert(key(&base)) {
                continue;
            }
            let next = self.bases(view, &base).await?;
            let whole = next.is_empty();
            path.push((base, next));
            if whole {
                return Ok(path.into_iter().map(|(location, _)| location).collect());
            }
        }
        Err(start
            .layer
            .corrupt(format!("the deltas below entry {} form a cycle", start.entry)))
    }

    /// The copies of the base of an entry, oldest last; none if it needs no base or is known already.
    async fn bases(&self, view: &View, at: &Location) -> Result<Vec<Location>, EngineError> {
        if self.node_of.contains_key(&key(at)) {
            return Ok(Vec::new());
        }
        let index = at.layer.index_of(at.entry).await?;
        match index.entries.base(at.entry) {
            Base::None => Ok(Vec::new()),
            Base::Entry(entry) => Ok(vec![Location {
                layer: Arc::clone(&at.layer),
                entry,
            }]),
            Base::External(external) => view.copies(&index.externals.oid(external)).await,
        }
    }

    async fn add_node(&mut self, location: &Location) -> Result<usize, EngineError> {
        let Location { layer, entry } = location.clone();
        let index = layer.index_of(entry).await?;
        if entry >= index.entries.len() {
            return Err(layer.corrupt(format!("no entry {entry}")));
        }
        self.stored_bytes += index.entries.stored_len(entry);
        self.object_bytes = self.object_bytes.saturating_add(index.entries.size(entry));
        let node = self.nodes.len();
        self.node_of.insert((layer.id(), entry), node);
        self.nodes.push(Node {
            layer,
            index,
            entry,
            base: None,
            uses: 0,
            stored: Bytes::new(),
            object: None,
        });
        Ok(node)
    }

    fn link(&mut self, child: Option<usize>, node: usize) {
        match child.and_then(|child| self.nodes.get_mut(child)) {
            Some(child) => child.base = Some(node),
            None => self.wanted.push(node),
        }
        if let Some(node) = self.nodes.get_mut(node) {
            node.uses += 1;
        }
    }

    async fn finish(mut self, view: &View) -> Result<Vec<Object>, EngineError> {
        if self.wanted.is_empty() {
            return Ok(Vec::new());
        }
        self.fetch().await?;
        let check_ids = view.world().options.check_ids;
        if self.stored_bytes.saturating_add(self.object_bytes) <= INLINE_DECODE_BYTES_MAX {
            self.decode(check_ids)
        } else {
            view.world().workers.run(move || self.decode(check_ids)).await
        }
    }

    /// Fills in every node's stored bytes.
    async fn fetch(&mut self) -> Result<(), EngineError> {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|node| self.nodes.get(*node).map(|node| (node.layer.id(), node.entry)));
        let mut wanted = Vec::with_capacity(order.len());
        for number in order {
            let node = self.nodes.get(number).ok_or(LOST)?;
            wanted.push(Wanted {
                layer: Arc::clone(&node.layer),
                range: node.index.entries.range(node.entry),
                number,
            });
        }
        for (number, stored) in sweep::read(wanted).await? {
            self.nodes.get_mut(number).ok_or(LOST)?.stored = stored;
        }
        Ok(())
    }

    fn decode(mut self, check_ids: bool) -> Result<Vec<Object>, EngineError> {
        let mut inflater = WholeInflater::new();
        let wanted = std::mem::take(&mut self.wanted);
        wanted
            .into_iter()
            .map(|node| self.decode_node(node, check_ids, &mut inflater))
            .collect()
    }

    fn decode_node(
        &mut self,
        wanted: usize,
        check_ids: bool,
        inflater: &mut WholeInflater,
    ) -> Result<Object, EngineError> {
        let mut chain = vec![wanted];
        let mut at = wanted;
        while let Node {
            object: None,
            base: Some(base),
            ..
        } = self.nodes.get(at).ok_or(LOST)?
        {
            at = *base;
            chain.push(at);
        }
        let mut below: Option<Bytes> = None;
        while let Some(number) = chain.pop() {
            let node = self.nodes.get_mut(number).ok_or(LOST)?;
            let object = match node.object.clone() {
                Some(object) => object,
                None => node.decode(below.as_ref(), check_ids, inflater)?,
            };
            node.uses = node.uses.saturating_sub(1);
            node.object = (node.uses > 0).then(|| object.clone());
            below = Some(object);
        }
        let node = self.nodes.get(wanted).ok_or(LOST)?;
        Ok((node.index.kind(node.entry), below.unwrap_or_default()))
    }
}

const LOST: EngineError = EngineError::Internal("a node of a delta chain is lost");

impl Node {
    fn decode(
        &mut self,
        base: Option<&Bytes>,
        check_id: bool,
        inflater: &mut WholeInflater,
    ) -> Result<Bytes, EngineError> {
        let kind = self.index.kind(self.entry);
        let wrong = |what: &dyn std::fmt::Display| self.layer.corrupt(format!("entry {}: {what}", self.entry));
        let stored = inflate_entry(&self.layer, self.entry, self.index.format, &self.stored, inflater)?;
        let object = match (stored.0, base) {
            (EntryKind::Object(stored_kind), None) if stored_kind == kind => stored.1,
            (EntryKind::OfsDelta { .. } | EntryKind::RefDelta { .. }, Some(base)) => {
                self.check_delta(&stored.1)?;
                delta::apply(base, &stored.1).map_err(|error| wrong(&error))?
            }
            _ => return Err(wrong(&"the pack's kind is not the cue's")),
        };
        if object.len() as u64 != self.index.entries.size(self.entry) {
            return Err(wrong(&"the object's size is not the cue's"));
        }
        if check_id {
            let oid = object_id(self.index.format, kind, &object).map_err(|error| wrong(&error))?;
            if Some(oid) != self.index.oid(self.entry) {
                return Err(wrong(&format_args!("hashes to {oid}")));
            }
        }
        self.stored = Bytes::new();
        Ok(object.into())
    }

    /// What the delta claims to make must be what the cue says, before memory is set aside for it.
    fn check_delta(&self, bytes: &[u8]) -> Result<(), EngineError> {
        match delta::DeltaHeader::decode(bytes) {
            Ok((header, _)) if header.result_size == self.index.entries.size(self.entry) => Ok(()),
            Ok(_) => Err(self.layer.corrupt(format!(
                "entry {}: the delta's result size is not the cue's",
                self.entry
            ))),
            Err(error) => Err(self.layer.corrupt(format!("entry {}: {error}", self.entry))),
        }
    }
}

/// The kind and inflated bytes of one stored entry, alone.
pub(crate) fn inflate_entry(
    layer: &Layer,
    entry: u32,
    format: cuesta_git::ObjectFormat,
    stored: &[u8],
    inflater: &mut WholeInflater,
) -> Result<(EntryKind, Vec<u8>), EngineError> {
    let wrong = |what: &dyn std::fmt::Display| layer.corrupt(format!("entry {entry}: {what}"));
    let head = stored.get(..ENTRY_HEADER_LEN_MAX).unwrap_or(stored);
    let decoded = EntryHeader::decode(format, head).map_err(|error| wrong(&error))?;
    let (header, len) = decoded.ok_or_else(|| wrong(&"the header is cut short"))?;
    let size = usize::try_from(header.size).map_err(|_| wrong(&"larger than memory"))?;
    let mut content = Vec::new();
    let stream = stored.get(len..).unwrap_or_default();
    inflater
        .inflate(stream, size, &mut content)
        .map_err(|error| wrong(&error))?;
    Ok((header.kind, content))
}
