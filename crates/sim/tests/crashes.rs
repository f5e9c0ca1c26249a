//! A crash at every call of a story.

use cuesta_sim::chaos::Moment;
use cuesta_sim::script::{self, Script};

fn crash_everywhere(script: &Script, moments: &[Moment]) {
    let calls = script.calls();
    println!("{calls} calls");
    for call in 1..=calls {
        moments.iter().for_each(|moment| script.crash(call, *moment));
    }
}

#[test]
fn a_life_survives_a_crash_at_every_call() {
    crash_everywhere(&script::life(), &[Moment::Before, Moment::After, Moment::Late]);
}

#[test]
fn a_large_push_survives_a_crash_at_every_call() {
    crash_everywhere(&script::large_push(), &[Moment::Before, Moment::After]);
}
