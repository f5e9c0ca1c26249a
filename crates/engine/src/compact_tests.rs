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
    propose(layers).into_iter().map(ids).collect()
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
    let giants: Vec<LayerMeta> = (0..20).map(|id| layer(id, MERGED_BYTES_MAX / 4)).collect();
    assert!(propose(&giants).is_empty());
    let mut crowded = layers("00000000");
    crowded.iter_mut().for_each(|layer| layer.objects = u32::MAX >> 3);
    assert!(propose(&crowded).is_empty());
}

/// A repository of sizes only, compacted after each push.
#[derive(Default)]
struct Simulation {
    layers: Vec<LayerMeta>,
    next: u128,
    pushed: u64,
    written: u64,
    layers_max: usize,
}

impl Simulation {
    fn push(&mut self, bytes: u64) {
        self.add(self.layers.len(), bytes);
        self.pushed += bytes;
        while let Some(job) = propose(&self.layers).into_iter().next() {
            let start = self.layers.iter().position(|layer| layer.id == job.layers[0]).unwrap();
            let end = start + job.layers.len();
            assert!(
                self.layers[start..end].iter().map(|layer| layer.id).eq(job.layers),
                "neighbours"
            );
            let bytes = self.layers.drain(start..end).map(|layer| layer.pack_bytes).sum();
            self.add(start, bytes);
        }
        self.layers_max = self.layers_max.max(self.layers.len());
    }

    fn add(&mut self, at: usize, bytes: u64) {
        self.next += 1;
        self.written += bytes;
        self.layers.insert(at, layer(self.next, bytes));
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let tiers = 1 + tier(&layer(0, self.pushed)) as usize;
        prop_assert!(
            self.layers_max <= 2 * FAN_IN * tiers,
            "{} layers of {} bytes",
            self.layers_max,
            self.pushed
        );
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
    fn few_layers_and_little_rewriting_whatever_is_pushed(sizes in sizes()) {
        let mut simulation = Simulation::default();
        sizes.into_iter().for_each(|bytes| simulation.push(bytes));
        simulation.check()?;
    }
}
