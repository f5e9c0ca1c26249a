//! Every setting, its default and its meaning. A default is a decision: together they fit in 512 MiB.

use super::GitSettings;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// All settings of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The data directory: the embedded ledger, caches, temporary files and, by default, the bucket.
    pub data: PathBuf,
    /// Address and port of HTTP, or of HTTPS where there is a certificate; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Who may do what: nobody is asked, or users have accounts.
    pub authentication: Authentication,
    /// Who may read a repository that is made from now on.
    pub new_repositories: Visibility,
    /// A PEM file with the server's certificate and those that lead to its root; empty for plain HTTP. Read again when it
    /// changes.
    pub tls_certificate: PathBuf,
    /// A PEM file with the certificate's private key.
    pub tls_key: PathBuf,
    /// A proxy that ends TLS is in front: credentials are taken over plain HTTP, and a client's address is the last one in
    /// `X-Forwarded-For`.
    pub behind_tls_proxy: bool,
    /// Address and port of SSH; empty for none.
    pub ssh_listen: String,
    /// The private key that tells this server from others over SSH: an OpenSSH key file. Empty: one in the data directory,
    /// made if missing. Nodes that share a name share a key.
    pub ssh_host_key: String,
    /// Address and port of `git://`, over which anyone reads what is public; empty for none.
    pub git_listen: String,
    /// Open connections of `git://` from one address (of IPv6, from one /64); further ones are refused.
    pub git_connections_per_address_max: usize,
    /// The bucket's URL, or a directory. `<data>/bucket` by default.
    pub bucket: String,
    /// Base URL of the store, for S3-compatible ones and emulators. Empty here and below: what the vendor's own environment
    /// variables (`AWS_*`, `AZURE_*`, `GOOGLE_*`) and discovery say.
    pub bucket_endpoint: String,
    /// S3: the region.
    pub bucket_region: String,
    /// S3: the access key id. Azure: the account's name.
    pub bucket_access_key_id: String,
    /// S3: the secret key. Azure: the account's key. GCS: the service account as JSON.
    pub bucket_secret_access_key: Secret,
    /// Allows `http://` endpoints, over which credentials travel in the clear.
    pub bucket_allow_http: bool,
    /// Makes a repository when it is first pushed to.
    pub create_on_push: bool,
    /// What a log line looks like.
    pub log_format: LogFormat,
    /// Which log lines are written: `error`, `warn`, `info`, `debug`, or directives such as `info,cuesta_engine=debug`.
    pub log_level: String,
    /// Memory for blocks read from the bucket.
    pub cache_bytes_max: ByteSize,
    /// Memory for answers about refs.
    pub refs_cache_bytes_max: ByteSize,
    /// Disk, under `<data>/cache`, for blocks read from a remote bucket; 0 for none.
    pub disk_cache_bytes_max: ByteSize,
    /// Disk, under `<data>/answers`, for packs that were dear to make (shallow and filtered clones), for those who ask the same
    /// later; 0 for none, and then copied packs are neither shared nor remembered.
    pub answers_cache_bytes_max: ByteSize,
    /// Memory of one merge of layers; layers whose objects do not fit stay apart. As much again for contents while a compaction
    /// chooses the bases of deltas; an object above a sixth of it keeps its form.
    pub compact_memory_bytes_max: ByteSize,
    /// How long a repository must have been without a push before the bases of its deltas are chosen anew, in seconds;
    /// 0: only when `cuesta repo compact` asks for it.
    pub compact_quiet_seconds: u64,
    /// Largest pack of one push, as sent (git's `receive.maxInputSize`); 0 for no limit.
    pub push_bytes_max: ByteSize,
    /// Memory that all pushes being received may take together; others wait.
    pub push_memory_bytes_max: ByteSize,
    /// Memory that requests longer than 64 KiB may take together while they are read: wants and haves of fetches, commands of
    /// pushes; others wait.
    pub request_memory_bytes_max: ByteSize,
    /// Fetches whose packs are sent at the same time; others wait.
    pub fetches_max: usize,
    /// Largest fetch request (wants and haves), inflated.
    pub fetch_request_bytes_max: ByteSize,
    /// How long after a pack was first seen its objects are still served one by one to dumb clients, in seconds: the list of
    /// packs that such a client has taken may be that old.
    pub dumb_packs_after_seconds: u64,
    /// Open connections, of HTTP, SSH and `git://` each; further ones wait to be accepted.
    pub connections_max: usize,
    /// How long requests in flight may take to end after SIGTERM or SIGINT, in seconds.
    pub drain_seconds_max: u64,
    /// What clients call this server, such as `https://git.example.com`, for the links that it gives them. Empty: by the
    /// name in their request, over plain HTTP.
    pub public_url: String,
    /// Signs the links to layers (`cuesta.packfileUris`); all nodes need the same. Empty: a key of this process alone.
    pub uri_key: Secret,
    /// How long such a link holds, in seconds, at least; at most twice as long.
    pub uri_seconds: u64,
    /// How long payloads of merged layers, and of deleted repositories, stay in the bucket, in seconds: whoever reads or was
    /// given a link has that long.
    pub collect_grace_seconds: u64,
    /// Settings of repositories that set nothing else (`cuesta repo config`), under git's names: `"uploadpack.allowFilter" =
    /// true`. In the environment and in flags: `name=value`, one a line.
    pub git: GitSettings,
}

