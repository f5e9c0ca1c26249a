//! Another Git host, as `cuesta import` reads it over smart HTTP.
//!
//! Responsible for the requests and for what of a URL may be used and shown; what the bytes mean is the protocol's.
//! Credentials are sent to the host that the user named and to no other, and never shown.

mod discover;
mod fetch;

pub use discover::Discovered;
pub use fetch::{Fetched, OnText};

use cuesta_protocol::ProtocolError;
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, Url};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const AGENT: &str = concat!("cuesta/", env!("CARGO_PKG_VERSION"));
const CONNECT_TIME_MAX: Duration = Duration::from_secs(30);
/// Silence of the host that is borne: it may count objects for long.
const SILENCE_TIME_MAX: Duration = Duration::from_secs(600);
const REDIRECTS_MAX: usize = 5;

/// Why a remote could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// Not a URL that is read.
    #[error("cannot import from this URL: {0}")]
    Url(String),
    /// The host did not answer.
    #[error("cannot reach '{url}': {error}")]
    Unreachable {
        /// What was asked for, without credentials.
        url: Box<Url>,
        /// Why.
        error: String,
    },
    /// The host answered with a status other than 200.
    #[error("'{url}' answers {status}{hint}")]
    Status {
        /// What was asked for, without credentials.
        url: Box<Url>,
        /// The status.
        status: u16,
        /// What may help.
        hint: &'static str,
    },
    /// What came is no smart HTTP.
    #[error("'{url}' is not a git repository served over smart HTTP")]
    NotSmart {
        /// What was asked for, without credentials.
        url: Box<Url>,
    },
    /// The host does not keep to the protocol, or refuses.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// A user and a password.
#[derive(Clone)]
pub struct Credentials {
    user: String,
    password: Option<String>,
}

