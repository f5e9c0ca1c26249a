//! A repository's settings (under git's own names) as what its services offer.

use crate::http::front::Transport;
use crate::http::record::RequestId;
use cuesta_engine::upload::WantPolicy;
use cuesta_engine::{Settings, View};
use cuesta_git::{HiddenRefs, ObjectFormat, ObjectId};
use cuesta_protocol::archive::ArchiveName;
use cuesta_protocol::filter::FilterPolicy;
use cuesta_protocol::options::{self, ReceiveOptions, Unborn, UploadOptions};
use cuesta_protocol::{Service, Version};
use std::collections::BTreeMap;
use std::time::Duration;

/// What we call ourselves on the wire.
const AGENT: &str = concat!("cuesta/", env!("CARGO_PKG_VERSION"));
/// Silence after which a keep-alive packet is sent, in seconds, as git has it.
const KEEP_ALIVE_SECONDS: i64 = 5;

/// Packs of fewer bytes are sent rather than given by URI.
const URI_BYTES_MIN: u64 = 1 << 20;

/// Where clients fetch layers that they are given by URI (`cuesta.packfileUris`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackfileUris {
    /// From this server (`server`).
    Server,
    /// From the bucket where it signs URLs of its own, else from this server (`true`).
    Bucket,
}

/// Bytes that all promisor remotes together may take on the wire: they must fit into a packet.
const PROMISOR_REMOTES_LEN_MAX: usize = 32 << 10;

/// A field of the capability `promisor-remote`, URL-encoded as git does it.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b',' | b';' | b'%' => format!("%{byte:02x}"),
        _ if byte.is_ascii_graphic() => char::from(byte).to_string(),
        _ => format!("%{byte:02x}"),
    };
    text.bytes().map(encode).collect()
}

const BLOB_URIS: &str = "uploadpack.blobpackfileuri";

/// Where a blob can be fetched instead of from us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobUri {
    /// The blob.
    pub oid: ObjectId,
    /// The checksum of the pack at the URI, which holds it.
    pub pack: ObjectId,
    /// The URI.
    pub uri: String,
}

/// The settings of one repository, as of one view.
#[derive(Clone, Copy, Debug)]
pub struct RepositoryOptions<'a>(Settings<'a>);

impl<'a> RepositoryOptions<'a> {
    /// The settings in `view`.
    pub fn of(view: &'a View) -> Self {
        Self(view.settings())
    }

    /// Settings as an answer of services.
    pub fn new(settings: Settings<'a>) -> Self {
        Self(settings)
    }

    /// Those of a repository that is to be made.
    pub fn of_new(engine: &'a cuesta_engine::Engine) -> Self {
        Self(engine.settings())
    }

