//! `git archive --remote`: one request, one archive (git-upload-archive(1)).

use super::repository_options::RepositoryOptions;
use super::shown_refs;
use crate::access::Identity;
use crate::http::answer::Answer;
use crate::http::front::{Call, body_error};
use crate::http::record::Record;
use crate::http::request_body::RequestBody;
use crate::http::response_body::{Content, Cut, Piece};
use crate::node::Node;
use crate::service::request_memory::Hold;
use bytes::Bytes;
use cuesta_engine::archive::{self, ArchiveFormat, ArchivePiece, ArchiveRequest, ArchiveStream, Target};
use cuesta_engine::{EngineError, View};
use cuesta_git::calendar::parse_date;
use cuesta_git::pathspec::Pathspec;
use cuesta_git::{HiddenRefs, ObjectId};
use cuesta_protocol::archive::{
    ACKNOWLEDGMENT, ArchiveCommand, ArchiveName, ArchiveOptions, read_request, write_end, write_failure,
};
use cuesta_protocol::sideband::SideBand;
use cuesta_protocol::{Limits, ProtocolError, Service};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::StatusCode;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// The content type of a request.
pub const REQUEST_TYPE: &str = "application/x-git-upload-archive-request";
const RESULT_TYPE: &str = "application/x-git-upload-archive-result";

/// Answers a request over HTTP.
pub async fn answer(call: Call, mut body: RequestBody) -> Answer {
    let len_max = call.node.settings.fetch_request_bytes_max.as_usize();
    let mut hold = Hold::new(call.node.request_memory.clone(), len_max);
    let body = match body.collect(len_max, &mut hold).await {
        Ok(body) => body,
        Err(error) => return body_error(&error, &call.record),
    };
    answer_request(call, &body).await
}

/// Answers one whole request.
pub async fn answer_request(call: Call, request: &[u8]) -> Answer {
    let repository = match call.repository().await {
        Ok(Some(repository)) => repository,
        Ok(None) => return Answer::not_found(),
        Err(error) => return Answer::engine_error(&error, &call.record),
    };
    let view = match repository.view().await {
        Ok(view) => view,
        Err(error) => return Answer::engine_error(&error, &call.record),
    };
    let is_known = matches!(call.identity, Identity::User { .. });
    let is_served = RepositoryOptions::of(&view).serves_archives(call.transport, is_known);
    if !is_served {
        return Answer::error(StatusCode::FORBIDDEN, "Service not enabled: 'upload-archive'");
    }
    let request = read_request(request, Limits::new());
    let pieces = respond(call.node, view, request, call.record);
    Answer::ok(RESULT_TYPE, Content::Stream(pieces))
}

/// The whole answer to a request (read, or refused while it was), from its acknowledgment on. Over SSH it is the same.
///
/// Whatever is wrong is said in the stream. An error of the stream itself does not happen.
pub fn respond(
    node: Arc<Node>,
    view: View,
    request: Result<Vec<Bytes>, ProtocolError>,
    record: Arc<Record>,
) -> BoxStream<'static, Result<Piece, Cut>> {
    let answer = ArchiveAnswer {
        stage: Stage::Starting(Box::pin(start(node, view, request))),
        queue: VecDeque::from([Bytes::from_static(ACKNOWLEDGMENT).into()]),
        record,
        permit: None,
    };
    let pieces = futures::stream::unfold(answer, |mut answer| async {
        let piece = answer.next().await?;
        Some((Ok(piece), answer))
    });
    pieces.boxed()
}

/// Why there is no archive.
enum Refusal {
    Protocol(ProtocolError),
    Engine(EngineError),
}

