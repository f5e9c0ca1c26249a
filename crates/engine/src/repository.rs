//! One repository: handles on its log and views of it. Each verb is a module of its own.

use crate::world::World;
use crate::{EngineError, View};
use cuesta_format::{Cause, Edit, EditId, LogId, RepositoryRecord, SettingChange, SymrefChange};
use cuesta_git::{ObjectFormat, RefName};
use cuesta_ledger::{Committed, Log, State};
use parking_lot::Mutex;
use std::sync::Arc;

/// An open repository.
pub struct Repository {
    record: RepositoryRecord,
    log: Log,
    world: Arc<World>,
    /// The newest view made, for whoever comes next at the same state: what it has loaded need not be loaded again.
    newest: Mutex<Option<View>>,
}

impl Repository {
    pub(crate) fn new(record: RepositoryRecord, log: Log, world: Arc<World>) -> Self {
        Self {
            record,
            log,
            world,
            newest: Mutex::new(None),
        }
    }

    /// The repository's log, which names it for good.
    pub fn id(&self) -> LogId {
        self.record.log
    }

    /// What the directory keeps of the repository.
    pub(crate) fn record(&self) -> RepositoryRecord {
        self.record
    }

    /// The object format.
    pub fn object_format(&self) -> ObjectFormat {
        self.record.object_format
    }

    /// The log of edits.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// A view that has every edit acknowledged anywhere before this call.
    pub async fn view(&self) -> Result<View, EngineError> {
        Ok(self.view_of(self.log.fresh().await?))
    }

    /// The view of a state of this repository's log.
    pub fn view_of(&self, state: Arc<State>) -> View {
        let mut newest = self.newest.lock();
        match &*newest {
            Some(view) if view.is_of(&state) => view.clone(),
            known => {
                let view = match known {
                    Some(view) => view.of_state(state),
                    None => View::new(state, self.record, Arc::clone(&self.world)),
                };
                *newest = Some(view.clone());
                view
            }
        }
    }

    /// An edit that changes nothing yet.
    pub fn edit(&self, cause: Cause, actor: &str) -> Edit {
        let id = EditId(self.world.entropy.bits128());
        Edit::new(id, self.world.clock.now_ms(), cause, actor)
    }

    /// An edit of `state` that changes nothing yet; but a log's first edit fixes the object format and makes `HEAD`, which
    /// names the default branch.
    pub(crate) fn edit_on(&self, state: &State, cause: Cause, actor: &str) -> Result<Edit, EngineError> {
        let mut edit = self.edit(cause, actor);
        if state.object_format().is_none() {
            edit.object_format = Some(self.object_format());
            edit.symrefs = vec![SymrefChange {
                name: RefName::head(),
                target: Some(self.default_branch()?),
            }];
        }
        Ok(edit)
    }

    /// The branch that `HEAD` of a new repository names.
    pub(crate) fn default_branch(&self) -> Result<RefName, EngineError> {
        let branch = format!("refs/heads/{}", self.world.options.default_branch);
        RefName::new(branch.as_bytes()).map_err(|_| EngineError::Internal("the default branch is no ref name"))
    }

    /// Makes `HEAD` name `target`, which need not exist.
    pub async fn set_head(&self, target: RefName, actor: &str) -> Result<(), EngineError> {
        let mut edit = self.edit(Cause::Administer, actor);
        edit.symrefs = vec![SymrefChange {
            name: RefName::head(),
            target: Some(target),
        }];
        self.commit(edit).await
    }

    /// Gives a setting a value, or (`None`) puts it back to its default.
    pub async fn set_setting(&self, name: &str, value: Option<&str>, actor: &str) -> Result<(), EngineError> {
        let mut edit = self.edit(Cause::Administer, actor);
        edit.settings = vec![SettingChange {
            name: name.to_owned(),
            value: value.map(str::to_owned),
        }];
        self.commit(edit).await
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    async fn commit(&self, edit: Edit) -> Result<(), EngineError> {
        match self.log.commit(edit).await? {
            Committed::Done { .. } => Ok(()),
            Committed::Conflict(conflict) => Err(EngineError::Conflict(conflict.to_string())),
        }
    }
}
