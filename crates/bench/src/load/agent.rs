//! One client: does its operations one after another, and remembers what the server acknowledged.

use super::link::Link;
use super::plan::{Operation, Pace, Plan, Turns};
use super::pusher::{Outcome, Pusher};
use super::reader::Reader;
use crate::now;
use anyhow::{Result, bail, ensure};
use std::time::{Duration, Instant};

/// Rest after a failure, so that a server that is down is not stormed.
const REST: Duration = Duration::from_millis(20);

/// One operation that ended.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) operation: Operation,
    /// When it was to begin, which in a closed loop is when it began.
    pub(super) start: Instant,
    /// From then to the end of the last answer.
    pub(super) latency: Duration,
    pub(super) outcome: Outcome,
}

/// See the module.
pub(super) struct Agent {
    link: Link,
    turns: Turns,
    pace: Pace,
    pub(super) pusher: Pusher,
    reader: Reader,
    /// Whether it will ever fetch, so that the reader must know what it has.
    reads: bool,
    /// Operations that ended, in order.
    pub(super) samples: Vec<Sample>,
}

impl Agent {
    /// An agent whose operations follow `plan`, at its own pace or at a given one.
    pub(super) fn new(link: Link, plan: &Plan, pace: Pace, name: &str, pusher: Pusher) -> Self {
        Self {
            reads: plan.reads(),
            turns: Turns::new(plan.clone(), name),
            pace,
            reader: Reader::new(&link.target),
            link,
            pusher,
            samples: Vec::new(),
        }
    }

    /// Works without end; to be cancelled.
    pub(super) async fn work(&mut self) -> Result<()> {
        loop {
            self.step().await?;
        }
    }

    /// Does one operation. Building a commit is outside the time taken, unless the operation is late already.
    pub(super) async fn step(&mut self) -> Result<()> {
        let operation = self.turns.next();
        if operation == Operation::Push {
            self.pusher.prepare(&self.link.target)?;
        }
        let start = self.pace.next().await;
        let outcome = match self.run(operation).await {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        self.samples.push(Sample {
            operation,
            start,
            latency: now().saturating_duration_since(start),
            outcome: outcome.clone(),
        });
        match outcome {
            Outcome::Done => {}
            Outcome::Conflict => self.pusher.restart(),
            Outcome::Failed(_) => {
                self.link.close();
                self.pusher.restart();
                tokio::time::sleep(REST).await;
            }
        }
        Ok(())
    }

    /// Bytes sent and received so far.
    pub(super) fn traffic(&self) -> (u64, u64) {
        (self.link.sent_bytes, self.link.received_bytes())
    }

    async fn run(&mut self, operation: Operation) -> Result<Outcome> {
        self.link.begin();
        match operation {
            Operation::Push => {
                let outcome = self.pusher.push(&mut self.link).await?;
                if let Some(oid) = self
                    .pusher
                    .acknowledged()
                    .filter(|_| self.reads && outcome == Outcome::Done)
                {
                    self.reader.has(oid);
                }
                return Ok(outcome);
            }
            Operation::Clone => self.reader.forget(),
            Operation::Fetch => {}
        }
        let listed = self.reader.fetch(&mut self.link, self.pusher.reference()).await?;
        ensure!(self.pusher.may_show(listed), "an acknowledged push is not listed");
        Ok(Outcome::Done)
    }
}

/// Fails on the first agent's own fault, if there is one.
pub(super) fn check_started(samples: &[&Sample]) -> Result<()> {
    let done = samples.iter().any(|sample| sample.outcome == Outcome::Done);
    let reason = samples.iter().find_map(|sample| match &sample.outcome {
        Outcome::Failed(reason) => Some(reason.as_str()),
        _ => None,
    });
    match (done, samples.is_empty(), reason) {
        (true, ..) => Ok(()),
        (false, true, _) => bail!("no operation ended: too slow"),
        (false, false, reason) => bail!("no operation succeeded: {}", reason.unwrap_or("conflicts only")),
    }
}
