//! The worker's part of an import: read what is not known, check it, store layers.

use super::directory::{GitDirectory, SourceRefs};
use super::error::ImportError;
use super::objects::{ObjectFiles, PackFile};
use super::{ImportOptions, ImportProgress, OnProgress, PackStream, loose};
use crate::View;
use crate::receive::{Intake, IntakeError, IntakeOptions, Known, Lean, Nothing, Place, Policy, Reached, Settled, Tip};
use bytes::Bytes;
use cuesta_format::{AddedLayer, LogId, RefTarget};
use cuesta_git::ObjectId;
use futures::StreamExt as _;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

/// Ids that are looked up at once.
const LOOKUP_BATCH: usize = 4096;
const READ_LEN: usize = 256 << 10;

/// Where the objects of an import come from.
pub(super) enum Supply {
    Directory { directory: GitDirectory, alternates: bool },
    Remote(Option<PackStream>),
}

/// An import being taken in.
pub(super) struct Take {
    view: View,
    place: Place,
    lean: Lean,
    intake: IntakeOptions,
    refs: SourceRefs,
    exact: bool,
    progress: OnProgress,
    bytes: u64,
    bytes_total: Option<u64>,
}

/// What was taken in: all that an edit needs.
pub(super) struct Took {
    pub(super) refs: SourceRefs,
    pub(super) targets: HashMap<ObjectId, RefTarget>,
    pub(super) shallow: Vec<ObjectId>,
    pub(super) stored: Vec<AddedLayer>,
    /// Objects read.
    pub(super) objects: u32,
    /// Whether the layers hold everything, and replace all that there are.
    pub(super) rebuilt: bool,
}

/// Which objects of a source are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// None: all refs are known with everything they reach.
    Nothing,
    /// Those that are stored nowhere.
    Unstored,
    /// Those that the repository does not vouch for, stored or not.
    Unvouched,
}

impl Take {
    pub(super) fn new(
        log: LogId,
        view: &View,
        refs: SourceRefs,
        options: &ImportOptions,
        progress: OnProgress,
    ) -> Self {
        let world = view.world();
        let limits = world.options.receive.clone();
        let fsck = match options.strict {
            true => Policy::fsck(&view.settings(), view.object_format()),
            false => Policy::tolerant_fsck(),
        };
        Self {
            place: Place::new(view, log, &limits),
            lean: Lean::waiting(view.clone(), world.workers.clone()),
            intake: IntakeOptions::new(view.object_format(), limits, fsck),
            view: view.clone(),
            refs,
            exact: options.exact,
            progress,
            bytes: 0,
            bytes_total: None,
        }
    }

    pub(super) fn run(mut self, supply: Supply) -> Result<Took, ImportError> {
        // Histories that were cut elsewhere do not match these: generations and parents of what is stored would be wrong.
        let state = self.view.state().clone();
        let rebuilt = self.exact && *state.shallow() != *self.refs.shallow && !state.layers().is_empty();
        let lean = self.lean.clone();
        let known: &dyn Known = if rebuilt { &Nothing } else { &lean };
        let shallow = self.shallow_after(known)?;
        let mut targets = HashMap::new();
        let mut values = Vec::new();
        for (name, oid) in &self.refs.refs {
            match state.refs().get(name).filter(|target| target.oid == *oid && !rebuilt) {
                Some(target) => drop(targets.insert(*oid, *target)),
                None => values.push(*oid),
            }
        }
        values.retain(|oid| !targets.contains_key(oid));
        values.sort_unstable();
        values.dedup();

        let mut intake = Intake::new(self.intake.clone());
        let (promised, hint) = self.supply(supply, &mut intake, known, rebuilt, &values)?;
        let objects = intake.progress().0;
        let mut stored = Vec::new();
        if objects > 0 || !values.is_empty() {
            (self.progress)(ImportProgress::Checking { objects });
            let settled = intake.settle(known)?;
            check_promised(&settled, &promised)?;
            (self.progress)(ImportProgress::Storing { objects });
            let boundary: HashSet<ObjectId> = shallow.iter().copied().collect();
            let reached = settled.reach(known, &boundary, &values)?;
            for (oid, tip) in values.iter().zip(&reached.tips) {
                match tip {
                    Tip::Complete { peeled, .. } => {
                        let target = RefTarget {
                            oid: *oid,
                            peeled: *peeled,
                        };
                        targets.insert(*oid, target);
                    }
                    Tip::Incomplete => return Err(self.incomplete(&values, &reached, hint)),
                }
            }
            stored = self.store(&settled, &reached, known, rebuilt)?;
        }
        Ok(Took {
            refs: self.refs,
            targets,
            shallow,
            stored,
            objects,
            rebuilt,
        })
    }

