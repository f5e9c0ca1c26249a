use proptest::prelude::*;

use super::*;
use crate::filter::{FilterPolicy, FilterSpec};
use crate::testing::{cut, cuts, drive, hex, oid, packets, texts};
use crate::upload::Deepen;

fn everything() -> UploadOptions {
    let mut options = UploadOptions::new("test");
    options.filters = Some(FilterPolicy::default());
    options.session_id = Some("s".to_owned());
    options.ref_in_want = true;
    options.sideband_all = true;
    options.packfile_uris = true;
    options.object_info = true;
    options.bundle_uri = true;
    options.promisor_remote = Some("name=a".to_owned());
    options
}

fn handle(options: UploadOptions, lines: &[&str]) -> Result<Vec<Event>, String> {
    let mut parser = RequestParser::new(ObjectFormat::Sha1, options, Limits::new());
    let events = packets(lines)
        .iter()
        .map(|packet| parser.handle(packet))
        .collect::<Result<Vec<_>, _>>();
    let events = events.map_err(|error| error.to_string())?;
    Ok(events.into_iter().filter(|event| *event != Event::More).collect())
}

fn request(options: UploadOptions, lines: &[&str]) -> Request {
    match handle(options, lines).unwrap().pop() {
        Some(Event::Request(request)) => *request,
        other => panic!("no request: {other:?}"),
    }
}

fn fetch(options: UploadOptions, arguments: &[&str]) -> Result<Fetch, String> {
    let lines = [&["command=fetch", "object-format=sha1", "0001"], arguments, &["0000"]].concat();
    match handle(options, &lines)?.pop() {
        Some(Event::Request(request)) => match request.command {
            Command::Fetch(fetch) => Ok(*fetch),
            other => panic!("no fetch: {other:?}"),
        },
        other => panic!("no request: {other:?}"),
    }
}

#[test]
fn the_frame_is_parsed() {
    let parsed = request(
        everything(),
        &[
            "agent=git/2\n",
            "command=ls-refs\n",
            "object-format=sha1",
            "server-option=a=b",
            "server-option=",
            "session-id=x",
            "promisor-remote=a;b",
            "0001",
            "peel\n",
            "0000",
        ],
    );
    let Command::LsRefs(ls_refs) = parsed.command else {
        panic!()
    };
    assert!(ls_refs.peel && !ls_refs.symrefs);
    assert_eq!(parsed.client.agent.unwrap(), "git/2");
    assert_eq!(parsed.client.server_options, ["a=b", ""]);
    assert_eq!(parsed.client.session_id.unwrap(), "x");
    assert_eq!(parsed.client.promisor_remote.unwrap(), "a;b");
}

#[test]
fn arguments_and_the_object_format_may_be_left_out() {
    let parsed = request(UploadOptions::new("a"), &["command=ls-refs", "0000"]);
    assert!(matches!(parsed.command, Command::LsRefs(_)));
}

#[test]
fn connections_carry_any_number_of_requests_until_an_empty_one() {
    let lines = [
        "command=ls-refs",
        "0000",
        "command=fetch",
        "0001",
        "done",
        "0000",
        "0000",
    ];
    let events = handle(UploadOptions::new("a"), &lines).unwrap();
    assert!(matches!(
        &events[..],
        [Event::Request(_), Event::Request(_), Event::End]
    ));
    let mut parser = RequestParser::new(ObjectFormat::Sha1, UploadOptions::new("a"), Limits::new());
    assert_eq!(parser.finish(), Ok(()));
    parser.handle(&packets(&["command=fetch"])[0]).unwrap();
    assert_eq!(parser.finish(), Err(ProtocolError::Truncated));
    parser.handle(&Packet::Flush).unwrap();
    assert_eq!(parser.finish(), Ok(()));
}

