//! One connection: a request, the conversation that it asks for, and an end that the client gets to read.

use crate::access::Identity;
use crate::http::front::Transport;
use crate::leash::Leashed;
use crate::login::Login;
use crate::node::Node;
use crate::service::conversation::{self, Errand, Gone, Outlet, Stop, repository_of};
use crate::service::input::ByteStream;
use bytes::{Buf, Bytes, BytesMut};
use cuesta_protocol::git_transport::GitRequest;
use cuesta_protocol::pktline::{self, Decoder, Packet};
use cuesta_protocol::{Program, ProtocolError};
use http::StatusCode;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, WriteHalf};
use tokio::sync::{mpsc, watch};

/// Time for the request to be there, whole.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a client may go on sending after the last answer, so that it gets to read it.
const LINGER_MAX: Duration = Duration::from_secs(5);
/// Bytes read at once, and such chunks that wait for a service.
const CHUNK_LEN_MAX: usize = 32 << 10;
const CHUNKS_HELD_MAX: usize = 4;
/// What git-daemon says of what it does not serve, whether it is there or not.
const NOT_EXPORTED: &str = "access denied or repository not exported";
const NOT_ENABLED: &str = "service not enabled";

/// Serves a connection to its end. `login` is its place among those that have not said yet what they want.
/// Once `stopped`, requests that are not there yet do not come any more.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send>(
    node: Arc<Node>,
    stream: Leashed<S>,
    login: Login,
    mut stopped: watch::Receiver<bool>,
) {
    let (mut reader, writer) = tokio::io::split(stream);
    let opening = tokio::select! {
        opening = opening(&mut reader) => opening,
        _ = stopped.wait_for(|stopped| *stopped) => return,
    };
    drop(login);
    let (request, rest) = match opening {
        Ok(opening) => opening,
        // As git-daemon does: whoever speaks something else is told nothing.
        Err(error) => return tracing::debug!(error = ?error.to_string(), "no request over git://"),
    };
    let (chunks, stream) = mpsc::channel(CHUNKS_HELD_MAX);
    let mut output = Output(writer);
    let mut pump = pin!(pump(reader, rest, chunks));
    let sends_more = {
        let mut respond = pin!(respond(node, request, ByteStream::new(stream), &mut output));
        tokio::select! {
            () = &mut respond => true,
            sent = &mut pump => match sent {
                // It has sent all it had, and waits for the answer.
                Ok(()) => {
                    respond.await;
                    false
                }
                Err(Gone) => return,
            },
        }
    };
    output.close().await;
    if sends_more {
        // Whatever comes of it: after this time the connection is closed.
        let _ = tokio::time::timeout(LINGER_MAX, pump).await;
    }
}

/// Reads the request, and what came behind it, in time.
async fn opening(reader: &mut (impl AsyncRead + Unpin)) -> Result<(GitRequest, Bytes), ProtocolError> {
    let opening = tokio::time::timeout(REQUEST_TIME_MAX, read_opening(reader)).await;
    opening.unwrap_or(Err(ProtocolError::Truncated))
}

async fn read_opening(reader: &mut (impl AsyncRead + Unpin)) -> Result<(GitRequest, Bytes), ProtocolError> {
    let mut decoder = Decoder::new();
    let packet: Packet = loop {
        if let Some(packet) = decoder.poll()? {
            break packet;
        }
        match chunk(reader).await {
            Some(bytes) if !bytes.is_empty() => decoder.push(&bytes),
            _ => return Err(ProtocolError::Truncated),
        }
    };
    Ok((GitRequest::parse(&packet)?, decoder.into_rest()))
}

/// The next bytes: none at the end, nothing where there is nobody any more.
async fn chunk(reader: &mut (impl AsyncRead + Unpin)) -> Option<Bytes> {
    let mut buffer = BytesMut::with_capacity(CHUNK_LEN_MAX);
    reader.read_buf(&mut buffer).await.ok()?;
    Some(buffer.freeze())
}

/// Passes on what the client sends, until it has sent all. What nobody wants is forgotten.
async fn pump(mut reader: impl AsyncRead + Unpin, rest: Bytes, chunks: mpsc::Sender<Bytes>) -> Result<(), Gone> {
    let mut chunks = Some(chunks);
    let mut next = rest;
    loop {
        if let Some(wanted) = &chunks
            && wanted.send(next).await.is_err()
        {
            chunks = None;
        }
        next = chunk(&mut reader).await.ok_or(Gone)?;
        if next.is_empty() {
            return Ok(());
        }
    }
}

