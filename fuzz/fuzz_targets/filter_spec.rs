//! Any bytes as a filter: refused, or the same again from what it is written as.

#![no_main]

use cuesta_protocol::Limits;
use cuesta_protocol::filter::{FilterPolicy, FilterSpec};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut limits = Limits::new();
    if let Ok(filter) = FilterSpec::parse(data, &limits) {
        let mut written = Vec::new();
        filter.write(&mut written);
        // Encoding may make it longer than a packet.
        limits.filter_bytes_max = usize::MAX;
        assert_eq!(FilterSpec::parse(&written, &limits).as_ref(), Ok(&filter));
        assert_eq!(FilterPolicy::default().check(&filter), Ok(()));
        let _ = filter.to_string();
    }
});
