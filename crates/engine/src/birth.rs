//! Repositories made by a push: nothing is kept, and no name taken, before the push's own edit is in the log.
//!
//! First pushes by one user to one free name share one log, so that on this node they meet as pushes to any repository do. The edit
//! that is first fixes the object format and makes `HEAD`; then the name is given, once. A crash between the two leaves a
//! log without a name, which nobody was told of and nobody finds.

use crate::engine::Inner;
use crate::receive::Receiver;
use crate::{Engine, EngineError, Repository, RepositoryName};
use cuesta_format::{AccountChange, LogId, RepositoryRecord};
use cuesta_git::ObjectFormat;
use cuesta_ledger::{Changed, LedgerError};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::OnceCell;

/// Where a push goes.
#[derive(Clone)]
pub enum PushTarget {
    /// A repository that is there.
    Repository(Arc<Repository>),
    /// One that the push is to make.
    Unborn(Arc<Unborn>),
}

impl PushTarget {
    /// The repository; an unborn one has no name yet.
    pub fn repository(&self) -> &Arc<Repository> {
        match self {
            Self::Repository(repository) => repository,
            Self::Unborn(unborn) => &unborn.repository,
        }
    }

    /// The repository, if it has a name: only then is anything to be done for it after the push.
    pub fn born(&self) -> Option<&Arc<Repository>> {
        match self {
            Self::Repository(repository) => Some(repository),
            Self::Unborn(unborn) => (unborn.named.get() == Some(&true)).then_some(&unborn.repository),
        }
    }

    /// Begins a push whose packs come in pieces.
    pub async fn receiver(&self) -> Result<Receiver<'_>, EngineError> {
        let unborn = match self {
            Self::Repository(_) => None,
            Self::Unborn(unborn) => Some(&**unborn),
        };
        Receiver::new(self.repository(), unborn).await
    }
}

/// A repository without a name: its first pushes are on their way. It is gone with the last of them, unless one succeeded.
pub struct Unborn {
    /// Who makes it, and the name it is to get.
    key: Key,
    repository: Arc<Repository>,
    engine: Engine,
    /// Who may do what in it from its first moment on.
    roles: Mutex<Vec<AccountChange>>,
    /// Whether it got its name; unset as long as no push has succeeded.
    named: OnceCell<bool>,
    /// An attempt to give the name ended without an answer: it may have been given, and others may have pushed since.
    in_doubt: AtomicBool,
}

/// A maker and a name: users do not share, for one may not be allowed to write to what another has made.
type Key = (String, RepositoryName);

/// The unborn repositories of an engine.
#[derive(Default)]
pub(crate) struct Nursery(Mutex<BTreeMap<Key, Weak<Unborn>>>);

impl Nursery {
    fn find(&self, key: &Key) -> Option<Arc<Unborn>> {
        self.0.lock().get(key).and_then(Weak::upgrade)
    }

    /// Adds one, unless another is there: then that one is the answer.
    fn add(&self, unborn: Arc<Unborn>) -> Arc<Unborn> {
        let mut all = self.0.lock();
        if let Some(other) = all.get(&unborn.key).and_then(Weak::upgrade) {
            drop(all);
            return other;
        }
        all.insert(unborn.key.clone(), Arc::downgrade(&unborn));
        unborn
    }

    fn remove(&self, key: &Key, log: LogId) {
        let mut all = self.0.lock();
        let other = all.get(key).and_then(Weak::upgrade);
        if other.as_ref().is_none_or(|other| other.repository.id() == log) {
            all.remove(key);
        }
        // Not under the lock: this may be the last handle, whose drop takes the lock, too.
        drop(all);
    }
}

impl Engine {
    /// Where a push to `name` goes: to the repository of that name, or to one of this format that the push's first
    /// successful command makes for `maker`. Until then the name stays free and nothing is written.
    pub async fn push_target(
        &self,
        name: &RepositoryName,
        format: ObjectFormat,
        maker: &str,
    ) -> Result<PushTarget, EngineError> {
        if let Some(repository) = self.repository(name).await? {
            return Ok(PushTarget::Repository(repository));
        }
        let key = (maker.to_owned(), name.clone());
        let unborn = match self.nursery().find(&key) {
            Some(unborn) => unborn,
            None => self.nursery().add(Arc::new(self.unborn(key, format).await?)),
        };
        // One that got its name after the first look is in the nursery no more.
        Ok(match self.repository(name).await? {
            Some(repository) => PushTarget::Repository(repository),
            None => PushTarget::Unborn(unborn),
        })
    }

    async fn unborn(&self, key: Key, format: ObjectFormat) -> Result<Unborn, EngineError> {
        let record = RepositoryRecord {
            log: LogId(self.world().entropy.bits128()),
            object_format: format,
        };
        Ok(Unborn {
            key,
            repository: self.open_log(record).await?,
            engine: self.clone(),
            roles: Mutex::default(),
            named: OnceCell::new(),
            in_doubt: AtomicBool::new(false),
        })
    }

    fn nursery(&self) -> &Nursery {
        let inner: &Inner = self.inner();
        &inner.nursery
    }
}

impl Unborn {
    /// Changes of accounts that are made just before the repository gets its name.
    pub fn give_at_birth(&self, roles: Vec<AccountChange>) {
        *self.roles.lock() = roles;
    }

    /// Whether it may have had its name for a while although no attempt to give it is known to have succeeded: then its log stands,
    /// with what is in it.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Relaxed)
    }

    /// Gives the repository its name, now that its log has an edit; answers `false` if another node gave the name away. The
    /// first push that succeeds decides: a name that was deleted since does not come back.
    pub(crate) async fn give_name(&self, actor: &str) -> Result<bool, EngineError> {
        let give = || async {
            let given = self.try_name(actor).await;
            if given.is_err() {
                self.in_doubt.store(true, Ordering::Relaxed);
            }
            // Whatever came of it, later pushes to the name must not find what is in the log now.
            self.engine.nursery().remove(&self.key, self.repository.id());
            given
        };
        self.named.get_or_try_init(give).await.copied()
    }

    async fn try_name(&self, actor: &str) -> Result<bool, EngineError> {
        let record = self.repository.record();
        let roles = self.roles.lock().clone();
        let has_roles = !roles.is_empty();
        if has_roles {
            self.engine.change_accounts(roles, actor).await?;
        }
        self.engine.keep_open(&self.repository);
        match self
            .engine
            .directory()
            .create(self.key.1.as_str(), record, actor)
            .await?
        {
            Changed::Done => Ok(true),
            // The name is this repository's: an earlier attempt gave it, but its answer was lost.
            Changed::Conflict(_) if self.has_name().await? => Ok(true),
            // It may have had the name for a while, and pushes with it: nothing of it is thrown away.
            Changed::Conflict(_) if self.is_in_doubt() => Ok(false),
            Changed::Conflict(_) => {
                self.engine.forget(record.log);
                if has_roles {
                    // What is left behind gives nobody anything: the log has no name.
                    let forget = vec![AccountChange::ForgetRepository(record.log)];
                    let _ = self.engine.change_accounts(forget, actor).await;
                }
                match self.engine.world().log_store.drop_log(record.log).await {
                    Ok(()) | Err(LedgerError::Dropped { .. }) => Ok(false),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    async fn has_name(&self) -> Result<bool, EngineError> {
        let named = self.engine.directory().resolve(self.key.1.as_str()).await?;
        Ok(named.is_some_and(|record| record.log == self.repository.id()))
    }
}

impl Drop for Unborn {
    fn drop(&mut self) {
        self.engine.nursery().remove(&self.key, self.repository.id());
    }
}
