//! What a client and a service say to each other on one channel: an advertisement, then requests and answers, until one of
//! them has had enough (gitprotocol-pack; gitprotocol-v2).
//!
//! Each exchange is a request with an id and a log line of its own, as over HTTP.

use super::output::{Exit, Gone, Output};
use crate::access::{Access, Admission, Identity, Want};
use crate::http::answer::Answer;
use crate::http::front::{self, Call, Transport};
use crate::http::record::{Record, RequestId};
use crate::http::response_body::{Content, ResponseBody};
use crate::metrics::Endpoint;
use crate::node::Node;
use crate::service::input::{ByteStream, Input, Packets};
use crate::service::request_memory::Hold;
use crate::service::stateful_fetch::{StatefulFetch, Step};
use crate::service::{advertise, archive, fetch, push, push_cert};
use bytes::Bytes;
use cuesta_engine::RepositoryName;
use cuesta_protocol::ssh::{CommandLine, Program};
use cuesta_protocol::{ProtocolError, Service, Version, pktline, sideband};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// One command of a client, to be run.
pub(super) struct Conversation {
    /// The node that serves.
    pub(super) node: Arc<Node>,
    /// Who the client is.
    pub(super) identity: Identity,
    /// The value of `GIT_PROTOCOL`.
    pub(super) protocol: Vec<u8>,
    /// Lets one push at a time of a connection begin: one that waits for memory would keep the bytes of others from coming.
    pub(super) pushes: Arc<Semaphore>,
}

/// The repository that a path names: `owner/name`, perhaps with a slash or `~` before it and `.git` behind. Every path names
/// one repository or none.
fn repository_of(path: &[u8]) -> Option<RepositoryName> {
    let path = std::str::from_utf8(path).ok()?;
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_prefix('~').unwrap_or(path);
    if path.starts_with('/') {
        return None;
    }
    RepositoryName::parse(path).ok()
}

impl Conversation {
    /// Runs the command that `line` is.
    pub(super) async fn run(self, line: &[u8], stream: ByteStream, output: &mut Output) -> Result<Exit, Gone> {
        let command = match CommandLine::parse(line) {
            Ok(command) => command,
            Err(error) => return Ok(Exit::fatal(&error.to_string())),
        };
        let Some(name) = repository_of(&command.path) else {
            return Ok(Exit::no_repository());
        };
        let (service, endpoint) = match command.program {
            Program::UploadPack => (Service::UploadPack, Endpoint::SshUploadPack),
            Program::ReceivePack => (Service::ReceivePack, Endpoint::SshReceivePack),
            // Reading, as a fetch is.
            Program::UploadArchive => (Service::UploadPack, Endpoint::SshUploadArchive),
        };
        let version = Version::requested(&self.protocol).of_service(service);
        let talk = Talk {
            node: self.node,
            identity: self.identity,
            name,
            service,
            endpoint,
            version,
            output,
        };
        let ended = match (service, version) {
            _ if endpoint == Endpoint::SshUploadArchive => talk.upload_archive(stream).await,
            (Service::UploadPack, Version::V2) => talk.upload_pack_v2(stream).await,
            (Service::UploadPack, _) => talk.upload_pack_v0(stream).await,
            (Service::ReceivePack, _) => {
                let _turn = self.pushes.acquire_owned().await;
                talk.receive_pack(stream).await
            }
        };
        match ended {
            Ok(()) => Ok(Exit::SUCCESS),
            Err(Stop::Exit(exit)) => Ok(exit),
            Err(Stop::Gone(gone)) => Err(gone),
        }
    }
}

/// Why a conversation stops before its end.
enum Stop {
    /// The command ends so.
    Exit(Exit),
    /// Nobody is there any more.
    Gone(Gone),
}

impl From<Gone> for Stop {
    fn from(gone: Gone) -> Self {
        Self::Gone(gone)
    }
}

/// A conversation about one repository.
struct Talk<'a> {
    node: Arc<Node>,
    identity: Identity,
    name: RepositoryName,
    service: Service,
    endpoint: Endpoint,
    version: Version,
    output: &'a mut Output,
}

