//! Histories made up from a seed: the same commits every time, so that two servers are given the same objects.

use crate::format::Format;
use fastrand::Rng;

/// What a file becomes in a commit: its content, or gone.
type Change<'a> = (&'a str, Option<&'a str>);

/// A stream for `git fast-import`.
pub(crate) struct History {
    format: Format,
    stream: Vec<u8>,
    mark: u32,
    /// Seconds; every commit is later than the one before.
    time: u64,
    random: Rng,
}

impl History {
    /// An empty history.
    pub(crate) fn new(format: Format, seed: u64) -> Self {
        Self {
            format,
            stream: Vec::new(),
            mark: 0,
            time: 1_600_000_000 + seed * 1_000_000,
            random: Rng::with_seed(seed),
        }
    }

    /// The stream so far.
    pub(crate) fn stream(&self) -> &[u8] {
        &self.stream
    }

    /// Adds a commit to `branch` (a short name). Parents are marks returned earlier, or oids. Returns its mark.
    pub(crate) fn commit(&mut self, branch: &str, parents: &[String], changes: &[Change<'_>]) -> String {
        let mark = self.start(branch, parents);
        for (path, content) in changes {
            match content {
                Some(content) => self.write_file("100644", path, content),
                None => self.write(&format!("D {path}\n")),
            }
        }
        self.write("\n");
        mark
    }

    /// `count` commits in a row, each changing a few files of a tree that grows. Returns the last one's mark.
    pub(crate) fn line(&mut self, branch: &str, parents: &[String], count: u32) -> Option<String> {
        let mut parents = parents.to_vec();
        for _ in 0..count {
            parents = vec![self.random_commit(branch, &parents)];
        }
        parents.pop()
    }

    /// A history with forks, merges (some of three), several roots, renames, reverts, files that come back, links,
    /// modules and odd modes, on `branches` branches named `<prefix><n>`.
    pub(crate) fn tangle(&mut self, prefix: &str, branches: u32, commits: u32) {
        let mut tips: Vec<String> = Vec::new();
        for number in 0..branches.min(2) {
            tips.push(self.random_commit(&format!("{prefix}{number}"), &[]));
        }
        for _ in 0..commits {
            let at = self.random.usize(..tips.len());
            let mut parents = vec![tips[at].clone()];
            match self.random.u32(..10) {
                0 if tips.len() < branches as usize => {
                    let branch = format!("{prefix}{}", tips.len());
                    tips.push(self.random_commit(&branch, &parents));
                    continue;
                }
                1 | 2 => self.add_parents(&mut parents, &tips),
                _ => {}
            }
            tips[at] = self.random_commit(&format!("{prefix}{at}"), &parents);
        }
    }

    fn add_parents(&mut self, parents: &mut Vec<String>, tips: &[String]) {
        for _ in 0..self.random.usize(1..3) {
            let other = &tips[self.random.usize(..tips.len())];
            if !parents.contains(other) {
                parents.push(other.clone());
            }
        }
    }

    fn random_commit(&mut self, branch: &str, parents: &[String]) -> String {
        let mark = self.start(branch, parents);
        for _ in 0..self.random.u32(1..4) {
            self.random_change();
        }
        self.write("\n");
        mark
    }

    /// Few paths and few contents, so that contents move between paths and come back.
    fn random_change(&mut self) {
        let number = self.random.u32(..40);
        let path = format!("dir{}/sub{}/file{number}", number % 4, number % 3);
        match self.random.u32(..16) {
            0 => self.write(&format!("D {path}\n")),
            1 => self.write_file("120000", &path, "../elsewhere"),
            2 => self.write_module(&path, number + 1),
            3 => self.write_file("100755", &path, "#!/bin/sh\n"),
            4 => self.write(&format!("D dir{}/sub{}\n", number % 4, number % 3)),
            5 => self.write_file("100644", &path, &format!("content {}\n", number % 5)),
            _ => {
                let lines = self.random.u32(20..60);
                let salt = self.random.u32(..1000);
                let text: String = (0..lines)
                    .map(|line| format!("line {line} of {}\n", if line == lines / 2 { salt } else { number }))
                    .collect();
                self.write_file("100644", &path, &text);
            }
        }
    }

    fn start(&mut self, branch: &str, parents: &[String]) -> String {
        self.mark += 1;
        self.time += 60;
        let (mark, time) = (self.mark, self.time);
        if parents.is_empty() {
            self.write(&format!("reset refs/heads/{branch}\n"));
        }
        self.write(&format!("commit refs/heads/{branch}\nmark :{mark}\n"));
        self.write(&format!("author A U Thor <author@example.com> {time} +0100\n"));
        self.write(&format!("committer C O Mitter <committer@example.com> {time} -0330\n"));
        self.write_data(&format!("commit {mark} of {branch}\n"));
        for (number, parent) in parents.iter().enumerate() {
            let word = if number == 0 { "from" } else { "merge" };
            self.write(&format!("{word} {parent}\n"));
        }
        format!(":{mark}")
    }

    /// A commit of another repository, which has a number for an oid.
    fn write_module(&mut self, path: &str, number: u32) {
        let digits = self.format.zero().len();
        self.write(&format!("M 160000 {number:0digits$x} {path}\n"));
    }

    fn write_file(&mut self, mode: &str, path: &str, content: &str) {
        self.write(&format!("M {mode} inline {path}\n"));
        self.write_data(content);
    }

    fn write_data(&mut self, data: &str) {
        self.write(&format!("data {}\n{data}\n", data.len()));
    }

    fn write(&mut self, text: &str) {
        self.stream.extend_from_slice(text.as_bytes());
    }
}
