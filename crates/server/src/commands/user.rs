//! `cuesta user …`: users made, listed, removed.

use super::{ACTOR, print};
use crate::cli::{Switch, UserCommand};
use anyhow::bail;
use cuesta_engine::{Engine, RepositoryName};
use cuesta_format::{AccountChange, UserRecord};

pub(super) async fn run(engine: &Engine, command: &UserCommand) -> anyhow::Result<()> {
    let change = match command {
        UserCommand::List => return list(engine).await,
        UserCommand::Add { name, admin } => {
            check_name(engine, name).await?;
            AccountChange::AddUser(record(name, *admin))
        }
        UserCommand::Remove { name } => AccountChange::RemoveUser(name.clone()),
        UserCommand::Admin { name, switch } => AccountChange::SetAdmin(record(name, *switch == Switch::On)),
    };
    Ok(engine.change_accounts(vec![change], ACTOR).await?)
}

fn record(name: &str, is_admin: bool) -> UserRecord {
    UserRecord {
        name: name.to_owned(),
        is_admin,
    }
}

/// A user's name is that of a namespace, and not to be mistaken for another's.
async fn check_name(engine: &Engine, name: &str) -> anyhow::Result<()> {
    if let Err(error) = RepositoryName::check_owner(name) {
        bail!("'{}' is not a valid user name: {error}", name.escape_debug());
    }
    let state = engine.accounts().await?.fresh().await?;
    let alike = state
        .users()
        .find(|(other, _)| *other != name && other.eq_ignore_ascii_case(name));
    match alike {
        Some((other, _)) => bail!("user '{name}' could be mistaken for user '{other}'"),
        None => Ok(()),
    }
}

async fn list(engine: &Engine) -> anyhow::Result<()> {
    let state = engine.accounts().await?.fresh().await?;
    let line = |(name, user): (&str, cuesta_ledger::User)| match user.is_admin {
        true => format!("{name} (admin)\n"),
        false => format!("{name}\n"),
    };
    print(&state.users().map(line).collect::<String>())
}
