//! The repository's state machine: git's words for each conflict, and a naive model beside it.

// What is not as expected fails the test.
#![allow(clippy::unwrap_used)]

mod support;

use bytes::Bytes;
use cuesta_format::{
    AddedLayer, Base, Cause, CueBuilder, Edit, LayerId, LayerMeta, LayerPlace, RefTarget, SettingChange, SymrefChange,
};
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind, RefName};
use cuesta_ledger::{Conflict, RefConflict, State};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use support::{LOG, creation, edit, name, oid, push, target, update};

fn begun() -> State {
    let mut state = State::default();
    state.apply(&creation()).unwrap();
    state
}

fn with(refs: &[&str]) -> State {
    let mut state = begun();
    refs.iter()
        .for_each(|name| state.apply(&push(name, None, Some(1))).unwrap());
    state
}

fn refused(state: &State, edit: &Edit) -> RefConflict {
    match state.clone().apply(edit).unwrap_err() {
        Conflict::Ref { reason, .. } => reason,
        other => panic!("no ref conflict: {other:?}"),
    }
}

fn symref(name_: &str, target: Option<&str>) -> Edit {
    Edit {
        cause: Cause::Administer,
        symrefs: vec![SymrefChange {
            name: name(name_),
            target: target.map(name),
        }],
        ..edit()
    }
}

#[test]
fn a_push_moves_head_only_while_there_is_no_branch() {
    let to = |target: &str| Edit {
        cause: Cause::Push,
        ..symref("HEAD", Some(target))
    };
    let head = |state: &State| state.symrefs().get(&RefName::head()).map(ToString::to_string);
    let mut state = with(&["refs/tags/v1"]);
    state.apply(&to("refs/heads/a")).unwrap();
    state.apply(&to("refs/heads/b")).unwrap();
    let first = Edit {
        refs: push("refs/heads/c", None, Some(1)).refs,
        ..to("refs/heads/c")
    };
    state.apply(&first).unwrap();
    let second = Edit {
        refs: push("refs/heads/d", None, Some(1)).refs,
        ..to("refs/heads/d")
    };
    state.apply(&second).unwrap();
    assert_eq!(head(&state).as_deref(), Some("refs/heads/c"));
    assert!(
        state.refs().contains_key(&name("refs/heads/d")),
        "the rest of the edit holds"
    );
    state.apply(&symref("HEAD", Some("refs/heads/d"))).unwrap();
    assert_eq!(head(&state).as_deref(), Some("refs/heads/d"));
}

#[test]
fn a_push_adds_to_the_shallow_boundary_and_others_replace_it() {
    let with = |cause: Cause, bytes: &[u8]| Edit {
        cause,
        shallow: Some(bytes.iter().copied().map(oid).collect()),
        ..edit()
    };
    let mut state = begun();
    state.apply(&with(Cause::Push, &[3, 1])).unwrap();
    state.apply(&with(Cause::Push, &[2, 1])).unwrap();
    assert_eq!(state.shallow(), [oid(1), oid(2), oid(3)]);
    state.apply(&with(Cause::Import, &[2])).unwrap();
    assert_eq!(state.shallow(), [oid(2)]);
    state.apply(&with(Cause::Push, &[])).unwrap();
    assert_eq!(state.shallow(), [oid(2)]);
}

#[test]
fn conflicts_speak_as_git_does() {
    let state = with(&["refs/heads/a", "refs/heads/d/e"]);
    for (edit, words) in [
        (push("refs/heads/a", Some(2), Some(3)), "incorrect old value provided"),
        (push("refs/heads/a", Some(2), None), "incorrect old value provided"),
        (push("refs/heads/a", None, Some(3)), "reference already exists"),
        (push("refs/heads/b", Some(1), Some(3)), "reference does not exist"),
        (push("refs/heads/b", Some(1), None), "reference does not exist"),
        (push("refs/heads/a/b", None, Some(3)), "refname conflict"),
        (push("refs/heads/d", None, Some(3)), "refname conflict"),
    ] {
        assert_eq!(refused(&state, &edit).to_string(), words, "{edit:?}");
    }
}

#[test]
fn names_beside_a_directory_are_free() {
    let mut state = with(&["refs/heads/a/b"]);
    for name in ["refs/heads/a-", "refs/heads/a.b", "refs/heads/a0", "refs/heads/ab"] {
        state.apply(&push(name, None, Some(1))).unwrap();
    }
}

