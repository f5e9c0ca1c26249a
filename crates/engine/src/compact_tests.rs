//! The policy on tables and over long random histories of pushes.

use super::*;
use proptest::prelude::*;

fn layer(id: u128, pack_bytes: u64) -> LayerMeta {
    LayerMeta {
        id: LayerId(id),
        pack_bytes,
        cue_bytes: 0,
        objects: 1,
        segments: 1,
        level: 0,
        self_contained: true,
        unreachable: false,
        bases_chosen: false,
    }
}

const BOUNDS: MergeBounds = MergeBounds {
    pack_bytes_max: MERGED_BYTES_MAX,
    objects_max: 1000,
    memory_bytes_max: u64::MAX,
    bases_chosen: false,
};

/// Layers of the lowest tier times powers of eight, one for each digit.
fn layers(tiers: &str) -> Vec<LayerMeta> {
    let bytes = |digit: char| TIER_BYTES_MIN * 8u64.pow(digit.to_digit(10).unwrap());
    tiers
        .chars()
        .enumerate()
        .map(|(id, digit)| layer(id as u128, bytes(digit)))
        .collect()
}

fn proposed(layers: &[LayerMeta]) -> Vec<Vec<u128>> {
    let ids = |job: Job| job.layers.into_iter().map(|id| id.0).collect();
    propose(layers, &BOUNDS).into_iter().map(ids).collect()
}

#[test]
fn tables() {
    let none: &[Vec<u128>] = &[];
    for (tiers, expected) in [
        ("", none),
        ("0", none),
        ("0000000", none),
        ("00000000", &[(0..8).collect()]),
        ("1111111", none),
        ("3210", none),
        // Trapped ones are merged at once, each gap by itself; single ones wait.
        ("001", &[vec![0, 1]]),
        ("01", none),
        ("20010", &[vec![1, 2]]),
        ("200100100", &[vec![1, 2], vec![4, 5]]),
        // Eight of a tier take those between them along.
        ("1011111110", &[(0..9).collect()]),
        ("01111111", none),
        ("011111111", &[(0..9).collect()]),
        // Larger ones before are left alone.
        ("5311111111", &[(2..10).collect()]),
        ("11111111200000000", &[(0..8).collect(), (9..17).collect()]),
    ] {
        assert_eq!(proposed(&layers(tiers)), expected, "{tiers}");
    }
}

#[test]
fn giants_are_left_alone() {
    let giants: Vec<LayerMeta> = (0..20).map(|id| layer(id, BOUNDS.pack_bytes_max / 2 + 1)).collect();
    assert!(propose(&giants, &BOUNDS).is_empty());
    let mut crowded = layers("00000000");
    crowded.iter_mut().for_each(|layer| layer.objects = 501);
    assert!(propose(&crowded, &BOUNDS).is_empty());
}

#[test]
fn groups_that_do_not_fit_become_giants() {
    // Each digit says how many hundred objects a layer has; a thousand fit.
    let crowd = |objects: &str| {
        let mut layers = layers(&"0".repeat(objects.len()));
        for (layer, digit) in layers.iter_mut().zip(objects.chars()) {
            layer.objects = digit.to_digit(10).unwrap() * 100;
        }
        proposed(&layers)
    };
    let none: &[Vec<u128>] = &[];
    for (objects, expected) in [
        ("2222222", none),
        ("11111111", &[(0..8).collect()]),
        ("22222222", &[(0..5).collect()]),
        ("4444444444", &[vec![0, 1], vec![2, 3], vec![4, 5], vec![6, 7]]),
        // What lies before a giant is trapped.
        ("119", &[vec![0, 1]]),
        ("191", none),
        ("9191911", none),
        ("444922", &[vec![0, 1]]),
        ("4441922", &[vec![0, 1], vec![2, 3]]),
        ("99999999999", none),
        ("9911111111", &[(2..10).collect()]),
    ] {
        assert_eq!(crowd(objects), expected, "{objects}");
    }
}

#[test]
fn memory_bounds_merges() {
    let mut layer = layer(0, 1);
    (layer.objects, layer.segments) = (1000, 100);
    let bytes = MergeBounds::within(0).memory_bytes(&layer);
    assert_eq!(bytes, 1000 * OBJECT_BYTES + 100 * COMMIT_BYTES);
    let linked = LayerMeta {
        cue_bytes: 1000 * CUE_OBJECT_BYTES + 100 * CUE_COMMIT_BYTES + 400,
        ..layer
    };
    assert_eq!(MergeBounds::within(0).memory_bytes(&linked), bytes + 400 * OTHER_BYTES);
    let bounds = MergeBounds::within(2 * bytes);
    assert!(!bounds.is_giant(&layer) && bounds.fit(&[layer; 2]) && !bounds.fit(&[layer; 3]));
    let bounds = MergeBounds::within(2 * bytes - 1);
    assert!(bounds.is_giant(&layer) && !bounds.fit(&[layer; 2]));
    let chosen = MergeBounds {
        bases_chosen: true,
        ..bounds
    };
    assert_eq!(chosen.memory_bytes(&layer), bytes + 1000 * CHOSEN_BYTES);
}

