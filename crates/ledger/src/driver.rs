//! The task behind an open log: the only owner of its moving state.
//!
//! It reacts to four things: edits and readers that arrive, the outcome of its append, the log's end as the store tells
//! it, and the store's word that the log grew. Between two of them it starts what can start. Every rule here keeps one
//! promise: an edit is answered once, and the answer is true.

use crate::log::{Committed, LogOptions};
use crate::{Appended, CheckpointSource, LedgerError, LogStore, Machine};
use bytes::Bytes;
use cuesta_format::LogId;
use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
pub(crate) type CommitReply<M> = oneshot::Sender<Result<Committed<M>, LedgerError>>;
pub(crate) type ReadReply<M> = oneshot::Sender<Result<Arc<M>, LedgerError>>;

const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// A log that is folded again and again while it is opened: give up rather than chase it.
const OPEN_ATTEMPTS_MAX: u32 = 8;

/// An edit on its way in.
pub(crate) struct Command<M: Machine> {
    pub(crate) edit: M::Edit,
    pub(crate) reply: CommitReply<M>,
}

/// Where edits and readers come from, until every handle is gone.
pub(crate) struct Inputs<M: Machine> {
    commands: mpsc::Receiver<Command<M>>,
    reads: mpsc::Receiver<ReadReply<M>>,
    commands_open: bool,
    reads_open: bool,
}

impl<M: Machine> Inputs<M> {
    pub(crate) fn new(commands: mpsc::Receiver<Command<M>>, reads: mpsc::Receiver<ReadReply<M>>) -> Self {
        Self {
            commands,
            reads,
            commands_open: true,
            reads_open: true,
        }
    }
}

/// An edit that waits for its entry.
struct Pending<M: Machine> {
    edit: M::Edit,
    reply: CommitReply<M>,
    /// The entry it was sent in, while that append's outcome is unknown.
    sent: Option<u64>,
    /// Failures of the store it has lived through.
    failures: u32,
    /// The state was compared with the log's end since the edit came, so that a conflict is the log's word.
    checked: bool,
}

impl<M: Machine> Pending<M> {
    fn answer(self, answer: Result<Committed<M>, LedgerError>) {
        // The caller may be gone; the edit's fate does not depend on it.
        let _ = self.reply.send(answer);
    }

    fn fail(self, error: &LedgerError) {
        let error = match self.sent {
            Some(_) => LedgerError::Unknown {
                edit: M::edit_id(&self.edit),
                source: Box::new(error.clone()),
            },
            None => error.clone(),
        };
        self.answer(Err(error));
    }
}

/// Someone who needs to know that the state has reached the log's end.
enum Waiter<M: Machine> {
    Reader(ReadReply<M>),
    /// An edit that conflicts with a state that may be old.
    Doubted(Pending<M>),
}

struct InFlight<M: Machine> {
    group: Vec<Pending<M>>,
    next: Arc<M>,
    append: BoxFuture<Result<Appended, LedgerError>>,
}

struct EndRead<M: Machine> {
    waiters: Vec<Waiter<M>>,
    end: BoxFuture<Result<u64, LedgerError>>,
}

enum Event {
    Appended(Result<Appended, LedgerError>),
    End(Result<u64, LedgerError>),
    Changed(Result<u64, LedgerError>),
    PauseOver,
    Rested,
    Arrived,
}

/// See the module.
pub(crate) struct Driver<M: Machine> {
    log: LogId,
    store: Arc<dyn LogStore>,
    checkpoints: Arc<dyn CheckpointSource>,
    options: LogOptions,
    state: Arc<M>,
    published: watch::Sender<Arc<M>>,
    pending: VecDeque<Pending<M>>,
    in_flight: Option<InFlight<M>>,
    /// They wait for the next read of the end: the one under way may have begun before they came.
    waiters: Vec<Waiter<M>>,
    end_read: Option<EndRead<M>>,
    /// They wait for the state to reach an end.
    behind: Vec<(u64, Waiter<M>)>,
    /// The highest end that the store spoke of.
    end_seen: u64,
    /// An append's outcome is unknown: the log is to be read before the next append.
    read_back: bool,
    /// So many edits each go into an entry of their own, because one of them makes no entry.
    alone: usize,
    tail: Option<BoxFuture<Result<u64, LedgerError>>>,
    pause: Option<BoxFuture<()>>,
    /// After a group of several: edits that come meanwhile go into one entry.
    rest: Option<BoxFuture<()>>,
    failures: u32,
}

