//! The keys of our payloads in the bucket (docs/format/keys.md).

use crate::{LayerId, LogId};
use std::fmt;

/// A key of ours in the bucket. Its `Display` is the key; [`Key::parse`] is the way back, for repair by listing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// The pack of a layer.
    LayerPack(LogId, LayerId),
    /// The cue of a layer.
    LayerCue(LogId, LayerId),
    /// The state of a log before the entry of that number.
    Checkpoint(LogId, u64),
    /// The entry of that number, where the bucket itself holds the log.
    Entry(LogId, u64),
    /// Where a log begins, where the bucket itself holds it.
    Base(LogId),
}

impl Key {
    /// The key that is written so; `None` for keys of others.
    pub fn parse(key: &str) -> Option<Self> {
        let (log, rest) = match key.split_once('/')? {
            ("directory", rest) => (LogId::DIRECTORY, rest),
            ("accounts", rest) => (LogId::ACCOUNTS, rest),
            ("repos", rest) => {
                let (log, rest) = rest.split_once('/')?;
                (LogId::from_hex(log)?, rest)
            }
            _ => return None,
        };
        let parsed = match rest.split_once('/') {
            None => Self::Base(log),
            Some(("layers", name)) => match name.rsplit_once('.')? {
                (layer, "pack") => Self::LayerPack(log, LayerId::from_hex(layer)?),
                (layer, "cue") => Self::LayerCue(log, LayerId::from_hex(layer)?),
                _ => return None,
            },
            Some(("checkpoints", name)) => Self::Checkpoint(log, number(name.strip_suffix(".ckpt")?)?),
            Some(("entries", name)) => Self::Entry(log, number(name.strip_suffix(".entry")?)?),
            Some(_) => return None,
        };
        // One spelling for each key: upper-case digits, or the directory under its number, are none of ours.
        (parsed.to_string() == key).then_some(parsed)
    }

    /// The log whose payload it is.
    pub fn log(&self) -> LogId {
        match self {
            Self::LayerPack(log, _)
            | Self::LayerCue(log, _)
            | Self::Checkpoint(log, _)
            | Self::Entry(log, _)
            | Self::Base(log) => *log,
        }
    }
}

fn number(hex: &str) -> Option<u64> {
    u64::from_str_radix(hex, 16).ok()
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&log_prefix(self.log()))?;
        match self {
            Self::LayerPack(_, layer) => write!(f, "layers/{layer}.pack"),
            Self::LayerCue(_, layer) => write!(f, "layers/{layer}.cue"),
            Self::Checkpoint(_, number) => write!(f, "checkpoints/{number:016x}.ckpt"),
            Self::Entry(_, number) => write!(f, "entries/{number:016x}.entry"),
            Self::Base(_) => f.write_str("base"),
        }
    }
}

/// What every key of a log starts with: `repos/<log>/`, `directory/` or `accounts/`.
pub fn log_prefix(log: LogId) -> String {
    match log {
        LogId::DIRECTORY => "directory/".to_owned(),
        LogId::ACCOUNTS => "accounts/".to_owned(),
        log => format!("repos/{log}/"),
    }
}

/// What the keys of a repository's layers start with.
pub fn layers_prefix(log: LogId) -> String {
    log_prefix(log) + "layers/"
}

/// What the keys of a log's checkpoints start with. They order as their numbers do.
pub fn checkpoints_prefix(log: LogId) -> String {
    log_prefix(log) + "checkpoints/"
}

/// What the keys of a log's entries start with. They order as their numbers do.
pub fn entries_prefix(log: LogId) -> String {
    log_prefix(log) + "entries/"
}

/// The key of a layer's pack.
pub fn layer_pack_key(log: LogId, layer: LayerId) -> String {
    Key::LayerPack(log, layer).to_string()
}

/// The key of a layer's cue.
pub fn layer_cue_key(log: LogId, layer: LayerId) -> String {
    Key::LayerCue(log, layer).to_string()
}

/// The key of the checkpoint before the entry of that number.
pub fn checkpoint_key(log: LogId, number: u64) -> String {
    Key::Checkpoint(log, number).to_string()
}

/// The key of an entry, where the bucket holds the log.
pub fn entry_key(log: LogId, number: u64) -> String {
    Key::Entry(log, number).to_string()
}

/// The key of the payload that says where a log begins, where the bucket holds it.
pub fn base_key(log: LogId) -> String {
    Key::Base(log).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_spelled_so() {
        let (log, layer) = (LogId(0xa1), LayerId(0xb2));
        assert_eq!(
            layer_pack_key(log, layer),
            "repos/000000000000000000000000000000a1/layers/000000000000000000000000000000b2.pack"
        );
        assert_eq!(
            layer_cue_key(log, layer),
            "repos/000000000000000000000000000000a1/layers/000000000000000000000000000000b2.cue"
        );
        assert_eq!(
            checkpoint_key(log, 255),
            "repos/000000000000000000000000000000a1/checkpoints/00000000000000ff.ckpt"
        );
        assert_eq!(
            entry_key(LogId::DIRECTORY, 16),
            "directory/entries/0000000000000010.entry"
        );
        assert_eq!(base_key(LogId::DIRECTORY), "directory/base");
        assert_eq!(base_key(LogId::ACCOUNTS), "accounts/base");
    }

    #[test]
    fn keys_parse_back() {
        let (log, layer) = (LogId(u128::MAX), LayerId(7));
        let keys = [
            Key::LayerPack(log, layer),
            Key::LayerCue(log, layer),
            Key::Checkpoint(log, u64::MAX),
            Key::Checkpoint(LogId::DIRECTORY, 0),
            Key::Entry(log, 1),
            Key::Base(log),
            Key::Base(LogId::DIRECTORY),
            Key::Checkpoint(LogId::ACCOUNTS, 9),
            Key::Base(LogId::ACCOUNTS),
        ];
        for key in keys {
            assert_eq!(Key::parse(&key.to_string()), Some(key));
        }
    }

    #[test]
    fn other_keys_are_not_ours() {
        let others = [
            "",
            "repos",
            "repos/",
            "repos/xyz/base",
            "directory",
            "directory/",
            "directory/other",
            "directory/checkpoints/ff.ckpt",
            "directory/checkpoints/00000000000000FF.ckpt",
            "directory/checkpoints/00000000000000ff.tmp",
            "repos/00000000000000000000000000000000/base",
            "repos/00000000000000000000000000000001/base",
            "accounts",
            "accounts/other",
            "repos/000000000000000000000000000000a1/layers/000000000000000000000000000000b2",
            "repos/000000000000000000000000000000a1/layers/000000000000000000000000000000b2.idx",
            "repos/000000000000000000000000000000A1/base",
            "repos/000000000000000000000000000000a1/base/",
        ];
        for other in others {
            assert_eq!(Key::parse(other), None, "{other}");
        }
    }
}
