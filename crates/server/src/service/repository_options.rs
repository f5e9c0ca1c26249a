//! A repository's settings (under git's own names) as what its services offer.

use cuesta_engine::upload::WantPolicy;
use cuesta_git::HiddenRefs;
use cuesta_ledger::State;
use cuesta_protocol::Service;
use cuesta_protocol::archive::ArchiveName;
use cuesta_protocol::filter::FilterPolicy;
use cuesta_protocol::options::{self, ReceiveOptions, Unborn, UploadOptions};
use std::collections::BTreeMap;

/// What we call ourselves on the wire.
const AGENT: &str = concat!("cuesta/", env!("CARGO_PKG_VERSION"));

/// The settings of one repository, as of one view.
pub struct RepositoryOptions<'a>(&'a State);

impl<'a> RepositoryOptions<'a> {
    /// The settings in `state`.
    pub fn of(state: &'a State) -> Self {
        Self(state)
    }

    /// Whether the service is served at all over HTTP (`http.uploadpack`, `http.receivepack`).
    pub fn serves(&self, service: Service) -> bool {
        let name = match service {
            Service::UploadPack => "http.uploadpack",
            Service::ReceivePack => "http.receivepack",
        };
        self.flag(name, true)
    }

    /// Whether files are served to dumb clients (`http.getanyfile`).
    pub fn serves_files(&self) -> bool {
        self.flag("http.getanyfile", true)
    }

    /// Whether archives are made over HTTP (`http.uploadarchive`): if nothing is said, as in git, for known users only.
    pub fn serves_archives(&self, authenticated: bool) -> bool {
        self.flag("http.uploadarchive", authenticated)
    }

    /// Whether an archive may be asked for by an id that no ref names (`uploadarchive.allowUnreachable`).
    pub fn archives_unreachable(&self) -> bool {
        self.flag("uploadarchive.allowunreachable", false)
    }

    /// The formats of archives (`tar.tgz.remote`, `tar.tar.gz.remote`).
    pub fn archive_formats(&self) -> Vec<ArchiveName> {
        let allowed = |name: &ArchiveName| match name {
            ArchiveName::Tgz => self.flag("tar.tgz.remote", true),
            ArchiveName::TarGz => self.flag("tar.tar.gz.remote", true),
            ArchiveName::Tar | ArchiveName::Zip => true,
        };
        ArchiveName::ALL.into_iter().filter(allowed).collect()
    }

    /// Mode bits that files of a tar do not get (`tar.umask`; `user` would be the server's own and means the usual one).
    pub fn tar_umask(&self) -> u32 {
        const GIT: u32 = 0o002;
        const USUAL: u32 = 0o022;
        match self.text("tar.umask") {
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

    /// What upload-pack offers.
    pub fn upload(&self) -> UploadOptions {
        let mut offered = default_upload();
        if self.0.settings().is_empty() {
            return offered;
        }
        offered.wants = self.advertised_wants();
        offered.sideband_all = self.flag("uploadpack.allowsidebandall", false);
        offered.filters = self.flag("uploadpack.allowfilter", false).then(|| self.filters());
        offered.unborn = match self.text("lsrefs.unborn") {
            Some("ignore") => Unborn::Ignore,
            Some("allow") => Unborn::Allow,
            _ => Unborn::Advertise,
        };
        offered
    }

    /// What receive-pack offers.
    pub fn receive(&self) -> ReceiveOptions {
        let mut offered = default_receive();
        offered.atomic = self.flag("receive.advertiseatomic", true);
        offered.push_options = self.flag("receive.advertisepushoptions", false);
        offered
    }

    /// The refs that the service neither shows nor lets be changed.
    pub fn hidden(&self, service: Service) -> HiddenRefs {
        let own = match service {
            Service::UploadPack => "uploadpack.hiderefs",
            Service::ReceivePack => "receive.hiderefs",
        };
        let patterns = ["transfer.hiderefs", own]
            .into_iter()
            .filter_map(|name| self.text(name));
        HiddenRefs::new(patterns.flat_map(str::lines).filter(|pattern| !pattern.is_empty()))
    }

    /// Which objects may be wanted. Over v0 a stateless client may lag behind by a moment, so that what visible refs
    /// reach is let through even without a setting (PROTOCOL rule 59); git's v2 serves whatever the repository has. In a
    /// conversation (`stateful`) nothing moves between what is shown and what is wanted.
    pub fn wants(&self, v2: bool, stateful: bool) -> WantPolicy {
        let any = v2 || self.flag("uploadpack.allowanysha1inwant", false);
        let reachable = !stateful || self.flag("uploadpack.allowreachablesha1inwant", false);
        let tips = self.flag("uploadpack.allowtipsha1inwant", false);
        match (any, reachable, tips) {
            (true, _, _) => WantPolicy::Any,
            (false, true, _) => WantPolicy::Reachable,
            (false, false, true) => WantPolicy::AnyTips,
            (false, false, false) => WantPolicy::Tips,
        }
    }

    /// The kinds of filters that are taken (`uploadpackfilter.*`).
    fn filters(&self) -> FilterPolicy {
        let mut policy = FilterPolicy {
            allow: self.flag("uploadpackfilter.allow", true),
            kinds: BTreeMap::new(),
            tree_depth_max: self
                .text("uploadpackfilter.tree.maxdepth")
                .and_then(|max| max.parse().ok()),
        };
        for kind in ["blob:none", "blob:limit", "tree", "object:type", "combine"] {
            let name = format!("uploadpackfilter.{kind}.allow");
            policy.kinds.insert(kind.to_owned(), self.flag(&name, policy.allow));
        }
        // Not built yet.
        policy.kinds.insert("sparse:oid".to_owned(), false);
        policy
    }

    fn advertised_wants(&self) -> options::WantPolicy {
        let set = |name| self.flag(name, false);
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

    fn text(&self, name: &str) -> Option<&'a str> {
        self.0.settings().get(name).map(String::as_str)
    }

    /// As `git config --bool` reads it; what it cannot read is the default.
    fn flag(&self, name: &str, default: bool) -> bool {
        self.text(name).and_then(parse_bool).unwrap_or(default)
    }
}

/// What upload-pack offers without any settings, as git does.
pub fn default_upload() -> UploadOptions {
    UploadOptions::new(AGENT)
}

/// What receive-pack offers without any settings, as git does.
pub fn default_receive() -> ReceiveOptions {
    ReceiveOptions::new(AGENT)
}

fn parse_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" | "" => Some(false),
        _ => None,
    }
}