#[test]
fn deletions_make_room_in_the_same_edit() {
    let both = |first, second| Edit {
        refs: vec![first, second],
        ..edit()
    };
    let (gone, come) = (
        update("refs/heads/a", Some(1), None),
        update("refs/heads/a/b", None, Some(2)),
    );
    for edit in [both(gone.clone(), come.clone()), both(come, gone)] {
        let mut state = with(&["refs/heads/a"]);
        state.apply(&edit).unwrap();
        assert_eq!(state.refs().keys().collect::<Vec<_>>(), [&name("refs/heads/a/b")]);
    }
    let new = both(
        update("refs/heads/x/y", None, Some(1)),
        update("refs/heads/x", None, Some(1)),
    );
    assert!(matches!(refused(&begun(), &new), RefConflict::Name { .. }));
}

#[test]
fn symbolic_refs_are_updated_as_such_only() {
    let mut state = with(&["refs/heads/a"]);
    state.apply(&symref("HEAD", Some("refs/heads/a"))).unwrap();
    assert_eq!(
        refused(&state, &push("HEAD", Some(1), Some(2))),
        RefConflict::Symbolic {
            target: name("refs/heads/a")
        }
    );
    assert_eq!(state.resolve(&RefName::head()).unwrap().1.oid, oid(1));
    assert_eq!(
        refused(&state, &symref("refs/heads/a", Some("refs/heads/b"))),
        RefConflict::Exists
    );
    assert_eq!(refused(&state, &symref("refs/heads/s", None)), RefConflict::Missing);
    assert_eq!(
        refused(&state, &symref("refs/heads/s", Some("refs/heads/s"))),
        RefConflict::Loop
    );
    assert!(matches!(
        refused(&state, &symref("refs/heads/a/s", Some("HEAD"))),
        RefConflict::Name { .. }
    ));
    // A symbolic ref detaches: it ends, and a ref takes its name.
    let detach = Edit {
        refs: vec![update("HEAD", None, Some(9))],
        ..symref("HEAD", None)
    };
    state.apply(&detach).unwrap();
    assert_eq!(state.refs()[&RefName::head()].oid, oid(9));
}

#[test]
fn chains_of_symbolic_refs_end_where_git_stops() {
    let mut state = with(&["refs/heads/0"]);
    for n in 1..=5 {
        state
            .apply(&symref(
                &format!("refs/heads/{n}"),
                Some(&format!("refs/heads/{}", n - 1)),
            ))
            .unwrap();
    }
    assert_eq!(state.resolve(&name("refs/heads/5")).unwrap().0, &name("refs/heads/0"));
    assert_eq!(
        refused(&state, &symref("refs/heads/6", Some("refs/heads/5"))),
        RefConflict::Loop
    );
}

#[test]
fn a_name_comes_once_in_an_edit() {
    let twice = Edit {
        refs: vec![
            update("refs/heads/a", None, Some(1)),
            update("refs/heads/a", None, Some(2)),
        ],
        ..edit()
    };
    assert_eq!(refused(&begun(), &twice), RefConflict::Repeated);
}

#[test]
fn the_object_format_is_fixed_once() {
    let mut state = State::default();
    assert_eq!(
        state.apply(&push("refs/heads/a", None, Some(1))),
        Err(Conflict::ObjectFormatMissing)
    );
    state.apply(&creation()).unwrap();
    assert_eq!(
        state.apply(&creation()),
        Err(Conflict::ObjectFormatFixed {
            format: ObjectFormat::Sha1
        })
    );
    let mut wrong = push("refs/heads/a", None, Some(1));
    wrong.refs[0].new = Some(RefTarget {
        oid: ObjectId::Sha256([1; 32]),
        peeled: None,
    });
    assert!(matches!(refused(&state, &wrong), RefConflict::BadTarget { .. }));
    wrong.refs[0].new = Some(RefTarget {
        oid: ObjectId::null(ObjectFormat::Sha1),
        peeled: None,
    });
    assert!(matches!(refused(&state, &wrong), RefConflict::BadTarget { .. }));
}

#[test]
fn settings_and_the_shallow_boundary_are_kept() {
    let mut state = begun();
    let set = |value: Option<&str>| Edit {
        settings: vec![SettingChange {
            name: "gc.auto".to_owned(),
            value: value.map(str::to_owned),
        }],
        shallow: Some(vec![oid(9), oid(3), oid(9)]),
        ..edit()
    };
    state.apply(&set(Some("0"))).unwrap();
    assert_eq!(
        (state.settings()["gc.auto"].as_str(), state.shallow()),
        ("0", &[oid(3), oid(9)][..])
    );
    state.apply(&edit()).unwrap();
    assert_eq!(state.shallow().len(), 2);
    state.apply(&set(None)).unwrap();
    assert!(state.settings().is_empty());
}