    /// The repository's boundary afterwards. A commit whose parents are here does not become part of it.
    fn shallow_after(&self, known: &dyn Known) -> Result<Vec<ObjectId>, IntakeError> {
        if self.exact {
            return Ok(self.refs.shallow.clone());
        }
        let mut shallow = self.view.state().shallow().to_vec();
        for oid in &self.refs.shallow {
            if known.commit(oid)?.is_none() {
                shallow.push(*oid);
            }
        }
        shallow.sort_unstable();
        shallow.dedup();
        Ok(shallow)
    }

    /// Feeds what is needed; answers the ids that loose files promised, and what may help if something is missing.
    fn supply(
        &mut self,
        supply: Supply,
        intake: &mut Intake,
        known: &dyn Known,
        rebuilt: bool,
        values: &[ObjectId],
    ) -> Result<(Vec<(ObjectId, PathBuf)>, String), ImportError> {
        match supply {
            Supply::Remote(pack) => {
                if let Some(pack) = pack {
                    self.feed_stream(pack, intake)?;
                }
                Ok((Vec::new(), String::new()))
            }
            Supply::Directory { directory, alternates } => {
                let scope = self.scope(known, values)?;
                if scope == Scope::Nothing {
                    return Ok((Vec::new(), String::new()));
                }
                let files = directory.objects(alternates)?;
                let everything = self.lean.clone().everything();
                let have: &dyn Known = match scope {
                    Scope::Unstored if !rebuilt => &everything,
                    _ => known,
                };
                let promised = self.feed_directory(&files, intake, have)?;
                let hint = files.passed_over.first().map(|path| {
                    format!(
                        " (the source borrows from '{}': allow it with --alternates)",
                        path.display()
                    )
                });
                Ok((promised, hint.unwrap_or_default()))
            }
        }
    }

    fn scope(&self, known: &dyn Known, values: &[ObjectId]) -> Result<Scope, IntakeError> {
        for batch in values.chunks(LOOKUP_BATCH) {
            if known.describe(batch)?.contains(&None) {
                return Ok(Scope::Unvouched);
            }
        }
        Ok(if self.exact { Scope::Unstored } else { Scope::Nothing })
    }

    fn feed_directory(
        &mut self,
        files: &ObjectFiles,
        intake: &mut Intake,
        have: &dyn Known,
    ) -> Result<Vec<(ObjectId, PathBuf)>, ImportError> {
        let format = self.intake.object_format;
        let mut packs = Vec::new();
        for pack in &files.packs {
            let oids = if have.is_empty() { None } else { pack.oids(format) };
            match oids {
                Some(oids) if has_all(have, &oids)? => {}
                _ => packs.push(pack),
            }
        }
        let mut loose = Vec::new();
        for batch in files.loose.chunks(LOOKUP_BATCH) {
            let oids: Vec<ObjectId> = batch.iter().map(|object| object.oid).collect();
            let described = have.describe(&oids)?;
            let unknown = batch.iter().zip(described).filter(|(_, described)| described.is_none());
            loose.extend(unknown.map(|(object, _)| object.clone()));
        }
        self.bytes_total = Some(packs.iter().map(|pack| pack.len()).sum());
        for pack in packs {
            self.feed_pack(pack, intake)?;
        }
        if !loose.is_empty() {
            loose::feed(&loose, format, &mut |bytes| Ok(intake.feed(bytes)?))?;
            intake.finish_pack()?;
        }
        Ok(loose.into_iter().map(|object| (object.oid, object.path)).collect())
    }

