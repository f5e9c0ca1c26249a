//! One request: its route, what HTTP itself demands of it, and the service that answers.

use super::admission::{self, Admitted};
use super::answer::Answer;
use super::peer::Peer;
use super::record::{Record, RequestId};
use super::request_body::{BodyError, RequestBody};
use super::response_body::ResponseBody;
use super::route::Route;
use crate::access::{Identity, Want};
use crate::config::Settings;
use crate::metrics::Endpoint;
use crate::node::Node;
use crate::service::input::Input;
use crate::service::{advertise, archive, dumb, fetch, payload, push};
use cuesta_engine::{EngineError, Repository, RepositoryName};
use cuesta_format::RepositoryRecord;
use cuesta_protocol::{Service, Version};
use futures::FutureExt;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// How a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// In a request of its own, which says everything.
    Http,
    /// In a conversation over SSH.
    Ssh,
    /// In a conversation over `git://`.
    Git,
}

/// One request to a service of one repository, its form checked and its sender admitted.
pub struct Call {
    /// The node that serves.
    pub node: Arc<Node>,
    /// The repository that is named.
    pub name: RepositoryName,
    /// What it was when the request was admitted; `None` if it is to be made.
    pub admitted: Option<RepositoryRecord>,
    /// Who sends the request.
    pub identity: Identity,
    /// The protocol version asked for, as the service speaks it.
    pub version: Version,
    /// How the request came.
    pub transport: Transport,
    /// The request's record.
    pub record: Arc<Record>,
    /// By what URL the client reaches this server, without a slash at the end, if that is known.
    pub origin: Option<String>,
    /// When the conversation had its advertisement, in seconds since 1970, from the first to the last; `None` where each
    /// request stands alone.
    pub advertised: Option<RangeInclusive<u64>>,
}

impl Call {
    /// The repository, opened: the one that was admitted, whatever its name leads to meanwhile.
    pub async fn repository(&self) -> Result<Option<Arc<Repository>>, EngineError> {
        match self.admitted {
            Some(record) => self.node.engine.open_repository(record).await.map(Some),
            None => Ok(None),
        }
    }
}

/// The connection that a request comes over.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// The other end.
    pub remote: SocketAddr,
    /// Whether it is TLS.
    pub encrypted: bool,
}

/// Answers a request. Whatever happens, there is a response.
pub async fn respond(node: Arc<Node>, connection: Connection, request: Request<Incoming>) -> Response<ResponseBody> {
    let id = RequestId(node.entropy.bits64());
    let (metrics, bucket) = (node.metrics.clone(), node.engine.bucket().clone());
    let record = Arc::new(Record::new(id, request.method().clone(), metrics, bucket));
    let answered = AssertUnwindSafe(dispatch(node, connection, request, &record))
        .catch_unwind()
        .await;
    let answer = answered.unwrap_or_else(|_| {
        record.failed("the request's task panicked");
        Answer::error(StatusCode::INTERNAL_SERVER_ERROR, &Answer::internal_text(&record))
    });
    answer.into_response(record)
}

async fn dispatch(node: Arc<Node>, connection: Connection, request: Request<Incoming>, record: &Arc<Record>) -> Answer {
    let (parts, body) = request.into_parts();
    let peer = Peer::of(&node.settings, connection.remote, connection.encrypted, &parts.headers);
    let Some(route) = Route::of(parts.uri.path(), parts.uri.query()) else {
        return Answer::not_found();
    };
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    match route {
        Route::Rpc { repository, service } => {
            record.is_for(Endpoint::of(service, true), Some(&repository));
            if let Some(refusal) = check_rpc(&parts, service) {
                return refusal;
            }
            match call(node, &peer, repository, service, &parts, record).await {
                Ok(call) => rpc(call, service, &parts, body).await,
                Err(refusal) => *refusal,
            }
        }
        Route::Archive { repository } => {
            record.is_for(Endpoint::UploadArchive, Some(&repository));
            if let Some(refusal) = check_post(&parts, archive::REQUEST_TYPE) {
                return refusal;
            }
            match call(node, &peer, repository, Service::UploadPack, &parts, record).await {
                Ok(call) => match request_body(&parts, body, record) {
                    Ok(body) => archive::answer(call, body).await,
                    Err(error) => body_error(&error, record),
                },
                Err(refusal) => *refusal,
            }
        }
        _ if !reads => Answer::wrong_method(parts.version, "GET, HEAD"),
        Route::File { repository, file } => {
            record.is_for(Endpoint::File, Some(&repository));
            match call(node, &peer, repository, Service::UploadPack, &parts, record).await {
                Ok(call) => dumb::answer(call, file, &parts.headers).await,
                Err(refusal) => *refusal,
            }
        }
        Route::InfoRefs { repository, service } => {
            let Some(service) = service else {
                return Answer::error(StatusCode::FORBIDDEN, "unsupported service");
            };
            record.is_for(Endpoint::of(service, false), Some(&repository));
            match call(node, &peer, repository, service, &parts, record).await {
                Ok(call) => advertise::answer(call, service).await,
                Err(refusal) => *refusal,
            }
        }
        Route::Payload { repository, file } => {
            record.is_for(Endpoint::Payload, Some(&repository));
            // No other permission is asked for: the signature in the query is one.
            let query = parts.uri.query().unwrap_or_default();
            match node.engine.repository(&repository).await {
                Ok(repository) => payload::answer(&node, record, repository, (&file, query), &parts.headers).await,
                Err(error) => Answer::engine_error(&error, record),
            }
        }
        Route::Health => Answer::whole("text/plain", "ok\n"),
        Route::Ready => match node.ready() {
            Ok(()) => Answer::whole("text/plain", "ready\n"),
            Err(why) => Answer::error(StatusCode::SERVICE_UNAVAILABLE, why),
        },
        Route::Metrics => match admission::admit_operator(&node, &peer, &parts.headers, record).await {
            Ok(()) => Answer::whole("text/plain; version=0.0.4", node.metrics_page()),
            Err(refusal) => *refusal,
        },
    }
}

