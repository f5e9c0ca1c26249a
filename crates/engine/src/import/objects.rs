//! Objects on disk (gitrepository-layout, "objects"): which packs and loose objects there are, and what alternates name.

use super::directory::{GitDirectory, read_if_there, refuse_symlink};
use super::error::ImportError;
use cuesta_git::{ObjectFormat, ObjectId};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Alternates of alternates (git's own limit).
const ALTERNATES_DEPTH_MAX: usize = 5;
/// A pack index in memory: about 100 million objects.
const INDEX_OBJECTS_MAX: u32 = 100_000_000;

/// Where a source's objects are.
#[derive(Debug, Default)]
pub(super) struct ObjectFiles {
    pub(super) packs: Vec<PackFile>,
    pub(super) loose: Vec<LooseObject>,
    /// Alternates that were not followed.
    pub(super) passed_over: Vec<PathBuf>,
}

#[derive(Clone, Debug)]
pub(super) struct PackFile {
    pub(super) pack: PathBuf,
    index: PathBuf,
}

#[derive(Clone, Debug)]
pub(super) struct LooseObject {
    pub(super) oid: ObjectId,
    pub(super) path: PathBuf,
}

impl GitDirectory {
    /// Lists packs and loose objects, and with `alternates` those of the repositories that this one borrows from.
    pub(super) fn objects(&self, alternates: bool) -> Result<ObjectFiles, ImportError> {
        let mut files = ObjectFiles::default();
        let mut seen = HashSet::new();
        let mut left = vec![(self.path().join("objects"), 0)];
        while let Some((directory, depth)) = left.pop() {
            if !seen.insert(directory.clone()) {
                continue;
            }
            files.add(&directory, self.object_format())?;
            let borrowed = read_alternates(&directory)?;
            if alternates && depth < ALTERNATES_DEPTH_MAX {
                left.extend(borrowed.into_iter().map(|directory| (directory, depth + 1)));
            } else {
                files.passed_over.extend(borrowed);
            }
        }
        files.packs.sort_by(|left, right| left.pack.cmp(&right.pack));
        files.loose.sort_by_key(|object| object.oid);
        files.loose.dedup_by_key(|object| object.oid);
        Ok(files)
    }
}

impl ObjectFiles {
    fn add(&mut self, directory: &Path, format: ObjectFormat) -> Result<(), ImportError> {
        refuse_symlink(directory)?;
        for (path, name) in list(directory)? {
            if name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                self.add_loose(&path, &name, format)?;
            } else if name == "pack" {
                self.add_packs(&path)?;
            }
        }
        Ok(())
    }

    fn add_loose(&mut self, directory: &Path, fan_out: &str, format: ObjectFormat) -> Result<(), ImportError> {
        for (path, name) in list(directory)? {
            // Anything else is a temporary file.
            if let Ok(oid) = ObjectId::from_hex(format, format!("{fan_out}{name}").as_bytes()) {
                self.loose.push(LooseObject { oid, path });
            }
        }
        Ok(())
    }

    /// A pack without index is not there yet, or not any more.
    fn add_packs(&mut self, directory: &Path) -> Result<(), ImportError> {
        let files = list(directory)?;
        let names: HashSet<&str> = files.iter().map(|(_, name)| name.as_str()).collect();
        for (path, name) in &files {
            let stem = name.strip_suffix(".pack").filter(|stem| stem.starts_with("pack-"));
            if stem.is_some_and(|stem| names.contains(format!("{stem}.idx").as_str())) {
                self.packs.push(PackFile {
                    pack: path.clone(),
                    index: path.with_extension("idx"),
                });
            }
        }
        Ok(())
    }
}

/// The entries of a directory whose names are text; a symbolic link among them is refused.
fn list(directory: &Path) -> Result<Vec<(PathBuf, String)>, ImportError> {
    refuse_symlink(directory)?;
    let mut entries = Vec::new();
    let read = match fs::read_dir(directory) {
        Ok(read) => read,
        // Emptied and removed meanwhile, as `git gc` does.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(entries),
        Err(error) => return Err(ImportError::read(directory)(error)),
    };
    for entry in read {
        let entry = entry.map_err(ImportError::read(directory))?;
        let path = entry.path();
        if entry.file_type().map_err(ImportError::read(&path))?.is_symlink() {
            return Err(ImportError::source(&path, "symbolic links are not followed"));
        }
        if let Ok(name) = entry.file_name().into_string() {
            entries.push((path, name));
        }
    }
    Ok(entries)
}

/// The object directories that one borrows from; relative names start there.
fn read_alternates(directory: &Path) -> Result<Vec<PathBuf>, ImportError> {
    let path = directory.join("info").join("alternates");
    let content = read_if_there(&path)?.unwrap_or_default();
    let lines = content.split(|byte| *byte == b'\n');
    let named = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"));
    let resolve = |line: &[u8]| {
        let text = std::str::from_utf8(line).map_err(|_| ImportError::source(&path, "a path that is not text"))?;
        let named = directory.join(text);
        fs::canonicalize(&named).map_err(ImportError::read(&named))
    };
    // One that is gone is not followed, as in git; its objects may not be needed.
    Ok(named.filter_map(|line| resolve(line).ok()).collect())
}

impl PackFile {
    /// Bytes of the pack; 0 if it is gone.
    pub(super) fn len(&self) -> u64 {
        fs::metadata(&self.pack).map_or(0, |metadata| metadata.len())
    }

    /// The ids of the pack's objects, from its index; `None` if the index is not understood. The pack is the truth: this
    /// only saves reading what is known.
    pub(super) fn oids(&self, format: ObjectFormat) -> Option<Vec<ObjectId>> {
        read_index(&self.index, format).ok().flatten()
    }
}

/// See gitformat-pack, "pack-*.idx files".
fn read_index(path: &Path, format: ObjectFormat) -> io::Result<Option<Vec<ObjectId>>> {
    const MAGIC: [u8; 4] = [0xff, b't', b'O', b'c'];
    let mut file = io::BufReader::with_capacity(256 << 10, File::open(path)?);
    let mut head = [0; 8];
    file.read_exact(&mut head)?;
    let is_v2 = head == [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], 0, 0, 0, 2];
    if !is_v2 {
        return Ok(None);
    }
    let mut fan_out = [0; 1024];
    file.read_exact(&mut fan_out)?;
    let count = fan_out.last_chunk().map_or(0, |last| u32::from_be_bytes(*last));
    if count > INDEX_OBJECTS_MAX {
        return Ok(None);
    }
    let mut oids = Vec::new();
    let mut bytes = vec![0; format.width()];
    for _ in 0..count {
        file.read_exact(&mut bytes)?;
        match ObjectId::from_bytes(format, &bytes) {
            Ok(oid) => oids.push(oid),
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(oids))
}
