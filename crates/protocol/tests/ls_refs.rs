//! `ls-refs` and `object-info`, byte for byte as stock git answers them.

#![allow(clippy::unwrap_used)] // A test asserts by it, in its helpers too.

mod support;

use bytes::Bytes;
use cuesta_git::ObjectFormat;
use cuesta_protocol::Limits;
use cuesta_protocol::options::UploadOptions;
use cuesta_protocol::pktline::{Decoder, Packet};
use cuesta_protocol::upload::answer::write_object_info;
use cuesta_protocol::upload::v2::{Command, Event, RequestParser};
use support::{Ref, Repository};

fn wire(repository: &Repository, command: &str, arguments: &[&str]) -> Vec<u8> {
    let format = format!("object-format={}", repository.format);
    let mut wire = Vec::new();
    let mut line = |text: &str| Packet::Data(Bytes::copy_from_slice(text.as_bytes())).encode(&mut wire);
    [&format!("command={command}"), &format[..]]
        .iter()
        .for_each(|text| line(text));
    wire.extend_from_slice(b"0001");
    let mut line = |text: &str| Packet::Data(Bytes::copy_from_slice(text.as_bytes())).encode(&mut wire);
    arguments.iter().for_each(|text| line(text));
    wire.extend_from_slice(b"0000");
    wire
}

fn parse(repository: &Repository, wire: &[u8]) -> Command {
    let mut options = UploadOptions::new("test/1");
    options.object_info = true;
    let mut parser = RequestParser::new(repository.format, options, Limits::new());
    let mut decoder = Decoder::new();
    decoder.push(wire);
    while let Some(packet) = decoder.poll().unwrap() {
        if let Event::Request(request) = parser.handle(&packet).unwrap() {
            return request.command;
        }
    }
    panic!("no request");
}

fn compare(repository: &Repository, arguments: &[&str]) {
    let wire = wire(repository, "ls-refs", arguments);
    let (stock, success) = repository.run(&["upload-pack", "--stateless-rpc", "."], &wire, Some("version=2"));
    assert!(success, "{arguments:?}");
    let Command::LsRefs(ls_refs) = parse(repository, &wire) else {
        panic!("no ls-refs")
    };
    let refs = repository.refs();
    let has_head = refs.first().is_some_and(|first| first.name == "HEAD");
    let target = repository.run(&["symbolic-ref", "-q", "HEAD"], b"", None).0;
    let unborn = Some(target.trim_ascii()).filter(|target| !has_head && !target.is_empty());
    let mut ours = Vec::new();
    ls_refs.write_answer(&mut ours, unborn, refs.iter().map(Ref::advertised));
    assert_eq!(
        ours.escape_ascii().to_string(),
        stock.escape_ascii().to_string(),
        "{arguments:?}"
    );
}

#[test]
fn refs_are_listed_as_git_does() {
    let unborn = Repository::full(ObjectFormat::Sha1);
    unborn.git(&["symbolic-ref", "HEAD", "refs/heads/not-there"]);
    let full = Repository::full(ObjectFormat::Sha1);
    let repositories = [
        full,
        Repository::full(ObjectFormat::Sha256),
        Repository::empty(ObjectFormat::Sha1),
        unborn,
    ];
    for repository in &repositories {
        for arguments in [
            &[][..],
            &["peel"],
            &["symrefs"],
            &["peel", "symrefs", "unborn"],
            &["unborn"],
            &["peel\n", "symrefs\n", "unborn\n", "ref-prefix HEAD\n"],
            &["symrefs", "unborn", "ref-prefix refs/heads/"],
            &["peel", "ref-prefix refs/tags/"],
            &[
                "ref-prefix refs/heads/side",
                "ref-prefix refs/heads/",
                "ref-prefix refs/tags/v1",
            ],
            &["ref-prefix refs/tags/v", "ref-prefix HE", "ref-prefix refs/heads/none"],
            &["ref-prefix "],
        ] {
            compare(repository, arguments);
        }
    }
}

#[test]
fn sixty_five_thousand_prefixes_are_none() {
    let repository = Repository::full(ObjectFormat::Sha1);
    for count in [65_535, 65_536] {
        let prefixes: Vec<String> = (0..count).map(|n| format!("ref-prefix refs/none/{n}")).collect();
        compare(&repository, &prefixes.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn sizes_are_told_as_git_does() {
    let repository = Repository::full(ObjectFormat::Sha1);
    repository.git(&["config", "transfer.advertiseObjectInfo", "true"]);
    let (commit, blob) = (
        repository.oid("main").to_string(),
        repository.oid("main:file").to_string(),
    );
    let absent = "1234567890123456789012345678901234567890";
    for arguments in [
        vec![
            "size".to_owned(),
            format!("oid {commit}"),
            format!("oid {absent}"),
            format!("oid {blob}"),
        ],
        vec![format!("oid {blob}"), format!("oid {commit}")],
        vec!["size".to_owned()],
    ] {
        let wire = wire(
            &repository,
            "object-info",
            &arguments.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        let (stock, _) = repository.run(&["upload-pack", "--stateless-rpc", "."], &wire, Some("version=2"));
        let Command::ObjectInfo(info) = parse(&repository, &wire) else {
            panic!("no object-info")
        };
        let size = |oid: &cuesta_git::ObjectId| {
            let (size, found) = repository.run(&["cat-file", "-s", &oid.to_string()], b"", None);
            found.then(|| String::from_utf8(size).unwrap().trim().parse().unwrap())
        };
        let sizes: Vec<Option<u64>> = info.oids.iter().map(size).collect();
        let mut ours = Vec::new();
        write_object_info(&mut ours, &info, &sizes);
        assert_eq!(
            ours.escape_ascii().to_string(),
            stock.escape_ascii().to_string(),
            "{arguments:?}"
        );
    }
}
