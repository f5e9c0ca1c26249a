//! Bases of deltas chosen anew (docs/decisions/bases-at-compaction.md).
//!
//! An object's base is the version of its path in a parent of its commit, or one further back on that version's chain, so
//! that chains stay short. No base is searched for. What a client's delta already does as well is copied as it is.
//!
//! Deltas cannot run in a circle: a base that is chosen comes earlier in the pack, or lies, with all that it rests on, in
//! layers older than the inputs. Objects that keep their stored form whatever it rests on (*fixed* ones) are no bases.

use super::Input;
use super::depth::{self, Link};
use super::paths::{self, Before, Befores};
use super::plan::{At, Base, Plan};
use super::source::Source;
use crate::{DELTA_DEPTH_MAX, EngineError, View, Watch};
use cuesta_format::{self as format, LayerId};
use cuesta_git::delta::{DeltaIndex, apply};
use cuesta_git::zlib::Deflater;
use cuesta_git::{ObjectId, ObjectKind, object_checksum};
use cuesta_store::Workers;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// A delta is taken if it is at most so many tenths of the whole object, both deflated: the client has to make it.
const DELTA_TENTHS_MAX: usize = 9;
/// A delta that is at most this part of its object is taken without a look at what the object deflates to.
const SMALL_DELTA_PART: usize = 10;
/// An object that is looked at has at most this part of the memory: beside it there are its base, an index of that, the delta
/// and what they deflate to.
const OBJECT_PART: usize = 6;

/// An entry of the new layer.
pub(super) enum Choice {
    /// As it is stored, on that base.
    Stored(Base),
    /// Made anew.
    Made {
        base: Base,
        /// Bytes of the stream inflated.
        own_size: u64,
        stream: Vec<u8>,
    },
}

/// Chooses for one entry after the other, in the order of the new pack.
pub(super) struct Chooser<'a> {
    view: &'a View,
    workers: &'a Workers,
    inputs: &'a [Input],
    plan: &'a Plan<'a>,
    source: Source<'a>,
    befores: Befores,
    /// For each place: keeps its stored form.
    fixed: Vec<bool>,
    /// For each place before the present one, what it is based on.
    links: Vec<Link>,
    watch: Watch,
    /// Layers older than the inputs.
    older: HashSet<LayerId>,
    /// Deltas below each number of the first of two layers, where this is the second.
    first_depths: &'a [u16],
    /// Deltas below an object of an older layer; `None` for one that rests on a layer that is not older.
    outside_depths: HashMap<ObjectId, Option<u16>>,
    deflater: Deflater,
}

impl<'a> Chooser<'a> {
    /// Finds what stood at each path before, which takes a walk over all trees.
    pub(super) fn new(
        view: &'a View,
        workers: &'a Workers,
        inputs: &'a [Input],
        plan: &'a Plan<'a>,
        mut source: Source<'a>,
        first_depths: &'a [u16],
        watch: &Watch,
    ) -> Result<Self, EngineError> {
        let options = &view.world().options;
        let trees = plan.first_blob.saturating_sub(plan.first_tree);
        watch.expect(u64::from(trees) + u64::from(plan.objects()));
        let befores = paths::find(view, workers, plan, &mut source, watch)?;
        let first = inputs.first().map(|input| input.layer.id());
        let layers = view.state().layers().iter().map(|record| record.meta.id);
        let older = layers.take_while(|id| Some(*id) != first);
        let object_bytes_max = (options.compact_memory_bytes_max / OBJECT_PART) as u64;
        Ok(Self {
            view,
            workers,
            inputs,
            plan,
            source,
            befores,
            watch: watch.clone(),
            fixed: fixed(inputs, plan, object_bytes_max),
            links: Vec::with_capacity(plan.objects() as usize),
            older: older.collect(),
            first_depths,
            outside_depths: HashMap::new(),
            deflater: Deflater::new(options.deflate_level),
        })
    }

    /// Bytes of an input's pack.
    pub(super) fn stored(&mut self, input: u32, range: Range<u64>) -> Result<&[u8], EngineError> {
        self.source.stored(input, range)
    }

