//! `cuesta key …`: SSH and OpenPGP public keys added, listed, removed.

use super::table::Table;
use super::token::check_user;
use super::{ACTOR, print};
use crate::access::{OpenPgpKey, PublicKey, Standing};
use crate::cli::KeyCommand;
use crate::storage::Opened;
use anyhow::{Context, bail};
use bytes::Bytes;
use cuesta_engine::Engine;
use cuesta_format::{AccountChange, KeyRecord, OpenPgpKeyRecord};
use std::io::Read;

/// Longest file that is read. An OpenPGP key brings along what others have signed.
const FILE_BYTES_MAX: u64 = 1 << 20;

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
        bail!("'{file}' is a private key: keep it to yourself and give the public one");
    }
    if OpenPgpKey::is_meant(&text) {
        return add_openpgp(storage, user, file, &text).await;
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

/// Adds an OpenPGP key, or puts it in the place of another form of it that does not know of more revocations.
async fn add_openpgp(storage: &Opened, user: &str, file: &str, text: &str) -> anyhow::Result<()> {
    let now_ms = storage.clock.now_ms();
    let now = u64::try_from(now_ms / 1000).unwrap_or(0);
    let key = OpenPgpKey::parse(text, now).with_context(|| format!("cannot take the key of '{file}'"))?;
    let state = storage.engine.accounts().await?.fresh().await?;
    let known = key
        .fingerprints
        .first()
        .and_then(|fingerprint| state.openpgp_key(fingerprint));
    if known.is_some_and(|known| key.lacks_revocation_of(&known.certificate, now)) {
        bail!("'{file}' was exported before its owner revoked it: export it again, with the revocation");
    }
    match key.standing {
        Standing::Expired => eprintln!("warning: the key has expired"),
        Standing::Revoked => eprintln!("warning: the key was revoked"),
        Standing::Signs | Standing::Unfit => {}
    }
    let record = OpenPgpKeyRecord {
        fingerprints: key.fingerprints,
        certificate: key.certificate,
        user: user.to_owned(),
        label: key.label,
        added_ms: now_ms,
    };
    let line = format!("{}\n", OpenPgpKey::fingerprint_text(record.fingerprint()));
    let change = AccountChange::PutOpenPgpKey(record);
    storage.engine.change_accounts(vec![change], ACTOR).await?;
    print(&line)
}

fn read(file: &str) -> anyhow::Result<String> {
    let (mut text, taken) = (String::new(), FILE_BYTES_MAX + 1);
    let read = match file {
        "-" => std::io::stdin().lock().take(taken).read_to_string(&mut text),
        path => std::fs::File::open(path).and_then(|file| file.take(taken).read_to_string(&mut text)),
    };
    let len = read.with_context(|| format!("cannot read '{file}'"))?;
    if len as u64 > FILE_BYTES_MAX {
        bail!("'{file}' is too long to be keys: more than {FILE_BYTES_MAX} bytes");
    }
    Ok(text)
}

async fn list(engine: &Engine, user: Option<&str>) -> anyhow::Result<()> {
    let state = engine.accounts().await?.fresh().await?;
    check_user(&state, user)?;
    let is_asked_for = |owner: &str| user.is_none_or(|user| user == owner);
    let mut table = Table::new(["fingerprint", "user", "type", "name"]);
    for key in state.keys().filter(|key| is_asked_for(&key.user)) {
        table.row([
            PublicKey::fingerprint(&key.blob),
            key.user.clone(),
            PublicKey::algorithm(&key.blob).to_owned(),
            key.label.clone(),
        ]);
    }
    for key in state.openpgp_keys().filter(|key| is_asked_for(&key.user)) {
        table.row([
            OpenPgpKey::fingerprint_text(key.fingerprint()),
            key.user.clone(),
            "openpgp".to_owned(),
            key.label.clone(),
        ]);
    }
    print(&table.to_string())
}

async fn remove(engine: &Engine, fingerprint: &str) -> anyhow::Result<()> {
    let state = engine.accounts().await?.fresh().await?;
    let mut keys = state.keys();
    let mut openpgp_keys = state.openpgp_keys().map(|key| key.fingerprint());
    let ssh = keys.find(|key| PublicKey::fingerprint(&key.blob) == fingerprint);
    let openpgp = openpgp_keys.find(|key| OpenPgpKey::fingerprint_text(key) == fingerprint);
    let change = match (ssh, openpgp) {
        (Some(key), _) => Some(AccountChange::RemoveKey(key.blob.clone())),
        (None, key) => key.map(|key| AccountChange::RemoveOpenPgpKey(Bytes::copy_from_slice(key))),
    };
    let change = change.with_context(|| format!("key '{}' not found", fingerprint.escape_debug()))?;
    Ok(engine.change_accounts(vec![change], ACTOR).await?)
}
