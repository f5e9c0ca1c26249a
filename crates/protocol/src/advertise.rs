//! What a server says first: refs and capabilities (gitprotocol-pack `Reference Discovery`, gitprotocol-v2
//! `Capability Advertisement`).
//!
//! A v0 advertisement is a head ([`write_head`]: banner, version, the first ref with the capabilities), any number of
//! ref lines ([`write_ref`]), and a tail ([`write_tail`]: shallow lines, flush). The lines of one ref depend on nothing
//! but the ref, so that runs of them can be kept as chunks and shared between answers. [`write_refs`] does all of it at
//! once.

use cuesta_git::{ObjectFormat, ObjectId};

use crate::capability::{push, sanitized};
use crate::options::{ReceiveOptions, Unborn, UploadOptions};
use crate::pktline::{self, FLUSH};
use crate::version::{Service, Version};

/// A ref as a server shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdvertisedRef<'a> {
    /// The full name, or `.have` for an object that the server has without showing why.
    pub name: &'a [u8],
    /// The object it is at.
    pub oid: ObjectId,
    /// What an annotated tag comes down to when all tags are taken off; `None` for anything else.
    pub peeled: Option<ObjectId>,
    /// The ref that this one follows, if it is symbolic.
    pub symref_target: Option<&'a [u8]>,
}

/// Appends the `# service=` line and flush that open a v0 or v1 advertisement over HTTP (gitprotocol-http).
pub fn write_http_banner(out: &mut Vec<u8>, service: Service) {
    pktline::encode(out, &[b"# service=", service.name().as_bytes(), b"\n"]);
    out.extend_from_slice(FLUSH);
}

/// Appends `version 1`, which opens a v1 advertisement, after the banner if there is one. Other versions: nothing.
pub fn write_version_line(out: &mut Vec<u8>, version: Version) {
    if version == Version::V1 {
        pktline::encode(out, &[b"version 1\n"]);
    }
}

/// Appends the lines of a ref after the first: its own, and `<peeled> <name>^{}` if it has a peeled value.
pub fn write_ref(out: &mut Vec<u8>, name: &[u8], oid: &ObjectId, peeled: Option<&ObjectId>) {
    write_line(out, oid, &[name, b"\n"]);
    if let Some(peeled) = peeled {
        write_line(out, peeled, &[name, b"^{}\n"]);
    }
}

/// Appends the lines of the first ref, with the capabilities behind a NUL.
pub fn write_first_ref(out: &mut Vec<u8>, first: &AdvertisedRef<'_>, capabilities: &[u8]) {
    write_line(out, &first.oid, &[first.name, b"\0", capabilities, b"\n"]);
    if let Some(peeled) = &first.peeled {
        write_line(out, peeled, &[first.name, b"^{}\n"]);
    }
}

/// Appends what stands for the first ref where there is none: the null id and `capabilities^{}`.
pub fn write_no_refs(out: &mut Vec<u8>, format: ObjectFormat, capabilities: &[u8]) {
    write_line(
        out,
        &ObjectId::null(format),
        &[b"capabilities^{}\0", capabilities, b"\n"],
    );
}

/// Appends what ends an advertisement: a `shallow` line for each commit whose parents the server lacks, and a flush.
pub fn write_tail<'a>(out: &mut Vec<u8>, shallow: impl IntoIterator<Item = &'a ObjectId>) {
    for oid in shallow {
        let mut line = b"shallow ".to_vec();
        oid.push_hex(&mut line);
        pktline::encode(out, &[&line, b"\n"]);
    }
    out.extend_from_slice(FLUSH);
}

/// Appends the head of a v0 or v1 advertisement: HTTP banner if asked for, version line, first ref or what stands for
/// it.
pub fn write_head(out: &mut Vec<u8>, head: &Head<'_>, first: Option<&AdvertisedRef<'_>>) {
    if head.http {
        write_http_banner(out, head.service);
    }
    write_version_line(out, head.version);
    match first {
        Some(first) => write_first_ref(out, first, head.capabilities),
        None => write_no_refs(out, head.format, head.capabilities),
    }
}

/// What [`write_head`] needs beside the first ref.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// The service that answers.
    pub service: Service,
    /// V0 or V1; a V2 advertisement is [`write_v2`].
    pub version: Version,
    /// Whether the answer goes over HTTP, with a banner.
    pub http: bool,
    /// The format of the ids.
    pub format: ObjectFormat,
    /// From [`upload_capabilities`] or [`receive_capabilities`].
    pub capabilities: &'a [u8],
}

/// Appends a whole v0 or v1 advertisement. `refs` in git's order: HEAD (uploads only), then by the bytes of their
/// names. Peeled values are shown by upload-pack only.
pub fn write_refs<'a>(
    out: &mut Vec<u8>,
    head: &Head<'_>,
    refs: impl IntoIterator<Item = AdvertisedRef<'a>>,
    shallow: &[ObjectId],
) {
    let shows_peeled = head.service == Service::UploadPack;
    let mut refs = refs.into_iter().map(|shown| AdvertisedRef {
        peeled: shown.peeled.filter(|_| shows_peeled),
        ..shown
    });
    write_head(out, head, refs.next().as_ref());
    refs.for_each(|shown| write_ref(out, shown.name, &shown.oid, shown.peeled.as_ref()));
    write_tail(out, shallow);
}