/// Bytes of an object in simulations.
const PUSHED_OBJECT_BYTES: u64 = 1000;

/// A repository of sizes only, compacted after each push.
struct Simulation {
    bounds: MergeBounds,
    layers: Vec<LayerMeta>,
    next: u128,
    pushed: u64,
    written: u64,
    layers_max: usize,
}

impl Simulation {
    fn new(objects_max: u64) -> Self {
        Self {
            bounds: MergeBounds { objects_max, ..BOUNDS },
            layers: Vec::new(),
            next: 0,
            pushed: 0,
            written: 0,
            layers_max: 0,
        }
    }

    fn push(&mut self, bytes: u64) {
        self.add(self.layers.len(), bytes);
        self.pushed += bytes;
        while let Some(job) = propose(&self.layers, &self.bounds).into_iter().next() {
            let start = self.layers.iter().position(|layer| layer.id == job.layers[0]).unwrap();
            let end = start + job.layers.len();
            let merged = &self.layers[start..end];
            assert!(merged.iter().map(|layer| layer.id).eq(job.layers), "neighbours");
            assert!(self.bounds.fit(merged) && merged.len() >= 2);
            let bytes = self.layers.drain(start..end).map(|layer| layer.pack_bytes).sum();
            self.add(start, bytes);
        }
        self.layers_max = self.layers_max.max(self.layers.len());
    }

    fn add(&mut self, at: usize, bytes: u64) {
        self.next += 1;
        self.written += bytes;
        let objects = u32::try_from(bytes.div_ceil(PUSHED_OBJECT_BYTES)).unwrap();
        let layer = LayerMeta {
            objects,
            ..layer(self.next, bytes)
        };
        self.layers.insert(at, layer);
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let tiers = 1 + tier(&layer(0, self.pushed)) as usize;
        let giants = self.layers.iter().filter(|layer| self.bounds.is_giant(layer)).count();
        prop_assert!(
            self.layers_max <= 2 * FAN_IN * tiers + 2 * giants,
            "{} layers of {} bytes, {giants} giants",
            self.layers_max,
            self.pushed
        );
        let by_objects = self.pushed / PUSHED_OBJECT_BYTES / (self.bounds.objects_max / 2);
        let full = by_objects + self.pushed / (self.bounds.pack_bytes_max / 2) + 1;
        prop_assert!(giants as u64 <= full, "{giants} giants where {full} would do");
        let amplification = self.written as f64 / self.pushed as f64;
        prop_assert!(amplification < 5.0, "amplification {amplification}");
        Ok(())
    }
}

/// Sizes of pushes: of one scale, of all scales alike, mostly small with large ones between, or falling and rising.
fn sizes() -> impl Strategy<Value = Vec<u64>> {
    let len = 200..4000usize;
    let like = (10u32..26, len.clone()).prop_flat_map(|(scale, len)| {
        let bytes = (1u64 << scale)..(2u64 << scale);
        proptest::collection::vec(bytes, len)
    });
    let any_scale = (8u32..30).prop_flat_map(|scale| (1u64 << scale)..(2u64 << scale));
    let mostly_small = prop_oneof![20 => 500u64..50_000, 1 => 1_000_000u64..1_000_000_000];
    let saw = (1usize..40, len.clone())
        .prop_map(|(period, len)| (0..len).map(|n| 1000u64 << (n % period).min(20)).collect::<Vec<_>>());
    prop_oneof![
        like,
        proptest::collection::vec(any_scale, len.clone()),
        proptest::collection::vec(mostly_small, len),
        saw.clone(),
        saw.prop_map(|mut sizes| {
            sizes.reverse();
            sizes
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn few_layers_and_little_rewriting_whatever_is_pushed(sizes in sizes(), objects_max in prop_oneof![Just(MERGED_OBJECTS_MAX), 1_000u64..10_000_000]) {
        let mut simulation = Simulation::new(objects_max);
        sizes.into_iter().for_each(|bytes| simulation.push(bytes));
        simulation.check()?;
    }
}
