//! `GET objects/layers/<id>.pack` and `.bundle`: a layer as it lies in the bucket, for clients that were given its URI
//! (gitprotocol-v2, `packfile-uris` and `bundle-uri`).
//!
//! The signature in the URI is the permission. The layer may have left the layer list since; its payloads are kept for longer
//! than any URI holds (docs/architecture.md).

use super::push_cert::now;
use crate::http::answer::{Answer, RangeOf};
use crate::http::range::{self, Asked};
use crate::http::record::Record;
use crate::http::response_body::{Content, Cut, Piece};
use crate::node::Node;
use cuesta_engine::{EngineError, Payload, PayloadForm, Repository};
use cuesta_store::StoreErrorKind;
use futures::StreamExt;
use http::header::ETAG;
use http::{HeaderMap, StatusCode};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Answers a request for the payload of a repository, if there is one of that name: its file, `<layer>.<form>`, and the query that signs for it.
pub async fn answer(
    node: &Node,
    record: &Arc<Record>,
    repository: Option<Arc<Repository>>,
    (file, query): (&str, &str),
    headers: &HeaderMap,
) -> Answer {
    let now = now(node);
    // What does not exist is not told from what is not signed.
    let signed = repository.and_then(|repository| {
        let signed = node.uris.check(repository.id(), file, query, now)?;
        Some((repository, signed))
    });
    let Some((repository, signed)) = signed else {
        return Answer::error(StatusCode::FORBIDDEN, "this link is not valid, or not any more");
    };
    let payload = match repository.payload(&signed.id).await {
        Ok(payload) => payload,
        Err(error) => return failure(record, &error),
    };
    let content_type = match signed.id.form {
        PayloadForm::Pack => "application/x-git-packed-objects",
        PayloadForm::Bundle => "application/x-git-bundle",
    };
    let asked = range::asked(headers, payload.size());
    // A place among the fetches: a payload takes as much memory while it is sent.
    let permit = node.fetches.clone().acquire_owned().await.ok();
    let sent = send(record, payload, asked, content_type, permit).await;
    sent.header(ETAG, &format!("\"{file}\""))
        .cacheable(signed.expires.saturating_sub(now))
}

async fn send(
    record: &Arc<Record>,
    payload: Payload,
    asked: Asked,
    content_type: &'static str,
    permit: Option<OwnedSemaphorePermit>,
) -> Answer {
    let size = payload.size();
    let (range, part) = match asked {
        Asked::Whole => (0..size, RangeOf::Whole),
        Asked::Part(range) => {
            let part = RangeOf::Part(range.start, range.end.saturating_sub(1), size);
            (range, part)
        }
        Asked::Beyond => {
            let answer = Answer::error(StatusCode::RANGE_NOT_SATISFIABLE, "range lies beyond the end");
            return answer.of_range(RangeOf::Beyond(size));
        }
    };
    let mut pieces = payload.stream(range.clone());
    // What cannot be read at all is to be an error, not an empty pack.
    let first = match pieces.next().await {
        Some(Err(error)) => return failure(record, &error),
        first => first,
    };
    let told = record.clone();
    let cut = move |error: EngineError| Cut(Answer::engine_text(&error, &told));
    let pieces = futures::stream::iter(first).chain(pieces).map(move |piece| {
        let _held = &permit;
        piece.map(Piece::from).map_err(&cut)
    });
    let len = range.end - range.start;
    Answer::ok(content_type, Content::Sized(pieces.boxed(), len)).of_range(part)
}

/// A payload that was collected is gone for good.
fn failure(record: &Record, error: &EngineError) -> Answer {
    match error {
        EngineError::Store(error) if error.kind() == StoreErrorKind::NotFound => {
            record.failed(&error.to_string());
            Answer::error(StatusCode::GONE, "this layer was merged into others long ago")
        }
        error => Answer::engine_error(error, record),
    }
}
