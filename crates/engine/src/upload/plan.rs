//! From a request to the exact entries to send.

use super::{
    UploadRequest,
    answers::WholeEntries,
    bases,
    filter::Sieve,
    select::{Selection, Targets},
    sparse,
    trees::Walk,
};
use crate::graph::{Graph, Position, PositionSet, SendSet};
use crate::{EngineError, OffloadedPack, PayloadForm, PayloadId, View};
use cuesta_git::{HiddenRefs, ObjectId, ObjectKind};
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
    /// Layers left to be fetched by URI.
    offloaded: Vec<u32>,
    /// Objects left to be fetched by URIs of their own.
    left_out: Vec<ObjectId>,
    /// Objects that were met in walks down trees.
    walked: u64,
    /// Whole objects of a kept answer, to be taken from there.
    pub(super) whole: Option<Arc<WholeEntries>>,
}

/// Plans the pack for a request: ancestors(wants) − ancestors(common) down to its boundary and what else the wants lead to,
/// less what its filter leaves out.
///
/// A pack may hold objects that the client has already, for segments are not split; it never lacks one it needs. Errors:
/// [`EngineError::NotOurRef`] for a want the view does not have, [`EngineError::Unsupported`], [`EngineError::Limit`].
pub async fn plan(view: &View, request: &UploadRequest) -> Result<Plan, EngineError> {
    plan_beside(view, request, None).await
}

/// The same; what a kept answer has whole is taken from there.
pub(super) async fn plan_beside(
    view: &View,
    request: &UploadRequest,
    whole: Option<Arc<WholeEntries>>,
) -> Result<Plan, EngineError> {
    let sieve = Sieve::of(&request.filter);
    let wants_max = view.world().options.wants_max;
    if request.wants.len() > wants_max {
        return Err(EngineError::limit("wants", wants_max as u64));
    }
    let graph = view.graph().await?;
    let wants = Wants::resolve(view, &graph, &request.wants, &sieve).await?;
    let draft = Draft {
        view: view.clone(),
        graph,
        request: request.clone(),
        wants,
        sieve,
        whole,
    };
    let cuts = request.boundary.as_ref().is_some_and(|boundary| boundary.cuts());
    let (draft, walked) = if cuts || sieve.tree_levels().is_some() || sieve.is_sparse() {
        let (draft, walked) = draft.walk().await?;
        (draft, Some(walked))
    } else {
        (draft, None)
    };
    view.world().workers.run(move || draft.finish(walked)).await
}

impl Plan {
    /// Objects the pack will hold.
    pub fn object_count(&self) -> u32 {
        self.objects
    }

    /// Bytes that sending the pack goes through, at most: the entries as they are stored, and the contents of those that are
    /// made anew. Cost: a look at each entry.
    pub fn bytes(&self) -> u64 {
        let entries = |position: Position| Some(&self.graph.slot(position.slot).ok()?.index.entries);
        let stored = |position: Position| entries(position).map_or(0..0, |entries| entries.range(position.entry));
        let copied = self.copied.iter().map(stored).map(|range| range.end - range.start);
        let size = |position: Position| entries(position).map_or(0, |entries| entries.size(position.entry));
        copied.chain(self.rebuilt.iter().map(size)).fold(0, u64::saturating_add)
    }

    /// The packs that the client must fetch beside this one. Cost: a ranged read for each, of its checksum.
    pub async fn offloaded(&self) -> Result<Vec<OffloadedPack>, EngineError> {
        let mut packs = Vec::with_capacity(self.offloaded.len());
        for &slot in &self.offloaded {
            let layer = &self.graph.slot(slot)?.layer;
            let (meta, format) = (layer.meta(), self.view.object_format());
            let start = meta.pack_bytes.saturating_sub(format.width() as u64);
            let trailer = layer.scan(start..meta.pack_bytes).await?;
            let checksum = ObjectId::from_bytes(format, &trailer);
            packs.push(OffloadedPack {
                id: PayloadId::of(meta, PayloadForm::Pack),
                checksum: checksum.map_err(|_| layer.corrupt("the pack is shorter than its checksum"))?,
            });
        }
        Ok(packs)
    }

    /// Those of [`UploadRequest::left_out`] that the pack would hold.
    pub fn left_out(&self) -> &[ObjectId] {
        &self.left_out
    }

    /// Objects that must be inflated and deflated again; the others are copied.
    pub fn rebuilt_count(&self) -> u64 {
        self.rebuilt.count()
    }

