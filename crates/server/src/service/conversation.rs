//! What a client and a service say to each other over a connection that both keep, as over SSH and `git://`: an
//! advertisement, then requests and answers, until one of them has had enough (gitprotocol-pack; gitprotocol-v2).
//!
//! Each exchange is a request with an id and a log line of its own, as over HTTP.

use super::input::{ByteStream, Input, Packets};
use super::request_memory::Hold;
use super::stateful_fetch::{StatefulFetch, Step};
use super::{advertise, archive, fetch, push, push_cert};
use crate::access::{Access, Admission, Identity, Want};
use crate::http::answer::Answer;
use crate::http::front::{self, Call, Transport};
use crate::http::record::{Record, RequestId};
use crate::http::response_body::{Content, ResponseBody};
use crate::metrics::Endpoint;
use crate::node::Node;
use bytes::{Buf, Bytes};
use cuesta_engine::RepositoryName;
use cuesta_protocol::{Program, ProtocolError, Service, Version, pktline, sideband};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use std::future::Future;
use std::sync::Arc;

/// Where a service's bytes go.
pub(crate) trait Outlet: Send {
    /// Sends all of `bytes`, as fast as the client takes them.
    fn send(&mut self, bytes: &mut (impl Buf + Send)) -> impl Future<Output = Result<(), Gone>> + Send;
}

/// The client has gone, or has stopped reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client went away")]
pub(crate) struct Gone;

/// What a client wants, and of whom.
pub(crate) struct Errand {
    /// The node that serves.
    pub(crate) node: Arc<Node>,
    /// Who the client is.
    pub(crate) identity: Identity,
    /// How it came.
    pub(crate) transport: Transport,
    /// The repository.
    pub(crate) name: RepositoryName,
    /// What is to be run.
    pub(crate) program: Program,
    /// The version that the client asked for.
    pub(crate) version: Version,
}

/// Why a conversation stops before its end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The client may not do it.
    NotAdmitted(Access),
    /// The service refuses to speak, with the status that HTTP would have and a text.
    Refused(StatusCode, String),
    /// The client has been told why, by the service's own answer.
    Told,
    /// The client went away in the middle of a request.
    HungUp(ProtocolError),
    /// An answer had to be cut off.
    Cut(String),
    /// Nobody is there any more.
    Gone,
}

impl From<Gone> for Stop {
    fn from(Gone: Gone) -> Self {
        Self::Gone
    }
}

/// The repository that a path names: `owner/name`, perhaps with a slash or `~` before it and `.git` behind. Every path names
/// one repository or none.
pub(crate) fn repository_of(path: &[u8]) -> Option<RepositoryName> {
    let path = std::str::from_utf8(path).ok()?;
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_prefix('~').unwrap_or(path);
    if path.starts_with('/') {
        return None;
    }
    RepositoryName::parse(path).ok()
}

/// Runs an errand to its end: reads what the client says from `stream` and sends what the service answers to `output`.
pub(crate) async fn run(errand: Errand, stream: ByteStream, output: &mut impl Outlet) -> Result<(), Stop> {
    let service = match errand.program {
        // An archive is reading, as a fetch is.
        Program::UploadPack | Program::UploadArchive => Service::UploadPack,
        Program::ReceivePack => Service::ReceivePack,
    };
    let version = errand.version.of_service(service);
    let (program, transport) = (errand.program, errand.transport);
    let talk = Talk {
        errand,
        service,
        endpoint: endpoint(transport, program),
        version,
        output,
    };
    match (program, version) {
        (Program::UploadArchive, _) => talk.upload_archive(stream).await,
        (Program::UploadPack, Version::V2) => talk.upload_pack_v2(stream).await,
        (Program::UploadPack, _) => talk.upload_pack_v0(stream).await,
        (Program::ReceivePack, _) => talk.receive_pack(stream).await,
    }
}

