//! Attributes and pathspecs held against stock git: random patterns on random paths.

#![allow(clippy::unwrap_used)] // What fails here fails the test.

use cuesta_git::attributes::{AttributeStack, AttributeState};
use cuesta_git::pathspec::Pathspec;
use cuesta_git::sparse::SparsePatterns;
use cuesta_git::wildmatch::Effort;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn git(directory: &Path, arguments: &[&str], input: &str) -> Option<String> {
    let mut child = Command::new("git")
        .current_dir(directory)
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", directory)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_ATTR_NOSYSTEM", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    output
        .status
        .success()
        .then(|| String::from_utf8(output.stdout).unwrap())
}

fn repository() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    git(directory.path(), &["init", "-q"], "").unwrap();
    directory
}

fn shown(state: &AttributeState) -> String {
    match state {
        AttributeState::Set => "set".to_owned(),
        AttributeState::Unset => "unset".to_owned(),
        AttributeState::Unspecified => "unspecified".to_owned(),
        AttributeState::Value(value) => String::from_utf8(value.to_vec()).unwrap(),
    }
}

/// Far more than any of these needs.
const EFFORT: Effort = Effort::steps(100_000);
const PATTERN: &str = "(/|\\*\\*/)?([abc.]|[?*]|\\*\\*|\\[[!^]?[a-c]-?[abc]\\]|\\\\[ab*]|/){1,6}(/\\*\\*|/)?";
const STATE: &str = "(-|!)?(x|y|m|n|x=1|y=auto|binary)";
const PATH: &str = "[abc.]{1,3}(/[abc]{1,3}){0,3}/?";

