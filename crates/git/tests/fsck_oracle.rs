//! Our fsck verdicts against git's, over a table of objects and many random mutations of good ones.
//!
//! All objects go loose into one repository, and one `git fsck` judges them all. Skipped where there is no git.
//! A failure names the object and its content; `CUESTA_SEED` repeats the mutations of a run.

#![allow(clippy::unwrap_used)]

mod cases;
mod repo;

use cuesta_git::fsck::{Checker, Config, MessageId, Refusal};
use cuesta_git::{CommitRef, ObjectFormat, ObjectId, ObjectKind, TagRef};
use repo::{Object, Repo, Verdicts};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const FORMAT: ObjectFormat = ObjectFormat::Sha1;

type Objects = BTreeMap<ObjectId, Object>;

#[test]
fn the_table_of_cases() {
    let objects = by_id(cases::table());
    assert!(objects.len() > 200, "only {} cases", objects.len());
    let mut seen = compare(&objects);
    seen.extend(compare_unparsable(&objects));
    // What stays unseen: messages about refs, and those that git's own parser or other checks come before.
    assert!(
        seen.is_empty() || seen.len() >= 50,
        "only {} messages seen: {seen:?}",
        seen.len()
    );
}

#[test]
fn random_mutations() {
    let seed = std::env::var("CUESTA_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(0x5eed);
    println!("CUESTA_SEED={seed}");
    compare(&by_id(cases::mutations(seed, 3000)));
}

fn by_id(objects: Vec<Object>) -> Objects {
    objects.into_iter().map(|object| (object.id(FORMAT), object)).collect()
}

/// `git fsck` does not check what git cannot parse; `git hash-object` does, one object a process, and stops at the
/// first message. Answers those messages.
fn compare_unparsable(objects: &Objects) -> BTreeSet<String> {
    let parsed = |object: &Object| matches!(object.kind, ObjectKind::Commit | ObjectKind::Tag);
    let objects: Objects = objects
        .clone()
        .into_iter()
        .filter(|(_, object)| parsed(object))
        .collect();
    let ours = verdicts(&objects, Config::strict());
    let mut seen = BTreeSet::new();
    let Some(repo) = Repo::create(FORMAT) else { return seen };
    for (oid, object) in &objects {
        let first = repo.hash_object(object);
        let found: Vec<_> = [&ours.errors, &ours.warnings]
            .into_iter()
            .filter_map(|all| all.get(oid))
            .flatten()
            .collect();
        let shown = object.content.escape_ascii();
        match &first {
            Some(message) => assert!(found.contains(&message), "git says {message}, we {found:?} of {shown}"),
            None => assert!(found.is_empty(), "git says nothing, we {found:?} of {shown}"),
        }
        seen.extend(first.and_then(|message| message.split(':').next().map(str::to_owned)));
    }
    seen
}

/// Compares all verdicts; answers the messages that git gave.
fn compare(objects: &Objects) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let Some(repo) = Repo::create(FORMAT) else {
        println!("skipped: no git");
        return seen;
    };
    for (oid, object) in objects {
        repo.write(oid, object);
    }
    for strict in [true, false] {
        let git = repo.fsck(strict);
        let ours = verdicts(objects, if strict { Config::strict() } else { Config::lenient() });
        for (oid, object) in objects {
            compare_object(oid, object, &git, &ours, strict);
        }
        let messages = git.errors.into_values().chain(git.warnings.into_values()).flatten();
        seen.extend(messages.filter_map(|message| message.split(':').next().map(str::to_owned)));
    }
    seen
}

/// Where `char` is signed, git misreads the first byte of a byte order mark and takes 0xff for the end of a blob; on
/// other machines, and in files, it reads both as we do.
fn git_misreads(object: &Object) -> bool {
    object.kind == ObjectKind::Blob && (object.content.starts_with(b"\xef") || object.content.contains(&0xff))
}

fn compare_object(oid: &ObjectId, object: &Object, git: &Verdicts, ours: &Verdicts, strict: bool) {
    if git_misreads(object) {
        return;
    }
    let shown = format!(
        "{} {oid}, strict {strict}:\n{}",
        object.kind,
        object.content.escape_ascii()
    );
    let parses = match object.kind {
        ObjectKind::Commit => CommitRef::parse(FORMAT, &object.content).is_ok(),
        ObjectKind::Tag => TagRef::parse(FORMAT, &object.content).is_ok(),
        _ => true,
    };
    if git.unparsable.contains(oid) {
        // Git does not check what it cannot parse. Its parser also minds ids that two objects give different kinds.
        let refused = !parses || ours.errors.contains_key(oid);
        assert!(
            refused || object.kind == ObjectKind::Tag,
            "git cannot parse, we accept: {shown}"
        );
    } else {
        assert!(parses, "git parses, we do not: {shown}");
        assert_eq!(
            ours.errors.get(oid),
            git.errors.get(oid),
            "errors (ours left) of {shown}"
        );
        assert_eq!(
            ours.warnings.get(oid),
            git.warnings.get(oid),
            "warnings (ours left) of {shown}"
        );
    }
}

fn verdicts(objects: &Objects, config: Config) -> Verdicts {
    let mut checker = Checker::new(FORMAT, Arc::new(config));
    let mut verdicts = Verdicts::default();
    for (oid, object) in objects {
        let outcome = checker.check(object.kind, oid, &object.content);
        note(outcome, &mut checker, &mut verdicts);
    }
    for oid in checker.special_blobs().collect::<Vec<_>>() {
        if let Some(object) = objects.get(&oid) {
            let outcome = checker.check_special_blob(&oid, object.kind, Some(&object.content));
            note(outcome, &mut checker, &mut verdicts);
        }
    }
    verdicts
}

fn note(outcome: Result<(), Refusal>, checker: &mut Checker, verdicts: &mut Verdicts) {
    if let Err(refusal) = outcome {
        for finding in std::iter::once(refusal.first).chain(refusal.rest) {
            verdicts
                .errors
                .entry(finding.oid)
                .or_default()
                .insert(describe(finding.id, &finding.text));
        }
    }
    for finding in checker.take_warnings() {
        verdicts
            .warnings
            .entry(finding.oid)
            .or_default()
            .insert(describe(finding.id, &finding.text));
    }
}

fn describe(id: MessageId, text: &str) -> String {
    // Texts that quote bytes of the object are compared by id only: git prints them raw.
    let quotes = [
        MessageId::BadTagName,
        MessageId::GitmodulesName,
        MessageId::GitmodulesUrl,
        MessageId::GitmodulesPath,
        MessageId::GitmodulesUpdate,
    ];
    if quotes.contains(&id) {
        id.to_string()
    } else {
        format!("{id}: {text}")
    }
}

/// What a line of git's says, in the form of [`describe`]; `None` for lines that are no message.
fn parse_message(message: &str) -> Option<String> {
    let (id, text) = message.split_once(": ")?;
    Some(describe(MessageId::from_name(id)?, text))
}

type Messages = BTreeMap<ObjectId, BTreeSet<String>>;
