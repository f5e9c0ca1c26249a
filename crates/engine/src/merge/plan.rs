//! What a merged layer holds, and in which order: pure, over the cues of its inputs.

use super::Input;
pub(super) use super::numbers::At;
use super::numbers::Numbers;
use crate::EngineError;
use cuesta_format::{self as format, EntryFacts, Link};
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind};
use std::collections::HashSet;
use std::ops::Range;

/// Marks places that are not filled, and entries that were not met.
const NONE: u32 = u32::MAX;

/// A segment or root set of the new layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set {
    /// Where it comes from.
    pub(super) at: At,
    /// Trees and blobs of its own in the new layer.
    pub(super) trees: u32,
    pub(super) blobs: u32,
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

/// The new layer. 12 bytes an object and 16 a commit, beside the cues of the inputs.
pub(super) struct Plan<'a> {
    inputs: &'a [Input],
    numbers: Numbers<'a>,
    /// Numbers of the entries in the order of the new pack.
    entries: Vec<u32>,
    /// In the order of the commits, which are the first entries.
    pub(super) segments: Vec<Set>,
    /// What segments have of sets that are not in the new layer: the segment and the number, in the order of the segments.
    taken: Vec<(u32, u32)>,
    pub(super) roots: Vec<Set>,
    /// Places of entries that would be based on themselves, sorted.
    circular: Vec<u32>,
    /// Where the tags start in `entries`, the trees and the blobs.
    pub(super) first_tag: u32,
    pub(super) first_tree: u32,
    pub(super) first_blob: u32,
    /// Which part of the inputs the new layer holds; all of them, without it.
    part: Option<Part<'a>>,
}

/// Places still to be filled, for each kind of object: they lie in clusters whose sizes are known from the start.
struct Clusters([Range<u32>; 4]);

