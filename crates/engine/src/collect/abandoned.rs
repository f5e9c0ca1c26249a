//! Repositories that lost their name, and logs that never got one.

use super::{Collected, as_ms, delete_keys};
use crate::{Engine, EngineError};
use cuesta_format::{AbandonedLog, LogId, log_prefix};
use cuesta_ledger::{Changed, LedgerError};
use futures::stream::{StreamExt, TryStreamExt};

impl Engine {
    /// Deletes what repositories were made of that lost their name a grace period ago, and notes which have lost it since the
    /// last pass.
    ///
    /// Cost: nothing if none waits; else one append to the directory, and for each repository one listing, the deletion
    /// of what it finds and the end of its log.
    pub async fn collect_abandoned(&self) -> Result<Collected, EngineError> {
        let (due, waiting) = self.split_abandoned().await?;
        let unseen = waiting.iter().filter(|log| log.seen_ms.is_none());
        let unseen: Vec<LogId> = unseen.map(|log| log.log).collect();
        if !unseen.is_empty() {
            self.abandon(&unseen).await?;
        }
        for log in &due {
            self.delete_log(log.log).await?;
            self.directory().forget(&[log.log], "").await?;
        }
        let after = self.directory().log().current();
        Ok(Collected {
            deleted: due.len(),
            waiting: after.abandoned().count(),
            due_ms: after.abandoned().filter_map(|log| self.abandoned_due_ms(&log)).min(),
        })
    }

    /// How many repositories [`collect_abandoned`](Self::collect_abandoned) would delete, and how many wait for their grace
    /// period.
    pub async fn abandoned_due(&self) -> Result<(usize, usize), EngineError> {
        let (due, waiting) = self.split_abandoned().await?;
        Ok((due.len(), waiting.len()))
    }

    /// Those that have had their time, and the others.
    async fn split_abandoned(&self) -> Result<(Vec<AbandonedLog>, Vec<AbandonedLog>), EngineError> {
        let now_ms = self.world().clock.now_ms();
        let state = self.directory().log().fresh().await?;
        let has_had_its_time = |log: &AbandonedLog| self.abandoned_due_ms(log).is_some_and(|due_ms| due_ms <= now_ms);
        Ok(state.abandoned().partition(has_had_its_time))
    }

    fn abandoned_due_ms(&self, log: &AbandonedLog) -> Option<i64> {
        Some(log.seen_ms?.saturating_add(as_ms(self.world().options.grace)))
    }

    /// Whether [`collect_abandoned`](Self::collect_abandoned) has something to do, as far as this node knows.
    pub fn has_abandoned_due(&self) -> bool {
        let now_ms = self.world().clock.now_ms();
        let state = self.directory().log().current();
        let mut due = state.abandoned().map(|log| self.abandoned_due_ms(&log));
        due.any(|due_ms| due_ms.is_none_or(|due_ms| due_ms <= now_ms))
    }

    /// From now on these logs get no name.
    pub(super) async fn abandon(&self, logs: &[LogId]) -> Result<(), EngineError> {
        match self.directory().abandon(logs, "").await? {
            Changed::Done => Ok(()),
            Changed::Conflict(conflict) => Err(EngineError::Conflict(conflict.to_string())),
        }
    }

    /// Ends a log without a name, so that nothing can be added to it, then deletes all that it has in the bucket.
    pub(super) async fn delete_log(&self, log: LogId) -> Result<(), EngineError> {
        self.forget(log);
        match self.world().log_store.drop_log(log).await {
            Ok(()) | Err(LedgerError::Dropped { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let keys = self.bucket().list(&log_prefix(log)).map(|listed| Ok(listed?.key));
        let keys: Vec<String> = keys
            .try_collect::<Vec<String>>()
            .await
            .map_err(|error: EngineError| error)?;
        delete_keys(self.bucket(), keys).await
    }
}
