use proptest::prelude::*;

use super::*;
use crate::client::{Advertisement, AdvertisementParser, LsRefsParser, LsRefsRequest, RemoteRef, write_ls_refs};
use crate::filter::{FilterPolicy, FilterSpec};
use crate::options::UploadOptions;
use crate::pktline::Decoder;
use crate::sideband::{KEEP_ALIVE, SideBand};
use crate::testing::{cut, cuts, drive, hex, oid, packets};
use crate::upload::answer::FetchAnswer;
use crate::upload::v2::{Command, Event, RequestParser};

fn options() -> UploadOptions {
    let mut options = UploadOptions::new("server");
    options.filters = Some(FilterPolicy::default());
    options.ref_in_want = true;
    options
}

fn server() -> ServerCapabilities {
    let mut wire = Vec::new();
    crate::advertise::write_v2(&mut wire, &options(), ObjectFormat::Sha1);
    let mut parser = AdvertisementParser::new(Limits::new());
    let mut decoder = Decoder::new();
    decoder.push(&wire);
    while let Some(packet) = decoder.poll().unwrap() {
        if let Some(Advertisement::Capabilities(server)) = parser.handle(&packet).unwrap() {
            return server;
        }
    }
    panic!("no capabilities");
}

fn parsed_by_the_server(wire: &[&[u8]]) -> Command {
    let mut parser = RequestParser::new(ObjectFormat::Sha1, options(), Limits::new());
    let (events, error) = drive(wire, |packet| parser.handle(packet));
    assert_eq!(error, None::<ProtocolError>);
    match events.into_iter().last() {
        Some(Event::Request(request)) => {
            assert_eq!(request.client.agent.unwrap(), "client/1");
            request.command
        }
        other => panic!("no request: {other:?}"),
    }
}

fn events(wire: &[&[u8]]) -> (Vec<FetchEvent>, Option<String>) {
    let mut parser = FetchAnswerParser::new(ObjectFormat::Sha1, Limits::new());
    let (events, error) = drive(wire, |packet| parser.handle(packet));
    let events = events.into_iter().filter(|event| *event != FetchEvent::More).collect();
    (events, error.map(|error: ProtocolError| error.to_string()))
}

#[test]
fn ls_refs_is_asked_and_answered() {
    let request = LsRefsRequest {
        peel: true,
        symrefs: true,
        unborn: true,
        prefixes: vec!["refs/tags/".into()],
    };
    let mut wire = Vec::new();
    write_ls_refs(&mut wire, &server(), "client/1", &request);
    let Command::LsRefs(asked) = parsed_by_the_server(&[&wire]) else {
        panic!("no ls-refs")
    };
    assert!(asked.peel && asked.symrefs && asked.unborn);
    assert_eq!(asked.prefixes(), ["refs/tags/"]);

    let mut parser = LsRefsParser::new(ObjectFormat::Sha1, Limits::new());
    let lines = [
        "unborn HEAD symref-target:refs/heads/main\n".to_owned(),
        format!("{} refs/tags/v1 peeled:{} later:thing", hex(1), hex(2)),
    ];
    packets(&[&lines[0], &lines[1]])
        .iter()
        .for_each(|packet| assert_eq!(parser.handle(packet), Ok(None)));
    let plain = |name: &'static str, oid| RemoteRef {
        name: name.into(),
        oid,
        peeled: None,
        symref_target: None,
    };
    let head = RemoteRef {
        symref_target: Some("refs/heads/main".into()),
        ..plain("HEAD", None)
    };
    let tag = RemoteRef {
        peeled: Some(oid(2)),
        ..plain("refs/tags/v1", Some(oid(1)))
    };
    assert_eq!(parser.handle(&Packet::Flush), Ok(Some(vec![head, tag])));
    for line in [
        "x refs/heads/a",
        &hex(1),
        &format!("{} ", hex(1)),
        &format!("{} a peeled:x", hex(1)),
        "",
    ] {
        let error = parser.handle(&packets(&[line])[0]).unwrap_err();
        assert_eq!(error.to_string(), format!("invalid ls-refs response: '{line}'"));
    }
}

#[test]
fn sections_are_read_in_the_order_a_server_writes_them() {
    let request = Fetch {
        haves: vec![oid(1)],
        pack: PackRequest {
            wants: vec![oid(9)],
            ..PackRequest::default()
        },
        ..Fetch::default()
    };
    let answer = FetchAnswer::new(&request);
    let mut wire = Vec::new();
    assert!(answer.acknowledgments(&mut wire, &request, &[oid(1)], true));
    answer.shallow_info(&mut wire, &[oid(2)], &[oid(3)]);
    answer.wanted_refs(&mut wire, [(&b"refs/heads/a"[..], oid(4))]);
    answer.packfile_uris(&mut wire, [("abc", "https://x/y")]);
    answer.packfile(&mut wire);
    SideBand::Large.text(&mut wire, "Counting\r");
    wire.extend_from_slice(KEEP_ALIVE);
    SideBand::Large.data(&mut wire, b"PACKdata");
    wire.extend_from_slice(FLUSH);
    let expected = vec![
        FetchEvent::Common(oid(1)),
        FetchEvent::Ready,
        FetchEvent::Shallow(oid(2)),
        FetchEvent::Unshallow(oid(3)),
        FetchEvent::WantedRef("refs/heads/a".into(), oid(4)),
        FetchEvent::PackfileUri("abc".into(), "https://x/y".into()),
        FetchEvent::Progress("Counting\r".into()),
        FetchEvent::Pack("PACKdata".into()),
        FetchEvent::End { pack: true },
    ];
    assert_eq!(events(&[&wire]), (expected.clone(), None));
    let bytewise: Vec<&[u8]> = wire.chunks(1).collect();
    assert_eq!(events(&bytewise), (expected, None));
}

