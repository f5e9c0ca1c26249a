//! Our ref names against `git check-ref-format`: names of a few odd pieces in every combination.

#![allow(clippy::unwrap_used)]

use cuesta_git::RefName;
use std::process::Command;

/// Pieces that rules are about; names are made of up to two of them below `refs/`.
const PIECES: [&str; 30] = [
    "", "a", "/", "//", ".", "..", ".a", "a.", ".lock", "a.lock", "/a", "a/", "@", "{", "@{", "{@", " ", "~", "^", ":",
    "?", "*", "[", "]", "\\", "\t", "\u{7f}", "\u{e9}", "-", "HEAD",
];

#[test]
fn names_of_two_pieces() {
    if Command::new("git").arg("version").output().is_err() {
        println!("skipped: no git");
        return;
    }
    let mut names: Vec<String> = PIECES
        .iter()
        .flat_map(|a| PIECES.iter().map(move |b| format!("refs/{a}{b}")))
        .collect();
    names.extend(PIECES.iter().map(|piece| format!("refs/x{piece}y")));
    names.sort();
    names.dedup();
    for name in names {
        let status = Command::new("git").args(["check-ref-format", &name]).status().unwrap();
        assert_eq!(RefName::new(name.as_bytes()).is_ok(), status.success(), "{name:?}");
    }
}

#[test]
fn only_full_names_are_names() {
    for (name, valid) in [
        ("HEAD", true),
        ("refs/heads/main", true),
        ("refs/stash", true),
        ("main", false),
        ("heads/main", false),
        ("FETCH_HEAD", false),
    ] {
        assert_eq!(RefName::new(name.as_bytes()).is_ok(), valid, "{name}");
    }
    assert!(RefName::new(b"refs/\xff\xfe").is_ok(), "names are bytes");
    assert!(RefName::new(b"refs/a\0b").is_err());
}