    /// Chooses for the next place.
    pub(super) fn choose_next(&mut self) -> Result<Choice, EngineError> {
        let place = u32::try_from(self.links.len()).map_err(|_| LOST)?;
        self.watch.check()?;
        self.watch.advance(1);
        let at = self.plan.entry(place).ok_or(LOST)?;
        if self.fixed.get(place as usize).copied().unwrap_or(true) {
            self.links.push(Link::WHOLE);
            return Ok(Choice::Stored(match self.plan.base(place) {
                Base::External(oid) if self.is_after(&oid) => Base::Circular,
                base => base,
            }));
        }
        let (chosen, link) = self.choose(place, at)?;
        self.links.push(link);
        Ok(chosen)
    }

    fn choose(&mut self, place: u32, at: At) -> Result<(Choice, Link), EngineError> {
        let input = self.inputs.get(at.input as usize).ok_or(LOST)?;
        let size = input.index.entries.size(at.entry);
        let candidate = self.candidate(place, input.index.kind(at.entry), size)?;
        let stored = self.plan.stored_base(place);
        if let Some((base, link)) = &candidate
            && same_base(base, &stored)
        {
            return Ok((Choice::Stored(stored), *link));
        }
        if candidate.is_none() {
            if matches!(stored, Base::None) {
                return Ok((Choice::Stored(Base::None), Link::WHOLE));
            }
            if let Some(link) = self.stored_link(place, &stored, size)? {
                return Ok((Choice::Stored(stored), link));
            }
        }
        self.make(place, at, candidate, matches!(stored, Base::None))
    }

    /// The base by path, if there is one that leaves the chain short enough.
    fn candidate(&mut self, place: u32, kind: ObjectKind, size: u64) -> Result<Option<(Base, Link)>, EngineError> {
        let candidate = match self.befores.of(place) {
            None => None,
            Some(Before::Entry(before)) if before >= place || self.is_fixed(before) => None,
            Some(Before::Entry(before)) => depth::extend(&self.links, before, kind, size).map(|link| {
                let base = link.base;
                (Base::Merged(base), link)
            }),
            Some(Before::Outside(oid)) => {
                let depth = self.outside_depth(&oid)?;
                let link = depth.and_then(|depth| depth::extend_outside(depth, size));
                link.map(|link| (Base::External(oid), link))
            }
        };
        Ok(candidate)
    }

    /// Where a delta leads whose stored form is kept; `None` if it cannot be.
    fn stored_link(&mut self, place: u32, stored: &Base, size: u64) -> Result<Option<Link>, EngineError> {
        Ok(match stored {
            Base::Merged(base) if *base < place && !self.is_fixed(*base) => depth::onto(&self.links, *base, size),
            Base::External(oid) => self
                .outside_depth(oid)?
                .and_then(|depth| depth::extend_outside(depth, size)),
            Base::None | Base::Merged(_) | Base::Circular => None,
        })
    }

    fn is_fixed(&self, place: u32) -> bool {
        self.fixed.get(place as usize).copied().unwrap_or(true)
    }

    /// Whether an object is in the second of two layers, on which the first must not rest.
    fn is_after(&self, oid: &ObjectId) -> bool {
        let number = self.plan.find_oid(oid);
        number.is_some_and(|number| self.plan.is_after(number))
    }

    /// Deltas below each entry that was chosen for, by number; none of the others may be a base.
    pub(super) fn depths(&self) -> Vec<u16> {
        let mut depths = vec![NO_BASE; self.plan.len()];
        for ((number, link), fixed) in self.plan.entries().iter().zip(&self.links).zip(&self.fixed) {
            if let Some(depth) = depths.get_mut(*number as usize).filter(|_| !fixed) {
                *depth = link.depth;
            }
        }
        depths
    }

    /// Deltas below an object outside the new layer, if all of them are in older layers.
    fn outside_depth(&mut self, oid: &ObjectId) -> Result<Option<u16>, EngineError> {
        if let Some(number) = self.plan.find_oid(oid).filter(|number| self.plan.is_before(*number)) {
            let depth = self.first_depths.get(number as usize).copied();
            return Ok(depth.filter(|depth| *depth != NO_BASE));
        }
        if let Some(known) = self.outside_depths.get(oid) {
            return Ok(*known);
        }
        let depth = self.walk_outside(oid)?;
        self.outside_depths.insert(*oid, depth);
        Ok(depth)
    }

