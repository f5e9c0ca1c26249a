//! From the bytes of packs to a layer, with every check on the way. Pure but for the spool's file.

use super::build::{self, Material};
use super::contents::Contents;
use super::entries::{Entries, Index};
use super::error::{IntakeError, PackFault};
use super::known::Known;
use super::large;
use super::options::IntakeOptions;
use super::parse::{PackParser, Parsed};
use super::resolve;
use super::tips::{self, Reached};
use crate::layer_builder::Built;
use cuesta_git::fsck::Finding;
use cuesta_git::{ObjectId, ObjectKind};
use std::collections::HashSet;
use std::ops::Range;

/// Ids that are compared with the repository at once.
const COMPARE_BATCH: u32 = 4096;

/// Packs on their way in. Bytes come in chunks of any size; one pack may follow another.
pub(crate) struct Intake {
    options: IntakeOptions,
    parser: PackParser,
}

impl Intake {
    pub(crate) fn new(options: IntakeOptions) -> Self {
        Self {
            parser: PackParser::new(options.clone()),
            options,
        }
    }

    /// So many bytes are about to come.
    pub(crate) fn expect(&mut self, bytes: usize) {
        self.parser.expect(bytes);
    }

    /// Takes the next bytes of the current pack.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(), IntakeError> {
        self.parser.feed(bytes)
    }

    /// Whether the current pack has come to its end.
    pub(crate) fn is_pack_whole(&self) -> bool {
        self.parser.is_pack_whole()
    }

    /// Ends the current pack; fails unless it is whole.
    pub(crate) fn finish_pack(&mut self) -> Result<(), IntakeError> {
        self.parser.finish_pack()
    }

    /// Objects so far, and how many there will be once the current pack is in.
    pub(crate) fn progress(&self) -> (u32, u32) {
        self.parser.progress()
    }

    /// After the last pack: resolves and checks every object.
    pub(crate) fn settle(self, known: &dyn Known) -> Result<Settled, IntakeError> {
        let mut parsed = self.parser.into_parsed()?;
        resolve::resolve(&mut parsed, known, &self.options)?;
        compare(&mut parsed.entries, known)?;
        parsed.inspector.commits.sort_unstable_by_key(|row| row.entry);
        parsed.inspector.tags.sort_unstable_by_key(|row| row.entry);
        let index = Index::new(&parsed.entries);
        check_special_blobs(&mut parsed, &index, known, &self.options)?;
        let warnings = parsed.inspector.checker.take_warnings();
        Ok(Settled {
            options: self.options,
            parsed,
            index,
            warnings,
        })
    }
}

/// Blobs that trees of the push name `.gitmodules` and the like have rules of their own, also where they came in an
/// earlier push.
fn check_special_blobs(
    parsed: &mut Parsed,
    index: &Index,
    known: &dyn Known,
    options: &IntakeOptions,
) -> Result<(), IntakeError> {
    let Parsed {
        spool,
        entries,
        inspector,
    } = parsed;
    let special: Vec<ObjectId> = inspector.checker.special_blobs().collect();
    if special.is_empty() {
        return Ok(());
    }
    let mut contents = Contents::new(spool, entries, known, options.limits.base_bytes_max);
    for oid in special {
        let checked = match index.find(entries, &oid) {
            Some(entry) => {
                let kind = entries
                    .kind(entry)
                    .ok_or(IntakeError::Internal("an entry is not resolved"))?;
                let fits = entries.size(entry) <= options.limits.held_object_bytes_max
                    && (kind != ObjectKind::Blob || !large::has_large(entries, entry, &options.limits));
                let content = if fits { Some(contents.content(entry)?) } else { None };
                inspector.checker.check_special_blob(&oid, kind, content.as_deref())
            }
            None => match known.objects(&[oid])?.pop().flatten() {
                Some((kind, content)) => inspector.checker.check_special_blob(&oid, kind, Some(&content)),
                None => continue,
            },
        };
        checked.map_err(|refusal| PackFault::fsck(&refusal))?;
    }
    Ok(inspector
        .checker
        .finish()
        .map_err(|refusal| PackFault::fsck(&refusal))?)
}

/// So many entries, a few at a time.
fn batches(entries: u32) -> impl Iterator<Item = Range<u32>> {
    let starts = (0..entries).step_by(COMPARE_BATCH as usize);
    starts.map(move |start| start..entries.min(start.saturating_add(COMPARE_BATCH)))
}

/// An object that the repository has, too, must be the same; it is marked.
fn compare(entries: &mut Entries, known: &dyn Known) -> Result<(), IntakeError> {
    if known.is_empty() {
        return Ok(());
    }
    for of_blobs in [false, true] {
        let mut batch = Vec::new();
        for entry in 0..entries.len() {
            if of_blobs == (entries.kind(entry) == Some(ObjectKind::Blob)) {
                batch.push(entry);
            }
            if batch.len() == COMPARE_BATCH as usize || entry + 1 == entries.len() {
                compare_batch(entries, &batch, known, of_blobs)?;
                batch.clear();
            }
        }
    }
    Ok(())
}

