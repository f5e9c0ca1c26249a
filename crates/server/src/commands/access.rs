//! `cuesta access …`: who may do what in a repository.

use super::{ACTOR, print, repo};
use crate::cli::AccessCommand;
use cuesta_engine::Engine;
use cuesta_format::{AccountChange, Grantee, Role, RoleRecord};

pub(super) async fn run(engine: &Engine, command: &AccessCommand) -> anyhow::Result<()> {
    match command {
        AccessCommand::Grant { repository, user, role } => {
            set(engine, repository, Grantee::User(user.clone()), Some((*role).into())).await
        }
        AccessCommand::Revoke { repository, user } => set(engine, repository, Grantee::User(user.clone()), None).await,
        AccessCommand::Public { repository, role } => set(engine, repository, Grantee::Public, (*role).into()).await,
        AccessCommand::Show { repository } => show(engine, repository).await,
    }
}

async fn set(engine: &Engine, repository: &str, grantee: Grantee, role: Option<Role>) -> anyhow::Result<()> {
    let change = AccountChange::SetRole(RoleRecord {
        repository: repo::open(engine, repository).await?.id(),
        grantee,
        role,
    });
    Ok(engine.change_accounts(vec![change], ACTOR).await?)
}

async fn show(engine: &Engine, repository: &str) -> anyhow::Result<()> {
    let repository = repo::open(engine, repository).await?;
    let state = engine.accounts().await?.fresh().await?;
    let roles = state.roles(repository.id());
    let public = roles.and_then(|roles| roles.public());
    let mut text = format!("(everyone) {}\n", public.map_or("none", Role::name));
    for (user, role) in roles.into_iter().flat_map(|roles| roles.users()) {
        text += &format!("{user} {role}\n");
    }
    for (user, _) in state.users().filter(|(_, user)| user.is_admin) {
        text += &format!("{user} admin (of everything)\n");
    }
    print(&text)
}
