//! An open log: the handle through which a node reads a state and commits edits to it.

use crate::driver::{Command, Driver, Inputs, ReadReply};
use crate::{CheckpointSource, LedgerError, LogStore, Machine, State};
use cuesta_format::LogId;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// How a log groups and retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Edits in one entry, at most.
    pub group_edits_max: usize,
    /// How long a log waits for more after an entry of several edits. An entry costs the same for one edit as for many, and who
    /// commits at the same time as others loses less by waiting than all do by small groups. Who commits alone never waits.
    pub group_rest: Duration,
    /// Edits waiting for their entry, at most; more wait in [`Log::commit`] without being taken.
    pub queue_edits_max: usize,
    /// How often an append of unknown outcome is read back and repeated before its edits are answered
    /// [`LedgerError::Unknown`].
    pub attempts_max: u32,
    /// The pause after the first failure of the store; it doubles with each further one, up to a second.
    pub retry_pause: Duration,
    /// Bytes of entries read at once when catching up.
    pub read_bytes_max: usize,
}

/// Readers in the queue of one log; more wait before it.
const READERS_MAX: usize = 1024;

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            group_edits_max: 256,
            group_rest: Duration::from_millis(1),
            queue_edits_max: 1024,
            attempts_max: 5,
            retry_pause: Duration::from_millis(20),
            read_bytes_max: 4 << 20,
        }
    }
}

/// What became of an edit.
#[derive(Clone, Debug)]
pub enum Committed<M: Machine = State> {
    /// It is durable, and visible to every request that starts from now on, on any node.
    Done {
        /// The entry it came in. One whose reply was lost and that was then found through a checkpoint came in this entry or
        /// an earlier one.
        number: u64,
        /// A state that has it.
        state: Arc<M>,
    },
    /// It does not apply, on a state no older than the call; nothing happened.
    Conflict(M::Conflict),
}

/// One open log. Clones are handles on the same; the last one dropped ends its task once what was taken is answered.
///
/// One task owns the log's state: it keeps at most one append in flight, forms the next group from what arrives
/// meanwhile, and follows the appends of other nodes. Dropping a call's future never loses or doubles an edit: once
/// taken, it goes its way.
pub struct Log<M: Machine = State> {
    id: LogId,
    store: Arc<dyn LogStore>,
    states: watch::Receiver<Arc<M>>,
    commands: mpsc::Sender<Command<M>>,
    /// Reads wait in a queue of their own, so that they pass a full queue of edits.
    reads: mpsc::Sender<ReadReply<M>>,
}

impl<M: Machine> Clone for Log<M> {
    fn clone(&self) -> Self {
        Self {
            id: self.id,
            store: Arc::clone(&self.store),
            states: self.states.clone(),
            commands: self.commands.clone(),
            reads: self.reads.clone(),
        }
    }
}

impl<M: Machine> Log<M> {
    /// Opens a log: its newest checkpoint, then the entries after it. A log that was never written is empty.
    ///
    /// Must be called within a tokio runtime, which carries the log's task.
    pub async fn open(
        store: Arc<dyn LogStore>,
        id: LogId,
        checkpoints: Arc<dyn CheckpointSource>,
        options: LogOptions,
    ) -> Result<Self, LedgerError> {
        let (commands, command_queue) = mpsc::channel(options.queue_edits_max.max(1));
        let (reads, read_queue) = mpsc::channel(READERS_MAX);
        let driver = Driver::open(Arc::clone(&store), id, checkpoints, options).await?;
        let states = driver.states();
        tokio::spawn(driver.run(Inputs::new(command_queue, read_queue)));
        Ok(Self {
            id,
            store,
            states,
            commands,
            reads,
        })
    }

    /// The log's name.
    pub fn id(&self) -> LogId {
        self.id
    }

    /// The newest state this node knows. No waiting; it may lack what other nodes appended a moment ago.
    pub fn current(&self) -> Arc<M> {
        self.states.borrow().clone()
    }

    /// A state that has every edit acknowledged anywhere before this call. Where the end has to be asked for, one read of it
    /// serves all who wait; where this process knows it and has reached it, nobody waits.
    pub async fn fresh(&self) -> Result<Arc<M>, LedgerError> {
        // In this order: what is appended between the two only makes the state newer than it must be.
        if let Some(end) = self.store.end_known(self.id) {
            let state = self.current();
            if state.number() >= end {
                return Ok(state);
            }
        }
        let (reply, answer) = oneshot::channel();
        self.reads.send(reply).await.map_err(|_| LedgerError::Closed)?;
        answer.await.map_err(|_| LedgerError::Closed)?
    }

    /// Appends an edit, together with others that wait.
    ///
    /// [`LedgerError::Unknown`] says that the edit may be in the log or may not: look for its id before making it again.
    /// After any other error it is not.
    pub async fn commit(&self, edit: M::Edit) -> Result<Committed<M>, LedgerError> {
        let (reply, answer) = oneshot::channel();
        self.commands
            .send(Command { edit, reply })
            .await
            .map_err(|_| LedgerError::Closed)?;
        answer.await.map_err(|_| LedgerError::Closed)?
    }

    /// New states as they come; a slow reader sees the newest only.
    pub fn subscribe(&self) -> watch::Receiver<Arc<M>> {
        self.states.clone()
    }
}
