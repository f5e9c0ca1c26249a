//! A git repository on disk: where its parts are and what of its config matters here.
//!
//! Nothing in the directory is run, and no file outside it is read but for alternates that the caller asked for: hooks,
//! includes and symbolic links are not followed.

use super::error::ImportError;
use cuesta_git::{ObjectFormat, ObjectId, RefName, config_file};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Sections of a config whose settings mean something to a server.
const SECTIONS: [&str; 7] = [
    "bundle",
    "receive",
    "transfer",
    "uploadpack",
    "uploadpackfilter",
    "uploadarchive",
    "lsrefs",
];
/// Settings outside those sections.
const SETTINGS: [&str; 5] = [
    "http.receivepack",
    "http.uploadpack",
    "http.getanyfile",
    "daemon.uploadpack",
    "daemon.uploadarch",
];
/// Settings in those sections that name files of the source's machine.
const FILE_SETTINGS: [&str; 1] = ["receive.fsck.skiplist"];
/// Settings with several values; the others' last value counts.
const LISTS: [&str; 4] = [
    "transfer.hiderefs",
    "receive.hiderefs",
    "uploadpack.hiderefs",
    "uploadpack.blobpackfileuri",
];
/// Extensions that change nothing for a reader of objects and refs (gitrepository-layout, "repositoryformatversion").
const EXTENSIONS: [&str; 8] = [
    "noop",
    "noop-v1",
    "objectformat",
    "partialclone",
    "preciousobjects",
    "refstorage",
    "relativeworktrees",
    "worktreeconfig",
];
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// A repository's directory: bare, or the `.git` of a work tree.
#[derive(Debug)]
pub struct GitDirectory {
    path: PathBuf,
    format: ObjectFormat,
    settings: BTreeMap<String, String>,
}

/// What a source has beside objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceRefs {
    /// Refs that name objects; `HEAD` is among them if it is detached.
    pub refs: BTreeMap<RefName, ObjectId>,
    /// Symbolic refs; `HEAD` is among them unless it is detached.
    pub symrefs: BTreeMap<RefName, RefName>,
    /// Commits whose parents the source does not have, sorted.
    pub shallow: Vec<ObjectId>,
    /// Settings that matter to a server, under git's own names, lower-cased where git ignores case.
    pub settings: BTreeMap<String, String>,
    /// What was passed over, and why.
    pub warnings: Vec<String>,
}

impl GitDirectory {
    /// Opens the repository at `path`: a bare directory, a work tree with a `.git` directory, or a `.git` file that
    /// names one.
    pub fn open(path: &Path) -> Result<Self, ImportError> {
        let path = locate(path)?;
        for part in ["objects", "refs"] {
            refuse_symlink(&path.join(part))?;
        }
        let config = read_config(&path.join("config"))?;
        let format = check_extensions(&path, &config)?;
        let settings = chosen_settings(config);
        Ok(Self { path, format, settings })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its object format.
    pub fn object_format(&self) -> ObjectFormat {
        self.format
    }

    pub(super) fn settings(&self) -> &BTreeMap<String, String> {
        &self.settings
    }

    /// The shallow boundary, sorted (gitrepository-layout, "shallow").
    pub(super) fn shallow(&self) -> Result<Vec<ObjectId>, ImportError> {
        let path = self.path.join("shallow");
        let Some(content) = read_if_there(&path)? else {
            return Ok(Vec::new());
        };
        let lines = content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let parse = |line: &[u8]| {
            ObjectId::from_hex(self.format, line)
                .map_err(|_| ImportError::source(&path, format!("bad shallow line: {}", line.escape_ascii())))
        };
        let mut shallow = lines.map(parse).collect::<Result<Vec<_>, _>>()?;
        shallow.sort_unstable();
        shallow.dedup();
        Ok(shallow)
    }
}

fn locate(path: &Path) -> Result<PathBuf, ImportError> {
    let path = fs::canonicalize(path).map_err(ImportError::read(path))?;
    if is_repository(&path) {
        return Ok(path);
    }
    let dot_git = path.join(".git");
    let inner = match fs::symlink_metadata(&dot_git) {
        Ok(metadata) if metadata.is_dir() => dot_git,
        Ok(metadata) if metadata.is_file() => gitfile_target(&path, &dot_git)?,
        _ => return Err(ImportError::source(&path, "not a git repository")),
    };
    if inner.join("commondir").exists() {
        return Err(ImportError::source(
            &inner,
            "a linked work tree; import the repository it belongs to",
        ));
    }
    match is_repository(&inner) {
        true => Ok(inner),
        false => Err(ImportError::source(&inner, "not a git repository")),
    }
}

fn gitfile_target(work_tree: &Path, gitfile: &Path) -> Result<PathBuf, ImportError> {
    let content = read_bounded(gitfile, 64 << 10).map_err(ImportError::read(gitfile))?;
    let text = std::str::from_utf8(&content).ok();
    let target = text.and_then(|text| text.strip_prefix("gitdir: "));
    let target = target.ok_or_else(|| ImportError::source(gitfile, "invalid gitfile format"))?;
    let target = work_tree.join(target.trim_end_matches(['\n', '\r']));
    fs::canonicalize(&target).map_err(ImportError::read(&target))
}

/// As git's `is_git_directory`.
fn is_repository(path: &Path) -> bool {
    let is_file = fs::symlink_metadata(path.join("HEAD")).is_ok_and(|head| !head.is_dir());
    is_file && path.join("objects").is_dir() && path.join("refs").is_dir()
}

/// Fails if `path` is a symbolic link: what it leads to is not part of the repository.
pub(super) fn refuse_symlink(path: &Path) -> Result<(), ImportError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_symlink() => {
            Err(ImportError::source(path, "symbolic links are not followed"))
        }
        _ => Ok(()),
    }
}

