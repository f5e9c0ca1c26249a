//! Work trees of stock git, and repositories that they are imported into.

use super::engine;
use super::git::Git;
use cuesta_engine::import::{ImportError, ImportOptions, ImportReport};
use cuesta_engine::upload::{UploadRequest, plan};
use cuesta_engine::{Engine, Repository, RepositoryName};
use cuesta_git::{ObjectFormat, ObjectId};
use futures::TryStreamExt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A repository of stock git's, not bare.
pub struct Source {
    dir: tempfile::TempDir,
    format: ObjectFormat,
}

impl Source {
    pub fn new(format: ObjectFormat) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = Self { dir, format };
        source.git(&["init", "-q", "-b", "main", &format!("--object-format={format}")]);
        source
    }

    /// Three commits, a branch, a merge, tags, a note.
    pub fn filled(format: ObjectFormat) -> Self {
        let source = Self::new(format);
        for n in 0..3 {
            source.commit(&format!("dir{n}/file"), &format!("content {n}\n"));
        }
        source.git(&["checkout", "-q", "-b", "side", "HEAD~1"]);
        source.commit("side", "side\n");
        source.git(&["checkout", "-q", "main"]);
        source.git(&["merge", "-q", "-m", "merge", "side"]);
        source.git(&["tag", "-a", "-m", "one", "v1", "HEAD~1"]);
        source.git(&["tag", "-a", "-m", "nested", "v1-again", "v1"]);
        source.git(&["tag", "tree", "HEAD^{tree}"]);
        source.git(&["tag", "blob", "HEAD:side"]);
        source.git(&["notes", "add", "-m", "note"]);
        source
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn git_dir(&self) -> PathBuf {
        self.path().join(".git")
    }

    pub fn git(&self, args: &[&str]) -> String {
        git_in(self.path(), args)
    }

    pub fn commit(&self, path: &str, content: &str) -> ObjectId {
        let file = self.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
        self.git(&["add", "."]);
        self.git(&["commit", "-q", "-m", path]);
        self.oid("HEAD")
    }

    pub fn oid(&self, revision: &str) -> ObjectId {
        ObjectId::from_hex(self.format, self.git(&["rev-parse", revision]).trim().as_bytes()).unwrap()
    }

    pub fn refs(&self) -> Vec<String> {
        let format = "--format=%(objectname) %(refname) %(*objectname)";
        self.git(&["for-each-ref", format])
            .lines()
            .map(|line| line.trim().to_owned())
            .collect()
    }
}

pub fn git_in(directory: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(args)
        .current_dir(directory)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .envs([("GIT_AUTHOR_NAME", "A"), ("GIT_AUTHOR_EMAIL", "a@example.com")])
        .envs([("GIT_COMMITTER_NAME", "C"), ("GIT_COMMITTER_EMAIL", "c@example.com")])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// An engine and what was imported into it.
pub struct Target {
    pub engine: Engine,
    pub name: RepositoryName,
}

impl Target {
    pub async fn new() -> Self {
        let name = RepositoryName::parse("ann/thing").unwrap();
        Self {
            engine: engine().await,
            name,
        }
    }

    pub async fn try_import(
        &self,
        source: &Path,
        change: impl FnOnce(&mut ImportOptions),
    ) -> Result<ImportReport, ImportError> {
        let mut options = ImportOptions::default();
        change(&mut options);
        self.engine
            .import_directory(&self.name, source.to_owned(), &options, Arc::new(|_| ()))
            .await
    }

    pub async fn import(&self, source: &Path) -> ImportReport {
        self.try_import(source, |_| ()).await.unwrap()
    }

    pub async fn import_exact(&self, source: &Path) -> ImportReport {
        self.try_import(source, |options| options.exact = true).await.unwrap()
    }

    pub async fn repository(&self) -> Arc<Repository> {
        self.engine.repository(&self.name).await.unwrap().unwrap()
    }

    pub async fn has(&self, oid: ObjectId) -> bool {
        self.repository()
            .await
            .view()
            .await
            .unwrap()
            .object(&oid)
            .await
            .unwrap()
            .is_some()
    }

    pub async fn refs(&self) -> Vec<String> {
        let view = self.repository().await.view().await.unwrap();
        let line = |shown: cuesta_engine::AdvertisedRef<'_>| {
            let peeled = shown.peeled.map(|peeled| peeled.to_string()).unwrap_or_default();
            format!("{} {} {peeled}", shown.oid, shown.name).trim().to_owned()
        };
        view.refs().map(line).collect()
    }

    pub async fn head(&self) -> String {
        let view = self.repository().await.view().await.unwrap();
        let state = view.state();
        match state.symrefs().get(b"HEAD".as_slice()) {
            Some(target) => target.to_string(),
            None => state.refs()[b"HEAD".as_slice()].oid.to_string(),
        }
    }

    /// Fetches everything, as a clone does; stock git checks that it is whole.
    pub async fn clone_all(&self) -> Git {
        let view = self.repository().await.view().await.unwrap();
        let wants: Vec<ObjectId> = view.refs().map(|shown| shown.oid).collect();
        let request = UploadRequest {
            wants,
            ofs_delta: true,
            ..UploadRequest::default()
        };
        let pack = plan(&view, &request)
            .await
            .unwrap()
            .stream()
            .try_collect::<Vec<_>>()
            .await
            .unwrap()
            .concat();
        let git = Git::new(view.object_format());
        git.run(&["index-pack", "--stdin"], &pack).unwrap();
        for shown in view.refs() {
            git.run(&["update-ref", &shown.name.to_string(), &shown.oid.to_string()], b"")
                .unwrap();
        }
        git.run(&["fsck", "--full", "--strict"], b"").unwrap();
        git
    }

    /// The repository has the refs and the reachable objects of the source.
    pub async fn equals(&self, source: &Source) {
        assert_eq!(self.refs().await, source.refs());
        let git = self.clone_all().await;
        let list = |text: String| {
            let mut oids: Vec<String> = text
                .lines()
                .map(|line| line.split(' ').next().unwrap().to_owned())
                .collect();
            oids.sort();
            oids
        };
        let ours = git.run(&["rev-list", "--objects", "--all"], b"").unwrap();
        let theirs = source.git(&["rev-list", "--objects", "--all"]);
        assert_eq!(list(String::from_utf8(ours).unwrap()), list(theirs));
    }
}