    /// What it takes to make the pack besides copying, about, in bytes that are inflated and deflated: the contents of what is
    /// sent other than as it is stored, and something for each object that walks have met.
    pub(super) fn effort_bytes(&self) -> u64 {
        const WALKED_BYTES: u64 = 128;
        let size = |position: Position| {
            let slot = self.graph.slot(position.slot);
            slot.map_or(0, |slot| slot.index.entries.size(position.entry))
        };
        let walked = self.walked.saturating_mul(WALKED_BYTES);
        self.rebuilt.iter().map(size).fold(walked, u64::saturating_add)
    }

    /// Where the bases of deltas lie.
    pub(super) fn contents(&self) -> bases::Contents<'_> {
        bases::Contents {
            graph: &self.graph,
            sets: [&self.copied, &self.rebuilt],
        }
    }

    /// The one layer whose pack is, byte for byte, the answer. None is that lies in the ledger: it has no trailer.
    pub(super) fn whole_layer(&self) -> Option<u32> {
        let mut layers = self.copied.layers().filter(|(_, bits)| !bits.is_empty());
        let (slot, bits) = layers.next()?;
        let layer = self.graph.layer(slot)?;
        let meta = layer.meta();
        let whole = layers.next().is_none() && !layer.is_inline() && meta.self_contained && self.ofs_delta;
        (whole && self.rebuilt.count() == 0 && bits.count() == u64::from(meta.objects)).then_some(slot)
    }
}

/// The wants, followed to what they lead to.
struct Wants {
    targets: Targets,
    /// The wants themselves, and what those that are tags come down to: sent in spite of a filter, as in git.
    explicit: Vec<Position>,
    /// Root sets, as (slot, root).
    roots: Vec<(u32, u32)>,
    /// Trees that no root set stands for, and all below them.
    walked: HashSet<Position>,
}

impl Wants {
    async fn resolve(view: &View, graph: &Graph, oids: &[ObjectId], sieve: &Sieve) -> Result<Self, EngineError> {
        let mut targets = Targets::default();
        for oid in oids {
            if !targets.add(graph, oid)? {
                return Err(EngineError::NotOurRef(*oid));
            }
        }
        let explicit = [&targets.commits, &targets.tags, &targets.trees, &targets.blobs];
        let explicit = explicit.into_iter().flatten().copied().collect();
        let (mut roots, mut loose) = (Vec::new(), Vec::new());
        for &tree in &targets.trees {
            match root_set(graph, &graph.oid(tree)?)? {
                Some(root) => roots.push(root),
                None => loose.push(tree),
            }
        }
        let walked = walk(sieve).below(view, graph, &loose).await?;
        Ok(Self {
            targets,
            explicit,
            roots,
            walked,
        })
    }
}

