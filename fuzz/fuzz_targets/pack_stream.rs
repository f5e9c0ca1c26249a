//! Any bytes as the entries of a pack, in chunks: refused, or the same however they are cut; never a panic.

#![no_main]

use cuesta_engine::receive::{ReceiveOptions, check_pack};
use cuesta_git::{Checksum, ObjectFormat, pack::PackHeader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(((count, chunk_len), entries)) = data.split_first_chunk::<2>().map(|(head, rest)| ((head[0], head[1]), rest))
    else {
        return;
    };
    let pack = sealed(count, entries);
    let options = ReceiveOptions {
        objects_max: 256,
        blob_bytes_max: 4 << 20,
        held_object_bytes_max: 1 << 20,
        base_bytes_max: 1 << 20,
        threads: 1,
        ..ReceiveOptions::default()
    };
    let whole = check_pack(ObjectFormat::Sha1, &options, [pack.as_slice()]);
    let cut = check_pack(ObjectFormat::Sha1, &options, pack.chunks(usize::from(chunk_len).max(1)));
    let texts = [whole, cut].map(|outcome| outcome.map_err(|error| error.to_string()));
    // Which of two faults is met first may depend on the cut; whether there is one may not.
    assert_eq!(texts[0].as_ref().ok(), texts[1].as_ref().ok());
});

/// The entries with a header and a checksum that holds, so that the fuzzer gets past them.
fn sealed(count: u8, entries: &[u8]) -> Vec<u8> {
    let mut pack = PackHeader::new(u32::from(count)).encode().to_vec();
    pack.extend_from_slice(entries);
    let mut checksum = Checksum::new(ObjectFormat::Sha1);
    checksum.update(&pack);
    pack.extend_from_slice(checksum.finish().as_bytes());
    pack
}
