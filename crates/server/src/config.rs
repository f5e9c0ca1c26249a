//! Settings: what they are, and how file, environment and flags make them.
//!
//! The same names everywhere: `cache_bytes_max` in the TOML file, `CUESTA_CACHE_BYTES_MAX` in the environment,
//! `--set cache_bytes_max=…` on the command line (the commonest have flags of their own). Later wins, in that order;
//! a name that is no setting is an error in all three.

mod git_settings;
mod settings;

pub use git_settings::{GitSettings, canonical_key};
pub use settings::{Authentication, ByteSize, LogFormat, Secret, Settings, Visibility};

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// What every environment variable of ours begins with.
const ENVIRONMENT_PREFIX: &str = "CUESTA_";
/// Names the configuration file; the one variable that is not a setting.
const ENVIRONMENT_CONFIG: &str = "CUESTA_CONFIG";
/// The password of `cuesta import --user`: no setting, for it is another host's.
pub(crate) const ENVIRONMENT_IMPORT_PASSWORD: &str = "CUESTA_IMPORT_PASSWORD";

/// What settings are made from, weakest first.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file that `--config` names.
    pub file: Option<PathBuf>,
    /// Environment variables; those that do not begin with `CUESTA_` are left alone.
    pub environment: Vec<(String, String)>,
    /// Settings given as flags: name and value.
    pub flags: Vec<(String, String)>,
}

/// Where a setting's value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said otherwise.
    Default,
    /// The configuration file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// A flag.
    Flag,
}

/// The effective settings and where each came from.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings.
    pub settings: Settings,
    origins: BTreeMap<String, Origin>,
}

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read the configuration '{}': {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The file is not TOML, or names what is no setting, or gives one a wrong value.
    #[error("configuration '{}' is invalid: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        message: String,
    },
    /// An environment variable or flag names what is no setting.
    #[error("unknown setting '{name}' from {origin}")]
    Unknown {
        /// The name as given.
        name: String,
        /// Where it was given.
        origin: Origin,
    },
    /// A value that the setting cannot take.
    #[error("setting '{name}' cannot be '{value}' (from {origin}): {message}")]
    Value {
        /// The setting.
        name: String,
        /// The value as given.
        value: String,
        /// Where it was given.
        origin: Origin,
        /// What is wrong with it.
        message: String,
    },
    /// Settings that do not go together.
    #[error("{0}")]
    Refused(String),
}

impl Config {
    /// Merges the sources and checks the result.
    pub fn load(sources: &Sources) -> Result<Self, ConfigError> {
        let mut merged = Merged::defaults()?;
        if let Some(path) = sources.config_file() {
            merged.add_file(&path)?;
        }
        for (variable, value) in &sources.environment {
            merged.add_variable(variable, value)?;
        }
        for (name, value) in &sources.flags {
            merged.add_text(name, value, Origin::Flag)?;
        }
        merged.finish()
    }

    /// The settings as TOML, each line with its origin as a comment: itself a valid file, but for secrets, which are hidden.
    pub fn show(&self) -> String {
        let table = Table::try_from(&self.settings).unwrap_or_default();
        let line = |(name, value): (&String, &Value)| {
            let origin = self.origins.get(name).unwrap_or(&Origin::Default);
            format!("{:<40} # {origin}\n", format!("{name} = {value}"))
        };
        table.iter().map(line).collect()
    }

    /// Where the setting `name` came from.
    pub fn origin(&self, name: &str) -> &Origin {
        self.origins.get(name).unwrap_or(&Origin::Default)
    }
}

impl Sources {
    /// `--config`, or else `CUESTA_CONFIG`.
    fn config_file(&self) -> Option<PathBuf> {
        let named = |(variable, value): &(String, String)| (variable == ENVIRONMENT_CONFIG).then(|| value.into());
        self.file.clone().or_else(|| self.environment.iter().find_map(named))
    }
}

/// Values on their way to be [`Settings`].
struct Merged {
    values: Table,
    origins: BTreeMap<String, Origin>,
}

impl Merged {
    fn defaults() -> Result<Self, ConfigError> {
        let values = Table::try_from(Settings::default()).map_err(|error| ConfigError::Refused(error.to_string()))?;
        Ok(Self {
            values,
            origins: BTreeMap::new(),
        })
    }

    fn add_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        // Read as settings first: that error names the line and what was expected there.
        let checked = toml::from_str::<Settings>(&text)
            .map(drop)
            .and_then(|()| toml::from_str::<Table>(&text));
        let table = checked.map_err(|error| ConfigError::File {
            path: path.to_owned(),
            message: error.to_string(),
        })?;
        for (name, value) in table {
            self.origins.insert(name.clone(), Origin::File(path.to_owned()));
            self.values.insert(name, value);
        }
        Ok(())
    }

    fn add_variable(&mut self, variable: &str, value: &str) -> Result<(), ConfigError> {
        let Some(name) = variable.strip_prefix(ENVIRONMENT_PREFIX) else {
            return Ok(());
        };
        if [ENVIRONMENT_CONFIG, ENVIRONMENT_IMPORT_PASSWORD].contains(&variable) {
            return Ok(());
        }
        self.add_text(
            &name.to_ascii_lowercase(),
            value,
            Origin::Environment(variable.to_owned()),
        )
    }

    /// Sets one value from text, read as the type that the setting has.
    fn add_text(&mut self, name: &str, text: &str, origin: Origin) -> Result<(), ConfigError> {
        let Some(value) = self.values.get_mut(name) else {
            return Err(ConfigError::Unknown {
                name: name.to_owned(),
                origin,
            });
        };
        let refuse = |message: String| ConfigError::Value {
            name: name.to_owned(),
            value: text.to_owned(),
            origin: origin.clone(),
            message,
        };
        let typed = typed_as(value, text).map_err(&refuse)?;
        // Alone, so that a wrong value is blamed on where it came from.
        let alone = Table::from_iter([(name.to_owned(), typed.clone())]);
        alone
            .try_into::<Settings>()
            .map_err(|error| refuse(error.message().to_owned()))?;
        *value = typed;
        self.origins.insert(name.to_owned(), origin);
        Ok(())
    }

    fn finish(self) -> Result<Config, ConfigError> {
        let mut settings: Settings = self
            .values
            .try_into()
            .map_err(|error: toml::de::Error| ConfigError::Refused(error.message().to_owned()))?;
        if !self.origins.contains_key("bucket") {
            settings.bucket = settings.default_bucket();
        }
        settings.check().map_err(ConfigError::Refused)?;
        Ok(Config {
            settings,
            origins: self.origins,
        })
    }
}

/// Reads `text` as the type of `like`.
fn typed_as(like: &Value, text: &str) -> Result<Value, String> {
    match like {
        Value::Integer(_) => text
            .parse()
            .map(Value::Integer)
            .map_err(|_| "expected a whole number".to_owned()),
        Value::Boolean(_) => text
            .parse()
            .map(Value::Boolean)
            .map_err(|_| "expected 'true' or 'false'".to_owned()),
        Value::Table(earlier) => {
            let given = Table::try_from(GitSettings::parse(text)?).map_err(|error| error.to_string())?;
            Ok(Value::Table(earlier.clone().into_iter().chain(given).collect()))
        }
        _ => Ok(Value::String(text.to_owned())),
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::Flag => f.write_str("flag"),
        }
    }
}

#[cfg(test)]
mod tests;
