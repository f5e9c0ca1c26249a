//! Any packets as a v0 fetch, over both kinds of connection: the same events however they are cut, and answers that parse.

#![no_main]

mod wire;

use cuesta_git::ObjectFormat;
use cuesta_protocol::Limits;
use cuesta_protocol::filter::FilterPolicy;
use cuesta_protocol::options::UploadOptions;
use cuesta_protocol::upload::v0::{Event, Negotiation, RequestParser};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let stream = wire::stream(data);
    for stateless in [true, false] {
        let run = |chunk| {
            let mut options = UploadOptions::new("fuzz");
            options.filters = Some(FilterPolicy::default());
            let mut parser = RequestParser::new(ObjectFormat::Sha1, options, Limits::new(), stateless);
            wire::drive(&stream, chunk, |packet| parser.handle(packet))
        };
        let (events, error) = run(stream.len());
        assert_eq!(run(3), (events.clone(), error));
        let mut negotiation = None;
        let mut out = Vec::new();
        for event in &events {
            match (event, &mut negotiation) {
                (Event::Wants(request), _) => negotiation = Some(Negotiation::new(request, stateless)),
                (Event::Have(oid), Some(negotiation)) => {
                    let [first, second, ..] = oid.as_bytes() else { unreachable!() };
                    negotiation.have(&mut out, *oid, first % 2 == 0, second % 2 == 0);
                }
                (Event::Flush, Some(negotiation)) => drop(negotiation.flush(&mut out, true)),
                (Event::Done, Some(negotiation)) => drop(negotiation.done(&mut out)),
                _ => {}
            }
        }
        assert_eq!(wire::drive(&out, out.len(), |_| Ok(())).1, None);
    }
});
