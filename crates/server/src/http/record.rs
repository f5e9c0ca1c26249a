//! What is known of one request: counted while it runs, written as one log line when its response has been sent.

use crate::access::Identity;
use crate::metrics::{Endpoint, Metrics};
use bytes::Bytes;
use cuesta_engine::RepositoryName;
use cuesta_format::PushCertificate;
use cuesta_protocol::{Service, Version};
use cuesta_store::Bucket;
use parking_lot::Mutex;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::time::Instant;

/// Names a request in logs and in the `X-Request-Id` header of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One request, from its first header to the last byte of its response.
pub struct Record {
    /// The request's name.
    pub id: RequestId,
    started: Instant,
    method: http::Method,
    /// Body bytes as they came.
    pub received: Arc<AtomicU64>,
    sent: AtomicU64,
    details: Mutex<Details>,
    closed: AtomicBool,
    metrics: Arc<Metrics>,
    bucket: Bucket,
    bucket_requests_before: u64,
}

/// What turns out while the request is served.
#[derive(Default)]
struct Details {
    endpoint: Endpoint,
    repository: Option<RepositoryName>,
    identity: Option<Identity>,
    version: u8,
    status: u16,
    error: Option<String>,
    client_session: Option<String>,
    options: Option<String>,
    certificate: Option<&'static str>,
    signature: Option<String>,
}

impl Record {
    /// A request that begins now.
    pub fn new(id: RequestId, method: http::Method, metrics: Arc<Metrics>, bucket: Bucket) -> Self {
        metrics.request_started();
        let bucket_requests_before = bucket.counters().total().requests;
        Self {
            id,
            started: Instant::now(),
            method,
            received: Arc::default(),
            sent: AtomicU64::new(0),
            details: Mutex::default(),
            closed: AtomicBool::new(false),
            metrics,
            bucket,
            bucket_requests_before,
        }
    }

    /// What the request turned out to be.
    pub fn is_for(&self, endpoint: Endpoint, repository: Option<&RepositoryName>) {
        let mut details = self.details.lock();
        details.endpoint = endpoint;
        details.repository = repository.cloned();
    }

    /// Who sends it.
    pub fn is_by(&self, identity: &Identity) {
        self.details.lock().identity = Some(identity.clone());
    }

    /// The protocol version that is spoken.
    pub fn speaks(&self, version: Version) {
        self.details.lock().version = match version {
            Version::V0 => 0,
            Version::V1 => 1,
            Version::V2 => 2,
        };
    }

    /// The status that is answered.
    pub fn answers(&self, status: http::StatusCode) {
        self.details.lock().status = status.as_u16();
    }

    /// What went wrong, for the log; the first account is kept.
    pub fn failed(&self, why: &str) {
        self.details.lock().error.get_or_insert_with(|| printable(why));
    }

    /// The client's name for its session, and the server or push options it gave, for the log.
    pub fn client(&self, session: Option<&[u8]>, options: &[Bytes]) {
        if session.is_none() && options.is_empty() {
            return;
        }
        let mut details = self.details.lock();
        details.client_session = session.map(|session| escaped([session]));
        let options = options.iter().map(|option| &option[..]);
        details.options = Some(escaped(options)).filter(|list| !list.is_empty());
    }

    /// A signed push: what its nonce is worth, and its signature.
    pub fn signed(&self, certificate: &PushCertificate) {
        let mut details = self.details.lock();
        details.certificate = Some(certificate.nonce.name());
        details.signature = certificate.signature.as_ref().map(|signature| {
            let words = [
                &signature.status.letter().to_string(),
                &signature.signer,
                &signature.key,
            ];
            let said: Vec<&str> = words
                .into_iter()
                .map(String::as_str)
                .filter(|word| !word.is_empty())
                .collect();
            printable(&said.join(" "))
        });
    }

    /// Whether something went wrong so far.
    pub fn has_failed(&self) -> bool {
        self.details.lock().error.is_some()
    }

    /// Counts bytes of a request that was read before its record began.
    pub(crate) fn took(&self, count: usize) {
        self.received.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self, count: usize) {
        self.sent.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Ends the record, once: counts it and writes its log line.
    pub(crate) fn close(&self, whole: bool) {
        if self.closed.swap(true, Ordering::Relaxed) {
            return;
        }
        let duration = self.started.elapsed();
        let (received, sent) = (self.received.load(Ordering::Relaxed), self.sent.load(Ordering::Relaxed));
        let details = self.details.lock();
        self.metrics
            .request_ended(details.endpoint, details.status, received, sent, duration);
        if !tracing::enabled!(tracing::Level::INFO) {
            return;
        }
        let error = details.error.as_deref().or((!whole).then_some("the client went away"));
        tracing::info!(
            target: "cuesta::request",
            id = %self.id,
            method = %self.method,
            repo = details.repository.as_ref().map_or("", RepositoryName::as_str),
            user = details.identity.as_ref().map_or("", Identity::name),
            service = details.endpoint.name(),
            version = details.version,
            status = details.status,
            bytes_in = received,
            bytes_out = sent,
            // Of the whole process meanwhile: exact where requests come one at a time.
            bucket_requests = self.bucket.counters().total().requests.saturating_sub(self.bucket_requests_before),
            micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
            client_session = details.client_session.as_deref(),
            options = details.options.as_deref(),
            certificate = details.certificate,
            signature = details.signature.as_deref(),
            error,
            "request"
        );
    }
}

/// A text that a peer may have had a hand in, without control characters.
fn printable(text: &str) -> String {
    let escape = |letter: char| match letter.is_control() {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    };
    text.chars().map(escape).collect()
}

/// A peer's values as one value: each in quotes and escaped as a byte string, so that none can pass for another or end
/// the line; cut where it is long.
fn escaped<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut list = String::new();
    for value in values {
        let space = if list.is_empty() { "" } else { " " };
        // Writing to a String cannot fail.
        let _ = write!(list, "{space}\"{}\"", value.escape_ascii());
        if list.len() > LOGGED_BYTES_MAX {
            list.truncate(LOGGED_BYTES_MAX);
            list.push_str("...");
            break;
        }
    }
    list
}

/// Bytes of a peer's values that one log line repeats.
const LOGGED_BYTES_MAX: usize = 4096;

/// A request whose response never came to be sent, because the client went away, ends too.
impl Drop for Record {
    fn drop(&mut self) {
        self.close(false);
    }
}

impl Endpoint {
    /// The endpoint of a service's advertisement (`rpc` false) or of its POST.
    pub fn of(service: Service, rpc: bool) -> Self {
        match (service, rpc) {
            (Service::UploadPack, false) => Self::UploadPackRefs,
            (Service::ReceivePack, false) => Self::ReceivePackRefs,
            (Service::UploadPack, true) => Self::UploadPack,
            (Service::ReceivePack, true) => Self::ReceivePack,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_peer_are_one_value_each() {
        assert_eq!(escaped([&b"a b"[..], b"\"; x=1\n\xff\\"]), r#""a b" "\"; x=1\n\xff\\""#);
        assert_eq!(escaped([]), "");
        let long = vec![b'x'; 2 * LOGGED_BYTES_MAX];
        assert_eq!(escaped([&long[..], b"y"]).len(), LOGGED_BYTES_MAX + 3);
    }
}
