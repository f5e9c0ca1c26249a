//! Which service, and which version of the protocol.

/// The two services of a Git server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// Serves fetches.
    UploadPack,
    /// Takes pushes.
    ReceivePack,
}

impl Service {
    /// The name in URLs, content types and SSH commands: `git-upload-pack`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UploadPack => "git-upload-pack",
            Self::ReceivePack => "git-receive-pack",
        }
    }

    /// The service of that name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        [Self::UploadPack, Self::ReceivePack]
            .into_iter()
            .find(|service| service.name().as_bytes() == name)
    }
}

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Version {
    /// Refs first, then want and have.
    #[default]
    V0,
    /// As V0, announced by a line `version 1`.
    V1,
    /// Commands (gitprotocol-v2); fetches only.
    V2,
}

impl Version {
    /// The version asked for by a `Git-Protocol` header or `GIT_PROTOCOL` variable: a list of keys between colons, of
    /// which the highest known `version=` counts; unknown keys and values are ignored (gitprotocol-http,
    /// gitprotocol-v2).
    pub fn requested(keys: &[u8]) -> Self {
        keys.split(|byte| *byte == b':')
            .filter_map(Self::from_key)
            .max()
            .unwrap_or_default()
    }

    /// The version to speak for a service: pushes know no V2 and get V0, as in git.
    pub fn of_service(self, service: Service) -> Self {
        match (service, self) {
            (Service::ReceivePack, Self::V2) => Self::V0,
            _ => self,
        }
    }

    fn from_key(key: &[u8]) -> Option<Self> {
        match key.strip_prefix(b"version=")? {
            b"0" => Some(Self::V0),
            b"1" => Some(Self::V1),
            b"2" => Some(Self::V2),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_known_version_wins() {
        for (keys, version) in [
            (&b""[..], Version::V0),
            (b"version=1", Version::V1),
            (b"version=2", Version::V2),
            (b"version=2:version=1", Version::V2),
            (b"side=left:version=1:version=", Version::V1),
            (b"version=3", Version::V0),
            (b"version=02", Version::V0),
            (b"Version=2", Version::V0),
        ] {
            assert_eq!(Version::requested(keys), version, "{}", keys.escape_ascii());
        }
    }

    #[test]
    fn pushes_speak_no_v2() {
        assert_eq!(Version::V2.of_service(Service::ReceivePack), Version::V0);
        assert_eq!(Version::V1.of_service(Service::ReceivePack), Version::V1);
        assert_eq!(Version::V2.of_service(Service::UploadPack), Version::V2);
    }

    #[test]
    fn services_have_names() {
        assert_eq!(Service::from_name(b"git-receive-pack"), Some(Service::ReceivePack));
        assert_eq!(Service::from_name(b"git-upload-archive"), None);
    }
}
