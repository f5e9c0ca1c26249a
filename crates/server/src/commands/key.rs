//! `cuesta key …`: SSH public keys added, listed, removed.

use super::table::Table;
use super::token::check_user;
use super::{ACTOR, print};
use crate::access::PublicKey;
use crate::cli::KeyCommand;
use crate::storage::Opened;
use anyhow::{Context, bail};
use cuesta_engine::Engine;
use cuesta_format::{AccountChange, KeyRecord};
use std::io::Read;

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 64 << 10;

pub(super) async fn run(storage: &Opened, command: &KeyCommand) -> anyhow::Result<()> {
    match command {
        KeyCommand::Add { user, file } => add(storage, user, file).await,
        KeyCommand::List { user } => list(&storage.engine, user.as_deref()).await,
        KeyCommand::Remove { fingerprint } => remove(&storage.engine, fingerprint).await,
    }
}

/// Adds every key of the file, or none.
async fn add(storage: &Opened, user: &str, file: &str) -> anyhow::Result<()> {
    let text = read(file)?;
    if text.contains("PRIVATE KEY") {
        bail!("'{file}' is a private key: keep it to yourself and give the .pub file");
    }
    let mut added = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let key = PublicKey::parse(line).with_context(|| format!("cannot take a key of '{file}'"))?;
        added.push(KeyRecord {
            blob: key.blob,
            user: user.to_owned(),
            label: key.label,
            added_ms: storage.clock.now_ms(),
        });
    }
    if added.is_empty() {
        bail!("'{file}' holds no key");
    }
    let lines = added
        .iter()
        .map(|key| format!("{}\n", PublicKey::fingerprint(&key.blob)));
    let lines: String = lines.collect();
    let changes = added.into_iter().map(AccountChange::AddKey).collect();
    storage.engine.change_accounts(changes, ACTOR).await?;
    print(&lines)
}

fn read(file: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = match file {
        "-" => std::io::stdin().lock().take(FILE_BYTES_MAX).read_to_string(&mut text),
        path => std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text)),
    };
    read.with_context(|| format!("cannot read '{file}'"))?;
    Ok(text)
}

async fn list(engine: &Engine, user: Option<&str>) -> anyhow::Result<()> {
    let state = engine.accounts().await?.fresh().await?;
    check_user(&state, user)?;
    let mut table = Table::new(["fingerprint", "user", "type", "name"]);
    for key in state.keys().filter(|key| user.is_none_or(|user| key.user == user)) {
        table.row([
            PublicKey::fingerprint(&key.blob),
            key.user.clone(),
            PublicKey::algorithm(&key.blob).to_owned(),
            key.label.clone(),
        ]);
    }
    print(&table.to_string())
}

async fn remove(engine: &Engine, fingerprint: &str) -> anyhow::Result<()> {
    let state = engine.accounts().await?.fresh().await?;
    let key = state
        .keys()
        .find(|key| PublicKey::fingerprint(&key.blob) == fingerprint);
    let key = key.with_context(|| format!("key '{}' not found", fingerprint.escape_debug()))?;
    let change = AccountChange::RemoveKey(key.blob.clone());
    Ok(engine.change_accounts(vec![change], ACTOR).await?)
}
