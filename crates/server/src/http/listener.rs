//! Connections: accepted up to a limit, each with its own task, ended in good order.

use super::front::{self, Connection};
use super::opening::Opening;
use super::stall_guard::StallGuard;
use crate::accept::accept;
use crate::node::Node;
use crate::tls::Tls;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Time for a request's head, idle time of a kept-alive connection included.
const HEAD_TIME_MAX: Duration = Duration::from_secs(60);
/// Silence on an HTTP/2 connection after which the client is asked whether it is still there, and how long it may take to
/// say so.
const PING_INTERVAL: Duration = Duration::from_secs(60);
const PING_TIME_MAX: Duration = Duration::from_secs(20);
/// Bytes of one connection's read buffer: a request's head must fit.
const READ_BUFFER_LEN_MAX: usize = 128 << 10;
/// Requests at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 64;
/// How long a client may read nothing of an answer.
const STALL_MAX: Duration = Duration::from_secs(120);

/// Serves until `stop`, then lets requests in flight end for as long as the settings allow. Says whether all did.
pub async fn serve(node: Arc<Node>, listener: TcpListener, tls: Option<Tls>, stop: impl Future<Output = ()>) -> bool {
    let tls = tls.map(Arc::new);
    let graceful = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(node.settings.connections_max));
    let builder = Arc::new(builder());
    tokio::pin!(stop);
    loop {
        let (slot, stream, remote) = tokio::select! {
            () = &mut stop => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        node.metrics.connection_opened();
        let (tls, watcher) = (tls.clone(), graceful.watcher());
        let connection = Connection {
            remote,
            encrypted: tls.is_some(),
        };
        let served = Served {
            node: node.clone(),
            builder: builder.clone(),
            connection,
            watcher,
        };
        tokio::spawn(async move {
            let _slot = slot;
            served.accept(stream, tls).await;
        });
    }
    drop(listener);
    let limit = Duration::from_secs(node.settings.drain_seconds_max);
    tokio::time::timeout(limit, graceful.shutdown()).await.is_ok()
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(READ_BUFFER_LEN_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIME_MAX)
        .max_concurrent_streams(STREAMS_MAX);
    builder
}

/// One connection, on its way to be served.
struct Served {
    node: Arc<Node>,
    builder: Arc<Builder<TokioExecutor>>,
    connection: Connection,
    watcher: hyper_util::server::graceful::Watcher,
}

impl Served {
    async fn accept(self, stream: TcpStream, tls: Option<Arc<Tls>>) {
        let Some(tls) = tls else {
            return self.serve(stream).await;
        };
        match tls.accept(stream).await {
            Ok(stream) => self.serve(stream).await,
            Err(error) => tracing::debug!(error = ?error.to_string(), "no TLS connection"),
        }
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: S) {
        let Self {
            node,
            builder,
            connection,
            watcher,
        } = self;
        let service = service_fn(move |request| {
            let node = node.clone();
            async move { Ok::<_, Infallible>(front::respond(node, connection, request).await) }
        });
        let stream = Opening::of(StallGuard::new(stream, STALL_MAX), HEAD_TIME_MAX);
        let served = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        if let Err(error) = watcher.watch(served).await {
            tracing::debug!(error = ?error.to_string(), "connection ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Response;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const MOMENT: Duration = Duration::from_millis(1);

    /// What a client gets that sends a head in two pieces with a pause between them.
    async fn answer_after(pause: Duration) -> Vec<u8> {
        let (near, mut far) = tokio::io::duplex(1 << 10);
        let service = service_fn(|_| async { Ok::<_, Infallible>(Response::new(String::new())) });
        let stream = TokioIo::new(Opening::of(near, HEAD_TIME_MAX));
        tokio::spawn(builder().serve_connection(stream, service).into_owned());
        far.write_all(b"GET / HTTP/1.1\r\nConnection: close\r\n").await.unwrap();
        tokio::time::sleep(pause).await;
        // Nobody may be there to read it.
        let _ = far.write_all(b"\r\n").await;
        let mut answer = Vec::new();
        far.read_to_end(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_its_time() {
        let answer = answer_after(HEAD_TIME_MAX - MOMENT).await;
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", answer.escape_ascii());
        let late = answer_after(HEAD_TIME_MAX + MOMENT).await;
        assert!(!late.starts_with(b"HTTP/1.1 200"), "{}", late.escape_ascii());
    }
}