/// Does what the request asks for, or says why not.
async fn respond<S: AsyncWrite + Send>(
    node: Arc<Node>,
    request: GitRequest,
    stream: ByteStream,
    output: &mut Output<S>,
) {
    let why = match run(node, &request, stream, output).await {
        Ok(()) | Err(Stop::Told | Stop::HungUp(_) | Stop::Cut(_) | Stop::Gone) => return,
        Err(Stop::NotAdmitted(_) | Stop::Refused(StatusCode::NOT_FOUND, _)) => NOT_EXPORTED.to_owned(),
        Err(Stop::Refused(StatusCode::FORBIDDEN, _)) => NOT_ENABLED.to_owned(),
        Err(Stop::Refused(_, text)) => text,
    };
    let mut error = Vec::new();
    let path = String::from_utf8_lossy(&request.path);
    pktline::encode_error(&mut error, &format!("{why}: {path}"));
    // Whoever has gone does not ask why.
    let _ = output.send(&mut Bytes::from(error)).await;
}

async fn run<S: AsyncWrite + Send>(
    node: Arc<Node>,
    request: &GitRequest,
    stream: ByteStream,
    output: &mut Output<S>,
) -> Result<(), Stop> {
    if request.program == Program::ReceivePack {
        return Err(refused(&node, request.program, StatusCode::FORBIDDEN, NOT_ENABLED));
    }
    let is_absolute = matches!(request.path.first(), Some(b'/' | b'~'));
    let Some(name) = repository_of(&request.path).filter(|_| is_absolute) else {
        return Err(refused(&node, request.program, StatusCode::NOT_FOUND, NOT_EXPORTED));
    };
    let identity = if node.gate.checks() {
        Identity::Anonymous
    } else {
        Identity::Unchecked
    };
    let errand = Errand {
        node,
        identity,
        transport: Transport::Git,
        name,
        program: request.program,
        version: request.version,
    };
    conversation::run(errand, stream, output).await
}

/// Notes a request that leads to no repository.
fn refused(node: &Node, program: Program, status: StatusCode, why: &str) -> Stop {
    let record = conversation::record(node, Transport::Git);
    record.is_for(conversation::endpoint(Transport::Git, program), None);
    record.answers(status);
    record.failed(why);
    record.close(true);
    Stop::Refused(status, why.to_owned())
}

/// The sending half of a connection.
struct Output<S>(WriteHalf<S>);

impl<S: AsyncWrite + Send> Outlet for Output<S> {
    async fn send(&mut self, bytes: &mut (impl Buf + Send)) -> Result<(), Gone> {
        self.0.write_all_buf(bytes).await.map_err(|_| Gone)
    }
}

impl<S: AsyncWrite> Output<S> {
    /// Says that nothing more comes.
    async fn close(&mut self) {
        // Whoever has gone needs no farewell.
        let _ = self.0.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::DuplexStream;

    const REQUEST: &[u8] = b"0016git-upload-pack /a0000";

    /// What is read of a client that sends these pieces and then stays silent.
    async fn read(pieces: &[&[u8]]) -> Result<(GitRequest, Bytes), ProtocolError> {
        let (near, mut far) = tokio::io::duplex(1 << 17);
        for piece in pieces {
            far.write_all(piece).await.unwrap();
        }
        let (mut near, _far): (_, DuplexStream) = (near, far);
        opening(&mut near).await
    }

    #[tokio::test]
    async fn what_comes_with_the_request_is_kept() {
        for at in 0..=REQUEST.len() {
            let (one, other) = REQUEST.split_at(at);
            let (request, rest) = read(&[one, other]).await.unwrap();
            assert_eq!((request.program, &request.path[..]), (Program::UploadPack, &b"/a"[..]));
            assert_eq!(&rest[..], b"0000");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_has_its_time() {
        let moment = Duration::from_millis(1);
        for (pause, in_time) in [(REQUEST_TIME_MAX - moment, true), (REQUEST_TIME_MAX + moment, false)] {
            let (mut near, mut far) = tokio::io::duplex(1 << 10);
            let late = async {
                far.write_all(&REQUEST[..10]).await.unwrap();
                tokio::time::sleep(pause).await;
                far.write_all(&REQUEST[10..]).await.unwrap();
            };
            let (read, ()) = tokio::join!(opening(&mut near), late);
            assert_eq!(read.is_ok(), in_time, "{pause:?}");
        }
    }

    #[tokio::test]
    async fn a_request_is_one_packet_and_has_its_length() {
        let long = |len: usize| {
            format!(
                "{len:04x}git-upload-pack /{}",
                "a".repeat(len - "0000git-upload-pack /".len())
            )
        };
        for len in [pktline::PACKET_MAX - 1, pktline::PACKET_MAX] {
            assert!(read(&[long(len).as_bytes()]).await.is_ok(), "{len}");
        }
        assert!(read(&[long(pktline::PACKET_MAX + 1).as_bytes()]).await.is_err());
        for other in [
            &b"0000"[..],
            b"0001",
            b"0003",
            b"0004",
            b"zzzz",
            b"GET / HTTP/1.1\r\n\r\n",
        ] {
            assert!(read(&[other]).await.is_err(), "{}", other.escape_ascii());
        }
    }
}
