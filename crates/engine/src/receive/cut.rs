//! Segments cut: what each new commit adds, found by one walk of its tree beside its parents' trees (DESIGN, Layers).
//!
//! The walk goes level by level and never into trees that are equal; so it costs what the change costs. It is also the
//! check of connectivity: whatever a commit names that its parents do not must be in the push or in the repository.

use super::differ::{self, Changed, Gone};
use super::entries::{Entries, Index};
use super::error::IntakeError;
use super::inspect::CommitRow;
use super::known::Known;
use super::order::{Order, Parent};
use super::trees::{Tree, Trees};
use cuesta_format::Link;
use cuesta_git::{ObjectId, ObjectKind};
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// Levels of trees that a commit may have (git's `core.maxTreeDepth`).
pub(super) const TREE_DEPTH_MAX: usize = 2048;
/// Trees that are asked for, and held, at once.
const TREES_BATCH: usize = 256;
/// Sets that grew larger are made anew instead of cleared, which would cost their size each time.
const SET_KEPT_MAX: usize = 4096;

/// What segments are made of.
#[derive(Default)]
pub(crate) struct Cut {
    /// In the order of the commits.
    pub(crate) segments: Vec<Set>,
    /// After them: trees and blobs that refs or tags point at.
    pub(crate) roots: Vec<(ObjectId, ObjectKind, Set)>,
    /// Trees that the sets add, back to back, as entries of the push.
    pub(crate) trees: Vec<u32>,
    /// Blobs likewise.
    pub(crate) blobs: Vec<u32>,
    /// What sets name without adding it, back to back; `Local` are entries of the push.
    pub(crate) links: Vec<Link>,
    /// Objects of the repository that are named.
    pub(crate) externals: Vec<ObjectId>,
    /// Generations of the commits.
    pub(crate) generations: Vec<u32>,
    /// Commits, by their place in the order, whose closure is not complete.
    pub(crate) broken: Vec<u32>,
}

/// Where a set's runs and links end; they start where those of the set before end.
#[derive(Clone, Copy, Default)]
pub(crate) struct Set {
    pub(crate) trees_end: u32,
    pub(crate) blobs_end: u32,
    pub(crate) links_end: u32,
}

/// What a cut works on.
pub(crate) struct Context<'a> {
    pub(crate) entries: &'a Entries,
    pub(crate) index: &'a Index,
    pub(crate) rows: &'a [CommitRow],
    pub(crate) known: &'a dyn Known,
}

type OidMap<V> = HashMap<ObjectId, V, BuildHasherDefault<Spread>>;
type OidSet = HashSet<ObjectId, BuildHasherDefault<Spread>>;

/// Ids are spread already; see [`super::entries::spread`].
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk::<8>() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    fn write_usize(&mut self, _len: usize) {}

    fn write_isize(&mut self, _discriminant: isize) {}
}

/// Cuts one commit after another.
pub(crate) struct Cutter<'a> {
    context: Context<'a>,
    trees: Trees<'a>,
    cut: Cut,
    /// For each entry the last set that named it, counted from 1, or [`OWN`] beside it; 0 for none.
    named_by: Vec<u32>,
    /// The same for each external.
    external_named_by: Vec<u32>,
    external_index: OidMap<u32>,
    walk: Walk,
}

/// What one commit's walk has met.
#[derive(Default)]
struct Walk {
    /// Objects named on the parents' side of trees that differ, and whether they are trees.
    seen: OidMap<bool>,
    /// Trees of the commit that were walked: each at most once, by whatever paths it is reached.
    walked: OidSet,
    /// What may be new, in the order of the walk.
    candidates: Vec<Candidate>,
    /// Ids of those that are not in the push.
    outside: Vec<ObjectId>,
    paired: Vec<Job>,
    added: Vec<ObjectId>,
    gone: Vec<ObjectId>,
}

/// An object that a tree names: of many a push, each has its turn here.
#[derive(Clone, Copy)]
struct Candidate {
    /// Its entry, or its number among those outside the push.
    at: u32,
    is_outside: bool,
    is_tree: bool,
}

/// A tree to be walked beside the parents' trees of the same path.
struct Job {
    tree: ObjectId,
    pairs: SmallVec<[ObjectId; 1]>,
}

/// A commit's closure is not complete.
struct Broken;

type Walked<T> = Result<Result<T, Broken>, IntakeError>;