impl Clusters {
    fn of(&mut self, kind: ObjectKind) -> &mut Range<u32> {
        let [commits, tags, trees, blobs] = &mut self.0;
        match kind {
            ObjectKind::Commit => commits,
            ObjectKind::Tag => tags,
            ObjectKind::Tree => trees,
            ObjectKind::Blob => blobs,
        }
    }
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
        let mut commits = plan.ordered_commits(tips);
        plan.part = part;
        commits.retain(|number| plan.is_held(*number));
        let mut clusters = plan.clusters();
        plan.segments.reserve_exact(commits.len());
        let mut taken = HashSet::new();
        for number in commits {
            plan.fill(number, ObjectKind::Commit, &mut clusters);
            let Some((at, input)) = plan.located(number) else {
                continue;
            };
            let segments = &input.history.segments;
            let runs = (segments.trees(at.entry), segments.blobs(at.entry));
            let mut set = plan.set(at, runs, &mut clusters);
            if part.is_some_and(|part| part.is_first) {
                plan.take(&mut set, &mut taken, &mut clusters);
            }
            plan.segments.push(set);
        }
        plan.collect_roots(&mut clusters);
        plan.fill_rest(&mut clusters);
        plan.find_circles();
        Ok(plan)
    }

    fn numbered(inputs: &'a [Input]) -> Result<Self, EngineError> {
        Ok(Self {
            inputs,
            numbers: Numbers::new(inputs)?,
            entries: Vec::new(),
            segments: Vec::new(),
            taken: Vec::new(),
            roots: Vec::new(),
            circular: Vec::new(),
            first_tag: 0,
            first_tree: 0,
            first_blob: 0,
            part: None,
        })
    }

    /// What `tips` reach of the inputs, for each number, and how many objects that is; what their segments name belongs to
    /// it, whichever set holds it. A tag belongs to it if it is a tip.
    pub(super) fn reached(inputs: &'a [Input], tips: &[ObjectId]) -> Result<(Vec<bool>, u64), EngineError> {
        let mut plan = Self::numbered(inputs)?;
        let mut reached = vec![false; plan.numbers.len() as usize];
        let mut commits = Vec::new();
        for tip in tips {
            let number = plan.find_oid(tip);
            if number.is_some_and(|number| plan.has_segment(number)) {
                number
                    .into_iter()
                    .for_each(|number| plan.add_ancestry(number, &mut commits));
            } else if let Some(number) = number {
                let kind = plan.located(number).map(|(at, input)| input.index.kind(at.entry));
                if let Some(mark) = reached.get_mut(number as usize) {
                    *mark = kind == Some(ObjectKind::Tag);
                }
            }
        }
        for number in commits {
            let Some((at, input)) = plan.located(number) else {
                continue;
            };
            let segments = &input.history.segments;
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

    /// Numbers of all commits with segments, each once, parents first. Uses places for marks.
    fn ordered_commits(&mut self, tips: &[ObjectId]) -> Vec<u32> {
        let segments = self.inputs.iter().map(|input| input.history.segments.len() as usize);
        let mut commits = Vec::with_capacity(segments.sum());
        for tip in tips {
            if let Some(number) = self.find_oid(tip).filter(|number| self.has_segment(*number)) {
                self.add_ancestry(number, &mut commits);
            }
        }
        for (number, input) in (0u32..).zip(self.inputs) {
            for entry in 0..input.history.segments.len() {
                let number = self.number(At { input: number, entry });
                number
                    .into_iter()
                    .for_each(|number| self.add_ancestry(number, &mut commits));
            }
        }
        self.numbers.clear_places();
        commits
    }

    /// Adds a commit after all that it reaches; depth first, first parents first, so that what an older tip of the same line
    /// reaches is a prefix.
    fn add_ancestry(&mut self, number: u32, commits: &mut Vec<u32>) {
        // A mark: a commit is entered once, if it is kept.
        let mut path: Vec<(u32, usize)> = Vec::new();
        if self.numbers.set_place(number, 0) {
            path.push((number, 0));
        }
        while let Some((number, done)) = path.pop() {
            let parents = self
                .located(number)
                .map(|(at, input)| (at, input.history.segments.parents(at.entry)));
            match parents.and_then(|(at, mut parents)| Some((at, parents.nth(done)?))) {
                Some((at, parent)) => {
                    path.push((number, done + 1));
                    let parent = self.find(at.input, parent).filter(|parent| self.has_segment(*parent));
                    if let Some(parent) = parent.filter(|parent| self.numbers.set_place(*parent, 0)) {
                        path.push((parent, 0));
                    }
                }
                None => commits.push(number),
            }
        }
    }

    /// Whether what has that number is a commit with a segment.
    fn has_segment(&self, number: u32) -> bool {
        let located = self.located(number);
        located.is_some_and(|(at, input)| at.entry < input.history.segments.len())
    }

    /// The clusters of the new pack, still empty.
    fn clusters(&mut self) -> Clusters {
        let mut counts = [0u32; 4];
        for number in 0..self.numbers.len() {
            if self.is_held(number)
                && let Some((at, input)) = self.located(number)
            {
                let [commits, tags, trees, blobs] = &mut counts;
                *match input.index.kind(at.entry) {
                    ObjectKind::Commit => commits,
                    ObjectKind::Tag => tags,
                    ObjectKind::Tree => trees,
                    ObjectKind::Blob => blobs,
                } += 1;
            }
        }
        let mut end = 0;
        let clusters = counts.map(|count| {
            end += count;
            end - count..end
        });
        let [_, tags, trees, blobs] = &clusters;
        (self.first_tag, self.first_tree, self.first_blob) = (tags.start, trees.start, blobs.start);
        self.entries = vec![NONE; end as usize];
        Clusters(clusters)
    }

    /// Gives a kept entry the next place of its cluster; `false` if it has one.
    fn fill(&mut self, number: u32, kind: ObjectKind, clusters: &mut Clusters) -> bool {
        let cluster = clusters.of(kind);
        let slot = self.entries.get_mut(cluster.start as usize);
        match slot {
            Some(slot) if cluster.start < cluster.end && self.numbers.set_place(number, cluster.start) => {
                *slot = number;
                cluster.start += 1;
                true
            }
            _ => false,
        }
    }

    fn collect_roots(&mut self, clusters: &mut Clusters) {
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
                let set = self.set(at, (roots.trees(root), roots.blobs(root)), clusters);
                self.roots.push(set);
            }
        }
    }

    /// A set with the kept entries of its runs, which go to the clusters.
    fn set(&mut self, at: At, runs: (Range<u32>, Range<u32>), clusters: &mut Clusters) -> Set {
        let mut keep = |run: Range<u32>, kind| {
            let mut count = 0;
            for entry in run {
                let number = self.number(At { entry, ..at });
                let held = number.filter(|number| self.is_held(*number));
                count += u32::from(held.is_some_and(|number| self.fill(number, kind, clusters)));
            }
            count
        };
        let (trees, blobs) = runs;
        Set {
            at,
            trees: keep(trees, ObjectKind::Tree),
            blobs: keep(blobs, ObjectKind::Blob),
        }
    }

    /// Gives a segment of the first part, the next, what it names of sets that are not in that part, unless another has it
    /// already.
    fn take(&mut self, set: &mut Set, taken: &mut HashSet<u32>, clusters: &mut Clusters) {
        let Some(input) = self.input(set.at) else { return };
        let segment = u32::try_from(self.segments.len()).unwrap_or(NONE);
        for link in input.history.segments.links(set.at.entry) {
            let Some(number) = self.find(set.at.input, link) else {
                continue;
            };
            let Some((at, input)) = self.located(number) else {
                continue;
            };
            let owner = input.history.segments.of_entry(at.entry);
            let owner = owner.and_then(|entry| self.number(At { entry, ..at }));
            if !self.is_held(number) || owner.is_some_and(|owner| self.is_held(owner)) || !taken.insert(number) {
                continue;
            }
            let kind = input.index.kind(at.entry);
            let count = match kind {
                ObjectKind::Tree => &mut set.trees,
                ObjectKind::Blob => &mut set.blobs,
                ObjectKind::Commit | ObjectKind::Tag => continue,
            };
            if self.fill(number, kind, clusters) {
                *count += 1;
                self.taken.push((segment, number));
            }
        }
    }

    /// What is kept and in no set comes last in its cluster: tags, commits without segment, and what only a set had whose commit
    /// or root another input has, too. Root sets are in the second of two layers.
    fn fill_rest(&mut self, clusters: &mut Clusters) {
        for number in 0..self.numbers.len() {
            if self.is_held(number)
                && let Some((at, input)) = self.located(number)
            {
                self.fill(number, input.index.kind(at.entry), clusters);
            }
        }
    }

    /// Follows each chain of bases until it ends or meets one followed before; meeting one of its own is a circle.
    fn find_circles(&mut self) {
        let mut followed_by = vec![NONE; self.entries.len()];
        for start in 0..self.objects() {
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
        self.numbers.len() as usize
    }

    /// Entries of the new layer.
    pub(super) fn objects(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(NONE)
    }

    /// Where the entry at a place comes from.
    pub(super) fn entry(&self, place: u32) -> Option<At> {
        self.at(*self.entries.get(place as usize)?)
    }

    /// Numbers of the entries in the order of the new pack.
    pub(super) fn entries(&self) -> &[u32] {
        &self.entries
    }

    /// Places in the order of the objects' ids.
    pub(super) fn order(&self) -> Vec<u32> {
        let mut order = Vec::with_capacity(self.entries.len());
        order.extend(self.numbers.sorted().iter().filter_map(|number| self.place(*number)));
        order
    }

    /// What the entry at a place is based on, if its stored form is kept.
    pub(super) fn stored_base(&self, place: u32) -> Base {
        let Some(at) = self.entry(place) else {
            return Base::None;
        };
        let Some(link) = self.base_link(at) else {
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
        self.numbers.find(oid)
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
    pub(super) fn segment_links(&self, segment: u32) -> Vec<NewLink> {
        let set = self.segments.get(segment as usize).copied();
        let Some((set, input)) = set.and_then(|set| Some((set, self.input(set.at)?))) else {
            return Vec::new();
        };
        let start = self.taken.partition_point(|(taker, _)| *taker < segment);
        let taken = self.taken.get(start..).unwrap_or_default();
        let taken = taken.split(|(taker, _)| *taker != segment).next().unwrap_or_default();
        let segments = &input.history.segments;
        let entry = set.at.entry;
        let own = segments.trees(entry).chain(segments.blobs(entry));
        self.links(&set, taken, own, segments.links(entry))
    }

    /// As [`Plan::segment_links`], for a root set.
    pub(super) fn root_links(&self, set: &Set) -> Vec<NewLink> {
        self.input(set.at).map_or_else(Vec::new, |input| {
            let roots = &input.history.roots;
            let root = set.at.entry;
            self.links(set, &[], roots.trees(root).chain(roots.blobs(root)), roots.links(root))
        })
    }

    fn links(
        &self,
        set: &Set,
        taken: &[(u32, u32)],
        own: impl Iterator<Item = u32>,
        links: impl Iterator<Item = Link>,
    ) -> Vec<NewLink> {
        let lost = own.filter(|entry| {
            let number = self.number(At {
                entry: *entry,
                ..set.at
            });
            !number.is_some_and(|number| self.is_held(number))
        });
        let is_own = |link: &Link| {
            let number = self.find(set.at.input, *link);
            number.is_some_and(|number| taken.iter().any(|(_, taken)| *taken == number))
        };
        let links = lost.map(Link::Local).chain(links);
        let links = links.filter(|link| taken.is_empty() || !is_own(link));
        links.map(|link| self.link(set.at.input, link)).collect()
    }

    /// The id of the entry at a place.
    pub(super) fn oid_at(&self, place: u32) -> Option<ObjectId> {
        self.oid(*self.entries.get(place as usize)?)
    }

    /// The kept number of what a link of an input leads to, if that is among the inputs.
    pub(super) fn find(&self, input: u32, link: Link) -> Option<u32> {
        match link {
            Link::Local(entry) => self.numbers.kept(self.number(At { input, entry })?),
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
        self.numbers.number(at)
    }

    pub(super) fn at(&self, number: u32) -> Option<At> {
        self.numbers.at(number)
    }

    pub(super) fn oid(&self, number: u32) -> Option<ObjectId> {
        self.numbers.oid(number)
    }

    fn located(&self, number: u32) -> Option<(At, &'a Input)> {
        let at = self.at(number)?;
        Some((at, self.input(at)?))
    }

    /// Whether the new layer holds this copy.
    fn is_held(&self, number: u32) -> bool {
        self.part.is_none_or(|part| part.holds(number)) && self.numbers.kept(number) == Some(number)
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
        self.numbers.place(number)
    }
}

impl EntryFacts for Plan<'_> {
    fn oid(&self, place: u32) -> ObjectId {
        self.oid_at(place).unwrap_or(ObjectId::null(self.format()))
    }

    fn size(&self, place: u32) -> u64 {
        let located = self
            .entries
            .get(place as usize)
            .and_then(|number| self.located(*number));
        located.map_or(0, |(at, input)| input.index.entries.size(at.entry))
    }
}
