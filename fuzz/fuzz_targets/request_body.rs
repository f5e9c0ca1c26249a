//! Any bytes as a gzip'd request body: an error or bytes within the limit, the same however they are cut.

#![no_main]

use bytes::Bytes;
use cuesta_server::http::request_body::RequestBody;
use http::{HeaderMap, HeaderValue, header::CONTENT_ENCODING};
use http_body_util::StreamBody;
use hyper::body::Frame;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use tokio::runtime::{Builder, Runtime};

const LEN_MAX: usize = 1 << 20;

/// A body has a clock, for clients that stop sending.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_time().build().expect("a runtime"));

fuzz_target!(|data: &[u8]| {
    let whole = inflated(data, data.len());
    assert!(whole.as_ref().is_none_or(|bytes| bytes.len() <= LEN_MAX));
    assert_eq!(inflated(data, 3), whole);
});

fn inflated(data: &[u8], chunk: usize) -> Option<Bytes> {
    let frames = data.chunks(chunk.max(1)).map(|chunk| Ok::<_, String>(Frame::data(Bytes::copy_from_slice(chunk))));
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    let body = StreamBody::new(futures::stream::iter(frames.collect::<Vec<_>>()));
    let mut body = RequestBody::new(body, &headers, Default::default()).ok()?;
    RUNTIME.block_on(body.collect(LEN_MAX)).ok()
}
