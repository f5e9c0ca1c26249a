//! Fetch sections and push reports, byte for byte as stock git writes them; and the client's half against stock git.

#![allow(clippy::unwrap_used)] // A test asserts by it, in its helpers too.

mod support;

use cuesta_git::{ObjectFormat, ObjectId};
use cuesta_protocol::client::{
    Advertisement, AdvertisementParser, FetchAnswerParser, FetchEvent, LsRefsParser, LsRefsRequest, PushAnswerParser,
    PushEvent, ServerCapabilities, write_fetch, write_ls_refs, write_push,
};
use cuesta_protocol::filter::FilterSpec;
use cuesta_protocol::pktline::{Decoder, Packet};
use cuesta_protocol::receive::{Command, PushCapabilities, PushRequest, RefReport, RefStatus, Report, ReportVersion};
use cuesta_protocol::upload::answer::{FetchAnswer, write_bundle_uri, write_v0_shallow};
use cuesta_protocol::upload::v2::Fetch;
use cuesta_protocol::upload::{Deepen, PackRequest};
use cuesta_protocol::{Limits, ProtocolError};
use support::Repository;

fn read<T>(wire: &[u8], mut handle: impl FnMut(&Packet) -> Result<T, ProtocolError>) -> Result<Vec<T>, ProtocolError> {
    let mut decoder = Decoder::new();
    decoder.push(wire);
    let mut events = Vec::new();
    while let Some(packet) = decoder.poll()? {
        events.push(handle(&packet)?);
    }
    decoder.finish().map(|()| events)
}

fn capabilities(repository: &Repository) -> ServerCapabilities {
    let (wire, _) = repository.run(
        &["upload-pack", "--http-backend-info-refs", "."],
        b"",
        Some("version=2"),
    );
    let mut parser = AdvertisementParser::new(Limits::new());
    match read(&wire, |packet| parser.handle(packet)).unwrap().pop() {
        Some(Some(Advertisement::Capabilities(server))) => server,
        other => panic!("no capabilities: {other:?}"),
    }
}

fn stock(repository: &Repository, wire: &[u8]) -> Vec<u8> {
    repository
        .run(&["upload-pack", "--stateless-rpc", "."], wire, Some("version=2"))
        .0
}

fn wanted(repository: &Repository, revisions: &[&str]) -> Fetch {
    let wants = revisions.iter().map(|revision| repository.oid(revision)).collect();
    Fetch {
        pack: PackRequest {
            wants,
            no_progress: true,
            ..PackRequest::default()
        },
        done: true,
        ..Fetch::default()
    }
}

fn answer(repository: &Repository, request: &Fetch) -> Vec<u8> {
    let mut wire = Vec::new();
    write_fetch(&mut wire, &capabilities(repository), "client/1", request);
    stock(repository, &wire)
}

fn depth(depth: u32) -> Deepen {
    Deepen::Depth(std::num::NonZeroU32::new(depth).unwrap())
}

#[track_caller]
fn assert_starts(stock: &[u8], ours: &[u8]) {
    let start = stock.get(..ours.len()).unwrap_or(stock);
    assert_eq!(ours.escape_ascii().to_string(), start.escape_ascii().to_string());
}

#[test]
fn the_boundary_of_a_shallow_fetch_is_told_as_git_does() {
    let repository = Repository::full(ObjectFormat::Sha1);
    let (new, old) = (repository.oid("main~2"), repository.oid("main~1"));
    let mut request = wanted(&repository, &["main"]);
    request.pack.deepen = depth(3);
    request.pack.shallow = vec![old];
    let mut ours = Vec::new();
    FetchAnswer::new(&request).shallow_info(&mut ours, &[new], &[old]);
    FetchAnswer::new(&request).packfile(&mut ours);
    assert_starts(&answer(&repository, &request), &ours);

    let mut wire = Vec::new();
    let mut line = |text: String| cuesta_protocol::pktline::encode(&mut wire, &[text.as_bytes()]);
    line(format!("want {} shallow\n", repository.oid("main")));
    line(format!("shallow {old}\n"));
    line("deepen 3\n".to_owned());
    wire.extend_from_slice(b"0000");
    let mut ours = Vec::new();
    write_v0_shallow(&mut ours, &[new], &[old]);
    let stock = repository.run(&["upload-pack", "--stateless-rpc", "."], &wire, None).0;
    assert_eq!(ours.escape_ascii().to_string(), stock.escape_ascii().to_string());
}

