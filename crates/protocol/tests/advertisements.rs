//! Advertisements, byte for byte as stock git writes them.

#![allow(clippy::unwrap_used)] // A test asserts by it, in its helpers too.

mod support;

use cuesta_git::ObjectFormat;
use cuesta_protocol::advertise::{self, Head};
use cuesta_protocol::filter::FilterPolicy;
use cuesta_protocol::options::{ReceiveOptions, Unborn, UploadOptions, WantPolicy};
use cuesta_protocol::{Service, Version};
use support::{Ref, Repository};

/// How git is told the version.
fn protocol(version: Version) -> Option<&'static str> {
    match version {
        Version::V0 => None,
        Version::V1 => Some("version=1"),
        Version::V2 => Some("version=2"),
    }
}

/// The value of `session-id=` in git's answer: it is another one each time.
fn session_id(wire: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(wire);
    let behind = text.split_once("session-id=")?.1;
    behind.split([' ', '\n']).next().map(str::to_owned)
}

fn upload_refs(repository: &Repository, options: &UploadOptions, version: Version, http: bool) -> Vec<u8> {
    let refs = repository.refs();
    let head_target = refs
        .first()
        .filter(|first| first.name == "HEAD")
        .and_then(|head| head.symref_target.clone());
    let capabilities = &advertise::upload_capabilities(
        options,
        repository.format,
        http,
        head_target.as_deref().map(str::as_bytes),
    );
    let head = Head {
        service: Service::UploadPack,
        version,
        http: false,
        format: repository.format,
        capabilities,
    };
    let mut out = Vec::new();
    advertise::write_refs(&mut out, &head, refs.iter().map(Ref::advertised), &shallow(repository));
    out
}

fn shallow(repository: &Repository) -> Vec<cuesta_git::ObjectId> {
    let listed = std::fs::read_to_string(repository.path().join("shallow")).unwrap_or_default();
    listed
        .lines()
        .map(|line| cuesta_git::ObjectId::from_hex(repository.format, line.as_bytes()).unwrap())
        .collect()
}

fn stock(repository: &Repository, service: &str, http: bool, version: Version) -> Vec<u8> {
    let (arguments, input) = if http {
        (vec![service, "--http-backend-info-refs", "."], &b""[..])
    } else {
        (vec![service, "."], &b"0000"[..])
    };
    repository.run(&arguments, input, protocol(version)).0
}

fn repositories() -> Vec<(&'static str, Repository)> {
    let detached = Repository::full(ObjectFormat::Sha1);
    detached.git(&["update-ref", "--no-deref", "HEAD", &detached.oid("main~2").to_string()]);
    let unborn = Repository::full(ObjectFormat::Sha1);
    unborn.git(&["symbolic-ref", "HEAD", "refs/heads/not-there"]);
    let shallow = Repository::empty(ObjectFormat::Sha1);
    let origin = Repository::full(ObjectFormat::Sha1);
    let url = format!("file://{}", origin.path().display());
    shallow.git(&["fetch", "-q", "--depth=2", &url, "refs/heads/*:refs/heads/*"]);
    vec![
        ("full", Repository::full(ObjectFormat::Sha1)),
        ("sha256", Repository::full(ObjectFormat::Sha256)),
        ("empty", Repository::empty(ObjectFormat::Sha1)),
        ("empty sha256", Repository::empty(ObjectFormat::Sha256)),
        ("detached", detached),
        ("unborn", unborn),
        ("shallow", shallow),
    ]
}

#[test]
fn refs_are_shown_to_fetches_as_git_does() {
    for (name, repository) in repositories() {
        for (version, http) in [
            (Version::V0, true),
            (Version::V0, false),
            (Version::V1, true),
            (Version::V1, false),
        ] {
            let ours = upload_refs(&repository, &UploadOptions::new("test/1"), version, http);
            let stock = stock(&repository, "upload-pack", http, version);
            assert_eq!(
                ours.escape_ascii().to_string(),
                stock.escape_ascii().to_string(),
                "{name}, {version:?}, http {http}"
            );
        }
    }
}

