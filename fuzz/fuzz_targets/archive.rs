//! Any packets as a request for an archive, and any bytes as the patterns, dates and formats that come with one.

#![no_main]

mod wire;

use cuesta_git::attributes::AttributeStack;
use cuesta_git::calendar::parse_date;
use cuesta_git::pathspec::Pathspec;
use cuesta_git::pretty::Facts;
use cuesta_git::wildmatch::Effort;
use cuesta_git::{ObjectFormat, ObjectId};
use cuesta_protocol::Limits;
use cuesta_protocol::archive::{ArchiveCommand, ArchiveName, Event, RequestParser};
use libfuzzer_sys::fuzz_target;

/// Steps of matching.
const EFFORT_MAX: u64 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let stream = wire::stream(data);
    let run = |chunk| {
        let mut parser = RequestParser::new(Limits::new());
        wire::drive(&stream, chunk, |packet| parser.handle(packet))
    };
    let (events, error) = run(stream.len());
    assert_eq!(run(3), (events.clone(), error));
    for event in events {
        if let Event::Request(arguments) = event {
            let _ = ArchiveCommand::parse(arguments, &ArchiveName::ALL);
        }
    }
    let (one, other) = data.split_at(data.len() / 2);
    let mut attributes = AttributeStack::new(&["export-ignore", "eol"]);
    if attributes.push(b"", one).is_ok() {
        let _ = attributes.of(other, &mut Effort::steps(EFFORT_MAX));
    }
    if let Ok(paths) = Pathspec::parse(one.split(|byte| *byte == 0)) {
        // What is meant is never below a directory that a walk passes by.
        let meant = paths.matches(other, false, &mut Effort::steps(EFFORT_MAX));
        if let (Ok(true), Some(slash)) = (meant, other.iter().position(|byte| *byte == b'/')) {
            assert_ne!(paths.may_match_below(&other[..slash], &mut Effort::steps(EFFORT_MAX)), Ok(false));
        }
    }
    let _ = parse_date(&String::from_utf8_lossy(data), 1_700_000_000);
    let oid = ObjectId::null(ObjectFormat::Sha1);
    if let Ok(facts) = Facts::new(ObjectFormat::Sha1, oid, one) {
        let mut out = Vec::new();
        let _ = facts.format(other, &mut out, 1 << 16);
    }
});