/// A walk down trees that leaves out what the sieve would drop.
fn walk(sieve: &Sieve) -> Walk<'static> {
    let blobs = sieve.takes(ObjectKind::Blob);
    Walk {
        levels: (!blobs && !sieve.takes(ObjectKind::Tree)).then_some(0),
        blobs,
        ..Walk::WHOLE
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

/// The commits to send.
struct Commits {
    send: SendSet,
    /// Those whose whole trees are to be sent.
    whole: Vec<Position>,
    /// What the client said it has.
    common: Targets,
}

impl Commits {
    fn find(graph: &Graph, request: &UploadRequest, wants: &[Position]) -> Result<Self, EngineError> {
        let mut common = Targets::default();
        for oid in &request.common {
            common.add(graph, oid)?;
        }
        let (send, whole) = match request.boundary.as_deref().filter(|boundary| boundary.cuts()) {
            None => (graph.send_set(wants, &common.commits)?, Vec::new()),
            Some(boundary) => {
                let cut = boundary.send_set(graph, wants, &common.commits)?;
                (cut.commits, cut.whole)
            }
        };
        Ok(Self { send, whole, common })
    }
}

/// Commits of the client whose trees are compared with those that are sent whole.
const COMPARED_COMMITS_MAX: usize = 8;

/// The trees of the commits that are sent whole, but for what the client has in some of its latest commits.
async fn whole_trees(
    view: &View,
    graph: &Graph,
    commits: &Commits,
    walk: Walk<'_>,
) -> Result<HashSet<Position>, EngineError> {
    let mut latest = commits.common.commits.clone();
    latest.sort_unstable_by_key(|commit| std::cmp::Reverse((graph.generation(*commit), *commit)));
    latest.dedup();
    latest.truncate(if commits.whole.is_empty() {
        0
    } else {
        COMPARED_COMMITS_MAX
    });
    let had = walk.below(view, graph, &root_trees(graph, latest)?).await?;
    let walk = Walk {
        known: Some(&had),
        ..walk
    };
    let roots = root_trees(graph, commits.whole.iter().copied())?;
    walk.below(view, graph, &roots).await
}

/// Where the root trees of `commits` are.
fn root_trees(graph: &Graph, commits: impl IntoIterator<Item = Position>) -> Result<Vec<Position>, EngineError> {
    let mut roots = HashSet::new();
    let mut order = Vec::new();
    for commit in commits {
        let slot = graph.slot(commit.slot)?;
        let missing = || slot.layer.corrupt("a root tree is in no layer of the view");
        let tree = slot.history.segments.root_tree(commit.entry);
        let root = graph.locate(&tree).ok_or_else(missing)?;
        if roots.insert(root) {
            order.push(root);
        }
    }
    Ok(order)
}

/// The ids of trees and blobs that are fewer than `levels` levels below the root trees of `send`, or below a wanted tree.
async fn upper_levels(
    view: &View,
    graph: &Graph,
    (commits, trees): (&PositionSet, &[Position]),
    (levels, walk): (u64, Walk<'_>),
) -> Result<HashSet<ObjectId>, EngineError> {
    let walk = Walk {
        levels: Some(levels),
        ..walk
    };
    let mut upper = walk.below(view, graph, &root_trees(graph, commits.iter())?).await?;
    // The wanted tree does not count as a level: what it holds is at 0.
    let below = Walk {
        levels: Some(levels.saturating_add(1)),
        ..walk
    };
    upper.extend(below.below(view, graph, trees).await?);
    upper.into_iter().map(|position| graph.oid(position)).collect()
}

/// The part of planning that is computing only.
struct Draft {
    view: View,
    graph: Arc<Graph>,
    request: UploadRequest,
    wants: Wants,
    sieve: Sieve,
    whole: Option<Arc<WholeEntries>>,
}

/// What a boundary or a filter adds to a draft.
struct Walked {
    commits: Commits,
    /// The trees of commits that are sent whole.
    whole: HashSet<Position>,
    /// All trees and blobs that may be sent, if the filter looks at how deep they are.
    levels: Option<HashSet<ObjectId>>,
    /// The blobs that may be sent, if the filter looks at their paths.
    blobs: Option<HashSet<ObjectId>>,
}

impl Draft {
    /// For plans that depend on what trees hold: finds the commits, then reads what trees it takes.
    async fn walk(self) -> Result<(Self, Walked), EngineError> {
        let workers = self.view.world().workers.clone();
        let find = move || {
            let commits = Commits::find(&self.graph, &self.request, &self.wants.targets.commits)?;
            Ok::<_, EngineError>((self, commits))
        };
        let (mut draft, commits) = workers.run(find).await?;
        let (view, graph, sieve) = (&draft.view, &draft.graph, &draft.sieve);
        let walk = Walk {
            whole: draft.whole.as_ref(),
            ..walk(sieve)
        };
        let whole = whole_trees(view, graph, &commits, walk).await?;
        let levels = match sieve.tree_levels() {
            Some(levels) => {
                let roots = (&commits.send.send, draft.wants.targets.trees.as_slice());
                Some(upper_levels(view, graph, roots, (levels, walk)).await?)
            }
            None => None,
        };
        let mut walked = Walked {
            commits,
            whole,
            levels,
            blobs: None,
        };
        if sieve.is_sparse() {
            (draft, walked) = draft.walk_paths(walked).await?;
        }
        Ok((draft, walked))
    }

    /// Finds out which blobs stand where the filter wants them.
    async fn walk_paths(self, walked: Walked) -> Result<(Self, Walked), EngineError> {
        let specifications = sparse::specifications(&self.view, &self.request.filter).await?;
        let workers = self.view.world().workers.clone();
        let select = move || {
            let sent = match self.request.common.is_empty() {
                true => None,
                false => Some(Arc::new(self.select(&walked)?.into_entries())),
            };
            let roots = root_trees(&self.graph, walked.commits.send.send.iter())?;
            Ok::<_, EngineError>((self, walked, sent, roots))
        };
        let (draft, mut walked, sent, roots) = workers.run(select).await?;
        let ground = sparse::Ground {
            roots: &roots,
            wanted: &draft.wants.targets.trees,
            sent: sent.as_ref(),
        };
        walked.blobs = Some(sparse::blobs(&draft.view, &draft.graph, &specifications, ground).await?);
        Ok((draft, walked))
    }

    /// All that is wanted, the client does not have and its boundary lets be.
    fn select(&self, walked: &Walked) -> Result<Selection<'_>, EngineError> {
        let wants = &self.wants;
        let mut selection = Selection::new(&self.graph);
        selection.add_commits(&walked.commits.send.send, &walked.commits.whole)?;
        for (slot, root) in &wants.roots {
            selection.add_root(*slot, *root)?;
        }
        for position in wants.walked.iter().chain(&wants.targets.blobs).chain(&walked.whole) {
            selection.add(*position)?;
        }
        Ok(selection)
    }

    fn finish(self, walked: Option<Walked>) -> Result<Plan, EngineError> {
        let walked = match walked {
            Some(walked) => walked,
            None => Walked {
                commits: Commits::find(&self.graph, &self.request, &self.wants.targets.commits)?,
                whole: HashSet::new(),
                levels: None,
                blobs: None,
            },
        };
        let entries = self.select(&walked)?.into_entries();
        let Self {
            view,
            graph,
            request,
            wants,
            sieve,
            whole,
        } = self;
        let mut selection = Selection::of(&graph, entries);
        let seen = [
            Some(wants.walked.len()),
            Some(walked.whole.len()),
            walked.levels.as_ref().map(HashSet::len),
        ];
        let seen = seen
            .into_iter()
            .flatten()
            .fold(0u64, |all, seen| all.saturating_add(seen as u64));
        let Commits { send, common, .. } = walked.commits;
        let had_tags: HashSet<Position> = common.tags.into_iter().collect();
        let mut tags = wants.targets.tags;
        if !sieve.is_open() {
            selection.sift(&sieve, walked.levels.as_ref(), walked.blobs.as_ref())?;
            for position in wants.explicit {
                selection.add(position)?;
            }
        }
        if request.include_tag {
            tags.append(&mut tags_of(&view, &graph, &selection, &request.hidden)?);
        }
        for tag in tags.into_iter().filter(|tag| !had_tags.contains(tag)) {
            selection.add(tag)?;
        }
        let cuts = request.boundary.is_some_and(|boundary| boundary.cuts());
        let offload = request.offload.filter(|_| !cuts && sieve.is_open());
        let offloaded = offload.map_or(Ok(Vec::new()), |offload| offload.choose(&graph, &selection))?;
        if !offloaded.is_empty() {
            selection.leave_out(&offloaded)?;
        }
        let left_out = selection.leave_out_objects(&request.left_out)?;
        let mut copied = selection.finish()?;
        let client = bases::Client {
            send: &send,
            common: if cuts { &[] } else { &common.commits },
            // What a filter leaves out now it left out before.
            thin: request.thin && sieve.is_open(),
            ofs_delta: request.ofs_delta,
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
            offloaded,
            left_out,
            walked: seen,
            whole,
        })
    }
}

/// Annotated tags below `refs/tags/`, of refs that are shown, of what is selected, with the tags they go through.
fn tags_of(
    view: &View,
    graph: &Graph,
    selection: &Selection<'_>,
    hidden: &HiddenRefs,
) -> Result<Vec<Position>, EngineError> {
    let mut tags = Targets::default();
    for (tag, peeled) in shown_tags(view, hidden) {
        if graph
            .locate(&peeled)
            .is_some_and(|position| selection.contains(position))
        {
            tags.add(graph, &tag)?;
        }
    }
    Ok(tags.tags)
}

/// The annotated tags below `refs/tags/`, of refs that are shown, each with what it comes down to.
pub(super) fn shown_tags(view: &View, hidden: &HiddenRefs) -> impl Iterator<Item = (ObjectId, ObjectId)> {
    const TAGS: &[u8] = b"refs/tags/";
    let refs = view
        .state()
        .refs()
        .range::<_, [u8]>((std::ops::Bound::Included(TAGS), std::ops::Bound::Unbounded));
    let shown = refs
        .take_while(|(name, _)| name.as_bytes().starts_with(TAGS))
        .filter(|(name, _)| !hidden.hides(name));
    shown.filter_map(|(_, target)| Some((target.oid, target.peeled?)))
}