#[test]
fn refs_are_shown_to_pushes_as_git_does() {
    for (name, repository) in repositories() {
        for (version, http) in [
            (Version::V0, true),
            (Version::V0, false),
            (Version::V1, true),
            (Version::V2, true),
        ] {
            let version = version.of_service(Service::ReceivePack);
            let capabilities = &advertise::receive_capabilities(&ReceiveOptions::new("test/1"), repository.format);
            let format = repository.format;
            let head = Head {
                service: Service::ReceivePack,
                version,
                http: false,
                format,
                capabilities,
            };
            let refs = repository.refs();
            let refs = refs.iter().filter(|shown| shown.name != "HEAD").map(Ref::advertised);
            let mut ours = Vec::new();
            advertise::write_refs(&mut ours, &head, refs, &shallow(&repository));
            let stock = stock(&repository, "receive-pack", http, version);
            assert_eq!(
                ours.escape_ascii().to_string(),
                stock.escape_ascii().to_string(),
                "{name}, {version:?}, http {http}"
            );
        }
    }
}

#[test]
fn capabilities_are_shown_as_git_does() {
    for (name, repository) in repositories() {
        let mut ours = Vec::new();
        advertise::write_v2(&mut ours, &UploadOptions::new("test/1"), repository.format);
        for http in [true, false] {
            let stock = stock(&repository, "upload-pack", http, Version::V2);
            assert_eq!(
                ours.escape_ascii().to_string(),
                stock.escape_ascii().to_string(),
                "{name}, http {http}"
            );
        }
    }
}

#[test]
fn every_offer_shows_where_git_shows_it() {
    let repository = Repository::full(ObjectFormat::Sha1);
    for (setting, value) in [
        ("uploadpack.allowFilter", "true"),
        ("uploadpack.allowTipSHA1InWant", "true"),
        ("uploadpack.allowReachableSHA1InWant", "true"),
        ("uploadpack.allowRefInWant", "true"),
        ("uploadpack.allowSidebandAll", "true"),
        ("uploadpack.blobPackfileUri", "x y z"),
        ("uploadpack.advertiseBundleURIs", "true"),
        ("transfer.advertiseObjectInfo", "true"),
        ("transfer.advertiseSID", "true"),
        ("lsrefs.unborn", "allow"),
        ("receive.advertisePushOptions", "true"),
        ("receive.advertiseAtomic", "false"),
        ("repack.useDeltaBaseOffset", "false"),
    ] {
        repository.git(&["config", setting, value]);
    }
    let mut options = UploadOptions::new("test/1");
    options.wants = WantPolicy::TipsAndReachable;
    options.filters = Some(FilterPolicy::default());
    options.ref_in_want = true;
    options.sideband_all = true;
    options.packfile_uris = true;
    options.bundle_uri = true;
    options.object_info = true;
    options.unborn = Unborn::Allow;

    let stock_v0 = stock(&repository, "upload-pack", true, Version::V0);
    options.session_id = session_id(&stock_v0);
    let ours = upload_refs(&repository, &options, Version::V0, true);
    assert_eq!(ours.escape_ascii().to_string(), stock_v0.escape_ascii().to_string());

    let stock_v2 = stock(&repository, "upload-pack", true, Version::V2);
    options.session_id = session_id(&stock_v2);
    let mut ours = Vec::new();
    advertise::write_v2(&mut ours, &options, repository.format);
    // Git says which information it has from 2.54 on.
    let stock_v2 = stock_v2
        .escape_ascii()
        .to_string()
        .replace("0010object-info\\n", "0015object-info=size\\n");
    assert_eq!(ours.escape_ascii().to_string(), stock_v2);

    let stock = stock(&repository, "receive-pack", true, Version::V0);
    let mut options = ReceiveOptions::new("test/1");
    options.push_options = true;
    options.atomic = false;
    options.ofs_delta = false;
    options.session_id = session_id(&stock);
    let capabilities = advertise::receive_capabilities(&options, repository.format);
    let text = String::from_utf8_lossy(&stock).into_owned();
    let stock_list = text.split_once('\0').unwrap().1.split_once('\n').unwrap().0;
    assert_eq!(String::from_utf8(capabilities).unwrap(), stock_list);
}

#[test]
fn the_banner_is_that_of_the_http_backend() {
    let mut out = Vec::new();
    advertise::write_http_banner(&mut out, Service::UploadPack);
    assert_eq!(out, b"001e# service=git-upload-pack\n0000");
    let mut out = Vec::new();
    advertise::write_http_banner(&mut out, Service::ReceivePack);
    assert_eq!(out, b"001f# service=git-receive-pack\n0000");
}