    /// The settings themselves.
    pub fn settings(&self) -> Settings<'a> {
        self.0
    }

    /// Whether the service is served at all: over HTTP by `http.uploadpack` and `http.receivepack`, over `git://` by
    /// `daemon.uploadpack`, and no pushes; over SSH it always is.
    pub fn serves(&self, transport: Transport, service: Service) -> bool {
        match (transport, service) {
            (Transport::Http, Service::UploadPack) => self.0.flag("http.uploadpack", true),
            (Transport::Http, Service::ReceivePack) => self.0.flag("http.receivepack", true),
            (Transport::Git, Service::UploadPack) => self.0.flag("daemon.uploadpack", true),
            (Transport::Git, Service::ReceivePack) => false,
            (Transport::Ssh, _) => true,
        }
    }

    /// Whether files are served to dumb clients (`http.getanyfile`).
    pub fn serves_files(&self) -> bool {
        self.0.flag("http.getanyfile", true)
    }

    /// Whether archives are made: over HTTP by `http.uploadarchive`, if nothing is said for known users only, as in git; over
    /// `git://` by `daemon.uploadarch`, if nothing is said not, as in git; over SSH always.
    pub fn serves_archives(&self, transport: Transport, authenticated: bool) -> bool {
        match transport {
            Transport::Http => self.0.flag("http.uploadarchive", authenticated),
            Transport::Git => self.0.flag("daemon.uploadarch", false),
            Transport::Ssh => true,
        }
    }

    /// Whether an archive may be asked for by an id that no ref names (`uploadarchive.allowUnreachable`).
    pub fn archives_unreachable(&self) -> bool {
        self.0.flag("uploadarchive.allowunreachable", false)
    }

    /// The formats of archives (`tar.tgz.remote`, `tar.tar.gz.remote`).
    pub fn archive_formats(&self) -> Vec<ArchiveName> {
        let allowed = |name: &ArchiveName| match name {
            ArchiveName::Tgz => self.0.flag("tar.tgz.remote", true),
            ArchiveName::TarGz => self.0.flag("tar.tar.gz.remote", true),
            ArchiveName::Tar | ArchiveName::Zip => true,
        };
        ArchiveName::ALL.into_iter().filter(allowed).collect()
    }

    /// Mode bits that files of a tar do not get (`tar.umask`; `user` would be the server's own and means the usual one).
    pub fn tar_umask(&self) -> u32 {
        const GIT: u32 = 0o002;
        const USUAL: u32 = 0o022;
        match self.0.get("tar.umask") {
            None => GIT,
            Some("user") => USUAL,
            Some(text) => {
                let parsed = match text.strip_prefix('0') {
                    Some(octal) if !octal.is_empty() => u32::from_str_radix(octal, 8),
                    _ => text.parse(),
                };
                parsed.unwrap_or(GIT) & 0o777
            }
        }
    }

    /// What upload-pack offers, in the session of one request.
    pub fn upload(&self, session: RequestId) -> UploadOptions {
        let mut offered = UploadOptions::new(AGENT);
        if self.0.is_empty() {
            return offered;
        }
        offered.session_id = self.session_id(session);
        offered.wants = self.advertised_wants();
        offered.ref_in_want = self.0.flag("uploadpack.allowrefinwant", false);
        offered.sideband_all = self.0.flag("uploadpack.allowsidebandall", false);
        // Git's client takes URIs over the side-band only.
        offered.sideband_all |= self.packfile_uris().is_some();
        offered.packfile_uris = self.packfile_uris().is_some() || self.0.get(BLOB_URIS).is_some();
        offered.bundle_uri = self.0.flag("uploadpack.advertisebundleuris", false);
        offered.object_info = self.0.flag("transfer.advertiseobjectinfo", false);
        offered.filters = self.0.flag("uploadpack.allowfilter", false).then(|| self.filters());
        offered.promisor_remote = self.promisor_remotes();
        offered.unborn = match self.0.get("lsrefs.unborn") {
            Some("ignore") => Unborn::Ignore,
            Some("allow") => Unborn::Allow,
            _ => Unborn::Advertise,
        };
        offered
    }

    /// What receive-pack offers, in the session of one request.
    pub fn receive(&self, session: RequestId) -> ReceiveOptions {
        let mut offered = ReceiveOptions::new(AGENT);
        offered.session_id = self.session_id(session);
        offered.atomic = self.0.flag("receive.advertiseatomic", true);
        offered.push_options = self.0.flag("receive.advertisepushoptions", false);
        offered.ofs_delta = self.0.flag("repack.usedeltabaseoffset", true);
        offered
    }

    fn session_id(&self, session: RequestId) -> Option<String> {
        self.0.flag("transfer.advertisesid", false).then(|| session.to_string())
    }

    /// Whether only pushes are taken that a known user has signed (`cuesta.certRequired`).
    pub fn requires_certificate(&self) -> bool {
        self.0.flag("cuesta.certrequired", false)
    }

    /// The refs that the service neither shows nor lets be changed.
    pub fn hidden(&self, service: Service) -> HiddenRefs {
        let own = match service {
            Service::UploadPack => "uploadpack.hiderefs",
            Service::ReceivePack => "receive.hiderefs",
        };
        HiddenRefs::new(
            ["transfer.hiderefs", own]
                .into_iter()
                .flat_map(|name| self.0.lines(name)),
        )
    }

    /// The silence after which the service says that it is still there (`uploadpack.keepAlive`, `receive.keepAlive`);
    /// `None` if it never does.
    pub fn keep_alive(&self, service: Service) -> Option<Duration> {
        let name = match service {
            Service::UploadPack => "uploadpack.keepalive",
            Service::ReceivePack => "receive.keepalive",
        };
        let seconds = self.0.get(name).and_then(|text| text.trim().parse::<i64>().ok());
        let seconds = seconds.unwrap_or(KEEP_ALIVE_SECONDS);
        u64::try_from(seconds)
            .ok()
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs)
    }

    /// Which objects may be wanted.
    ///
    /// A client that comes back with each request (HTTP, or v2 anywhere) may choose by refs that have moved since, so that
    /// what shown refs reach is let through even without a setting (PROTOCOL, rule 59). Stock git's v2 serves any object
    /// that it has, hidden or unreachable; here the settings that bind its v0 bind v2, too.
    pub fn wants(&self, version: Version, stateless: bool) -> WantPolicy {
        let comes_back = stateless || version == Version::V2;
        match self.advertised_wants() {
            options::WantPolicy::Any => WantPolicy::Any,
            options::WantPolicy::Reachable | options::WantPolicy::TipsAndReachable => WantPolicy::ReachableFromAny,
            options::WantPolicy::Tips if comes_back => WantPolicy::ReachableFromAny,
            options::WantPolicy::Tips => WantPolicy::AnyTips,
            options::WantPolicy::Advertised if comes_back => WantPolicy::Reachable,
            options::WantPolicy::Advertised => WantPolicy::Tips,
        }
    }

    /// Whether and whence clients may fetch whole layers by URI.
    pub fn packfile_uris(&self) -> Option<PackfileUris> {
        const NAME: &str = "cuesta.packfileuris";
        match self.0.get(NAME) {
            Some("server") => Some(PackfileUris::Server),
            _ => self.0.flag(NAME, false).then_some(PackfileUris::Bucket),
        }
    }

    /// Blobs that have URIs of their own (`uploadpack.blobPackfileUri`); lines that are not of its form are passed over.
    pub fn blob_uris(&self, format: ObjectFormat) -> Vec<BlobUri> {
        let parse = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let oid = ObjectId::from_hex(format, words.next()?.as_bytes()).ok()?;
            let pack = ObjectId::from_hex(format, words.next()?.as_bytes()).ok()?;
            let uri = words.next()?.to_owned();
            Some(BlobUri { oid, pack, uri })
        };
        self.0.lines(BLOB_URIS).filter_map(parse).collect()
    }

    /// Packs of fewer bytes are not given by URI (`cuesta.uriBytesMin`).
    pub fn uri_bytes_min(&self) -> u64 {
        let given = self.0.get("cuesta.uribytesmin");
        given
            .and_then(|bytes| bytes.trim().parse().ok())
            .unwrap_or(URI_BYTES_MIN)
    }

    /// The kinds of filters that are taken (`uploadpackfilter.*`).
    fn filters(&self) -> FilterPolicy {
        const DEPTH_MAX: &str = "uploadpackfilter.tree.maxdepth";
        let mut policy = FilterPolicy {
            allow: self.0.flag("uploadpackfilter.allow", true),
            kinds: BTreeMap::new(),
            tree_depth_max: self.0.get(DEPTH_MAX).and_then(|max| max.trim().parse().ok()),
        };
        for kind in [
            "blob:none",
            "blob:limit",
            "tree",
            "object:type",
            "sparse:oid",
            "combine",
        ] {
            // As in git, a depth is leave enough.
            let default = policy.allow || kind == "tree" && self.0.get(DEPTH_MAX).is_some();
            let name = format!("uploadpackfilter.{kind}.allow");
            policy.kinds.insert(kind.to_owned(), self.0.flag(&name, default));
        }
        policy
    }

    /// Remotes that clients may fetch what they lack from as well (`promisor.advertise`, gitprotocol-v2, `promisor-remote`), by
    /// name: those with a URL that are promisors or have a filter.
    fn promisor_remotes(&self) -> Option<String> {
        if !self.0.flag("promisor.advertise", false) {
            return None;
        }
        let settings = self.0.below("remote.");
        let urls = settings.iter().filter_map(|(key, url)| {
            let name = key.strip_prefix("remote.")?.strip_suffix(".url")?;
            (!url.is_empty()).then_some((name, *url))
        });
        let sent = self.0.get("promisor.sendfields").unwrap_or_default();
        let is_sent = |field: &str| sent.split([',', ' ']).any(|name| name.eq_ignore_ascii_case(field));
        let remotes = urls.filter_map(|(name, url)| {
            let value = |key: &str| settings.get(&*format!("remote.{name}.{key}")).copied();
            let filter = value("partialclonefilter").filter(|filter| !filter.is_empty());
            let is_promisor = self.0.flag(&format!("remote.{name}.promisor"), false);
            let mut fields = format!("name={},url={}", encoded(name), encoded(url));
            let token = value("token").filter(|token| !token.is_empty());
            for (field, value) in [("partialCloneFilter", filter), ("token", token)] {
                if let Some(value) = value.filter(|_| is_sent(field)) {
                    fields += &format!(",{field}={}", encoded(value));
                }
            }
            (is_promisor || filter.is_some()).then_some(fields)
        });
        let remotes = remotes.collect::<Vec<_>>().join(";");
        (!remotes.is_empty() && remotes.len() <= PROMISOR_REMOTES_LEN_MAX).then_some(remotes)
    }

    fn advertised_wants(&self) -> options::WantPolicy {
        let set = |name| self.0.flag(name, false);
        let tips = set("uploadpack.allowtipsha1inwant");
        let reachable = set("uploadpack.allowreachablesha1inwant");
        match (set("uploadpack.allowanysha1inwant"), tips, reachable) {
            (true, _, _) => options::WantPolicy::Any,
            (false, true, true) => options::WantPolicy::TipsAndReachable,
            (false, true, false) => options::WantPolicy::Tips,
            (false, false, true) => options::WantPolicy::Reachable,
            (false, false, false) => options::WantPolicy::Advertised,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_alive_is_gits() {
        for (value, seconds) in [
            (None, Some(5)),
            (Some("1"), Some(1)),
            (Some(" 30 "), Some(30)),
            (Some("0"), None),
            (Some("-1"), None),
            (Some("soon"), Some(5)),
        ] {
            for (service, name) in [
                (Service::UploadPack, "uploadpack.keepalive"),
                (Service::ReceivePack, "receive.keepalive"),
            ] {
                let set = value.map(|value| (name.to_owned(), value.to_owned()));
                let settings: BTreeMap<_, _> = set.into_iter().collect();
                let options = RepositoryOptions::new(Settings::of_node(&settings));
                assert_eq!(
                    options.keep_alive(service),
                    seconds.map(Duration::from_secs),
                    "{name}={value:?}"
                );
            }
        }
    }
}
