use proptest::prelude::*;

use super::*;
use crate::receive::FUNNY_REFNAME;
use crate::testing::{cut, cuts, drive, hex, oid, packets, texts};

fn everything() -> ReceiveOptions {
    let mut options = ReceiveOptions::new("test");
    options.push_options = true;
    options.push_cert_nonce = Some("nonce".to_owned());
    options
}

fn handle(options: ReceiveOptions, lines: &[&str]) -> Result<Event, String> {
    let mut parser = RequestParser::new(ObjectFormat::Sha1, options, Limits::new());
    let mut last = Event::More;
    for packet in packets(lines) {
        assert_eq!(last, Event::More, "the request was complete before its last packet");
        last = parser.handle(&packet).map_err(|error| error.to_string())?;
    }
    Ok(last)
}

fn request(options: ReceiveOptions, lines: &[&str]) -> PushRequest {
    match handle(options, lines) {
        Ok(Event::Request(request)) => *request,
        other => panic!("no request: {other:?}"),
    }
}

fn update(old: u8, new: u8, name: &str) -> String {
    format!("{} {} {name}", hex(old), hex(new))
}

#[test]
fn commands_and_capabilities_are_parsed() {
    let first = update(0, 1, "refs/heads/a")
        + "\0 report-status-v2 side-band-64k quiet atomic agent=git/2 session-id=s object-format=sha1";
    let shallow = format!("shallow {}", hex(9));
    let push = request(
        everything(),
        &[&shallow, &first, &(update(1, 2, "refs/heads/b c") + "\n"), "0000"],
    );
    assert_eq!(push.shallow, [oid(9)]);
    let commands: Vec<_> = push
        .commands
        .iter()
        .map(|command| (command.old, command.new, &command.name[..]))
        .collect();
    assert_eq!(
        commands,
        [
            (oid(0), oid(1), &b"refs/heads/a"[..]),
            (oid(1), oid(2), b"refs/heads/b c")
        ]
    );
    let asked = &push.capabilities;
    assert_eq!(
        (asked.report, asked.side_band, asked.quiet, asked.atomic),
        (ReportVersion::V2, true, true, true)
    );
    assert_eq!(
        (asked.agent.as_deref(), asked.session_id.as_deref()),
        (Some(&b"git/2"[..]), Some(&b"s"[..]))
    );
    assert!(!asked.push_options && push.has_pack());
}

#[test]
fn reports_are_chosen_by_the_best_asked_for() {
    for (list, report) in [
        ("", ReportVersion::None),
        ("report-status", ReportVersion::V1),
        ("report-status report-status-v2", ReportVersion::V2),
    ] {
        let first = update(0, 1, "refs/heads/a") + "\0" + list;
        assert_eq!(request(everything(), &[&first, "0000"]).capabilities.report, report);
    }
    let bare = request(everything(), &[&update(0, 1, "refs/heads/a"), "0000"]);
    assert_eq!(bare.capabilities, PushCapabilities::default());
}

#[test]
fn no_pack_follows_deletions() {
    let deletion = update(1, 0, "refs/heads/a");
    assert!(!request(everything(), &[&deletion, "0000"]).has_pack());
    assert!(request(everything(), &[&deletion, &update(0, 1, "refs/heads/b"), "0000"]).has_pack());
}

#[test]
fn requests_without_a_command_are_the_probe() {
    assert_eq!(handle(everything(), &["0000"]), Ok(Event::Empty));
    assert_eq!(
        handle(everything(), &[&format!("shallow {}", hex(1)), "0000"]),
        Ok(Event::Empty)
    );
}

