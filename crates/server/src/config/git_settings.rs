//! Settings under git's own names: what all repositories of a node have that set nothing else.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Values by canonical name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct GitSettings(pub BTreeMap<String, String>);

impl GitSettings {
    /// Settings as `name=value`, one a line; a name that comes again adds a line to its list.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut settings = Self::default();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let (name, value) = line
                .split_once('=')
                .ok_or_else(|| format!("expected '<name>=<value>', got '{}'", line.escape_debug()))?;
            settings.add(name.trim(), value.trim())?;
        }
        Ok(settings)
    }

    fn add(&mut self, name: &str, value: &str) -> Result<(), String> {
        let list = self.0.entry(canonical_key(name)?).or_default();
        if !list.is_empty() {
            list.push('\n');
        }
        list.push_str(value);
        Ok(())
    }
}

impl<'de> Deserialize<'de> for GitSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Flag(bool),
            Number(i64),
            Text(String),
            List(Vec<String>),
        }
        let mut settings = Self::default();
        for (name, form) in BTreeMap::<String, Form>::deserialize(deserializer)? {
            let value = match form {
                Form::Flag(flag) => flag.to_string(),
                Form::Number(number) => number.to_string(),
                Form::Text(text) => text,
                Form::List(lines) => lines.join("\n"),
            };
            settings.add(&name, &value).map_err(serde::de::Error::custom)?;
        }
        Ok(settings)
    }
}

/// Section and variable in lower case, as git compares them; what lies between (a subsection) is kept.
pub fn canonical_key(key: &str) -> Result<String, String> {
    let parts = key.split_once('.').map(|(section, rest)| match rest.rsplit_once('.') {
        Some((subsection, variable)) => (section, Some(subsection), variable),
        None => (section, None, rest),
    });
    let word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    match parts {
        Some((section, middle, variable)) if word(section) && word(variable) && !key.contains(char::is_control) => {
            let middle = middle.map_or_else(String::new, |middle| format!("{middle}."));
            Ok(format!(
                "{}.{middle}{}",
                section.to_ascii_lowercase(),
                variable.to_ascii_lowercase()
            ))
        }
        _ => Err(format!(
            "'{}' is not the name of a setting: expected '<section>.<variable>'",
            key.escape_debug()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_compared_as_git_does() {
        for (given, canonical) in [
            ("receive.denyNonFastForwards", "receive.denynonfastforwards"),
            ("Receive.Fsck.badDate", "receive.Fsck.baddate"),
            ("uploadpackfilter.blob:none.allow", "uploadpackfilter.blob:none.allow"),
        ] {
            assert_eq!(canonical_key(given).unwrap(), canonical);
        }
        for refused in ["", "receive", "receive.", ".x", "a b.c", "a.b c", "a.\n.c"] {
            assert!(canonical_key(refused).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn lines_and_tables_mean_the_same() {
        let lines = "uploadpack.allowFilter=true\n\ntransfer.hideRefs=refs/a\ntransfer.hideRefs=refs/b=c\n";
        let table = "'uploadpack.allowFilter' = true\n'transfer.hideRefs' = ['refs/a', 'refs/b=c']";
        let parsed = GitSettings::parse(lines).unwrap();
        assert_eq!(toml::from_str::<GitSettings>(table).unwrap(), parsed);
        assert_eq!(parsed.0["transfer.hiderefs"], "refs/a\nrefs/b=c");
        assert!(GitSettings::parse("uploadpack.allowFilter").is_err());
        assert!(toml::from_str::<GitSettings>("a = true").is_err());
    }
}
