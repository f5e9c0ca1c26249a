use proptest::prelude::*;

use super::*;
use crate::filter::{FilterPolicy, FilterSpec};
use crate::testing::{cut, cuts, drive, hex, oid, packets};
use crate::upload::Deepen;

fn parser(stateless: bool) -> RequestParser {
    let mut options = UploadOptions::new("test");
    options.filters = Some(FilterPolicy::default());
    RequestParser::new(ObjectFormat::Sha1, options, Limits::new(), stateless)
}

fn handle(parser: &mut RequestParser, lines: &[&str]) -> Result<Vec<Event>, String> {
    let events = packets(lines)
        .iter()
        .map(|packet| parser.handle(packet))
        .collect::<Result<Vec<_>, _>>();
    let events = events.map_err(|error| error.to_string())?;
    Ok(events.into_iter().filter(|event| *event != Event::More).collect())
}

fn wants(lines: &[&str]) -> Result<Request, String> {
    match handle(&mut parser(true), &[lines, &["0000"]].concat())?.pop() {
        Some(Event::Wants(request)) => Ok(*request),
        other => panic!("no wants: {other:?}"),
    }
}

#[test]
fn wants_carry_capabilities_and_the_boundary() {
    let (one, two) = (hex(1), hex(2));
    let request = wants(&[
        &format!(
            "want {one} multi_ack_detailed no-done side-band-64k thin-pack ofs-delta no-progress include-tag \
             deepen-relative filter agent=git/2 session-id=s object-format=sha1\n"
        ),
        &format!("want {two}\n"),
        &format!("want {one}\n"),
        &format!("shallow {two}\n"),
        "deepen 3\n",
        "filter blob:none\n",
    ])
    .unwrap();
    assert_eq!(request.pack.wants, [oid(1), oid(2)]);
    assert_eq!(request.pack.shallow, [oid(2)]);
    assert_eq!(
        request.pack.deepen,
        Deepen::Relative(std::num::NonZeroU32::new(3).unwrap())
    );
    assert_eq!(request.pack.filter, Some(FilterSpec::BlobNone));
    let pack = &request.pack;
    assert_eq!(
        [
            pack.thin_pack,
            pack.ofs_delta,
            pack.no_progress,
            pack.include_tag,
            request.no_done
        ],
        [true; 5]
    );
    assert_eq!(
        (request.acks, request.side_band),
        (AckMode::Detailed, Some(SideBand::Large))
    );
    assert_eq!(
        (request.agent.as_deref(), request.session_id.as_deref()),
        (Some(&b"git/2"[..]), Some(&b"s"[..]))
    );
    assert!(request.asks_to_deepen());
}

#[test]
fn capabilities_match_whole_words() {
    let one = hex(1);
    let request = wants(&[&format!("want {one} multi_ack side-band")]).unwrap();
    assert_eq!(
        (request.acks, request.side_band),
        (AckMode::Multi, Some(SideBand::Small))
    );
    let request = wants(&[&format!("want {one}")]).unwrap();
    assert_eq!(
        (request.acks, request.side_band, request.no_done),
        (AckMode::Single, None, false)
    );
    assert!(!request.asks_to_deepen());
}

#[test]
fn rounds_of_haves_and_done_are_events() {
    let mut parser = parser(false);
    let have = format!("have {}\n", hex(2));
    let events = handle(
        &mut parser,
        &[&format!("want {}", hex(1)), "0000", &have, "0000", &have, "done\n"],
    )
    .unwrap();
    assert!(matches!(events[0], Event::Wants(_)));
    assert_eq!(
        events[1..],
        [Event::Have(oid(2)), Event::Flush, Event::Have(oid(2)), Event::Done]
    );
    assert_eq!(parser.finish(), Ok(()));
    assert!(handle(&mut parser, &["0000"]).is_err());
}

#[test]
fn a_client_may_want_nothing() {
    let mut parser = parser(false);
    assert_eq!(parser.finish(), Ok(()));
    assert_eq!(handle(&mut parser, &["0000"]), Ok(vec![Event::Nothing]));
    assert_eq!(parser.finish(), Ok(()));
}

#[test]
fn only_stateless_clients_may_leave_after_their_wants() {
    for stateless in [true, false] {
        let mut parser = parser(stateless);
        handle(&mut parser, &[&format!("want {}", hex(1))]).unwrap();
        assert_eq!(parser.finish(), Err(ProtocolError::Truncated));
        handle(&mut parser, &["0000"]).unwrap();
        assert_eq!(parser.finish().is_ok(), stateless);
        handle(&mut parser, &["0000"]).unwrap();
        assert_eq!(parser.finish(), Err(ProtocolError::Truncated));
    }
}

