//! Any bytes as an entry of a ledger, of the directory or of the accounts: refused, or the one way to write what they say.

#![no_main]

mod sealed;

use cuesta_format::{AccountsEntry, DirectoryEntry, Entry};
use libfuzzer_sys::fuzz_target;
use sealed::sealed;

fuzz_target!(|data: &[u8]| {
    let bytes = sealed(data);
    if let Ok(entry) = Entry::decode(&bytes) {
        assert_eq!(entry.encode().as_deref(), Ok(&bytes[..]));
    }
    if let Ok(entry) = AccountsEntry::decode(&bytes) {
        assert_eq!(entry.encode().as_deref(), Ok(&bytes[..]));
    }
    if let Ok(entry) = DirectoryEntry::decode(&bytes) {
        assert_eq!(entry.encode().as_deref(), Ok(&bytes[..]));
    }
});
