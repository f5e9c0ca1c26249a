//! Any bytes as a checkpoint of a repository, of the directory or of the accounts: refused, or the one way to write what they say.

#![no_main]

mod sealed;

use cuesta_format::{AccountsCheckpoint, Checkpoint, DirectoryCheckpoint};
use libfuzzer_sys::fuzz_target;
use sealed::sealed;

fuzz_target!(|data: &[u8]| {
    let bytes = sealed(data);
    if let Ok(checkpoint) = Checkpoint::decode(&bytes) {
        assert_eq!(checkpoint.encode().as_deref(), Ok(&bytes[..]));
    }
    if let Ok(checkpoint) = AccountsCheckpoint::decode(&bytes) {
        assert_eq!(checkpoint.encode().as_deref(), Ok(&bytes[..]));
    }
    if let Ok(checkpoint) = DirectoryCheckpoint::decode(&bytes) {
        assert_eq!(checkpoint.encode().as_deref(), Ok(&bytes[..]));
    }
});
