//! What an agent does next, and when.

use super::history::random_of;
use crate::now;
use anyhow::{Result, ensure};
use std::fmt;
use std::time::{Duration, Instant};

/// What a client does to a server, as one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Pushes one commit.
    Push,
    /// Fetches what has come since the last time.
    Fetch,
    /// Fetches everything.
    Clone,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Push => "push",
            Self::Fetch => "fetch",
            Self::Clone => "clone",
        })
    }
}

/// Which operations, in which order.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Each by the throw of a die, as often as its weight says.
    Mixed(Vec<(Operation, u32)>),
    /// A clone, then so often a push and a fetch, and all of it again.
    Session(u32),
}

impl Plan {
    /// One operation for ever.
    pub fn only(operation: Operation) -> Self {
        Self::Mixed(vec![(operation, 1)])
    }

    /// Checks that there is something to do.
    pub fn check(&self) -> Result<()> {
        if let Self::Mixed(weights) = self {
            ensure!(weights.iter().any(|(_, weight)| *weight > 0), "all weights are zero");
        }
        Ok(())
    }

    /// Whether pushes are among the operations.
    pub(super) fn pushes(&self) -> bool {
        match self {
            Self::Session(pushes) => *pushes > 0,
            Self::Mixed(_) => self.has(|operation| operation == Operation::Push),
        }
    }

    /// Whether fetches or clones are among them.
    pub(super) fn reads(&self) -> bool {
        self.has(|operation| operation != Operation::Push)
    }

    fn has(&self, which: impl Fn(Operation) -> bool) -> bool {
        match self {
            Self::Session(_) => true,
            Self::Mixed(weights) => weights
                .iter()
                .any(|(operation, weight)| which(*operation) && *weight > 0),
        }
    }
}

/// The operations of one agent.
pub(super) struct Turns {
    plan: Plan,
    random: fastrand::Rng,
    done: u32,
}

impl Turns {
    /// The same for the same name.
    pub(super) fn new(plan: Plan, name: &str) -> Self {
        Self {
            plan,
            random: random_of(name),
            done: 0,
        }
    }

    pub(super) fn next(&mut self) -> Operation {
        match &self.plan {
            Plan::Session(pushes) => {
                let at = self.done % (1 + 2 * pushes);
                self.done += 1;
                match (at, at % 2) {
                    (0, _) => Operation::Clone,
                    (_, 1) => Operation::Push,
                    _ => Operation::Fetch,
                }
            }
            Plan::Mixed(weights) => {
                let total = weights.iter().map(|(_, weight)| *weight).sum::<u32>().max(1);
                let mut left = self.random.u32(..total);
                for (operation, weight) in weights {
                    if left < *weight {
                        return *operation;
                    }
                    left -= weight;
                }
                Operation::Push
            }
        }
    }
}

/// When an agent's operations begin.
pub(super) enum Pace {
    /// Each as soon as the one before has ended.
    Closed,
    /// At fixed times, whatever the server does: one that comes late counts from when it was to begin.
    Open { next: Instant, interval: Duration },
}

impl Pace {
    /// The pace of agent `index` of `count` that begin `rate` operations a second together, evenly spread.
    pub(super) fn open(start: Instant, rate: f64, index: usize, count: usize) -> Self {
        let between = Duration::from_secs_f64(1.0 / rate);
        Self::Open {
            next: start + between.mul_f64(index as f64),
            interval: between.mul_f64(count as f64),
        }
    }

    /// Waits until the next operation is to begin, and answers when that was.
    pub(super) async fn next(&mut self) -> Instant {
        match self {
            Self::Closed => now(),
            Self::Open { next, interval } => {
                let due = *next;
                *next += *interval;
                tokio::time::sleep_until(due.into()).await;
                due
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(plan: Plan, count: usize) -> Vec<Operation> {
        let mut turns = Turns::new(plan, "agent");
        std::iter::repeat_with(|| turns.next()).take(count).collect()
    }

    #[test]
    fn a_session_is_a_clone_and_pushes_and_fetches() {
        use Operation::{Clone, Fetch, Push};
        assert_eq!(first(Plan::Session(2), 6), [Clone, Push, Fetch, Push, Fetch, Clone]);
        assert_eq!(first(Plan::Session(0), 2), [Clone, Clone]);
    }

    #[test]
    fn weights_are_kept() {
        let plan = Plan::Mixed(vec![(Operation::Push, 3), (Operation::Fetch, 1), (Operation::Clone, 0)]);
        let chosen = first(plan, 4000);
        let pushes = chosen.iter().filter(|operation| **operation == Operation::Push).count();
        assert!(
            (2800..3200).contains(&pushes) && !chosen.contains(&Operation::Clone),
            "{pushes}"
        );
        assert!(Plan::Mixed(vec![(Operation::Push, 0)]).check().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_operation_counts_from_when_it_was_due() {
        let start = tokio::time::Instant::now().into_std();
        let mut pace = Pace::open(start, 10.0, 1, 2);
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        assert_eq!(pace.next().await, at(100));
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(pace.next().await, at(300));
        assert_eq!(pace.next().await, at(500));
        assert_eq!(tokio::time::Instant::now().into_std(), at(600));
    }
}
