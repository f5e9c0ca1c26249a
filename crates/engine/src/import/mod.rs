//! Import: a repository taken over from a git directory, or from a remote whose pack someone else fetches.
//!
//! What comes in is checked like a push; then refs, layers and, in an exact import, everything else of the source change in
//! one edit. Responsible for reading directories and for what an import means; not for talking to remotes.

mod difference;
mod directory;
mod error;
mod loose;
mod objects;
mod refs;
mod take;

pub use directory::{GitDirectory, SourceRefs};
pub use error::ImportError;

use crate::receive::discard;
use crate::{Engine, EngineError, Repository, RepositoryName};
use bytes::Bytes;
use cuesta_format::{AddedLayer, Cause, LayerId};
use cuesta_git::{ObjectFormat, ObjectId};
use cuesta_ledger::{Committed, Conflict};
use difference::{Difference, Wanted};
use futures::stream::BoxStream;
use std::path::PathBuf;
use std::sync::Arc;
use take::{Supply, Take, Took};

/// Commits tried while others change the same refs.
const COMMITS_MAX: usize = 16;

/// How to import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportOptions {
    /// Make the repository equal to the source: other refs are deleted, `HEAD`, symbolic refs, shallow boundary and settings
    /// taken over, unreachable objects kept. For directories.
    pub exact: bool,
    /// Refuse objects that break git's fsck rules, as for a push. Without, only those are refused that cannot be used.
    pub strict: bool,
    /// Take objects from the repositories that the source borrows from, too.
    pub alternates: bool,
    /// Who imports.
    pub actor: String,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self {
            exact: false,
            strict: true,
            alternates: false,
            actor: String::new(),
        }
    }
}

/// What an import did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// The entry of the log that holds it; `None` if there was nothing to do.
    pub number: Option<u64>,
    /// Refs made, symbolic ones included.
    pub refs_created: usize,
    /// Refs changed, symbolic ones included.
    pub refs_updated: usize,
    /// Refs deleted, symbolic ones included.
    pub refs_deleted: usize,
    /// Objects read from the source.
    pub objects_read: u32,
    /// Layers added.
    pub layers: usize,
    /// What was passed over.
    pub warnings: Vec<String>,
}

/// How far an import is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportProgress {
    /// Objects are being read.
    Reading {
        /// Objects so far.
        objects: u32,
        /// Bytes of packs so far.
        bytes: u64,
        /// Bytes of packs in all, where that is known.
        bytes_total: Option<u64>,
    },
    /// All bytes are in; deltas are being resolved and objects checked.
    Checking {
        /// Objects in all.
        objects: u32,
    },
    /// Histories are cut and layers stored.
    Storing {
        /// Objects in all.
        objects: u32,
    },
}

/// Is told how far an import is, from worker threads.
pub type OnProgress = Arc<dyn Fn(ImportProgress) + Send + Sync>;

/// The bytes of one pack from a remote.
pub type PackStream = BoxStream<'static, Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>;

impl Engine {
    /// Imports a git directory into the repository of that name, which is made if it is not there.
    ///
    /// What is known already is not read again: an exact import of an unchanged directory costs the reading of its refs, of
    /// the indices of its packs and of the names of its loose objects.
    pub async fn import_directory(
        &self,
        name: &RepositoryName,
        source: PathBuf,
        options: &ImportOptions,
        progress: OnProgress,
    ) -> Result<ImportReport, ImportError> {
        let read = move || {
            let directory = GitDirectory::open(&source)?;
            Ok::<_, ImportError>((directory.refs()?, directory))
        };
        let (refs, directory) = self.world().workers.run(read).await?;
        let format = directory.object_format();
        let supply = Supply::Directory {
            directory,
            alternates: options.alternates,
        };
        self.import(name, format, refs, supply, options, progress).await
    }

    /// Imports the refs of a remote, of which `pack` brings what the repository lacks.
    pub async fn import_remote(
        &self,
        name: &RepositoryName,
        format: ObjectFormat,
        refs: SourceRefs,
        pack: Option<PackStream>,
        options: &ImportOptions,
        progress: OnProgress,
    ) -> Result<ImportReport, ImportError> {
        if options.exact {
            return Err(EngineError::Unsupported("an exact import of a remote").into());
        }
        let supply = Supply::Remote(pack);
        self.import(name, format, refs, supply, options, progress).await
    }

