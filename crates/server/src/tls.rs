//! TLS on the listening side: a certificate and its key from files, read again when they change.

use cuesta_store::{Clock, Workers};
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Time for a handshake.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// How old what is known of the files may be when a connection comes.
const CHECK_MS: i64 = 1_000;
/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Accepts TLS connections.
pub struct Tls {
    files: Files,
    acceptor: TlsAcceptor,
    current: Arc<Current>,
    clock: Clock,
    workers: Workers,
    checked_ms: AtomicI64,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file could not be read.
    #[error("cannot read '{}': {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("'{}' {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The two files do not go together.
    #[error("cannot use the certificate with its key: {0}")]
    Pair(rustls::Error),
}

/// The two files; what they hold is compared, not when they were written.
#[derive(Clone)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

/// The bytes of the two files.
#[derive(Clone, PartialEq, Eq)]
struct Pair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// The certificate that handshakes get.
struct Current(Mutex<(Arc<CertifiedKey>, Pair)>);

impl Tls {
    /// Reads the files, which must be good.
    pub fn open(certificate: &Path, key: &Path, clock: Clock, workers: Workers) -> Result<Self, TlsError> {
        let files = Files {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        };
        let pair = files.read()?;
        let current = Arc::new(Current(Mutex::new((files.certified(&pair)?, pair))));
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Pair)?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            files,
            acceptor: Arc::new(config).into(),
            current,
            checked_ms: AtomicI64::new(clock.now_ms()),
            clock,
            workers,
        })
    }

    /// Shakes hands, with the certificate of this moment.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> std::io::Result<TlsStream<S>> {
        self.refresh().await;
        match tokio::time::timeout(HANDSHAKE_TIME_MAX, self.acceptor.accept(stream)).await {
            Ok(accepted) => accepted,
            Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
        }
    }

    /// Looks at the files if nobody has for a while. New ones that are no good change nothing; they are tried again.
    async fn refresh(&self) {
        let (now_ms, checked_ms) = (self.clock.now_ms(), self.checked_ms.load(Ordering::Relaxed));
        let is_due = now_ms.saturating_sub(checked_ms) >= CHECK_MS;
        let claim = || {
            let swapped = self
                .checked_ms
                .compare_exchange(checked_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed);
            swapped.is_ok()
        };
        if !is_due || !claim() {
            return;
        }
        let (files, current) = (self.files.clone(), self.current.clone());
        match self.workers.run(move || current.renew(&files)).await {
            Ok(false) => {}
            Ok(true) => tracing::info!("the certificate was read again"),
            Err(error) => tracing::warn!(error = ?error.to_string(), "keeping the old certificate"),
        }
    }
}

impl Files {
    fn read(&self) -> Result<Pair, TlsError> {
        Ok(Pair {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
        })
    }

    fn certified(&self, pair: &Pair) -> Result<Arc<CertifiedKey>, TlsError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pair.certificate).collect();
        let chain = chain.map_err(|error| content(&self.certificate, format!("is no PEM file: {error}")))?;
        if chain.is_empty() {
            return Err(content(&self.certificate, "holds no certificate".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_slice(&pair.key)
            .map_err(|error| content(&self.key, format!("holds no private key: {error}")))?;
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider());
        certified.map(Arc::new).map_err(TlsError::Pair)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(bytes),
        Err(source) => Err(TlsError::Unreadable {
            path: path.to_owned(),
            source,
        }),
    }
}

fn content(path: &Path, what: String) -> TlsError {
    TlsError::Content {
        path: path.to_owned(),
        what,
    }
}

