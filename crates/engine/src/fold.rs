//! Folding: a checkpoint in the bucket takes the place of the entries before it, so that a log is opened in the time that its
//! state takes, however long it was. The logs of repositories are folded after a flush, those of names and accounts once in
//! a while.

use crate::world::World;
use crate::{Engine, EngineError};
use cuesta_format::{LogId, checkpoint_key};
use cuesta_ledger::Base;
use std::sync::atomic::{AtomicU64, Ordering};

/// What an entry of a log takes, about, beside its inline layers.
const ENTRY_BYTES: u64 = 400;
/// What a ref, layer, name or token takes in a checkpoint, about.
const ITEM_BYTES: u64 = 80;
/// Below this a checkpoint saves nobody anything.
const LOG_BYTES_MIN: u64 = 16 << 10;

/// Whether the log since the last checkpoint is so long that reading it costs more than writing the next: half as many
/// bytes as the checkpoint, so that all checkpoints together weigh at most twice the log.
pub fn checkpoint_is_due(log_bytes: u64, checkpoint_bytes: u64) -> bool {
    log_bytes >= LOG_BYTES_MIN.max(checkpoint_bytes / 2)
}

/// Where the logs of names and accounts stood when it was last looked whether they should be folded: one that nobody wrote to
/// is not looked at again.
#[derive(Default)]
pub(crate) struct LastLooks {
    directory: AtomicU64,
    accounts: AtomicU64,
}

impl World {
    /// Writes a checkpoint of the state before entry `number` and lets the log begin there.
    ///
    /// Durable first: the checkpoint, then the boundary, then the store deletes what lies below it. The checkpoint that it
    /// replaces goes last: whoever finds it gone reads the boundary again.
    pub(crate) async fn fold(&self, log: LogId, number: u64, checkpoint: Vec<u8>) -> Result<(), EngineError> {
        let before = self.log_store.base(log).await?.checkpoint;
        self.bucket
            .create_payload(&checkpoint_key(log, number), checkpoint.into())
            .await?;
        let base = Base {
            first: number,
            checkpoint: Some(number),
        };
        self.log_store.advance(log, base).await?;
        self.delete_replaced(log, before.into_iter().chain([number])).await
    }

    /// Deletes those checkpoints that lie behind the one in force. Best effort: what stays is for a sweep.
    async fn delete_replaced(&self, log: LogId, numbers: impl Iterator<Item = u64>) -> Result<(), EngineError> {
        let Some(in_force) = self.log_store.base(log).await?.checkpoint else {
            return Ok(());
        };
        for number in numbers.filter(|number| *number < in_force) {
            let key = checkpoint_key(log, number);
            if let Err(error) = self.bucket.delete(&key).await {
                tracing::warn!(%key, %error, "a replaced checkpoint stays");
            }
        }
        Ok(())
    }

    /// Whether a log that ends at `number` should get a checkpoint of so many items.
    pub(crate) async fn is_fold_due(&self, log: LogId, number: u64, items: usize) -> Result<bool, EngineError> {
        let folded = self.log_store.base(log).await?.checkpoint.unwrap_or(0);
        let entries = number.saturating_sub(folded);
        Ok(checkpoint_is_due(entries * ENTRY_BYTES, items as u64 * ITEM_BYTES))
    }
}

impl Engine {
    /// Writes checkpoints of the names and of the accounts where they are due; answers of how many. Cost: nothing where nobody
    /// wrote to those logs since the last call that went well; else a look at the boundary of each, and a payload for one that is
    /// due.
    pub async fn fold_if_due(&self) -> Result<usize, EngineError> {
        // One that fails keeps nobody from the other.
        let names = self.fold_names().await;
        let accounts = self.fold_accounts().await;
        Ok(usize::from(names?) + usize::from(accounts?))
    }

    async fn fold_names(&self) -> Result<bool, EngineError> {
        let (world, looked, log) = (self.world(), &self.last_looks().directory, self.directory().log());
        let state = log.current();
        if looked.load(Ordering::Relaxed) == state.number() {
            return Ok(false);
        }
        let items = state.names().len() + state.abandoned().count();
        let is_due = world.is_fold_due(log.id(), state.number(), items).await?;
        if is_due {
            let bytes = state.checkpoint().encode()?;
            world.fold(log.id(), state.number(), bytes).await?;
        }
        looked.store(state.number(), Ordering::Relaxed);
        Ok(is_due)
    }

    async fn fold_accounts(&self) -> Result<bool, EngineError> {
        let (world, looked) = (self.world(), &self.last_looks().accounts);
        let Some(accounts) = self.opened_accounts() else {
            return Ok(false);
        };
        let (log, state) = (accounts.log(), accounts.log().current());
        if looked.load(Ordering::Relaxed) == state.number() {
            return Ok(false);
        }
        let checkpoint = state.checkpoint();
        let keys = checkpoint.keys.len() + checkpoint.openpgp_keys.len();
        let items = checkpoint.users.len() + checkpoint.tokens.len() + keys + checkpoint.roles.len();
        let is_due = world.is_fold_due(log.id(), state.number(), items).await?;
        if is_due {
            world.fold(log.id(), state.number(), checkpoint.encode()?).await?;
        }
        looked.store(state.number(), Ordering::Relaxed);
        Ok(is_due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_due_in_proportion() {
        assert!(!checkpoint_is_due(0, 0));
        assert!(!checkpoint_is_due(LOG_BYTES_MIN - 1, 0));
        assert!(checkpoint_is_due(LOG_BYTES_MIN, 0));
        assert!(!checkpoint_is_due(499_999, 1_000_000));
        assert!(checkpoint_is_due(500_000, 1_000_000));
    }
}
