//! The machines' bytes: entries and checkpoints as `cuesta-format` writes them.

use crate::LedgerError;
use bytes::Bytes;
use cuesta_format::{
    AccountsCheckpoint, AccountsEdit, AccountsEntry, Checkpoint, DirectoryCheckpoint, DirectoryEdit, DirectoryEntry,
    Edit, Entry, FormatError, LogId,
};

pub(crate) fn encode_entry(number: u64, edits: &mut dyn Iterator<Item = &Edit>) -> Result<Bytes, LedgerError> {
    let edits: Vec<&Edit> = edits.collect();
    encoded(cuesta_format::encode_entry(number, edits.iter().copied()))
}

pub(crate) fn decode_entry(log: LogId, number: u64, bytes: &Bytes) -> Result<Vec<Edit>, LedgerError> {
    let entry = Entry::decode(bytes).map_err(|error| corrupt(log, number, error))?;
    same_number(log, number, entry.number)?;
    Ok(entry.edits)
}

pub(crate) fn decode_checkpoint(log: LogId, number: u64, bytes: &Bytes) -> Result<Checkpoint, LedgerError> {
    let checkpoint = Checkpoint::decode(bytes).map_err(|error| corrupt(log, number, error))?;
    same_number(log, number, checkpoint.number)?;
    if checkpoint.log != log {
        return Err(corrupt(
            log,
            number,
            format!("the checkpoint is of log {}", checkpoint.log),
        ));
    }
    Ok(checkpoint)
}

pub(crate) fn encode_directory_entry(
    number: u64,
    edits: &mut dyn Iterator<Item = &DirectoryEdit>,
) -> Result<Bytes, LedgerError> {
    let entry = DirectoryEntry {
        number,
        edits: edits.cloned().collect(),
    };
    encoded(entry.encode())
}

pub(crate) fn decode_directory_entry(
    log: LogId,
    number: u64,
    bytes: &Bytes,
) -> Result<Vec<DirectoryEdit>, LedgerError> {
    let entry = DirectoryEntry::decode(bytes).map_err(|error| corrupt(log, number, error))?;
    same_number(log, number, entry.number)?;
    Ok(entry.edits)
}

pub(crate) fn decode_directory_checkpoint(
    log: LogId,
    number: u64,
    bytes: &Bytes,
) -> Result<DirectoryCheckpoint, LedgerError> {
    let checkpoint = DirectoryCheckpoint::decode(bytes).map_err(|error| corrupt(log, number, error))?;
    same_number(log, number, checkpoint.number)?;
    Ok(checkpoint)
}

pub(crate) fn encode_accounts_entry(
    number: u64,
    edits: &mut dyn Iterator<Item = &AccountsEdit>,
) -> Result<Bytes, LedgerError> {
    let entry = AccountsEntry {
        number,
        edits: edits.cloned().collect(),
    };
    encoded(entry.encode())
}

pub(crate) fn decode_accounts_entry(log: LogId, number: u64, bytes: &Bytes) -> Result<Vec<AccountsEdit>, LedgerError> {
    let entry = AccountsEntry::decode(bytes).map_err(|error| corrupt(log, number, error))?;
    same_number(log, number, entry.number)?;
    Ok(entry.edits)
}

pub(crate) fn decode_accounts_checkpoint(
    log: LogId,
    number: u64,
    bytes: &Bytes,
) -> Result<AccountsCheckpoint, LedgerError> {
    let checkpoint = AccountsCheckpoint::decode(bytes).map_err(|error| corrupt(log, number, error))?;
    same_number(log, number, checkpoint.number)?;
    Ok(checkpoint)
}

fn encoded(bytes: Result<Vec<u8>, FormatError>) -> Result<Bytes, LedgerError> {
    bytes.map(Bytes::from).map_err(LedgerError::BadEdit)
}

fn same_number(log: LogId, number: u64, got: u64) -> Result<(), LedgerError> {
    match got == number {
        true => Ok(()),
        false => Err(corrupt(log, number, format!("it says it is number {got}"))),
    }
}

fn corrupt(log: LogId, number: u64, what: impl ToString) -> LedgerError {
    LedgerError::Corrupt {
        log,
        number,
        what: what.to_string(),
    }
}