    fn feed_pack(&mut self, pack: &PackFile, intake: &mut Intake) -> Result<(), ImportError> {
        let path = &pack.pack;
        let mut file = File::open(path).map_err(ImportError::read(path))?;
        let mut buffer = vec![0; READ_LEN];
        loop {
            let len = file.read(&mut buffer).map_err(ImportError::read(path))?;
            if len == 0 {
                return intake.finish_pack().map_err(ImportError::intake(path));
            }
            let bytes = buffer.get(..len).unwrap_or_default();
            intake.feed(bytes).map_err(ImportError::intake(path))?;
            self.note(len, intake);
        }
    }

    fn feed_stream(&mut self, mut pack: PackStream, intake: &mut Intake) -> Result<(), ImportError> {
        let workers = self.view.world().workers.clone();
        while let Some(bytes) = workers.wait(pack.next()) {
            let bytes: Bytes = bytes.map_err(ImportError::Remote)?;
            intake.feed(&bytes)?;
            self.note(bytes.len(), intake);
        }
        Ok(intake.finish_pack()?)
    }

    fn note(&mut self, len: usize, intake: &Intake) {
        self.bytes += len as u64;
        (self.progress)(ImportProgress::Reading {
            objects: intake.progress().0,
            bytes: self.bytes,
            bytes_total: self.bytes_total,
        });
    }

    fn store(
        &self,
        settled: &Settled,
        reached: &Reached,
        known: &dyn Known,
        rebuilt: bool,
    ) -> Result<Vec<AddedLayer>, ImportError> {
        let mut stored = Vec::new();
        if !reached.is_empty() {
            stored.extend(
                self.place
                    .stream(|chunk_len, chunks| settled.build(known, reached, chunk_len, chunks).map(Some))?,
            );
        }
        if self.exact {
            let everything = self.lean.clone().everything();
            let stored_already: &dyn Known = if rebuilt { known } else { &everything };
            stored.extend(
                self.place.stream(|chunk_len, chunks| {
                    settled.build_unreachable(stored_already, reached, chunk_len, chunks)
                })?,
            );
        }
        Ok(stored)
    }

    fn incomplete(&self, values: &[ObjectId], reached: &Reached, hint: String) -> ImportError {
        let broken: HashSet<&ObjectId> = values
            .iter()
            .zip(&reached.tips)
            .filter(|(_, tip)| **tip == Tip::Incomplete)
            .map(|(oid, _)| oid)
            .collect();
        let mut names = self
            .refs
            .refs
            .iter()
            .filter(|(_, oid)| broken.contains(oid))
            .map(|(name, _)| name);
        let first = names.next().map(ToString::to_string).unwrap_or_default();
        ImportError::Incomplete {
            first,
            others: names.count(),
            hint,
        }
    }
}

/// Every loose file must have held the object that its name promises.
fn check_promised(settled: &Settled, promised: &[(ObjectId, PathBuf)]) -> Result<(), ImportError> {
    match promised.iter().find(|(oid, _)| !settled.contains(oid)) {
        Some((oid, path)) => Err(ImportError::source(
            path,
            format!("hash mismatch: it does not hold {oid}"),
        )),
        None => Ok(()),
    }
}

fn has_all(have: &dyn Known, oids: &[ObjectId]) -> Result<bool, IntakeError> {
    for batch in oids.chunks(LOOKUP_BATCH) {
        if have.describe(batch)?.contains(&None) {
            return Ok(false);
        }
    }
    Ok(true)
}
