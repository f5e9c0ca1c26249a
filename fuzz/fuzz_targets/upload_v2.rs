//! Any packets as v2 requests: the same however they are cut, and fetches are again what a client would write them as.

#![no_main]

mod wire;

use cuesta_git::ObjectFormat;
use cuesta_protocol::Limits;
use cuesta_protocol::client::{ServerCapabilities, write_fetch};
use cuesta_protocol::filter::FilterPolicy;
use cuesta_protocol::options::UploadOptions;
use cuesta_protocol::pktline::DATA_MAX;
use cuesta_protocol::upload::v2::{Command, Event, RequestParser};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let stream = wire::stream(data);
    let run = |stream: &[u8], chunk| {
        let mut parser = RequestParser::new(ObjectFormat::Sha1, everything(), Limits::new());
        wire::drive(stream, chunk, |packet| parser.handle(packet))
    };
    let (events, error) = run(&stream, stream.len());
    assert_eq!(run(&stream, 3), (events.clone(), error));
    for event in events {
        let Event::Request(request) = event else { continue };
        let Command::Fetch(fetch) = request.command else { continue };
        let mut written = Vec::new();
        write_fetch(&mut written, &ServerCapabilities::default(), "fuzz", &fetch);
        if written.len() > DATA_MAX {
            continue;
        }
        let (events, error) = run(&written, written.len());
        let Some(Event::Request(again)) = events.last() else { panic!("{error:?}") };
        assert_eq!(again.command, Command::Fetch(fetch));
    }
});

fn everything() -> UploadOptions {
    let mut options = UploadOptions::new("fuzz");
    options.session_id = Some("s".to_owned());
    options.filters = Some(FilterPolicy::default());
    options.ref_in_want = true;
    options.sideband_all = true;
    options.packfile_uris = true;
    options.object_info = true;
    options.bundle_uri = true;
    options.promisor_remote = Some("name=a".to_owned());
    options
}