impl<M: Machine> Driver<M> {
    /// Reads the log up to its end.
    pub(crate) async fn open(
        store: Arc<dyn LogStore>,
        log: LogId,
        checkpoints: Arc<dyn CheckpointSource>,
        options: LogOptions,
    ) -> Result<Self, LedgerError> {
        let state = Arc::new(M::default());
        let mut driver = Self {
            log,
            store,
            checkpoints,
            options,
            published: watch::Sender::new(state.clone()),
            state,
            pending: VecDeque::new(),
            in_flight: None,
            waiters: Vec::new(),
            end_read: None,
            behind: Vec::new(),
            end_seen: 0,
            read_back: false,
            alone: 0,
            tail: None,
            pause: None,
            rest: None,
            failures: 0,
        };
        driver.load().await?;
        driver.read_on().await?;
        Ok(driver)
    }

    pub(crate) fn states(&self) -> watch::Receiver<Arc<M>> {
        self.published.subscribe()
    }

    /// Serves the log until every handle is gone and every edit taken is answered.
    pub(crate) async fn run(mut self, mut inputs: Inputs<M>) {
        while inputs.commands_open || inputs.reads_open || !self.is_idle() {
            if self.may_read() {
                self.catch_up().await;
            }
            self.gather(&mut inputs).await;
            self.start();
            match self.next_event(&mut inputs).await {
                Event::Appended(outcome) => self.appended(outcome),
                Event::End(end) => self.end_read(end),
                Event::Changed(end) => self.changed(end),
                Event::PauseOver => self.pause = None,
                Event::Rested => self.rest = None,
                Event::Arrived => {}
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.pending.is_empty()
            && self.in_flight.is_none()
            && self.waiters.is_empty()
            && self.end_read.is_none()
            && self.behind.is_empty()
    }

    async fn next_event(&mut self, inputs: &mut Inputs<M>) -> Event {
        let room = self.options.group_edits_max.max(1).saturating_sub(self.pending.len());
        let (mut edits, mut readers) = (Vec::new(), Vec::new());
        let event = tokio::select! {
            biased;
            outcome = ready(self.in_flight.as_mut().map(|in_flight| &mut in_flight.append)) => Event::Appended(outcome),
            end = ready(self.end_read.as_mut().map(|end_read| &mut end_read.end)) => Event::End(end),
            count = inputs.reads.recv_many(&mut readers, READERS_AT_ONCE_MAX), if inputs.reads_open => {
                inputs.reads_open = count > 0;
                Event::Arrived
            }
            count = inputs.commands.recv_many(&mut edits, room), if inputs.commands_open && room > 0 => {
                inputs.commands_open = count > 0;
                Event::Arrived
            }
            () = ready(self.pause.as_mut()) => Event::PauseOver,
            () = ready(self.rest.as_mut()) => Event::Rested,
            end = ready(self.tail.as_mut()) => Event::Changed(end),
        };
        self.waiters.extend(readers.into_iter().map(Waiter::Reader));
        self.take_in(edits);
        event
    }

    fn take_in(&mut self, edits: Vec<Command<M>>) {
        self.pending
            .extend(edits.into_iter().map(|Command { edit, reply }| Pending {
                edit,
                reply,
                sent: None,
                failures: 0,
                checked: false,
            }));
    }

    /// Before an append starts, lets every task run that can: what they commit goes into the same group. Where nobody is about
    /// to commit this takes no time; a group costs the same for one edit as for many.
    async fn gather(&mut self, inputs: &mut Inputs<M>) {
        for _ in 0..GATHER_ROUNDS_MAX {
            let room = self.options.group_edits_max.saturating_sub(self.pending.len());
            if !self.may_append() || room == 0 {
                return;
            }
            tokio::task::yield_now().await;
            let edits: Vec<_> = std::iter::from_fn(|| inputs.commands.try_recv().ok())
                .take(room)
                .collect();
            if edits.is_empty() {
                return;
            }
            self.take_in(edits);
        }
    }

    fn may_append(&self) -> bool {
        let current = self.end_seen <= self.state.number() && !self.read_back;
        let rests = self.rest.is_some() && self.pending.len() < self.options.group_edits_max;
        self.in_flight.is_none() && self.pause.is_none() && !rests && current && !self.pending.is_empty()
    }

    fn start(&mut self) {
        while self.may_append() {
            self.start_append();
        }
        if self.end_read.is_none() && !self.waiters.is_empty() {
            let (store, log) = (self.store.clone(), self.log);
            let end = Box::pin(async move { store.end(log).await });
            self.end_read = Some(EndRead {
                waiters: std::mem::take(&mut self.waiters),
                end,
            });
        }
        if self.tail.is_none() {
            // News beyond what is known already: entries that cannot be read just now are no news.
            let (store, log, known) = (self.store.clone(), self.log, self.end_seen.max(self.state.number()));
            self.tail = Some(Box::pin(async move { store.changed(log, known).await }));
        }
    }

    fn start_append(&mut self) {
        let (group, next) = self.form_group();
        if group.is_empty() {
            return;
        }
        let number = self.state.number();
        let entry = match self.encode(number, &group) {
            Ok(entry) => entry,
            Err(error) => return self.unfit(group, &error),
        };
        self.alone = self.alone.saturating_sub(1);
        let (store, log) = (self.store.clone(), self.log);
        let append = Box::pin(async move { store.append(log, number, entry).await });
        self.in_flight = Some(InFlight {
            group,
            next: Arc::new(next),
            append,
        });
    }

    fn encode(&self, number: u64, group: &[Pending<M>]) -> Result<Bytes, LedgerError> {
        let entry = M::encode_entry(number, &mut group.iter().map(|pending| &pending.edit))?;
        self.store.limits().check(&entry)?;
        Ok(entry)
    }

    /// A group that makes no entry: one edit is to blame. It fails alone, so the edits are tried one by one.
    fn unfit(&mut self, mut group: Vec<Pending<M>>, error: &LedgerError) {
        match (group.pop(), group.is_empty()) {
            (Some(pending), true) => {
                self.alone = self.alone.saturating_sub(1);
                pending.fail(error);
            }
            (last, _) => {
                group.extend(last);
                self.alone = group.len();
                group
                    .into_iter()
                    .rev()
                    .for_each(|pending| self.pending.push_front(pending));
            }
        }
    }

    /// Takes waiting edits in order, each checked against the state as those before it leave it.
    fn form_group(&mut self) -> (Vec<Pending<M>>, M) {
        let bytes_max = self.store.limits().inline_bytes_max;
        let edits_max = if self.alone > 0 {
            1
        } else {
            self.options.group_edits_max
        };
        let mut next = M::clone(&self.state);
        let (mut group, mut bytes, mut later) = (Vec::new(), 0, VecDeque::new());
        while let Some(pending) = self.pending.pop_front() {
            let size = M::edit_bytes(&pending.edit);
            let full = group.len() >= edits_max || bytes + size > bytes_max;
            if full && !group.is_empty() {
                self.pending.push_front(pending);
                break;
            }
            match next.apply(&pending.edit) {
                Ok(()) => {
                    bytes += size;
                    group.push(pending);
                }
                Err(conflict) => later.extend(self.refuse(pending, conflict, group.is_empty())),
            }
        }
        next.seal_entry();
        later.append(&mut self.pending);
        self.pending = later;
        (group, next)
    }

    /// Answers a conflict if it is certain; else the edit is looked at again: with the next group if it conflicts only
    /// with edits that are not durable yet (it is handed back then), or when the log's end is known.
    fn refuse(&mut self, pending: Pending<M>, conflict: M::Conflict, durable: bool) -> Option<Pending<M>> {
        let conflict = if durable {
            Some(conflict)
        } else {
            M::clone(&self.state).apply(&pending.edit).err()
        };
        match conflict {
            None => return Some(pending),
            Some(conflict) if pending.checked => pending.answer(Ok(Committed::Conflict(conflict))),
            Some(_) => self.waiters.push(Waiter::Doubted(pending)),
        }
        None
    }

    fn appended(&mut self, outcome: Result<Appended, LedgerError>) {
        let Some(InFlight { group, next, .. }) = self.in_flight.take() else {
            return;
        };
        match outcome {
            Ok(Appended::Done) => {
                self.failures = 0;
                let rest = self.options.group_rest;
                if group.len() > 1 && !rest.is_zero() {
                    self.rest = Some(Box::pin(tokio::time::sleep(rest)));
                }
                let (number, state) = (self.state.number(), next);
                self.publish(state.clone());
                for pending in group {
                    pending.answer(Ok(Committed::Done {
                        number,
                        state: state.clone(),
                    }));
                }
            }
            Err(error) if error.refuses_append() => group.into_iter().for_each(|pending| pending.fail(&error)),
            Ok(Appended::Taken) => {
                self.requeue(group);
                self.end_seen = self.end_seen.max(self.state.number() + 1);
            }
            Err(error) => {
                tracing::warn!(log = %self.log, number = self.state.number(), %error, "append has an unknown outcome");
                self.requeue(group);
                self.read_back = true;
                self.failed(&error);
            }
        }
    }

    /// Puts back edits whose append did not say that it was theirs: the entry will show.
    fn requeue(&mut self, group: Vec<Pending<M>>) {
        let sent = Some(self.state.number());
        group
            .into_iter()
            .rev()
            .for_each(|pending| self.pending.push_front(Pending { sent, ..pending }));
    }

    fn end_read(&mut self, end: Result<u64, LedgerError>) {
        let Some(EndRead { waiters, .. }) = self.end_read.take() else {
            return;
        };
        match end {
            Ok(end) => {
                self.end_seen = self.end_seen.max(end);
                self.behind.extend(waiters.into_iter().map(|waiter| (end, waiter)));
                self.release();
            }
            Err(error) => waiters.into_iter().for_each(|waiter| fail_waiter(waiter, &error)),
        }
    }

    fn changed(&mut self, end: Result<u64, LedgerError>) {
        self.tail = None;
        match end {
            Ok(end) => self.end_seen = self.end_seen.max(end),
            // It is over; whoever still asks is told so.
            Err(LedgerError::Dropped { .. }) => self.tail = Some(Box::pin(std::future::pending())),
            Err(error) => {
                tracing::warn!(log = %self.log, %error, "cannot follow the log");
                let (store, log, known) = (self.store.clone(), self.log, self.end_seen.max(self.state.number()));
                self.tail = Some(Box::pin(async move {
                    tokio::time::sleep(RETRY_PAUSE_MAX).await;
                    store.changed(log, known).await
                }));
            }
        }
    }

    /// Whether there is something to read, and nothing forbids it: while an append is in flight the entry to read may
    /// well be our own, whose outcome comes anyway.
    fn may_read(&self) -> bool {
        let wanted = self.read_back || self.end_seen > self.state.number();
        wanted && self.in_flight.is_none() && self.pause.is_none()
    }

    async fn catch_up(&mut self) {
        match self.read_on().await {
            Ok(()) => {
                self.read_back = false;
                self.failures = 0;
                self.absolve();
            }
            Err(error) => {
                tracing::warn!(log = %self.log, number = self.state.number(), %error, "cannot read the log");
                self.failed(&error);
                self.behind
                    .drain(..)
                    .for_each(|(_, waiter)| fail_waiter(waiter, &error));
            }
        }
        self.release();
    }

    /// An edit whose entry turned out to be another's is certainly not in the log: a number is used once.
    fn absolve(&mut self) {
        let number = self.state.number();
        for pending in &mut self.pending {
            pending.sent = pending.sent.filter(|sent| *sent >= number);
        }
    }

    /// Applies what the log has beyond the state.
    async fn read_on(&mut self) -> Result<(), LedgerError> {
        for _ in 0..OPEN_ATTEMPTS_MAX {
            match self.read_entries().await {
                Err(LedgerError::Gone { .. }) => self.load().await?,
                outcome => return outcome,
            }
        }
        Err(LedgerError::Gone {
            log: self.log,
            first: self.store.base(self.log).await?.first,
            number: self.state.number(),
        })
    }

    async fn read_entries(&mut self) -> Result<(), LedgerError> {
        loop {
            let number = self.state.number();
            let entries = self.store.read(self.log, number, self.options.read_bytes_max).await?;
            if entries.is_empty() && self.end_seen > number {
                return Err(self.corrupt("the entry is missing"));
            }
            if entries.is_empty() {
                return Ok(());
            }
            for (number, bytes) in entries {
                self.take_entry(number, bytes)?;
            }
            if self.state.number() >= self.end_seen && self.end_seen > 0 {
                return Ok(());
            }
        }
    }

    fn take_entry(&mut self, number: u64, bytes: Bytes) -> Result<(), LedgerError> {
        if number != self.state.number() {
            return Err(self.corrupt(format!("the store gave entry {number} instead")));
        }
        let edits = M::decode_entry(self.log, number, &bytes)?;
        let mut next = M::clone(&self.state);
        for edit in &edits {
            next.apply(edit)
                .map_err(|conflict| self.corrupt(format!("edit {}: {conflict}", M::edit_id(edit))))?;
        }
        next.seal_entry();
        self.publish(Arc::new(next));
        if self.pending.iter().any(|pending| pending.sent.is_some()) {
            let ids: HashSet<_> = edits.iter().map(M::edit_id).collect();
            self.answer_found(|pending| ids.contains(&M::edit_id(&pending.edit)).then_some(number));
        }
        Ok(())
    }

    /// Goes to the log's newest checkpoint, if that is ahead of the state.
    async fn load(&mut self) -> Result<(), LedgerError> {
        let Some((number, bytes)) = self.newest_checkpoint().await? else {
            return Ok(());
        };
        let state = Arc::new(M::decode_checkpoint(self.log, number, &bytes)?);
        if state.number() != number {
            return Err(self.corrupt(format!("checkpoint {number} holds the state before {}", state.number())));
        }
        self.publish(state.clone());
        self.answer_found(|pending| pending.sent.and_then(|_| state.entry_of(M::edit_id(&pending.edit))));
        if state.has_forgotten() {
            self.give_up_sent_before(number);
        }
        Ok(())
    }

    /// Fails edits whose entry was folded away among more edits than the checkpoint remembers: nobody can tell any more whether
    /// they are in the log.
    fn give_up_sent_before(&mut self, number: u64) {
        let error = LedgerError::Gone {
            log: self.log,
            first: number,
            number,
        };
        for pending in std::mem::take(&mut self.pending) {
            match pending.sent {
                Some(sent) if sent < number => pending.fail(&error),
                _ => self.pending.push_back(pending),
            }
        }
    }

    /// The newest checkpoint, if it is ahead of the state. One that is gone was replaced meanwhile.
    async fn newest_checkpoint(&mut self) -> Result<Option<(u64, Bytes)>, LedgerError> {
        let mut gone = None;
        loop {
            let Some(number) = self.store.base(self.log).await?.checkpoint else {
                return Ok(None);
            };
            if number <= self.state.number() {
                return Ok(None);
            }
            match self.checkpoints.load(self.log, number).await {
                Err(LedgerError::NoCheckpoint { .. }) if gone.is_none_or(|gone| gone < number) => gone = Some(number),
                loaded => return Ok(Some((number, loaded?))),
            }
        }
    }

    /// Answers edits of unknown outcome that turn out to be in the log.
    fn answer_found(&mut self, entry_of: impl Fn(&Pending<M>) -> Option<u64>) {
        for pending in std::mem::take(&mut self.pending) {
            match entry_of(&pending).filter(|_| pending.sent.is_some()) {
                Some(number) => pending.answer(Ok(Committed::Done {
                    number,
                    state: self.state.clone(),
                })),
                None => self.pending.push_back(pending),
            }
        }
    }

    fn publish(&mut self, state: Arc<M>) {
        self.state = state.clone();
        self.published.send_replace(state);
        self.release();
    }

    /// Serves those whose end is reached.
    fn release(&mut self) {
        let number = self.state.number();
        for (end, waiter) in std::mem::take(&mut self.behind) {
            match waiter {
                waiter if end > number => self.behind.push((end, waiter)),
                Waiter::Reader(reply) => drop(reply.send(Ok(self.state.clone()))),
                Waiter::Doubted(pending) => self.pending.push_front(Pending {
                    checked: true,
                    ..pending
                }),
            }
        }
    }

    /// The store failed: wait a moment, and give up on edits that have waited too often.
    fn failed(&mut self, error: &LedgerError) {
        let pause = self
            .options
            .retry_pause
            .saturating_mul(1 << self.failures.min(16))
            .min(RETRY_PAUSE_MAX);
        self.failures += 1;
        self.pause = Some(Box::pin(tokio::time::sleep(pause)));
        for mut pending in std::mem::take(&mut self.pending) {
            pending.failures += 1;
            match pending.failures > self.options.attempts_max {
                true => pending.fail(error),
                false => self.pending.push_back(pending),
            }
        }
    }

    fn corrupt(&self, what: impl Into<String>) -> LedgerError {
        LedgerError::Corrupt {
            log: self.log,
            number: self.state.number(),
            what: what.into(),
        }
    }
}

const READERS_AT_ONCE_MAX: usize = 1024;
/// How often others are let run before an append, as long as that brings edits.
const GATHER_ROUNDS_MAX: usize = 4;

/// Waits for an operation that may not be under way.
async fn ready<T>(operation: Option<&mut BoxFuture<T>>) -> T {
    match operation {
        Some(operation) => operation.await,
        None => std::future::pending().await,
    }
}

fn fail_waiter<M: Machine>(waiter: Waiter<M>, error: &LedgerError) {
    match waiter {
        Waiter::Reader(reply) => drop(reply.send(Err(error.clone()))),
        Waiter::Doubted(pending) => pending.fail(error),
    }
}
