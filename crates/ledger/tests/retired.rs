//! Layers that left the list: what is remembered of them, and what becomes of it.

// What is not as expected fails the test.
#![allow(clippy::unwrap_used)]

mod support;

use cuesta_format::{AddedLayer, Checkpoint, Collection, Edit, LayerId, LayerMeta, LayerPlace, RetiredLayer};
use cuesta_ledger::{Conflict, State};
use support::{LOG, creation, edit};

fn layer(id: u128) -> AddedLayer {
    AddedLayer {
        meta: LayerMeta {
            id: LayerId(id),
            pack_bytes: 32,
            cue_bytes: 0,
            objects: 0,
            segments: 0,
            level: 0,
            self_contained: true,
            unreachable: false,
            bases_chosen: false,
        },
        place: LayerPlace::Bucket,
    }
}

fn change(added: &[u128], removed: &[u128]) -> Edit {
    Edit {
        added: added.iter().copied().map(layer).collect(),
        removed: removed.iter().copied().map(LayerId).collect(),
        ..edit()
    }
}

fn collection(time_ms: i64, seen_below: u64, deleted_below: u64, orphans: &[u128]) -> Edit {
    Edit {
        time_ms,
        collection: Some(Box::new(Collection {
            seen_below,
            deleted_below,
            orphans: orphans.iter().copied().map(LayerId).collect(),
        })),
        ..edit()
    }
}

/// A log whose entries have one edit each.
struct Story(State);

impl Story {
    fn begin() -> Self {
        let mut story = Self(State::default());
        story.tell(&creation());
        story
    }

    fn tell(&mut self, edit: &Edit) {
        self.0.apply(edit).unwrap();
        self.0.seal_entry();
    }

    fn conflict(&self, edit: &Edit) -> Conflict {
        self.0.clone().apply(edit).unwrap_err()
    }

    /// Id, entry, seen.
    fn retired(&self) -> Vec<(u128, u64, Option<i64>)> {
        let plain = |layer: &RetiredLayer| (layer.id.0, layer.number, layer.seen_ms);
        self.0.retired().iter().map(plain).collect()
    }
}

#[test]
fn a_layer_is_retired_then_seen_then_forgotten() {
    let mut story = Story::begin();
    story.tell(&change(&[1, 2, 3], &[]));
    story.tell(&change(&[4], &[1, 2]));
    assert_eq!(story.retired(), [(1, 2, None), (2, 2, None)]);
    story.tell(&change(&[5], &[3]));
    // A collector that had seen the first merge only.
    story.tell(&collection(100, 3, 0, &[]));
    assert_eq!(story.retired(), [(1, 2, Some(100)), (2, 2, Some(100)), (3, 3, None)]);
    story.tell(&collection(200, 5, 0, &[]));
    assert_eq!(
        story.retired(),
        [(1, 2, Some(100)), (2, 2, Some(100)), (3, 3, Some(200))],
        "the first look counts"
    );
    story.tell(&collection(300, 6, 3, &[]));
    assert_eq!(story.retired(), [(3, 3, Some(200))]);
    story.tell(&collection(300, 6, 3, &[]));
    assert_eq!(story.retired(), [(3, 3, Some(200))], "a second collector does no harm");
    story.tell(&collection(300, 6, 4, &[]));
    assert_eq!(story.retired(), []);
}

#[test]
fn what_nobody_has_seen_is_not_forgotten() {
    let mut story = Story::begin();
    story.tell(&change(&[1, 2], &[]));
    story.tell(&change(&[], &[1]));
    story.tell(&collection(1, 0, 1 << 40, &[]));
    assert_eq!(story.retired(), [(1, 2, None)]);
    // Seen and forgotten in one edit: one that was seen in this very edit has not had its time either.
    story.tell(&collection(2, 1 << 40, 1 << 40, &[]));
    assert_eq!(story.retired(), [(1, 2, Some(2))]);
}

#[test]
fn what_is_retired_or_an_orphan_cannot_come_back() {
    let mut story = Story::begin();
    story.tell(&change(&[1, 2], &[]));
    story.tell(&change(&[], &[1]));
    let retired = |id| Conflict::LayerRetired(LayerId(id));
    assert_eq!(story.conflict(&change(&[1], &[])), retired(1));
    assert_eq!(
        story.conflict(&change(&[2], &[2])),
        retired(2),
        "in the edit that removes it"
    );
    let orphans = collection(10, 0, 0, &[7, 2]);
    let named = Conflict::LayerExists(LayerId(2));
    assert_eq!(story.conflict(&orphans), named, "somebody names it meanwhile");
    story.tell(&collection(10, 0, 0, &[7, 1, 7]));
    assert_eq!(story.retired(), [(1, 2, None), (7, 3, None)], "each once");
    assert_eq!(story.conflict(&change(&[7], &[])), retired(7));
}

#[test]
fn checkpoints_remember_and_old_ones_know_of_nothing() {
    let mut story = Story::begin();
    story.tell(&change(&[1, 2], &[]));
    story.tell(&change(&[], &[1]));
    story.tell(&collection(10, 3, 0, &[]));
    story.tell(&change(&[], &[2]));
    let bytes = story.0.checkpoint(LOG).unwrap().encode().unwrap();
    let reread = State::from_checkpoint(Checkpoint::decode(&bytes.into()).unwrap()).unwrap();
    assert_eq!(Story(reread).retired(), story.retired());
}
