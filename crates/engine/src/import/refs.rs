//! Refs on disk (gitrepository-layout, "refs", "packed-refs", "HEAD").

use super::directory::{GitDirectory, SourceRefs, read_if_there};
use super::error::ImportError;
use cuesta_git::{ObjectFormat, ObjectId, RefName};
use std::fs;
use std::path::Path;

/// Directories below `refs`.
const DEPTH_MAX: usize = 128;

impl GitDirectory {
    /// The refs, shallow boundary and settings, as they are now. A loose ref counts before a packed one; what git itself
    /// would ignore (broken names, refs without a value) is left out with a warning.
    pub fn refs(&self) -> Result<SourceRefs, ImportError> {
        let mut read = SourceRefs {
            shallow: self.shallow()?,
            settings: self.settings().clone(),
            ..SourceRefs::default()
        };
        let format = self.object_format();
        // Loose refs first: one that is packed meanwhile is then seen twice, and never missed.
        let mut loose = SourceRefs::default();
        read_loose(&self.path().join("refs"), b"refs", 0, format, &mut loose)?;
        if let Some(content) = read_if_there(&self.path().join("packed-refs"))? {
            read_packed(&content, format, &mut read);
        }
        for (name, target) in loose.symrefs {
            read.refs.remove(&name);
            read.symrefs.insert(name, target);
        }
        read.refs.append(&mut loose.refs);
        read.warnings.append(&mut loose.warnings);
        self.read_head(&mut read)?;
        Ok(read)
    }

    fn read_head(&self, read: &mut SourceRefs) -> Result<(), ImportError> {
        let path = self.path().join("HEAD");
        let content = read_if_there(&path)?.unwrap_or_default();
        match parse(&content, self.object_format()) {
            Some(Value::Direct(oid)) => drop(read.refs.insert(RefName::head(), oid)),
            Some(Value::Symbolic(target)) => drop(read.symrefs.insert(RefName::head(), target)),
            None => return Err(ImportError::source(&path, "neither an object id nor a ref")),
        }
        Ok(())
    }
}

enum Value {
    Direct(ObjectId),
    Symbolic(RefName),
}

/// The content of a loose ref. As git, ignores what follows an id and a blank.
fn parse(content: &[u8], format: ObjectFormat) -> Option<Value> {
    if let Some(target) = content.strip_prefix(b"ref:") {
        return RefName::new(target.trim_ascii()).ok().map(Value::Symbolic);
    }
    let (hex, rest) = content.split_at_checked(format.hex_width())?;
    let oid = ObjectId::from_hex(format, hex).ok().filter(|oid| !oid.is_null())?;
    rest.first()
        .is_none_or(u8::is_ascii_whitespace)
        .then_some(Value::Direct(oid))
}

fn read_loose(
    directory: &Path,
    prefix: &[u8],
    depth: usize,
    format: ObjectFormat,
    read: &mut SourceRefs,
) -> Result<(), ImportError> {
    if depth > DEPTH_MAX {
        return Err(ImportError::source(directory, "too many directories"));
    }
    for entry in fs::read_dir(directory).map_err(ImportError::read(directory))? {
        let entry = entry.map_err(ImportError::read(directory))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(ImportError::read(&path))?;
        let name = [prefix, b"/", entry.file_name().as_encoded_bytes()].concat();
        if kind.is_dir() {
            read_loose(&path, &name, depth + 1, format, read)?;
        } else if name.ends_with(b".lock") {
            // Someone is at work, or was: git passes it over, too.
        } else {
            read_loose_ref(&path, &name, format, read)?;
        }
    }
    Ok(())
}

fn read_loose_ref(path: &Path, name: &[u8], format: ObjectFormat, read: &mut SourceRefs) -> Result<(), ImportError> {
    let Some(content) = read_if_there(path)? else {
        return Ok(());
    };
    let Ok(ref_name) = RefName::new(name) else {
        read.warnings
            .push(format!("ignoring ref with broken name {}", name.escape_ascii()));
        return Ok(());
    };
    match parse(&content, format) {
        Some(Value::Direct(oid)) => drop(read.refs.insert(ref_name, oid)),
        Some(Value::Symbolic(target)) => drop(read.symrefs.insert(ref_name, target)),
        None => read
            .warnings
            .push(format!("ignoring broken ref {}", name.escape_ascii())),
    }
    Ok(())
}

/// Lines of `<id> <name>`; `^<id>` after one is its peeled value, which is found anew here.
fn read_packed(content: &[u8], format: ObjectFormat, read: &mut SourceRefs) {
    for line in content.split(|byte| *byte == b'\n') {
        if matches!(line.first(), None | Some(b'#' | b'^')) {
            continue;
        }
        let parsed = line.split_at_checked(format.hex_width()).and_then(|(hex, name)| {
            let oid = ObjectId::from_hex(format, hex).ok().filter(|oid| !oid.is_null())?;
            Some((RefName::new(name.strip_prefix(b" ")?.trim_ascii_end()).ok()?, oid))
        });
        match parsed {
            Some((name, oid)) => drop(read.refs.insert(name, oid)),
            None => read
                .warnings
                .push(format!("ignoring line of packed-refs: {}", line.escape_ascii())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_refs_are_parsed_as_git_does() {
        let oid = "1234567890123456789012345678901234567890";
        let direct = |text: &str| matches!(parse(text.as_bytes(), ObjectFormat::Sha1), Some(Value::Direct(_)));
        assert!(direct(oid) && direct(&format!("{oid}\n")) && direct(&format!("{oid} junk")));
        assert!(!direct(&format!("{oid}0")) && !direct(&oid[1..]) && !direct(&"0".repeat(40)) && !direct(""));
        let symbolic = |text: &str| match parse(text.as_bytes(), ObjectFormat::Sha1) {
            Some(Value::Symbolic(name)) => Some(name.to_string()),
            _ => None,
        };
        assert_eq!(symbolic("ref: refs/heads/x\n").as_deref(), Some("refs/heads/x"));
        assert_eq!(symbolic("ref:\trefs/heads/x").as_deref(), Some("refs/heads/x"));
        assert_eq!(symbolic("ref: ../../etc/passwd"), None);
    }
}