/// Git before 2.50 or so lets the two stars of `a**` cross slashes where a plain prefix stands before them.
fn is_odd(pattern: &str) -> bool {
    let mut stars = pattern.match_indices("**");
    stars.any(|(at, _)| !matches!(pattern[..at].chars().last(), None | Some('/')))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn attributes_are_those_that_git_finds(
        root in vec((PATTERN, vec(STATE, 1..3)), 0..12),
        macros in vec(("[mn]", vec(STATE, 0..3)), 0..3),
        deeper in vec((PATTERN, vec(STATE, 1..3)), 0..6),
        paths in btree_set(PATH, 1..30),
    ) {
        prop_assume!(!root.iter().chain(&deeper).any(|(pattern, _)| is_odd(pattern)));
        let directory = repository();
        let line = |(pattern, states): &(String, Vec<String>)| format!("{pattern} {}\n", states.join(" "));
        let macros: String = macros.iter().map(|(name, states)| format!("[attr]{name} {}\n", states.join(" "))).collect();
        let root = macros + &root.iter().map(line).collect::<String>();
        let deeper: String = deeper.iter().map(line).collect();
        std::fs::create_dir(directory.path().join("a")).unwrap();
        std::fs::write(directory.path().join(".gitattributes"), &root).unwrap();
        std::fs::write(directory.path().join("a/.gitattributes"), &deeper).unwrap();
        let paths: Vec<&str> = paths.iter().map(String::as_str).filter(|path| !path.contains("..")).collect();
        let paths: Vec<&str> = paths.into_iter().filter(|path| !path.split('/').any(|part| part == ".")).collect();
        let asked = ["x", "y", "m", "diff", "text"];
        let arguments = [&["check-attr", "--stdin"], &asked[..]].concat();
        let answer = git(directory.path(), &arguments, &paths.join("\n")).unwrap();
        let mut ours = String::new();
        for path in &paths {
            let mut stack = AttributeStack::new(&asked);
            stack.push(b"", root.as_bytes()).unwrap();
            if path.starts_with("a/") && *path != "a/" {
                stack.push(b"a/", deeper.as_bytes()).unwrap();
            }
            let found = stack.of(path.as_bytes(), &mut { EFFORT }).unwrap();
            for (number, name) in asked.iter().enumerate() {
                ours += &format!("{path}: {name}: {}\n", shown(found.state(number)));
            }
        }
        prop_assert_eq!(ours, answer, "{}---\n{}", root, deeper);
    }

    #[test]
    fn sparse_specifications_mean_the_blobs_that_git_lists(
        lines in vec(("!?", PATTERN, "[ \\\\]?"), 0..8),
        files in btree_set("[abc.]{1,2}(/[abc]{1,2}){0,3}", 1..20),
    ) {
        prop_assume!(!lines.iter().any(|(_, pattern, _)| is_odd(pattern)));
        let directory = repository();
        let is_directory = |file: &String| files.iter().any(|other| other.starts_with(&format!("{file}/")));
        let is_name = |file: &String| !file.split('/').any(|part| part == "." || part == "..");
        let files: Vec<&String> = files.iter().filter(|file| !is_directory(file) && is_name(file)).collect();
        let run = |arguments: &[&str], input: &str| git(directory.path(), arguments, input).unwrap().trim().to_owned();
        let blob = |content: &str| run(&["hash-object", "-w", "--stdin"], content);
        let blobs: Vec<(String, &String)> = files.iter().map(|file| (blob(file), *file)).collect();
        let entries: String = blobs.iter().map(|(oid, file)| format!("100644 {oid}\t{file}\n")).collect();
        run(&["update-index", "--index-info"], &entries);
        let lines: Vec<String> = lines.iter().map(|(not, pattern, end)| format!("{not}{pattern}{end}")).collect();
        let specification = lines.join("\n");
        let filter = format!("--filter=sparse:oid={}", blob(&specification));
        let who = ["-c", "user.name=x", "-c", "user.email=x"];
        let commit = run(&[&who[..], &["commit-tree", "-m", "x", &run(&["write-tree"], "")]].concat(), "");
        let listed = run(&["rev-list", "--objects", &filter, &commit], "");
        let patterns = SparsePatterns::parse(specification.as_bytes());
        let decide = |path: &str, is_directory| patterns.decide(path.as_bytes(), is_directory, &mut { EFFORT }).unwrap();
        for (oid, file) in blobs {
            let above = file.match_indices('/').map(|(at, _)| &file[..at]);
            let inherited = [""].into_iter().chain(above).fold(false, |is_in, path| decide(path, true).unwrap_or(is_in));
            let ours = decide(file, false).unwrap_or(inherited);
            prop_assert_eq!(ours, listed.contains(&oid), "{:?} {}", specification, file);
        }
    }

    #[test]
    fn pathspecs_mean_the_files_that_git_lists(
        specs in vec("(:\\(glob\\)|:\\(icase\\)|:\\(literal\\)|:!|:/|\\./)?[abA*?\\[\\]/]{1,5}", 1..4),
        files in btree_set("[ab]{1,2}(/[ab]{1,2}){0,2}", 1..12),
    ) {
        prop_assume!(!specs.iter().filter_map(|spec| spec.strip_prefix(":(glob)")).any(is_odd));
        let directory = repository();
        let blob = git(directory.path(), &["hash-object", "-w", "--stdin"], "").unwrap();
        // A file cannot be a directory too.
        let is_directory = |file: &String| files.iter().any(|other| other.starts_with(&format!("{file}/")));
        let files: Vec<&String> = files.iter().filter(|file| !is_directory(file)).collect();
        let entries: String = files.iter().map(|file| format!("100644 {}\t{file}\n", blob.trim())).collect();
        git(directory.path(), &["update-index", "--index-info"], &entries).unwrap();
        let arguments: Vec<&str> = ["ls-files", "--"].into_iter().chain(specs.iter().map(String::as_str)).collect();
        let listed = git(directory.path(), &arguments, "");
        let parsed = Pathspec::parse(specs.iter().map(|spec| spec.as_bytes())).ok();
        prop_assert_eq!(parsed.is_some(), listed.is_some(), "{:?}", specs);
        let (Some(parsed), Some(listed)) = (parsed, listed) else { return Ok(()) };
        let ours: Vec<&str> = files.iter().map(|file| file.as_str()).filter(|file| parsed.matches(file.as_bytes(), false, &mut { EFFORT }).unwrap()).collect();
        prop_assert_eq!(&ours, &listed.lines().collect::<Vec<_>>(), "{:?}", specs);
        // No walk is cut short above a file that is meant.
        for file in ours {
            for (at, _) in file.match_indices('/') {
                prop_assert!(parsed.may_match_below(&file.as_bytes()[..at], &mut { EFFORT }).unwrap(), "{:?} above {}", specs, file);
            }
        }
    }
}
