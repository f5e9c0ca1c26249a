//! Repositories made by stock git, and its own answers to compare with.

#![allow(dead_code)] // Each test file uses its part.

use std::path::PathBuf;
use std::process::Command;

use cuesta_git::{ObjectFormat, ObjectId};
use cuesta_protocol::advertise::AdvertisedRef;
use feed::feed;
use tempfile::TempDir;

#[path = "../../../../tests/support/feed.rs"]
mod feed;

/// A repository on disk, made and read by stock git without anybody's settings.
pub(crate) struct Repository {
    pub(crate) format: ObjectFormat,
    directory: TempDir,
}

/// A ref as git has it.
#[derive(Debug, Clone)]
pub(crate) struct Ref {
    pub(crate) name: String,
    pub(crate) oid: ObjectId,
    pub(crate) peeled: Option<ObjectId>,
    pub(crate) symref_target: Option<String>,
}

impl Ref {
    pub(crate) fn advertised(&self) -> AdvertisedRef<'_> {
        let target = self.symref_target.as_deref().map(str::as_bytes);
        AdvertisedRef {
            name: self.name.as_bytes(),
            oid: self.oid,
            peeled: self.peeled,
            symref_target: target,
        }
    }
}

impl Repository {
    /// An empty bare repository whose HEAD is to be `refs/heads/main`.
    pub(crate) fn empty(format: ObjectFormat) -> Self {
        let repository = Self {
            format,
            directory: TempDir::new().unwrap(),
        };
        repository.git(&[
            "init",
            "-q",
            "--bare",
            "-b",
            "main",
            &format!("--object-format={format}"),
            ".",
        ]);
        repository
    }

    /// Branches, a line of commits each with a file, and tags of every kind of object.
    pub(crate) fn full(format: ObjectFormat) -> Self {
        let repository = Self::empty(format);
        let mut stream = String::new();
        let mut commit = |branch: &str, mark: u32, from: &str, when: u32| {
            stream += &format!("commit refs/heads/{branch}\nmark :{mark}\ncommitter A <a@b> {when} +0000\ndata 1\nm\n");
            stream += &format!("{from}M 100644 inline file\ndata <<E\n{mark}\nE\n\n");
        };
        for n in 1..=8u32 {
            let from = if n == 1 {
                String::new()
            } else {
                format!("from :{}\n", n - 1)
            };
            commit("main", n, &from, 1_000_000 + n * 100);
        }
        for n in 9..=12u32 {
            let from = format!("from :{}\n", if n == 9 { 4 } else { n - 1 });
            commit("side/topic", n, &from, 1_000_450 + (n - 9) * 100);
        }
        stream += "reset refs/heads/side-a\nfrom :2\n\nreset refs/changes/1/head\nfrom :3\n\n";
        repository.git_with(&["fast-import", "--quiet"], stream.as_bytes());
        for (name, object) in [
            ("v1", "main"),
            ("v0", "main~5"),
            ("of-tree", "main^{tree}"),
            ("of-blob", "main:file"),
        ] {
            repository.git(&["tag", "-a", "-m", "t", name, object]);
        }
        repository.git(&["tag", "-a", "-m", "t", "of-tag", "v1"]);
        repository.git(&["tag", "light", "main~1"]);
        repository.git(&["tag", "blob", "main:file"]);
        repository.git(&["symbolic-ref", "refs/heads/alias", "refs/heads/side/topic"]);
        repository
    }

    /// The output of a git command that must succeed.
    pub(crate) fn git(&self, arguments: &[&str]) -> Vec<u8> {
        self.git_with(arguments, b"")
    }

    /// As [`git`](Self::git), with input.
    pub(crate) fn git_with(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let (output, success) = self.run(arguments, input, None);
        assert!(success, "git {arguments:?} failed");
        output
    }

    /// The output of a git command with this `GIT_PROTOCOL`, and whether it succeeded.
    pub(crate) fn run(&self, arguments: &[&str], input: &[u8], protocol: Option<&str>) -> (Vec<u8>, bool) {
        let mut command = Command::new("git");
        command.current_dir(self.directory.path()).args(arguments);
        let date = "1000000000 +0000";
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("GIT_USER_AGENT", "test/1");
        command
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CEILING_DIRECTORIES", "/");
        command
            .env("GIT_AUTHOR_NAME", "A")
            .env("GIT_AUTHOR_EMAIL", "a@b")
            .env("GIT_AUTHOR_DATE", date);
        command
            .env("GIT_COMMITTER_NAME", "A")
            .env("GIT_COMMITTER_EMAIL", "a@b")
            .env("GIT_COMMITTER_DATE", date);
        command.envs(protocol.map(|protocol| ("GIT_PROTOCOL", protocol)));
        let output = feed(&mut command, input);
        (output.stdout, output.status.success())
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    pub(crate) fn oid(&self, revision: &str) -> ObjectId {
        self.id(&self.git(&["rev-parse", "--verify", revision]))
    }

    /// HEAD if it has a commit, then all refs by name.
    pub(crate) fn refs(&self) -> Vec<Ref> {
        let head = self.run(&["rev-parse", "--verify", "-q", "HEAD"], b"", None);
        let target = self.run(&["symbolic-ref", "-q", "HEAD"], b"", None);
        let target = target.1.then(|| String::from_utf8(target.0).unwrap().trim().to_owned());
        let mut refs = Vec::new();
        if head.1 {
            refs.push(Ref {
                name: "HEAD".into(),
                oid: self.id(&head.0),
                peeled: None,
                symref_target: target,
            });
        }
        let listed = self.git(&[
            "for-each-ref",
            "--format=%(objectname) %(objecttype) %(refname) %(symref)",
        ]);
        for line in String::from_utf8(listed).unwrap().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let peeled = (words[1] == "tag").then(|| self.oid(&format!("{}^{{}}", words[2])));
            let symref_target = Some(words[3].to_owned()).filter(|target| !target.is_empty());
            refs.push(Ref {
                name: words[2].into(),
                oid: self.id(words[0].as_bytes()),
                peeled,
                symref_target,
            });
        }
        refs
    }

    fn id(&self, hex: &[u8]) -> ObjectId {
        ObjectId::from_hex(self.format, hex.trim_ascii()).unwrap()
    }
}
