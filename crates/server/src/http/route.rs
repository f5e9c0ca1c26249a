//! From a request line to what is asked: exactly one canonical repository, or nothing.

use cuesta_engine::RepositoryName;
use cuesta_git::{ObjectFormat, ObjectId};
use cuesta_protocol::Service;

/// Longest path and query that is looked at, in bytes.
const TARGET_LEN_MAX: usize = 2048;
/// Segments of the longest path: owner, name and three of a file in `objects`.
const SEGMENTS_MAX: usize = 5;

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
    /// `POST /<repository>/git-upload-archive`.
    Archive {
        /// The repository that serves.
        repository: RepositoryName,
    },
    /// `GET` of a file that stock repositories have: the dumb protocol.
    File {
        /// Whose file.
        repository: RepositoryName,
        /// Which.
        file: DumbFile,
    },
    /// `GET /<repository>/objects/layers/<id>.<form>`, with a signature in its query.
    Payload {
        /// Whose layer.
        repository: RepositoryName,
        /// `<id>.<form>`.
        file: String,
    },
    /// `GET /healthz`: the process answers.
    Health,
    /// `GET /readyz`: the node takes requests.
    Ready,
    /// `GET /metrics`: Prometheus text.
    Metrics,
}

/// The files of a repository that dumb clients ask for (gitprotocol-http, `Dumb Clients`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumbFile {
    /// `HEAD`.
    Head,
    /// `info/refs`, with no service named.
    Refs,
    /// `objects/info/packs`.
    Packs,
    /// `objects/info/alternates` and `http-alternates`, which no repository has.
    Alternates,
    /// `objects/xx/…`.
    Loose(ObjectId),
    /// `objects/pack/pack-….pack`.
    Pack(ObjectId),
    /// `objects/pack/pack-….idx`.
    Index(ObjectId),
}

impl DumbFile {
    /// The file at a path below the repository.
    fn of(path: &[&str]) -> Option<Self> {
        match path {
            ["HEAD"] => Some(Self::Head),
            ["objects", "info", "packs"] => Some(Self::Packs),
            ["objects", "info", "alternates" | "http-alternates"] => Some(Self::Alternates),
            ["objects", "pack", name] => {
                let (name, kind) = name.strip_prefix("pack-")?.split_once('.')?;
                let name = object_id(name)?;
                match kind {
                    "pack" => Some(Self::Pack(name)),
                    "idx" => Some(Self::Index(name)),
                    _ => None,
                }
            }
            ["objects", fan, rest] if fan.len() == 2 => object_id(&format!("{fan}{rest}")).map(Self::Loose),
            _ => None,
        }
    }
}

/// An id of either format, in lower-case digits only.
fn object_id(hex: &str) -> Option<ObjectId> {
    let lower = hex.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let formats = [ObjectFormat::Sha1, ObjectFormat::Sha256];
    let format = formats
        .into_iter()
        .find(|format| format.hex_width() == hex.len() && lower)?;
    ObjectId::from_hex(format, hex.as_bytes()).ok()
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
        let (path, is_bare) = match path.strip_suffix('/') {
            Some(path) => (path, false),
            None => (path, true),
        };
        let segments: Vec<String> = path
            .split('/')
            .take(SEGMENTS_MAX + 1)
            .map(decode_segment)
            .collect::<Option<_>>()?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let [owner, name, rest @ ..] = segments.as_slice() else {
            return None;
        };
        let repository = RepositoryName::parse(&format!("{owner}/{name}")).ok()?;
        match (rest, query.map(service_of)) {
            (["info", "refs"], Some(Named::Nothing) | None) => Some(Self::File {
                repository,
                file: DumbFile::Refs,
            }),
            (["info", "refs"], Some(Named::Service(service))) => Some(Self::InfoRefs {
                repository,
                service: Some(service),
            }),
            (["info", "refs"], Some(Named::Other)) => Some(Self::InfoRefs {
                repository,
                service: None,
            }),
            (["objects", "layers", file], _) => Some(Self::Payload {
                repository,
                file: (*file).to_owned(),
            }),
            (["git-upload-archive"], _) => Some(Self::Archive { repository }),
            ([verb], _) if Service::from_name(verb.as_bytes()).is_some() => {
                Service::from_name(verb.as_bytes()).map(|service| Self::Rpc { repository, service })
            }
            (path, _) if is_bare => DumbFile::of(path).map(|file| Self::File { repository, file }),
            _ => None,
        }
    }
}

/// What a query says of a service.
enum Named {
    Nothing,
    Service(Service),
    /// One that is not known, or more than one.
    Other,
}

