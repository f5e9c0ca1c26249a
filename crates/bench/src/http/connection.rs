//! A kept-alive connection.

use super::target::{Stream, Target};
use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const READ_BYTES: usize = 64 << 10;
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Takes the body of an answer as it arrives.
pub(crate) trait Sink: Send {
    /// Takes the next bytes, of which there may be any number.
    fn take(&mut self, bytes: &[u8]) -> Result<()>;
}

impl Sink for Vec<u8> {
    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        self.extend_from_slice(bytes);
        Ok(())
    }
}

/// A connection and the answer to its last request.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    /// Bytes read; those before `at` are done with.
    input: Vec<u8>,
    at: usize,
    body: Vec<u8>,
    /// Bytes that came over the connection so far.
    pub(crate) received_bytes: u64,
}

enum Length {
    Known(usize),
    Chunked,
    UntilClosed,
}

struct Head {
    status: u16,
    length: Length,
}

impl Connection {
    /// Connects.
    pub(crate) async fn open(target: &Target) -> Result<Self> {
        let stream = target.connect().await?;
        Ok(Self {
            stream,
            input: Vec::with_capacity(READ_BYTES),
            at: 0,
            body: Vec::new(),
            received_bytes: 0,
        })
    }

    /// Sends a whole request and reads the whole answer: its status; the body is then in [`body`](Self::body).
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<u16> {
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        let status = self.exchange_into(request, &mut body).await;
        self.body = body;
        status
    }

    /// The same, but for the body, which goes to `sink`.
    pub(crate) async fn exchange_into(&mut self, request: &[u8], sink: &mut dyn Sink) -> Result<u16> {
        self.stream.write_all(request).await.context("cannot send")?;
        // A TLS stream keeps what it has encrypted until it is told.
        self.stream.flush().await.context("cannot send")?;
        let head = self.read_head().await?;
        let mut refusal = Vec::new();
        let sink = if head.status == 200 { sink } else { &mut refusal };
        match head.length {
            Length::Known(size) => self.take(size, sink).await?,
            Length::Chunked => self.take_chunks(sink).await?,
            Length::UntilClosed => bail!("an answer without a length"),
        }
        Ok(head.status)
    }

    /// The body of the last answer.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    async fn read_head(&mut self) -> Result<Head> {
        loop {
            let unread = self.input.get(self.at..).unwrap_or_default();
            if let Some(end) = memchr::memmem::find(unread, b"\r\n\r\n") {
                let head = parse_head(unread.get(..end).unwrap_or_default())?;
                self.at += end + 4;
                return Ok(head);
            }
            ensure!(unread.len() < HEAD_BYTES_MAX, "the answer's head does not end");
            self.fill().await?;
        }
    }

    async fn take(&mut self, mut size: usize, sink: &mut dyn Sink) -> Result<()> {
        loop {
            let unread = self.input.get(self.at..).unwrap_or_default();
            let taken = unread.get(..size).unwrap_or(unread);
            sink.take(taken)?;
            self.at += taken.len();
            size -= taken.len();
            if size == 0 {
                return Ok(());
            }
            self.fill().await?;
        }
    }

    async fn take_chunks(&mut self, sink: &mut dyn Sink) -> Result<()> {
        loop {
            let line = self.read_line().await?;
            let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
            let size = usize::from_str_radix(std::str::from_utf8(digits)?.trim(), 16).context("bad chunk length")?;
            if size > 0 {
                self.take(size, sink).await?;
            }
            let behind = self.read_line().await?;
            ensure!(behind.is_empty(), "a chunk is longer than it says");
            if size == 0 {
                return Ok(());
            }
        }
    }

    async fn read_line(&mut self) -> Result<Vec<u8>> {
        loop {
            let unread = self.input.get(self.at..).unwrap_or_default();
            if let Some(end) = memchr::memchr(b'\n', unread) {
                let line = unread.get(..end).unwrap_or_default();
                let line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
                self.at += end + 1;
                return Ok(line);
            }
            self.fill().await?;
        }
    }

    /// Reads more; what is done with makes room first.
    async fn fill(&mut self) -> Result<()> {
        self.input.drain(..self.at);
        self.at = 0;
        self.input.reserve(READ_BYTES);
        let count = self.stream.read_buf(&mut self.input).await.context("cannot receive")?;
        ensure!(count > 0, "the server closed the connection");
        self.received_bytes += count as u64;
        Ok(())
    }
}

fn parse_head(head: &[u8]) -> Result<Head> {
    let head = std::str::from_utf8(head).context("the answer's head is not text")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let mut parsed = Head {
        status: status.and_then(|status| status.parse().ok()).context("not HTTP")?,
        length: Length::UntilClosed,
    };
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            parsed.length = Length::Known(value.trim().parse().context("bad content-length")?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            parsed.length = Length::Chunked;
        }
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    /// Answers in pieces of every size, so that each boundary falls everywhere.
    fn bodies(answers: &'static [u8], count: usize, piece: usize) -> Vec<Vec<u8>> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::parse(&format!("http://{}/r", listener.local_addr().unwrap()), None).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 1]).unwrap();
            for bytes in answers.chunks(piece) {
                stream.write_all(bytes).unwrap();
            }
            // Closing with requests unread would reset the connection under the answers.
            stream.read_to_end(&mut Vec::new()).unwrap();
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let read = runtime.block_on(async {
            let mut connection = Connection::open(&target).await.unwrap();
            let mut read = Vec::new();
            for _ in 0..count {
                assert_eq!(connection.exchange(b"?").await.unwrap(), 200);
                read.push(connection.body().to_vec());
            }
            read
        });
        server.join().unwrap();
        read
    }

    #[test]
    fn both_framings_are_read_however_they_arrive() {
        let answers = b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r\n\r\nfirst\
            HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nsec\r\nA;x\r\nond 567890\r\n0\r\n\r\n\
            HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        for piece in [1, 2, 3, 7, 64, 1000] {
            assert_eq!(
                bodies(answers, 3, piece),
                [&b"first"[..], b"second 567890", b""],
                "pieces of {piece}"
            );
        }
    }

    /// A server with the certificate of `testdata`, which is its own authority, answers one request.
    #[test]
    fn https_is_spoken_with_those_who_are_trusted() {
        use rustls::pki_types::pem::PemObject as _;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
        let authorities = data.join("certificate.pem");
        let certificate = CertificateDer::from_pem_file(&authorities).unwrap();
        let key = PrivateKeyDer::from_pem_file(data.join("key.pem")).unwrap();
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let Ok(mut stream) = acceptor.accept(stream).await else {
                        continue;
                    };
                    stream.read_exact(&mut [0; 1]).await.unwrap();
                    stream
                        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret")
                        .await
                        .unwrap();
                    stream.flush().await.unwrap();
                }
            });
            let target = Target::parse(&format!("https://127.0.0.1:{port}/r"), Some(&authorities)).unwrap();
            let mut connection = Connection::open(&target).await.unwrap();
            assert_eq!(connection.exchange(b"?").await.unwrap(), 200);
            assert_eq!(connection.body(), b"secret");
            let other_name = Target::parse(&format!("https://127.0.0.2:{port}/r"), Some(&authorities)).unwrap();
            assert!(Connection::open(&other_name).await.is_err());
        });
    }
}