impl<'a> Cutter<'a> {
    pub(crate) fn new(context: Context<'a>, trees: Trees<'a>) -> Self {
        let named_by = vec![0; context.entries.len() as usize];
        Self {
            context,
            trees,
            cut: Cut::default(),
            named_by,
            external_named_by: Vec::new(),
            external_index: OidMap::default(),
            walk: Walk::default(),
        }
    }

    /// Cuts all commits of an order.
    pub(crate) fn commits(&mut self, order: &Order) -> Result<(), IntakeError> {
        for place in 0..order.commits.len() {
            self.commit(order, place)?;
        }
        Ok(())
    }

    /// Cuts the set of a tree or blob that a ref or tag points at; answers whether its closure is complete.
    pub(crate) fn root(&mut self, oid: &ObjectId, kind: ObjectKind) -> Result<bool, IntakeError> {
        self.walk.reset();
        let is_tree = kind == ObjectKind::Tree;
        self.walk.candidate(&self.context, oid, is_tree);
        if is_tree {
            self.walk.added.push(*oid);
        }
        let complete = match self.walk_added()? {
            Ok(()) => self.assign()?.is_ok(),
            Err(Broken) => false,
        };
        let set = self.ends();
        self.cut.roots.push((*oid, kind, set));
        Ok(complete)
    }

    /// The index of an object of the repository.
    pub(crate) fn external(&mut self, oid: &ObjectId) -> u32 {
        let new = u32::try_from(self.cut.externals.len()).unwrap_or(u32::MAX);
        let index = *self.external_index.entry(*oid).or_insert(new);
        if index == new {
            self.cut.externals.push(*oid);
            self.external_named_by.push(0);
        }
        index
    }

    pub(crate) fn finish(self) -> Cut {
        self.cut
    }

    fn commit(&mut self, order: &Order, place: usize) -> Result<(), IntakeError> {
        let ordered = order
            .commits
            .get(place)
            .ok_or(IntakeError::Internal("a place outside the order"))?;
        let row = self
            .context
            .rows
            .get(ordered.row as usize)
            .ok_or(IntakeError::Internal("a commit without row"))?;
        let mut generation = 0;
        let mut parent_trees: SmallVec<[ObjectId; 2]> = SmallVec::new();
        let mut broken = ordered.broken;
        for parent in order.parents(place) {
            let (parent_generation, tree) = self.parent(order, *parent);
            generation = generation.max(parent_generation);
            parent_trees.extend(tree);
            broken |= matches!(parent, Parent::New(parent) if self.cut.broken.binary_search(parent).is_ok());
        }
        self.cut.generations.push(generation.saturating_add(1));
        if broken || self.walk_commit(&row.commit.tree, &parent_trees)?.is_err() {
            self.cut.broken.push(u32::try_from(place).unwrap_or(u32::MAX));
        }
        let set = self.ends();
        self.cut.segments.push(set);
        Ok(())
    }

    /// Generation and tree of a parent.
    fn parent(&self, order: &Order, parent: Parent) -> (u32, Option<ObjectId>) {
        match parent {
            Parent::New(place) => {
                let place = place as usize;
                let row = order
                    .commits
                    .get(place)
                    .and_then(|commit| self.context.rows.get(commit.row as usize));
                (
                    self.cut.generations.get(place).copied().unwrap_or(0),
                    row.map(|row| row.commit.tree),
                )
            }
            Parent::Outside(index) => match order.outside.get(index as usize) {
                Some((_, commit)) => (commit.generation, Some(commit.tree)),
                None => (0, None),
            },
        }
    }

    fn walk_commit(&mut self, tree: &ObjectId, parent_trees: &[ObjectId]) -> Walked<()> {
        if parent_trees.contains(tree) {
            return Ok(Ok(()));
        }
        self.walk.reset();
        self.walk.candidate(&self.context, tree, true);
        for parent in parent_trees {
            self.walk.seen.insert(*parent, true);
        }
        if parent_trees.is_empty() {
            self.walk.added.push(*tree);
        } else {
            self.walk.walked.insert(*tree);
            self.walk.paired.push(Job {
                tree: *tree,
                pairs: parent_trees.into(),
            });
        }
        if let Err(broken) = self.walk_paired()? {
            return Ok(Err(broken));
        }
        if !self.walk.added.is_empty() {
            self.walk_gone()?;
        }
        if let Err(broken) = self.walk_added()? {
            return Ok(Err(broken));
        }
        self.assign()
    }

