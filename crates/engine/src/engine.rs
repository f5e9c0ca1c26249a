//! The engine: all repositories of one bucket and one log store.

use crate::birth::Nursery;
use crate::fold::LastLooks;
use crate::upload::{AnswerCounters, Answers};
use crate::world::{EngineOptions, World};
use crate::{EngineError, Repository, RepositoryName, Settings};
use async_trait::async_trait;
use bytes::Bytes;
use cuesta_format::{AccountChange, Cause, LogId, RepositoryRecord, checkpoint_key};
use cuesta_git::ObjectFormat;
use cuesta_ledger::{
    Accounts, AccountsChanged, Changed, CheckpointSource, Committed, Directory, LedgerError, Log, LogOptions, LogStore,
    NameConflict,
};
use cuesta_store::{BlockCache, Bucket, Clock, Entropy, KeptFiles, StoreErrorKind, Workers};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// What an engine is made of.
pub struct EngineParts {
    /// Where layers and checkpoints are, behind a cache of blocks.
    pub cache: BlockCache,
    /// Where logs are.
    pub log_store: Arc<dyn LogStore>,
    /// Tells the time.
    pub clock: Clock,
    /// Gives random bits.
    pub entropy: Entropy,
    /// Where work longer than a millisecond runs.
    pub workers: Workers,
    /// Limits and choices.
    pub options: EngineOptions,
}

/// All repositories of one bucket and one log store. Clones are handles on the same.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

pub(crate) struct Inner {
    world: Arc<World>,
    directory: Directory,
    /// Opened by the first who asks: without users there is nothing to open.
    accounts: OnceCell<Accounts>,
    checkpoints: Arc<dyn CheckpointSource>,
    open: Mutex<OpenRepositories>,
    pub(crate) nursery: Nursery,
    last_looks: LastLooks,
}

impl Engine {
    /// Opens the directory of names. Must be called within a tokio runtime, which carries the logs' tasks.
    pub async fn open(parts: EngineParts) -> Result<Self, EngineError> {
        let EngineParts {
            cache,
            log_store,
            clock,
            entropy,
            workers,
            options,
        } = parts;
        let bucket = cache.bucket().clone();
        let checkpoints: Arc<dyn CheckpointSource> = Arc::new(BucketCheckpoints { bucket: bucket.clone() });
        let log = Log::open(
            log_store.clone(),
            LogId::DIRECTORY,
            checkpoints.clone(),
            LogOptions::default(),
        )
        .await?;
        let directory = Directory::new(log, clock.clone(), entropy.clone());
        let open = Mutex::new(OpenRepositories::new(options.open_repositories_max));
        let answers = match options.answers.clone() {
            Some(kept) => {
                let (directory, bytes_max) = (kept.directory.clone(), kept.bytes_max);
                let files = workers.run(move || KeptFiles::open(&directory, bytes_max)).await?;
                Some(Answers::new(files, cache.clone(), kept))
            }
            None => None,
        };
        let world = Arc::new(World {
            bucket,
            cache,
            log_store,
            clock,
            entropy,
            workers,
            answers,
            options,
        });
        Ok(Self(Arc::new(Inner {
            world,
            directory,
            accounts: OnceCell::new(),
            checkpoints,
            open,
            nursery: Nursery::default(),
            last_looks: LastLooks::default(),
        })))
    }

    /// The directory of names.
    pub fn directory(&self) -> &Directory {
        &self.0.directory
    }

    /// Users, their credentials and their roles.
    pub async fn accounts(&self) -> Result<&Accounts, EngineError> {
        let open = || async {
            let (inner, world) = (&self.0, &self.0.world);
            let (store, checkpoints) = (world.log_store.clone(), inner.checkpoints.clone());
            let log = Log::open(store, LogId::ACCOUNTS, checkpoints, LogOptions::default()).await?;
            Ok(Accounts::new(log, world.clock.clone(), world.entropy.clone()))
        };
        self.0.accounts.get_or_try_init(open).await
    }

