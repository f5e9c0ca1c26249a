//! From a request to the exact entries to send.

use super::{
    UploadRequest, bases,
    select::{Selection, Targets},
    trees,
};
use crate::graph::{Graph, Position, PositionSet};
use crate::{EngineError, View};
use cuesta_git::ObjectId;
use std::collections::HashSet;
use std::sync::Arc;

/// What a pack will hold. The count is final before the first byte is sent.
pub struct Plan {
    pub(super) view: View,
    pub(super) graph: Arc<Graph>,
    /// Entries sent as they are stored, but for the distance or name of a delta's base.
    pub(super) copied: PositionSet,
    /// Entries sent as whole objects, because the client would not find their delta's base.
    pub(super) rebuilt: PositionSet,
    pub(super) ofs_delta: bool,
    /// Bases that could be given by distance must be, whatever the stored header says: see `bases`.
    pub(super) distances_only: bool,
    objects: u32,
}

/// Plans the pack for a request: ancestors(wants) − ancestors(common) and what else the wants lead to.
///
/// A pack may hold objects that the client has already, for segments are not split; it never lacks one it needs. Errors:
/// [`EngineError::NotOurRef`] for a want the view does not have, [`EngineError::Unsupported`], [`EngineError::Limit`].
pub async fn plan(view: &View, request: &UploadRequest) -> Result<Plan, EngineError> {
    request.check_supported()?;
    let wants_max = view.world().options.wants_max;
    if request.wants.len() > wants_max {
        return Err(EngineError::limit("wants", wants_max as u64));
    }
    let graph = view.graph().await?;
    let wants = Wants::resolve(view, &graph, &request.wants).await?;
    let draft = Draft {
        view: view.clone(),
        graph,
        request: request.clone(),
        wants,
    };
    view.world().workers.run(move || draft.finish()).await
}

impl Plan {
    /// Objects the pack will hold.
    pub fn object_count(&self) -> u32 {
        self.objects
    }

    /// Objects that must be inflated and deflated again; the others are copied.
    pub fn rebuilt_count(&self) -> u64 {
        self.rebuilt.count()
    }

    /// Where the bases of deltas lie.
    pub(super) fn contents(&self) -> bases::Contents<'_> {
        bases::Contents {
            graph: &self.graph,
            sets: [&self.copied, &self.rebuilt],
        }
    }

    /// The one layer whose pack is, byte for byte, the answer.
    pub(super) fn whole_layer(&self) -> Option<u32> {
        let mut layers = self.copied.layers().filter(|(_, bits)| !bits.is_empty());
        let (slot, bits) = layers.next()?;
        let meta = self.graph.layer(slot)?.meta();
        let whole = layers.next().is_none() && meta.self_contained && self.ofs_delta;
        (whole && self.rebuilt.count() == 0 && bits.count() == u64::from(meta.objects)).then_some(slot)
    }
}

/// The wants, followed to what they lead to.
struct Wants {
    targets: Targets,
    /// Root sets, as (slot, root).
    roots: Vec<(u32, u32)>,
    /// Trees that no root set stands for, and all below them.
    walked: Vec<Position>,
}

impl Wants {
    async fn resolve(view: &View, graph: &Graph, oids: &[ObjectId]) -> Result<Self, EngineError> {
        let mut targets = Targets::default();
        for oid in oids {
            if !targets.add(graph, oid)? {
                return Err(EngineError::NotOurRef(*oid));
            }
        }
        let (mut roots, mut loose) = (Vec::new(), Vec::new());
        for &tree in &targets.trees {
            match root_set(graph, &graph.oid(tree)?)? {
                Some(root) => roots.push(root),
                None => loose.push(tree),
            }
        }
        let walked = trees::closure(view, graph, &loose).await?;
        Ok(Self { targets, roots, walked })
    }
}

/// The root set of a tree, as (slot, root), if a layer keeps one.
fn root_set(graph: &Graph, oid: &ObjectId) -> Result<Option<(u32, u32)>, EngineError> {
    for number in 0..graph.slot_count() {
        let roots = &graph.slot(number)?.history.roots;
        if let Some(root) = (0..roots.len()).find(|root| roots.oid(*root) == *oid) {
            return Ok(Some((number, root)));
        }
    }
    Ok(None)
}

/// The part of planning that is computing only.
struct Draft {
    view: View,
    graph: Arc<Graph>,
    request: UploadRequest,
    wants: Wants,
}

impl Draft {
    fn finish(self) -> Result<Plan, EngineError> {
        let Self {
            view,
            graph,
            request,
            wants,
        } = self;
        let mut common = Targets::default();
        for oid in &request.common {
            common.add(&graph, oid)?;
        }
        let send = graph.send_set(&wants.targets.commits, &common.commits)?;
        let had_tags: HashSet<Position> = common.tags.into_iter().collect();
        let mut selection = Selection::new(&graph);
        selection.add_commits(&send.send)?;
        for (slot, root) in wants.roots {
            selection.add_root(slot, root)?;
        }
        for position in wants.walked.into_iter().chain(wants.targets.blobs) {
            selection.add(position)?;
        }
        let mut tags = wants.targets.tags;
        if request.include_tag {
            tags.append(&mut tags_of(&view, &graph, &selection)?);
        }
        for tag in tags.into_iter().filter(|tag| !had_tags.contains(tag)) {
            selection.add(tag)?;
        }
        let mut copied = selection.finish()?;
        let (thin, ofs_delta) = (request.thin, request.ofs_delta);
        let client = bases::Client {
            send: &send,
            common: &common.commits,
            thin,
            ofs_delta,
        };
        let (rebuilt, distances_only) = bases::to_rebuild(&graph, &copied, &client)?;
        let objects = copied.count();
        let objects = u32::try_from(objects).map_err(|_| EngineError::limit("objects in a pack", u32::MAX.into()))?;
        for position in rebuilt.iter() {
            copied.remove(position);
        }
        Ok(Plan {
            view,
            graph,
            copied,
            rebuilt,
            ofs_delta: request.ofs_delta,
            distances_only,
            objects,
        })
    }
}

/// Annotated tags below `refs/tags/` of what is selected, with the tags they go through.
fn tags_of(view: &View, graph: &Graph, selection: &Selection<'_>) -> Result<Vec<Position>, EngineError> {
    const TAGS: &[u8] = b"refs/tags/";
    let mut tags = Targets::default();
    let refs = view
        .state()
        .refs()
        .range::<_, [u8]>((std::ops::Bound::Included(TAGS), std::ops::Bound::Unbounded));
    for (_, target) in refs.take_while(|(name, _)| name.as_bytes().starts_with(TAGS)) {
        let Some(position) = target.peeled.and_then(|peeled| graph.locate(&peeled)) else {
            continue;
        };
        if selection.contains(position) {
            tags.add(graph, &target.oid)?;
        }
    }
    Ok(tags.tags)
}
