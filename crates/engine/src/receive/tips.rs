//! From the new values of refs to what must be stored: tags followed, commits ordered and cut, and for each value
//! whether everything that it reaches is there.

use super::cut::{Context, Cut, Cutter};
use super::entries::Index;
use super::error::IntakeError;
use super::inspect::TagRow;
use super::known::Known;
use super::options::IntakeOptions;
use super::order::{CommitIndex, Order, Ordering, Parent, Place};
use super::parse::Parsed;
use super::trees::Trees;
use cuesta_git::{ObjectId, ObjectKind, TagRef};
use std::collections::{HashMap, HashSet};

/// Tags of the repository that one value may lead through; each is a read.
const OUTSIDE_TAGS_MAX: usize = 64;

/// What the new value of a ref turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tip {
    /// Everything it reaches is in the push or in the repository.
    Complete {
        /// The kind of the object that the ref names.
        kind: ObjectKind,
        /// Where that is a tag, the object it peels to.
        peeled: Option<ObjectId>,
    },
    /// Something that it reaches is missing, or is not of the kind that it should be.
    Incomplete,
}

/// Everything that complete tips reach and the repository has not.
pub(crate) struct Reached {
    pub(crate) order: Order,
    pub(crate) cut: Cut,
    /// In the order in which they go into the layer.
    pub(crate) tags: Vec<TagRow>,
    /// As many as there are values.
    pub(crate) tips: Vec<Tip>,
    /// Where in the order the values are that are new commits.
    places: HashMap<ObjectId, u32>,
}

/// Follows the new values of refs.
pub(crate) fn reach(
    parsed: &Parsed,
    index: &Index,
    known: &dyn Known,
    shallow: &HashSet<ObjectId>,
    values: &[ObjectId],
    options: &IntakeOptions,
) -> Result<Reached, IntakeError> {
    let follower = Follower {
        parsed,
        index,
        known,
        shallow,
        options,
    };
    let mut reached = follower.reach(values)?;
    if reached.tips.contains(&Tip::Incomplete) {
        // What only incomplete values reach must not be stored: walk again from the others.
        let tips = std::mem::take(&mut reached.tips);
        let complete: Vec<ObjectId> = values
            .iter()
            .zip(&tips)
            .filter(|(_, tip)| **tip != Tip::Incomplete)
            .map(|(value, _)| *value)
            .collect();
        reached = Reached {
            tips,
            ..follower.reach(&complete)?
        };
    }
    Ok(reached)
}

impl Reached {
    /// The commits of the repository from which a new value's new history goes on: the value itself, if it is no new
    /// commit.
    pub(crate) fn outside_parents(&self, value: &ObjectId) -> Vec<ObjectId> {
        let Some(place) = self.places.get(value) else {
            return vec![*value];
        };
        let mut outside = Vec::new();
        let mut seen = HashSet::from([*place]);
        let mut left = vec![*place];
        while let Some(place) = left.pop() {
            for parent in self.order.parents(place as usize) {
                match parent {
                    Parent::New(parent) if seen.insert(*parent) => left.push(*parent),
                    Parent::New(_) => {}
                    Parent::Outside(index) => {
                        outside.extend(self.order.outside.get(*index as usize).map(|(oid, _)| *oid));
                    }
                }
            }
        }
        outside
    }
}

struct Follower<'a> {
    parsed: &'a Parsed,
    index: &'a Index,
    known: &'a dyn Known,
    shallow: &'a HashSet<ObjectId>,
    options: &'a IntakeOptions,
}

/// Where a value leads through tags.
struct Followed {
    kind: ObjectKind,
    /// The first object that is no tag; equal to the value if that is none.
    end: ObjectId,
    end_kind: ObjectKind,
    /// Whether the end, too, is an entry of the push.
    end_is_new: bool,
}