#[test]
fn push_options_follow_the_commands_if_both_sides_have_them() {
    let first = update(1, 0, "refs/heads/a") + "\0push-options";
    let push = request(everything(), &[&first, "0000", "a=b", "c\n", "0000"]);
    assert_eq!(push.push_options, ["a=b", "c"]);
    assert_eq!(request(everything(), &[&first, "0000", "0000"]).push_options, [""; 0]);
    // Not offered: git ignores the word, and what follows the flush is not options.
    assert_eq!(
        request(ReceiveOptions::new("a"), &[&first, "0000"]).push_options,
        [""; 0]
    );
    let mut options = everything();
    options.atomic = false;
    let first = update(1, 0, "refs/heads/a") + "\0atomic";
    assert!(!request(options, &[&first, "0000"]).capabilities.atomic);
}

#[test]
fn certificates_are_taken_apart() {
    let command = update(0, 1, "refs/heads/a") + "\n";
    let mut lines = vec![
        "push-cert\0report-status push-options",
        "certificate version 0.1\n",
        "pusher A <a@b> 1 +0000\n",
    ];
    lines.extend(["pushee file:///x\n", "nonce 12-ab\n", "push-option o\n", "\n", &command]);
    lines.extend([
        "-----BEGIN PGP SIGNATURE-----\n",
        "sig\n",
        "push-cert-end\n",
        "0000",
        "o",
        "0000",
    ]);
    let push = request(everything(), &lines);
    assert_eq!(
        push.commands,
        [Command {
            old: oid(0),
            new: oid(1),
            name: "refs/heads/a".into()
        }]
    );
    assert!(!push.has_inconsistent_options());
    let certificate = push.certificate.unwrap();
    assert!(
        certificate.payload.starts_with(b"certificate version 0.1\npusher")
            && certificate.payload.ends_with(b"refs/heads/a\n")
    );
    assert_eq!(certificate.signature, "-----BEGIN PGP SIGNATURE-----\nsig\n");
    assert_eq!(certificate.pusher.unwrap(), "A <a@b> 1 +0000");
    assert_eq!(
        (certificate.pushee.unwrap(), certificate.nonce.unwrap()),
        ("file:///x".into(), "12-ab".into())
    );
    let option = lines.len() - 2;
    lines[option] = "other";
    assert!(request(everything(), &lines).has_inconsistent_options());
}

#[test]
fn faults_are_named_as_git_does() {
    let good = update(0, 1, "refs/heads/a");
    let other_format = good.clone() + "\0object-format=sha256";
    for (lines, text) in [
        (
            vec!["foo"],
            "protocol error: expected old/new/ref, got 'foo'".to_owned(),
        ),
        (
            vec![&good[..81]],
            format!("protocol error: expected old/new/ref, got '{}'", &good[..81]),
        ),
        (
            vec!["shallow 12"],
            "protocol error: expected shallow sha, got '12'".to_owned(),
        ),
        (
            vec![&other_format],
            "error: unsupported object format 'sha256'".to_owned(),
        ),
        (
            vec![&good, "push-cert"],
            "protocol error: got both push certificate and unsigned commands".to_owned(),
        ),
        (
            vec!["push-cert", "x\n", "push-cert-end\n", &good],
            "protocol error: got both push certificate and unsigned commands".to_owned(),
        ),
        (
            vec!["push-cert", "x\n", "push-cert-end\n", "0000"],
            "malformed push certificate x\\n".to_owned(),
        ),
        (
            vec!["push-cert", "0001"],
            "protocol error: got an unexpected packet".to_owned(),
        ),
        (
            vec![&good, "0001"],
            "protocol error: got an unexpected packet".to_owned(),
        ),
    ] {
        assert_eq!(handle(everything(), &lines), Err(text));
    }
    let refused = handle(ReceiveOptions::new("a"), &["push-cert\0report-status"]);
    assert_eq!(refused, Err("push certificates are not accepted here".to_owned()));
    let mut parser = RequestParser::new(ObjectFormat::Sha256, everything(), Limits::new());
    let wide = format!("{0} {0} refs/heads/a\0report-status", "1".repeat(64));
    let error = parser.handle(&packets(&[&wide])[0]).unwrap_err();
    assert_eq!(error.to_string(), "error: unsupported object format 'sha1'");
}

