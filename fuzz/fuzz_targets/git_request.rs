//! Any bytes as the first packet of a connection over `git://`: it leads to one program and path or nowhere.
#![no_main]

use cuesta_protocol::git_transport::GitRequest;
use cuesta_protocol::pktline::Decoder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let prefixed = [b"git-upload-pack /", data].concat();
    let framed = [format!("{:04x}", prefixed.len() + 4).as_bytes(), &prefixed].concat();
    for stream in [data, &framed] {
        let mut decoder = Decoder::new();
        decoder.push(stream);
        let Ok(Some(packet)) = decoder.poll() else { continue };
        if let Ok(request) = GitRequest::parse(&packet) {
            assert!(!request.path.contains(&0));
            assert!(request.path.len() < packet.wire_size());
        }
    }
});
