//! Random histories: merges, several roots, reverts, nested trees, submodules, tags of everything.

use super::Rng;
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind, object_id};
use std::collections::{BTreeMap, BTreeSet};

pub type Files = BTreeMap<String, (u32, ObjectId)>;

pub struct Commit {
    pub oid: ObjectId,
    pub tree: ObjectId,
    pub parents: Vec<usize>,
    pub generation: u32,
    pub time: i64,
    pub files: Files,
}

pub struct Tag {
    pub oid: ObjectId,
    pub target: ObjectId,
    pub kind: ObjectKind,
}

pub struct History {
    pub format: ObjectFormat,
    clock: fn(usize) -> i64,
    pub objects: BTreeMap<ObjectId, (ObjectKind, Vec<u8>)>,
    pub commits: Vec<Commit>,
    pub tags: Vec<Tag>,
}

const GITLINK: u32 = 0o160_000;

/// When the commit of a number is made, in seconds since the Unix epoch, if clocks are right.
fn right_clock(commit: usize) -> i64 {
    1_700_000_000 + commit as i64
}

/// As [`right_clock`], where some clocks are wrong by years.
fn wrong_clocks(commit: usize) -> i64 {
    let wrong_by = match commit % 11 {
        3 => -200_000_000,
        7 => 200_000_000,
        _ => 0,
    };
    right_clock(commit) + wrong_by
}

impl History {
    pub fn new(format: ObjectFormat) -> Self {
        Self {
            format,
            clock: right_clock,
            objects: BTreeMap::new(),
            commits: Vec::new(),
            tags: Vec::new(),
        }
    }

    pub fn random(format: ObjectFormat, commits: usize, rng: &mut Rng) -> Self {
        let mut history = Self::new(format);
        history.clock = wrong_clocks;
        for _ in 0..commits {
            let (parents, mut files) = history.random_parents(rng);
            for _ in 0..1 + rng.below(4) {
                history.change(&mut files, rng);
            }
            if rng.one_in(8) && !history.commits.is_empty() {
                // A revert: objects that no parent has, but the repository does.
                files = rng.pick(&history.commits).files.clone();
            }
            history.commit(parents, files);
        }
        for number in 0..rng.below(6) {
            history.random_tag(number, rng);
        }
        history
    }

    fn random_parents(&self, rng: &mut Rng) -> (Vec<usize>, Files) {
        let count = self.commits.len();
        if count == 0 || rng.one_in(12) {
            return (Vec::new(), Files::new());
        }
        // Mostly recent ones.
        let first = if rng.one_in(4) { rng.below(count) } else { count - 1 };
        let mut parents = vec![first];
        while parents.len() < 4 && rng.one_in(4) {
            let other = rng.below(count);
            if !parents.contains(&other) {
                parents.push(other);
            }
        }
        let mut files = Files::new();
        for parent in parents.iter().rev() {
            files.extend(self.commits[*parent].files.clone());
        }
        remove_conflicts(&mut files);
        (parents, files)
    }

    fn change(&mut self, files: &mut Files, rng: &mut Rng) {
        let dirs = ["", "a/", "b/", "a/x/", "a/x/y/", "c/d/e/"];
        let path = format!("{}f{}", rng.pick(&dirs), rng.below(5));
        if rng.one_in(6) {
            files.remove(&path);
            return;
        }
        if rng.one_in(15) {
            let bytes: Vec<u8> = (0..self.format.width()).map(|_| rng.next() as u8 | 1).collect();
            files.insert(
                "sub".to_owned(),
                (GITLINK, ObjectId::from_bytes(self.format, &bytes).unwrap()),
            );
            return;
        }
        let shared: String = (0..rng.below(30)).map(|line| format!("line {line}\n")).collect();
        let content = format!("{shared}{}\n{shared}", if rng.one_in(5) { 0 } else { rng.below(1000) });
        let blob = self.add(ObjectKind::Blob, content.into_bytes());
        let mode = if rng.one_in(5) { 0o100_755 } else { 0o100_644 };
        files.insert(path, (mode, blob));
    }

    pub fn add(&mut self, kind: ObjectKind, content: Vec<u8>) -> ObjectId {
        let oid = object_id(self.format, kind, &content).unwrap();
        self.objects.insert(oid, (kind, content));
        oid
    }