/// The v0 capabilities of upload-pack in git's order, without the NUL. `head_target` is the ref that HEAD follows, if
/// HEAD is symbolic and has a commit: git tells of no other symbolic ref here.
pub fn upload_capabilities(
    options: &UploadOptions,
    format: ObjectFormat,
    http: bool,
    head_target: Option<&[u8]>,
) -> Vec<u8> {
    let mut list = b"multi_ack thin-pack side-band side-band-64k ofs-delta shallow deepen-since deepen-not \
        deepen-relative no-progress include-tag multi_ack_detailed"
        .to_vec();
    let mut offer = |offered: bool, name: &str| {
        if offered {
            push(&mut list, name, None);
        }
    };
    offer(options.wants.tips(), "allow-tip-sha1-in-want");
    offer(options.wants.reachable(), "allow-reachable-sha1-in-want");
    offer(http, "no-done");
    if let Some(target) = head_target {
        push(&mut list, "symref", Some(&[b"HEAD:", target].concat()));
    }
    if options.filters.is_some() {
        push(&mut list, "filter", None);
    }
    push_common(&mut list, options.session_id.as_deref(), format, &options.agent);
    list
}

/// The capabilities of receive-pack in git's order, without the NUL.
pub fn receive_capabilities(options: &ReceiveOptions, format: ObjectFormat) -> Vec<u8> {
    let mut list = b"report-status report-status-v2 delete-refs side-band-64k quiet".to_vec();
    if options.atomic {
        push(&mut list, "atomic", None);
    }
    if options.ofs_delta {
        push(&mut list, "ofs-delta", None);
    }
    if let Some(nonce) = &options.push_cert_nonce {
        push(&mut list, "push-cert", Some(sanitized(nonce).as_bytes()));
    }
    if options.push_options {
        push(&mut list, "push-options", None);
    }
    if options.no_thin {
        push(&mut list, "no-thin", None);
    }
    push_common(&mut list, options.session_id.as_deref(), format, &options.agent);
    list
}

/// Appends a v2 capability advertisement. Over HTTP too it comes without a banner, as stock git's does.
pub fn write_v2(out: &mut Vec<u8>, options: &UploadOptions, format: ObjectFormat) {
    let mut line = |name: &str, value: Option<&str>| match value {
        Some(value) => pktline::encode(out, &[name.as_bytes(), b"=", value.as_bytes(), b"\n"]),
        None => pktline::encode(out, &[name.as_bytes(), b"\n"]),
    };
    line("version 2", None);
    line("agent", Some(&sanitized(&options.agent)));
    line("ls-refs", (options.unborn == Unborn::Advertise).then_some("unborn"));
    line("fetch", Some(&fetch_features(options)));
    line("server-option", None);
    line("object-format", Some(format.name()));
    if let Some(session) = &options.session_id {
        line("session-id", Some(&sanitized(session)));
    }
    if options.object_info {
        line("object-info", Some("size"));
    }
    if options.bundle_uri {
        line("bundle-uri", None);
    }
    if let Some(remotes) = &options.promisor_remote {
        line("promisor-remote", Some(&sanitized(remotes)));
    }
    out.extend_from_slice(FLUSH);
}

fn fetch_features(options: &UploadOptions) -> String {
    let offered = [
        (options.filters.is_some(), " filter"),
        (options.ref_in_want, " ref-in-want"),
        (options.sideband_all, " sideband-all"),
        (options.packfile_uris, " packfile-uris"),
    ];
    let extra = offered.iter().filter(|(offered, _)| *offered).map(|(_, name)| *name);
    std::iter::once("shallow wait-for-done").chain(extra).collect()
}

fn push_common(list: &mut Vec<u8>, session_id: Option<&str>, format: ObjectFormat, agent: &str) {
    if let Some(session) = session_id {
        push(list, "session-id", Some(sanitized(session).as_bytes()));
    }
    push(list, "object-format", Some(format.name().as_bytes()));
    push(list, "agent", Some(sanitized(agent).as_bytes()));
}

fn write_line(out: &mut Vec<u8>, oid: &ObjectId, rest: &[&[u8]]) {
    let size = oid.format().hex_width() + 1 + rest.iter().map(|part| part.len()).sum::<usize>();
    if size > pktline::DATA_MAX {
        // No ref name comes near this, and a cut one would be another ref's.
        return;
    }
    out.extend_from_slice(&pktline::length_digits(size));
    oid.push_hex(out);
    out.push(b' ');
    rest.iter().for_each(|part| out.extend_from_slice(part));
}