/// The least of `collect_grace_seconds`: no push, fetch or merge may take longer.
const COLLECT_GRACE_SECONDS_MIN: u64 = 24 * 60 * 60;

/// What a log line looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Default for Settings {
    fn default() -> Self {
        let data = PathBuf::from("./cuesta-data");
        Self {
            bucket: data.join("bucket").to_string_lossy().into_owned(),
            data,
            listen: SocketAddr::from(([127, 0, 0, 1], 8717)),
            authentication: Authentication::None,
            new_repositories: Visibility::Private,
            tls_certificate: PathBuf::new(),
            tls_key: PathBuf::new(),
            behind_tls_proxy: false,
            ssh_listen: String::new(),
            ssh_host_key: String::new(),
            git_listen: String::new(),
            git_connections_per_address_max: 64,
            bucket_endpoint: String::new(),
            bucket_region: String::new(),
            bucket_access_key_id: String::new(),
            bucket_secret_access_key: Secret::default(),
            bucket_allow_http: false,
            create_on_push: true,
            log_format: LogFormat::Text,
            log_level: "info,object_store=warn".to_owned(),
            cache_bytes_max: ByteSize::mib(128),
            refs_cache_bytes_max: ByteSize::mib(32),
            disk_cache_bytes_max: ByteSize::mib(4096),
            answers_cache_bytes_max: ByteSize::mib(2048),
            compact_memory_bytes_max: ByteSize::mib(96),
            compact_quiet_seconds: 60,
            push_bytes_max: ByteSize(0),
            push_memory_bytes_max: ByteSize::mib(128),
            request_memory_bytes_max: ByteSize::mib(64),
            fetches_max: 24,
            fetch_request_bytes_max: ByteSize::mib(10),
            dumb_packs_after_seconds: 900,
            connections_max: 4096,
            drain_seconds_max: 30,
            public_url: String::new(),
            uri_key: Secret::default(),
            uri_seconds: 3600,
            collect_grace_seconds: COLLECT_GRACE_SECONDS_MIN,
            git: GitSettings::default(),
        }
    }
}

impl Settings {
    /// Where the bucket is if nobody says: in the data directory.
    pub(super) fn default_bucket(&self) -> String {
        self.data.join("bucket").to_string_lossy().into_owned()
    }

