//! A link with a round-trip time and a bandwidth, between a client on this machine and a server on it: an object store next
//! door answers like one far away.
//!
//! Bytes are passed on unchanged and late. The bandwidth is each connection's own, as object stores have it. Requests without a
//! body, which is how objects are read, are noted as they pass.

use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

/// Bytes taken at once.
const CHUNK_LEN: usize = 64 << 10;
/// Chunks under way in one direction: more than delay and bandwidth can hold, so that only they slow the link.
const CHUNKS_MAX: usize = 256;

/// What a link does to its bytes.
#[derive(Clone, Debug)]
pub struct Link {
    /// From a request to the first byte of its answer, at least; half of it lies in each direction.
    pub round_trip: Duration,
    /// Of each connection, in each direction.
    pub bytes_per_second: u64,
    /// The requests seen so far.
    pub requests: Requests,
}

/// Requests in the order in which they came: when, and what was asked for.
pub type Requests = Arc<Mutex<Vec<(Instant, String)>>>;

impl Link {
    /// Leads from a free port, which is told, to `target`, in a thread of its own for as long as the process lives.
    pub fn start(&self, target: SocketAddr) -> Result<SocketAddr> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let link = self.clone();
        std::thread::Builder::new()
            .name("slow-link".to_owned())
            .spawn(move || {
                if let Err(error) = runtime.block_on(link.serve(listener, target)) {
                    eprintln!("the link broke: {error:#}");
                }
            })?;
        Ok(address)
    }

    async fn serve(self, listener: std::net::TcpListener, target: SocketAddr) -> Result<()> {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let (near, _) = listener.accept().await.context("cannot accept")?;
            // Either end may go at any time: nothing to report.
            let link = self.clone();
            tokio::spawn(async move { link.join(near, target).await });
        }
    }

    async fn join(&self, near: TcpStream, target: SocketAddr) -> Result<()> {
        // A connection takes a round trip to be made.
        sleep(self.round_trip).await;
        let far = TcpStream::connect(target).await?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
        tokio::try_join!(self.carry(near_in, far_out), self.carry(far_in, near_out))?;
        Ok(())
    }

    /// Passes everything on, to the end.
    async fn carry(&self, mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> Result<()> {
        let (chunks, mut under_way) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
        let reader = async {
            let chunks = chunks;
            let mut pace = Pace { link: self, free: None };
            loop {
                let mut chunk = Vec::with_capacity(CHUNK_LEN);
                if from.read_buf(&mut chunk).await? == 0 {
                    return anyhow::Ok(());
                }
                let now = now();
                if let Some(request) = request(&chunk) {
                    self.requests
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((now, request));
                }
                let arrives = pace.arrival(now, chunk.len());
                if chunks.send((arrives, chunk)).await.is_err() {
                    return Ok(());
                }
            }
        };
        let writer = async {
            while let Some((arrives, chunk)) = under_way.recv().await {
                sleep_until(arrives).await;
                to.write_all(&chunk).await?;
            }
            to.shutdown().await?;
            anyhow::Ok(())
        };
        tokio::try_join!(reader, writer)?;
        Ok(())
    }
}

fn now() -> Instant {
    Instant::from_std(crate::now())
}

/// What is asked for, if these bytes are a request that reads something.
fn request(bytes: &[u8]) -> Option<String> {
    if !bytes.starts_with(b"GET ") && !bytes.starts_with(b"HEAD ") {
        return None;
    }
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    let target = lines.next()?.trim_end_matches(" HTTP/1.1").to_owned();
    let range = lines.find_map(|line| line.to_ascii_lowercase().strip_prefix("range: ").map(str::to_owned));
    Some(format!("{target} {}", range.unwrap_or_default()))
}

/// When bytes get to the other end of one direction.
struct Pace<'a> {
    link: &'a Link,
    /// When the last byte taken so far has left this end.
    free: Option<Instant>,
}

impl Pace<'_> {
    fn arrival(&mut self, now: Instant, len: usize) -> Instant {
        let begins = self.free.map_or(now, |free| free.max(now));
        let takes = Duration::from_secs_f64(len as f64 / self.link.bytes_per_second as f64);
        let leaves = begins + takes;
        self.free = Some(leaves);
        leaves + self.link.round_trip / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn bytes_arrive_by_bandwidth_and_distance() {
        let link = Link {
            round_trip: Duration::from_millis(30),
            bytes_per_second: 1000,
            requests: Requests::default(),
        };
        let mut pace = Pace {
            link: &link,
            free: None,
        };
        let start = now();
        let at = |milliseconds: u64| start + Duration::from_millis(milliseconds);
        assert_eq!(pace.arrival(start, 100), at(100 + 15));
        assert_eq!(pace.arrival(start, 100), at(200 + 15), "behind the first");
        assert_eq!(
            pace.arrival(at(500), 100),
            at(600 + 15),
            "an idle link saves nothing up"
        );
    }

    #[test]
    fn everything_arrives_in_both_directions_and_ends() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = server.local_addr().unwrap();
        let echo = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            stream.write_all(&all).unwrap();
        });
        let link = Link {
            round_trip: Duration::from_millis(2),
            bytes_per_second: 1 << 30,
            requests: Requests::default(),
        };
        let mut client = std::net::TcpStream::connect(link.start(target).unwrap()).unwrap();
        let head = b"GET /b/k HTTP/1.1\r\nHost: h\r\nRange: bytes=1-2\r\n\r\n";
        let sent: Vec<u8> = (0..500_000u32).map(|number| (number % 251) as u8).collect();
        let sent = [&head[..], &sent].concat();
        client.write_all(&sent).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut back = Vec::new();
        client.read_to_end(&mut back).unwrap();
        assert!(back == sent);
        let requests = link.requests.lock().unwrap();
        assert!(
            matches!(&requests[..], [(_, what), ..] if what == "GET /b/k bytes=1-2"),
            "{requests:?}"
        );
        echo.join().unwrap();
    }
}