impl<'a> Follower<'a> {
    fn reach(&self, values: &[ObjectId]) -> Result<Reached, IntakeError> {
        let entries = &self.parsed.entries;
        let rows = &self.parsed.inspector.commits;
        let mut tags = Vec::new();
        let mut tag_entries = HashSet::new();
        let mut followed = Vec::with_capacity(values.len());
        for value in values {
            followed.push(self.follow(value, &mut tags, &mut tag_entries)?);
        }
        let mut ordering = Ordering::new(
            CommitIndex {
                entries,
                index: self.index,
                rows,
            },
            self.known,
            self.shallow,
        );
        let mut places = Vec::with_capacity(values.len());
        for followed in &followed {
            places.push(match followed {
                Some(followed) if followed.end_kind == ObjectKind::Commit => Some(ordering.add(&followed.end)?),
                _ => None,
            });
        }
        let order = ordering.finish();
        let context = Context {
            entries,
            index: self.index,
            rows,
            known: self.known,
        };
        let trees = Trees::new(
            &self.parsed.spool,
            entries,
            self.index,
            self.known,
            self.options.limits.base_bytes_max,
        );
        let mut cutter = Cutter::new(context, trees);
        cutter.commits(&order)?;
        let mut roots = HashSet::new();
        let mut incomplete_roots = HashSet::new();
        for followed in followed.iter().flatten() {
            let is_set = matches!(followed.end_kind, ObjectKind::Tree | ObjectKind::Blob) && followed.end_is_new;
            if is_set && roots.insert(followed.end) && !cutter.root(&followed.end, followed.end_kind)? {
                incomplete_roots.insert(followed.end);
            }
        }
        let cut = cutter.finish();
        let tips = values
            .iter()
            .zip(followed.iter().zip(&places))
            .map(|(value, (followed, place))| {
                let Some(followed) = followed else {
                    return Tip::Incomplete;
                };
                let complete = match place {
                    Some(Place::New(place)) => cut.broken.binary_search(place).is_err(),
                    Some(Place::Outside(_)) => true,
                    Some(Place::Missing) => false,
                    None => !incomplete_roots.contains(&followed.end),
                };
                let peeled = (followed.end != *value).then_some(followed.end);
                if complete {
                    Tip::Complete {
                        kind: followed.kind,
                        peeled,
                    }
                } else {
                    Tip::Incomplete
                }
            });
        let tips = tips.collect();
        let new = values.iter().zip(&places).filter_map(|(value, place)| match place {
            Some(Place::New(place)) => Some((*value, *place)),
            _ => None,
        });
        let places = new.collect();
        Ok(Reached {
            order,
            cut,
            tags,
            tips,
            places,
        })
    }

    /// Follows tags to what they tag in the end; `None` where something is missing or is not what its tag says.
    fn follow(
        &self,
        value: &ObjectId,
        tags: &mut Vec<TagRow>,
        tag_entries: &mut HashSet<u32>,
    ) -> Result<Option<Followed>, IntakeError> {
        let entries = &self.parsed.entries;
        let mut at = *value;
        let mut first_kind = None;
        let mut expected = None;
        loop {
            let entry = self.index.find(entries, &at);
            let Some(kind) = entry.and_then(|entry| entries.kind(entry)) else {
                return self.follow_outside(&at, first_kind, expected);
            };
            if expected.is_some_and(|expected| expected != kind) {
                return Ok(None);
            }
            let first_kind = *first_kind.get_or_insert(kind);
            if kind != ObjectKind::Tag {
                return Ok(Some(Followed {
                    kind: first_kind,
                    end: at,
                    end_kind: kind,
                    end_is_new: entry.is_some_and(|entry| !entries.is_known(entry)),
                }));
            }
            let rows = &self.parsed.inspector.tags;
            let row = rows
                .binary_search_by_key(&entry, |row| Some(row.entry))
                .ok()
                .and_then(|row| rows.get(row));
            let row = row.ok_or(IntakeError::Internal("a tag without row"))?;
            if !entries.is_known(row.entry) && tag_entries.insert(row.entry) {
                tags.push(*row);
            }
            at = row.target;
            expected = Some(row.target_kind);
        }
    }

    fn follow_outside(
        &self,
        oid: &ObjectId,
        first_kind: Option<ObjectKind>,
        mut expected: Option<ObjectKind>,
    ) -> Result<Option<Followed>, IntakeError> {
        let mut at = *oid;
        let mut first_kind = first_kind;
        for _ in 0..OUTSIDE_TAGS_MAX {
            let described = self.known.describe(&[at])?.pop().flatten();
            let Some(described) = described.filter(|described| expected.is_none_or(|kind| kind == described.kind))
            else {
                return Ok(None);
            };
            let first_kind = *first_kind.get_or_insert(described.kind);
            if described.kind != ObjectKind::Tag {
                return Ok(Some(Followed {
                    kind: first_kind,
                    end: at,
                    end_kind: described.kind,
                    end_is_new: false,
                }));
            }
            let Some((_, content)) = self.known.objects(&[at])?.pop().flatten() else {
                return Ok(None);
            };
            let Ok(tag) = TagRef::parse(self.parsed.entries.format(), &content) else {
                return Ok(None);
            };
            (at, expected) = (tag.target, Some(tag.target_kind));
        }
        Ok(None)
    }
}
