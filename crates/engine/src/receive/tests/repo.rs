//! A stock git repository in a temporary directory.

use cuesta_git::{ObjectFormat, ObjectId};
use feed::feed;
use std::path::Path;
use std::process::Command;

#[path = "../../../../../tests/support/feed.rs"]
mod feed;

pub(super) struct Repo {
    directory: tempfile::TempDir,
    format: ObjectFormat,
}

impl Repo {
    pub(super) fn new() -> Self {
        Self::with_format(ObjectFormat::Sha1)
    }

    pub(super) fn with_format(format: ObjectFormat) -> Self {
        let repo = Self {
            directory: tempfile::tempdir().unwrap(),
            format,
        };
        repo.git(
            &[
                "init",
                "-q",
                "--bare",
                &format!("--object-format={format}"),
                "-b",
                "main",
                ".",
            ],
            b"",
        );
        repo
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Runs git with some input; panics unless it succeeds.
    pub(super) fn git(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let (success, output, errors) = self.try_git(arguments, input);
        assert!(success, "git {arguments:?}: {}", String::from_utf8_lossy(&errors));
        output
    }

    pub(super) fn try_git(&self, arguments: &[&str], input: &[u8]) -> (bool, Vec<u8>, Vec<u8>) {
        let mut command = Command::new("git");
        command
            .args(arguments)
            .current_dir(self.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .envs([("GIT_AUTHOR_NAME", "A"), ("GIT_AUTHOR_EMAIL", "a@example.com")])
            .envs([("GIT_COMMITTER_NAME", "C"), ("GIT_COMMITTER_EMAIL", "c@example.com")])
            .envs([
                ("GIT_AUTHOR_DATE", "1700000000 +0000"),
                ("GIT_COMMITTER_DATE", "1700000000 +0000"),
            ]);
        let output = feed(&mut command, input);
        (output.status.success(), output.stdout, output.stderr)
    }

    pub(super) fn text(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.git(arguments, b""))
            .unwrap()
            .trim_end()
            .to_owned()
    }

    pub(super) fn oid(&self, hex: &str) -> ObjectId {
        ObjectId::from_hex(self.format, hex.as_bytes()).unwrap()
    }

    pub(super) fn rev(&self, name: &str) -> ObjectId {
        self.oid(&self.text(&["rev-parse", "--verify", name]))
    }

    /// `git rev-list --objects`, ids only.
    pub(super) fn objects(&self, revisions: &[String]) -> Vec<ObjectId> {
        let text = self.git(&["rev-list", "--objects", "--stdin"], revisions.join("\n").as_bytes());
        let lines = String::from_utf8(text).unwrap();
        lines
            .lines()
            .map(|line| self.oid(line.split(' ').next().unwrap()))
            .collect()
    }

    /// A pack of what revisions reach, made with some options of `git pack-objects`.
    pub(super) fn pack(&self, revisions: &[String], options: &[&str]) -> Vec<u8> {
        let mut arguments = vec!["pack-objects", "--revs", "--stdout", "-q"];
        arguments.extend(options);
        self.git(&arguments, (revisions.join("\n") + "\n").as_bytes())
    }
}
