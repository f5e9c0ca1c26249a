//! A pack entry's header: what decodes encodes to bytes that decode to the same.
#![no_main]

use cuesta_git::ObjectFormat;
use cuesta_git::pack::{ENTRY_HEADER_LEN_MAX, EntryHeader, PackHeader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(bytes) = data.first_chunk() {
        let _ = PackHeader::decode(bytes);
    }
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        if let Ok(Some((header, len))) = EntryHeader::decode(format, data) {
            assert!(len <= data.len());
            let mut encoded = Vec::new();
            header.encode(&mut encoded);
            assert!(encoded.len() <= ENTRY_HEADER_LEN_MAX);
            assert_eq!(EntryHeader::decode(format, &encoded), Ok(Some((header, encoded.len()))));
        }
    }
});
