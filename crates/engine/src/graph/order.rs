//! The order in which walks by a queue visit commits: every child before its parents, and among all such orders one that comes
//! late to what is old.
//!
//! Generations alone give such an order, too. But a project that was merged in with a short history of its own has low
//! generations however young its commits are: a walk that must settle one of them would first visit everything above it.
//! So commits go by *date* first, as git's corrected commit dates do: the latest commit time among a commit and its ancestors.

use super::{Graph, Position};
use crate::EngineError;
use std::sync::atomic::{AtomicI64, Ordering};

/// Dates of a layer's commits, as far as they are worked out. A commit's date follows from its ancestors alone, so all views
/// share it.
pub(crate) struct Dates(Box<[AtomicI64]>);

/// No commit has this date: the encoding of times ends above it.
const UNKNOWN: i64 = i64::MIN;

impl Dates {
    /// Of a layer with that many segments, none of them known.
    pub(crate) fn unknown(segments: u32) -> Self {
        Self((0..segments).map(|_| AtomicI64::new(UNKNOWN)).collect())
    }

    fn get(&self, segment: u32) -> Option<i64> {
        let date = self.0.get(segment as usize)?.load(Ordering::Relaxed);
        (date != UNKNOWN).then_some(date)
    }

    fn set(&self, segment: u32, date: i64) {
        if let Some(place) = self.0.get(segment as usize) {
            place.store(date, Ordering::Relaxed);
        }
    }
}

/// Where a commit stands in a walk; the greatest goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    date: i64,
    generation: u32,
    pub(super) commit: Position,
}

impl Graph {
    /// The turn of the commit at `commit`, a canonical position. Cost: a look-up, but for the first who asks, who pays for all
    /// ancestors whose dates nobody has asked for yet.
    pub(super) fn turn(&self, commit: Position) -> Result<Turn, EngineError> {
        // Parents beyond a shallow boundary may come later, and would then be younger than was thought.
        let dated = self.state.shallow().is_empty();
        Ok(Turn {
            date: if dated { self.date(commit)? } else { 0 },
            generation: self.generation(commit),
            commit,
        })
    }

    fn date(&self, commit: Position) -> Result<i64, EngineError> {
        if let Some(date) = self.known_date(commit)? {
            return Ok(date);
        }
        let mut path = vec![commit];
        while let Some(&at) = path.last() {
            let (mut date, mut complete) = (self.commit_time(at).max(UNKNOWN + 1), true);
            for parent in self.parents(at)? {
                self.check_generations(at, parent)?;
                match self.known_date(parent)? {
                    Some(parents) => date = date.max(parents),
                    None => {
                        path.push(parent);
                        complete = false;
                    }
                }
            }
            if complete {
                self.slot(at.slot)?
                    .layer
                    .dates(self.limit(at.slot)?)
                    .set(at.entry, date);
                path.pop();
            }
        }
        self.known_date(commit)?
            .ok_or(EngineError::Internal("a commit's date is lost"))
    }

    fn known_date(&self, commit: Position) -> Result<Option<i64>, EngineError> {
        let slot = self.slot(commit.slot)?;
        Ok(slot.layer.dates(slot.history.segments.len()).get(commit.entry))
    }

    /// What makes an order of generations, and ends every walk.
    pub(super) fn check_generations(&self, child: Position, parent: Position) -> Result<(), EngineError> {
        if self.generation(parent) < self.generation(child) {
            return Ok(());
        }
        let layer = &self.slot(child.slot)?.layer;
        Err(layer.corrupt("a parent's generation is not below its child's"))
    }
}
