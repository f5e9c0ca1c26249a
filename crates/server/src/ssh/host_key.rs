//! The key that tells this server from others: made once, then kept, or given by whoever runs several nodes under one name.

use crate::config::Settings;
use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, PrivateKey};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Where the key is if nobody says otherwise, in the data directory.
const FILE_NAME: &str = "ssh_host_ed25519_key";
/// Longest key file that is read.
const FILE_LEN_MAX: u64 = 64 << 10;
/// The permission bits that a key file must not have: group may read it, so that secrets can be mounted; others may nothing.
const OPEN_BITS: u32 = 0o037;

/// Why there is no host key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostKeyError {
    /// The file could not be read or written.
    #[error("cannot use the host key '{}': {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Others may read or change the file.
    #[error("the host key '{}' is open to others (mode {mode:03o}): run 'chmod 600' on it", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file holds no key that can be used.
    #[error("the host key '{}' is no unencrypted OpenSSH private key: {message}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
}

/// The host key of the node. The one in the data directory is made if it is missing; one that the settings name must be
/// there, for nodes that each made their own would look like impostors.
pub fn load(settings: &Settings) -> Result<PrivateKey, HostKeyError> {
    if !settings.ssh_host_key.is_empty() {
        return read(Path::new(&settings.ssh_host_key));
    }
    let path = settings.data.join(FILE_NAME);
    match path.try_exists() {
        Ok(true) => read(&path),
        Ok(false) => make(&path),
        Err(source) => Err(HostKeyError::Io { path, source }),
    }
}

fn read(path: &Path) -> Result<PrivateKey, HostKeyError> {
    let io = |source| HostKeyError::Io {
        path: path.to_owned(),
        source,
    };
    let invalid = |message: String| HostKeyError::Invalid {
        path: path.to_owned(),
        message,
    };
    let metadata = fs::metadata(path).map_err(io)?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & OPEN_BITS != 0 {
        let path = path.to_owned();
        return Err(HostKeyError::Open { path, mode });
    }
    if metadata.len() > FILE_LEN_MAX {
        return Err(invalid("it is too long".to_owned()));
    }
    let text = fs::read(path).map_err(io)?;
    let key = PrivateKey::from_openssh(&text).map_err(|error| invalid(error.to_string()))?;
    if key.is_encrypted() {
        return Err(invalid("it is encrypted".to_owned()));
    }
    Ok(key)
}

/// Makes a key. It appears under its name whole and durable, or not at all; if somebody else was faster, theirs is the key.
fn make(path: &Path) -> Result<PrivateKey, HostKeyError> {
    let io = |source| HostKeyError::Io {
        path: path.to_owned(),
        source,
    };
    let invalid = |error: russh::keys::ssh_key::Error| HostKeyError::Invalid {
        path: path.to_owned(),
        message: error.to_string(),
    };
    let key = PrivateKey::random(&mut russh::keys::key::safe_rng(), Algorithm::Ed25519).map_err(invalid)?;
    let text = key.to_openssh(LineEnding::LF).map_err(invalid)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(io)?;
    // Nobody but the owner may read what `tempfile` makes.
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(io)?;
    file.write_all(text.as_bytes()).map_err(io)?;
    file.as_file().sync_all().map_err(io)?;
    match file.persist_noclobber(path) {
        Ok(_) => {}
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => return read(path),
        Err(error) => return Err(io(error.error)),
    }
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(io)?;
    read(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    fn settings(data: &Path, host_key: &str) -> Settings {
        Settings {
            data: data.to_owned(),
            ssh_host_key: host_key.to_owned(),
            ..Settings::default()
        }
    }

    #[test]
    fn a_key_is_made_once_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let settings = settings(&directory.path().join("data"), "");
        let made = load(&settings).unwrap();
        assert_eq!(made.algorithm(), Algorithm::Ed25519);
        assert_eq!(load(&settings).unwrap().public_key(), made.public_key());
        let path = settings.data.join(FILE_NAME);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&settings.data).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn all_who_race_get_one_key() {
        let directory = tempfile::tempdir().unwrap();
        let settings = settings(directory.path(), "");
        let keys: Vec<_> = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..8).map(|_| scope.spawn(|| load(&settings).unwrap())).collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| key.public_key() == keys[0].public_key()));
    }

    #[test]
    fn a_named_key_must_be_there_and_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let settings = settings(directory.path(), path.to_str().unwrap());
        assert!(matches!(load(&settings), Err(HostKeyError::Io { .. })));
        let made = make(&path).unwrap();
        for (mode, taken) in [
            (0o600, true),
            (0o400, true),
            (0o440, true),
            (0o644, false),
            (0o620, false),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            match load(&settings) {
                Ok(key) => assert!(taken && key.public_key() == made.public_key(), "{mode:o}"),
                Err(error) => assert!(
                    !taken && matches!(error, HostKeyError::Open { .. }),
                    "{mode:o}: {error}"
                ),
            }
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for text in [
            "",
            "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
        ] {
            fs::write(&path, text).unwrap();
            assert!(matches!(load(&settings), Err(HostKeyError::Invalid { .. })));
        }
    }
}
