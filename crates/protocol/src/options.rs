//! What a server offers. What is not offered here is refused, or ignored where git ignores it.

use crate::capability::sanitized;
use crate::filter::FilterPolicy;

/// What upload-pack offers (git: `uploadpack.*`, `transfer.*`, `lsrefs.unborn`).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UploadOptions {
    /// The `agent=` value; made printable when written.
    pub agent: String,
    /// The `session-id=` value; `None` does not advertise one and refuses the client's (`transfer.advertiseSID`).
    pub session_id: Option<String>,
    /// Which objects may be wanted although no advertised ref is at them; matters to v0 only.
    pub wants: WantPolicy,
    /// The filters that are taken; `None` offers no partial clone (`uploadpack.allowFilter`).
    pub filters: Option<FilterPolicy>,
    /// Whether `want-ref` is taken (`uploadpack.allowRefInWant`).
    pub ref_in_want: bool,
    /// Whether `sideband-all` is taken (`uploadpack.allowSidebandAll`).
    pub sideband_all: bool,
    /// Whether `packfile-uris` is taken (`uploadpack.blobPackfileUri`).
    pub packfile_uris: bool,
    /// What becomes of `unborn` in `ls-refs`.
    pub unborn: Unborn,
    /// Whether `object-info` is a command (`transfer.advertiseObjectInfo`).
    pub object_info: bool,
    /// Whether `bundle-uri` is a command (`uploadpack.advertiseBundleURIs`).
    pub bundle_uri: bool,
    /// The `promisor-remote=` value (`promisor.advertise`).
    pub promisor_remote: Option<String>,
}

/// Objects that may be wanted beyond the advertised tips (git: `uploadpack.allow*SHA1InWant`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum WantPolicy {
    /// Advertised tips; over a stateless connection also what they reach, as refs may have moved between two requests.
    #[default]
    Advertised,
    /// Tips of hidden refs too.
    Tips,
    /// Whatever a ref reaches.
    Reachable,
    /// Tips of hidden refs, and whatever a ref, hidden or not, reaches.
    TipsAndReachable,
    /// Any object of the repository.
    Any,
}

impl WantPolicy {
    /// Whether `allow-tip-sha1-in-want` is advertised.
    pub const fn tips(self) -> bool {
        matches!(self, Self::Tips | Self::TipsAndReachable | Self::Any)
    }

    /// Whether `allow-reachable-sha1-in-want` is advertised.
    pub const fn reachable(self) -> bool {
        matches!(self, Self::Reachable | Self::TipsAndReachable | Self::Any)
    }
}

/// What becomes of a HEAD that points at no commit, in `ls-refs` (`lsrefs.unborn`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unborn {
    /// `ls-refs=unborn` is advertised, and answered.
    #[default]
    Advertise,
    /// Answered, not advertised.
    Allow,
    /// The argument is taken and has no effect.
    Ignore,
}

impl UploadOptions {
    /// What git offers without any settings.
    pub fn new(agent: &str) -> Self {
        Self {
            agent: sanitized(agent),
            session_id: None,
            wants: WantPolicy::default(),
            filters: None,
            ref_in_want: false,
            sideband_all: false,
            packfile_uris: false,
            unborn: Unborn::default(),
            object_info: false,
            bundle_uri: false,
            promisor_remote: None,
        }
    }
}

/// What receive-pack offers (git: `receive.*`, `transfer.*`).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiveOptions {
    /// The `agent=` value; made printable when written.
    pub agent: String,
    /// The `session-id=` value (`transfer.advertiseSID`).
    pub session_id: Option<String>,
    /// Whether all-or-nothing pushes are offered (`receive.advertiseAtomic`; git: true).
    pub atomic: bool,
    /// Whether push options are taken (`receive.advertisePushOptions`).
    pub push_options: bool,
    /// Whether packs may hold offset deltas (`repack.usedeltabaseoffset`; git: true).
    pub ofs_delta: bool,
    /// Whether packs must not be thin.
    pub no_thin: bool,
    /// The nonce of `push-cert=`; `None` refuses certificates (`receive.certNonceSeed`).
    pub push_cert_nonce: Option<String>,
}

impl ReceiveOptions {
    /// What git offers without any settings.
    pub fn new(agent: &str) -> Self {
        Self {
            agent: sanitized(agent),
            session_id: None,
            atomic: true,
            push_options: false,
            ofs_delta: true,
            no_thin: false,
            push_cert_nonce: None,
        }
    }
}