    /// Walks trees beside the parents' trees of the same paths.
    fn walk_paired(&mut self) -> Walked<()> {
        for _ in 0..=TREE_DEPTH_MAX {
            let jobs = std::mem::take(&mut self.walk.paired);
            if jobs.is_empty() {
                return Ok(Ok(()));
            }
            for jobs in jobs.chunks(TREES_BATCH) {
                if let Err(broken) = self.walk_jobs(jobs)? {
                    return Ok(Err(broken));
                }
            }
        }
        Ok(Err(Broken))
    }

    fn walk_jobs(&mut self, jobs: &[Job]) -> Walked<()> {
        let wanted: Vec<ObjectId> = jobs
            .iter()
            .flat_map(|job| std::iter::once(job.tree).chain(job.pairs.iter().copied()))
            .collect();
        let mut loaded = self.trees.load(&wanted)?.into_iter();
        for job in jobs {
            let Some(tree) = loaded.next().flatten() else {
                return Ok(Err(Broken));
            };
            let old: SmallVec<[Arc<Tree>; 2]> = loaded.by_ref().take(job.pairs.len()).flatten().collect();
            self.walk.beside(&self.context, &tree, &old);
        }
        Ok(Ok(()))
    }

    /// Walks trees that only the parents have, for the sake of objects that moved from there.
    fn walk_gone(&mut self) -> Result<(), IntakeError> {
        for _ in 0..=TREE_DEPTH_MAX {
            let gone = std::mem::take(&mut self.walk.gone);
            if gone.is_empty() {
                break;
            }
            for batch in gone.chunks(TREES_BATCH) {
                let trees = self.trees.load(batch)?;
                trees.into_iter().flatten().for_each(|tree| self.walk.gone_tree(&tree));
            }
        }
        Ok(())
    }

    /// Walks trees that have no tree of the same path among the parents'.
    fn walk_added(&mut self) -> Walked<()> {
        for _ in 0..=TREE_DEPTH_MAX {
            let mut added = std::mem::take(&mut self.walk.added);
            let walk = &mut self.walk;
            added.retain(|oid| walk.seen.get(oid) != Some(&true) && walk.walked.insert(*oid));
            if added.is_empty() {
                return Ok(Ok(()));
            }
            for batch in added.chunks(TREES_BATCH) {
                for tree in self.trees.load(batch)? {
                    let Some(tree) = tree else {
                        return Ok(Err(Broken));
                    };
                    self.walk.beside(&self.context, &tree, &[]);
                }
            }
        }
        Ok(Err(Broken))
    }

    /// Gives each candidate to this set, or links it; all must exist and be of the kind that their tree says.
    fn assign(&mut self) -> Walked<()> {
        let set = u32::try_from(self.cut.segments.len() + self.cut.roots.len() + 1).unwrap_or(u32::MAX);
        let candidates = std::mem::take(&mut self.walk.candidates);
        let mut outside: Vec<(ObjectId, bool)> = Vec::new();
        for Candidate {
            at,
            is_outside,
            is_tree,
        } in candidates.iter().copied()
        {
            let entries = self.context.entries;
            let oid = match is_outside {
                true => self.walk.outside.get(at as usize).copied(),
                false => Some(entries.oid(at)),
            };
            let oid = oid.ok_or(IntakeError::Internal("a candidate without id"))?;
            match self.walk.seen.get(&oid) {
                Some(seen_as_tree) if *seen_as_tree == is_tree => continue,
                Some(_) => return Ok(Err(Broken)),
                None if is_outside => outside.push((oid, is_tree)),
                None if entries.kind(at) != Some(kind(is_tree)) => return Ok(Err(Broken)),
                None if entries.is_known(at) => self.link_external(&oid, set),
                None => self.name(at, is_tree, set),
            }
        }
        self.walk.candidates = candidates;
        self.assign_outside(&outside, set)
    }

    fn name(&mut self, entry: u32, is_tree: bool, set: u32) {
        let Some(named_by) = self.named_by.get_mut(entry as usize) else {
            return;
        };
        match *named_by {
            0 if is_tree => self.cut.trees.push(entry),
            0 => self.cut.blobs.push(entry),
            last if last == set => return,
            _ => self.cut.links.push(Link::Local(entry)),
        }
        *named_by = set;
    }

    fn assign_outside(&mut self, outside: &[(ObjectId, bool)], set: u32) -> Walked<()> {
        if outside.is_empty() {
            return Ok(Ok(()));
        }
        let oids: Vec<ObjectId> = outside.iter().map(|(oid, _)| *oid).collect();
        let described = self.context.known.describe(&oids)?;
        for ((oid, is_tree), described) in outside.iter().zip(described) {
            if described.is_none_or(|described| described.kind != kind(*is_tree)) {
                return Ok(Err(Broken));
            }
            self.link_external(oid, set);
        }
        Ok(Ok(()))
    }