/// The one `service=` of a query; two of them could be read as different ones by whoever checks and whoever serves.
fn service_of(query: &str) -> Named {
    let mut named = query.split('&').filter_map(|pair| pair.strip_prefix("service="));
    match (named.next(), named.next()) {
        (None, _) => Named::Nothing,
        (Some(name), None) => Service::from_name(name.as_bytes()).map_or(Named::Other, Named::Service),
        (Some(_), Some(_)) => Named::Other,
    }
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

    fn file(name: &str, file: DumbFile) -> Option<Route> {
        Some(Route::File {
            repository: RepositoryName::parse(name).unwrap(),
            file,
        })
    }

    #[test]
    fn files_of_dumb_clients() {
        let oid = |digit: &str, width| object_id(&digit.repeat(width)).unwrap();
        let table = [
            ("HEAD".to_owned(), DumbFile::Head),
            ("info/refs".to_owned(), DumbFile::Refs),
            ("objects/info/packs".to_owned(), DumbFile::Packs),
            ("objects/info/alternates".to_owned(), DumbFile::Alternates),
            ("objects/info/http-alternates".to_owned(), DumbFile::Alternates),
            (format!("objects/aa/{}", "a".repeat(38)), DumbFile::Loose(oid("a", 40))),
            (format!("objects/aa/{}", "a".repeat(62)), DumbFile::Loose(oid("a", 64))),
            (
                format!("objects/pack/pack-{}.pack", "1".repeat(40)),
                DumbFile::Pack(oid("1", 40)),
            ),
            (
                format!("objects/pack/pack-{}.idx", "1".repeat(64)),
                DumbFile::Index(oid("1", 64)),
            ),
        ];
        for (path, expected) in table {
            for name in ["a/b", "a/b.git"] {
                assert_eq!(
                    Route::of(&format!("/{name}/{path}"), None),
                    file("a/b", expected),
                    "{path}"
                );
            }
        }
        let upper = format!("/a/b/objects/AA/{}", "a".repeat(38));
        let long = format!("/a/b/objects/aa/{}", "a".repeat(39));
        let fan = format!("/a/b/objects/aaa/{}", "a".repeat(37));
        let kind = format!("/a/b/objects/pack/pack-{}.rev", "1".repeat(40));
        let name = format!("/a/b/objects/pack/{}.pack", "1".repeat(40));
        for path in [upper, long, fan, kind, name] {
            assert_eq!(Route::of(&path, None), None, "{path}");
        }
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
            "/a/b/HEAD/",
            "/a/b/head",
            "/a/b/objects/info/packs/",
            "/a/b/objects/../config",
            "/a/b/config",
            "/a/b/objects/aa/../../config",
            "/a/b/objects/info/packs/x",
            "/healthz/",
            "/metrics/x",
            "/a/b/git-upload-pack/x",
            "/a/b/git-upload-archive/x",
            "/a/b\\/info/refs",
            "/a/%ff/info/refs",
        ];
        for path in refused {
            assert_eq!(Route::of(path, Some("service=git-upload-pack")), None, "{path}");
        }
    }

    #[test]
    fn layers_have_paths() {
        let repository = RepositoryName::parse("a/b").unwrap();
        let file = "0123.pack".to_owned();
        let route = Some(Route::Payload { repository, file });
        assert_eq!(Route::of("/a/b.git/objects/layers/0123.pack", Some("expires=1")), route);
        for path in [
            "/a/b/objects/layers",
            "/a/b/objects/layers/",
            "/a/b/objects/layers/x/y",
            "/a/b/objects/x/0123.pack",
        ] {
            assert_eq!(Route::of(path, None), None, "{path}");
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
            "service=git-upload-archive",
            "service=git%2dupload-pack",
            "service=",
            "x&service=HEAD",
        ] {
            assert_eq!(
                Route::of("/a/b/info/refs", Some(query)),
                info_refs("a/b", None),
                "{query:?}"
            );
        }
        for query in [
            None,
            Some(""),
            Some("Service=git-upload-pack"),
            Some("xservice=git-upload-pack"),
        ] {
            assert_eq!(
                Route::of("/a/b/info/refs", query),
                file("a/b", DumbFile::Refs),
                "{query:?}"
            );
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
            prop_assert_eq!(Route::of(&spell(&path, mask), None), file(&name, DumbFile::Refs));
        }

        /// Whatever comes, a name that is taken is canonical: it leads to itself again.
        #[test]
        fn any_path_leads_to_a_canonical_name_or_nowhere(path in "/[a-zA-Z0-9./%\\\\~_-]{0,24}(/info/refs|/git-upload-pack|/git-upload-archive|/HEAD|/objects/info/packs)/?") {
            if let Some(
                Route::InfoRefs { repository, .. }
                | Route::Rpc { repository, .. }
                | Route::Archive { repository }
                | Route::File { repository, .. },
            ) = Route::of(&path, None)
            {
                let again = Route::of(&format!("/{repository}/info/refs"), None);
                prop_assert_eq!(again, file(repository.as_str(), DumbFile::Refs));
                let decoded = percent_decode(&path).unwrap();
                prop_assert!(decoded.starts_with(&format!("/{repository}")), "{} as {}", path, repository);
            }
        }
    }
}