impl Talk<'_> {
    /// Any number of commands, each answered by itself, until a lone flush or the end of the stream.
    async fn upload_pack_v2(mut self, stream: ByteStream) -> Result<(), Stop> {
        self.advertise().await?;
        let len_max = self.node.settings.fetch_request_bytes_max.as_usize();
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
                Ok(None) => return Err(Stop::Exit(hung_up(&record))),
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
        let began = push_cert::now(&self.node);
        self.advertise().await?;
        let (mut call, record) = self.call().await?;
        call.advertised = Some(began..=push_cert::now(&self.node));
        stream.count_in(record.received.clone());
        let answer = push::answer(call, Input::stream(stream)).await;
        self.give(answer, record).await
    }

    /// One request, then the archive.
    async fn upload_archive(mut self, stream: ByteStream) -> Result<(), Stop> {
        let (call, record) = self.call().await?;
        let mut packets = self.packets(stream);
        packets.stream().count_in(record.received.clone());
        let len_max = self.node.settings.fetch_request_bytes_max.as_usize();
        let answer = match packets.request(len_max).await {
            // Nothing at all is an archive of nothing, which is refused like any other that makes no sense.
            Ok(request) => archive::answer_request(call, &request.unwrap_or(Bytes::from_static(pktline::FLUSH))).await,
            Err(error) => fetch::refusal(&record, &error),
        };
        self.give(answer, record).await
    }

    fn packets(&self, stream: ByteStream) -> Packets {
        let len_max = self.node.settings.fetch_request_bytes_max.as_usize();
        Packets::new(stream, Hold::new(self.node.request_memory.clone(), len_max))
    }

    /// What there is, in an exchange of its own.
    async fn advertise(&mut self) -> Result<(), Stop> {
        let (call, record) = self.call().await?;
        let opening = advertise::answer(call, self.service).await;
        self.give(opening, record).await
    }

    /// One request of this conversation, admitted by the accounts at this moment, and its record; or how the command ends if it
    /// is not admitted.
    async fn call(&self) -> Result<(Call, Arc<Record>), Stop> {
        let record = self.record();
        let want = match self.service {
            Service::UploadPack => Want::Read,
            Service::ReceivePack => Want::Write,
        };
        let admitted = match self.node.gate.admit(&self.identity, &self.name, want).await {
            Ok(Admission::Granted(repository)) => repository,
            Ok(Admission::Refused(access)) => return Err(Stop::Exit(not_admitted(access, &record))),
            Err(error) => {
                let (status, content) = Answer::engine_error(&error, &record).into_parts();
                record.answers(status);
                return Err(Stop::Exit(refusal(status, &content)));
            }
        };
        let record = Arc::new(record);
        let call = Call {
            node: self.node.clone(),
            name: self.name.clone(),
            admitted,
            identity: self.identity.clone(),
            version: self.version,
            transport: Transport::Ssh,
            origin: front::public_origin(&self.node.settings),
            advertised: None,
            record: record.clone(),
        };
        Ok((call, record))
    }

    fn record(&self) -> Record {
        let id = RequestId(self.node.entropy.bits64());
        // Where HTTP has a method.
        let method = Method::from_bytes(b"SSH").unwrap_or_default();
        let (metrics, bucket) = (self.node.metrics.clone(), self.node.engine.bucket().clone());
        let record = Record::new(id, method, metrics, bucket);
        record.is_for(self.endpoint, Some(&self.name));
        record.speaks(self.version);
        record.is_by(&self.identity);
        record
    }

    /// Refuses what is no request.
    async fn refuse(&mut self, error: &ProtocolError) -> Result<(), Stop> {
        let record = Arc::new(self.record());
        self.give(fetch::refusal(&record, error), record).await
    }

    /// Sends an answer; the command ends if the answer is a refusal.
    async fn give(&mut self, answer: Answer, record: Arc<Record>) -> Result<(), Stop> {
        let (status, content) = answer.into_parts();
        record.answers(status);
        if status != StatusCode::OK {
            record.close(true);
            return Err(Stop::Exit(refusal(status, &content)));
        }
        let refused = refuses(&content);
        let mut body = ResponseBody::new(content, record.clone());
        while let Some(frame) = body.frame().await {
            match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(mut piece)) => self.output.send(&mut piece).await?,
                Ok(Err(_)) => {}
                Err(cut) => return Err(Stop::Exit(Exit::fatal(&cut.0))),
            }
        }
        if refused || (self.service == Service::UploadPack && record.has_failed()) {
            return Err(Stop::Exit(Exit::told()));
        }
        Ok(())
    }
}

/// How a command ends that its sender may not give. What one may not read is not there.
fn not_admitted(access: Access, record: &Record) -> Exit {
    let (status, exit) = match access {
        Access::Forbidden(lack) => (StatusCode::FORBIDDEN, Exit::refused(&lack.to_string())),
        Access::Unauthenticated => (StatusCode::UNAUTHORIZED, Exit::refused("the key is not valid any more")),
        Access::Hidden | Access::Allowed => (StatusCode::NOT_FOUND, Exit::no_repository()),
    };
    record.answers(status);
    record.failed(exit.message.trim_end());
    record.close(true);
    exit
}

/// How a fetch ends whose client has gone in the middle: as stock git's, without a packet that nobody waits for.
fn hung_up(record: &Record) -> Exit {
    let error = ProtocolError::Truncated.to_string();
    record.answers(StatusCode::OK);
    record.failed(&error);
    record.close(true);
    Exit::fatal(&error)
}

/// How a command ends that is refused before its service speaks.
fn refusal(status: StatusCode, content: &Content) -> Exit {
    match (status, content) {
        (StatusCode::NOT_FOUND, _) => Exit::no_repository(),
        (_, Content::Whole(text)) => Exit::fatal(String::from_utf8_lossy(text).trim_end()),
        _ => Exit::fatal(status.as_str()),
    }
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
