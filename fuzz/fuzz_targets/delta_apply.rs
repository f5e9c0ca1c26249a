//! Applying any delta to any base: an error or exactly the size the header says.
#![no_main]

use cuesta_git::delta::{DeltaHeader, apply};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&base_len, rest)) = data.split_first() else {
        return;
    };
    let (base, delta) = rest.split_at(usize::from(base_len).min(rest.len()));
    let Ok((header, _)) = DeltaHeader::decode(delta) else {
        return;
    };
    if header.result_size > 1 << 26 {
        return;
    }
    if let Ok(result) = apply(base, delta) {
        assert_eq!(result.len() as u64, header.result_size);
    }
});
