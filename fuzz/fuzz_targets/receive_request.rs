//! Any packets as a push: the same however they are cut, and again what a client would write it as.

#![no_main]

mod wire;

use cuesta_git::ObjectFormat;
use cuesta_protocol::Limits;
use cuesta_protocol::client::write_push;
use cuesta_protocol::options::ReceiveOptions;
use cuesta_protocol::receive::{Event, PushRequest, RequestParser};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let stream = wire::stream(data);
    let run = |stream: &[u8], chunk| {
        let mut options = ReceiveOptions::new("fuzz");
        options.push_options = true;
        options.push_cert_nonce = Some("nonce".to_owned());
        let mut parser = RequestParser::new(ObjectFormat::Sha1, options, Limits::new());
        wire::drive(stream, chunk, |packet| parser.handle(packet))
    };
    let (events, error) = run(&stream, stream.len());
    assert_eq!(run(&stream, 3), (events.clone(), error));
    for event in events {
        let Event::Request(push) = event else { continue };
        for command in &push.commands {
            let _ = command.ref_name();
        }
        if is_plain(&push) {
            let mut written = Vec::new();
            write_push(&mut written, ObjectFormat::Sha1, &push);
            let (events, error) = run(&written, written.len());
            assert_eq!(events.last(), Some(&Event::Request(push)), "{error:?}");
        }
    }
});

/// Whether writing it loses nothing: certificates are not written, agents are made printable, one line feed is no content.
fn is_plain(push: &PushRequest) -> bool {
    let ends_in_lf = |text: &[u8]| text.ends_with(b"\n");
    push.certificate.is_none()
        && push.capabilities.agent.is_none()
        && push.capabilities.session_id.is_none()
        && !push.commands.iter().any(|command| ends_in_lf(&command.name) || command.name.contains(&0))
        && !push.push_options.iter().any(|option| ends_in_lf(option))
}
