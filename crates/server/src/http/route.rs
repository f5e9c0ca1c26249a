//! From a request line to what is asked: exactly one canonical repository, or nothing.

use cuesta_engine::RepositoryName;
use cuesta_protocol::Service;

/// Longest path and query that is looked at, in bytes.
const TARGET_LEN_MAX: usize = 2048;

/// What a path and query ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// `GET /<repository>/info/refs?service=…`.
    InfoRefs {
        /// Whose refs.
        repository: RepositoryName,
        /// The service asked for; `None` if none or an unknown one is named, or more than one.
        service: Option<Service>,
    },
    /// `POST /<repository>/git-upload-pack` or `git-receive-pack`.
    Rpc {
        /// The repository that serves.
        repository: RepositoryName,
        /// Which service.
        service: Service,
    },
    /// `GET /healthz`: the process answers.
    Health,
    /// `GET /readyz`: the node takes requests.
    Ready,
    /// `GET /metrics`: Prometheus text.
    Metrics,
}

impl Route {
    /// Reads a request's path and query. `None` is a 404: nothing here has that name.
    ///
    /// The path is percent-decoded once. Empty, `.` and `..` segments are refused wherever they are (one trailing slash is
    /// allowed), as are encoded slashes, so that no repository has two names besides the one `.git` suffix.
    pub fn of(path: &str, query: Option<&str>) -> Option<Self> {
        if path.len() + query.map_or(0, str::len) > TARGET_LEN_MAX {
            return None;
        }
        match path {
            "/healthz" => return Some(Self::Health),
            "/readyz" => return Some(Self::Ready),
            "/metrics" => return Some(Self::Metrics),
            _ => {}
        }
        let path = path.strip_prefix('/')?;
        let path = path.strip_suffix('/').unwrap_or(path);
        let mut segments = path.split('/').map(decode_segment);
        let mut next = || segments.next().flatten();
        let (owner, name, verb) = (next()?, next()?, next()?);
        let rest = (segments.next(), segments.next());
        let repository = RepositoryName::parse(&format!("{owner}/{name}")).ok()?;
        match (verb.as_str(), rest) {
            ("info", (Some(Some(last)), None)) if last == "refs" => Some(Self::InfoRefs {
                repository,
                service: service_of(query.unwrap_or_default()),
            }),
            (verb, (None, None)) => {
                Service::from_name(verb.as_bytes()).map(|service| Self::Rpc { repository, service })
            }
            _ => None,
        }
    }
}

/// The one `service=` of a query; two of them could be read as different ones by whoever checks and whoever serves.
fn service_of(query: &str) -> Option<Service> {
    let mut named = query.split('&').filter_map(|pair| pair.strip_prefix("service="));
    let service = Service::from_name(named.next()?.as_bytes());
    if named.next().is_some() { None } else { service }
}

