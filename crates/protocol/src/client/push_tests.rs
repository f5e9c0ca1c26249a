use proptest::prelude::*;

use super::*;
use crate::testing::{cut, cuts, drive, oid, packets};

fn read(wire: &[&[u8]], side_band: bool) -> (Vec<PushEvent>, Option<String>) {
    let mut parser = PushAnswerParser::new(ObjectFormat::Sha1, Limits::new(), side_band);
    let (events, error) = drive(wire, |packet| parser.handle(packet));
    let events = events
        .into_iter()
        .flatten()
        .filter(|event| *event != PushEvent::More)
        .collect();
    (events, error.map(|error: ProtocolError| error.to_string()))
}

#[test]
fn texts_and_fatal_messages_are_told_apart() {
    let mut wire = Vec::new();
    crate::sideband::SideBand::Large.text(&mut wire, "hello\n");
    wire.extend_from_slice(crate::sideband::KEEP_ALIVE);
    crate::sideband::SideBand::Large.fatal(&mut wire, "out of disk\n");
    let (events, error) = read(&[&wire], true);
    assert_eq!(events, [PushEvent::Progress("hello\n".into())]);
    assert_eq!(error.unwrap(), "remote error: out of disk");
}

#[test]
fn bad_reports_are_refused() {
    for (lines, text) in [
        (
            &["ok refs/heads/a"][..],
            "unable to parse remote unpack status: 'ok refs/heads/a'",
        ),
        (
            &["unpack ok", "huh refs/heads/a"],
            "invalid ref status from remote: 'huh refs/heads/a'",
        ),
        (&["unpack ok", "option refname x"], "invalid option: 'option refname x'"),
        (
            &["unpack ok", "ng a b", "option refname x"],
            "invalid option: 'option refname x'",
        ),
        (
            &["unpack ok", "ok a", "option old-oid x"],
            "invalid option: 'option old-oid x'",
        ),
        (&["0000"], "unexpected packet in a report"),
        (&["0001"], "unexpected packet in a report"),
        (&["ERR no"], "remote error: no"),
    ] {
        let mut parser = PushAnswerParser::new(ObjectFormat::Sha1, Limits::new(), false);
        let error = packets(lines).iter().find_map(|packet| parser.handle(packet).err());
        assert_eq!(error.unwrap().to_string(), text, "{lines:?}");
    }
    let mut parser = PushAnswerParser::new(ObjectFormat::Sha1, Limits::new(), true);
    let error = parser.handle(&packets(&["ERR x"])[0]).unwrap_err();
    assert_eq!(error.to_string(), "protocol error: bad band #69");
}

#[test]
fn a_reason_may_be_missing() {
    let mut parser = PushAnswerParser::new(ObjectFormat::Sha1, Limits::new(), false);
    let mut events = Vec::new();
    packets(&["unpack index-pack failed", "ng refs/heads/a", "0000"])
        .iter()
        .for_each(|packet| events.extend(parser.handle(packet).unwrap()));
    let refs = vec![RefReport {
        name: "refs/heads/a".into(),
        status: RefStatus::Ng("failed".to_owned()),
    }];
    assert_eq!(
        events.last(),
        Some(&PushEvent::Report(Report {
            unpack: Err("index-pack failed".to_owned()),
            refs
        }))
    );
}

fn report() -> impl Strategy<Value = Report> {
    let told = (any::<u8>(), any::<u8>(), any::<bool>()).prop_map(|(old, new, forced)| RefOutcome {
        name: Some("refs/heads/x".into()),
        old: Some(oid(old)),
        new: Some(oid(new)),
        forced,
    });
    let status = prop_oneof![
        proptest::collection::vec(told, 0..3).prop_map(RefStatus::Ok),
        "[a-z]{1,5}( [a-z]{1,5}){0,2}".prop_map(RefStatus::Ng),
    ];
    let unpack = prop_oneof![Just(Ok(())), Just(Err("index-pack failed".to_owned()))];
    (unpack, proptest::collection::vec(status, 0..6)).prop_map(|(unpack, statuses)| {
        let name = |index: usize| Bytes::from(format!("refs/heads/{index}"));
        let refs = statuses.into_iter().enumerate().map(|(index, status)| RefReport {
            name: name(index),
            status,
        });
        Report {
            unpack,
            refs: refs.collect(),
        }
    })
}

proptest! {
    #[test]
    fn what_a_server_reports_is_what_a_client_reads_however_it_is_cut(
        report in report(), side_band in any::<bool>(), cuts in cuts(),
    ) {
        let asked = PushCapabilities { report: ReportVersion::V2, side_band, ..PushCapabilities::default() };
        let mut wire = Vec::new();
        report.write(&mut wire, &asked);
        let mut expected = vec![PushEvent::Report(report)];
        expected.extend(side_band.then_some(PushEvent::End));
        prop_assert_eq!(read(&cut(&wire, &cuts), side_band), (expected, None));
    }
}