#[test]
fn names_are_judged_by_the_rules_of_pushing() {
    let judge = |new: u8, name: &str| {
        Command {
            old: oid(1),
            new: oid(new),
            name: name.to_owned().into(),
        }
        .ref_name()
    };
    for name in ["refs/heads/a", "refs/a/b/c", "refs/heads/\u{e9}"] {
        assert_eq!(judge(1, name).unwrap().as_bytes(), name.as_bytes());
    }
    assert!(judge(0, "refs/stash").is_ok());
    for name in [
        "refs/stash",
        "HEAD",
        "refs/",
        "refs/heads/",
        "refs/heads/..",
        "refs/heads/a.lock",
        "refs/heads/a b",
        "heads/a",
        "",
    ] {
        assert_eq!(judge(1, name), Err(FUNNY_REFNAME), "{name}");
    }
    assert_eq!(judge(0, "HEAD"), Err(FUNNY_REFNAME));
}

#[test]
fn the_end_of_the_stream_is_judged() {
    let mut parser = RequestParser::new(ObjectFormat::Sha1, everything(), Limits::new());
    assert_eq!(parser.finish(), Ok(()));
    parser.handle(&packets(&[&update(0, 1, "refs/heads/a")])[0]).unwrap();
    assert_eq!(parser.finish(), Err(ProtocolError::Truncated));
    parser.handle(&Packet::Flush).unwrap();
    assert_eq!(parser.finish(), Ok(()));
    assert!(parser.handle(&Packet::Flush).is_err());
}

#[test]
fn limits_hold_at_their_values_and_not_above() {
    let mut limits = Limits::new();
    limits.commands_max = 2;
    limits.ref_name_bytes_max = "refs/heads/abc".len();
    limits.push_options_max = 1;
    limits.push_option_bytes_max = 3;
    let count = |lines: &[&str]| {
        let mut parser = RequestParser::new(ObjectFormat::Sha1, everything(), limits);
        packets(lines)
            .iter()
            .take_while(|packet| parser.handle(packet).is_ok())
            .count()
    };
    let line = |name: &str| update(0, 1, name);
    assert_eq!(
        count(&[&line("refs/heads/abc"), &line("refs/heads/b"), &line("refs/heads/c")]),
        2
    );
    assert_eq!(count(&[&line("refs/heads/abcd")]), 0);
    let asks = line("refs/heads/a") + "\0push-options";
    assert_eq!(count(&[&asks, "0000", "abc", "d"]), 3);
    assert_eq!(count(&[&asks, "0000", "abcd"]), 2);
    let count = |limits: Limits, lines: &[&str]| {
        let mut parser = RequestParser::new(ObjectFormat::Sha1, everything(), limits);
        let packets = packets(lines);
        let handled = packets.iter().map(|packet| parser.handle(packet));
        handled.take_while(Result::is_ok).count()
    };
    let mut bytes = Limits::new();
    bytes.push_options_bytes_max = 4;
    bytes.certificate_bytes_max = 5;
    assert_eq!(count(bytes, &[&asks, "0000", "ab", "cd", "e"]), 4);
    let certificate = ["push-cert\0report-status", "one\n", "t", "w"];
    assert_eq!(count(bytes, &certificate), 3);
    limits.push_bytes_max = 4 + line("refs/heads/a").len() + 4;
    let count = |lines: &[&str]| {
        let mut parser = RequestParser::new(ObjectFormat::Sha1, everything(), limits);
        packets(lines)
            .iter()
            .take_while(|packet| parser.handle(packet).is_ok())
            .count()
    };
    assert_eq!(count(&[&line("refs/heads/a"), "0000"]), 2);
    assert_eq!(count(&[&line("refs/heads/ab"), "0000"]), 1);
}

