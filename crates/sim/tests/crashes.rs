//! A crash at every call of a story.

use cuesta_sim::chaos::Moment;
use cuesta_sim::script::{self, Script};

fn crash_everywhere(script: &Script) {
    let calls = script.calls();
    println!("{calls} calls");
    for call in 1..=calls {
        for moment in [Moment::Before, Moment::After] {
            script.crash(call, moment);
        }
    }
}

#[test]
fn a_life_survives_a_crash_at_every_call() {
    crash_everywhere(&script::life());
}

#[test]
fn a_large_push_survives_a_crash_at_every_call() {
    crash_everywhere(&script::large_push());
}