    /// The accounts, if anybody has asked for them.
    pub(crate) fn opened_accounts(&self) -> Option<&Accounts> {
        self.0.accounts.get()
    }

    pub(crate) fn last_looks(&self) -> &LastLooks {
        &self.0.last_looks
    }

    /// Makes changes of the accounts, all or none.
    pub async fn change_accounts(&self, changes: Vec<AccountChange>, actor: &str) -> Result<(), EngineError> {
        match self.accounts().await?.change(changes, actor).await? {
            AccountsChanged::Done => Ok(()),
            AccountsChanged::Conflict(conflict) => Err(EngineError::Account(conflict)),
        }
    }

    /// The bucket.
    pub fn bucket(&self) -> &Bucket {
        &self.0.world.bucket
    }

    /// What keeping answers has been good for; `None` if none are kept.
    pub fn answer_counters(&self) -> Option<AnswerCounters> {
        self.0.world.answers.as_ref().map(Answers::counters)
    }

    pub(crate) fn world(&self) -> &Arc<World> {
        &self.0.world
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }

    /// The settings of a repository that sets nothing itself.
    pub fn settings(&self) -> Settings<'_> {
        Settings::of_node(&self.0.world.options.settings)
    }

    /// The repository of that name, opened if it is not open yet; `None` if there is none.
    pub async fn repository(&self, name: &RepositoryName) -> Result<Option<Arc<Repository>>, EngineError> {
        match self.0.directory.resolve(name.as_str()).await? {
            Some(record) => self.open_repository(record).await.map(Some),
            None => Ok(None),
        }
    }

    /// The repository of a record of the directory.
    pub async fn open_repository(&self, record: RepositoryRecord) -> Result<Arc<Repository>, EngineError> {
        let cell = self.0.open.lock().cell(record.log);
        cell.get_or_try_init(|| self.open_log(record)).await.cloned()
    }

    /// A handle on a repository that nobody else gets.
    pub(crate) async fn open_log(&self, record: RepositoryRecord) -> Result<Arc<Repository>, EngineError> {
        let inner = &self.0;
        let (store, checkpoints) = (inner.world.log_store.clone(), inner.checkpoints.clone());
        let log = Log::open(store, record.log, checkpoints, LogOptions::default()).await?;
        Ok(Arc::new(Repository::new(record, log, inner.world.clone())))
    }

    /// From now on this handle is the one that requests get.
    pub(crate) fn keep_open(&self, repository: &Arc<Repository>) {
        // Where there is one already, both follow the same log.
        let _ = self.0.open.lock().cell(repository.id()).set(Arc::clone(repository));
    }

    pub(crate) fn forget(&self, log: LogId) {
        self.0.open.lock().forget(log);
    }

    /// Makes an empty repository whose `HEAD` names the default branch.
    ///
    /// The log gets its first edit before it gets its name: who finds the name finds a repository. If the name turns out
    /// to be taken, the log is dropped again.
    pub async fn create_repository(
        &self,
        name: &RepositoryName,
        format: ObjectFormat,
        actor: &str,
    ) -> Result<Arc<Repository>, EngineError> {
        let log = LogId(self.0.world.entropy.bits128());
        self.create_repository_as(log, name, format, actor).await
    }

    /// Makes an empty repository whose log is `log`, a random id that nobody has used: who gives roles to it before it has its
    /// name leaves no moment without them.
    pub async fn create_repository_as(
        &self,
        log: LogId,
        name: &RepositoryName,
        format: ObjectFormat,
        actor: &str,
    ) -> Result<Arc<Repository>, EngineError> {
        let taken = || EngineError::RepositoryExists(name.clone());
        if self.0.directory.resolve(name.as_str()).await?.is_some() {
            return Err(taken());
        }
        let record = RepositoryRecord {
            log,
            object_format: format,
        };
        let repository = self.open_repository(record).await?;
        let first = repository.edit_on(&repository.log().current(), Cause::Create, actor)?;
        if let Committed::Conflict(conflict) = repository.log().commit(first).await? {
            return Err(EngineError::Conflict(conflict.to_string()));
        }
        match self.0.directory.create(name.as_str(), record, actor).await? {
            Changed::Done => Ok(repository),
            Changed::Conflict(_) => {
                self.forget(record.log);
                self.0.world.log_store.drop_log(record.log).await?;
                Err(taken())
            }
        }
    }

    /// Frees the name of a repository, then drops the roles in it. Requests in flight finish; its payloads are collected later,
    /// never here.
    pub async fn delete_repository(&self, name: &RepositoryName, actor: &str) -> Result<(), EngineError> {
        let record = self.0.directory.resolve(name.as_str()).await?;
        let record = record.ok_or_else(|| EngineError::NoRepository(name.clone()))?;
        self.changed(name, self.0.directory.delete(name.as_str(), record.log, actor).await?)?;
        self.forget(record.log);
        // Whatever becomes of this, the repository is gone: roles in a log without a name give nobody anything.
        if let Err(error) = self.forget_roles(record.log, actor).await {
            tracing::warn!(repository = %record.log, error = ?error.to_string(), "roles of a deleted repository are left");
        }
        Ok(())
    }

    async fn forget_roles(&self, log: LogId, actor: &str) -> Result<(), EngineError> {
        if self.accounts().await?.fresh().await?.roles(log).is_none() {
            return Ok(());
        }
        let changes = vec![AccountChange::ForgetRepository(log)];
        self.change_accounts(changes, actor).await
    }

    /// Gives a repository another, free name. Its log, layers and open handles stay.
    pub async fn rename_repository(
        &self,
        from: &RepositoryName,
        to: &RepositoryName,
        actor: &str,
    ) -> Result<(), EngineError> {
        let changed = self.0.directory.rename(from.as_str(), to.as_str(), actor).await?;
        match changed {
            Changed::Conflict(NameConflict::Exists(_)) => Err(EngineError::RepositoryExists(to.clone())),
            changed => self.changed(from, changed),
        }
    }

    fn changed(&self, name: &RepositoryName, changed: Changed) -> Result<(), EngineError> {
        match changed {
            Changed::Done => Ok(()),
            Changed::Conflict(NameConflict::Missing(_)) => Err(EngineError::NoRepository(name.clone())),
            Changed::Conflict(conflict) => Err(EngineError::Conflict(conflict.to_string())),
        }
    }
}

