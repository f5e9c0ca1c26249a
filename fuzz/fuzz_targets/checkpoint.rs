//! Any bytes as a checkpoint of a repository, of the directory or of the accounts: refused, or the one way to write what they say.

#![no_main]

use bytes::Bytes;
use cuesta_format::{AccountsCheckpoint, Checkpoint, DirectoryCheckpoint};
use libfuzzer_sys::fuzz_target;

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

/// The bytes with a checksum that holds, so that the fuzzer gets past it.
fn sealed(data: &[u8]) -> Bytes {
    let mut bytes = data.to_vec();
    bytes.extend_from_slice(&crc32c::crc32c(data).to_le_bytes());
    Bytes::from(bytes)
}