#[test]
fn refusals_take_the_band_the_client_listens_on() {
    let refuse = |line: String| {
        let mut parser = RequestParser::new(ObjectFormat::Sha1, everything(), Limits::new());
        parser.handle(&packets(&[&line])[0]).unwrap();
        let error = parser.handle(&Packet::Delim).unwrap_err();
        let mut out = Vec::new();
        parser.refuse(&mut out, &error);
        texts(&out)
    };
    let text = "protocol error: got an unexpected packet";
    assert_eq!(refuse(update(0, 1, "refs/heads/a")), [format!("ERR {text}")]);
    assert_eq!(
        refuse(update(0, 1, "refs/heads/a") + "\0side-band-64k"),
        [format!("\x03{text}")]
    );
}

fn push() -> impl Strategy<Value = PushRequest> {
    let command = (any::<u8>(), any::<u8>(), "refs/[a-z ]{1,9}").prop_map(|(old, new, name)| Command {
        old: oid(old),
        new: oid(new),
        name: name.into(),
    });
    let report = prop::sample::select(vec![ReportVersion::None, ReportVersion::V1, ReportVersion::V2]);
    let flags = (report, any::<[bool; 4]>(), proptest::option::of("[a-z/.]{1,9}"));
    let capabilities = flags.prop_map(
        |(report, [side_band, quiet, atomic, push_options], agent)| PushCapabilities {
            report,
            side_band,
            quiet,
            atomic,
            push_options,
            agent: agent.map(Bytes::from),
            session_id: None,
        },
    );
    let options = proptest::collection::vec("[a-z =]{0,9}", 0..4);
    let shallow = proptest::collection::vec(any::<u8>().prop_map(oid), 0..4);
    (proptest::collection::vec(command, 1..6), shallow, options, capabilities).prop_map(
        |(commands, shallow, options, capabilities)| {
            let push_options = options
                .into_iter()
                .map(Bytes::from)
                .filter(|_| capabilities.push_options)
                .collect();
            PushRequest {
                commands,
                shallow,
                push_options,
                certificate: None,
                capabilities,
            }
        },
    )
}

proptest! {
    #[test]
    fn what_a_client_writes_is_what_a_server_parses_however_it_is_cut(push in push(), cuts in cuts(), pack in "PACK.{0,20}") {
        let mut wire = Vec::new();
        crate::client::write_push(&mut wire, ObjectFormat::Sha1, &push);
        let sent = wire.len();
        wire.extend_from_slice(pack.as_bytes());
        let mut parser = RequestParser::new(ObjectFormat::Sha1, everything(), Limits::new());
        let mut decoder = pktline::Decoder::new();
        let mut parsed = None;
        for chunk in cut(&wire, &cuts) {
            decoder.push(chunk);
            while let (None, Some(packet)) = (&parsed, if parsed.is_none() { decoder.poll().unwrap() } else { None }) {
                if let Event::Request(request) = parser.handle(&packet).unwrap() {
                    parsed = Some(*request);
                }
            }
        }
        prop_assert_eq!(parsed, Some(push));
        prop_assert_eq!(&decoder.into_rest()[..], &wire[sent..]);
    }

    #[test]
    fn any_lines_are_parsed_or_refused(
        lines in proptest::collection::vec(
            prop_oneof![
                Just("0000".to_owned()), Just("push-cert\0".to_owned()), Just("push-cert-end\n".to_owned()),
                Just("\n".to_owned()), Just(update(0, 1, "refs/heads/a") + "\n"), ".{0,12}",
            ], 0..12),
        cuts in cuts(),
    ) {
        let mut wire = Vec::new();
        packets(&lines.iter().map(String::as_str).collect::<Vec<_>>()).iter().for_each(|packet| packet.encode(&mut wire));
        let run = |chunks: &[&[u8]]| {
            let mut parser = RequestParser::new(ObjectFormat::Sha1, everything(), Limits::new());
            drive(chunks, |packet| parser.handle(packet))
        };
        prop_assert_eq!(run(&cut(&wire, &cuts)), run(&[&wire]));
    }
}
