//! What a merged layer holds, and in which order: pure, over the cues of its inputs.

use super::Input;
use crate::EngineError;
use crate::receive::spread;
use cuesta_format::{self as format, Link};
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind};
use std::collections::HashSet;
use std::ops::Range;

/// Marks entries without a place, and commits that were not met.
const NONE: u32 = u32::MAX;
/// Objects of all inputs together.
const OBJECTS_MAX: u64 = 1 << 31;

/// An entry, segment or root set of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub(super) input: u32,
    pub(super) entry: u32,
}

/// A segment or root set of the new layer.
#[derive(Clone, Debug)]
pub(super) struct Set {
    /// Where it comes from.
    pub(super) at: At,
    /// Trees and blobs of its own in the new layer.
    pub(super) trees: u32,
    pub(super) blobs: u32,
    /// Numbers of those that came from a set that is not in the new layer.
    taken: Vec<u32>,
}

/// What an entry is based on in the new layer.
pub(super) enum Base {
    None,
    /// The entry at this place.
    Merged(u32),
    External(ObjectId),
    /// Itself, in the end: it must be stored whole.
    Circular,
}

/// Where a link leads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NewLink {
    /// To the entry at this place.
    Entry(u32),
    External(ObjectId),
}

/// The new layer.
pub(super) struct Plan<'a> {
    inputs: &'a [Input],
    /// Numbers all entries of all inputs: where each input's start.
    starts: Vec<u32>,
    /// For each number that of the copy that is kept.
    kept: Vec<u32>,
    /// For each kept number its place in the new pack.
    places: Vec<u32>,
    /// Finds kept numbers by id.
    table: hashbrown::HashTable<u32>,
    /// Entries in the order of the new pack.
    pub(super) entries: Vec<At>,
    /// In the order of the commits, which are the first entries.
    pub(super) segments: Vec<Set>,
    pub(super) roots: Vec<Set>,
    pub(super) tags: Vec<At>,
    /// Places of entries that would be based on themselves, sorted.
    circular: Vec<u32>,
    /// Where the trees start in `entries`, and where the blobs do.
    pub(super) first_tree: u32,
    pub(super) first_blob: u32,
    /// Which part of the inputs the new layer holds; all of them, without it.
    part: Option<Part<'a>>,
}

/// One of two layers that inputs become.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    /// For each number whether it belongs to the first.
    pub(super) first: &'a [bool],
    /// Whether this is the first.
    pub(super) is_first: bool,
}

impl Part<'_> {
    fn holds(&self, number: u32) -> bool {
        self.first.get(number as usize).copied().unwrap_or(false) == self.is_first
    }
}

impl<'a> Plan<'a> {
    /// What the commits `tips` reach comes first, one after the other; then the rest as the inputs have it.
    pub(super) fn new(inputs: &'a [Input], tips: &[ObjectId], part: Option<Part<'a>>) -> Result<Self, EngineError> {
        let mut plan = Self::numbered(inputs)?;
        plan.keep_first_copies();
        let mut commits = plan.ordered_commits(tips);
        plan.part = part;
        commits.retain(|at| plan.is_kept(*at));
        let (mut trees, mut blobs) = (Vec::new(), Vec::new());
        let mut taken = HashSet::new();
        for at in &commits {
            if let Some(input) = plan.input(*at) {
                let segments = &input.history.segments;
                let mut set = plan.set(
                    *at,
                    segments.trees(at.entry),
                    segments.blobs(at.entry),
                    &mut trees,
                    &mut blobs,
                );
                if part.is_some_and(|part| part.is_first) {
                    plan.take(&mut set, &mut taken, &mut trees, &mut blobs);
                }
                plan.segments.push(set);
            }
        }
        plan.collect_roots(&mut trees, &mut blobs);
        plan.arrange(commits, trees, blobs);
        plan.find_circles();
        Ok(plan)
    }

