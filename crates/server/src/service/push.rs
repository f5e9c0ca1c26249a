//! Pushes: commands, pack, report (gitprotocol-pack, `Pushing Data To a Server`).
//!
//! Whatever is wrong with a push is said in its report or on band 2, over HTTP in a 200: of an error status clients show
//! nothing but `Everything up-to-date`.

use super::input::Input;
use super::push_answer::{self, PushForm};
use super::push_cert::{self, NonceSeed};
use super::push_engine::{self, Texts};
use super::push_signature;
use super::repository_options::RepositoryOptions;
use super::request_memory::Hold;
use super::unstoppable::Unstoppable;
use crate::access::{Admission, Want, push_target};
use crate::config::Visibility;
use crate::http::answer::Answer;
use crate::http::front::{Call, body_error};
use crate::http::record::Record;
use crate::http::request_body::BodyError;
use bytes::Bytes;
use cuesta_engine::{EngineError, PushTarget, Repository};
use cuesta_format::{NonceStatus, PushCertificate, PushNote};
use cuesta_git::ObjectFormat;
use cuesta_git::fsck::WARNINGS_MAX;
use cuesta_protocol::options::ReceiveOptions;
use cuesta_protocol::pktline::Decoder;
use cuesta_protocol::receive::{Event, PushRequest, Report, RequestParser};
use cuesta_protocol::{Limits, ProtocolError, Service};
use http::StatusCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The content type of every answer.
pub(super) const CONTENT_TYPE: &str = "application/x-git-receive-pack-result";
/// What is read and forgotten of a refused push's pack, so that the client gets to read the refusal.
const DRAIN_BYTES_MAX: u64 = 16 << 30;
/// Lines for the user that may wait to be sent; more are dropped. All that fsck may say of a push fit, and a few more.
const TEXTS_MAX: usize = WARNINGS_MAX + 64;

/// Answers a push.
pub async fn answer(call: Call, mut body: Input) -> Answer {
    let target = match Target::find(&call).await {
        Ok(target) => target,
        Err(answer) => return *answer,
    };
    let mut parser = RequestParser::new(target.format, target.options.clone(), Limits::new());
    let limits = Limits::new();
    let mut hold = Hold::new(call.node.request_memory.clone(), limits.push_bytes_max);
    let opening = read_commands(&mut parser, &mut body, &mut hold).await;
    match opening {
        Ok(Opening::Probe) => Answer::whole(CONTENT_TYPE, Bytes::new()),
        Ok(Opening::Push { request, rest }) => {
            body.put_back(rest);
            push(call, target, *request, body, hold).await
        }
        Err(OpeningError::Body(error)) => body_error(&error, &call.record),
        Err(OpeningError::Protocol(error)) => {
            call.record.failed(&error.to_string());
            body.drain(DRAIN_BYTES_MAX).await;
            let mut out = Vec::new();
            parser.refuse(&mut out, &error);
            Answer::whole(CONTENT_TYPE, out)
        }
    }
}

/// Where a push goes.
struct Target {
    /// `None` if the push is to make the repository.
    repository: Option<Arc<Repository>>,
    format: ObjectFormat,
    options: ReceiveOptions,
    /// What the nonces of signed pushes are made of, if those are taken.
    nonces: Option<NonceSeed>,
    /// Whether only pushes are taken that a known user has signed.
    requires_certificate: bool,
    keep_alive: Option<Duration>,
}

impl Target {
    async fn find(call: &Call) -> Result<Self, Box<Answer>> {
        match call.repository().await {
            Ok(Some(repository)) => {
                // What was set before the request holds for it.
                let view = match repository.view().await {
                    Ok(view) => view,
                    Err(error) => return Err(Box::new(Answer::engine_error(&error, &call.record))),
                };
                let options = RepositoryOptions::of(&view);
                if !options.serves(call.transport, Service::ReceivePack) {
                    return Err(Box::new(Answer::error(StatusCode::FORBIDDEN, "service not enabled")));
                }
                Ok(Self::new(
                    Some(repository.clone()),
                    repository.object_format(),
                    options,
                    call,
                ))
            }
            Ok(None) => {
                let options = RepositoryOptions::of_new(&call.node.engine);
                Ok(Self::new(None, ObjectFormat::Sha1, options, call))
            }
            Err(error) => Err(Box::new(Answer::engine_error(&error, &call.record))),
        }
    }

