use super::*;
use crate::advertise::{self, AdvertisedRef, Head};
use crate::options::UploadOptions;
use crate::pktline::Decoder;
use crate::testing::{hex, oid, packets};
use crate::version::Service;

fn read(wire: &[u8]) -> Advertisement {
    let mut decoder = Decoder::new();
    let mut parser = AdvertisementParser::new(Limits::new());
    decoder.push(wire);
    while let Some(packet) = decoder.poll().unwrap() {
        if let Some(advertisement) = parser.handle(&packet).unwrap() {
            decoder.finish().unwrap();
            return advertisement;
        }
    }
    panic!("no end");
}

fn error(lines: &[&str]) -> String {
    let mut parser = AdvertisementParser::new(Limits::new());
    packets(lines)
        .iter()
        .find_map(|packet| parser.handle(packet).err())
        .unwrap()
        .to_string()
}

#[test]
fn refs_are_read_back_from_what_a_server_writes() {
    let shown = [
        AdvertisedRef {
            name: b"HEAD",
            oid: oid(1),
            peeled: None,
            symref_target: None,
        },
        AdvertisedRef {
            name: b"refs/heads/main",
            oid: oid(1),
            peeled: None,
            symref_target: None,
        },
        AdvertisedRef {
            name: b"refs/tags/v1",
            oid: oid(2),
            peeled: Some(oid(1)),
            symref_target: None,
        },
        AdvertisedRef {
            name: b".have",
            oid: oid(4),
            peeled: None,
            symref_target: None,
        },
    ];
    for (http, version) in [
        (false, Version::V0),
        (true, Version::V0),
        (true, Version::V1),
        (false, Version::V1),
    ] {
        let options = UploadOptions::new("test/1");
        let capabilities =
            &advertise::upload_capabilities(&options, ObjectFormat::Sha1, http, Some(b"refs/heads/main"));
        let head = Head {
            service: Service::UploadPack,
            version,
            http,
            format: ObjectFormat::Sha1,
            capabilities,
        };
        let mut wire = Vec::new();
        advertise::write_refs(&mut wire, &head, shown, &[oid(3)]);
        let Advertisement::Refs(read) = read(&wire) else {
            panic!("no refs")
        };
        assert_eq!((read.version, read.format), (version, ObjectFormat::Sha1));
        let names: Vec<_> = read
            .refs
            .iter()
            .map(|shown| (&shown.name[..], shown.oid, shown.peeled))
            .collect();
        let expected = shown[..3]
            .iter()
            .map(|shown| (shown.name, Some(shown.oid), shown.peeled));
        assert_eq!(names, expected.collect::<Vec<_>>());
        assert_eq!(read.refs[0].symref_target.as_deref(), Some(&b"refs/heads/main"[..]));
        assert_eq!((&read.haves[..], &read.shallow[..]), (&[oid(4)][..], &[oid(3)][..]));
        assert_eq!(read.capabilities().value("agent"), Some(&b"test/1"[..]));
        assert_eq!(read.capabilities().has("no-done"), http);
    }
}

#[test]
fn repositories_without_refs_are_read() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let capabilities = &advertise::upload_capabilities(&UploadOptions::new("a"), format, false, None);
        let head = Head {
            service: Service::UploadPack,
            version: Version::V0,
            http: true,
            format,
            capabilities,
        };
        let mut wire = Vec::new();
        advertise::write_refs(&mut wire, &head, [], &[]);
        let Advertisement::Refs(read) = read(&wire) else {
            panic!("no refs")
        };
        assert_eq!((read.refs.len(), read.format), (0, format));
    }
    assert!(matches!(read(b"0000"), Advertisement::Refs(refs) if refs.refs.is_empty()));
}

#[test]
fn capabilities_are_read_back_from_what_a_server_writes() {
    let mut options = UploadOptions::new("test/1");
    options.ref_in_want = true;
    let mut wire = Vec::new();
    advertise::write_http_banner(&mut wire, Service::UploadPack);
    advertise::write_v2(&mut wire, &options, ObjectFormat::Sha256);
    for wire in [
        &wire[..],
        wire.strip_prefix(b"001e# service=git-upload-pack\n0000").unwrap(),
    ] {
        let Advertisement::Capabilities(server) = read(wire) else {
            panic!("no capabilities")
        };
        assert_eq!(server.object_format(), Ok(ObjectFormat::Sha256));
        assert!(server.has("server-option") && !server.has("object-info"));
        assert!(server.has_feature("fetch", "ref-in-want") && !server.has_feature("fetch", "filter"));
        assert_eq!(server.value("ls-refs"), Some(&b"unborn"[..]));
    }
}

#[test]
fn hostile_advertisements_are_refused() {
    assert_eq!(error(&["ERR go\x1baway\n"]), "remote error: go\\u{1b}away");
    assert_eq!(error(&["version 2", "ERR late"]), "remote error: late");
    assert_eq!(error(&["<html>"]), "invalid ref line: '<html>'");
    assert_eq!(
        error(&["# service=git-upload-pack", "x"]),
        "expected flush after the service line, got 'x'"
    );
    assert_eq!(
        error(&[&format!("{} refs/heads/a\0object-format=sha512", hex(1))]),
        "unknown object format 'sha512'"
    );
    assert_eq!(
        error(&[&format!("{} refs/heads/a^{{}}", hex(1))]),
        "peeled value of no ref: 'refs/heads/a^{}'"
    );
    assert_eq!(error(&["0001"]), "unexpected packet in an advertisement");
    let mut limits = Limits::new();
    limits.remote_refs_max = 2;
    let mut parser = AdvertisementParser::new(limits);
    let lines: Vec<String> = (1..4).map(|n| format!("{} refs/heads/{n}", hex(n))).collect();
    let taken = lines
        .iter()
        .take_while(|line| parser.handle(&packets(&[line])[0]).is_ok())
        .count();
    assert_eq!(taken, 2);
    limits = Limits::new();
    limits.answer_bytes_max = 2 * (4 + lines[0].len());
    let mut parser = AdvertisementParser::new(limits);
    let handled = lines.iter().map(|line| parser.handle(&packets(&[line])[0]));
    assert_eq!(handled.take_while(Result::is_ok).count(), 2);
}
