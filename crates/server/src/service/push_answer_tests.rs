use super::super::input::Input;
use super::*;
use crate::http::record::RequestId;
use crate::http::request_body::RequestBody;
use crate::http::response_body::ResponseBody;
use cuesta_store::{Bucket, BucketOptions};
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// What a push takes once it has come, in seconds.
const WORK_SECONDS: u64 = 23;

fn record() -> Arc<Record> {
    let bucket = Bucket::open("memory:", &BucketOptions::default()).unwrap();
    Arc::new(Record::new(RequestId(1), Method::POST, Arc::default(), bucket))
}

/// A form for a client with a side-band.
fn form(listens: Arc<AtomicBool>, keep_alive: Option<Duration>) -> PushForm {
    PushForm {
        capabilities: PushCapabilities {
            side_band: true,
            ..PushCapabilities::default()
        },
        progress: mpsc::channel(1).1,
        listens,
        keep_alive,
    }
}

#[tokio::test(start_paused = true)]
async fn a_push_does_not_wait_for_its_client_to_read() {
    let (done, ended) = oneshot::channel();
    let work = Unstoppable::new(async {
        sleep(Duration::from_secs(60)).await;
        done.send(()).unwrap();
        Report::refusal([], "")
    });
    let form = form(Arc::new(AtomicBool::new(true)), Some(Duration::from_secs(5)));
    let answer = send(work, form, record()).await;
    let ended = timeout(Duration::from_secs(600), ended).await;
    assert_eq!(ended, Ok(Ok(())), "the push stood still");
    drop(answer);
}

/// Reads all of a push, works for long, and refuses it.
async fn answer(request: Request<Incoming>, keep_alive: Option<Duration>) -> Response<ResponseBody> {
    let (parts, body) = request.into_parts();
    let mut pack = Input::body(RequestBody::new(body, &parts.headers, Arc::default()).unwrap());
    let form = form(pack.listens(), keep_alive);
    let work = Unstoppable::new(async move {
        if parts.uri.path() == "/pack" {
            while pack.chunk().await.unwrap().is_some() {}
        } else {
            pack.drain(1 << 20).await;
        }
        sleep(Duration::from_secs(WORK_SECONDS)).await;
        Report::refusal([], "")
    });
    let record = record();
    send(work, form, record.clone()).await.into_response(record)
}

/// A connection to a server that answers as [`answer`] does.
fn connect(keep_alive: Option<Duration>) -> DuplexStream {
    let (ours, theirs) = duplex(1 << 16);
    let service = service_fn(move |request| async move { Ok::<_, Infallible>(answer(request, keep_alive).await) });
    tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(theirs), service));
    ours
}

/// Over HTTP nothing is said before the request is whole, for its client does not read yet; from then on silence is broken.
#[tokio::test(start_paused = true)]
async fn the_client_of_a_long_push_hears_of_it_once_it_has_sent_everything() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    for (path, keep_alive, packets) in [
        ("/pack", seconds(5), 4),
        ("/none", seconds(5), 4),
        ("/pack", seconds(10), 2),
        ("/pack", seconds(WORK_SECONDS * 2), 0),
        ("/pack", None, 0),
    ] {
        let mut connection = connect(keep_alive);
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\nConnection: close\r\n\r\nhalf");
        connection.write_all(head.as_bytes()).await.unwrap();
        let early = timeout(Duration::from_secs(101), connection.read_u8()).await;
        assert!(early.is_err(), "an answer to half a request: {early:?}");
        connection.write_all(b"half").await.unwrap();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.unwrap();
        let heard = answer.windows(KEEP_ALIVE.len()).filter(|part| part == KEEP_ALIVE);
        assert_eq!(
            heard.count(),
            packets,
            "{path}, {keep_alive:?}: {}",
            answer.escape_ascii()
        );
        assert!(answer.starts_with(b"HTTP/1.1 200 "));
    }
}
