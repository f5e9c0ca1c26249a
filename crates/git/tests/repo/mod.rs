//! A throw-away repository that real git reads.

use crate::{Messages, parse_message};
use cuesta_git::zlib::Deflater;
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind, object_id};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

#[derive(Clone)]
pub(crate) struct Object {
    pub(crate) kind: ObjectKind,
    pub(crate) content: Vec<u8>,
}

impl Object {
    pub(crate) fn new(kind: ObjectKind, content: impl AsRef<[u8]>) -> Self {
        Self {
            kind,
            content: content.as_ref().to_vec(),
        }
    }

    pub(crate) fn id(&self, format: ObjectFormat) -> ObjectId {
        object_id(format, self.kind, &self.content).unwrap()
    }
}

/// What a checker says of many objects.
#[derive(Default, Debug)]
pub(crate) struct Verdicts {
    pub(crate) errors: Messages,
    pub(crate) warnings: Messages,
    pub(crate) unparsable: BTreeSet<ObjectId>,
}

pub(crate) struct Repo {
    dir: tempfile::TempDir,
    format: ObjectFormat,
}

impl Repo {
    /// An empty repository; `None` where there is no git.
    pub(crate) fn create(format: ObjectFormat) -> Option<Self> {
        let repo = Self {
            dir: tempfile::tempdir().unwrap(),
            format,
        };
        let created = repo
            .git(&["init", "--quiet", "--bare", "--object-format", format.name(), "."])
            .output()
            .ok()?;
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
        Some(repo)
    }

    fn git(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.args(args).current_dir(self.dir.path());
        command
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("LC_ALL", "C");
        command
    }

    /// Writes a loose object, whatever git would say to it.
    pub(crate) fn write(&self, oid: &ObjectId, object: &Object) {
        let mut loose = Vec::new();
        let whole = [
            format!("{} {}\0", object.kind, object.content.len()).as_bytes(),
            &object.content,
        ]
        .concat();
        Deflater::new(1).deflate(&whole, &mut loose).unwrap();
        let hex = oid.to_string();
        let dir = self.dir.path().join("objects").join(&hex[..2]);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(&hex[2..]), loose).unwrap();
    }

    /// What `git fsck` says of all objects.
    pub(crate) fn fsck(&self, strict: bool) -> Verdicts {
        let mut command = self.git(&["fsck", "--no-dangling", "--no-progress"]);
        if strict {
            command.arg("--strict");
        }
        let output = command.output().unwrap();
        let mut verdicts = Verdicts::default();
        for line in String::from_utf8_lossy(&output.stderr).lines() {
            self.read_line(line, &mut verdicts);
        }
        verdicts
    }

    /// The first thing `git hash-object` finds wrong with an object.
    pub(crate) fn hash_object(&self, object: &Object) -> Option<String> {
        let mut command = self.git(&["hash-object", "--stdin", "-t", object.kind.name()]);
        let pipes = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        child.stdin.take().unwrap().write_all(&object.content).unwrap();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let message = stderr
            .lines()
            .find_map(|line| line.strip_prefix("error: object fails fsck: ").and_then(parse_message));
        // The other way round does not hold: git forgets what it said of a tagger if nothing is wrong after it.
        assert!(message.is_some() || output.status.success(), "{stderr}");
        message
    }

    fn read_line(&self, line: &str, verdicts: &mut Verdicts) {
        if let Some(rest) = line.strip_prefix("error in ") {
            self.read_message(rest, &mut verdicts.errors);
        } else if let Some(rest) = line.strip_prefix("warning in ") {
            self.read_message(rest, &mut verdicts.warnings);
        } else if let Some((oid, _)) = line
            .strip_prefix("error: ")
            .and_then(|rest| rest.split_once(": object could not be parsed"))
        {
            verdicts
                .unparsable
                .extend(ObjectId::from_hex(self.format, oid.as_bytes()));
        }
    }

    /// `<kind> <oid>: <id>: <text>`
    fn read_message(&self, rest: &str, messages: &mut Messages) {
        let parts = rest.split_once(' ').and_then(|(_, rest)| rest.split_once(": "));
        let Some((oid, message)) = parts else { return };
        if let (Ok(oid), Some(message)) = (ObjectId::from_hex(self.format, oid.as_bytes()), parse_message(message)) {
            messages.entry(oid).or_default().insert(message);
        }
    }
}
