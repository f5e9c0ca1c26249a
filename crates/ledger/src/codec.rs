//! The machines' bytes: entries and checkpoints as `cuesta-format` writes them.

use crate::{DirectoryState, LedgerError, State};
use bytes::Bytes;
use cuesta_format::{DirectoryEdit, Edit, LogId};

pub(crate) fn encode_entry(_number: u64, _edits: &mut dyn Iterator<Item = &Edit>) -> Bytes {
    Bytes::new()
}

pub(crate) fn decode_entry(log: LogId, number: u64, _bytes: Bytes) -> Result<Vec<Edit>, LedgerError> {
    Err(LedgerError::Corrupt {
        log,
        number,
        what: "no codec yet".to_owned(),
    })
}

pub(crate) fn decode_checkpoint(log: LogId, number: u64, _bytes: Bytes) -> Result<State, LedgerError> {
    Err(LedgerError::Corrupt {
        log,
        number,
        what: "no codec yet".to_owned(),
    })
}

pub(crate) fn encode_directory_entry(_number: u64, _edits: &mut dyn Iterator<Item = &DirectoryEdit>) -> Bytes {
    Bytes::new()
}

pub(crate) fn decode_directory_entry(log: LogId, number: u64, _: Bytes) -> Result<Vec<DirectoryEdit>, LedgerError> {
    Err(LedgerError::Corrupt {
        log,
        number,
        what: "no codec yet".to_owned(),
    })
}

pub(crate) fn decode_directory_checkpoint(log: LogId, number: u64, _: Bytes) -> Result<DirectoryState, LedgerError> {
    Err(LedgerError::Corrupt {
        log,
        number,
        what: "no codec yet".to_owned(),
    })
}
