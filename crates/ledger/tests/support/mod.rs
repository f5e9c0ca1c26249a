//! What the tests share: edits in short, and a log store that fails as networks do.

// Every test file is its own crate and uses its own part of this.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use async_trait::async_trait;
use bytes::Bytes;
use cuesta_format::{Cause, Edit, EditId, LogId, RefTarget, RefUpdate};
use cuesta_git::{ObjectFormat, ObjectId, RefName};
use cuesta_ledger::{Appended, Base, LedgerError, Limits, Log, LogOptions, LogStore, MemoryStore, NoCheckpoints};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

pub const LOG: LogId = LogId(7);

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// An edit that changes nothing yet.
pub fn edit() -> Edit {
    let id = EditId(NEXT_ID.fetch_add(1, Ordering::Relaxed).into());
    Edit::new(id, 1_700_000_000_000, Cause::Push, "someone")
}

/// The edit that begins a log.
pub fn creation() -> Edit {
    Edit {
        cause: Cause::Create,
        object_format: Some(ObjectFormat::Sha1),
        ..edit()
    }
}

/// An edit of one ref; values are bytes that stand for oids.
pub fn push(ref_name: &str, old: Option<u8>, new: Option<u8>) -> Edit {
    Edit {
        refs: vec![update(ref_name, old, new)],
        ..edit()
    }
}

pub fn update(ref_name: &str, old: Option<u8>, new: Option<u8>) -> RefUpdate {
    RefUpdate {
        name: name(ref_name),
        old: old.map(oid),
        new: new.map(target),
    }
}

pub fn name(name: &str) -> RefName {
    RefName::new(name.as_bytes()).unwrap()
}

pub fn oid(byte: u8) -> ObjectId {
    ObjectId::Sha1([byte; 20])
}

pub fn target(byte: u8) -> RefTarget {
    RefTarget {
        oid: oid(byte),
        peeled: None,
    }
}

pub async fn open(store: Arc<dyn LogStore>) -> Log {
    Log::open(store, LOG, Arc::new(NoCheckpoints), LogOptions::default())
        .await
        .unwrap()
}

/// What happens to the next append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It works.
    None,
    /// It fails before it has any effect.
    Before,
    /// It has its effect, and the reply is lost.
    After,
    /// The reply is lost, and the effect comes only when [`FaultyStore::deliver`] is called.
    Late,
}

/// A memory store whose appends fail as told, and wait for leave where asked to.
pub struct FaultyStore {
    inner: Arc<MemoryStore>,
    faults: Mutex<VecDeque<Fault>>,
    late: Mutex<Vec<(LogId, u64, Bytes)>>,
    pub reads_fail: AtomicBool,
    /// Nobody is told of changes.
    pub mute: AtomicBool,
    /// Appends that came, and that passed the gate.
    pub arrivals: AtomicUsize,
    pub appends: AtomicUsize,
    /// Appends wait for a permit each while this is closed to them.
    pub gate: Semaphore,
    pub limits: Limits,
}

impl FaultyStore {
    pub fn new(inner: Arc<MemoryStore>) -> Arc<Self> {
        let limits = inner.limits();
        Arc::new(Self::limited(inner, limits))
    }

    pub fn limited(inner: Arc<MemoryStore>, limits: Limits) -> Self {
        Self {
            inner,
            faults: Mutex::default(),
            late: Mutex::default(),
            reads_fail: AtomicBool::new(false),
            mute: AtomicBool::new(false),
            arrivals: AtomicUsize::new(0),
            appends: AtomicUsize::new(0),
            gate: Semaphore::new(1 << 20),
            limits,
        }
    }

    /// The next appends fail so, one after the other; later ones work.
    pub fn plan(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().unwrap().extend(faults);
    }

    /// Closes the gate: no append passes until [`FaultyStore::open_gate`].
    pub fn close_gate(&self) {
        self.gate.forget_permits(1 << 20);
    }

    pub fn open_gate(&self) {
        self.gate.add_permits(1 << 20);
    }

    /// Late appends arrive at the store. Answers what became of each.
    pub async fn deliver(&self) -> Vec<Appended> {
        let late: Vec<_> = self.late.lock().unwrap().drain(..).collect();
        let mut outcomes = Vec::new();
        for (log, number, entry) in late {
            outcomes.push(self.inner.append(log, number, entry).await.unwrap());
        }
        outcomes
    }

    fn lost(&self) -> LedgerError {
        LedgerError::unavailable("reach the store", std::io::Error::other("connection lost"))
    }

    fn check_reads(&self) -> Result<(), LedgerError> {
        if self.reads_fail.load(Ordering::SeqCst) {
            Err(self.lost())
        } else {
            Ok(())
        }
    }
}

#[async_trait]
impl LogStore for FaultyStore {
    fn limits(&self) -> Limits {
        self.limits
    }

    async fn append(&self, log: LogId, number: u64, entry: Bytes) -> Result<Appended, LedgerError> {
        self.arrivals.fetch_add(1, Ordering::SeqCst);
        drop(self.gate.acquire().await.unwrap());
        self.appends.fetch_add(1, Ordering::SeqCst);
        let fault = self.faults.lock().unwrap().pop_front().unwrap_or(Fault::None);
        match fault {
            Fault::None => self.inner.append(log, number, entry).await,
            Fault::Before => Err(self.lost()),
            Fault::After => self
                .inner
                .append(log, number, entry)
                .await
                .and_then(|_| Err(self.lost())),
            Fault::Late => {
                self.late.lock().unwrap().push((log, number, entry));
                Err(self.lost())
            }
        }
    }

    async fn read(&self, log: LogId, from: u64, bytes_max: usize) -> Result<Vec<(u64, Bytes)>, LedgerError> {
        self.check_reads()?;
        self.inner.read(log, from, bytes_max).await
    }

    async fn end(&self, log: LogId) -> Result<u64, LedgerError> {
        self.check_reads()?;
        self.inner.end(log).await
    }

    async fn base(&self, log: LogId) -> Result<Base, LedgerError> {
        self.check_reads()?;
        self.inner.base(log).await
    }

    async fn advance(&self, log: LogId, base: Base) -> Result<(), LedgerError> {
        self.inner.advance(log, base).await
    }

    async fn changed(&self, log: LogId, than: u64) -> Result<u64, LedgerError> {
        if self.mute.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_secs(1 << 20)).await;
        }
        self.inner.changed(log, than).await
    }

    async fn drop_log(&self, log: LogId) -> Result<(), LedgerError> {
        self.inner.drop_log(log).await
    }
}

/// Ids of all edits in the log, in order.
pub async fn ids_in(store: &dyn LogStore, log: LogId) -> Vec<EditId> {
    let first = store.base(log).await.unwrap().first;
    let entries = store.read(log, first, usize::MAX).await.unwrap();
    let decoded = entries
        .iter()
        .map(|(_, bytes)| cuesta_format::Entry::decode(bytes).unwrap());
    decoded
        .flat_map(|entry| entry.edits.into_iter().map(|edit| edit.id))
        .collect()
}
