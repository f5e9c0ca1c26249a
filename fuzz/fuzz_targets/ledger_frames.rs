//! Any bytes as a frame of the ledger's socket: refused, or the one way to write what they say.

#![no_main]

use bytes::Bytes;
use cuesta_ledger::remote::check_frame;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| check_frame(&Bytes::copy_from_slice(data)));