/// Decodes `%XX` once. `None` for bad escapes and for what no segment may be or hold.
fn decode_segment(segment: &str) -> Option<String> {
    let decoded = if segment.contains('%') {
        percent_decode(segment)?
    } else {
        segment.to_owned()
    };
    let clean = !decoded.is_empty() && decoded != "." && decoded != ".." && !decoded.contains(['/', '\\', '\0']);
    clean.then_some(decoded)
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let (high, low) = (hex_digit(bytes.next()?)?, hex_digit(bytes.next()?)?);
            decoded.push(high << 4 | low);
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).ok()
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn info_refs(name: &str, service: Option<Service>) -> Option<Route> {
        Some(Route::InfoRefs {
            repository: RepositoryName::parse(name).unwrap(),
            service,
        })
    }

    #[test]
    fn the_spellings_of_one_repository() {
        let query = Some("service=git-upload-pack");
        for path in [
            "/a/b/info/refs",
            "/a/b.git/info/refs",
            "/a/b.git/info/refs/",
            "/%61/b%2egit/info/refs",
            "/a/b/%69nfo/refs",
        ] {
            assert_eq!(
                Route::of(path, query),
                info_refs("a/b", Some(Service::UploadPack)),
                "{path}"
            );
        }
    }

    #[test]
    fn aliases_are_refused() {
        let refused = [
            "/",
            "",
            "a/b/info/refs",
            "//a/b/info/refs",
            "/a//b/info/refs",
            "/a/b//info/refs",
            "/a/b/info//refs",
            "/a/./b/info/refs",
            "/a/../a/b/info/refs",
            "/a/%2e%2e/b/info/refs",
            "/a/b/info/refs//",
            "/a/b%2finfo/refs",
            "/a%2fb/info/refs",
            "/a/%62%2/info/refs",
            "/a/%zz/info/refs",
            "/a/%252e/info/refs",
            "/a/b.git.git/info/refs",
            "/a/b%00/info/refs",
            "/a/b/c/info/refs",
            "/b/info/refs",
            "/a/b/info",
            "/a/b/HEAD",
            "/a/b/objects/info/packs",
            "/healthz/",
            "/metrics/x",
            "/a/b/git-upload-pack/x",
            "/a/b/git-upload-archive",
            "/a/b\\/info/refs",
            "/a/%ff/info/refs",
        ];
        for path in refused {
            assert_eq!(Route::of(path, Some("service=git-upload-pack")), None, "{path}");
        }
    }

    #[test]
    fn rpc_names_its_service() {
        let repository = RepositoryName::parse("a/b").unwrap();
        for service in [Service::UploadPack, Service::ReceivePack] {
            let route = Route::Rpc {
                repository: repository.clone(),
                service,
            };
            assert_eq!(Route::of(&format!("/a/b.git/{}", service.name()), None), Some(route));
        }
    }

    #[test]
    fn a_service_is_named_once_and_exactly() {
        for query in [
            None,
            Some(""),
            Some("service=git-upload-archive"),
            Some("service=git%2dupload-pack"),
            Some("Service=git-upload-pack"),
        ] {
            assert_eq!(Route::of("/a/b/info/refs", query), info_refs("a/b", None), "{query:?}");
        }
        let twice = Some("service=git-upload-pack&service=git-receive-pack");
        assert_eq!(Route::of("/a/b/info/refs", twice), info_refs("a/b", None));
        let beside = Some("x=1&service=git-receive-pack");
        assert_eq!(
            Route::of("/a/b/info/refs", beside),
            info_refs("a/b", Some(Service::ReceivePack))
        );
    }

    #[test]
    fn long_targets_are_not_looked_at() {
        let query = |len: usize| format!("service=git-upload-pack&{}", "x".repeat(len));
        let spare = TARGET_LEN_MAX - "/a/b/info/refs".len() - query(0).len();
        assert!(Route::of("/a/b/info/refs", Some(&query(spare))).is_some());
        assert!(Route::of("/a/b/info/refs", Some(&query(spare + 1))).is_none());
    }

    /// Percent-encodes the bytes that `mask` picks.
    fn spell(text: &str, mask: u64) -> String {
        let encode = |(i, byte): (usize, u8)| match mask >> (i % 64) & 1 {
            1 if byte != b'/' => format!("%{byte:02X}"),
            _ => char::from(byte).to_string(),
        };
        text.bytes().enumerate().map(encode).collect()
    }

    proptest! {
        /// Every spelling that is taken leads to the one name it was made from.
        #[test]
        fn encoded_spellings_lead_to_one_name(name in "[a-zA-Z0-9][a-zA-Z0-9_-]{0,8}/[a-zA-Z0-9][a-zA-Z0-9_-]{0,8}", git: bool, slash: bool, mask: u64) {
            let path = format!("/{name}{}/info/refs{}", if git { ".git" } else { "" }, if slash { "/" } else { "" });
            prop_assert_eq!(Route::of(&spell(&path, mask), None), info_refs(&name, None));
        }

        /// Whatever comes, a name that is taken is canonical: it leads to itself again.
        #[test]
        fn any_path_leads_to_a_canonical_name_or_nowhere(path in "/[a-zA-Z0-9./%\\\\~_-]{0,24}(/info/refs|/git-upload-pack)/?") {
            if let Some(Route::InfoRefs { repository, .. } | Route::Rpc { repository, .. }) = Route::of(&path, None) {
                let again = Route::of(&format!("/{repository}/info/refs"), None);
                prop_assert_eq!(again, info_refs(repository.as_str(), None));
                let decoded = percent_decode(&path).unwrap();
                prop_assert!(decoded.starts_with(&format!("/{repository}")), "{} as {}", path, repository);
            }
        }
    }
}
