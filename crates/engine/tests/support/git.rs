//! Stock git as the other side.

use super::history::History;
use cuesta_git::pack::{EntryHeader, EntryKind, PackHeader};
use cuesta_git::zlib::Deflater;
use cuesta_git::{Checksum, ObjectFormat, ObjectId};
use feed::feed;
use std::collections::BTreeSet;
use std::process::Command;

#[path = "../../../../tests/support/feed.rs"]
mod feed;

/// A bare repository in a temporary directory.
pub struct Git {
    dir: tempfile::TempDir,
}

impl Git {
    pub fn new(format: ObjectFormat) -> Self {
        let git = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        git.run(
            &["init", "-q", "--bare", &format!("--object-format={format}"), "."],
            b"",
        )
        .unwrap();
        git
    }

    /// The output, or what git said.
    pub fn run(&self, args: &[&str], input: &[u8]) -> Result<Vec<u8>, String> {
        let mut command = Command::new("git");
        command
            .args(args)
            .current_dir(self.dir.path())
            .env("GIT_DIR", self.dir.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("HOME", self.dir.path());
        let output = feed(&mut command, input);
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(format!("git {args:?}: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// Takes in these objects of the history, written whole.
    pub fn add(&self, history: &History, oids: &BTreeSet<ObjectId>) {
        let mut pack = PackHeader::new(oids.len() as u32).encode().to_vec();
        let mut deflater = Deflater::new(1);
        for oid in oids {
            let (kind, content) = &history.objects[oid];
            EntryHeader {
                kind: EntryKind::Object(*kind),
                size: content.len() as u64,
            }
            .encode(&mut pack);
            deflater.deflate(content, &mut pack).unwrap();
        }
        let mut checksum = Checksum::new(history.format);
        checksum.update(&pack);
        pack.extend(checksum.finish().as_bytes());
        self.run(&["index-pack", "--stdin"], &pack).unwrap();
    }

    /// Where others fetch from.
    pub fn url(&self) -> String {
        format!("file://{}", self.dir.path().display())
    }

    /// The commits at which its history ends.
    pub fn shallow(&self) -> Vec<ObjectId> {
        let listed = std::fs::read_to_string(self.dir.path().join("shallow")).unwrap_or_default();
        let format = |hex: &str| {
            if hex.len() == 40 {
                ObjectFormat::Sha1
            } else {
                ObjectFormat::Sha256
            }
        };
        listed
            .lines()
            .map(|hex| ObjectId::from_hex(format(hex), hex.as_bytes()).unwrap())
            .collect()
    }

    /// Ends its history at these commits.
    pub fn set_shallow(&self, commits: &BTreeSet<ObjectId>) {
        let path = self.dir.path().join("shallow");
        if commits.is_empty() {
            let _ = std::fs::remove_file(path);
            return;
        }
        let listed: String = commits.iter().map(|oid| format!("{oid}\n")).collect();
        std::fs::write(path, listed).unwrap();
    }

    /// The ids that a rev-list prints.
    pub fn rev_list(&self, args: &[String]) -> Result<BTreeSet<String>, String> {
        let args: Vec<&str> = ["rev-list", "--objects"]
            .into_iter()
            .chain(args.iter().map(String::as_str))
            .collect();
        let output = String::from_utf8(self.run(&args, b"")?).unwrap();
        Ok(output
            .lines()
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect())
    }
}
