//! The roles that a repository begins with.

use super::decide::Identity;
use cuesta_engine::{Engine, EngineError, PushTarget, Repository, RepositoryName};
use cuesta_format::{AccountChange, Grantee, LogId, Role, RoleRecord};
use cuesta_git::ObjectFormat;
use cuesta_ledger::AccountsState;
use cuesta_store::Entropy;
use std::sync::Arc;

/// Makes a repository, with its roles: its maker's, or if nobody in particular makes it, that of the user below whose name it
/// is; and the public's, if everyone may read it. The roles are there before the name is.
pub async fn create_repository(
    engine: &Engine,
    entropy: &Entropy,
    name: &RepositoryName,
    format: ObjectFormat,
    maker: &Identity,
    is_public: bool,
) -> Result<Arc<Repository>, EngineError> {
    let log = LogId(entropy.bits128());
    let state = engine.accounts().await?.fresh().await?;
    let roles = first_roles(&state, log, name, maker, is_public);
    if roles.is_empty() {
        return engine.create_repository_as(log, name, format, maker.name()).await;
    }
    engine.change_accounts(roles, maker.name()).await?;
    let made = engine.create_repository_as(log, name, format, maker.name()).await;
    // Only where the name is known to be another's. After other errors it may have been given after all (a lost answer), and
    // a repository without roles would be shut to its maker.
    if matches!(made, Err(EngineError::RepositoryExists(_))) {
        let forget = vec![AccountChange::ForgetRepository(log)];
        // What is left behind gives nobody anything: the log has no name.
        let _ = engine.change_accounts(forget, maker.name()).await;
    }
    made
}

/// Where a push goes; a repository that the push makes gets its first roles just before its name.
pub async fn push_target(
    engine: &Engine,
    name: &RepositoryName,
    format: ObjectFormat,
    maker: &Identity,
    is_public: bool,
) -> Result<PushTarget, EngineError> {
    let target = engine.push_target(name, format, maker.name()).await?;
    if let PushTarget::Unborn(unborn) = &target {
        let state = engine.accounts().await?.fresh().await?;
        unborn.give_at_birth(first_roles(&state, target.repository().id(), name, maker, is_public));
    }
    Ok(target)
}

/// Gives a repository that has no roles those of a new one.
pub async fn give_first_roles(
    engine: &Engine,
    name: &RepositoryName,
    is_public: bool,
    actor: &str,
) -> Result<(), EngineError> {
    let Some(record) = engine.directory().resolve(name.as_str()).await? else {
        return Ok(());
    };
    let state = engine.accounts().await?.fresh().await?;
    if state.roles(record.log).is_some() {
        return Ok(());
    }
    match first_roles(&state, record.log, name, &Identity::Unchecked, is_public) {
        roles if roles.is_empty() => Ok(()),
        roles => engine.change_accounts(roles, actor).await,
    }
}

fn first_roles(
    state: &AccountsState,
    repository: LogId,
    name: &RepositoryName,
    maker: &Identity,
    is_public: bool,
) -> Vec<AccountChange> {
    let admin = match maker {
        Identity::User { name, .. } => Some(name.to_string()),
        _ => state.user(name.owner()).map(|_| name.owner().to_owned()),
    };
    let admin = admin.map(|user| (Grantee::User(user), Role::Admin));
    let public = is_public.then_some((Grantee::Public, Role::Read));
    let roles = admin.into_iter().chain(public).map(|(grantee, role)| {
        AccountChange::SetRole(RoleRecord {
            repository,
            grantee,
            role: Some(role),
        })
    });
    roles.collect()
}