#[test]
fn frames_are_refused_as_git_does() {
    for (lines, text) in [
        (&["foobar", "0000"][..], "unknown capability 'foobar'"),
        (&["agent=x", "0000"], "no command requested"),
        (&["agent=x", "0001"], "no command requested"),
        (&["command=foo", "0000"], "invalid command 'foo'"),
        (&["command=agent", "0000"], "invalid command 'agent'"),
        (&["command=ls-refs=x", "0000"], "invalid command 'ls-refs=x'"),
        (&["ls-refs", "0000"], "unknown capability 'ls-refs'"),
        (&["fetch=shallow", "0000"], "unknown capability 'fetch=shallow'"),
        (
            &["command=fetch", "command=ls-refs", "0000"],
            "command 'ls-refs' requested after already requesting command 'fetch'",
        ),
        (&["object-format=foo", "0000"], "unknown object format 'foo'"),
        (
            &["object-format", "0000"],
            "object-format capability requires an argument",
        ),
        (
            &["command=fetch", "object-format=sha256", "0000"],
            "mismatched object format: server sha1; client sha256",
        ),
        (
            &["command=fetch", "object-format=sha256", "0001"],
            "mismatched object format: server sha1; client sha256",
        ),
        (&["command=ls-refs", "0001", "foo", "0000"], "unexpected line: 'foo'"),
        (
            &["command=ls-refs", "0001", "peel", "0001"],
            "expected flush after ls-refs arguments",
        ),
        (
            &["command=fetch", "0001", "0001"],
            "expected flush after fetch arguments",
        ),
        (&["command=fetch", "0001", "0002"], "unexpected response end packet"),
        (&["session-id=x", "0000"], "unknown capability 'session-id=x'"),
        (&["promisor-remote=x", "0000"], "unknown capability 'promisor-remote=x'"),
        (&["command=object-info", "0000"], "invalid command 'object-info'"),
        (&["command=bundle-uri", "0000"], "invalid command 'bundle-uri'"),
    ] {
        assert_eq!(
            handle(UploadOptions::new("a"), lines),
            Err(text.to_owned()),
            "{lines:?}"
        );
    }
    for (lines, text) in [
        (
            &["command=bundle-uri", "0001", "x", "0000"][..],
            "bundle-uri: unexpected argument: 'x'",
        ),
        (
            &["command=bundle-uri", "0001", "0001"],
            "bundle-uri: expected flush after arguments",
        ),
        (
            &["command=object-info", "0001", "oid x", "0000"],
            "object-info: protocol error, expected to get oid, not 'x'",
        ),
        (
            &["command=object-info", "0001", "name", "0000"],
            "object-info: unexpected line: 'name'",
        ),
        (
            &["command=object-info", "0001", "0001"],
            "object-info: expected flush after arguments",
        ),
    ] {
        assert_eq!(handle(everything(), lines), Err(text.to_owned()), "{lines:?}");
    }
}

#[test]
fn a_sha256_repository_wants_to_be_told() {
    let mut parser = RequestParser::new(ObjectFormat::Sha256, UploadOptions::new("a"), Limits::new());
    parser.handle(&packets(&["command=fetch"])[0]).unwrap();
    let error = parser.handle(&Packet::Flush).unwrap_err();
    assert_eq!(
        error.to_string(),
        "mismatched object format: server sha256; client sha1"
    );
}

#[test]
fn other_commands_are_parsed_when_offered() {
    let parsed = request(
        everything(),
        &[
            "command=object-info",
            "0001",
            "size",
            &format!("oid {}", hex(1)),
            "0000",
        ],
    );
    assert_eq!(
        parsed.command,
        Command::ObjectInfo(ObjectInfo {
            size: true,
            oids: vec![oid(1)]
        })
    );
    assert_eq!(
        request(everything(), &["command=bundle-uri", "0000"]).command,
        Command::BundleUri
    );
}