impl From<ProtocolError> for Refusal {
    fn from(error: ProtocolError) -> Self {
        Self::Protocol(error)
    }
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

fn refused(text: String) -> Refusal {
    Refusal::Engine(EngineError::Refused(text))
}

type Started = (ArchiveStream, Option<OwnedSemaphorePermit>);

async fn start(node: Arc<Node>, view: View, request: Result<Vec<Bytes>, ProtocolError>) -> Result<Started, Refusal> {
    let settings = RepositoryOptions::of(&view);
    let formats = settings.archive_formats();
    let options = match ArchiveCommand::parse(request?, &formats)? {
        ArchiveCommand::Archive(options) => options,
        ArchiveCommand::List => {
            let names: String = formats.iter().map(|format| format!("{}\n", format.name())).collect();
            let names = futures::stream::iter([Ok(ArchivePiece::Data(names.into()))]);
            return Ok((names.boxed(), None));
        }
    };
    let (umask, unreachable) = (settings.tar_umask(), settings.archives_unreachable());
    let hidden = settings.hidden(Service::UploadPack);
    let permit = node.fetches.clone().acquire_owned().await.ok();
    let target = target(&view, &options.treeish, &hidden, unreachable).await?;
    let time = time(&options, &target, node.clock.now_ms() / 1_000)?;
    let paths = Pathspec::parse(options.paths.iter().map(|path| &path[..]));
    let request = ArchiveRequest {
        format: format(options.format),
        level: options.level,
        prefix: options.prefix,
        paths: paths.map_err(|error| refused(error.to_string()))?,
        target,
        time,
        umask,
        verbose: options.verbose,
        hidden,
    };
    Ok((archive::archive(view, request).await?, permit))
}

fn format(name: ArchiveName) -> ArchiveFormat {
    match name {
        ArchiveName::Tar => ArchiveFormat::Tar,
        ArchiveName::Tgz | ArchiveName::TarGz => ArchiveFormat::TarGz,
        ArchiveName::Zip => ArchiveFormat::Zip,
    }
}

fn time(options: &ArchiveOptions, target: &Target, now: i64) -> Result<i64, Refusal> {
    let Some(text) = &options.mtime else {
        return Ok(target.commit_time.unwrap_or(now));
    };
    let text = String::from_utf8_lossy(text);
    parse_date(&text, now).ok_or_else(|| refused(format!("cannot read the date '{text}'")))
}

/// What `<ref>` or `<ref>:<path>` names; with `unreachable`, an id may stand for the ref.
async fn target(view: &View, treeish: &[u8], hidden: &HiddenRefs, unreachable: bool) -> Result<Target, Refusal> {
    let colon = treeish.iter().position(|byte| *byte == b':');
    let (name, path) = match colon {
        Some(at) => (treeish.get(..at).unwrap_or_default(), treeish.get(at + 1..)),
        None => (treeish, None),
    };
    let invalid = || refused(format!("not a valid object name: {}", treeish.escape_ascii()));
    let oid = match shown_refs::first(view.state(), hidden, name) {
        Some(oid) => oid,
        None if unreachable => {
            let oid = ObjectId::from_hex(view.object_format(), name).map_err(|_| invalid())?;
            if !view.contains(&oid).await? {
                return Err(invalid());
            }
            oid
        }
        None => return Err(refused(format!("no such ref: {}", name.escape_ascii()))),
    };
    archive::resolve(view, &oid, path).await?.ok_or_else(invalid)
}

/// An archive being sent.
struct ArchiveAnswer {
    stage: Stage,
    queue: VecDeque<Piece>,
    record: Arc<Record>,
    permit: Option<OwnedSemaphorePermit>,
}

enum Stage {
    Starting(BoxFuture<'static, Result<Started, Refusal>>),
    Sending(ArchiveStream),
    /// Nothing follows the queue.
    Ended,
}

impl ArchiveAnswer {
    async fn next(&mut self) -> Option<Piece> {
        loop {
            if let Some(piece) = self.queue.pop_front() {
                return Some(piece);
            }
            match &mut self.stage {
                Stage::Starting(starting) => match starting.await {
                    Ok((stream, permit)) => (self.stage, self.permit) = (Stage::Sending(stream), permit),
                    Err(Refusal::Protocol(error)) => {
                        self.record.failed(&error.to_string());
                        self.fail(&error.to_string());
                    }
                    Err(Refusal::Engine(error)) => self.fail(&Answer::engine_text(&error, &self.record)),
                },
                Stage::Sending(stream) => match stream.next().await {
                    Some(Ok(piece)) => self.send(piece),
                    Some(Err(error)) => self.fail(&Answer::engine_text(&error, &self.record)),
                    None => self.end(),
                },
                Stage::Ended => return None,
            }
        }
    }

    fn send(&mut self, piece: ArchivePiece) {
        match piece {
            ArchivePiece::Data(bytes) => {
                let frames = SideBand::Large.frames(bytes);
                self.queue
                    .extend(frames.map(|frame| Piece::framed(frame.header, frame.payload)));
            }
            ArchivePiece::Paths(paths) => {
                let mut out = Vec::new();
                SideBand::Large.text(&mut out, &String::from_utf8_lossy(&paths));
                self.queue.push_back(Bytes::from(out).into());
            }
        }
    }

    fn end(&mut self) {
        let mut out = Vec::new();
        write_end(&mut out);
        self.queue.push_back(Bytes::from(out).into());
        self.stage = Stage::Ended;
    }

    fn fail(&mut self, text: &str) {
        let mut out = Vec::new();
        write_failure(&mut out, text);
        self.queue.push_back(Bytes::from(out).into());
        self.stage = Stage::Ended;
    }
}