#[test]
fn wanted_refs_and_the_side_band_are_written_as_git_does() {
    let repository = Repository::full(ObjectFormat::Sha1);
    repository.git(&["config", "uploadpack.allowRefInWant", "true"]);
    repository.git(&["config", "uploadpack.allowSidebandAll", "true"]);
    for sideband_all in [false, true] {
        let mut request = wanted(&repository, &[]);
        request.want_refs = vec!["refs/heads/main".into()];
        request.sideband_all = sideband_all;
        let mut ours = Vec::new();
        let answer_writer = FetchAnswer::new(&request);
        answer_writer.wanted_refs(&mut ours, [(&b"refs/heads/main"[..], repository.oid("main"))]);
        answer_writer.packfile(&mut ours);
        assert_starts(&answer(&repository, &request), &ours);
        request.want_refs = vec!["refs/heads/none".into()];
        let mut ours = Vec::new();
        FetchAnswer::new(&request).error(&mut ours, &Fetch::unknown_ref(b"refs/heads/none").to_string());
        let stock = answer(&repository, &request);
        assert_eq!(ours.escape_ascii().to_string(), stock.escape_ascii().to_string());
    }
}

#[test]
fn bundles_are_named_as_git_does() {
    let repository = Repository::full(ObjectFormat::Sha1);
    let pairs = [
        ("bundle.version", "1"),
        ("bundle.mode", "all"),
        ("bundle.a.uri", "https://x/y.bundle"),
    ];
    pairs
        .iter()
        .for_each(|(key, value)| drop(repository.git(&["config", key, value])));
    repository.git(&["config", "uploadpack.advertiseBundleURIs", "true"]);
    let stock = stock(&repository, b"0016command=bundle-uri0000");
    let mut values: std::collections::BTreeMap<String, String> = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    // Git tells them in the order of its settings, ours in that of their names.
    let sorted = |wire: &[u8]| {
        let mut lines = read(wire, |packet| Ok(packet.clone())).unwrap();
        lines.sort_by_key(|packet| format!("{packet:?}"));
        lines
    };
    let mut ours = Vec::new();
    write_bundle_uri(&mut ours, &values);
    assert_eq!(sorted(&ours), sorted(&stock));
    values.insert(
        "bundle.b.uri".to_owned(),
        "https://x/\nbundle.c.uri=file:///etc".to_owned(),
    );
    values.insert("bundle.d uri".to_owned(), "https://x/".to_owned());
    let mut again = Vec::new();
    write_bundle_uri(&mut again, &values);
    assert_eq!(again, ours);
}

#[test]
fn a_client_reads_refs_and_packs_from_git() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let repository = Repository::full(format);
        repository.git(&["config", "uploadpack.allowFilter", "true"]);
        let server = capabilities(&repository);
        assert_eq!(server.object_format(), Ok(format));
        let mut wire = Vec::new();
        let request = LsRefsRequest {
            peel: true,
            symrefs: true,
            unborn: true,
            prefixes: vec![],
        };
        write_ls_refs(&mut wire, &server, "client/1", &request);
        let mut parser = LsRefsParser::new(format, Limits::new());
        let answered = stock(&repository, &wire);
        let refs = read(&answered, |packet| parser.handle(packet))
            .unwrap()
            .pop()
            .unwrap()
            .unwrap();
        let shown = refs
            .iter()
            .map(|shown| (shown.name.to_vec(), shown.oid.unwrap(), shown.peeled));
        let expected = repository.refs();
        let expected = expected
            .iter()
            .map(|shown| (shown.name.clone().into_bytes(), shown.oid, shown.peeled));
        assert_eq!(shown.collect::<Vec<_>>(), expected.collect::<Vec<_>>());

        let mut request = wanted(&repository, &["main", "side/topic"]);
        request.pack.filter = Some(FilterSpec::BlobNone);
        request.pack.no_progress = false;
        let mut parser = FetchAnswerParser::new(format, Limits::new());
        let events = read(&answer(&repository, &request), |packet| parser.handle(packet)).unwrap();
        assert_eq!(events.last(), Some(&FetchEvent::End { pack: true }));
        assert!(events.iter().any(|event| matches!(event, FetchEvent::Progress(_))));
        let pack: Vec<u8> = events.iter().filter_map(pack_bytes).flatten().collect();
        let objects = u32::from_be_bytes(pack[8..12].try_into().unwrap());
        assert_eq!((&pack[..4], objects), (&b"PACK"[..], 24));
    }
}