    fn walk_outside(&self, oid: &ObjectId) -> Result<Option<u16>, EngineError> {
        let mut oid = *oid;
        let mut steps = 0u16;
        'layers: loop {
            let Some(found) = self.workers.wait(self.view.find_base(&oid))? else {
                return Ok(None);
            };
            if found.layer.is_inline() || !self.older.contains(&found.layer.id()) {
                return Ok(None);
            }
            let index = self.workers.wait(found.layer.index())?;
            let mut entry = found.entry;
            while usize::from(steps) < DELTA_DEPTH_MAX {
                match index.entries.base(entry) {
                    format::Base::None => return Ok(Some(steps)),
                    format::Base::Entry(base) => entry = base,
                    format::Base::External(external) => {
                        oid = index.externals.oid(external);
                        steps += 1;
                        continue 'layers;
                    }
                }
                steps += 1;
            }
            return Ok(None);
        }
    }

    /// Makes the entry anew: as a delta on the candidate if that pays, else whole.
    fn make(
        &mut self,
        place: u32,
        at: At,
        candidate: Option<(Base, Link)>,
        stored_whole: bool,
    ) -> Result<(Choice, Link), EngineError> {
        let number = self.plan.number(at).ok_or(LOST)?;
        let content = self.source.content(number)?;
        self.verify(place, &content)?;
        let stored_len = match stored_whole {
            true => self
                .inputs
                .get(at.input as usize)
                .map(|input| input.index.entries.stored_len(at.entry)),
            false => None,
        };
        let mut whole = Whole {
            content: &content,
            stored_len,
            stream: None,
        };
        if let Some((base, link)) = candidate
            && let Some((own_size, stream)) = self.delta(&base, &mut whole)?
        {
            return Ok((Choice::Made { base, own_size, stream }, link));
        }
        let chosen = match stored_whole {
            true => Choice::Stored(Base::None),
            false => Choice::Made {
                base: Base::None,
                own_size: content.len() as u64,
                stream: whole.into_stream(&mut self.deflater)?,
            },
        };
        Ok((chosen, Link::WHOLE))
    }

    /// The delta on a base, as its size and its stream, if it pays.
    fn delta(&mut self, base: &Base, whole: &mut Whole<'_>) -> Result<Option<(u64, Vec<u8>)>, EngineError> {
        let base_content = match base {
            Base::Merged(base) => {
                let oid = self.plan.oid_at(*base).ok_or(LOST)?;
                self.source.object(&oid)?
            }
            Base::External(oid) => self.source.object(oid)?,
            Base::None | Base::Circular => return Ok(None),
        };
        let content = whole.content;
        let Some(delta) = DeltaIndex::new(&base_content).diff(content, content.len()) else {
            return Ok(None);
        };
        if apply(&base_content, &delta).ok().as_deref() != Some(content) {
            return Err(EngineError::Internal("a delta does not make what it was made for"));
        }
        let mut stream = Vec::new();
        deflate(&mut self.deflater, &delta, &mut stream)?;
        let pays = delta.len() * SMALL_DELTA_PART <= content.len()
            || stream.len() * 10 <= whole.len(&mut self.deflater)? * DELTA_TENTHS_MAX;
        Ok(pays.then_some((delta.len() as u64, stream)))
    }

    /// What is written must be what the id says: inputs are read without a look at their ids.
    fn verify(&self, place: u32, content: &[u8]) -> Result<(), EngineError> {
        let at = self.plan.entry(place).ok_or(LOST)?;
        let input = self.inputs.get(at.input as usize).ok_or(LOST)?;
        let oid = object_checksum(input.index.format, input.index.kind(at.entry), content);
        match input.index.oid(at.entry) {
            Some(expected) if expected == oid => Ok(()),
            _ => Err(input.layer.corrupt(format!("entry {} hashes to {oid}", at.entry))),
        }
    }
}

/// Stands for the depth of what may not be a base.
const NO_BASE: u16 = u16::MAX;

