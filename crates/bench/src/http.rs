//! The least HTTP/1.1 client a load needs: one kept-alive connection, one request at a time, answers read in full.
//!
//! A general client costs as much as the server under test; this one costs two system calls a request.

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const READ_BYTES: usize = 64 << 10;
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Where requests go.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// `host:port`.
    pub(crate) address: String,
    /// The repository's path, without a slash at the end.
    pub(crate) path: String,
    /// Value of the `Authorization` header, sent without being asked for.
    authorization: Option<String>,
}

impl Target {
    /// Reads `http://[user:password@]host[:port]/path`.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let rest = url
            .strip_prefix("http://")
            .with_context(|| format!("'{url}' is not an http:// URL"))?;
        let (authority, path) = rest.split_once('/').context("the URL names no repository")?;
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let port = if host.contains(':') { "" } else { ":80" };
        Ok(Self {
            address: format!("{host}{port}"),
            path: format!("/{}", path.trim_end_matches('/')),
            authorization: user.map(|user| format!("Basic {}", base64(user.as_bytes()))),
        })
    }

    /// Appends the head of a request; `behind` is what follows the repository's path, `headers` are whole lines.
    pub(crate) fn write_head(&self, out: &mut Vec<u8>, method: &str, behind: &str, headers: &str) {
        let lines = [method, " ", &self.path, behind, " HTTP/1.1\r\nHost: ", &self.address];
        lines.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
        out.extend_from_slice(b"\r\nUser-Agent: git/cuesta-bench\r\n");
        if let Some(value) = &self.authorization {
            out.extend_from_slice(format!("Authorization: {value}\r\n").as_bytes());
        }
        out.extend_from_slice(headers.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0u32, |bits, index| {
            bits << 8 | u32::from(group.get(index).copied().unwrap_or(0))
        });
        for index in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * index) & 63) as usize];
            text.push(if index <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// A connection and the answer to its last request.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
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
    /// Connects; Nagle's algorithm is off, as in every Git client.
    pub(crate) async fn open(target: &Target) -> Result<Self> {
        let stream = TcpStream::connect(&target.address)
            .await
            .with_context(|| format!("cannot connect to '{}'", target.address))?;
        stream.set_nodelay(true)?;
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
        self.stream.write_all(request).await.context("cannot send")?;
        self.body.clear();
        let head = self.read_head().await?;
        match head.length {
            Length::Known(size) => self.take(size).await?,
            Length::Chunked => self.take_chunks().await?,
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

    async fn take(&mut self, mut size: usize) -> Result<()> {
        loop {
            let unread = self.input.get(self.at..).unwrap_or_default();
            let taken = unread.get(..size).unwrap_or(unread);
            self.body.extend_from_slice(taken);
            self.at += taken.len();
            size -= taken.len();
            if size == 0 {
                return Ok(());
            }
            self.fill().await?;
        }
    }

    async fn take_chunks(&mut self) -> Result<()> {
        loop {
            let line = self.read_line().await?;
            let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
            let size = usize::from_str_radix(std::str::from_utf8(digits)?.trim(), 16).context("bad chunk length")?;
            if size > 0 {
                self.take(size).await?;
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

    #[test]
    fn a_target_is_taken_apart() {
        let target = Target::parse("http://x:secret@localhost/a/b.git/").unwrap();
        assert_eq!(
            (target.address.as_str(), target.path.as_str()),
            ("localhost:80", "/a/b.git")
        );
        assert_eq!(target.authorization.as_deref(), Some("Basic eDpzZWNyZXQ="));
        assert!(Target::parse("https://localhost/a").is_err());
    }

    #[test]
    fn base64_pads() {
        let cases = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ];
        for (plain, coded) in cases {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    /// Answers in pieces of every size, so that each boundary falls everywhere.
    fn bodies(answers: &'static [u8], count: usize, piece: usize) -> Vec<Vec<u8>> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::parse(&format!("http://{}/r", listener.local_addr().unwrap())).unwrap();
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
}
