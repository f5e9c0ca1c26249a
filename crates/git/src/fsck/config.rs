//! What a check tolerates.

use super::{MessageId, Severity};
use crate::{ErrorKind, ObjectFormat, ObjectId};
use std::collections::HashSet;

/// Names longer than this many bytes are `largePathname`, unless set otherwise.
const TREE_NAME_LEN_MAX: usize = 4096;

/// The settings of a check: strictness, severities by id, objects to skip.
#[derive(Debug, Clone)]
pub struct Config {
    pub(super) strict: bool,
    pub(super) tree_name_len_max: usize,
    severities: Vec<Severity>,
    skipped: HashSet<ObjectId>,
}

/// A setting that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No message has this id.
    #[error("unhandled message id: {0}")]
    UnknownId(String),
    /// Neither `error`, `warn` nor `ignore`.
    #[error("unknown fsck message type: '{0}'")]
    UnknownSeverity(String),
    /// A fatal message stays one.
    #[error("cannot demote {id} to {severity}")]
    Demoted {
        /// The message.
        id: MessageId,
        /// What it was to become.
        severity: String,
    },
    /// The length in `largePathname=<severity>:<length>` is no number of bytes.
    #[error("unable to parse max tree entry len: {0}")]
    Length(String),
    /// A line of a skip list is no object id.
    #[error("invalid object name: {0}")]
    SkippedObject(String),
}

impl ConfigError {
    /// What sort of failure this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::UnknownId(_) => ErrorKind::Unsupported,
            _ => ErrorKind::Corrupt,
        }
    }
}

impl Config {
    /// What `receive.fsckObjects` means: warnings are errors, informations pass.
    pub fn strict() -> Self {
        Self::with_strictness(true)
    }

    /// What a plain `git fsck` means: warnings pass.
    pub fn lenient() -> Self {
        Self::with_strictness(false)
    }

    fn with_strictness(strict: bool) -> Self {
        let severities = MessageId::ALL.iter().map(|id| match id.severity() {
            Severity::Warn if strict => Severity::Error,
            severity => severity,
        });
        Self {
            strict,
            tree_name_len_max: TREE_NAME_LEN_MAX,
            severities: severities.collect(),
            skipped: HashSet::new(),
        }
    }

    /// The setting `receive.fsck.<id> = <value>`, where the value is a severity; that of `largePathname` may go on
    /// with `:<bytes>`, which sets the longest name allowed.
    pub fn set(&mut self, id: &str, value: &str) -> Result<(), ConfigError> {
        let message = MessageId::from_name(id).ok_or_else(|| ConfigError::UnknownId(id.to_owned()))?;
        let value = match value.split_once(':') {
            Some((severity, length)) if message == MessageId::LargePathname => {
                self.tree_name_len_max = parse_length(length).ok_or_else(|| ConfigError::Length(length.to_owned()))?;
                severity
            }
            _ => value,
        };
        let severity = Severity::from_setting(value).ok_or_else(|| ConfigError::UnknownSeverity(value.to_owned()))?;
        if message.severity() == Severity::Fatal && severity != Severity::Error {
            return Err(ConfigError::Demoted {
                id: message,
                severity: value.to_owned(),
            });
        }
        if let Some(slot) = self.severities.get_mut(message as usize) {
            *slot = severity;
        }
        Ok(())
    }

    /// Findings in this object are not reported (`receive.fsck.skipList`).
    pub fn skip(&mut self, oid: ObjectId) {
        self.skipped.insert(oid);
    }

    /// Skips every object of a list: one hex id a line, blank lines and `#` comments aside.
    pub fn skip_list(&mut self, format: ObjectFormat, list: &str) -> Result<(), ConfigError> {
        for line in list.lines() {
            let name = line.split('#').next().unwrap_or_default().trim();
            if !name.is_empty() {
                let oid = ObjectId::from_hex(format, name.as_bytes());
                self.skip(oid.map_err(|_| ConfigError::SkippedObject(name.to_owned()))?);
            }
        }
        Ok(())
    }

    pub(super) fn severity(&self, id: MessageId) -> Severity {
        self.severities.get(id as usize).copied().unwrap_or(Severity::Error)
    }

    pub(super) fn skips(&self, oid: &ObjectId) -> bool {
        !self.skipped.is_empty() && self.skipped.contains(oid)
    }
}

/// A count of bytes with git's suffixes `k`, `m` and `g`.
fn parse_length(text: &str) -> Option<usize> {
    let (digits, shift) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (text.get(..at)?, 10),
        (at, 'm' | 'M') => (text.get(..at)?, 20),
        (at, 'g' | 'G') => (text.get(..at)?, 30),
        _ => (text, 0),
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strictness_turns_warnings_into_errors_only() {
        let (strict, lenient) = (Config::strict(), Config::lenient());
        let table = [
            (MessageId::HasDot, Severity::Error, Severity::Warn),
            (MessageId::BadFilemode, Severity::Info, Severity::Info),
            (MessageId::BadTree, Severity::Error, Severity::Error),
            (MessageId::ExtraHeaderEntry, Severity::Ignore, Severity::Ignore),
        ];
        for (id, when_strict, when_lenient) in table {
            assert_eq!(
                (strict.severity(id), lenient.severity(id)),
                (when_strict, when_lenient),
                "{id}"
            );
        }
    }

    #[test]
    fn settings() {
        let mut config = Config::strict();
        config.set("hasdot", "warn").unwrap();
        config.set("largePathname", "error:1k").unwrap();
        assert_eq!(config.severity(MessageId::HasDot), Severity::Warn);
        assert_eq!(config.tree_name_len_max, 1024);
        assert_eq!(
            config.set("nope", "warn"),
            Err(ConfigError::UnknownId("nope".to_owned()))
        );
        assert_eq!(
            config.set("hasDot", "info"),
            Err(ConfigError::UnknownSeverity("info".to_owned()))
        );
        assert_eq!(
            config.set("largePathname", "warn:x"),
            Err(ConfigError::Length("x".to_owned()))
        );
        let demoted = config.set("nulInHeader", "warn").unwrap_err();
        assert_eq!(demoted.to_string(), "cannot demote nulInHeader to warn");
        assert_eq!(config.set("nulInHeader", "error"), Ok(()));
    }

    #[test]
    fn skip_lists() {
        let mut config = Config::strict();
        let hex = "0123456789abcdef0123456789abcdef01234567";
        config
            .skip_list(ObjectFormat::Sha1, &format!("# known\n\n  {hex}  # broken\n"))
            .unwrap();
        assert!(config.skips(&ObjectId::from_hex(ObjectFormat::Sha1, hex.as_bytes()).unwrap()));
        assert!(!config.skips(&ObjectId::null(ObjectFormat::Sha1)));
        assert!(config.skip_list(ObjectFormat::Sha1, "0123\n").is_err());
    }
}