    fn new(
        repository: Option<Arc<Repository>>,
        format: ObjectFormat,
        options: RepositoryOptions<'_>,
        call: &Call,
    ) -> Self {
        let named = || call.name.to_string();
        let place = repository
            .as_ref()
            .map_or_else(named, |repository| repository.id().to_string());
        let (offered, nonces) = push_cert::offer(&call.node, options, place, format, call.record.id);
        Self {
            repository,
            format,
            options: offered,
            nonces,
            requires_certificate: options.requires_certificate(),
            keep_alive: options.keep_alive(Service::ReceivePack),
        }
    }

    /// What the log keeps of a push beside what it does.
    async fn note(&self, request: &PushRequest, call: &Call) -> Result<Option<Box<PushNote>>, EngineError> {
        let certificate = match &request.certificate {
            Some(certificate) => Some(PushCertificate {
                text: certificate.text(),
                nonce: match &self.nonces {
                    Some(seed) => seed.check(certificate, push_cert::now(&call.node), call.advertised.as_ref()),
                    None => NonceStatus::Unsolicited,
                },
                signature: Some(push_signature::verify(&call.node, certificate).await?),
            }),
            None => None,
        };
        let options = request.push_options.clone();
        Ok((certificate.is_some() || !options.is_empty()).then(|| Box::new(PushNote { options, certificate })))
    }

    /// What the engine is to push to. A repository that the push makes has no name before the push succeeds.
    async fn open(self, call: &Call) -> Result<PushTarget, EngineError> {
        if let Some(repository) = self.repository {
            return Ok(PushTarget::Repository(repository));
        }
        let (node, name) = (&call.node, &call.name);
        let is_public = node.settings.new_repositories == Visibility::Public;
        match push_target(&node.engine, name, self.format, &call.identity, is_public).await? {
            PushTarget::Unborn(unborn) => Ok(PushTarget::Unborn(unborn)),
            // What somebody else has made meanwhile has roles of its own.
            PushTarget::Repository(_) => match node.gate.admit(&call.identity, name, Want::Write).await? {
                Admission::Granted(Some(record)) => {
                    node.engine.open_repository(record).await.map(PushTarget::Repository)
                }
                _ => Err(EngineError::NoRepository(name.clone())),
            },
        }
    }
}

enum Opening {
    /// No command at all: the client asks whether it may push.
    Probe,
    /// The commands, and what came of the pack together with them.
    Push { request: Box<PushRequest>, rest: Bytes },
}

enum OpeningError {
    Body(BodyError),
    Protocol(ProtocolError),
}

/// Reads what comes before the pack.
async fn read_commands(parser: &mut RequestParser, body: &mut Input, hold: &mut Hold) -> Result<Opening, OpeningError> {
    let mut decoder = Decoder::new();
    let mut taken = 0_usize;
    while let Some(chunk) = hold.bear(body.chunk()).await.map_err(OpeningError::Body)? {
        taken = taken.saturating_add(chunk.len());
        decoder.push(&chunk);
        while let Some(packet) = decoder.poll().map_err(OpeningError::Protocol)? {
            match parser.handle(&packet).map_err(OpeningError::Protocol)? {
                Event::More => {}
                Event::Empty => return Ok(Opening::Probe),
                Event::Request(request) => {
                    return Ok(Opening::Push {
                        request,
                        rest: decoder.into_rest(),
                    });
                }
            }
        }
        hold.cover(taken).await;
    }
    let ended = decoder.finish().and_then(|()| parser.finish());
    ended.map(|()| Opening::Probe).map_err(OpeningError::Protocol)
}

