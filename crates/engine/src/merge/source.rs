//! Contents of what the inputs of a merge hold, made from their delta chains.
//!
//! The inputs' packs are read once, in order, into files without names: chains lead anywhere in a pack, and a bucket is
//! not asked for a few bytes at a time.

use super::kept::Kept;
use super::plan::{At, Plan};
use super::{Input, READ_LEN};
use crate::objects::inflate_entry;
use crate::receive::{Spool, SpoolReader};
use crate::{DELTA_DEPTH_MAX, EngineError, View, Watch};
use bytes::Bytes;
use cuesta_git::zlib::WholeInflater;
use cuesta_git::{ObjectId, delta};
use cuesta_store::Workers;
use std::ops::Range;
use std::path::Path;

/// Bytes of all inputs that may stay in memory instead of files.
const SPOOL_MEMORY_BYTES_MAX: usize = 4 << 20;

/// Reads the inputs' packs.
pub(super) fn spool(
    inputs: &[Input],
    workers: &Workers,
    directory: &Path,
    watch: &Watch,
) -> Result<Vec<Spool>, EngineError> {
    let memory_bytes_max = SPOOL_MEMORY_BYTES_MAX / inputs.len().max(1);
    let mut spools = Vec::with_capacity(inputs.len());
    for input in inputs {
        let mut spool = Spool::new(directory.to_owned(), memory_bytes_max);
        let end = input.layer.meta().pack_bytes;
        while spool.len() < end {
            watch.check()?;
            let range = spool.len()..end.min(spool.len() + READ_LEN);
            let bytes = workers.wait(input.layer.read_once(range))?;
            if bytes.is_empty() {
                return Err(input.layer.corrupt("the pack is shorter than the ledger says"));
            }
            spool.append(&bytes).map_err(spool_failed)?;
        }
        spool.seal().map_err(spool_failed)?;
        spools.push(spool);
    }
    Ok(spools)
}

fn spool_failed(error: std::io::Error) -> EngineError {
    EngineError::Intake(crate::receive::IntakeError::Spool(error))
}

/// What a content is kept under.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    /// The number of an entry of the inputs.
    Entry(u32),
    /// An object of another layer.
    Outside(ObjectId),
}

/// Makes contents, and keeps those used last: what is asked for next is mostly a delta on one of them.
pub(super) struct Source<'a> {
    view: &'a View,
    workers: &'a Workers,
    inputs: &'a [Input],
    plan: &'a Plan<'a>,
    packs: Vec<SpoolReader<'a>>,
    kept: Kept<Key>,
    inflater: WholeInflater,
    /// Numbers of deltas still to be applied, the nearest to the base last.
    chain: Vec<u32>,
}

impl<'a> Source<'a> {
    /// Keeps at most `bytes_max` of contents.
    pub(super) fn new(
        view: &'a View,
        workers: &'a Workers,
        inputs: &'a [Input],
        plan: &'a Plan<'a>,
        spools: &'a [Spool],
        bytes_max: usize,
    ) -> Self {
        Self {
            view,
            workers,
            inputs,
            plan,
            packs: spools.iter().map(SpoolReader::scattered).collect(),
            kept: Kept::new(bytes_max),
            inflater: WholeInflater::new(),
            chain: Vec::new(),
        }
    }

    /// Bytes of an input's pack.
    pub(super) fn stored(&mut self, input: u32, range: Range<u64>) -> Result<&[u8], EngineError> {
        let pack = self.packs.get_mut(input as usize).ok_or(NO_INPUT)?;
        pack.read(range).map_err(spool_failed)
    }

    /// The content of an object, wherever it is.
    pub(super) fn object(&mut self, oid: &ObjectId) -> Result<Bytes, EngineError> {
        match self.plan.find_oid(oid) {
            Some(number) => self.content(number),
            None => self.outside(oid),
        }
    }

    /// The content of the entry of that number.
    ///
    /// What is made on the way is kept: clients' packs lead from newer objects to older ones, and the older are asked for
    /// first.
    pub(super) fn content(&mut self, number: u32) -> Result<Bytes, EngineError> {
        self.chain.clear();
        let mut content = self.nearest(number)?;
        while let Some(number) = self.chain.pop() {
            let (at, input) = self.locate(number)?;
            let delta = self.inflate(at)?;
            let wrong = |what: &dyn std::fmt::Display| input.layer.corrupt(format!("entry {}: {what}", at.entry));
            match delta::DeltaHeader::decode(&delta) {
                Ok((header, _)) if header.result_size == input.index.entries.size(at.entry) => {}
                Ok(_) => return Err(wrong(&"the delta's result size is not the cue's")),
                Err(error) => return Err(wrong(&error)),
            }
            content = Bytes::from(delta::apply(&content, &delta).map_err(|error| wrong(&error))?);
            self.kept.insert(Key::Entry(number), content.clone());
        }
        Ok(content)
    }

    /// The nearest content at hand on the way from an entry to its base; the deltas between go to `chain`.
    fn nearest(&mut self, start: u32) -> Result<Bytes, EngineError> {
        let mut number = start;
        loop {
            if let Some(kept) = self.kept.get(&Key::Entry(number)) {
                return Ok(kept);
            }
            if self.chain.len() > DELTA_DEPTH_MAX {
                // Copies of several inputs may lead in a circle; a view knows the way out.
                self.chain.clear();
                let oid = self.plan.oid(start).ok_or(NO_INPUT)?;
                return self.outside(&oid);
            }
            let (at, _) = self.locate(number)?;
            let Some(link) = self.plan.base_link(at) else {
                let whole = Bytes::from(self.inflate(at)?);
                self.kept.insert(Key::Entry(number), whole.clone());
                return Ok(whole);
            };
            self.chain.push(number);
            number = match (link, self.plan.find(at.input, link)) {
                // Within an input, its own copy: kept or not, it is the one the delta was stored with.
                (cuesta_format::Link::Local(entry), _) => self.plan.number(At { entry, ..at }).ok_or(NO_INPUT)?,
                (_, Some(number)) => number,
                (cuesta_format::Link::External(external), None) => {
                    let (_, input) = self.locate(number)?;
                    return self.outside(&input.index.externals.oid(external));
                }
            };
        }
    }

    fn outside(&mut self, oid: &ObjectId) -> Result<Bytes, EngineError> {
        if let Some(kept) = self.kept.get(&Key::Outside(*oid)) {
            return Ok(kept);
        }
        let object = self.workers.wait(self.view.object(oid))?;
        let (_, content) = object.ok_or(EngineError::Internal("an object of a merged layer is gone"))?;
        self.kept.insert(Key::Outside(*oid), content.clone());
        Ok(content)
    }

    fn locate(&self, number: u32) -> Result<(At, &'a Input), EngineError> {
        let at = self.plan.at(number).ok_or(NO_INPUT)?;
        let input = self.inputs.get(at.input as usize).ok_or(NO_INPUT)?;
        Ok((at, input))
    }

    /// The inflated stream of an entry: an object or a delta.
    fn inflate(&mut self, at: At) -> Result<Vec<u8>, EngineError> {
        let input = self.inputs.get(at.input as usize).ok_or(NO_INPUT)?;
        let pack = self.packs.get_mut(at.input as usize).ok_or(NO_INPUT)?;
        let stored = pack.read(input.index.entries.range(at.entry)).map_err(spool_failed)?;
        let inflated = inflate_entry(&input.layer, at.entry, input.index.format, stored, &mut self.inflater)?;
        Ok(inflated.1)
    }
}

const NO_INPUT: EngineError = EngineError::Internal("no such entry of a merge");
