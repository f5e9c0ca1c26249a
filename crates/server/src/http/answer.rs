//! What is sent back: status, headers, content.

use super::record::Record;
use super::response_body::{Content, ResponseBody};
use bytes::Bytes;
use cuesta_engine::{EngineError, ErrorKind};
use http::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_RANGE, CONTENT_TYPE, EXPIRES, PRAGMA, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use std::sync::Arc;

/// The response header that names a request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// When a client may try again what failed for want of a bucket or ledger, in seconds.
const RETRY_AFTER_SECONDS: &str = "5";

/// What makes git ask its credential helpers.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"Cuesta\"");

/// An answer on its way to be a response.
pub struct Answer {
    status: StatusCode,
    content_type: &'static str,
    content: Content,
    /// A header that goes with the status.
    extra: Option<(HeaderName, HeaderValue)>,
    keep: Keep,
    range: Option<RangeOf>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// Who may keep an answer.
enum Keep {
    Nobody,
    /// What never changes: until that date, a year away.
    Year {
        expires: String,
        shared: bool,
    },
    /// What never changes, for so many seconds.
    Seconds(u64),
}

/// Which part of a file an answer is.
pub enum RangeOf {
    /// All of it; parts could be asked for.
    Whole,
    /// These bytes, the last one counted, of so many.
    Part(u64, u64, u64),
    /// What was asked for is beyond its end.
    Beyond(u64),
}

impl Keep {
    fn write(&self, headers: &mut HeaderMap) {
        if let Self::Seconds(seconds) = self {
            let control = HeaderValue::try_from(format!("public, max-age={seconds}, immutable"));
            headers.extend(control.ok().map(|control| (CACHE_CONTROL, control)));
            return;
        }
        let (control, expires) = match self {
            Self::Nobody | Self::Seconds(_) => {
                headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
                let never = Ok(HeaderValue::from_static("Fri, 01 Jan 1980 00:00:00 GMT"));
                ("no-cache, max-age=0, must-revalidate", never)
            }
            Self::Year { expires, shared: true } => ("public, max-age=31536000", HeaderValue::try_from(expires)),
            Self::Year { expires, shared: false } => ("private, max-age=31536000", HeaderValue::try_from(expires)),
        };
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(control));
        if let Ok(expires) = expires {
            headers.insert(EXPIRES, expires);
        }
    }
}

impl RangeOf {
    fn header(&self) -> Option<String> {
        match self {
            Self::Whole => None,
            Self::Part(first, last, len) => Some(format!("bytes {first}-{last}/{len}")),
            Self::Beyond(len) => Some(format!("bytes */{len}")),
        }
    }
}

impl Answer {
    /// 200, with content that no cache may keep.
    pub fn ok(content_type: &'static str, content: Content) -> Self {
        Self {
            status: StatusCode::OK,
            content_type,
            content,
            extra: None,
            keep: Keep::Nobody,
            range: None,
            headers: Vec::new(),
        }
    }

    /// 200, with bytes that no cache may keep.
    pub fn whole(content_type: &'static str, bytes: impl Into<Bytes>) -> Self {
        Self::ok(content_type, Content::Whole(bytes.into()))
    }

