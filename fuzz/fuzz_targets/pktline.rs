//! Any bytes as pkt-lines: the same packets however they are cut, and again from what they are written as.

#![no_main]

mod wire;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (packets, error) = wire::drive(data, data.len(), |packet| Ok(packet.clone()));
    let chunk = data.first().map_or(1, |byte| usize::from(byte % 9) + 1);
    assert_eq!(wire::drive(data, chunk, |packet| Ok(packet.clone())), (packets.clone(), error));
    let mut written = Vec::new();
    packets.iter().for_each(|packet| packet.encode(&mut written));
    assert_eq!(wire::drive(&written, written.len(), |packet| Ok(packet.clone())), (packets, None));
});