#[test]
fn every_argument_of_fetch_is_parsed() {
    let (one, two) = (hex(1), hex(2));
    let parsed = fetch(
        everything(),
        &[
            &format!("want {one}\n"),
            &format!("want {two}"),
            &format!("want {one}"),
            &format!("have {two}"),
            &format!("have {two}"),
            "done",
            "thin-pack",
            "no-progress",
            "include-tag",
            "ofs-delta",
            &format!("shallow {one}"),
            "deepen-since 17",
            "deepen-not refs/heads/a",
            "deepen-not b",
            "filter blob:none",
            "want-ref refs/heads/x",
            "sideband-all",
            "packfile-uris http,https",
            "wait-for-done",
        ],
    )
    .unwrap();
    assert_eq!(parsed.pack.wants, [oid(1), oid(2)]);
    assert_eq!(parsed.haves, [oid(2)]);
    assert_eq!(parsed.pack.shallow, [oid(1)]);
    let not = vec![Bytes::from_static(b"refs/heads/a"), Bytes::from_static(b"b")];
    assert_eq!(parsed.pack.deepen, Deepen::Excluding { since: Some(17), not });
    assert_eq!(parsed.pack.filter, Some(FilterSpec::BlobNone));
    assert_eq!(parsed.want_refs, ["refs/heads/x"]);
    assert_eq!(parsed.packfile_uris, ["http", "https"]);
    let flags = [parsed.done, parsed.wait_for_done, parsed.sideband_all];
    let pack = [
        parsed.pack.thin_pack,
        parsed.pack.ofs_delta,
        parsed.pack.include_tag,
        parsed.pack.no_progress,
    ];
    assert_eq!((flags, pack), ([true; 3], [true; 4]));
    assert_eq!(fetch(everything(), &[]).unwrap(), Fetch::default());
}

#[test]
fn depths_are_parsed_and_combined() {
    let deepen = |arguments: &[&str]| fetch(everything(), arguments).map(|fetch| fetch.pack.deepen);
    let depth = |n| std::num::NonZeroU32::new(n).unwrap();
    assert_eq!(deepen(&["deepen 1"]), Ok(Deepen::Depth(depth(1))));
    assert_eq!(deepen(&["deepen-relative", "deepen 3"]), Ok(Deepen::Relative(depth(3))));
    assert!(deepen(&["deepen 2147483647"]).unwrap().is_infinite());
    assert_eq!(deepen(&["deepen-relative"]), Ok(Deepen::Unchanged));
    for number in ["0", "-1", "2147483648", "", "x", "1x", " 1", "99999999999999999999"] {
        assert_eq!(
            deepen(&[&format!("deepen {number}")]),
            Err(format!("Invalid deepen: deepen {number}"))
        );
    }
    for number in ["-1", "", "x", "1 ", "9223372036854775808"] {
        let text = format!("Invalid deepen-since: deepen-since {number}");
        assert_eq!(deepen(&[&format!("deepen-since {number}")]), Err(text));
    }
    let both = "git upload-pack: deepen and deepen-since (or deepen-not) cannot be used together";
    assert_eq!(deepen(&["deepen 1", "deepen-since 1"]), Err(both.to_owned()));
    assert_eq!(deepen(&["deepen 1", "deepen-not x"]), Err(both.to_owned()));
}

#[test]
fn fetch_lines_are_refused_as_git_does() {
    let short = &hex(1)[..39];
    for (line, text) in [
        ("foo".to_owned(), "unexpected line: 'foo'".to_owned()),
        ("done\n\n".to_owned(), "unexpected line: 'done\\n'".to_owned()),
        (
            "filter blob:none".to_owned(),
            "unexpected line: 'filter blob:none'".to_owned(),
        ),
        (
            "want-ref refs/heads/x".to_owned(),
            "unexpected line: 'want-ref refs/heads/x'".to_owned(),
        ),
        ("sideband-all".to_owned(), "unexpected line: 'sideband-all'".to_owned()),
        (
            "packfile-uris https".to_owned(),
            "unexpected line: 'packfile-uris https'".to_owned(),
        ),
        (
            format!("want {short}"),
            format!("git upload-pack: protocol error, expected to get oid, not 'want {short}'"),
        ),
        (
            format!("have {short}"),
            format!("git upload-pack: expected SHA1 object, got '{short}'"),
        ),
        (
            format!("shallow {short}"),
            format!("invalid shallow line: shallow {short}"),
        ),
    ] {
        assert_eq!(fetch(UploadOptions::new("a"), &[&line]), Err(text));
    }
    let twice = ["want-ref refs/heads/x", "want-ref refs/heads/x"];
    assert_eq!(
        fetch(everything(), &twice),
        Err("duplicate want-ref refs/heads/x".to_owned())
    );
    let twice = ["filter blob:none", "filter tree:0"];
    assert_eq!(
        fetch(everything(), &twice),
        Err("multiple filter-specs cannot be combined".to_owned())
    );
    let twice = ["packfile-uris http", "packfile-uris https"];
    assert_eq!(
        fetch(everything(), &twice),
        Err("multiple packfile-uris lines forbidden".to_owned())
    );
}

