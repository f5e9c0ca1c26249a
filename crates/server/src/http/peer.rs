//! Who is at the other end of a connection, and whether what they say stays between us.

use crate::config::Settings;
use http::{HeaderMap, HeaderName};
use std::net::{IpAddr, SocketAddr};

/// Where a proxy writes whom it speaks for; the last address is the one it saw itself.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The sender of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The client's address: the one that a trusted proxy names, or else the connection's.
    pub address: IpAddr,
    /// Nobody between us can read credentials: the connection is encrypted, does not leave the machine, or comes from a proxy
    /// that ends TLS.
    pub is_confidential: bool,
    /// Somebody on this machine sends it, and for nobody else: what a proxy passes on is not local, wherever the proxy runs and
    /// whatever address it names.
    pub is_local: bool,
}

impl Peer {
    /// The sender of a request with these headers over a connection from `remote`.
    pub fn of(settings: &Settings, remote: SocketAddr, encrypted: bool, headers: &HeaderMap) -> Self {
        let remote = remote.ip().to_canonical();
        if !settings.behind_tls_proxy {
            return Self {
                address: remote,
                is_confidential: encrypted || remote.is_loopback(),
                is_local: remote.is_loopback() && !headers.contains_key(FORWARDED_FOR),
            };
        }
        Self {
            address: forwarded_for(headers).unwrap_or(remote),
            is_confidential: true,
            is_local: false,
        }
    }
}

fn forwarded_for(headers: &HeaderMap) -> Option<IpAddr> {
    let value = headers.get_all(FORWARDED_FOR).iter().next_back()?;
    let last = value.to_str().ok()?.rsplit(',').next()?.trim();
    let address = last.parse::<IpAddr>().ok();
    let with_port = || last.parse::<SocketAddr>().ok().map(|address| address.ip());
    address.or_else(with_port).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn whole_peer(proxy: bool, remote: &str, encrypted: bool, forwarded: &[&str]) -> Peer {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(FORWARDED_FOR, HeaderValue::from_str(value).unwrap());
        }
        let settings = Settings {
            behind_tls_proxy: proxy,
            ..Settings::default()
        };
        Peer::of(&settings, remote.parse().unwrap(), encrypted, &headers)
    }

    fn peer(proxy: bool, remote: &str, encrypted: bool, forwarded: &[&str]) -> (String, bool) {
        let peer = whole_peer(proxy, remote, encrypted, forwarded);
        (peer.address.to_string(), peer.is_confidential)
    }

    #[test]
    fn without_a_proxy_headers_say_nothing() {
        let forwarded = ["127.0.0.1"];
        assert_eq!(
            peer(false, "10.0.0.7:9", false, &forwarded),
            ("10.0.0.7".to_owned(), false)
        );
        assert_eq!(peer(false, "10.0.0.7:9", true, &[]), ("10.0.0.7".to_owned(), true));
        assert_eq!(
            peer(false, "[::ffff:127.0.0.1]:9", false, &[]),
            ("127.0.0.1".to_owned(), true)
        );
    }

    #[test]
    fn what_a_proxy_passes_on_is_not_local() {
        let is_local = |proxy, remote, forwarded: &[&str]| whole_peer(proxy, remote, false, forwarded).is_local;
        assert!(is_local(false, "127.0.0.1:9", &[]));
        assert!(is_local(false, "[::1]:9", &[]));
        assert!(!is_local(false, "10.0.0.7:9", &[]));
        assert!(!is_local(false, "127.0.0.1:9", &["6.6.6.6"]));
        // A proxy that says nothing, and one that passes on what a client made up.
        assert!(!is_local(true, "127.0.0.1:9", &[]));
        assert!(!is_local(true, "127.0.0.1:9", &["127.0.0.1"]));
    }

    #[test]
    fn a_proxy_names_the_client_last() {
        for (forwarded, address) in [
            (&["6.6.6.6, 10.0.0.9"][..], "10.0.0.9"),
            (&["6.6.6.6", "10.0.0.9"], "10.0.0.9"),
            (&["10.0.0.9:1234"], "10.0.0.9"),
            (&["[2001:db8::1]:1234"], "2001:db8::1"),
            (&["unknown"], "127.0.0.1"),
            (&[], "127.0.0.1"),
        ] {
            assert_eq!(
                peer(true, "127.0.0.1:9", false, forwarded),
                (address.to_owned(), true),
                "{forwarded:?}"
            );
        }
    }
}
