//! Users, their tokens and keys, and who may do what in which repository: a state machine over the accounts' log, and the
//! verbs on it.
//!
//! What a role allows, and what a token or key proves, is decided above; here they are records.

use crate::accounts_state::{AccountConflict, AccountsState};
use crate::{Committed, LedgerError, Log};
use cuesta_format::{AccountChange, AccountsEdit, EditId};
use cuesta_store::{Clock, Entropy};
use std::sync::Arc;

/// What became of an edit of the accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountsChanged {
    /// It is durable.
    Done,
    /// It does not apply; nothing happened.
    Conflict(AccountConflict),
}

/// The accounts of all users.
#[derive(Clone)]
pub struct Accounts {
    log: Log<AccountsState>,
    clock: Clock,
    entropy: Entropy,
}

impl Accounts {
    /// Accounts over their open log, that of [`cuesta_format::LogId::ACCOUNTS`].
    pub fn new(log: Log<AccountsState>, clock: Clock, entropy: Entropy) -> Self {
        Self { log, clock, entropy }
    }

    /// The log below: for tailing and checkpoints.
    pub fn log(&self) -> &Log<AccountsState> {
        &self.log
    }

    /// A state that has every edit acknowledged anywhere before this call.
    pub async fn fresh(&self) -> Result<Arc<AccountsState>, LedgerError> {
        self.log.fresh().await
    }

    /// Makes all the changes, one after another, or none.
    pub async fn change(&self, changes: Vec<AccountChange>, actor: &str) -> Result<AccountsChanged, LedgerError> {
        let edit = AccountsEdit {
            id: EditId(self.entropy.bits128()),
            time_ms: self.clock.now_ms(),
            actor: actor.to_owned(),
            changes,
        };
        Ok(match self.log.commit(edit).await? {
            Committed::Done { .. } => AccountsChanged::Done,
            Committed::Conflict(conflict) => AccountsChanged::Conflict(conflict),
        })
    }
}