/// Admits the request; what the service does comes after.
async fn call(
    node: Arc<Node>,
    peer: &Peer,
    name: RepositoryName,
    service: Service,
    parts: &Parts,
    record: &Arc<Record>,
) -> Result<Call, Box<Answer>> {
    let want = match service {
        Service::UploadPack => Want::Read,
        Service::ReceivePack => Want::Write,
    };
    let Admitted { identity, repository } = admission::admit(&node, peer, parts, record, &name, want).await?;
    let asked = parts
        .headers
        .get("git-protocol")
        .map_or(&b""[..], |value| value.as_bytes());
    let version = Version::requested(asked).of_service(service);
    record.speaks(version);
    let origin = origin(&node.settings, parts);
    Ok(Call {
        node,
        name,
        admitted: repository,
        identity,
        version,
        transport: Transport::Http,
        record: record.clone(),
        advertised: None,
        origin,
    })
}

/// The URL that the settings give, or else the name in the request, which is the client's own word to itself.
fn origin(settings: &Settings, parts: &Parts) -> Option<String> {
    if let Some(origin) = public_origin(settings) {
        return Some(origin);
    }
    let named = parts
        .headers
        .get(http::header::HOST)
        .and_then(|host| host.to_str().ok());
    let host = named.or_else(|| parts.uri.authority().map(|authority| authority.as_str()))?;
    let scheme = match settings.serves_tls() || settings.behind_tls_proxy {
        true => "https",
        false => "http",
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    (host.len() <= HOST_LEN_MAX && !host.is_empty() && host.bytes().all(plain)).then(|| format!("{scheme}://{host}"))
}

/// The URL that the settings give.
pub(crate) fn public_origin(settings: &Settings) -> Option<String> {
    let url = settings.public_url.trim_end_matches('/');
    (!url.is_empty()).then(|| url.to_owned())
}

/// Longest name of a host, with its port.
const HOST_LEN_MAX: usize = 262;

/// Method and content type of a POST. A form of a browser can send neither of the types.
fn check_rpc(parts: &Parts, service: Service) -> Option<Answer> {
    check_post(parts, request_type(service))
}

fn check_post(parts: &Parts, expected: &str) -> Option<Answer> {
    if parts.method != Method::POST {
        return Some(Answer::wrong_method(parts.version, "POST"));
    }
    let given = parts.headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    (given != Some(expected.as_bytes())).then(|| {
        Answer::error(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            &format!("expected content type '{expected}'"),
        )
    })
}

fn request_type(service: Service) -> &'static str {
    match service {
        Service::UploadPack => "application/x-git-upload-pack-request",
        Service::ReceivePack => "application/x-git-receive-pack-request",
    }
}

async fn rpc(call: Call, service: Service, parts: &Parts, body: Incoming) -> Answer {
    let body = match request_body(parts, body, &call.record) {
        Ok(body) => body,
        Err(error) => return body_error(&error, &call.record),
    };
    match service {
        Service::UploadPack => fetch::answer(call, body).await,
        Service::ReceivePack => push::answer(call, Input::body(body)).await,
    }
}

fn request_body(parts: &Parts, body: Incoming, record: &Record) -> Result<RequestBody, BodyError> {
    RequestBody::new(body, &parts.headers, record.received.clone())
}

/// The answer to a request whose body could not be read.
pub fn body_error(error: &BodyError, record: &Record) -> Answer {
    record.failed(&error.to_string());
    let status = match error {
        BodyError::Encoding(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        BodyError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        BodyError::Stalled | BodyError::HoldsUp => StatusCode::REQUEST_TIMEOUT,
        BodyError::Cut(_) | BodyError::Gzip => StatusCode::BAD_REQUEST,
    };
    Answer::error(status, &error.to_string())
}
