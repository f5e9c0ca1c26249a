//! The one writer: groups of requests, each group one transaction and one fsync.

use super::Shared;
use super::tables::{Head, WriteTables};
use crate::{Appended, Base, ErrorKind, LedgerError};
use bytes::Bytes;
use cuesta_format::LogId;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

type Reply<T> = oneshot::Sender<Result<T, LedgerError>>;

/// Requests in one transaction.
const GROUP_REQUESTS_MAX: usize = 1024;
/// Entry bytes in one transaction; a single larger entry goes alone.
const GROUP_BYTES_MAX: usize = 32 << 20;
/// Entries deleted along with one group, so that a long trim does not hold up appends.
const TRIM_ENTRIES_MAX: usize = 512;

/// Logs whose heads are remembered; beyond that all are forgotten, and read again.
const HEADS_MAX: usize = 1 << 12;

/// Something to be written about a log.
pub(super) struct Request {
    pub(super) log: LogId,
    pub(super) verb: Verb,
}

pub(super) enum Verb {
    Append {
        number: u64,
        entry: Bytes,
        reply: Reply<Appended>,
    },
    Advance {
        base: Base,
        reply: Reply<()>,
    },
    Drop {
        reply: Reply<()>,
    },
}

impl Request {
    fn bytes(&self) -> usize {
        match &self.verb {
            Verb::Append { entry, .. } => entry.len(),
            Verb::Advance { .. } | Verb::Drop { .. } => 0,
        }
    }

    /// Tells the one who waits. He may be gone, which changes nothing.
    fn answer(self, outcome: Result<Outcome, LedgerError>) {
        match self.verb {
            Verb::Append { reply, .. } => drop(reply.send(outcome.map(|outcome| match outcome {
                Outcome::Taken => Appended::Taken,
                Outcome::Done => Appended::Done,
            }))),
            Verb::Advance { reply, .. } | Verb::Drop { reply } => drop(reply.send(outcome.map(drop))),
        }
    }
}

#[derive(Clone, Copy)]
enum Outcome {
    Done,
    Taken,
}

/// What a transaction makes of a log, as its readers will see it.
#[derive(Clone, Copy)]
enum LogState {
    Live(Head),
    Dropped,
}

type Changes = BTreeMap<LogId, LogState>;

pub(super) struct Committer {
    shared: Arc<Shared>,
    queue: mpsc::Receiver<Request>,
    /// A request that did not fit the last group.
    left_over: Option<Request>,
    /// There may be entries to delete.
    trims: bool,
    /// Where logs begin and end that were written to lately: nobody else moves them.
    heads: BTreeMap<LogId, Head>,
}

impl Committer {
    pub(super) fn new(shared: Arc<Shared>, queue: mpsc::Receiver<Request>) -> Self {
        // Trims that a crash interrupted go on.
        Self {
            shared,
            queue,
            left_over: None,
            trims: true,
            heads: BTreeMap::new(),
        }
    }

    /// Works until the store is dropped and nothing waits. Trims left over go on at the next start.
    pub(super) fn run(mut self) {
        while let Some(group) = self.next_group() {
            self.commit(group);
        }
    }

    /// All that waits, up to the limits. Waits for something, unless there is trimming to do.
    fn next_group(&mut self) -> Option<Vec<Request>> {
        let first = match self.left_over.take() {
            Some(request) => Some(request),
            None if self.trims => match self.queue.try_recv() {
                Ok(request) => Some(request),
                Err(mpsc::error::TryRecvError::Empty) => None,
                Err(mpsc::error::TryRecvError::Disconnected) => return None,
            },
            None => Some(self.queue.blocking_recv()?),
        };
        let mut group: Vec<_> = first.into_iter().collect();
        let mut bytes: usize = group.iter().map(Request::bytes).sum();
        while !group.is_empty() && group.len() < GROUP_REQUESTS_MAX {
            let Ok(request) = self.queue.try_recv() else { break };
            bytes += request.bytes();
            if bytes > GROUP_BYTES_MAX {
                self.left_over = Some(request);
                break;
            }
            group.push(request);
        }
        Some(group)
    }