async fn push(call: Call, target: Target, request: PushRequest, mut pack: Input, hold: Hold) -> Answer {
    let (capabilities, keep_alive) = (request.capabilities.clone(), target.keep_alive);
    call.record
        .client(capabilities.session_id.as_deref(), &request.push_options);
    let (lines, progress) = mpsc::channel(TEXTS_MAX);
    let (record, listens) = (call.record.clone(), pack.listens());
    // A client that goes away must not stop a push between its append and its end.
    let work = Unstoppable::new(async move {
        // The commands stay in memory until the push is done.
        if let Some(share) = hold.share() {
            pack.holds_up(share.queue());
        }
        let quiet = request.capabilities.quiet;
        let texts = Texts { lines, quiet };
        let report = receive(&call, target, &request, &mut pack, &texts).await;
        pack.drain(DRAIN_BYTES_MAX).await;
        call.node.metrics.push_ended(is_accepted(&report));
        note(&report, &call.record);
        report
    });
    push_answer::send(
        work,
        PushForm {
            capabilities,
            progress,
            listens,
            keep_alive,
        },
        record,
    )
    .await
}

fn is_accepted(report: &Report) -> bool {
    use cuesta_protocol::receive::RefStatus;
    report.unpack.is_ok() && report.refs.iter().all(|one| matches!(one.status, RefStatus::Ok(_)))
}

fn changes_something(report: &Report) -> bool {
    use cuesta_protocol::receive::RefStatus;
    report.refs.iter().any(|one| matches!(one.status, RefStatus::Ok(_)))
}

/// Why a push was refused, for the log: one reason is enough.
fn note(report: &Report, record: &Record) {
    use cuesta_protocol::receive::RefStatus;
    if let Err(why) = &report.unpack {
        record.failed(&format!("unpack {why}"));
    }
    let reason = report.refs.iter().find_map(|one| match &one.status {
        RefStatus::Ng(why) => Some(format!("ng {} {why}", String::from_utf8_lossy(&one.name))),
        RefStatus::Ok(_) => None,
    });
    if let Some(reason) = reason {
        record.failed(&reason);
    }
}

/// Takes the push in. Errors become a report that refuses every command.
async fn receive(call: &Call, target: Target, request: &PushRequest, pack: &mut Input, texts: &Texts) -> Report {
    let refuse = |error: EngineError| {
        let text = Answer::engine_text(&error, &call.record);
        push_engine::unpack_failure(request, &text)
    };
    let names = || request.commands.iter().map(|command| &command.name);
    let len = if request.has_pack() {
        pack.begin().await
    } else {
        // The client listens only behind the end of its request.
        pack.drain(DRAIN_BYTES_MAX).await;
        Some(0)
    };
    let mut share = call.node.push_memory.admit(len).await;
    if let Some(share) = &share {
        pack.holds_up(share.queue());
    }
    if target.repository.is_none() && !request.has_pack() {
        return Report::refusal(names(), "reference does not exist");
    }
    if request.has_inconsistent_options() {
        return Report::refusal(names(), "inconsistent push options");
    }
    let note = match target.note(request, call).await {
        Ok(note) => note,
        Err(error) => return refuse(error),
    };
    let certificate = note.as_ref().and_then(|note| note.certificate.as_ref());
    if let Some(certificate) = certificate {
        call.record.signed(certificate);
    }
    if let Some(why) = push_signature::refusal(certificate, target.nonces.is_some(), target.requires_certificate) {
        return Report::refusal(names(), why);
    }
    let target = match target.open(call).await {
        Ok(target) => target,
        Err(error) => return refuse(error),
    };
    let _expected = call.node.unflushed.expect(target.repository().id());
    let report = push_engine::receive(
        &target,
        request,
        call.identity.name(),
        note,
        (pack, share.as_mut()),
        texts,
    )
    .await;
    let changed = report.as_ref().is_ok_and(changes_something);
    match target.born() {
        Some(repository) if changed => call.node.unflushed.note(repository),
        // Also after an error, for the push may have been appended.
        Some(repository) => call.node.unflushed.note_if_inline(repository),
        None => {}
    }
    report.unwrap_or_else(refuse)
}