#[test]
fn packfile_uris_need_the_side_band() {
    assert_eq!(
        fetch(everything(), &["packfile-uris https"]).unwrap().packfile_uris,
        [""; 0]
    );
}

#[test]
fn the_step_follows_from_the_request() {
    let (want, have) = (format!("want {}", hex(1)), format!("have {}", hex(2)));
    for (arguments, step, asks_ready) in [
        (vec![], FetchStep::Nothing, false),
        (vec![&have[..]], FetchStep::Nothing, false),
        (vec!["done"], FetchStep::Nothing, false),
        (vec![&want[..]], FetchStep::Pack, false),
        (vec![&want, &have], FetchStep::Acknowledge, true),
        (vec![&want, &have, "done"], FetchStep::Pack, false),
        (vec![&want, &have, "wait-for-done"], FetchStep::Acknowledge, false),
        (vec![&want, "wait-for-done"], FetchStep::Pack, false),
        (vec![&have, "wait-for-done"], FetchStep::Acknowledge, false),
        (vec!["want-ref refs/heads/x"], FetchStep::Pack, false),
    ] {
        let fetch = fetch(everything(), &arguments).unwrap();
        assert_eq!((fetch.step(), fetch.asks_ready()), (step, asks_ready), "{arguments:?}");
    }
}

#[test]
fn limits_hold_at_their_values_and_not_above() {
    let one_too_many = |limit: fn(&mut Limits) -> &mut usize, line: fn(u8) -> String, what: &str| {
        let mut limits = Limits::new();
        *limit(&mut limits) = 3;
        let mut parser = RequestParser::new(ObjectFormat::Sha1, everything(), limits);
        packets(&["command=fetch", "0001"])
            .iter()
            .for_each(|packet| drop(parser.handle(packet).unwrap()));
        for n in 0..3 {
            parser.handle(&packets(&[&line(n)])[0]).unwrap();
        }
        let error = parser.handle(&packets(&[&line(3)])[0]).unwrap_err();
        assert_eq!(error.to_string(), format!("too many {what}: the limit is 3"));
    };
    one_too_many(|limits| &mut limits.wants_max, |n| format!("want {}", hex(n)), "wants");
    one_too_many(|limits| &mut limits.haves_max, |n| format!("have {}", hex(n)), "haves");
    one_too_many(
        |limits| &mut limits.shallows_max,
        |n| format!("shallow {}", hex(n)),
        "shallow lines",
    );
    one_too_many(
        |limits| &mut limits.want_refs_max,
        |n| format!("want-ref {n}"),
        "want-ref lines",
    );
    one_too_many(
        |limits| &mut limits.deepen_nots_max,
        |n| format!("deepen-not {n}"),
        "deepen-not lines",
    );

    let mut limits = Limits::new();
    limits.request_bytes_max = 4 + "command=fetch".len() + 4;
    let mut parser = RequestParser::new(ObjectFormat::Sha1, everything(), limits);
    for _ in 0..3 {
        // Each request of a connection has the whole limit.
        packets(&["command=fetch", "0000"])
            .iter()
            .for_each(|packet| drop(parser.handle(packet).unwrap()));
    }
    packets(&["command=fetch", "0001"])
        .iter()
        .for_each(|packet| drop(parser.handle(packet).unwrap()));
    assert!(parser.handle(&Packet::Flush).is_err());
}