#[test]
fn rounds_without_a_pack_end() {
    let request = Fetch {
        haves: vec![oid(1)],
        pack: PackRequest {
            wants: vec![oid(9)],
            ..PackRequest::default()
        },
        ..Fetch::default()
    };
    let answer = FetchAnswer::new(&request);
    for (common, ready, event) in [
        (&[][..], true, None),
        (&[oid(1)], false, Some(FetchEvent::Common(oid(1)))),
    ] {
        let mut wire = Vec::new();
        assert!(!answer.acknowledgments(&mut wire, &request, common, ready));
        let expected: Vec<_> = event.into_iter().chain([FetchEvent::End { pack: false }]).collect();
        assert_eq!(events(&[&wire]), (expected, None));
    }
    let waiting = Fetch {
        wait_for_done: true,
        ..request
    };
    let mut wire = Vec::new();
    assert!(!answer.acknowledgments(&mut wire, &waiting, &[oid(1)], true));
    assert!(wire.ends_with(FLUSH));
}

#[test]
fn hostile_answers_are_refused() {
    for (lines, text) in [
        (&["foo"][..], "expected 'packfile', received 'foo'"),
        (
            &["ERR upload-pack: not our ref x"],
            "remote error: upload-pack: not our ref x",
        ),
        (
            &["packfile", "\x03no\x1b[0m space\n"],
            "remote error: no\\u{1b}[0m space",
        ),
        (&["packfile", "\x04x"], "protocol error: bad band #4"),
        (&["packfile", "ERR x"], "remote error: x"),
        (
            &["acknowledgments", "ACK 12"],
            "unexpected acknowledgment line: 'ACK 12'",
        ),
        (&["shallow-info", "x"], "expected shallow/unshallow, got 'x'"),
        (&["wanted-refs", "x"], "expected wanted-ref, got 'x'"),
        (&["packfile-uris", "x"], "expected '<hash> <uri>', got: 'x'"),
        (&["0000"], "unexpected packet in a fetch answer"),
        (&["shallow-info", "0000"], "unexpected packet in a fetch answer"),
        (&["packfile", "0001"], "unexpected packet in a fetch answer"),
    ] {
        let mut parser = FetchAnswerParser::new(ObjectFormat::Sha1, Limits::new());
        let error = packets(lines).iter().find_map(|packet| parser.handle(packet).err());
        assert_eq!(error.unwrap().to_string(), text, "{lines:?}");
    }
}

#[test]
fn a_side_band_can_carry_the_whole_answer() {
    let answer = FetchAnswer { sideband_all: true };
    let request = Fetch {
        sideband_all: true,
        ..Fetch::default()
    };
    let mut wire = Vec::new();
    answer.acknowledgments(&mut wire, &request, &[], false);
    answer.packfile(&mut wire);
    assert_eq!(
        crate::testing::texts(&wire),
        ["\x01acknowledgments\n", "\x01NAK\n", "0000", "\x01packfile\n"]
    );
}

fn request() -> impl Strategy<Value = Fetch> {
    let oids =
        || prop::collection::btree_set(any::<u8>(), 0..5).prop_map(|set| set.into_iter().map(oid).collect::<Vec<_>>());
    let depth = || (1..=crate::upload::DEPTH_INFINITE).prop_map(|depth| std::num::NonZeroU32::new(depth).unwrap());
    let deepen = prop_oneof![
        Just(Deepen::Unchanged),
        depth().prop_map(Deepen::Depth),
        depth().prop_map(Deepen::Relative),
        (0..i64::MAX).prop_map(|since| Deepen::Excluding {
            since: Some(since),
            not: vec![]
        }),
        Just(Deepen::Excluding {
            since: None,
            not: vec!["refs/heads/a".into(), "b".into()]
        }),
    ];
    let filter = prop_oneof![
        Just(None),
        Just(Some(FilterSpec::BlobNone)),
        any::<u64>().prop_map(|n| Some(FilterSpec::TreeDepth(n)))
    ];
    let names = prop::collection::btree_set("refs/[a-z]{1,4}", 0..3);
    (oids(), oids(), oids(), deepen, filter, names, any::<[bool; 6]>()).prop_map(
        |(
            wants,
            shallow,
            haves,
            deepen,
            filter,
            names,
            [thin_pack, ofs_delta, include_tag, no_progress, done, wait_for_done],
        )| Fetch {
            pack: PackRequest {
                wants,
                shallow,
                deepen,
                filter,
                thin_pack,
                ofs_delta,
                include_tag,
                no_progress,
            },
            want_refs: names.into_iter().map(Bytes::from).collect(),
            haves,
            done,
            wait_for_done,
            ..Fetch::default()
        },
    )
}

proptest! {
    #[test]
    fn what_a_client_asks_is_what_a_server_parses_however_it_is_cut(request in request(), cuts in cuts()) {
        let mut wire = Vec::new();
        write_fetch(&mut wire, &server(), "client/1", &request);
        prop_assert_eq!(parsed_by_the_server(&cut(&wire, &cuts)), Command::Fetch(Box::new(request)));
    }

    #[test]
    fn the_way_an_answer_is_cut_does_not_matter(
        lines in prop::collection::vec(prop::sample::select(vec![
            "acknowledgments", "NAK", "ready", "shallow-info", "packfile", "0000", "0001", "\x01PACK", "\x02text", "\x03end", "x",
        ]), 0..12),
        cuts in cuts(),
    ) {
        let mut wire = Vec::new();
        packets(&lines).iter().for_each(|packet| packet.encode(&mut wire));
        prop_assert_eq!(events(&cut(&wire, &cuts)), events(&[&wire]));
    }
}
