//! `sparse:oid`: the blobs that stand, somewhere in what is sent, at a path which a sparse specification means.
//!
//! The trees of all commits that are sent are walked with their paths, level by level; one that was met at the same path before
//! is passed over, so that the walk is about as long as there are trees to send.

use super::filter::ObjectFilter;
use super::trees::TREES_AT_ONCE_MAX;
use crate::graph::{Graph, Position, PositionSet};
use crate::{EngineError, View, objects};
use cuesta_git::sparse::{SPARSE_BYTES_MAX, SparsePatterns};
use cuesta_git::wildmatch::Effort;
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind, TreeIter};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Bytes of all paths of directories: a few trees can stand for any number of them.
const PATH_BYTES_MAX: usize = 64 << 20;
/// Steps of matching that one walk may take: about a minute of a processor.
const STEPS_MAX: u64 = 1 << 34;

/// Reads the specifications that a filter names.
pub(super) async fn specifications(
    view: &View,
    filter: &ObjectFilter,
) -> Result<Vec<Arc<SparsePatterns>>, EngineError> {
    let mut found = Vec::new();
    for oid in named(filter) {
        let unreadable = || EngineError::Refused(format!("unable to parse sparse filter data in {oid}"));
        match view.kind_and_size(&oid).await? {
            Some((ObjectKind::Blob, 0..=SPARSE_BYTES_MAX)) => {}
            _ => return Err(unreadable()),
        }
        let (_, content) = view.object(&oid).await?.ok_or_else(unreadable)?;
        found.push(Arc::new(SparsePatterns::parse(&content)));
    }
    Ok(found)
}

fn named(filter: &ObjectFilter) -> Vec<ObjectId> {
    match filter {
        ObjectFilter::Sparse(oid) => vec![*oid],
        ObjectFilter::Combined(parts) => parts.iter().flat_map(named).collect(),
        _ => Vec::new(),
    }
}

/// Where a walk begins, and where it goes.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    /// The root trees of commits.
    pub(super) roots: &'a [Position],
    /// Trees that are wanted by id: as in git nothing is said of them, whatever the patterns.
    pub(super) wanted: &'a [Position],
    /// What is sent; trees outside, and what is below them, the client has. `None` is everything.
    pub(super) sent: Option<&'a Arc<PositionSet>>,
}

/// The blobs that pass all specifications.
pub(super) async fn blobs(
    view: &View,
    graph: &Arc<Graph>,
    specifications: &[Arc<SparsePatterns>],
    ground: Ground<'_>,
) -> Result<HashSet<ObjectId>, EngineError> {
    let mut all: Option<HashSet<ObjectId>> = None;
    for patterns in specifications {
        let mut passed = Walk::run(view, graph, patterns, (ground.roots, true), ground.sent).await?;
        if !ground.wanted.is_empty() {
            passed.extend(Walk::run(view, graph, patterns, (ground.wanted, false), ground.sent).await?);
        }
        all = Some(match all {
            Some(mut before) => {
                before.retain(|oid| passed.contains(oid));
                before
            }
            None => passed,
        });
    }
    Ok(all.unwrap_or_default())
}

/// A walk under way.
struct Walk {
    graph: Arc<Graph>,
    format: ObjectFormat,
    patterns: Arc<SparsePatterns>,
    sent: Option<Arc<PositionSet>>,
    directories: Directories,
    seen: HashSet<(u32, Position)>,
    passed: HashSet<ObjectId>,
    deeper: Vec<Visit>,
    /// Trees met, each at each of its paths, and blobs that pass.
    objects_max: usize,
    effort: Effort,
}

/// A tree at a path.
#[derive(Clone, Copy)]
struct Visit {
    directory: u32,
    tree: Position,
}

/// The paths of directories, and whether what nothing is said of there is in.
struct Directories {
    numbers: HashMap<Arc<[u8]>, u32>,
    known: Vec<(Arc<[u8]>, bool)>,
    bytes: usize,
}

const ROOT: u32 = 0;

impl Walk {
    async fn run(
        view: &View,
        graph: &Arc<Graph>,
        patterns: &Arc<SparsePatterns>,
        (roots, asks_root): (&[Position], bool),
        sent: Option<&Arc<PositionSet>>,
    ) -> Result<HashSet<ObjectId>, EngineError> {
        let mut effort = Effort::steps(STEPS_MAX);
        let root = if asks_root {
            patterns.decide(b"", true, &mut effort).map_err(too_much)?
        } else {
            None
        };
        let mut walk = Self {
            graph: Arc::clone(graph),
            format: view.object_format(),
            patterns: Arc::clone(patterns),
            sent: sent.cloned(),
            directories: Directories::new(root.unwrap_or(false)),
            seen: HashSet::new(),
            passed: HashSet::new(),
            deeper: Vec::new(),
            objects_max: view.world().options.walked_objects_max,
            effort,
        };
        for root in roots {
            walk.meet(ROOT, *root)?;
        }
        loop {
            let level = std::mem::take(&mut walk.deeper);
            if level.is_empty() {
                return Ok(walk.passed);
            }
            for visits in level.chunks(TREES_AT_ONCE_MAX) {
                walk = walk.step(view, visits).await?;
            }
        }
    }

