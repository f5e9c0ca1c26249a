//! Any bytes as a ref name; one that is accepted keeps to the rules that matter most.
#![no_main]

use cuesta_git::{HiddenRefs, RefName};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (pattern, name) = data.split_at(data.len() / 2);
    for name in [name, data] {
        if let Ok(name) = RefName::new(name) {
            let bytes = name.as_bytes();
            assert!(!bytes.iter().any(|byte| *byte < 0x20 || b" ~^:?*[\\\x7f".contains(byte)));
            assert!(
                !bytes
                    .windows(2)
                    .any(|pair| pair == b".." || pair == b"//" || pair == b"@{" || pair == b"/.")
            );
            assert!(!bytes.ends_with(b"/") && !bytes.ends_with(b".lock") && !bytes.ends_with(b"."));
            let _ = HiddenRefs::new([pattern]).hides(&name);
        }
    }
});
