//! Tree differences against the plain definition.

use crate::receive::differ::{Changed, Gone, differ};
use crate::receive::trees::Tree;
use cuesta_git::{ObjectFormat, ObjectId};
use proptest::prelude::*;
use std::collections::BTreeMap;

const FORMAT: ObjectFormat = ObjectFormat::Sha1;

/// Entries by the names as git orders them: trees as if they ended in a slash.
type Entries = BTreeMap<Vec<u8>, (u32, u8)>;

fn entries() -> impl Strategy<Value = Entries> {
    // Few names with many common starts and few ids, so that much is equal; ids full of bytes that look like entries.
    let mode = prop_oneof![
        Just(0o100_644),
        Just(0o100_755),
        Just(0o40_000),
        Just(0o160_000),
        Just(0o120_000)
    ];
    let entry = ("[ab.0]{1,3}", mode, 0..4u8);
    proptest::collection::vec(entry, 0..40).prop_map(|entries| {
        let mut map = Entries::new();
        let mut names = std::collections::BTreeSet::new();
        for (name, mode, id) in entries {
            if names.insert(name.clone()) {
                let slash = if mode == 0o40_000 { "/" } else { "" };
                map.insert(format!("{name}{slash}").into_bytes(), (mode, id));
            }
        }
        map
    })
}

fn oid(id: u8) -> ObjectId {
    let mut bytes = *b"100644 a\0\0\0\0\0\0\0\0\0\0\0\0";
    bytes[19] = id;
    ObjectId::Sha1(bytes)
}

fn tree(entries: &Entries) -> Tree {
    let mut bytes = Vec::new();
    for (name, (mode, id)) in entries {
        bytes.extend(format!("{mode:o} ").bytes());
        bytes.extend(name.strip_suffix(b"/").unwrap_or(name));
        bytes.push(0);
        bytes.extend(oid(*id).as_bytes());
    }
    Tree::parse(FORMAT, bytes.into()).unwrap()
}

/// What `left` has that `right` has not under the same name and of the same sort: name, id, whether it is a tree.
fn only_in<'a>(left: &'a Entries, right: &Entries) -> Vec<(&'a [u8], ObjectId, bool)> {
    let sort = |mode: u32| (mode == 0o40_000, mode == 0o160_000);
    let differs = |(name, (mode, id)): &(&Vec<u8>, &(u32, u8))| match right.get(*name) {
        Some((other, same)) => same != id || sort(*other) != sort(*mode),
        None => true,
    };
    let lasting = left.iter().filter(|(_, (mode, _))| *mode != 0o160_000);
    lasting
        .filter(differs)
        .map(|(name, (mode, id))| (name.as_slice(), oid(*id), *mode == 0o40_000))
        .collect()
}

proptest! {
    #[test]
    fn differences_are_what_the_definition_says(new in entries(), old in entries(), changes in 0..3usize) {
        // Often the old tree is the new one with a change or two, as in life.
        let old = if changes == 0 { old } else {
            let mut near = new.clone();
            near.extend(old.into_iter().take(changes));
            near
        };
        let names: std::collections::BTreeSet<&[u8]> =
            old.keys().map(|name| name.strip_suffix(b"/").unwrap_or(name)).collect();
        prop_assume!(names.len() == old.len());
        let (new_tree, old_tree) = (tree(&new), tree(&old));
        let (mut changed, mut gone) = (Vec::<Changed>::new(), Vec::<Gone>::new());
        differ(&new_tree, &old_tree, &mut changed, &mut gone);
        let changed_entries: Vec<_> = changed.iter().map(|changed| {
            let entry = new_tree.entry(changed.index as usize).unwrap();
            (entry.name, entry.oid, entry.mode.is_tree())
        }).collect();
        let expected = only_in(&new, &old);
        let plain: Vec<_> =
            expected.iter().map(|(name, oid, tree)| (name.strip_suffix(b"/").unwrap_or(name), *oid, *tree)).collect();
        prop_assert_eq!(changed_entries, plain);
        for (changed, (name, _, is_tree)) in changed.iter().zip(&expected) {
            let like = |mode: u32| mode != 0o160_000 && (mode == 0o40_000) == *is_tree;
            let pair = old.get(*name).filter(|(mode, _)| like(*mode)).map(|(_, id)| oid(*id));
            prop_assert_eq!(changed.pair, pair);
        }
        let mut gone: Vec<_> = gone.iter().map(|gone| (gone.oid, gone.is_tree)).collect();
        let mut expected: Vec<_> = only_in(&old, &new).into_iter().map(|(_, oid, is_tree)| (oid, is_tree)).collect();
        gone.sort();
        expected.sort();
        prop_assert_eq!(gone, expected);
    }
}
