//! What a repository has and what its services offer: `info/refs` (gitprotocol-http, `Smart Clients`), or the first words of
//! a conversation.

use super::fetch::Opened;
use super::push_cert;
use super::repository_options::RepositoryOptions;
use super::shown_refs;
use crate::http::answer::Answer;
use crate::http::front::{Call, Transport};
use crate::http::record::RequestId;
use crate::http::response_body::Content;
use crate::node::Node;
use crate::ref_rope::{Form, RefLines, Rope};
use cuesta_engine::{Repository, View};
use cuesta_git::{HiddenRefs, ObjectFormat};
use cuesta_ledger::State;
use cuesta_protocol::advertise::{self, AdvertisedRef, Head};
use cuesta_protocol::options::{ReceiveOptions, UploadOptions};
use cuesta_protocol::{Service, Version};
use http::StatusCode;

/// The advertisement of a service.
pub async fn answer(call: Call, service: Service) -> Answer {
    let repository = match call.repository().await {
        Ok(Some(repository)) => repository,
        Ok(None) if service == Service::ReceivePack => {
            return Answer::whole(content_type(service), for_new_repository(&call));
        }
        Ok(None) => return Answer::not_found(),
        Err(error) => return Answer::engine_error(&error, &call.record),
    };
    match repository.view().await {
        Ok(view) if call.version == Version::V2 => capabilities(&call, &repository, &view, service),
        Ok(view) => refs(&call, &repository, &view, service).await,
        Err(error) => Answer::engine_error(&error, &call.record),
    }
}

/// The advertisement, v0 or v1, of what was opened already.
pub async fn of_view(call: &Call, opened: &Opened, service: Service) -> Answer {
    refs(call, &opened.repository, &opened.view, service).await
}

/// Whether a setting keeps the service off the transport.
fn is_disabled(call: &Call, options: &RepositoryOptions<'_>, service: Service) -> bool {
    !options.serves(call.transport, service)
}

/// The v2 advertisement tells of no ref.
fn capabilities(call: &Call, repository: &Repository, view: &View, service: Service) -> Answer {
    let options = RepositoryOptions::of(view);
    if is_disabled(call, &options, service) {
        return disabled();
    }
    let mut bytes = Vec::with_capacity(256);
    advertise::write_v2(&mut bytes, &options.upload(call.record.id), repository.object_format());
    Answer::whole(content_type(service), bytes)
}

async fn refs(call: &Call, repository: &Repository, view: &View, service: Service) -> Answer {
    if is_disabled(call, &RepositoryOptions::of(view), service) {
        return disabled();
    }
    let http = call.transport == Transport::Http;
    let lines = lines(
        &call.node,
        repository,
        view,
        service,
        call.version,
        http,
        call.record.id,
    )
    .await;
    Answer::ok(content_type(service), Content::Lines(lines))
}

/// A v0 or v1 advertisement; over HTTP it begins with a banner. Cost: see [`RopeCache::rope`](crate::ref_rope::RopeCache).
pub async fn lines(
    node: &Node,
    repository: &Repository,
    view: &View,
    service: Service,
    version: Version,
    http: bool,
    session: RequestId,
) -> RefLines {
    let state = view.state();
    let form = form(service);
    let rope = node
        .ref_ropes
        .rope(repository.id(), state, service, form, &node.workers)
        .await;
    let options = RepositoryOptions::of(view);
    let offer = Offer {
        hidden: options.hidden(service),
        offered: match service {
            Service::UploadPack => Offered::Upload(options.upload(session)),
            Service::ReceivePack => {
                let place = repository.id().to_string();
                Offered::Receive(push_cert::offer(node, options, place, repository.object_format(), session).0)
            }
        },
        service,
        version,
        http,
        format: repository.object_format(),
    };
    write(state, &rope, &offer)
}

/// Peeled values are shown by upload-pack only.
pub(crate) fn form(service: Service) -> Form {
    match service {
        Service::UploadPack => Form::PeeledLines,
        Service::ReceivePack => Form::Plain,
    }
}

/// What an advertisement is for.
pub(crate) struct Offer {
    pub(crate) service: Service,
    pub(crate) version: Version,
    /// Whether it begins with a banner.
    pub(crate) http: bool,
    pub(crate) format: ObjectFormat,
    pub(crate) hidden: HiddenRefs,
    pub(crate) offered: Offered,
}

/// What is offered with it.
pub(crate) enum Offered {
    Upload(UploadOptions),
    Receive(ReceiveOptions),
}

/// The first line carries the capabilities: it is written anew, and so is `HEAD`.
pub(crate) fn write(state: &State, rope: &Rope, offer: &Offer) -> RefLines {
    let service = offer.service;
    let head = match service {
        Service::UploadPack => shown_refs::head(state, &offer.hidden),
        Service::ReceivePack => None,
    };
    let capabilities = match &offer.offered {
        Offered::Upload(options) => {
            let target = head.and_then(|head| head.symref_target);
            advertise::upload_capabilities(options, offer.format, offer.http, target)
        }
        Offered::Receive(options) => advertise::receive_capabilities(options, offer.format),
    };
    let first = head.or_else(|| rope.first()).map(|first| AdvertisedRef {
        peeled: first.peeled.filter(|_| service == Service::UploadPack),
        ..first
    });
    let opening = Head {
        service,
        version: offer.version,
        http: offer.http,
        format: offer.format,
        capabilities: &capabilities,
    };
    let mut opened = Vec::with_capacity(OPENING_BYTES_GUESS);
    advertise::write_head(&mut opened, &opening, first.as_ref());
    let mut lines = RefLines::default();
    lines.push(opened);
    if head.is_some() {
        rope.append_all(form(service), &mut lines);
    } else {
        rope.append_rest(form(service), &mut lines);
    }
    let mut tail = Vec::new();
    advertise::write_tail(&mut tail, state.shallow());
    lines.push(tail);
    lines
}

/// Banner, first ref and capabilities, about.
const OPENING_BYTES_GUESS: usize = 512;

/// What a push to a repository is told that it will make. Clients take the object format from here: the default one.
fn for_new_repository(call: &Call) -> Vec<u8> {
    let format = ObjectFormat::Sha1;
    let options = RepositoryOptions::of_new(&call.node.engine);
    let (offered, _) = push_cert::offer(&call.node, options, call.name.to_string(), format, call.record.id);
    let offered = advertise::receive_capabilities(&offered, format);
    let head = Head {
        service: Service::ReceivePack,
        version: call.version,
        http: call.transport == Transport::Http,
        format,
        capabilities: &offered,
    };
    let mut bytes = Vec::new();
    advertise::write_refs(&mut bytes, &head, std::iter::empty(), &[]);
    bytes
}

fn disabled() -> Answer {
    Answer::error(StatusCode::FORBIDDEN, "service not enabled")
}

fn content_type(service: Service) -> &'static str {
    match service {
        Service::UploadPack => "application/x-git-upload-pack-advertisement",
        Service::ReceivePack => "application/x-git-receive-pack-advertisement",
    }
}