    fn link_external(&mut self, oid: &ObjectId, set: u32) {
        let external = self.external(oid);
        if let Some(named_by) = self
            .external_named_by
            .get_mut(external as usize)
            .filter(|named_by| **named_by != set)
        {
            *named_by = set;
            self.cut.links.push(Link::External(external));
        }
    }

    fn ends(&self) -> Set {
        let end = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        Set {
            trees_end: end(self.cut.trees.len()),
            blobs_end: end(self.cut.blobs.len()),
            links_end: end(self.cut.links.len()),
        }
    }
}

fn kind(is_tree: bool) -> ObjectKind {
    if is_tree { ObjectKind::Tree } else { ObjectKind::Blob }
}

impl Walk {
    fn reset(&mut self) {
        if self.seen.capacity() > SET_KEPT_MAX {
            self.seen = OidMap::default();
        }
        if self.walked.capacity() > SET_KEPT_MAX {
            self.walked = OidSet::default();
        }
        self.seen.clear();
        self.walked.clear();
        self.candidates.clear();
        self.outside.clear();
        self.paired.clear();
        self.added.clear();
        self.gone.clear();
    }

    fn candidate(&mut self, context: &Context<'_>, oid: &ObjectId, is_tree: bool) {
        let entry = context.index.find(context.entries, oid);
        let at = entry.unwrap_or_else(|| {
            self.outside.push(*oid);
            u32::try_from(self.outside.len() - 1).unwrap_or(u32::MAX)
        });
        self.candidates.push(Candidate {
            at,
            is_outside: entry.is_none(),
            is_tree,
        });
    }

    /// Notes what a tree has that none of the parents' trees has.
    fn beside(&mut self, context: &Context<'_>, tree: &Tree, old: &[Arc<Tree>]) {
        let mut gone = Vec::new();
        let mut changed: Vec<(Changed, SmallVec<[ObjectId; 1]>)> = Vec::new();
        let Some((first, others)) = old.split_first() else {
            let mut all = Vec::new();
            differ::all(tree, &mut all);
            return all
                .iter()
                .for_each(|changed| self.changed(context, tree, *changed, SmallVec::new()));
        };
        let mut list = Vec::new();
        differ::differ(tree, first, &mut list, &mut gone);
        changed.extend(
            list.drain(..)
                .map(|changed| (changed, changed.pair.into_iter().collect())),
        );
        for other in others {
            differ::differ(tree, other, &mut list, &mut gone);
            let mut theirs = list.drain(..).peekable();
            changed.retain_mut(|(changed, pairs)| {
                while theirs.next_if(|their| their.index < changed.index).is_some() {}
                let same = theirs.next_if(|their| their.index == changed.index);
                pairs.extend(same.and_then(|same| same.pair));
                same.is_some()
            });
        }
        self.gone(&gone);
        for (changed, pairs) in changed {
            self.changed(context, tree, changed, pairs);
        }
    }

    fn changed(&mut self, context: &Context<'_>, tree: &Tree, changed: Changed, pairs: SmallVec<[ObjectId; 1]>) {
        let Some(entry) = tree.entry(changed.index as usize) else {
            return;
        };
        self.candidate(context, &entry.oid, entry.mode.is_tree());
        if !entry.mode.is_tree() {
            return;
        }
        if pairs.is_empty() {
            self.added.push(entry.oid);
        } else if self.walked.insert(entry.oid) {
            self.paired.push(Job { tree: entry.oid, pairs });
        }
    }

    fn gone(&mut self, gone: &[Gone]) {
        for gone in gone {
            let new = self.seen.insert(gone.oid, gone.is_tree).is_none();
            if new && gone.is_tree && !gone.paired {
                self.gone.push(gone.oid);
            }
        }
    }

    /// Notes everything that a tree of the parents names.
    fn gone_tree(&mut self, tree: &Tree) {
        for index in 0..tree.len() {
            let Some(entry) = tree.entry(index).filter(|entry| !entry.mode.is_gitlink()) else {
                continue;
            };
            let new = self.seen.insert(entry.oid, entry.mode.is_tree()).is_none();
            if new && entry.mode.is_tree() {
                self.gone.push(entry.oid);
            }
        }
    }
}