#[test]
fn faults_are_named_as_git_does() {
    let one = hex(1);
    let want = format!("want {one}");
    for (lines, text) in [
        (
            vec!["have x"],
            "git upload-pack: protocol error, expected to get object ID, not 'have x'".to_owned(),
        ),
        (
            vec!["want 12"],
            "git upload-pack: protocol error, expected to get object ID, not 'want 12'".to_owned(),
        ),
        (vec!["0001"], "git upload-pack: got an unexpected packet".to_owned()),
        (vec![&want, "deepen 0"], "Invalid deepen: deepen 0".to_owned()),
        (
            vec![&want, "filter blob:none"],
            "git upload-pack: filtering capability not negotiated".to_owned(),
        ),
        (
            vec![&want, "0000", "xxx"],
            "git upload-pack: expected SHA1 list, got 'xxx'".to_owned(),
        ),
        (
            vec![&want, "0000", "have 12"],
            "git upload-pack: expected SHA1 object, got '12'".to_owned(),
        ),
        (
            vec![&want, "0000", &want],
            format!("git upload-pack: expected SHA1 list, got 'want {one}'"),
        ),
    ] {
        assert_eq!(handle(&mut parser(true), &lines), Err(text));
    }
    let glued = format!("want {one}multi_ack");
    assert!(wants(&[&glued]).is_err());
    let other_format = wants(&[&format!("want {one} object-format=sha256")]).unwrap_err();
    assert_eq!(other_format, "mismatched object format: server sha1; client sha256");
}

#[test]
fn filters_are_refused_where_none_is_offered() {
    let mut parser = RequestParser::new(ObjectFormat::Sha1, UploadOptions::new("a"), Limits::new(), true);
    let lines = [&format!("want {} filter", hex(1))[..], "filter blob:none"];
    let error = handle(&mut parser, &lines).unwrap_err();
    assert_eq!(error, "git upload-pack: filtering capability not negotiated");
}

#[test]
fn wants_and_boundaries_are_bounded() {
    let mut limits = Limits::new();
    limits.wants_max = 3;
    limits.shallows_max = 2;
    limits.deepen_nots_max = 1;
    let taken = |line: fn(u8) -> String| {
        let mut parser = RequestParser::new(ObjectFormat::Sha1, UploadOptions::new("a"), limits, false);
        handle(&mut parser, &[&format!("want {}", hex(1))]).unwrap();
        let lines = (2..10).map(|n| parser.handle(&packets(&[&line(n)])[0]));
        lines.take_while(Result::is_ok).count()
    };
    assert_eq!(taken(|n| format!("want {}", hex(n))), 2);
    assert_eq!(taken(|_| format!("want {}", hex(1))), 8);
    assert_eq!(taken(|n| format!("shallow {}", hex(n))), 2);
    assert_eq!(taken(|n| format!("deepen-not {n}")), 1);
}

#[test]
fn haves_are_bounded_only_where_they_are_one_request() {
    let mut limits = Limits::new();
    limits.haves_max = 2;
    limits.request_bytes_max = 300;
    for (stateless, taken) in [(true, 2), (false, 100)] {
        let mut parser = RequestParser::new(ObjectFormat::Sha1, UploadOptions::new("a"), limits, stateless);
        handle(&mut parser, &[&format!("want {}", hex(1)), "0000"]).unwrap();
        let have = packets(&[&format!("have {}", hex(2))]);
        let count = std::iter::repeat_with(|| parser.handle(&have[0]))
            .take(100)
            .take_while(Result::is_ok)
            .count();
        assert_eq!(count, taken);
    }
}

proptest! {
    #[test]
    fn the_way_input_is_cut_does_not_matter(
        haves in proptest::collection::vec(prop_oneof![any::<u8>().prop_map(|n| format!("have {}", hex(n))),
            Just("0000".to_owned()), Just("done".to_owned())], 0..20),
        cuts in cuts(),
    ) {
        let mut wire = Vec::new();
        let mut lines = vec![format!("want {} side-band-64k", hex(1)), "deepen 3".to_owned(), "0000".to_owned()];
        lines.extend(haves);
        packets(&lines.iter().map(String::as_str).collect::<Vec<_>>()).iter().for_each(|packet| packet.encode(&mut wire));
        let run = |chunks: &[&[u8]]| {
            let mut parser = parser(true);
            drive(chunks, |packet| parser.handle(packet))
        };
        prop_assert_eq!(run(&cut(&wire, &cuts)), run(&[&wire]));
    }
}