    /// Performs a group. Nobody is answered before the transaction is durable; if it fails, all are told so.
    fn commit(&mut self, group: Vec<Request>) {
        self.trims |= group.iter().any(|request| !matches!(request.verb, Verb::Append { .. }));
        match self.transact(&group) {
            Ok((outcomes, changes)) => {
                changes.into_iter().for_each(|(log, state)| self.changed(log, state));
                group
                    .into_iter()
                    .zip(outcomes)
                    .for_each(|(request, outcome)| request.answer(outcome));
            }
            Err(error) => {
                // redb refuses all work after a failed write or sync, so nothing is built on what may be lost.
                tracing::error!(%error, "cannot commit to the ledger");
                self.trims = false;
                self.heads.clear();
                group.into_iter().for_each(|request| request.answer(Err(error.clone())));
            }
        }
    }

    /// A log is as readers may see it from now on.
    fn changed(&mut self, log: LogId, state: LogState) {
        if self.heads.len() >= HEADS_MAX {
            self.heads.clear();
        }
        match state {
            LogState::Live(head) => {
                self.heads.insert(log, head);
                self.shared.ends.publish(log, head.end);
            }
            LogState::Dropped => {
                self.heads.remove(&log);
                self.shared.ends.dropped(log);
            }
        }
    }

    fn transact(&mut self, group: &[Request]) -> Result<(Vec<Result<Outcome, LedgerError>>, Changes), LedgerError> {
        let begun = self.shared.database.begin_write();
        let transaction = begun.map_err(|error| LedgerError::unavailable("begin a transaction", error))?;
        let (mut outcomes, mut changes) = (Vec::with_capacity(group.len()), Changes::new());
        let mut tables =
            WriteTables::open(&transaction).map_err(|error| LedgerError::unavailable("open the tables", error))?;
        for request in group {
            match perform(&mut tables, request, &self.heads, &mut changes) {
                // The database is at fault, not the request.
                Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
                outcome => outcomes.push(outcome),
            }
        }
        if self.trims {
            self.trims = tables.trim(TRIM_ENTRIES_MAX)?;
        }
        drop(tables);
        if changes.is_empty() && !self.trims {
            return Ok((outcomes, changes));
        }
        transaction
            .commit()
            .map_err(|error| LedgerError::unavailable("commit", error))?;
        Ok((outcomes, changes))
    }
}

/// Performs one request on the tables; `changes` has what those before it in the group did.
fn perform(
    tables: &mut WriteTables<'_>,
    request: &Request,
    heads: &BTreeMap<LogId, Head>,
    changes: &mut Changes,
) -> Result<Outcome, LedgerError> {
    let log = request.log;
    let head = match changes.get(&log) {
        Some(LogState::Live(head)) => Ok(*head),
        Some(LogState::Dropped) => Err(LedgerError::Dropped { log }),
        None => heads.get(&log).map_or_else(|| tables.head(log), |head| Ok(*head)),
    };
    let next = match &request.verb {
        Verb::Append { number, entry, .. } => {
            let Head { base, end } = head?;
            match number.cmp(&end) {
                Ordering::Less => return Ok(Outcome::Taken),
                Ordering::Greater => {
                    return Err(LedgerError::Gap {
                        log,
                        end,
                        number: *number,
                    });
                }
                Ordering::Equal => tables.insert(log, end, entry)?,
            }
            LogState::Live(Head { base, end: end + 1 })
        }
        Verb::Advance { base: next, .. } => {
            let Head { base, end } = head?;
            if !base.allows(log, end, *next)? {
                return Ok(Outcome::Done);
            }
            tables.advance(log, *next)?;
            LogState::Live(Head { base: *next, end })
        }
        Verb::Drop { .. } => {
            tables.drop_log(log)?;
            LogState::Dropped
        }
    };
    changes.insert(log, next);
    Ok(Outcome::Done)
}