    /// Checks what types cannot. The message names the setting.
    pub(super) fn check(&self) -> Result<(), String> {
        let at_least_one = [
            ("fetches_max", self.fetches_max),
            ("connections_max", self.connections_max),
            ("git_connections_per_address_max", self.git_connections_per_address_max),
        ];
        for (name, value) in at_least_one {
            if value == 0 {
                return Err(format!("setting '{name}' must be at least 1"));
            }
        }
        self.ssh_address()?;
        self.git_address()?;
        if self.collect_grace_seconds < COLLECT_GRACE_SECONDS_MIN {
            return Err(format!(
                "setting 'collect_grace_seconds' must be at least {COLLECT_GRACE_SECONDS_MIN}"
            ));
        }
        // A link may hold twice as long.
        let uri_seconds_max = self.collect_grace_seconds / 2;
        if !(1..=uri_seconds_max).contains(&self.uri_seconds) {
            return Err(format!(
                "setting 'uri_seconds' must be between 1 and {uri_seconds_max}, half of 'collect_grace_seconds'"
            ));
        }
        let url = self.public_url.as_str();
        let web = url.starts_with("http://") || url.starts_with("https://");
        if !(url.is_empty() || web && url.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err("setting 'public_url' must begin with 'http://' or 'https://' and hold no spaces".to_owned());
        }
        if self.bucket.is_empty() {
            return Err("setting 'bucket' is empty".to_owned());
        }
        if self.tls_certificate.as_os_str().is_empty() != self.tls_key.as_os_str().is_empty() {
            return Err("settings 'tls_certificate' and 'tls_key' go together".to_owned());
        }
        Ok(())
    }

    /// Whether connections are TLS.
    pub fn serves_tls(&self) -> bool {
        !self.tls_certificate.as_os_str().is_empty()
    }

    /// Whether clients elsewhere reach this node over connections that others can read.
    pub fn is_readable_on_the_way(&self) -> bool {
        !(self.serves_tls() || self.behind_tls_proxy || self.listen.ip().is_loopback())
    }

    /// Where SSH is to listen, if it is.
    pub fn ssh_address(&self) -> Result<Option<SocketAddr>, String> {
        address("ssh_listen", &self.ssh_listen, "127.0.0.1:2222")
    }

    /// Where `git://` is to listen, if it is.
    pub fn git_address(&self) -> Result<Option<SocketAddr>, String> {
        address("git_listen", &self.git_listen, "127.0.0.1:9418")
    }

    /// Refuses to serve strangers where nobody is told apart: anyone who reaches the port can read and write everything.
    pub fn check_exposure(&self) -> Result<(), String> {
        if self.authentication != Authentication::None {
            return Ok(());
        }
        let addresses = [Some(self.listen), self.ssh_address()?, self.git_address()?];
        let exposed = addresses
            .into_iter()
            .flatten()
            .find(|address| !address.ip().is_loopback());
        exposed.map_or(Ok(()), |address| {
            Err(format!(
                "refusing to listen on '{address}': it is not a loopback address and no authentication is configured; \
                 set authentication = \"accounts\", or listen on 127.0.0.1 and put an authenticating proxy in front"
            ))
        })
    }
}

/// The address that a setting gives, if it does.
fn address(name: &str, text: &str, example: &str) -> Result<Option<SocketAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let refuse = |_| format!("setting '{name}' is '{text}': expected an address and port such as {example}");
    text.parse().map(Some).map_err(refuse)
}

/// Who is told apart from whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Authentication {
    /// Nobody: whoever reaches the port may do everything. On loopback only.
    None,
    /// Users, by their tokens and keys.
    Accounts,
}

/// Who may read a new repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Visibility {
    /// Whoever is given a role.
    Private,
    /// Everyone.
    Public,
}

/// Text that is never shown.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

/// What stands where a secret is not shown.
const HIDDEN: &str = "(hidden)";

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if self.0.is_empty() { "" } else { HIDDEN })
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// A number of bytes: an integer, or text with a unit (`64KiB`, `10MiB`, `2GiB`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// Units, largest first, so that a size is shown in the largest that divides it.
const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl ByteSize {
    /// So many mebibytes.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// As a length in memory.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS
            .iter()
            .find(|(_, unit)| self.0 > 0 && self.0.is_multiple_of(*unit))
        {
            Some((name, unit)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

impl std::str::FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unit = UNITS
            .iter()
            .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)));
        let (digits, unit) = unit.unwrap_or((text, 1));
        let count = digits.trim_end().parse::<u64>().ok();
        let size = count
            .and_then(|count| count.checked_mul(unit))
            .filter(|size| i64::try_from(*size).is_ok());
        size.map(Self)
            .ok_or_else(|| "expected a number of bytes such as 1048576, 64KiB, 10MiB or 2GiB".to_owned())
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Bytes(u64),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Bytes(bytes) => Ok(Self(bytes)),
            Form::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}