/// The file's content; `None` if there is no file. Symbolic links are refused.
pub(super) fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, ImportError> {
    refuse_symlink(path)?;
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ImportError::read(path)(error)),
    }
}

fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut content = Vec::new();
    fs::File::open(path)?.take(bytes_max).read_to_end(&mut content)?;
    Ok(content)
}

type Config = Vec<(String, String)>;

/// Every variable in order; a key without a value is true.
fn read_config(path: &Path) -> Result<Config, ImportError> {
    refuse_symlink(path)?;
    let content = match read_bounded(path, CONFIG_BYTES_MAX) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Config::new()),
        Err(error) => return Err(ImportError::read(path)(error)),
    };
    let mut config = Config::new();
    let parsed = config_file::parse(&content, |name, value| {
        // A setting that is not text is none of those chosen.
        if let (Ok(name), Ok(value)) = (std::str::from_utf8(name), std::str::from_utf8(value.unwrap_or(b"true"))) {
            config.push((name.to_owned(), value.to_owned()));
        }
    });
    parsed.map_err(|error| ImportError::source(path, error.to_string()))?;
    Ok(config)
}

fn check_extensions(path: &Path, config: &Config) -> Result<ObjectFormat, ImportError> {
    let mut format = ObjectFormat::Sha1;
    for (name, value) in config {
        let Some(extension) = name.strip_prefix("extensions.") else {
            continue;
        };
        if extension == "refstorage" && value.split(':').next() != Some("files") {
            let what = format!(
                "refs are stored as '{value}', which cannot be read from a directory; serve the repository with git and \
                 import its URL"
            );
            return Err(ImportError::source(path, what));
        }
        if extension == "objectformat" {
            format = ObjectFormat::from_name(value)
                .ok_or_else(|| ImportError::source(path, format!("unknown object format '{value}'")))?;
        }
        if !EXTENSIONS.contains(&extension) {
            return Err(ImportError::source(
                path,
                format!("unknown repository extension '{extension}'"),
            ));
        }
    }
    Ok(format)
}

fn chosen_settings(config: Config) -> BTreeMap<String, String> {
    let mut settings: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in config {
        if !is_imported(&name) {
            continue;
        }
        match settings.get_mut(&name) {
            Some(list) if LISTS.contains(&name.as_str()) => {
                list.push('\n');
                list.push_str(&value);
            }
            _ => drop(settings.insert(name, value)),
        }
    }
    settings
}

/// Whether an import takes a setting over, and an exact one owns it.
pub(super) fn is_imported(name: &str) -> bool {
    let section = name.split('.').next().unwrap_or_default();
    let chosen = SECTIONS.contains(&section) || SETTINGS.contains(&name);
    chosen && !FILE_SETTINGS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Vec<(String, String)> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        fs::write(&path, text).unwrap();
        chosen_settings(read_config(&path).unwrap()).into_iter().collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        expected.iter().map(owned).collect()
    }

    #[test]
    fn only_what_a_server_heeds_is_taken() {
        let text = "[core]\n\tsharedRepository = group\n\thooksPath = /tmp\n[include]\n\tpath = /etc/passwd\n[receive]\n\
            \tdenyDeletes\n\tdenyNonFastForwards = false\n\tdenyNonFastForwards = yes\n[receive \"fsck\"]\n\
            \tskipList = /etc/passwd\n\tbadDate = ignore\n[http]\n\treceivepack = true\n\tproxy = http://x\n[transfer]\n\
            \thideRefs = refs/a\n\thideRefs = !refs/a/b\n[uploadpackfilter \"blob:none\"]\n\tallow = true\n\
            [uploadpack]\n\tblobPackfileUri = a b https://x\n\tblobPackfileUri = c d https://y\n\
            [bundle]\n\tversion = 1\n[bundle \"one\"]\n\turi = https://x/y\n";
        let expected = pairs(&[
            ("bundle.one.uri", "https://x/y"),
            ("bundle.version", "1"),
            ("http.receivepack", "true"),
            ("receive.denydeletes", "true"),
            ("receive.denynonfastforwards", "yes"),
            ("receive.fsck.baddate", "ignore"),
            ("transfer.hiderefs", "refs/a\n!refs/a/b"),
            ("uploadpack.blobpackfileuri", "a b https://x\nc d https://y"),
            ("uploadpackfilter.blob:none.allow", "true"),
        ]);
        assert_eq!(settings(text), expected);
    }

    #[test]
    fn unknown_extensions_and_ref_stores_are_refused() {
        let check = |name: &str, value: &str| {
            let config = vec![(format!("extensions.{name}"), value.to_owned())];
            check_extensions(Path::new("/x"), &config).map_err(|error| error.to_string())
        };
        assert_eq!(check("objectformat", "sha256"), Ok(ObjectFormat::Sha256));
        assert_eq!(check("refstorage", "files"), Ok(ObjectFormat::Sha1));
        assert!(check("refstorage", "reftable").unwrap_err().contains("import its URL"));
        assert!(check("compatobjectformat", "sha1").is_err());
        assert!(check("objectformat", "sha3").is_err());
    }
}
