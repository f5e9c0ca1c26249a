//! The gate of a node: credentials in, identities out; and before each request the decision, by the newest accounts.
//!
//! Cost of both on a request's way: a read of the end of the accounts' log, shared by all who ask at the same time.

use super::credential::{Credential, CredentialError};
use super::decide::{Access, Identity, Proof, Target, Want, decide};
use super::throttle::Throttle;
use crate::config::{Authentication, Settings};
use cuesta_engine::{Engine, EngineError, RepositoryName};
use cuesta_format::{LogId, RepositoryRecord};
use cuesta_ledger::AccountsState;
use cuesta_store::Clock;
use std::net::IpAddr;
use std::sync::Arc;

/// Decides for every transport of a node.
pub struct Gate {
    engine: Engine,
    clock: Clock,
    throttle: Throttle,
    authentication: Authentication,
    create_on_push: bool,
}

/// Why a credential was not taken.
#[derive(Debug)]
pub enum Denied {
    /// It is no token, nobody's, expired or revoked.
    Invalid,
    /// Too many attempts failed; so many seconds must pass before the next.
    Throttled {
        /// Seconds to wait.
        seconds: u64,
    },
    /// The accounts could not be read.
    Engine(EngineError),
}

/// What [`Gate::admit`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Go ahead, in this very repository (whatever the name leads to a moment later); `None` if it is to be made.
    Granted(Option<RepositoryRecord>),
    /// No; never [`Access::Allowed`].
    Refused(Access),
}

impl Gate {
    /// A gate by the settings' rules.
    pub fn new(settings: &Settings, engine: Engine, clock: Clock) -> Self {
        Self {
            engine,
            clock,
            throttle: Throttle::default(),
            authentication: settings.authentication,
            create_on_push: settings.create_on_push,
        }
    }

    /// Whether users are told apart here at all.
    pub fn checks(&self) -> bool {
        self.authentication == Authentication::Accounts
    }

    /// Who sends a request from `peer`, by what it shows.
    ///
    /// Attempts that fail are counted for the peer and for the user name given. A peer that failed too often is refused unseen;
    /// a user name that was tried too often is refused only with a wrong token, so that nobody can lock its owner out. An
    /// expired token is no guess, and not counted.
    pub async fn authenticate(
        &self,
        shown: Result<Option<Credential>, CredentialError>,
        peer: IpAddr,
    ) -> Result<Identity, Denied> {
        if !self.checks() {
            return Ok(Identity::Unchecked);
        }
        let credential = match shown {
            Ok(None) => return Ok(Identity::Anonymous),
            Ok(Some(credential)) => Some(credential),
            Err(CredentialError) => None,
        };
        let now_ms = self.clock.now_ms();
        if let Some(seconds) = self.throttle.peer_wait_seconds(peer, now_ms) {
            return Err(Denied::Throttled { seconds });
        }
        let claimed = credential.as_ref().and_then(|credential| credential.claimed.as_deref());
        match credential.as_ref().and_then(|credential| credential.token.as_ref()) {
            None => Err(self.failed(peer, claimed, now_ms)),
            Some(token) => {
                let state = self.state().await.map_err(Denied::Engine)?;
                let known = state.token(token.id()).filter(|record| token.is_of(record));
                let Some(record) = known else {
                    return Err(self.failed(peer, claimed, now_ms));
                };
                match record.expires_ms {
                    Some(expires) if expires <= now_ms => Err(Denied::Invalid),
                    _ => Ok(Identity::User {
                        name: record.user.as_str().into(),
                        proof: Proof::Token(record.id()),
                    }),
                }
            }
        }
    }

    fn failed(&self, peer: IpAddr, claimed: Option<&str>, now_ms: i64) -> Denied {
        let wait = claimed.and_then(|user| self.throttle.user_wait_seconds(user, now_ms));
        self.throttle.failed(peer, claimed, now_ms);
        match wait {
            Some(seconds) => Denied::Throttled { seconds },
            None => Denied::Invalid,
        }
    }

    /// Whose an SSH public key is, as SSH sends it; `None` if nobody's. Whoever asks must have seen a signature by it before
    /// going by the answer.
    pub async fn authenticate_key(&self, blob: &[u8]) -> Result<Option<Identity>, EngineError> {
        if !self.checks() {
            return Ok(Some(Identity::Unchecked));
        }
        let state = self.state().await?;
        Ok(state.key(blob).map(|key| Identity::User {
            name: key.user.as_str().into(),
            proof: Proof::Key(key.blob.clone()),
        }))
    }

    /// The name of the user whose key this is, as SSH sends it; `None` if it is nobody's.
    pub async fn key_owner(&self, blob: &[u8]) -> Result<Option<String>, EngineError> {
        Ok(self.state().await?.key(blob).map(|key| key.user.clone()))
    }

    /// Whether `identity` gets what it wants of the repository `name`. A wish to write to what is not there is one to make it,
    /// where pushes may do so.
    pub async fn admit(
        &self,
        identity: &Identity,
        name: &RepositoryName,
        want: Want,
    ) -> Result<Admission, EngineError> {
        let directory = self.engine.directory();
        if *identity == Identity::Unchecked {
            return Ok(self.unchecked(directory.resolve(name.as_str()).await?, want));
        }
        let accounts = self.engine.accounts().await?;
        // Together: each is fresh as of now, and no older than the request.
        let (record, state) = tokio::try_join!(directory.resolve(name.as_str()), accounts.fresh())?;
        let want = self.wish(record, want);
        let target = record.map_or(Target::Absent(name), |record| Target::Repository(record.log));
        Ok(match decide(&state, self.clock.now_ms(), identity, target, want) {
            Access::Allowed => Admission::Granted(record),
            refused => Admission::Refused(refused),
        })
    }

    fn unchecked(&self, record: Option<RepositoryRecord>, want: Want) -> Admission {
        if record.is_some() || self.wish(record, want) == Want::Create {
            Admission::Granted(record)
        } else {
            Admission::Refused(Access::Hidden)
        }
    }

    fn wish(&self, record: Option<RepositoryRecord>, want: Want) -> Want {
        match want {
            Want::Write if record.is_none() && self.create_on_push => Want::Create,
            want => want,
        }
    }

    /// Whether `identity` may see what concerns the node as a whole.
    pub async fn is_site_admin(&self, identity: &Identity) -> Result<bool, EngineError> {
        if *identity == Identity::Unchecked {
            return Ok(true);
        }
        // No repository, so that nobody has a role in it: only an administrator's whole rights reach it.
        let nowhere = Target::Repository(LogId::ACCOUNTS);
        let access = decide(
            &*self.state().await?,
            self.clock.now_ms(),
            identity,
            nowhere,
            Want::Admin,
        );
        Ok(access == Access::Allowed)
    }

    /// The accounts as of now.
    pub async fn state(&self) -> Result<Arc<AccountsState>, EngineError> {
        Ok(self.engine.accounts().await?.fresh().await?)
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
