use super::*;
use crate::testing::{hex, oid, texts};

/// One step of a script: a have that is known, one that is not, a flush, done; each with what is `ready` then.
enum Say {
    Known(u8),
    Unknown(u8, bool),
    Flush(bool),
    Done,
}
use Say::*;

fn play(acks: AckMode, no_done: bool, stateless: bool, script: &[Say]) -> (Vec<String>, Option<Step>) {
    let request = Request {
        acks,
        no_done,
        ..Request::default()
    };
    let mut negotiation = Negotiation::new(&request, stateless);
    let mut out = Vec::new();
    let mut step = None;
    for say in script {
        match say {
            Known(n) => negotiation.have(&mut out, oid(*n), true, false),
            Unknown(n, ready) => negotiation.have(&mut out, oid(*n), false, *ready),
            Flush(ready) => step = Some(negotiation.flush(&mut out, *ready)),
            Done => step = Some(negotiation.done(&mut out)),
        }
    }
    let short = |text: String| match (1..=9).find(|n| text.contains(&hex(*n))) {
        Some(n) => text.replace(&hex(n), &n.to_string()),
        None => text,
    };
    (
        texts(&out)
            .into_iter()
            .map(|text| short(text).trim_end().to_owned())
            .collect(),
        step,
    )
}

#[test]
fn without_multi_ack_only_the_first_common_object_is_told() {
    let lines = |script: &[Say]| play(AckMode::Single, false, false, script).0;
    assert_eq!(lines(&[Unknown(1, true), Flush(true), Done]), ["NAK", "NAK"]);
    assert_eq!(
        lines(&[Known(1), Known(2), Unknown(3, true), Flush(true), Known(4), Done]),
        ["ACK 1"]
    );
    assert_eq!(lines(&[Done]), ["NAK"]);
}

#[test]
fn multi_ack_continues_and_closes() {
    let lines = |script: &[Say]| play(AckMode::Multi, false, false, script).0;
    let script = [Known(1), Unknown(2, false), Unknown(3, true), Flush(true), Done];
    assert_eq!(lines(&script), ["ACK 1 continue", "ACK 3 continue", "NAK", "ACK 1"]);
    assert_eq!(lines(&[Unknown(1, true), Flush(true), Done]), ["NAK", "NAK"]);
}

#[test]
fn detailed_acks_tell_common_and_ready() {
    let lines = |script: &[Say]| play(AckMode::Detailed, false, false, script).0;
    assert_eq!(
        lines(&[Known(1), Known(2), Flush(true), Done]),
        ["ACK 1 common", "ACK 2 common", "ACK 2 ready", "NAK", "ACK 2"]
    );
    assert_eq!(
        lines(&[Known(1), Unknown(2, true), Flush(true)]),
        ["ACK 1 common", "ACK 2 ready", "NAK"]
    );
    assert_eq!(
        lines(&[Known(1), Unknown(2, false), Flush(true)]),
        ["ACK 1 common", "NAK"]
    );
    // A round without a common object does not become ready by itself.
    assert_eq!(
        lines(&[Known(1), Flush(false), Flush(true)]),
        ["ACK 1 common", "NAK", "NAK"]
    );
}

#[test]
fn rounds_end_as_the_connection_does() {
    assert_eq!(
        play(AckMode::Detailed, false, true, &[Known(1), Flush(true)]).1,
        Some(Step::End)
    );
    assert_eq!(
        play(AckMode::Detailed, false, false, &[Known(1), Flush(true)]).1,
        Some(Step::Continue)
    );
    assert_eq!(
        play(AckMode::Detailed, true, true, &[Known(1), Flush(false)]).1,
        Some(Step::End)
    );
    assert_eq!(play(AckMode::Multi, false, true, &[Done]).1, Some(Step::Pack));
}

#[test]
fn no_done_lets_the_pack_follow_ready() {
    let (lines, step) = play(AckMode::Detailed, true, true, &[Known(1), Flush(true)]);
    assert_eq!(
        (&lines[..], step),
        (
            &["ACK 1 common", "ACK 1 ready", "NAK", "ACK 1"].map(str::to_owned)[..],
            Some(Step::Pack)
        )
    );
    let (lines, step) = play(
        AckMode::Detailed,
        true,
        true,
        &[Known(1), Unknown(2, true), Flush(false)],
    );
    assert_eq!(lines, ["ACK 1 common", "ACK 2 ready", "NAK", "ACK 1"]);
    assert_eq!(step, Some(Step::Pack));
}

#[test]
fn readiness_is_asked_for_only_where_it_matters() {
    for (acks, unknown, flush) in [
        (AckMode::Single, false, false),
        (AckMode::Multi, true, false),
        (AckMode::Detailed, true, true),
    ] {
        let mut negotiation = Negotiation::new(
            &Request {
                acks,
                ..Request::default()
            },
            true,
        );
        assert!(!negotiation.asks_ready(false) && !negotiation.asks_ready_at_flush());
        negotiation.have(&mut Vec::new(), oid(1), true, false);
        assert!(!negotiation.asks_ready(true));
        assert_eq!(
            (negotiation.asks_ready(false), negotiation.asks_ready_at_flush()),
            (unknown, flush)
        );
    }
}