#[test]
fn lines_of_every_command_are_counted() {
    let taken = |limits: Limits, first: &[&str], line: &str| {
        let mut parser = RequestParser::new(ObjectFormat::Sha1, everything(), limits);
        packets(first)
            .iter()
            .for_each(|packet| drop(parser.handle(packet).unwrap()));
        let again = packets(&[line]);
        let handled = std::iter::repeat_with(|| parser.handle(&again[0]));
        handled.take(10).take_while(Result::is_ok).count()
    };
    let mut limits = Limits::new();
    limits.object_infos_max = 3;
    limits.server_options_max = 2;
    let oid = format!("oid {}", hex(1));
    assert_eq!(taken(limits, &["command=object-info", "0001", "size"], &oid), 3);
    assert_eq!(taken(limits, &["command=fetch"], "server-option=a"), 2);
    assert_eq!(taken(limits, &["command=object-info"], "server-option=a"), 2);
}

#[test]
fn refusals_take_the_band_the_client_listens_on() {
    let refuse = |lines: &[&str]| {
        let mut parser = RequestParser::new(ObjectFormat::Sha1, everything(), Limits::new());
        packets(lines).iter().for_each(|packet| drop(parser.handle(packet)));
        let mut out = Vec::new();
        parser.refuse(&mut out, &ProtocolError::NotOurRef(oid(1)));
        texts(&out)
    };
    let text = format!("upload-pack: not our ref {}", hex(1));
    assert_eq!(refuse(&["command=fetch", "0001", "done"]), [format!("ERR {text}")]);
    let over_band_3 = [format!("\x03{text}")];
    assert_eq!(refuse(&["command=fetch", "0001", "sideband-all"]), over_band_3);
    assert_eq!(refuse(&["command=fetch", "0001", "sideband-all", "0000"]), over_band_3);
    assert_eq!(refuse(&["command=fetch", "0001", "sideband-all", "0001"]), over_band_3);
    let next = ["command=fetch", "0001", "sideband-all", "0000", "command=fetch"];
    assert_eq!(refuse(&next), [format!("ERR {text}")]);
}

fn line() -> impl Strategy<Value = String> {
    let fixed = vec![
        "0000",
        "0001",
        "command=fetch",
        "command=ls-refs",
        "object-format=sha1",
        "done",
        "thin-pack",
        "peel",
        "symrefs",
        "ref-prefix refs/",
        "deepen 3",
        "deepen-since 4",
        "filter tree:3",
        "sideband-all",
        "agent=x",
        "wait-for-done",
        "junk",
    ];
    let with_oid = prop::sample::select(vec!["want ", "have ", "shallow "]);
    prop_oneof![
        4 => prop::sample::select(fixed).prop_map(str::to_owned),
        2 => (with_oid, any::<u8>()).prop_map(|(key, n)| format!("{key}{}", hex(n))),
    ]
}

proptest! {
    #[test]
    fn the_way_input_is_cut_does_not_matter(
        mut lines in proptest::collection::vec(line(), 0..20),
        starts in any::<bool>(),
        cuts in cuts(),
        extra in proptest::collection::vec(any::<u8>(), 0..6),
    ) {
        if starts {
            lines.insert(0, "command=fetch".to_owned());
            lines.insert(1, "0001".to_owned());
        }
        let mut wire = Vec::new();
        packets(&lines.iter().map(String::as_str).collect::<Vec<_>>()).iter().for_each(|packet| packet.encode(&mut wire));
        wire.extend_from_slice(&extra);
        let run = |chunks: &[&[u8]]| {
            let mut parser = RequestParser::new(ObjectFormat::Sha1, everything(), Limits::new());
            drive(chunks, |packet| parser.handle(packet))
        };
        prop_assert_eq!(run(&cut(&wire, &cuts)), run(&[&wire]));
    }
}
