//! `info/refs`: what a repository has and what its services offer (gitprotocol-http, `Smart Clients`).

use super::repository_options::{RepositoryOptions, default_receive};
use super::shown_refs;
use crate::answer_cache::AnswerKey;
use crate::http::answer::Answer;
use crate::http::front::Call;
use bytes::Bytes;
use cuesta_engine::{Repository, View};
use cuesta_git::ObjectFormat;
use cuesta_ledger::State;
use cuesta_protocol::advertise::{self, Head};
use cuesta_protocol::{Service, Version};
use http::StatusCode;

/// Answers `GET info/refs?service=…`.
pub async fn answer(call: Call, service: Service) -> Answer {
    let repository = match call.node.engine.repository(&call.name).await {
        Ok(Some(repository)) => repository,
        Ok(None) if service == Service::ReceivePack && call.node.settings.create_on_push => {
            return Answer::whole(content_type(service), for_new_repository(call.version));
        }
        Ok(None) => return Answer::not_found(),
        Err(error) => return Answer::engine_error(&error, &call.record),
    };
    if call.version == Version::V2 {
        return capabilities(&repository, service);
    }
    match repository.view().await {
        Ok(view) => refs(&call, &repository, &view, service),
        Err(error) => Answer::engine_error(&error, &call.record),
    }
}

/// The v2 advertisement tells of no ref, so that the view at hand will do.
fn capabilities(repository: &Repository, service: Service) -> Answer {
    let view = repository.known_view();
    let options = RepositoryOptions::of(view.state());
    if !options.serves(service) {
        return disabled();
    }
    let mut bytes = Vec::with_capacity(256);
    advertise::write_v2(&mut bytes, &options.upload(), repository.object_format());
    Answer::whole(content_type(service), bytes)
}

fn refs(call: &Call, repository: &Repository, view: &View, service: Service) -> Answer {
    let state = view.state();
    if !RepositoryOptions::of(state).serves(service) {
        return disabled();
    }
    let key = AnswerKey::refs(repository.id(), service, call.version);
    let cached = call.node.answers.get(&key, state.number());
    let bytes = cached.unwrap_or_else(|| {
        let bytes = Bytes::from(write_refs(state, repository.object_format(), call.version, service));
        call.node.answers.put(key, state.number(), bytes.clone());
        bytes
    });
    Answer::whole(content_type(service), bytes)
}

/// Cost: about a ref's line for each ref.
fn write_refs(state: &State, format: ObjectFormat, version: Version, service: Service) -> Vec<u8> {
    let options = RepositoryOptions::of(state);
    let hidden = options.hidden(service);
    let mut bytes = Vec::with_capacity(256 + 80 * state.refs().len());
    let head = |capabilities| Head {
        service,
        version,
        http: true,
        format,
        capabilities,
    };
    match service {
        Service::UploadPack => {
            let target = shown_refs::head(state, &hidden).and_then(|head| head.symref_target);
            let offered = advertise::upload_capabilities(&options.upload(), format, true, target);
            advertise::write_refs(
                &mut bytes,
                &head(&offered),
                shown_refs::upload_refs(state, &hidden),
                state.shallow(),
            );
        }
        Service::ReceivePack => {
            let offered = advertise::receive_capabilities(&options.receive(), format);
            advertise::write_refs(
                &mut bytes,
                &head(&offered),
                shown_refs::receive_refs(state, &hidden),
                state.shallow(),
            );
        }
    }
    bytes
}

/// What a push to a repository is told that it will make. Clients take the object format from here: the default one.
fn for_new_repository(version: Version) -> Vec<u8> {
    let format = ObjectFormat::Sha1;
    let offered = advertise::receive_capabilities(&default_receive(), format);
    let head = Head {
        service: Service::ReceivePack,
        version,
        http: true,
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