#[test]
fn a_merged_layer_stands_where_the_newest_of_its_inputs_stood() {
    let mut state = begun();
    let change = |added: &[u128], removed: &[u128]| Edit {
        added: added.iter().map(|id| in_bucket(*id)).collect(),
        removed: removed.iter().copied().map(LayerId).collect(),
        ..edit()
    };
    for id in 1..=5 {
        state.apply(&change(&[id], &[])).unwrap();
    }
    state.apply(&change(&[10, 11], &[4, 2])).unwrap();
    let order: Vec<_> = state.layers().iter().map(|layer| layer.meta.id.0).collect();
    assert_eq!(order, [1, 3, 10, 11, 5]);
    // The slower of two compactors finds its inputs gone, and leaves nothing behind.
    assert_eq!(
        state.apply(&change(&[12], &[2, 3])),
        Err(Conflict::LayerMissing(LayerId(2)))
    );
    assert_eq!(
        state.apply(&change(&[10], &[])),
        Err(Conflict::LayerExists(LayerId(10)))
    );
    assert_eq!(
        state.apply(&change(&[], &[3, 3])),
        Err(Conflict::LayerMissing(LayerId(3)))
    );
    assert_eq!(state.layers().len(), 5);
    // A layer may move from the ledger to the bucket under its own name.
    let small = Edit {
        added: vec![inline(20, &[1])],
        ..edit()
    };
    state.apply(&small).unwrap();
    state.apply(&change(&[20], &[20])).unwrap();
}

#[test]
fn a_broken_inline_cue_is_refused_whole() {
    let mut bad = inline(1, &[1]);
    bad.place = LayerPlace::Inline {
        pack: Bytes::new(),
        cue: Bytes::from_static(b"no cue"),
    };
    let mut edit = push("refs/heads/a", None, Some(1));
    edit.added = vec![bad];
    let mut state = begun();
    assert!(matches!(state.apply(&edit), Err(Conflict::BadCue { .. })));
    assert!(state.refs().is_empty());
}

#[test]
fn what_is_attached_to_a_layer_stays() {
    let mut state = begun();
    state
        .apply(&Edit {
            added: vec![in_bucket(1)],
            ..edit()
        })
        .unwrap();
    let before = state.clone();
    let made = before
        .layer(LayerId(1))
        .unwrap()
        .attached(|| std::sync::Arc::new("opened".to_owned()))
        .unwrap();
    state.apply(&push("refs/heads/a", None, Some(1))).unwrap();
    let found = state
        .layer(LayerId(1))
        .unwrap()
        .attached(|| std::sync::Arc::new(String::new()))
        .unwrap();
    assert!(std::sync::Arc::ptr_eq(&made, &found));
    assert!(
        state
            .layer(LayerId(1))
            .unwrap()
            .attached(|| std::sync::Arc::new(7u8))
            .is_none()
    );
}

fn in_bucket(id: u128) -> AddedLayer {
    AddedLayer {
        meta: meta(id, 0, 0),
        place: LayerPlace::Bucket,
    }
}

fn meta(id: u128, cue_bytes: u64, objects: u32) -> LayerMeta {
    LayerMeta {
        id: LayerId(id),
        pack_bytes: 0,
        cue_bytes,
        objects,
        segments: 0,
        level: 0,
        self_contained: true,
        unreachable: false,
        bases_chosen: false,
    }
}

/// An inline layer of blobs.
fn inline(id: u128, blobs: &[u8]) -> AddedLayer {
    let mut cue = CueBuilder::new(ObjectFormat::Sha1);
    for (n, blob) in (0..).zip(blobs) {
        cue.entry(&oid(*blob), ObjectKind::Blob, 12 + 10 * n, 1, Base::None)
            .unwrap();
        cue.root(&oid(*blob), ObjectKind::Blob, 0, 1, []).unwrap();
    }
    let cue = Bytes::from(cue.encode(12 + 10 * blobs.len() as u64).unwrap());
    let meta = meta(id, cue.len() as u64, u32::try_from(blobs.len()).unwrap());
    AddedLayer {
        meta,
        place: LayerPlace::Inline {
            pack: Bytes::new(),
            cue,
        },
    }
}

/// The same in the plainest way: copies and full checks.
#[derive(Clone, Default)]
struct Model {
    refs: BTreeMap<RefName, RefTarget>,
    symrefs: BTreeMap<RefName, RefName>,
    /// Newest last, with the blobs of inline ones.
    layers: Vec<(LayerId, Option<Vec<u8>>)>,
    /// Those of the bucket that left.
    retired: Vec<LayerId>,
}

