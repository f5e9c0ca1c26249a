//! Random worlds, by seed.
//!
//! `CUESTA_SIM_SEED=n` runs one seed; `CUESTA_SIM_SEEDS=n` runs that many, beginning where the usual ones end. For a long
//! search: `CUESTA_SIM_SEEDS=10000 cargo test -p cuesta-sim --test seeds -- --nocapture`. With `CUESTA_SIM_TRACE` set, every
//! call and event is printed as it comes.

use cuesta_sim::world::{self, Plant};

/// Seeds of a usual run.
const SEEDS: u64 = 30;

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value} is not a number")),
    )
}

#[test]
fn all_that_must_hold_holds() {
    let seeds = match (number("CUESTA_SIM_SEED"), number("CUESTA_SIM_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(count)) => SEEDS..SEEDS + count,
        (None, None) => 0..SEEDS,
    };
    for seed in seeds {
        let outcome = world::run(seed);
        println!(
            "seed {seed}: {} calls and events, {} operations on refs, {} entries, {} restarts, trace {:016x}",
            outcome.trace.len(),
            outcome.operations,
            outcome.entries,
            outcome.restarts,
            outcome.digest()
        );
    }
}

/// Seeds that are run twice.
fn repeats() -> u64 {
    number("CUESTA_SIM_SEEDS").unwrap_or(6)
}

#[test]
fn a_seed_repeats_itself() {
    for seed in 0..repeats() {
        let (one, other) = (world::run(seed), world::run(seed));
        for (at, (a, b)) in one.trace.iter().zip(&other.trace).enumerate() {
            assert_eq!(a, b, "seed {seed} differs from itself at event {at}");
        }
        assert_eq!(one, other);
    }
}

/// Whether some seed of a usual run finds a mistake.
fn is_found(plant: Plant) -> bool {
    let finds = |seed| std::panic::catch_unwind(|| world::run_with(seed, plant)).is_err();
    (0..SEEDS).any(finds)
}

#[test]
fn payloads_that_go_too_early_are_missed() {
    assert!(is_found(Plant::NoGrace));
}

#[test]
fn layers_that_go_without_a_word_to_the_log_are_missed() {
    assert!(is_found(Plant::CarelessSweep));
}