/// What a request for a program is, in metrics.
pub(crate) fn endpoint(transport: Transport, program: Program) -> Endpoint {
    match (transport, program) {
        (Transport::Git, Program::UploadPack) => Endpoint::GitUploadPack,
        (Transport::Git, Program::UploadArchive) => Endpoint::GitUploadArchive,
        (Transport::Git, Program::ReceivePack) => Endpoint::Other,
        (_, Program::UploadPack) => Endpoint::SshUploadPack,
        (_, Program::UploadArchive) => Endpoint::SshUploadArchive,
        (_, Program::ReceivePack) => Endpoint::SshReceivePack,
    }
}

/// A record of a request that came in a conversation.
pub(crate) fn record(node: &Node, transport: Transport) -> Record {
    let id = RequestId(node.entropy.bits64());
    let method = match transport {
        Transport::Http => "HTTP",
        Transport::Ssh => "SSH",
        Transport::Git => "GIT",
    };
    // Where HTTP has a method.
    let method = Method::from_bytes(method.as_bytes()).unwrap_or_default();
    Record::new(id, method, node.metrics.clone(), node.engine.bucket().clone())
}

/// A conversation about one repository.
struct Talk<'a, O> {
    errand: Errand,
    service: Service,
    endpoint: Endpoint,
    version: Version,
    output: &'a mut O,
}