impl Model {
    /// `blobs` are those of the edit's layers.
    fn apply(&mut self, edit: &Edit, blobs: &[Option<Vec<u8>>]) -> bool {
        let mut next = self.clone();
        let applies = next.try_apply(edit, blobs).is_some();
        if applies {
            *self = next;
        }
        applies
    }

    fn try_apply(&mut self, edit: &Edit, blobs: &[Option<Vec<u8>>]) -> Option<()> {
        let names: BTreeSet<_> = edit.refs.iter().map(|update| &update.name).collect();
        (names.len() == edit.refs.len()).then_some(())?;
        for change in edit.symrefs.iter().filter(|change| change.target.is_none()) {
            self.symrefs.remove(&change.name)?;
        }
        for update in &edit.refs {
            let now = self.refs.get(&update.name).map(|target| target.oid);
            (now == update.old && !self.symrefs.contains_key(&update.name)).then_some(())?;
        }
        for update in &edit.refs {
            match update.new {
                Some(target) => drop(self.refs.insert(update.name.clone(), target)),
                None => drop(self.refs.remove(&update.name)),
            }
        }
        for change in &edit.symrefs {
            if let Some(target) = &change.target {
                self.symrefs.insert(change.name.clone(), target.clone());
            }
        }
        self.names_are_apart().then_some(())?;
        let mut place = self.layers.len();
        if !edit.removed.is_empty() {
            let (kept, gone): (Vec<_>, Vec<_>) = self
                .layers
                .iter()
                .cloned()
                .partition(|(id, _)| !edit.removed.contains(id));
            (gone.len() == edit.removed.len()).then_some(())?;
            let newest = self.layers.iter().rposition(|(id, _)| edit.removed.contains(id))?;
            place = newest + 1 - gone.len();
            // In the order of the edit, not of the list.
            let in_bucket = |id: &&LayerId| gone.iter().any(|(one, blobs)| one == *id && blobs.is_none());
            self.retired.extend(edit.removed.iter().filter(in_bucket));
            self.layers = kept;
        }
        for (n, (added, blobs)) in edit.added.iter().zip(blobs).enumerate() {
            let new = self.layers.iter().all(|(id, _)| *id != added.meta.id);
            new.then_some(())?;
            let is_retired = blobs.is_none() && self.retired.contains(&added.meta.id);
            (!is_retired).then_some(())?;
            self.layers.insert(place + n, (added.meta.id, blobs.clone()));
        }
        Some(())
    }

    fn names_are_apart(&self) -> bool {
        let names: Vec<_> = self.refs.keys().chain(self.symrefs.keys()).collect();
        names.iter().enumerate().all(|(n, name)| {
            let below = [name.as_bytes(), b"/"].concat();
            names
                .iter()
                .enumerate()
                .all(|(m, other)| n == m || (other != name && !other.as_bytes().starts_with(&below)))
        })
    }
}

const NAMES: [&str; 8] = [
    "refs/heads/a",
    "refs/heads/a/b",
    "refs/heads/a/b/c",
    "refs/heads/a-b",
    "refs/heads/ab",
    "refs/heads/b",
    "refs/a",
    "HEAD",
];

#[derive(Clone, Debug)]
struct Step {
    /// Name, whether `old` is made true, another old, new.
    refs: Vec<(usize, bool, Option<u8>, Option<u8>)>,
    symrefs: Vec<(usize, Option<usize>)>,
    added: Vec<(u128, Option<Vec<u8>>)>,
    removed: BTreeSet<u128>,
}

fn step() -> impl Strategy<Value = Step> {
    let value = || proptest::option::of(1..4u8);
    let refs = proptest::collection::vec((0..NAMES.len(), proptest::bool::weighted(0.85), value(), value()), 0..4);
    // Targets lie outside, so that chains stay short: they have their own test.
    let symrefs = proptest::collection::vec((0..NAMES.len(), proptest::option::of(0..3usize)), 0..2);
    let blobs =
        proptest::option::of(proptest::collection::btree_set(1..20u8, 0..6).prop_map(|set| set.into_iter().collect()));
    let added = proptest::collection::vec((0..30u128, blobs), 0..3);
    let removed = proptest::collection::btree_set(0..30u128, 0..3);
    (refs, symrefs, added, removed, proptest::bool::ANY).prop_map(|(refs, symrefs, added, removed, plain)| Step {
        refs,
        symrefs: if plain { Vec::new() } else { symrefs },
        added,
        removed: if plain { BTreeSet::new() } else { removed },
    })
}