    /// Reads some trees, and looks at what is in them off the reactor.
    async fn step(mut self, view: &View, visits: &[Visit]) -> Result<Self, EngineError> {
        let trees: Vec<Position> = visits.iter().map(|visit| visit.tree).collect();
        let contents = objects::read(view, &objects::locations(&self.graph, &trees)?).await?;
        let visits = visits.to_vec();
        let work = move || {
            for (visit, (kind, content)) in visits.into_iter().zip(contents) {
                let layer = &self.graph.slot(visit.tree.slot)?.layer;
                if kind != ObjectKind::Tree {
                    return Err(layer.corrupt("a tree entry names something else as a tree".to_owned()));
                }
                self.tree(visit, &content)?;
            }
            Ok(self)
        };
        view.world().workers.run(work).await
    }

    fn tree(&mut self, visit: Visit, content: &[u8]) -> Result<(), EngineError> {
        let graph = Arc::clone(&self.graph);
        let corrupt = |what: String| match graph.slot(visit.tree.slot) {
            Ok(slot) => slot.layer.corrupt(what),
            Err(error) => error,
        };
        let (directory, inherited) = self.directories.get(visit.directory)?;
        for entry in TreeIter::new(self.format, content) {
            let entry = entry.map_err(|error| corrupt(format!("entry {}: {error}", visit.tree.entry)))?;
            if entry.mode.is_gitlink() || !entry.mode.is_tree() && self.passed.contains(&entry.oid) {
                continue;
            }
            let path = match directory.is_empty() {
                true => entry.name.to_vec(),
                false => [&directory, &b"/"[..], entry.name].concat(),
            };
            if entry.mode.is_tree() {
                let missing = || corrupt(format!("{} is in no layer of the view", entry.oid));
                let position = graph.locate(&entry.oid).ok_or_else(missing)?;
                let number = self.enter(path, inherited)?;
                self.meet(number, position)?;
            } else if self.decide(&path, false)?.unwrap_or(inherited) {
                self.passed.insert(entry.oid);
                self.check("blobs that a sparse filter lets pass", self.passed.len())?;
            }
        }
        Ok(())
    }

    fn decide(&mut self, path: &[u8], is_directory: bool) -> Result<Option<bool>, EngineError> {
        self.patterns
            .decide(path, is_directory, &mut self.effort)
            .map_err(too_much)
    }

    /// The number of a directory below one where what nothing is said of is in, if `inherited`.
    fn enter(&mut self, path: Vec<u8>, inherited: bool) -> Result<u32, EngineError> {
        if let Some(number) = self.directories.numbers.get(&path[..]) {
            return Ok(*number);
        }
        let is_in = self.decide(&path, true)?.unwrap_or(inherited);
        self.directories.add(path, is_in)
    }

    /// Notes a tree to be looked at, unless it was met at this path before or is not sent.
    fn meet(&mut self, directory: u32, tree: Position) -> Result<(), EngineError> {
        if !self.is_sent(tree)? || !self.seen.insert((directory, tree)) {
            return Ok(());
        }
        self.check("trees that a sparse filter meets", self.seen.len())?;
        self.deeper.push(Visit { directory, tree });
        Ok(())
    }

    fn check(&self, what: &'static str, count: usize) -> Result<(), EngineError> {
        if count > self.objects_max {
            return Err(EngineError::limit(what, self.objects_max as u64));
        }
        Ok(())
    }

    /// Whether any copy of a tree is sent. Cost: a filter probe for each layer that something is sent of.
    fn is_sent(&self, tree: Position) -> Result<bool, EngineError> {
        let Some(sent) = &self.sent else { return Ok(true) };
        if sent.contains(tree) {
            return Ok(true);
        }
        let oid = self.graph.oid(tree)?;
        for (number, bits) in sent.layers() {
            let entry = self.graph.slot(number)?.index.find(&oid);
            if entry.is_some_and(|entry| bits.contains(entry)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Directories {
    fn new(root: bool) -> Self {
        Self {
            numbers: HashMap::new(),
            known: vec![(Arc::from(&b""[..]), root)],
            bytes: 0,
        }
    }

    fn get(&self, number: u32) -> Result<(Arc<[u8]>, bool), EngineError> {
        let found = self.known.get(number as usize).cloned();
        found.ok_or(EngineError::Internal("a directory has no number"))
    }

    fn add(&mut self, path: Vec<u8>, is_in: bool) -> Result<u32, EngineError> {
        self.bytes += path.len();
        let number = u32::try_from(self.known.len())
            .ok()
            .filter(|_| self.bytes <= PATH_BYTES_MAX);
        let number = number.ok_or_else(|| EngineError::limit("bytes of directories' paths", PATH_BYTES_MAX as u64))?;
        let path: Arc<[u8]> = path.into();
        self.numbers.insert(Arc::clone(&path), number);
        self.known.push((path, is_in));
        Ok(number)
    }
}

fn too_much(error: cuesta_git::wildmatch::TooMuchEffort) -> EngineError {
    EngineError::Refused(error.to_string())
}
