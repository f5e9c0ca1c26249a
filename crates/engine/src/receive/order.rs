//! Which commits of a push are new, parents before children.
//!
//! Depth first from the new values, first parents first: what an older tip of the same line reaches is then a prefix,
//! and the segments between two points of it are one run.

use super::entries::{Entries, Index};
use super::error::IntakeError;
use super::inspect::CommitRow;
use super::known::{Known, KnownCommit};
use cuesta_git::{ObjectId, ObjectKind};
use std::collections::{HashMap, HashSet};

/// A parent of a new commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parent {
    /// The commit at this place of the order.
    New(u32),
    /// A commit of the repository, by its place in [`Order::outside`].
    Outside(u32),
}

/// New commits in topological order.
#[derive(Default)]
pub(crate) struct Order {
    pub(crate) commits: Vec<Ordered>,
    /// Parents of all commits, back to back.
    pub(crate) parents: Vec<Parent>,
    /// Commits of the repository that are parents.
    pub(crate) outside: Vec<(ObjectId, KnownCommit)>,
    /// Commits of the boundary at which the history does end here: parents of them are nowhere.
    pub(crate) cut_off: Vec<ObjectId>,
}

/// One new commit.
pub(crate) struct Ordered {
    /// Its row in the table of the push's commits.
    pub(crate) row: u32,
    /// Where its parents end; they start where those of the commit before end.
    pub(crate) parents_end: u32,
    /// Whether it, or a commit that it reaches, lacks a parent.
    pub(crate) broken: bool,
}

impl Order {
    /// The parents of the commit at a place.
    pub(crate) fn parents(&self, place: usize) -> &[Parent] {
        let end_of = |place: usize| self.commits.get(place).map_or(0, |commit| commit.parents_end as usize);
        let start = place.checked_sub(1).map_or(0, end_of);
        self.parents.get(start..end_of(place)).unwrap_or_default()
    }
}

/// Finds a push's commits by id.
pub(crate) struct CommitIndex<'a> {
    pub(crate) entries: &'a Entries,
    pub(crate) index: &'a Index,
    /// Sorted by entry.
    pub(crate) rows: &'a [CommitRow],
}

impl CommitIndex<'_> {
    fn find(&self, oid: &ObjectId) -> Option<u32> {
        let entry = self.index.find(self.entries, oid)?;
        if self.entries.kind(entry) != Some(ObjectKind::Commit) {
            return None;
        }
        let row = self.rows.binary_search_by_key(&entry, |row| row.entry).ok()?;
        u32::try_from(row).ok()
    }
}

/// The walk that makes an [`Order`].
pub(crate) struct Ordering<'a> {
    pub(crate) commits: CommitIndex<'a>,
    pub(crate) known: &'a dyn Known,
    /// Commits whose missing parents are not asked for.
    pub(crate) shallow: &'a HashSet<ObjectId>,
    order: Order,
    /// The place of each row: [`UNSEEN`], [`OPEN`] or its place in the order.
    places: Vec<u32>,
    outside: HashMap<ObjectId, Option<u32>>,
    /// Rows whose parents are being walked, and how many of those are done.
    path: Vec<(u32, u32)>,
}

const UNSEEN: u32 = u32::MAX;
const OPEN: u32 = u32::MAX - 1;

/// Where a commit id leads.
pub(crate) enum Place {
    New(u32),
    Outside(u32),
    Missing,
}

impl<'a> Ordering<'a> {
    pub(crate) fn new(commits: CommitIndex<'a>, known: &'a dyn Known, shallow: &'a HashSet<ObjectId>) -> Self {
        let places = vec![UNSEEN; commits.rows.len()];
        Self {
            commits,
            known,
            shallow,
            order: Order::default(),
            places,
            outside: HashMap::new(),
            path: Vec::new(),
        }
    }

    /// Adds everything new that a commit reaches.
    pub(crate) fn add(&mut self, tip: &ObjectId) -> Result<Place, IntakeError> {
        let Some(row) = self.enter(tip)? else {
            return self.place(tip);
        };
        self.path.push((row, 0));
        while let Some((row, done)) = self.path.pop() {
            match self.parent_ids(row).get(done as usize) {
                Some(parent) => {
                    self.path.push((row, done + 1));
                    if let Some(parent) = self.enter(parent)? {
                        self.path.push((parent, 0));
                    }
                }
                None => self.leave(row)?,
            }
        }
        self.place(tip)
    }

    pub(crate) fn finish(self) -> Order {
        self.order
    }

    fn parent_ids(&self, row: u32) -> &'a [ObjectId] {
        self.commits
            .rows
            .get(row as usize)
            .map_or(&[], |row| &row.commit.parents)
    }

    /// The row of a commit that is new and not yet walked.
    fn enter(&mut self, oid: &ObjectId) -> Result<Option<u32>, IntakeError> {
        let Some(row) = self.commits.find(oid) else {
            return Ok(None);
        };
        if self.places.get(row as usize) != Some(&UNSEEN) || self.outside(oid)?.is_some() {
            return Ok(None);
        }
        self.set_place(row, OPEN);
        Ok(Some(row))
    }

    /// Puts a commit in its place after all its parents.
    fn leave(&mut self, row: u32) -> Result<(), IntakeError> {
        let mut broken = false;
        let mut missing = false;
        let parents_before = self.order.parents.len();
        for parent in self.parent_ids(row) {
            match self.place(parent)? {
                Place::New(place) => {
                    broken |= self
                        .order
                        .commits
                        .get(place as usize)
                        .is_none_or(|parent| parent.broken);
                    self.order.parents.push(Parent::New(place));
                }
                Place::Outside(outside) => self.order.parents.push(Parent::Outside(outside)),
                Place::Missing => missing = true,
            }
        }
        let oid = self
            .commits
            .rows
            .get(row as usize)
            .map(|row| self.commits.entries.oid(row.entry));
        let cut_off = oid.filter(|oid| missing && self.shallow.contains(oid));
        if cut_off.is_some() {
            self.order.parents.truncate(parents_before);
        }
        let broken = (broken || missing) && cut_off.is_none();
        self.order.cut_off.extend(cut_off);
        let too_many = |_| IntakeError::Internal("more parents than are counted");
        let parents_end = u32::try_from(self.order.parents.len()).map_err(too_many)?;
        let place = u32::try_from(self.order.commits.len()).map_err(too_many)?;
        self.order.commits.push(Ordered {
            row,
            parents_end,
            broken,
        });
        self.set_place(row, place);
        Ok(())
    }

    fn set_place(&mut self, row: u32, place: u32) {
        if let Some(slot) = self.places.get_mut(row as usize) {
            *slot = place;
        }
    }

    fn place(&mut self, oid: &ObjectId) -> Result<Place, IntakeError> {
        if let Some(row) = self.commits.find(oid)
            && let Some(place) = self.places.get(row as usize)
            && *place < OPEN
        {
            return Ok(Place::New(*place));
        }
        Ok(self.outside(oid)?.map_or(Place::Missing, Place::Outside))
    }

    /// The number of a commit of the repository.
    fn outside(&mut self, oid: &ObjectId) -> Result<Option<u32>, IntakeError> {
        if self.known.is_empty() {
            return Ok(None);
        }
        if let Some(found) = self.outside.get(oid) {
            return Ok(*found);
        }
        let found = self.known.commit(oid)?.map(|commit| {
            self.order.outside.push((*oid, commit));
            u32::try_from(self.order.outside.len() - 1).unwrap_or(u32::MAX)
        });
        self.outside.insert(*oid, found);
        Ok(found)
    }
}