fn pack_bytes(event: &FetchEvent) -> Option<Vec<u8>> {
    match event {
        FetchEvent::Pack(bytes) => Some(bytes.to_vec()),
        _ => None,
    }
}

#[test]
fn a_client_reads_a_v0_advertisement_from_git() {
    let repository = Repository::full(ObjectFormat::Sha256);
    let (wire, _) = repository.run(&["receive-pack", "--http-backend-info-refs", "."], b"", None);
    let mut parser = AdvertisementParser::new(Limits::new());
    let Some(Some(Advertisement::Refs(shown))) = read(&wire, |packet| parser.handle(packet)).unwrap().pop() else {
        panic!("no refs");
    };
    assert_eq!(shown.format, ObjectFormat::Sha256);
    assert!(shown.capabilities().has("report-status-v2") && shown.capabilities().has("atomic"));
    assert_eq!(shown.refs.len(), repository.refs().len() - 1);
}

/// A push of these commands, with a pack of all objects.
fn push(repository: &Repository, commands: Vec<Command>, capabilities: PushCapabilities) -> Vec<u8> {
    let request = PushRequest {
        commands,
        shallow: vec![],
        push_options: vec![],
        certificate: None,
        capabilities,
    };
    let mut wire = Vec::new();
    write_push(&mut wire, repository.format, &request);
    if request.has_pack() {
        let input = format!("{}\n", repository.oid("main"));
        wire.extend(repository.git_with(&["pack-objects", "--revs", "--stdout", "-q"], input.as_bytes()));
    }
    repository.run(&["receive-pack", "--stateless-rpc", "."], &wire, None).0
}

#[test]
fn reports_are_written_as_git_does_and_read_from_it() {
    for (report, side_band) in [
        (ReportVersion::V1, false),
        (ReportVersion::V1, true),
        (ReportVersion::V2, true),
        (ReportVersion::None, true),
    ] {
        let repository = Repository::full(ObjectFormat::Sha1);
        let (null, main) = (ObjectId::null(repository.format), repository.oid("main"));
        let commands = vec![
            Command {
                old: null,
                new: main,
                name: "refs/heads/new".into(),
            },
            Command {
                old: repository.oid("refs/tags/light"),
                new: null,
                name: "refs/tags/light".into(),
            },
            Command {
                old: null,
                new: main,
                name: "refs/heads/x..y".into(),
            },
        ];
        let asked = PushCapabilities {
            report,
            side_band,
            quiet: true,
            ..PushCapabilities::default()
        };
        let stock = push(&repository, commands, asked.clone());
        let ok = |name: &'static str| RefReport {
            name: name.into(),
            status: RefStatus::Ok(vec![]),
        };
        let why = RefStatus::Ng(cuesta_protocol::receive::FUNNY_REFNAME.to_owned());
        let bad = RefReport {
            name: "refs/heads/x..y".into(),
            status: why,
        };
        let expected = Report {
            unpack: Ok(()),
            refs: vec![ok("refs/heads/new"), ok("refs/tags/light"), bad],
        };
        let mut ours = Vec::new();
        expected.write(&mut ours, &asked);
        let told = without_text(&stock, side_band);
        assert_eq!(
            ours.escape_ascii().to_string(),
            told.escape_ascii().to_string(),
            "{report:?}"
        );
        if report != ReportVersion::None {
            let mut parser = PushAnswerParser::new(repository.format, Limits::new(), side_band);
            let events = read(&stock, |packet| parser.handle(packet)).unwrap();
            assert!(
                events
                    .into_iter()
                    .flatten()
                    .any(|event| event == PushEvent::Report(expected.clone()))
            );
        }
    }
}

/// The answer without band 2, on which git says why in its own words.
fn without_text(wire: &[u8], side_band: bool) -> Vec<u8> {
    let mut kept = Vec::new();
    read(wire, |packet| {
        let is_text = matches!(packet, Packet::Data(data) if side_band && data.first() == Some(&2));
        if !is_text {
            packet.encode(&mut kept);
        }
        Ok(())
    })
    .unwrap();
    kept
}

#[test]
fn the_probe_is_answered_by_nothing() {
    let repository = Repository::empty(ObjectFormat::Sha1);
    let (answer, success) = repository.run(&["receive-pack", "--stateless-rpc", "."], b"0000", None);
    assert_eq!((answer, success), (vec![], true));
}