    fn numbered(inputs: &'a [Input]) -> Result<Self, EngineError> {
        let total: u64 = inputs.iter().map(|input| u64::from(input.index.entries.len())).sum();
        if total >= OBJECTS_MAX {
            return Err(EngineError::limit("objects in a merge", OBJECTS_MAX));
        }
        let mut starts = Vec::with_capacity(inputs.len());
        let mut next = 0;
        for input in inputs {
            starts.push(next);
            next += input.index.entries.len();
        }
        let len = next as usize;
        Ok(Self {
            inputs,
            starts,
            kept: Vec::with_capacity(len),
            places: vec![NONE; len],
            table: hashbrown::HashTable::with_capacity(len),
            entries: Vec::new(),
            segments: Vec::new(),
            roots: Vec::new(),
            tags: Vec::new(),
            circular: Vec::new(),
            first_tree: 0,
            first_blob: 0,
            part: None,
        })
    }

    /// What `tips` reach of the inputs, for each number, and how many objects that is; what their segments name belongs to
    /// it, whichever set holds it. A tag belongs to it if it is a tip.
    pub(super) fn reached(inputs: &'a [Input], tips: &[ObjectId]) -> Result<(Vec<bool>, u64), EngineError> {
        let mut plan = Self::numbered(inputs)?;
        plan.keep_first_copies();
        let mut reached = vec![false; plan.kept.len()];
        let mut commits = Vec::new();
        for tip in tips {
            let number = plan.find_oid(tip);
            if let Some(at) = number.and_then(|number| plan.segment_at(number)) {
                plan.add_ancestry(at, &mut commits);
            } else if let Some(number) = number {
                let at = plan.at(number);
                let kind = at.and_then(|at| Some(plan.input(at)?.index.kind(at.entry)));
                if let Some(mark) = reached.get_mut(number as usize) {
                    *mark = kind == Some(ObjectKind::Tag);
                }
            }
        }
        for at in commits {
            let Some(segments) = plan.input(at).map(|input| &input.history.segments) else {
                continue;
            };
            let own = std::iter::once(at.entry)
                .chain(segments.trees(at.entry))
                .chain(segments.blobs(at.entry));
            let named = own.map(Link::Local).chain(segments.links(at.entry));
            for number in named.filter_map(|link| plan.find(at.input, link)) {
                if let Some(mark) = reached.get_mut(number as usize) {
                    *mark = true;
                }
            }
        }
        let count = reached.iter().filter(|reached| **reached).count() as u64;
        Ok((reached, count))
    }

    /// Of several copies of an object the first is kept.
    fn keep_first_copies(&mut self) {
        for number in 0..u32::try_from(self.places.len()).unwrap_or(NONE) {
            let Some(oid) = self.oid(number) else {
                self.kept.push(number);
                continue;
            };
            let mut table = std::mem::take(&mut self.table);
            let hash = |held: &u32| self.oid(*held).as_ref().map_or(0, spread);
            let slot = table.entry(spread(&oid), |held| self.oid(*held) == Some(oid), hash);
            let kept = *slot.or_insert(number).get();
            self.table = table;
            self.kept.push(kept);
        }
    }

    /// All commits with segments, each once, parents first. Uses `places` for marks.
    fn ordered_commits(&mut self, tips: &[ObjectId]) -> Vec<At> {
        let mut commits = Vec::new();
        for tip in tips {
            if let Some(at) = self.find_oid(tip).and_then(|number| self.segment_at(number)) {
                self.add_ancestry(at, &mut commits);
            }
        }
        for (number, input) in (0u32..).zip(self.inputs) {
            for entry in 0..input.history.segments.len() {
                self.add_ancestry(At { input: number, entry }, &mut commits);
            }
        }
        self.places.fill(NONE);
        commits
    }

    /// Adds a commit after all that it reaches; depth first, first parents first, so that what an older tip of the same line
    /// reaches is a prefix.
    fn add_ancestry(&mut self, at: At, commits: &mut Vec<At>) {
        let mut path: Vec<(At, usize)> = self.enter(at).map(|at| (at, 0)).into_iter().collect();
        while let Some((at, done)) = path.pop() {
            let parents = self.input(at).map(|input| input.history.segments.parents(at.entry));
            match parents.and_then(|mut parents| parents.nth(done)) {
                Some(parent) => {
                    path.push((at, done + 1));
                    let parent = self.parent(at.input, parent).and_then(|parent| self.enter(parent));
                    path.extend(parent.map(|at| (at, 0)));
                }
                None => commits.push(at),
            }
        }
    }

