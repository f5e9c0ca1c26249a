//! Where requests go.

use anyhow::{Context, Result, bail};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Where requests go.
#[derive(Clone)]
pub(crate) struct Target {
    /// `host:port`.
    pub(crate) address: String,
    /// The repository's path, without a slash at the end.
    pub(crate) path: String,
    /// Value of the `Authorization` header, sent without being asked for.
    authorization: Option<String>,
    tls: Option<Tls>,
}

/// Encryption, and whose certificate is to be shown.
#[derive(Clone)]
struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

/// What bytes travel over.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for S {}

impl Target {
    /// Reads `http[s]://[user:password@]host[:port]/path`. For HTTPS, the certificates in `authorities` (PEM) are trusted
    /// and no others.
    pub(crate) fn parse(url: &str, authorities: Option<&Path>) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let port = match scheme {
            "http" => "80",
            "https" => "443",
            _ => bail!("'{url}' is not an http:// or https:// URL"),
        };
        let (authority, path) = rest.split_once('/').context("the URL names no repository")?;
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let (name, port) = host.rsplit_once(':').unwrap_or((host, port));
        let tls = if scheme == "https" {
            let authorities = authorities.context("https:// needs the certificates to trust")?;
            Some(Tls::new(name, authorities)?)
        } else {
            None
        };
        Ok(Self {
            address: format!("{name}:{port}"),
            path: format!("/{}", path.trim_end_matches('/')),
            authorization: user.map(|user| format!("Basic {}", base64(user.as_bytes()))),
            tls,
        })
    }

    /// A new connection; Nagle's algorithm is off, as in every Git client.
    pub(super) async fn connect(&self) -> Result<Box<dyn Stream>> {
        let refused = || format!("cannot connect to '{}'", self.address);
        let stream = TcpStream::connect(&self.address).await.with_context(refused)?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => Ok(Box::new(stream)),
            Some(tls) => {
                let encrypted = tls.connector.connect(tls.name.clone(), stream).await;
                Ok(Box::new(encrypted.with_context(refused)?))
            }
        }
    }

    /// Appends a request to a service, `git-upload-pack` or `git-receive-pack`, whose body is `parts`; `headers` are whole lines.
    pub(crate) fn write_rpc(&self, out: &mut Vec<u8>, service: &str, headers: &str, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let headers = format!(
            "Content-Type: application/x-{service}-request\r\nAccept: application/x-{service}-result\r\n{headers}\
             Content-Length: {len}\r\n"
        );
        out.reserve(len + 512);
        self.write_head(out, "POST", &format!("/{service}"), &headers);
        parts.iter().for_each(|part| out.extend_from_slice(part));
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

impl Tls {
    fn new(name: &str, authorities: &Path) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        let unreadable = || format!("cannot read '{}'", authorities.display());
        for certificate in CertificateDer::pem_file_iter(authorities).with_context(unreadable)? {
            roots.add(certificate.with_context(unreadable)?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            name: ServerName::try_from(name.trim_matches(['[', ']']).to_owned())?,
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_taken_apart() {
        let target = Target::parse("http://x:secret@localhost/a/b.git/", None).unwrap();
        assert_eq!(
            (target.address.as_str(), target.path.as_str()),
            ("localhost:80", "/a/b.git")
        );
        assert_eq!(target.authorization.as_deref(), Some("Basic eDpzZWNyZXQ="));
        assert!(Target::parse("https://localhost/a", None).is_err());
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
}