const LOST: EngineError = EngineError::Internal("no such entry of a merge");

/// An object as it would be stored whole.
struct Whole<'a> {
    content: &'a [u8],
    /// Bytes of its entry, where it is stored whole.
    stored_len: Option<u64>,
    stream: Option<Vec<u8>>,
}

impl Whole<'_> {
    fn len(&mut self, deflater: &mut Deflater) -> Result<usize, EngineError> {
        if let Some(len) = self.stored_len {
            return Ok(usize::try_from(len).unwrap_or(usize::MAX));
        }
        Ok(self.stream(deflater)?.len())
    }

    fn stream(&mut self, deflater: &mut Deflater) -> Result<&mut Vec<u8>, EngineError> {
        if self.stream.is_none() {
            let mut stream = Vec::new();
            deflate(deflater, self.content, &mut stream)?;
            self.stream = Some(stream);
        }
        Ok(self.stream.get_or_insert_default())
    }

    fn into_stream(mut self, deflater: &mut Deflater) -> Result<Vec<u8>, EngineError> {
        Ok(std::mem::take(self.stream(deflater)?))
    }
}

fn deflate(deflater: &mut Deflater, content: &[u8], stream: &mut Vec<u8>) -> Result<(), EngineError> {
    let deflated = deflater.deflate(content, stream);
    deflated.map_err(|_| EngineError::Internal("deflating failed"))
}

fn same_base(one: &Base, other: &Base) -> bool {
    match (one, other) {
        (Base::Merged(one), Base::Merged(other)) => one == other,
        (Base::External(one), Base::External(other)) => one == other,
        _ => false,
    }
}

/// Which places keep their stored form: objects too large to be held, what is made from such ones, and trees and blobs that
/// belong to no commit's segment.
fn fixed(inputs: &[Input], plan: &Plan<'_>, object_bytes_max: u64) -> Vec<bool> {
    let mut fixed = vec![false; plan.objects() as usize];
    let own = |count: fn(&super::plan::Set) -> u32| plan.segments.iter().map(count).sum::<u32>();
    let trees_end = plan.first_tree + own(|set| set.trees);
    let blobs_end = plan.first_blob + own(|set| set.blobs);
    let heavy = heavy(inputs, plan, object_bytes_max);
    for ((place, number), fixed) in (0u32..).zip(plan.entries()).zip(&mut fixed) {
        let is_heavy = heavy.get(*number as usize);
        *fixed =
            (trees_end..plan.first_blob).contains(&place) || place >= blobs_end || is_heavy.is_none_or(|heavy| *heavy);
    }
    fixed
}

/// Which numbers take an object above a limit to be made.
fn heavy(inputs: &[Input], plan: &Plan<'_>, object_bytes_max: u64) -> Vec<bool> {
    let total: u32 = inputs.iter().map(|input| input.index.entries.len()).sum();
    let mut known: Vec<Option<bool>> = vec![None; total as usize];
    let mut chain = Vec::new();
    for start in 0..total {
        let mut next = Some(start);
        let mut heavy = false;
        while let Some(number) = next {
            match known.get(number as usize).copied() {
                Some(None) => {}
                Some(Some(is_heavy)) => {
                    heavy = is_heavy;
                    break;
                }
                None => break,
            }
            // Marked before its chain is followed, so that a circle ends.
            if let Some(slot) = known.get_mut(number as usize) {
                *slot = Some(false);
            }
            chain.push(number);
            next = plan.at(number).and_then(|at| {
                let link = plan.base_link(at)?;
                match link {
                    format::Link::Local(entry) => plan.number(At { entry, ..at }),
                    format::Link::External(_) => plan.find(at.input, link),
                }
            });
        }
        while let Some(number) = chain.pop() {
            let at = plan.at(number);
            let size = at.and_then(|at| Some(inputs.get(at.input as usize)?.index.entries.size(at.entry)));
            heavy |= size.is_none_or(|size| size > object_bytes_max);
            if let Some(slot) = known.get_mut(number as usize) {
                *slot = Some(heavy);
            }
        }
    }
    known.into_iter().map(|heavy| heavy.unwrap_or(true)).collect()
}
