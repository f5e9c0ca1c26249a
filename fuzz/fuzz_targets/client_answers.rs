//! Any packets as what another server says: the same however they are cut.

#![no_main]

mod wire;

use cuesta_git::ObjectFormat;
use cuesta_protocol::Limits;
use cuesta_protocol::client::{AdvertisementParser, FetchAnswerParser, LsRefsParser, PushAnswerParser, PushEvent};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let stream = wire::stream(data);
    let (format, limits) = (ObjectFormat::Sha1, Limits::new());
    let advertisement = |chunk| {
        let mut parser = AdvertisementParser::new(limits);
        wire::drive(&stream, chunk, |packet| parser.handle(packet))
    };
    assert_eq!(advertisement(3), advertisement(stream.len()));
    let refs = |chunk| {
        let mut parser = LsRefsParser::new(format, limits);
        wire::drive(&stream, chunk, |packet| parser.handle(packet))
    };
    assert_eq!(refs(3), refs(stream.len()));
    let fetch = |chunk| {
        let mut parser = FetchAnswerParser::new(format, limits);
        wire::drive(&stream, chunk, |packet| parser.handle(packet))
    };
    assert_eq!(fetch(3), fetch(stream.len()));
    for side_band in [true, false] {
        let push = |chunk| {
            let mut parser = PushAnswerParser::new(format, limits, side_band);
            let (events, error) = wire::drive(&stream, chunk, |packet| parser.handle(packet));
            (events.into_iter().flatten().collect::<Vec<PushEvent>>(), error)
        };
        assert_eq!(push(3), push(stream.len()));
    }
});
