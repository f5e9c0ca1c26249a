//! What a collector does, on tables.

use super::*;

const GRACE: i64 = 1_000;

fn retired(layers: &[(u128, u64, Option<i64>)]) -> imbl::Vector<RetiredLayer> {
    let layer = |(id, number, seen_ms): &(u128, u64, Option<i64>)| RetiredLayer {
        id: LayerId(*id),
        number: *number,
        seen_ms: *seen_ms,
    };
    layers.iter().map(layer).collect()
}

/// Ids to delete, the number they lie below, whether something is to be noted.
fn proposed(layers: &[(u128, u64, Option<i64>)], now_ms: i64) -> (Vec<u128>, u64, bool) {
    let step = propose_collection(&retired(layers), now_ms, GRACE);
    let ids = step.delete.iter().map(|id| id.0).collect();
    (ids, step.deleted_below, step.notes)
}

#[test]
fn layers_go_when_their_grace_period_is_over_and_not_before() {
    let layers = [(1, 4, Some(10)), (2, 4, Some(10)), (3, 9, Some(500)), (4, 11, None)];
    assert_eq!(proposed(&layers, 10), (vec![], 0, true));
    assert_eq!(proposed(&layers, 1_009), (vec![], 0, true));
    assert_eq!(proposed(&layers, 1_010), (vec![1, 2], 5, true));
    assert_eq!(proposed(&layers, 1_500), (vec![1, 2, 3], 10, true));
    assert_eq!(
        proposed(&layers, i64::MAX),
        (vec![1, 2, 3], 10, true),
        "the unseen stay"
    );
    assert_eq!(proposed(&layers[..3], 0), (vec![], 0, false));
    assert_eq!(proposed(&[], 0), (vec![], 0, false));
}

#[test]
fn clocks_that_differ_keep_more_never_less() {
    // The second collector's clock was behind.
    let layers = [(1, 4, Some(900)), (2, 5, Some(10)), (3, 6, Some(i64::MAX))];
    assert_eq!(proposed(&layers, 1_500), (vec![], 0, false));
    assert_eq!(proposed(&layers, 1_900), (vec![1, 2], 6, false));
    assert_eq!(proposed(&layers, i64::MIN), (vec![], 0, false));
}

#[test]
fn a_pass_has_a_limit_and_splits_no_entry() {
    let wide = LAYERS_MAX as u128 + 2;
    let layers: Vec<_> = (0..wide)
        .map(|id| (id, 7, Some(0)))
        .chain([(wide, 8, Some(0))])
        .collect();
    let (ids, below, _) = proposed(&layers, GRACE);
    assert_eq!(
        (ids.len() as u128, below),
        (wide, 8),
        "all of the entry, nothing of the next"
    );
    let narrow: Vec<_> = (0..wide).map(|id| (id, u64::try_from(id).unwrap(), Some(0))).collect();
    let (ids, below, _) = proposed(&narrow, GRACE);
    assert_eq!((ids.len(), below), (LAYERS_MAX, LAYERS_MAX as u64));
}

#[test]
fn a_collector_comes_back_when_there_is_something_to_do() {
    let due = |layers: &[_], now_ms| due_ms(&retired(layers), now_ms, GRACE);
    assert_eq!(due(&[], 5), None);
    assert_eq!(due(&[(1, 1, None)], 5), Some(5 + GRACE / PASSES));
    assert_eq!(due(&[(1, 1, Some(3))], 5), Some(3 + GRACE));
    assert_eq!(due(&[(1, 1, Some(3)), (2, 2, None)], 5), Some(5 + GRACE / PASSES));
    assert_eq!(due(&[(1, 1, Some(3)), (2, 2, None)], 990), Some(3 + GRACE));
}