    /// The kept copy of a parent, if it has a segment here.
    fn parent(&self, input: u32, parent: Link) -> Option<At> {
        self.segment_at(self.find(input, parent)?)
    }

    /// Where the commit of that number is, if it has a segment.
    fn segment_at(&self, number: u32) -> Option<At> {
        let at = self.at(number)?;
        (at.entry < self.input(at)?.history.segments.len()).then_some(at)
    }

    /// Marks a kept commit; `None` if it was met before or is not kept.
    fn enter(&mut self, at: At) -> Option<At> {
        let number = self.number(at)?;
        let is_kept = self.kept.get(number as usize) == Some(&number);
        let mark = self
            .places
            .get_mut(number as usize)
            .filter(|mark| is_kept && **mark == NONE)?;
        *mark = 0;
        Some(at)
    }

    fn collect_roots(&mut self, trees: &mut Vec<At>, blobs: &mut Vec<At>) {
        let mut seen = HashSet::new();
        if self.part.is_some_and(|part| part.is_first) {
            return;
        }
        for (number, input) in (0u32..).zip(self.inputs) {
            let roots = &input.history.roots;
            for root in (0..roots.len()).filter(|root| seen.insert(roots.oid(*root))) {
                let at = At {
                    input: number,
                    entry: root,
                };
                let set = self.set(at, roots.trees(root), roots.blobs(root), trees, blobs);
                self.roots.push(set);
            }
        }
    }

    /// A set with the kept entries of its runs, which go to the clusters.
    fn set(&self, at: At, tree_run: Range<u32>, blob_run: Range<u32>, trees: &mut Vec<At>, blobs: &mut Vec<At>) -> Set {
        let keep = |run: Range<u32>, cluster: &mut Vec<At>| {
            let before = cluster.len();
            cluster.extend(run.map(|entry| At { entry, ..at }).filter(|at| self.is_kept(*at)));
            u32::try_from(cluster.len() - before).unwrap_or(NONE)
        };
        Set {
            at,
            trees: keep(tree_run, trees),
            blobs: keep(blob_run, blobs),
            taken: Vec::new(),
        }
    }

    /// Gives a segment of the first part what it names of sets that are not in that part, unless another has it already.
    fn take(&self, set: &mut Set, taken: &mut HashSet<u32>, trees: &mut Vec<At>, blobs: &mut Vec<At>) {
        let Some(segments) = self.input(set.at).map(|input| &input.history.segments) else {
            return;
        };
        for number in segments
            .links(set.at.entry)
            .filter_map(|link| self.find(set.at.input, link))
        {
            let Some((at, input)) = self.at(number).and_then(|at| Some((at, self.input(at)?))) else {
                continue;
            };
            let owner = input
                .history
                .segments
                .of_entry(at.entry)
                .map(|entry| At { entry, ..at });
            if !self.is_kept(at) || owner.is_some_and(|owner| self.is_kept(owner)) || !taken.insert(number) {
                continue;
            }
            match input.index.kind(at.entry) {
                ObjectKind::Tree => (set.trees, _) = (set.trees + 1, trees.push(at)),
                ObjectKind::Blob => (set.blobs, _) = (set.blobs + 1, blobs.push(at)),
                ObjectKind::Commit | ObjectKind::Tag => continue,
            }
            set.taken.push(number);
        }
    }