    pub fn tree(&mut self, files: &Files) -> ObjectId {
        let mut here: BTreeMap<Vec<u8>, (u32, ObjectId)> = BTreeMap::new();
        let mut below: BTreeMap<String, Files> = BTreeMap::new();
        for (path, entry) in files {
            match path.split_once('/') {
                Some((dir, rest)) => drop(below.entry(dir.to_owned()).or_default().insert(rest.to_owned(), *entry)),
                None => drop(here.insert(path.clone().into_bytes(), *entry)),
            }
        }
        for (dir, files) in below {
            let tree = self.tree(&files);
            // Git sorts directories as if their names ended in a slash.
            here.insert(format!("{dir}/").into_bytes(), (0o40_000, tree));
        }
        let mut content = Vec::new();
        for (name, (mode, oid)) in here {
            let name = name.strip_suffix(b"/").unwrap_or(&name);
            content.extend(format!("{mode:o} ").into_bytes());
            content.extend(name);
            content.push(0);
            content.extend(oid.as_bytes());
        }
        self.add(ObjectKind::Tree, content)
    }

    pub fn commit(&mut self, parents: Vec<usize>, files: Files) -> usize {
        let tree = self.tree(&files);
        let time = (self.clock)(self.commits.len());
        let mut content = format!("tree {tree}\n");
        for parent in &parents {
            content += &format!("parent {}\n", self.commits[*parent].oid);
        }
        let who = format!("A U Thor <author@example.com> {time} +0000");
        content += &format!("author {who}\ncommitter {who}\n\ncommit {}\n", self.commits.len());
        let oid = self.add(ObjectKind::Commit, content.into_bytes());
        let generation = 1 + parents
            .iter()
            .map(|parent| self.commits[*parent].generation)
            .max()
            .unwrap_or(0);
        self.commits.push(Commit {
            oid,
            tree,
            parents,
            generation,
            time,
            files,
        });
        self.commits.len() - 1
    }

    fn random_tag(&mut self, number: usize, rng: &mut Rng) {
        let oids: Vec<ObjectId> = self.objects.keys().copied().collect();
        let tags: Vec<ObjectId> = self.tags.iter().map(|tag| tag.oid).collect();
        let target = match rng.below(3) {
            0 => rng.pick(&self.commits).oid,
            1 if !tags.is_empty() => *rng.pick(&tags),
            _ => *rng.pick(&oids),
        };
        self.tag(target, number);
    }

    pub fn tag(&mut self, target: ObjectId, number: usize) -> ObjectId {
        let kind = self.objects[&target].0;
        let content = format!(
            "object {target}\ntype {kind}\ntag t{number}\ntagger A U Thor <author@example.com> 1700000000 +0000\n\ntag\n"
        );
        let oid = self.add(ObjectKind::Tag, content.into_bytes());
        self.tags.push(Tag { oid, target, kind });
        oid
    }

    /// A tree or blob and all below it.
    pub fn below(&self, oid: &ObjectId) -> BTreeSet<ObjectId> {
        let mut found = BTreeSet::new();
        let mut next = vec![*oid];
        while let Some(oid) = next.pop() {
            if !found.insert(oid) {
                continue;
            }
            let (kind, content) = &self.objects[&oid];
            if *kind == ObjectKind::Tree {
                let entries = cuesta_git::TreeIter::new(self.format, content).map(|entry| entry.unwrap());
                next.extend(entries.filter(|entry| !entry.mode.is_gitlink()).map(|entry| entry.oid));
            }
        }
        found
    }

    /// Everything reachable from an object.
    pub fn closure(&self, oids: impl IntoIterator<Item = ObjectId>) -> BTreeSet<ObjectId> {
        let by_oid: BTreeMap<ObjectId, &Commit> = self.commits.iter().map(|commit| (commit.oid, commit)).collect();
        let mut found = BTreeSet::new();
        let mut next: Vec<ObjectId> = oids.into_iter().collect();
        while let Some(oid) = next.pop() {
            if found.contains(&oid) {
                continue;
            }
            match self.objects[&oid].0 {
                ObjectKind::Commit => {
                    found.insert(oid);
                    found.extend(self.below(&by_oid[&oid].tree));
                    next.extend(by_oid[&oid].parents.iter().map(|parent| self.commits[*parent].oid));
                }
                ObjectKind::Tag => {
                    found.insert(oid);
                    next.push(self.tags.iter().find(|tag| tag.oid == oid).unwrap().target);
                }
                _ => found.extend(self.below(&oid)),
            }
        }
        found
    }

    /// What a commit adds: its tree's objects that are in no parent's tree.
    pub fn segment(&self, commit: usize) -> BTreeSet<ObjectId> {
        let commit = &self.commits[commit];
        let mut segment = self.below(&commit.tree);
        for parent in &commit.parents {
            for oid in self.below(&self.commits[*parent].tree) {
                segment.remove(&oid);
            }
        }
        segment
    }
}

/// Drops files that lie below another file's name.
fn remove_conflicts(files: &mut Files) {
    let names: Vec<String> = files.keys().cloned().collect();
    files.retain(|path, _| !names.iter().any(|other| path.starts_with(&format!("{other}/"))));
}