/// Repositories kept open, by log: at most `count_max`, the longest unused leaves first.
struct OpenRepositories {
    count_max: usize,
    clock: u64,
    repositories: HashMap<LogId, (u64, Cell)>,
}

/// Opened once, however many ask at the same time.
type Cell = Arc<OnceCell<Arc<Repository>>>;

impl OpenRepositories {
    fn new(count_max: usize) -> Self {
        Self {
            count_max: count_max.max(1),
            clock: 0,
            repositories: HashMap::new(),
        }
    }

    fn cell(&mut self, log: LogId) -> Cell {
        self.clock += 1;
        let (used, cell) = self.repositories.entry(log).or_default();
        *used = self.clock;
        let cell = Arc::clone(cell);
        while self.repositories.len() > self.count_max {
            let oldest = self
                .repositories
                .iter()
                .min_by_key(|(_, (used, _))| *used)
                .map(|(log, _)| *log);
            oldest.map(|log| self.repositories.remove(&log));
        }
        cell
    }

    fn forget(&mut self, log: LogId) {
        self.repositories.remove(&log);
    }
}

/// Checkpoints as payloads of the bucket.
struct BucketCheckpoints {
    bucket: Bucket,
}

#[async_trait]
impl CheckpointSource for BucketCheckpoints {
    async fn load(&self, log: LogId, number: u64) -> Result<Bytes, LedgerError> {
        let key = checkpoint_key(log, number);
        self.bucket.get(&key).await.map_err(|error| match error.kind() {
            StoreErrorKind::NotFound => LedgerError::NoCheckpoint { log, number },
            _ => LedgerError::unavailable(format!("load checkpoint {number}"), error),
        })
    }
}
