//! What an advertisement costs after one ref has moved, in a repository of few refs and of many: the time until its bytes
//! can be handed to the socket, and how it grows. Medians, so that other work on the machine does not count.
//! `cargo bench -p cuesta-server --bench ref_rope`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)] // A bench measures time, and may fail.

use bytes::Buf;
use cuesta_format::{Cause, Edit, EditId, LogId, RefTarget, RefUpdate};
use cuesta_git::{ObjectFormat, ObjectId, RefName};
use cuesta_ledger::State;
use cuesta_protocol::Service;
use cuesta_server::ref_rope::{Form, RefLines, RopeCache};
use cuesta_store::Workers;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROUNDS: u64 = 2_000;

fn main() {
    println!(
        "| refs | bytes | first answer us | apply one edit us | answer after it us | answer again us | slices of it us |"
    );
    println!("|---|---|---|---|---|---|---|");
    for count in [10, 100, 1_000, 10_000, 100_000, 1_000_000] {
        measure(count);
    }
}

fn measure(count: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let cache = RopeCache::new(1 << 30, Arc::default());
    let read = |state: &Arc<State>| {
        let rope = cache.rope(LogId(1), state, Service::ReceivePack, Form::Plain, &Workers::Inline);
        let mut lines = RefLines::default();
        runtime.block_on(rope).append_all(Form::Plain, &mut lines);
        lines
    };
    let mut state = Arc::new(repository(count));
    let start = Instant::now();
    let len = read(&state).len();
    let first = start.elapsed();
    let [mut apply, mut after, mut again, mut slices] = [const { Vec::new() }; 4];
    for round in 0..ROUNDS {
        let edit = edit(&state, round * 7919 % count, round + 2);
        apply.push(timed(|| {
            let mut next = State::clone(&state);
            next.apply(&edit).unwrap();
            next.seal_entry();
            state = Arc::new(next);
        }));
        after.push(timed(|| drop(read(&state))));
        again.push(timed(|| drop(read(&state))));
        let lines = read(&state);
        slices.push(timed(|| walk(lines.clone())));
    }
    println!(
        "| {count} | {len} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} |",
        first.as_secs_f64() * 1e6,
        median(apply),
        median(after),
        median(again),
        median(slices)
    );
}

/// Reads everything as a socket does, but for the copy.
fn walk(mut lines: RefLines) {
    while lines.has_remaining() {
        let mut slices = [IoSlice::new(&[]); 64];
        let count = lines.chunks_vectored(&mut slices);
        let len = slices.iter().take(count).map(|slice| slice.len()).sum();
        lines.advance(len);
    }
}

/// In microseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn name(number: u64) -> RefName {
    RefName::new(format!("refs/heads/preloaded-{number:07}").as_bytes()).unwrap()
}

fn oid(value: u64) -> ObjectId {
    ObjectId::from_hex(ObjectFormat::Sha1, format!("{:040x}", value + 1).as_bytes()).unwrap()
}

fn blank(number: u64) -> Edit {
    Edit::new(EditId(number.into()), 0, Cause::Push, "")
}

fn edit(state: &State, at: u64, value: u64) -> Edit {
    let name = name(at);
    let old = state.refs().get(&name).map(|target| target.oid);
    let new = Some(RefTarget {
        oid: oid(value),
        peeled: None,
    });
    Edit {
        refs: vec![RefUpdate { name, old, new }],
        ..blank(state.number())
    }
}

fn repository(count: u64) -> State {
    let mut state = State::default();
    let updates = (0..count).map(|number| RefUpdate {
        name: name(number),
        old: None,
        new: Some(RefTarget {
            oid: oid(number),
            peeled: None,
        }),
    });
    let first = Edit {
        object_format: Some(ObjectFormat::Sha1),
        refs: updates.collect(),
        ..blank(0)
    };
    state.apply(&first).unwrap();
    state.seal_entry();
    state
}