impl<O: Outlet> Talk<'_, O> {
    /// Any number of commands, each answered by itself, until a lone flush or the end of the stream.
    async fn upload_pack_v2(mut self, stream: ByteStream) -> Result<(), Stop> {
        self.advertise().await?;
        let len_max = self.errand.node.settings.fetch_request_bytes_max.as_usize();
        let mut packets = self.packets(stream);
        loop {
            packets.release();
            let request = match packets.request(len_max).await {
                Ok(Some(request)) => request,
                Ok(None) => return Ok(()),
                Err(error) => return self.refuse(&error).await,
            };
            let (call, record) = self.call().await?;
            record.took(request.len());
            let answer = fetch::answer_request(call, request).await;
            packets.release();
            self.give(answer, record).await?;
        }
    }

    /// Refs, then one negotiation about them, in as many rounds as it takes, then a pack.
    async fn upload_pack_v0(mut self, stream: ByteStream) -> Result<(), Stop> {
        let (call, record) = self.call().await?;
        let opened = match fetch::open(&call).await {
            Ok(opened) => opened,
            Err(answer) => return self.give(*answer, record).await,
        };
        let opening = advertise::of_view(&call, &opened, self.service).await;
        self.give(opening, record).await?;
        let (call, record) = self.call().await?;
        let mut packets = self.packets(stream);
        packets.stream().count_in(record.received.clone());
        let mut conversation = StatefulFetch::new(call, opened);
        loop {
            let step = match packets.next().await {
                Ok(Some(packet)) => conversation.handle(&packet).await,
                Ok(None) => return Err(hung_up(&record)),
                Err(error) => conversation.refuse(&error),
            };
            match step {
                Step::More => {}
                Step::Say(bytes) => {
                    record.sent(bytes.len());
                    self.output.send(&mut Bytes::from(bytes)).await?;
                }
                Step::Answer(answer) => {
                    packets.release();
                    return self.give(*answer, record).await;
                }
                Step::Nothing => {
                    record.answers(StatusCode::OK);
                    record.close(true);
                    return Ok(());
                }
            }
        }
    }

    /// Refs, then commands and a pack, then the report.
    async fn receive_pack(mut self, mut stream: ByteStream) -> Result<(), Stop> {
        let began = push_cert::now(&self.errand.node);
        self.advertise().await?;
        let (mut call, record) = self.call().await?;
        call.advertised = Some(began..=push_cert::now(&self.errand.node));
        stream.count_in(record.received.clone());
        let answer = push::answer(call, Input::stream(stream)).await;
        self.give(answer, record).await
    }

    /// One request, then the archive.
    async fn upload_archive(mut self, stream: ByteStream) -> Result<(), Stop> {
        let (call, record) = self.call().await?;
        let mut packets = self.packets(stream);
        packets.stream().count_in(record.received.clone());
        let len_max = self.errand.node.settings.fetch_request_bytes_max.as_usize();
        let answer = match packets.request(len_max).await {
            // Nothing at all is an archive of nothing, which is refused like any other that makes no sense.
            Ok(request) => archive::answer_request(call, &request.unwrap_or(Bytes::from_static(pktline::FLUSH))).await,
            Err(error) => fetch::refusal(&record, &error),
        };
        self.give(answer, record).await
    }

    fn packets(&self, stream: ByteStream) -> Packets {
        let len_max = self.errand.node.settings.fetch_request_bytes_max.as_usize();
        Packets::new(stream, Hold::new(self.errand.node.request_memory.clone(), len_max))
    }

    /// What there is, in an exchange of its own.
    async fn advertise(&mut self) -> Result<(), Stop> {
        let (call, record) = self.call().await?;
        let opening = advertise::answer(call, self.service).await;
        self.give(opening, record).await
    }

    /// One request of this conversation, admitted by the accounts at this moment, and its record; or why there is none.
    async fn call(&self) -> Result<(Call, Arc<Record>), Stop> {
        let record = self.record();
        let want = match self.service {
            Service::UploadPack => Want::Read,
            Service::ReceivePack => Want::Write,
        };
        let admitted = match self
            .errand
            .node
            .gate
            .admit(&self.errand.identity, &self.errand.name, want)
            .await
        {
            Ok(Admission::Granted(repository)) => repository,
            Ok(Admission::Refused(access)) => return Err(not_admitted(access, &record)),
            Err(error) => {
                let (status, content) = Answer::engine_error(&error, &record).into_parts();
                record.answers(status);
                return Err(refused(status, &content));
            }
        };
        let record = Arc::new(record);
        let call = Call {
            node: self.errand.node.clone(),
            name: self.errand.name.clone(),
            admitted,
            identity: self.errand.identity.clone(),
            version: self.version,
            transport: self.errand.transport,
            origin: front::public_origin(&self.errand.node.settings),
            advertised: None,
            record: record.clone(),
        };
        Ok((call, record))
    }

    fn record(&self) -> Record {
        let record = record(&self.errand.node, self.errand.transport);
        record.is_for(self.endpoint, Some(&self.errand.name));
        record.speaks(self.version);
        record.is_by(&self.errand.identity);
        record
    }

    /// Refuses what is no request.
    async fn refuse(&mut self, error: &ProtocolError) -> Result<(), Stop> {
        let record = Arc::new(self.record());
        self.give(fetch::refusal(&record, error), record).await
    }

    /// Sends an answer; the conversation ends if the answer is a refusal.
    async fn give(&mut self, answer: Answer, record: Arc<Record>) -> Result<(), Stop> {
        let (status, content) = answer.into_parts();
        record.answers(status);
        if status != StatusCode::OK {
            record.close(true);
            return Err(refused(status, &content));
        }
        let refused = refuses(&content);
        let mut body = ResponseBody::new(content, record.clone());
        while let Some(frame) = body.frame().await {
            match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(mut piece)) => self.output.send(&mut piece).await?,
                Ok(Err(_)) => {}
                Err(cut) => return Err(Stop::Cut(cut.0)),
            }
        }
        if refused || (self.service == Service::UploadPack && record.has_failed()) {
            return Err(Stop::Told);
        }
        Ok(())
    }
}

/// Notes that a client may not do what it wants. What one may not read is not there.
fn not_admitted(access: Access, record: &Record) -> Stop {
    let (status, why) = match access {
        Access::Forbidden(lack) => (StatusCode::FORBIDDEN, lack.to_string()),
        Access::Unauthenticated => (StatusCode::UNAUTHORIZED, "not authenticated".to_owned()),
        Access::Hidden | Access::Allowed => (StatusCode::NOT_FOUND, "repository not found".to_owned()),
    };
    record.answers(status);
    record.failed(&why);
    record.close(true);
    Stop::NotAdmitted(access)
}

