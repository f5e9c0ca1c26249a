//! The decision: a pure function of who asks, what for, and the accounts.

use cuesta_engine::RepositoryName;
use cuesta_format::{LogId, Role, TokenId};
use cuesta_ledger::AccountsState;
use std::fmt;
use std::sync::Arc;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Nobody is asked for credentials here: whoever reaches the port may do everything.
    Unchecked,
    /// Nobody in particular.
    Anonymous,
    /// A user.
    User {
        /// The name.
        name: Arc<str>,
        /// What showed it.
        proof: Proof,
    },
}

/// What a user has shown. It is looked up again for each decision, so that it can end meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A token.
    Token(TokenId),
    /// An SSH key, as SSH sends it.
    Key(bytes::Bytes),
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// To fetch.
    Read,
    /// To push.
    Write,
    /// To change settings or roles.
    Admin,
    /// To make the repository.
    Create,
}

/// What it is asked of.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// A repository, by its log.
    Repository(LogId),
    /// A name that no repository has.
    Absent(&'a RepositoryName),
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Go ahead.
    Allowed,
    /// Not even whether it exists: the same answer as for what does not.
    Hidden,
    /// It exists, and this much may be told, but no more may be done.
    Forbidden(Lack),
    /// First say who you are. The same for what exists and for what does not.
    Unauthenticated,
}

/// What is lacking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The user's role.
    Role,
    /// The token's scope.
    Scope,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Role => "you may read this repository, but not change it",
            Self::Scope => "the scope of this token does not allow it",
        })
    }
}

impl Identity {
    /// The name for logs; empty where there is none.
    pub fn name(&self) -> &str {
        match self {
            Self::Unchecked | Self::Anonymous => "",
            Self::User { name, .. } => name,
        }
    }
}

/// What a valid proof gives.
struct Grant<'a> {
    is_admin: bool,
    scope: Role,
    repositories: Option<&'a [LogId]>,
}

impl Grant<'_> {
    fn covers(&self, repository: LogId) -> bool {
        self.repositories
            .is_none_or(|logs| logs.binary_search(&repository).is_ok())
    }
}

/// Whether `identity` gets what it wants of `target`, by the accounts as they are, at the time `now_ms` (milliseconds since
/// the Unix epoch).
///
/// A user's role is the larger of theirs and the public's; administrators have every role. A token caps it with its scope, and
/// outside its repositories leaves the public's role only.
pub fn decide(state: &AccountsState, now_ms: i64, identity: &Identity, target: Target<'_>, want: Want) -> Access {
    let grant = match identity {
        Identity::Unchecked => return Access::Allowed,
        Identity::Anonymous => None,
        Identity::User { name, proof } => match grant(state, now_ms, name, proof) {
            Some(grant) => Some(grant),
            None => return Access::Unauthenticated,
        },
    };
    match target {
        Target::Repository(log) => of_repository(state, identity.name(), grant.as_ref(), log, role_for(want)),
        Target::Absent(name) => of_absent(identity.name(), grant.as_ref(), name, want),
    }
}

/// The role that a wish takes. Who wants to make what is there already may do so no more than push to it.
fn role_for(want: Want) -> Role {
    match want {
        Want::Read => Role::Read,
        Want::Write | Want::Create => Role::Write,
        Want::Admin => Role::Admin,
    }
}

/// `None` if the proof is good for nothing any more.
fn grant<'a>(state: &'a AccountsState, now_ms: i64, name: &str, proof: &Proof) -> Option<Grant<'a>> {
    let is_admin = state.user(name)?.is_admin;
    match proof {
        Proof::Token(id) => {
            let token = state.token(*id).filter(|token| token.user == name)?;
            let is_over = token.expires_ms.is_some_and(|expires| expires <= now_ms);
            (!is_over).then_some(Grant {
                is_admin,
                scope: token.scope,
                repositories: token.repositories.as_deref(),
            })
        }
        Proof::Key(blob) => state.key(blob).filter(|key| key.user == name).map(|_| Grant {
            is_admin,
            scope: Role::Admin,
            repositories: None,
        }),
    }
}

fn of_repository(state: &AccountsState, user: &str, grant: Option<&Grant<'_>>, log: LogId, needed: Role) -> Access {
    let roles = state.roles(log);
    let public = roles.and_then(|roles| roles.public());
    let Some(grant) = grant else {
        return if public >= Some(needed) {
            Access::Allowed
        } else {
            Access::Unauthenticated
        };
    };
    let own = match grant {
        grant if !grant.covers(log) => None,
        grant if grant.is_admin => Some(Role::Admin),
        _ => roles.and_then(|roles| roles.of(user)),
    };
    match own.max(public) {
        None => Access::Hidden,
        Some(role) if role.min(grant.scope) >= needed => Access::Allowed,
        Some(role) if role >= needed => Access::Forbidden(Lack::Scope),
        Some(_) => Access::Forbidden(Lack::Role),
    }
}

/// Users make repositories below their own name, administrators everywhere; not with a token that is for certain repositories,
/// nor with one that only reads.
fn of_absent(user: &str, grant: Option<&Grant<'_>>, name: &RepositoryName, want: Want) -> Access {
    let Some(grant) = grant else {
        return Access::Unauthenticated;
    };
    let may_create =
        grant.repositories.is_none() && grant.scope >= Role::Write && (grant.is_admin || name.owner() == user);
    if want == Want::Create && may_create {
        Access::Allowed
    } else {
        Access::Hidden
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