fn to_edit(step: &Step, model: &Model) -> Edit {
    let old = |name: &RefName| model.refs.get(name).map(|target| target.oid);
    let refs = step.refs.iter().map(|(n, truly, other, new)| {
        let mut update = update(NAMES[*n], *other, *new);
        if *truly {
            update.old = old(&update.name);
        }
        update
    });
    let symrefs = step.symrefs.iter().map(|(n, target)| SymrefChange {
        name: name(NAMES[*n]),
        target: target.map(|n| name(&format!("refs/elsewhere/{n}"))),
    });
    let added = step.added.iter().map(|(id, blobs)| match blobs {
        Some(blobs) => inline(*id, blobs),
        None => in_bucket(*id),
    });
    // Mostly layers that are there, so that the edit has a chance.
    let there = step.removed.iter().filter_map(|n| {
        let count = model.layers.len().max(1) as u128;
        model.layers.get(usize::try_from(n % count).unwrap()).map(|(id, _)| *id)
    });
    let removed: BTreeSet<_> = if step.removed.contains(&29) {
        [LayerId(99)].into()
    } else {
        there.collect()
    };
    Edit {
        cause: Cause::Administer,
        refs: refs.collect(),
        symrefs: symrefs.collect(),
        added: added.collect(),
        removed: removed.into_iter().collect(),
        ..edit()
    }
}

fn agree(state: &State, model: &Model) -> Result<(), TestCaseError> {
    prop_assert!(state.refs().iter().eq(model.refs.iter()));
    prop_assert!(state.symrefs().iter().eq(model.symrefs.iter()));
    let layers: Vec<_> = state.layers().iter().map(|layer| layer.meta.id).collect();
    prop_assert_eq!(&layers, &model.layers.iter().map(|(id, _)| *id).collect::<Vec<_>>());
    let retired: Vec<_> = state.retired().iter().map(|layer| layer.id).collect();
    prop_assert_eq!(&retired, &model.retired);
    for id in 0..30 {
        let found = state.layer(LayerId(id)).map(|layer| layer.meta.id);
        prop_assert_eq!(found, layers.contains(&LayerId(id)).then_some(LayerId(id)));
    }
    for blob in 1..20 {
        let mut inline = model
            .layers
            .iter()
            .filter_map(|(id, blobs)| Some((id, blobs.as_ref()?)));
        let holders: BTreeSet<_> = inline.by_ref().filter(|(_, blobs)| blobs.contains(&blob)).collect();
        match state.inline_object(&oid(blob)) {
            None => prop_assert!(holders.is_empty(), "blob {} is not found", blob),
            Some((record, entry)) => {
                let blobs = holders
                    .iter()
                    .find(|(id, _)| **id == record.meta.id)
                    .map(|(_, blobs)| *blobs);
                prop_assert_eq!(blobs.and_then(|blobs| blobs.get(entry as usize)), Some(&blob));
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Every edit does to the state what it does to the model, or nothing; snapshots stay; checkpoints hold all.
    #[test]
    fn the_state_is_its_model(steps in proptest::collection::vec(step(), 1..40)) {
        let (mut state, mut model) = (begun(), Model::default());
        for step in &steps {
            let edit = to_edit(step, &model);
            let blobs: Vec<_> = step.added.iter().map(|(_, blobs)| blobs.clone()).collect();
            let (snapshot, checkpoint) = (state.clone(), state.checkpoint(LOG));
            let outcome = state.apply(&edit);
            prop_assert_eq!(outcome.is_ok(), model.apply(&edit, &blobs), "{:?} on {:?}", outcome, edit);
            if outcome.is_err() {
                prop_assert_eq!(state.checkpoint(LOG), checkpoint.clone());
            }
            prop_assert_eq!(snapshot.checkpoint(LOG), checkpoint);
            agree(&state, &model)?;
            state.seal_entry();
        }
        let reread = State::from_checkpoint(state.checkpoint(LOG).unwrap()).unwrap();
        prop_assert_eq!(reread.checkpoint(LOG), state.checkpoint(LOG));
        agree(&reread, &model)?;
    }
}

#[test]
fn targets_are_kept_whole() {
    let mut state = begun();
    let mut edit = push("refs/tags/v1", None, Some(1));
    edit.refs[0].new = Some(RefTarget {
        peeled: Some(oid(2)),
        ..target(1)
    });
    state.apply(&edit).unwrap();
    assert_eq!(state.refs()[&name("refs/tags/v1")].peeled, Some(oid(2)));
}