/// How a fetch ends whose client has gone in the middle: as stock git's, without a packet that nobody waits for.
fn hung_up(record: &Record) -> Stop {
    let error = ProtocolError::Truncated;
    record.answers(StatusCode::OK);
    record.failed(&error.to_string());
    record.close(true);
    Stop::HungUp(error)
}

/// How a conversation ends whose service refuses to speak.
fn refused(status: StatusCode, content: &Content) -> Stop {
    let text = match content {
        Content::Whole(text) => String::from_utf8_lossy(text).trim_end().to_owned(),
        _ => status.as_str().to_owned(),
    };
    Stop::Refused(status, text)
}

/// Whether an answer is nothing but a reason why there is none: an `ERR` packet, or band 3.
fn refuses(content: &Content) -> bool {
    const LENGTH_DIGITS: usize = 4;
    let Content::Whole(bytes) = content else { return false };
    let Some(first) = bytes.get(LENGTH_DIGITS..) else {
        return false;
    };
    first.starts_with(b"ERR ") || first.first() == Some(&(sideband::Band::Fatal as u8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn named(path: &str) -> Option<String> {
        repository_of(path.as_bytes()).map(|name| name.to_string())
    }

    #[test]
    fn the_spellings_of_one_repository() {
        for path in [
            "ann/b",
            "/ann/b",
            "ann/b.git",
            "/ann/b.git",
            "~ann/b",
            "/~ann/b.git",
            "ann/b/",
            "/ann/b.git/",
        ] {
            assert_eq!(named(path).as_deref(), Some("ann/b"), "{path}");
        }
    }

    #[test]
    fn nothing_else_names_a_repository() {
        for path in [
            "",
            "/",
            "~",
            "~/b",
            "~/ann/b",
            "//ann/b",
            "/~/ann/b",
            "~~ann/b",
            "/../ann/b",
            "ann/../b",
            "../ann/b",
            "./ann/b",
            "ann//b",
            "ann/b//",
            "ann/b/.",
            "ann/b/..",
            "ann/%2e%2e",
            "ann%2fb",
            "ann/b%00",
            "ann\\b",
            "ann/b\\",
            "b",
            "ann/b/c",
            "ann/.git",
            "ann/b.git.git",
            "--help",
            "-c",
            "ann/--exec=x",
            "ann/b ",
            " ann/b",
            "ann/b\n",
            "ann/$(id)",
            "ann/`id`",
            "C:/ann/b",
            "ann:b",
            "~ann",
            "ann/é",
        ] {
            assert_eq!(named(path), None, "{path:?}");
        }
        assert_eq!(repository_of(b"ann/\xff"), None);
    }

    #[test]
    fn refusals_are_told_from_answers() {
        let whole = |bytes: &'static [u8]| refuses(&Content::Whole(Bytes::from_static(bytes)));
        let mut error = Vec::new();
        pktline::encode_error(&mut error, "no");
        assert!(refuses(&Content::Whole(error.into())));
        assert!(whole(b"0008\x03no\n"));
        for answer in [
            &b""[..],
            b"0000",
            b"000eversion 2\n",
            b"0008NAK\n",
            b"0030\x01000eunpack ok\n",
        ] {
            assert!(!whole(answer), "{}", answer.escape_ascii());
        }
    }

    proptest! {
        /// Whatever comes, a path that names a repository is the name with what may stand around it.
        #[test]
        fn a_path_leads_to_a_canonical_name_or_nowhere(path in "[a-zA-Z0-9./%\\\\~_-]{0,24}") {
            if let Some(name) = repository_of(path.as_bytes()) {
                let again = repository_of(name.as_str().as_bytes());
                prop_assert_eq!(again.as_ref(), Some(&name));
                let bare = path.trim_start_matches('/').trim_start_matches('~').trim_end_matches('/');
                prop_assert_eq!(bare.strip_suffix(".git").unwrap_or(bare), name.as_str());
            }
        }
    }
}