    /// Puts everything in its place; root sets are in the second of two layers. What is kept and in no set comes last in its cluster: tags, commits without
    /// segment, and what only a set had whose commit or root another input has, too.
    fn arrange(&mut self, mut commits: Vec<At>, mut trees: Vec<At>, mut blobs: Vec<At>) {
        for at in commits.iter().chain(&trees).chain(&blobs) {
            if let Some(mark) = self.number(*at).and_then(|number| self.places.get_mut(number as usize)) {
                *mark = 0;
            }
        }
        for number in 0..u32::try_from(self.kept.len()).unwrap_or(NONE) {
            let is_placed = self.place(number).is_some();
            let Some(at) = self.at(number).filter(|at| self.is_kept(*at) && !is_placed) else {
                continue;
            };
            match self.input(at).map(|input| input.index.kind(at.entry)) {
                Some(ObjectKind::Commit) => commits.push(at),
                Some(ObjectKind::Tag) => self.tags.push(at),
                Some(ObjectKind::Tree) => trees.push(at),
                Some(ObjectKind::Blob) => blobs.push(at),
                None => {}
            }
        }
        self.entries = commits;
        self.entries.extend(&self.tags);
        // Fewer than `OBJECTS_MAX`.
        self.first_tree = self.entries.len() as u32;
        self.entries.append(&mut trees);
        self.first_blob = self.entries.len() as u32;
        self.entries.append(&mut blobs);
        for (place, at) in (0u32..).zip(&self.entries) {
            let number = self
                .starts
                .get(at.input as usize)
                .map(|start| (start + at.entry) as usize);
            if let Some(slot) = number.and_then(|number| self.places.get_mut(number)) {
                *slot = place;
            }
        }
    }

    /// Follows each chain of bases until it ends or meets one followed before; meeting one of its own is a circle.
    fn find_circles(&mut self) {
        let mut followed_by = vec![NONE; self.entries.len()];
        for start in 0..u32::try_from(self.entries.len()).unwrap_or(NONE) {
            let mut place = start;
            while let Some(mark) = followed_by.get_mut(place as usize).filter(|mark| **mark == NONE) {
                *mark = start;
                let Base::Merged(base) = self.stored_base(place) else {
                    break;
                };
                if followed_by.get(base as usize) == Some(&start) {
                    self.circular.push(place);
                    break;
                }
                place = base;
            }
        }
        self.circular.sort_unstable();
    }

    /// What the entry at a place is based on.
    pub(super) fn base(&self, place: u32) -> Base {
        if self.circular.binary_search(&place).is_ok() {
            Base::Circular
        } else {
            self.stored_base(place)
        }
    }

    /// Entries of all inputs together.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// What the entry at a place is based on, if its stored form is kept.
    pub(super) fn stored_base(&self, place: u32) -> Base {
        let Some(at) = self.entries.get(place as usize) else {
            return Base::None;
        };
        let Some(link) = self.base_link(*at) else {
            return Base::None;
        };
        match self.link(at.input, link) {
            NewLink::Entry(place) => Base::Merged(place),
            NewLink::External(oid) => Base::External(oid),
        }
    }

    /// The base of an entry of an input.
    pub(super) fn base_link(&self, at: At) -> Option<Link> {
        match self.input(at)?.index.entries.base(at.entry) {
            format::Base::None => None,
            format::Base::Entry(base) => Some(Link::Local(base)),
            format::Base::External(base) => Some(Link::External(base)),
        }
    }

    /// The kept number of an object, if it is among the inputs.
    pub(super) fn find_oid(&self, oid: &ObjectId) -> Option<u32> {
        let found = self
            .table
            .find(spread(oid), |held| self.oid(*held).as_ref() == Some(oid));
        found.copied()
    }

    /// The tree of a segment's commit.
    pub(super) fn root_tree(&self, set: &Set) -> Option<ObjectId> {
        let segments = &self.input(set.at)?.history.segments;
        (set.at.entry < segments.len()).then(|| segments.root_tree(set.at.entry))
    }

    /// Where a link of an input leads now.
    pub(super) fn link(&self, input: u32, link: Link) -> NewLink {
        if let Some(place) = self.find(input, link).and_then(|number| self.place(number)) {
            return NewLink::Entry(place);
        }
        let input = self.inputs.get(input as usize);
        let oid = input.and_then(|input| match link {
            Link::External(external) => Some(input.index.externals.oid(external)),
            Link::Local(entry) => input.index.oid(entry),
        });
        // A cue whose indices lead nowhere gives null ids, which no reader finds; it was checked when it was made.
        let oid = oid.unwrap_or(ObjectId::null(self.format()));
        NewLink::External(oid)
    }