fn compare_batch(entries: &mut Entries, batch: &[u32], known: &dyn Known, of_blobs: bool) -> Result<(), IntakeError> {
    let oids: Vec<ObjectId> = batch.iter().map(|entry| entries.oid(*entry)).collect();
    let described = match of_blobs {
        false => known.describe_brought_structure(&oids)?,
        true => known.describe_brought_blobs(&oids)?,
    };
    for ((entry, oid), described) in batch.iter().zip(&oids).zip(described) {
        let Some(described) = described else { continue };
        if Some(described.kind) != entries.kind(*entry) || described.size != entries.size(*entry) {
            return Err(PackFault::Collision(*oid).into());
        }
        entries.set_known(*entry);
    }
    Ok(())
}

/// Packs that are in, every object sound.
pub(crate) struct Settled {
    options: IntakeOptions,
    pub(super) parsed: Parsed,
    index: Index,
    /// What git's fsck rules find odd and let pass; a bounded number.
    pub(super) warnings: Vec<Finding>,
}

impl Settled {
    /// The ids of all entries.
    pub(crate) fn oids(&self) -> impl Iterator<Item = ObjectId> + '_ {
        (0..self.objects()).map(|entry| self.parsed.entries.oid(entry))
    }

    /// How many entries there are.
    pub(crate) fn objects(&self) -> u32 {
        self.parsed.entries.len()
    }

    /// Follows the new values of refs: what they reach and whether it is all there.
    pub(crate) fn reach(
        &self,
        known: &dyn Known,
        shallow: &HashSet<ObjectId>,
        values: &[ObjectId],
    ) -> Result<Reached, IntakeError> {
        tips::reach(&self.parsed, &self.index, known, shallow, values, &self.options)
    }

    /// Builds the layer of what was reached. Bytes of the pack go to `chunks` once there are `chunk_len` of them.
    pub(crate) fn build(
        &self,
        known: &dyn Known,
        reached: &Reached,
        chunk_len: usize,
        chunks: build::Chunks<'_>,
    ) -> Result<Built, IntakeError> {
        let material = self.material(known);
        build::build(
            &material,
            &reached.order,
            &reached.cut,
            &reached.tags,
            chunk_len,
            chunks,
        )
    }

    /// Whether the object came in.
    pub(crate) fn contains(&self, oid: &ObjectId) -> bool {
        self.index.find(&self.parsed.entries, oid).is_some()
    }

    /// Builds the layer of what was not reached and is not stored yet, if there is any.
    pub(crate) fn build_unreachable(
        &self,
        known: &dyn Known,
        reached: &Reached,
        chunk_len: usize,
        chunks: build::Chunks<'_>,
    ) -> Result<Option<Built>, IntakeError> {
        let rows = &self.parsed.inspector.commits;
        let commits = reached
            .order
            .commits
            .iter()
            .filter_map(|commit| rows.get(commit.row as usize));
        let mut entries: Vec<u32> = commits.map(|row| row.entry).collect();
        entries.extend(reached.tags.iter().map(|tag| tag.entry));
        entries.extend(&reached.cut.trees);
        entries.extend(&reached.cut.blobs);
        self.extend_with_known(known, &mut entries)?;
        let material = self.material(known);
        build::build_unreachable(&material, &entries, &self.parsed.inspector.tags, chunk_len, chunks)
    }

    /// Adds the entries whose object the repository has.
    fn extend_with_known(&self, known: &dyn Known, entries: &mut Vec<u32>) -> Result<(), IntakeError> {
        if known.is_empty() {
            return Ok(());
        }
        for batch in batches(self.parsed.entries.len()) {
            let oids: Vec<ObjectId> = batch.clone().map(|entry| self.parsed.entries.oid(entry)).collect();
            let described = known.describe(&oids)?;
            let stored = batch.zip(described).filter(|(_, described)| described.is_some());
            entries.extend(stored.map(|(entry, _)| entry));
        }
        Ok(())
    }

    fn material<'a>(&'a self, known: &'a dyn Known) -> Material<'a> {
        Material {
            spool: &self.parsed.spool,
            entries: &self.parsed.entries,
            index: &self.index,
            rows: &self.parsed.inspector.commits,
            known,
            limits: &self.options.limits,
        }
    }
}

impl Reached {
    /// Whether there is nothing to store.
    pub(crate) fn is_empty(&self) -> bool {
        self.order.commits.is_empty() && self.tags.is_empty() && self.cut.roots.is_empty()
    }
}