    async fn import(
        &self,
        name: &RepositoryName,
        format: ObjectFormat,
        refs: SourceRefs,
        supply: Supply,
        options: &ImportOptions,
        progress: OnProgress,
    ) -> Result<ImportReport, ImportError> {
        let (repository, made) = match self.repository(name).await? {
            Some(repository) => (repository, false),
            None => (self.create_repository(name, format, &options.actor).await?, true),
        };
        let ours = repository.object_format();
        if ours != format {
            return Err(ImportError::ObjectFormat { ours, theirs: format });
        }
        let imported = repository.import(refs, supply, made, options, progress).await;
        if imported.is_err() && made {
            // Nobody can have begun to rely on it; if deleting fails, an empty repository stays.
            let _ = self.delete_repository(name, &options.actor).await;
        }
        imported
    }
}

impl Repository {
    async fn import(
        &self,
        mut refs: SourceRefs,
        supply: Supply,
        made: bool,
        options: &ImportOptions,
        progress: OnProgress,
    ) -> Result<ImportReport, ImportError> {
        let view = self.view().await?;
        let warnings = std::mem::take(&mut refs.warnings);
        let take = Take::new(self.id(), &view, refs, options, progress);
        let workers = view.world().workers.clone();
        let took = workers.run(move || take.run(supply)).await?;
        let Took {
            refs,
            targets,
            shallow,
            stored,
            objects,
            rebuilt,
        } = took;
        let wanted = Wanted {
            refs: refs.refs,
            symrefs: refs.symrefs,
            settings: refs.settings,
            targets,
            shallow,
            exact: options.exact,
            head: options.exact || made,
        };
        let removed: Vec<LayerId> = match rebuilt {
            true => view.state().layers().iter().map(|record| record.meta.id).collect(),
            false => Vec::new(),
        };
        let (layers, objects_read) = (stored.len(), objects);
        match self
            .commit_import(&wanted, stored.clone(), removed, &options.actor)
            .await
        {
            Ok((number, difference)) => Ok(ImportReport {
                number,
                refs_created: difference.created,
                refs_updated: difference.updated,
                refs_deleted: difference.deleted,
                objects_read,
                layers,
                warnings,
            }),
            Err(error) => {
                if !matches!(error, ImportError::Engine(EngineError::Ledger(_))) {
                    // Only where the outcome is known: else the layers may be part of the repository.
                    discard(&view, self.id(), &stored).await;
                }
                Err(error)
            }
        }
    }

    /// The one commit point. Refs are forced, so that one changed meanwhile only needs another look at its old value.
    async fn commit_import(
        &self,
        wanted: &Wanted,
        added: Vec<AddedLayer>,
        removed: Vec<LayerId>,
        actor: &str,
    ) -> Result<(Option<u64>, Difference), ImportError> {
        for _ in 0..COMMITS_MAX {
            let state = self.log().fresh().await?;
            let difference = difference::between(&state, wanted)?;
            if difference.is_empty() && added.is_empty() && removed.is_empty() {
                return Ok((None, difference));
            }
            let mut edit = self.edit(Cause::Import, actor);
            edit.refs = difference.refs.clone();
            edit.symrefs = difference.symrefs.clone();
            edit.settings = difference.settings.clone();
            edit.shallow = difference.shallow.clone();
            edit.added = added.clone();
            edit.removed = removed.clone();
            let conflict = match self.log().commit(edit).await? {
                Committed::Done { number, .. } => return Ok((Some(number), difference)),
                Committed::Conflict(conflict) => conflict,
            };
            match conflict {
                Conflict::Ref { name, reason } if self.log().current().number() == state.number() => {
                    return Err(ImportError::Ref {
                        name: name.to_string(),
                        reason: reason.to_string(),
                    });
                }
                Conflict::Ref { .. } => {}
                conflict => return Err(EngineError::Conflict(conflict.to_string()).into()),
            }
        }
        Err(EngineError::Conflict("the repository's refs".to_owned()).into())
    }
}

impl Repository {
    /// Of these ids, those whose objects are not here with all that they reach, each once and in order: what a fetch from
    /// a remote should ask for.
    pub async fn missing(&self, oids: impl IntoIterator<Item = ObjectId>) -> Result<Vec<ObjectId>, EngineError> {
        let view = self.view().await?;
        let mut oids: Vec<ObjectId> = oids.into_iter().collect();
        oids.sort_unstable();
        oids.dedup();
        let mut missing = Vec::new();
        for oid in oids {
            let copies = view.copies(&oid).await?;
            if copies.iter().all(|location| location.layer.meta().unreachable) {
                missing.push(oid);
            }
        }
        Ok(missing)
    }
}