    /// Parents of a segment.
    pub(super) fn parents(&self, set: &Set) -> Vec<NewLink> {
        let parents = self
            .input(set.at)
            .map(|input| input.history.segments.parents(set.at.entry));
        parents
            .into_iter()
            .flatten()
            .map(|parent| self.link(set.at.input, parent))
            .collect()
    }

    /// What a segment names beside its own entries: its links, and what of its runs another input's copy stands for.
    pub(super) fn segment_links(&self, set: &Set) -> Vec<NewLink> {
        self.input(set.at).map_or_else(Vec::new, |input| {
            let segments = &input.history.segments;
            let entry = set.at.entry;
            self.links(
                set,
                segments.trees(entry).chain(segments.blobs(entry)),
                segments.links(entry),
            )
        })
    }

    /// As [`Plan::segment_links`], for a root set.
    pub(super) fn root_links(&self, set: &Set) -> Vec<NewLink> {
        self.input(set.at).map_or_else(Vec::new, |input| {
            let roots = &input.history.roots;
            let root = set.at.entry;
            self.links(set, roots.trees(root).chain(roots.blobs(root)), roots.links(root))
        })
    }

    fn links(&self, set: &Set, own: impl Iterator<Item = u32>, links: impl Iterator<Item = Link>) -> Vec<NewLink> {
        let lost = own.filter(|entry| {
            !self.is_kept(At {
                entry: *entry,
                ..set.at
            })
        });
        let is_own = |link: &Link| {
            let number = self.find(set.at.input, *link);
            number.is_some_and(|number| set.taken.contains(&number))
        };
        let links = lost.map(Link::Local).chain(links);
        let links = links.filter(|link| set.taken.is_empty() || !is_own(link));
        links.map(|link| self.link(set.at.input, link)).collect()
    }

    /// The id of the entry at a place.
    pub(super) fn oid_at(&self, place: u32) -> Option<ObjectId> {
        let at = self.entries.get(place as usize)?;
        self.input(*at)?.index.oid(at.entry)
    }

    /// The kept number of what a link of an input leads to, if that is among the inputs.
    pub(super) fn find(&self, input: u32, link: Link) -> Option<u32> {
        match link {
            Link::Local(entry) => self.kept.get(self.number(At { input, entry })? as usize).copied(),
            Link::External(external) => self.find_oid(&self.inputs.get(input as usize)?.index.externals.oid(external)),
        }
    }

    pub(super) fn format(&self) -> ObjectFormat {
        self.inputs
            .first()
            .map_or(ObjectFormat::Sha1, |input| input.index.format)
    }

    pub(super) fn input(&self, at: At) -> Option<&'a Input> {
        self.inputs.get(at.input as usize)
    }

    pub(super) fn number(&self, at: At) -> Option<u32> {
        self.starts.get(at.input as usize).map(|start| start + at.entry)
    }

    pub(super) fn at(&self, number: u32) -> Option<At> {
        let input = self.starts.partition_point(|start| *start <= number).checked_sub(1)?;
        Some(At {
            input: u32::try_from(input).ok()?,
            entry: number - self.starts.get(input)?,
        })
    }

    pub(super) fn oid(&self, number: u32) -> Option<ObjectId> {
        let at = self.at(number)?;
        self.input(at)?.index.oid(at.entry)
    }

    /// Whether the new layer holds this copy.
    fn is_kept(&self, at: At) -> bool {
        self.number(at).is_some_and(|number| {
            let is_in = self.part.is_none_or(|part| part.holds(number));
            is_in && self.kept.get(number as usize) == Some(&number)
        })
    }

    /// Whether an object is in the other, first part of the inputs.
    pub(super) fn is_before(&self, number: u32) -> bool {
        self.part.is_some_and(|part| !part.is_first && !part.holds(number))
    }

    /// Whether an object is in the other, second part of the inputs.
    pub(super) fn is_after(&self, number: u32) -> bool {
        self.part.is_some_and(|part| part.is_first && !part.holds(number))
    }

    pub(super) fn place(&self, number: u32) -> Option<u32> {
        self.places.get(number as usize).copied().filter(|place| *place != NONE)
    }
}