impl Current {
    /// Takes over what the files hold, if it is new and good.
    fn renew(&self, files: &Files) -> Result<bool, TlsError> {
        let pair = files.read()?;
        if self.0.lock().1 == pair {
            return Ok(false);
        }
        let certified = files.certified(&pair)?;
        *self.0.lock() = (certified, pair);
        Ok(true)
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.lock().0.clone())
    }
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Current(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    const FIRST: [&str; 2] = [
        include_str!("../tests/tls/first.crt"),
        include_str!("../tests/tls/first.key"),
    ];
    const SECOND: [&str; 2] = [
        include_str!("../tests/tls/second.crt"),
        include_str!("../tests/tls/second.key"),
    ];

    struct Directory(tempfile::TempDir);

    impl Directory {
        fn put(&self, [certificate, key]: [&str; 2]) {
            std::fs::write(self.path("crt"), certificate).unwrap();
            std::fs::write(self.path("key"), key).unwrap();
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn open(&self, clock: Clock) -> Result<Tls, TlsError> {
            Tls::open(&self.path("crt"), &self.path("key"), clock, Workers::Inline)
        }
    }

    fn shown(tls: &Tls) -> Vec<u8> {
        tls.current.0.lock().0.end_entity_cert().unwrap().to_vec()
    }

    fn der(pem: &str) -> Vec<u8> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
    }

    #[tokio::test(start_paused = true)]
    async fn a_handshake_has_its_time() {
        let directory = Directory(tempfile::tempdir().unwrap());
        directory.put(FIRST);
        let tls = directory.open(Clock::system()).unwrap();
        let moment = Duration::from_millis(1);
        for (pause, late) in [
            (HANDSHAKE_TIME_MAX - moment, false),
            (HANDSHAKE_TIME_MAX + moment, true),
        ] {
            let (near, mut far) = tokio::io::duplex(1 << 10);
            let hello = async {
                tokio::time::sleep(pause).await;
                // No hello, which is an error of its own. Nobody may be there to read it.
                let _ = far.write_all(b"GET / HTTP/1.1\r\n\r\n").await;
            };
            let (accepted, ()) = tokio::join!(tls.accept(near), hello);
            let is_late = accepted.unwrap_err().kind() == std::io::ErrorKind::TimedOut;
            assert_eq!(is_late, late, "{pause:?}");
        }
    }

    #[tokio::test]
    async fn a_changed_certificate_is_read_again_and_a_bad_one_is_not_taken() {
        let directory = Directory(tempfile::tempdir().unwrap());
        directory.put(FIRST);
        let time = Arc::new(AtomicI64::new(0));
        let now = time.clone();
        let tls = directory.open(Clock::new(move || now.load(Ordering::Relaxed))).unwrap();
        assert_eq!(shown(&tls), der(FIRST[0]));
        let later = async || {
            time.fetch_add(CHECK_MS, Ordering::Relaxed);
            tls.refresh().await;
        };
        directory.put(SECOND);
        tls.refresh().await;
        assert_eq!(shown(&tls), der(FIRST[0]), "looked at already");
        later().await;
        assert_eq!(shown(&tls), der(SECOND[0]));
        for bad in [[FIRST[0], SECOND[1]], ["", FIRST[1]], [FIRST[0], "x"]] {
            directory.put(bad);
            later().await;
            assert_eq!(shown(&tls), der(SECOND[0]));
        }
        std::fs::remove_file(directory.path("key")).unwrap();
        later().await;
        assert_eq!(shown(&tls), der(SECOND[0]));
        directory.put(FIRST);
        later().await;
        assert_eq!(shown(&tls), der(FIRST[0]));
    }

    #[tokio::test]
    async fn a_bad_pair_is_refused_at_the_start() {
        let directory = Directory(tempfile::tempdir().unwrap());
        assert!(matches!(
            directory.open(Clock::system()),
            Err(TlsError::Unreadable { .. })
        ));
        directory.put([FIRST[0], SECOND[1]]);
        assert!(matches!(directory.open(Clock::system()), Err(TlsError::Pair(_))));
        directory.put([FIRST[1], FIRST[1]]);
        assert!(matches!(directory.open(Clock::system()), Err(TlsError::Content { .. })));
    }
}