impl Credentials {
    /// Those of a user.
    pub fn new(user: &str, password: Option<&str>) -> Self {
        Self {
            user: user.to_owned(),
            password: password.map(str::to_owned),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// A repository of another host.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Without credentials, query, fragment or a slash at its end.
    url: Url,
    credentials: Option<Credentials>,
    client: Client,
}

impl Remote {
    /// The repository at a URL. Credentials given beside it count before those in it.
    pub fn new(url: &str, credentials: Option<Credentials>) -> Result<Self, RemoteError> {
        let (url, inside) = parse_url(url)?;
        // A second one is refused, and then the first is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .user_agent(AGENT)
            .connect_timeout(CONNECT_TIME_MAX)
            .read_timeout(SILENCE_TIME_MAX)
            .redirect(Policy::custom(follow))
            .build();
        let client = client.map_err(|error| RemoteError::Url(error.to_string()))?;
        Ok(Self {
            url,
            credentials: credentials.or(inside),
            client,
        })
    }

    /// A request for a URL, with the credentials if it goes to the host that the user named.
    fn request(&self, method: reqwest::Method, url: &Url) -> reqwest::RequestBuilder {
        let request = self.client.request(method, url.clone());
        let same_host = (url.scheme(), url.host_str(), url.port_or_known_default())
            == (self.url.scheme(), self.url.host_str(), self.url.port_or_known_default());
        match self.credentials.as_ref().filter(|_| same_host) {
            Some(credentials) => request.basic_auth(&credentials.user, credentials.password.as_deref()),
            None => request,
        }
    }

    async fn send(&self, request: reqwest::RequestBuilder, url: &Url) -> Result<reqwest::Response, RemoteError> {
        let url = || Box::new(url.clone());
        let answer = request.send().await.map_err(|error| RemoteError::Unreachable {
            url: url(),
            error: reason(&error),
        })?;
        match answer.status().as_u16() {
            200 => Ok(answer),
            status => Err(RemoteError::Status {
                url: url(),
                status,
                hint: hint(status, self.credentials.is_some()),
            }),
        }
    }
}

fn hint(status: u16, has_credentials: bool) -> &'static str {
    match status {
        401 | 403 if has_credentials => ": the credentials are refused",
        401 => ": it asks for credentials (see --user)",
        404 => ": there is no such repository, or it is not shown without credentials",
        _ => "",
    }
}

/// Follows a few redirects, and never from https to http, or to where no repositories are but metadata of clouds.
fn follow(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let was_secure = attempt.previous().last().is_some_and(|url| url.scheme() == "https");
    let scheme = attempt.url().scheme();
    if attempt.previous().len() > REDIRECTS_MAX {
        attempt.error("too many redirects")
    } else if scheme != "https" && (was_secure || scheme != "http") {
        attempt.error("a redirect to an insecure URL")
    } else if is_link_local(attempt.url()) {
        attempt.error("a redirect to a link-local address")
    } else {
        attempt.follow()
    }
}

/// Whether a URL names an address that is the machine's own network interface's, or nobody's.
fn is_link_local(url: &Url) -> bool {
    let is_v4 = |address: Ipv4Addr| address.is_link_local() || address.is_unspecified();
    let host = url.host_str().unwrap_or_default();
    match host.trim_start_matches('[').trim_end_matches(']').parse() {
        Ok(IpAddr::V4(address)) => is_v4(address),
        Ok(IpAddr::V6(address)) => {
            let mapped = address.to_ipv4_mapped().is_some_and(is_v4);
            mapped || address.is_unicast_link_local() || address.is_unspecified()
        }
        Err(_) => false,
    }
}

/// The innermost cause: the outer ones only repeat what was asked for.
fn reason(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

fn parse_url(text: &str) -> Result<(Url, Option<Credentials>), RemoteError> {
    let refuse = |why: &str| RemoteError::Url(why.to_owned());
    // Parse errors do not repeat the text, which may hold a password.
    let mut url = Url::parse(text).map_err(|error| RemoteError::Url(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refuse("only http:// and https:// are read"));
    }
    // `https:///x` has no host, but the parser takes `x` for it.
    let after_scheme = text.split_once("://").map_or("", |(_, after)| after);
    let host = url.host_str().filter(|_| !after_scheme.starts_with(['/', '\\']));
    let host = host.unwrap_or_default();
    let path = url.path().trim_start_matches('/');
    if host.is_empty() || host.starts_with('-') || path.starts_with('-') || url.username().starts_with('-') {
        return Err(refuse("host, user and path must not be empty or begin with '-'"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(refuse("it has a query or fragment"));
    }
    let user = percent_decoded(url.username());
    let credentials = (!user.is_empty()).then(|| Credentials {
        user,
        password: url.password().map(percent_decoded),
    });
    // These fail only for URLs without host, which are refused above.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok((url, credentials))
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%');
        let value = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(value.unwrap_or(*first));
        rest = match value {
            Some(_) => after.get(2..).unwrap_or_default(),
            None => after,
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `<url>/<path>`.
fn below(url: &Url, path: &str) -> Url {
    let mut below = url.clone();
    below.set_path(&format!("{}/{path}", url.path().trim_end_matches('/')));
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_refused_or_taken_apart() {
        for refused in [
            "ssh://example.org/x",
            "file:///etc",
            "ext::sh -c x",
            "https://-oProxyCommand=x/y",
            "https://-user@example.org/x",
            "https://example.org/-x",
            "https:///x",
            "https://example.org/x?y",
            "nonsense",
        ] {
            assert!(parse_url(refused).is_err(), "{refused}");
        }
        let (url, credentials) = parse_url("https://ann:p%40ss@example.org:8443/a/b.git/").unwrap();
        assert_eq!(url.as_str(), "https://example.org:8443/a/b.git");
        let credentials = credentials.unwrap();
        assert_eq!(
            (credentials.user.as_str(), credentials.password.as_deref()),
            ("ann", Some("p@ss"))
        );
        assert_eq!(
            below(&url, "info/refs").as_str(),
            "https://example.org:8443/a/b.git/info/refs"
        );
        let shown = format!(
            "{:?} {}",
            Remote::new("https://ann:secret@x/y", None).unwrap(),
            RemoteError::NotSmart { url: Box::new(url) }
        );
        assert!(!shown.contains("secret") && !shown.contains("p@ss"), "{shown}");
    }
}