    /// An error, whose text git clients show where they can (only `text/plain` is shown).
    pub fn error(status: StatusCode, text: &str) -> Self {
        let text = Bytes::from(format!("{text}\n"));
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            content: Content::Whole(text),
            extra: None,
            keep: Keep::Nobody,
            range: None,
            headers: Vec::new(),
        }
    }

    /// Lets caches keep it for a year: it will never be anything else. `shared` ones too, if anyone may have it.
    pub fn kept(self, now_ms: i64, shared: bool) -> Self {
        const YEAR_SECONDS: i64 = 31_536_000;
        let expires = cuesta_git::calendar::Utc::of(now_ms / 1_000 + YEAR_SECONDS).to_string();
        Self {
            keep: Keep::Year { expires, shared },
            ..self
        }
    }

    /// Says which part of a file it is.
    pub fn of_range(self, range: RangeOf) -> Self {
        let status = match range {
            RangeOf::Whole => self.status,
            RangeOf::Part(..) => StatusCode::PARTIAL_CONTENT,
            RangeOf::Beyond(_) => StatusCode::RANGE_NOT_SATISFIABLE,
        };
        Self {
            status,
            range: Some(range),
            ..self
        }
    }

    /// The same with one more header; a value that no header can have is left out.
    pub fn header(mut self, name: HeaderName, value: &str) -> Self {
        self.headers
            .extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        self
    }

    /// The same, to be kept by caches for that many seconds if it is no error: it will never change.
    pub fn cacheable(mut self, seconds: u64) -> Self {
        if self.status.is_success() {
            self.keep = Keep::Seconds(seconds);
        }
        self
    }

    /// 404: no such repository, or no such path.
    pub fn not_found() -> Self {
        Self::error(StatusCode::NOT_FOUND, "repository not found")
    }

    /// 401 with a challenge: say who you are, or say it anew.
    pub fn unauthenticated(text: &str) -> Self {
        Self {
            extra: Some((WWW_AUTHENTICATE, CHALLENGE)),
            ..Self::error(StatusCode::UNAUTHORIZED, text)
        }
    }

    /// 429: so many seconds must pass before the next attempt.
    pub fn too_many_attempts(seconds: u64) -> Self {
        Self {
            extra: Some((RETRY_AFTER, HeaderValue::from(seconds))),
            ..Self::error(
                StatusCode::TOO_MANY_REQUESTS,
                "too many failed attempts, try again later",
            )
        }
    }

    /// 405 with the methods that are allowed; HTTP/1.0 knows no 405 and gets 400.
    pub fn wrong_method(version: http::Version, allow: &'static str) -> Self {
        let old = matches!(version, http::Version::HTTP_10 | http::Version::HTTP_09);
        let status = if old {
            StatusCode::BAD_REQUEST
        } else {
            StatusCode::METHOD_NOT_ALLOWED
        };
        Self {
            extra: Some((ALLOW, HeaderValue::from_static(allow))),
            ..Self::error(status, "method not allowed")
        }
    }

    /// What an error of the engine looks like from outside. Details of our own faults stay in the log of `record`.
    pub fn engine_error(error: &EngineError, record: &Record) -> Self {
        record.failed(&error.to_string());
        match error.kind() {
            ErrorKind::NotFound => Self::not_found(),
            ErrorKind::Unavailable => Self::error(StatusCode::SERVICE_UNAVAILABLE, &Self::unavailable_text(record)),
            ErrorKind::Invalid | ErrorKind::Unsupported => Self::error(StatusCode::BAD_REQUEST, &error.to_string()),
            _ => Self::error(StatusCode::INTERNAL_SERVER_ERROR, &Self::internal_text(record)),
        }
    }

    /// The text for a client when our own part failed.
    pub fn internal_text(record: &Record) -> String {
        format!("internal error (request {})", record.id)
    }

    fn unavailable_text(record: &Record) -> String {
        format!("storage is unavailable, try again later (request {})", record.id)
    }

    /// The text for a client for an error of the engine, where no status can be sent any more.
    pub fn engine_text(error: &EngineError, record: &Record) -> String {
        record.failed(&error.to_string());
        match error.kind() {
            ErrorKind::Invalid | ErrorKind::Unsupported | ErrorKind::NotFound => error.to_string(),
            ErrorKind::Unavailable => Self::unavailable_text(record),
            _ => Self::internal_text(record),
        }
    }

    /// The status, and what is sent, for a transport that has no headers.
    pub fn into_parts(self) -> (StatusCode, Content) {
        (self.status, self.content)
    }

    /// The response, whose end closes `record`.
    pub fn into_response(self, record: Arc<Record>) -> Response<ResponseBody> {
        record.answers(self.status);
        let id = HeaderValue::from_str(&record.id.to_string());
        let mut response = Response::new(ResponseBody::new(self.content, record));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        self.keep.write(headers);
        if let Some(range) = &self.range {
            headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
            if let Some(Ok(value)) = range.header().map(HeaderValue::try_from) {
                headers.insert(CONTENT_RANGE, value);
            }
        }
        headers.extend(self.headers.into_iter().map(|(name, value)| (Some(name), value)));
        if let Ok(id) = id {
            headers.insert(REQUEST_ID, id);
        }
        if let Some((name, value)) = self.extra {
            headers.insert(name, value);
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
        }
        response
    }
}
