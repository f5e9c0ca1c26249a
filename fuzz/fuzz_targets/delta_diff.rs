//! A delta found between any two buffers makes the one of the other.
#![no_main]

use cuesta_git::delta::{DeltaIndex, apply};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((cut, rest)) = data.split_first_chunk::<2>() else {
        return;
    };
    let (base, target) = rest.split_at(usize::from(u16::from_le_bytes(*cut)).min(rest.len()));
    let delta = DeltaIndex::new(base).diff(target, usize::MAX);
    match delta {
        Some(delta) => assert_eq!(apply(base, &delta).as_deref(), Ok(target)),
        None => assert!(target.is_empty()),
    }
});
