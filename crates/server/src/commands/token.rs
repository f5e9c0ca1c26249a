//! `cuesta token …`: tokens made, listed, revoked.

use super::table::Table;
use super::{ACTOR, print, repo};
use crate::access::TokenText;
use crate::cli::{TokenArgs, TokenCommand};
use crate::storage::Opened;
use anyhow::{Context, anyhow, bail};
use cuesta_engine::Engine;
use cuesta_format::{AccountChange, LogId, TokenId, TokenRecord};
use cuesta_git::calendar::Utc;
use cuesta_ledger::AccountsState;
use std::collections::{BTreeSet, HashMap};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Longest label of a token.
const LABEL_LEN_MAX: usize = 255;
/// What no time is further away than.
const TIME_MS_MAX: i64 = 36_500 * DAY_MS;

pub(super) async fn run(storage: &Opened, command: &TokenCommand) -> anyhow::Result<()> {
    match command {
        TokenCommand::Create(arguments) => create(storage, arguments).await,
        TokenCommand::List { user } => list(&storage.engine, user.as_deref(), storage.clock.now_ms()).await,
        TokenCommand::Revoke { ids } => revoke(&storage.engine, ids).await,
    }
}

async fn create(storage: &Opened, arguments: &TokenArgs) -> anyhow::Result<()> {
    let (engine, now_ms) = (&storage.engine, storage.clock.now_ms());
    if arguments.name.len() > LABEL_LEN_MAX || arguments.name.contains(char::is_control) {
        bail!("a token's name has at most {LABEL_LEN_MAX} bytes, none of them a control character");
    }
    let token = TokenText::random(&storage.entropy);
    let record = TokenRecord {
        digest: token.digest(),
        user: arguments.user.clone(),
        label: arguments.name.clone(),
        scope: arguments.scope.into(),
        repositories: repositories(engine, &arguments.repositories).await?,
        created_ms: now_ms,
        expires_ms: lifetime_ms(&arguments.expires)?.map(|lifetime| now_ms.saturating_add(lifetime)),
    };
    let until = match record.expires_ms {
        Some(expires) => format!("good until {}", date(expires)),
        None => "good for ever".to_owned(),
    };
    engine
        .change_accounts(vec![AccountChange::AddToken(record)], ACTOR)
        .await?;
    // The token alone on standard output, for scripts.
    eprintln!("token {}, {until}; it is not shown again", token.id());
    print(&format!("{}\n", token.reveal()))
}

async fn repositories(engine: &Engine, names: &[String]) -> anyhow::Result<Option<Vec<LogId>>> {
    let mut logs = BTreeSet::new();
    for name in names {
        logs.insert(repo::open(engine, name).await?.id());
    }
    Ok((!logs.is_empty()).then(|| logs.into_iter().collect()))
}

/// A time such as `12h` or `30d`, in milliseconds; `None` for `never`.
fn lifetime_ms(text: &str) -> anyhow::Result<Option<i64>> {
    let expected = || anyhow!("'{}' is no time: expected '12h', '30d' or 'never'", text.escape_debug());
    if text == "never" {
        return Ok(None);
    }
    let units = [("h", HOUR_MS), ("d", DAY_MS)];
    let mut parsed = units.iter().filter_map(|(suffix, unit)| {
        let count = text.strip_suffix(suffix)?.parse::<u32>().ok()?;
        i64::from(count).checked_mul(*unit)
    });
    let lifetime = parsed.next().ok_or_else(expected)?;
    if !(1..=TIME_MS_MAX).contains(&lifetime) {
        bail!("a token is good for at least an hour and at most 36500 days, or for ever");
    }
    Ok(Some(lifetime))
}

async fn list(engine: &Engine, user: Option<&str>, now_ms: i64) -> anyhow::Result<()> {
    let state = engine.accounts().await?.fresh().await?;
    check_user(&state, user)?;
    let names = repository_names(engine).await?;
    let mut table = Table::new(["id", "user", "name", "scope", "repositories", "created", "expires"]);
    for token in state
        .tokens()
        .filter(|token| user.is_none_or(|user| token.user == user))
    {
        let repositories = token.repositories.as_ref().map_or_else(
            || "all".to_owned(),
            |logs| {
                let name = |log: &LogId| names.get(log).map_or("(deleted)", String::as_str).to_owned();
                logs.iter().map(name).collect::<Vec<_>>().join(",")
            },
        );
        let expires = match token.expires_ms {
            None => "never".to_owned(),
            Some(expires) if expires <= now_ms => format!("{} (expired)", date(expires)),
            Some(expires) => date(expires),
        };
        table.row([
            token.id().to_string(),
            token.user.clone(),
            token.label.clone(),
            token.scope.to_string(),
            repositories,
            date(token.created_ms),
            expires,
        ]);
    }
    print(&table.to_string())
}

/// Fails for a user who is not there.
pub(super) fn check_user(state: &AccountsState, user: Option<&str>) -> anyhow::Result<()> {
    match user.filter(|user| state.user(user).is_none()) {
        Some(user) => bail!("user '{}' not found", user.escape_debug()),
        None => Ok(()),
    }
}

async fn repository_names(engine: &Engine) -> anyhow::Result<HashMap<LogId, String>> {
    let state = engine.directory().log().fresh().await?;
    let names = state.names().iter();
    Ok(names.map(|(name, record)| (record.log, name.clone())).collect())
}

async fn revoke(engine: &Engine, ids: &[String]) -> anyhow::Result<()> {
    let parse = |id: &String| TokenId::from_hex(id).with_context(|| format!("'{}' is no token id", id.escape_debug()));
    let ids: Vec<TokenId> = ids.iter().map(parse).collect::<anyhow::Result<_>>()?;
    let changes = ids.into_iter().map(AccountChange::RevokeToken).collect();
    Ok(engine.change_accounts(changes, ACTOR).await?)
}

/// The UTC day of a time, as `2026-11-30`.
fn date(ms: i64) -> String {
    let Utc { year, month, day, .. } = Utc::of(ms.div_euclid(1_000));
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_hours_days_or_never() {
        assert_eq!(lifetime_ms("12h").unwrap(), Some(12 * HOUR_MS));
        assert_eq!(lifetime_ms("30d").unwrap(), Some(30 * DAY_MS));
        assert_eq!(lifetime_ms("36500d").unwrap(), Some(TIME_MS_MAX));
        assert_eq!(lifetime_ms("never").unwrap(), None);
        for refused in [
            "",
            "d",
            "30",
            "-1d",
            "0d",
            "0h",
            "1.5d",
            "36501d",
            "99999999999d",
            "4000000000h",
            "1w",
            "30D",
        ] {
            assert!(lifetime_ms(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (ms, expected) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (951_782_400_000, "2000-02-29"),
            (951_868_800_000, "2000-03-01"),
            (1_764_547_199_999, "2025-11-30"),
            (4_107_542_400_000, "2100-03-01"),
        ] {
            assert_eq!(date(ms), expected);
        }
    }
}
