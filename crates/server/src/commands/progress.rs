//! What a long command says while it works: a bar on a terminal, else a line now and then.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use std::io::IsTerminal;

/// Lines for each phase whose end is known, where there is no terminal.
const LINES_PER_PHASE: u64 = 10;

/// Shows how far a command is, on standard error.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    said: Mutex<Said>,
}

/// What the last line said.
#[derive(Default)]
struct Said {
    phase: &'static str,
    step: u64,
}

impl Progress {
    /// On a terminal a bar; silent if `quiet`.
    pub(super) fn new(quiet: bool) -> Self {
        let on_terminal = std::io::stderr().is_terminal() && !quiet;
        let said = Said {
            phase: "",
            step: if quiet { u64::MAX } else { 0 },
        };
        Self {
            bar: on_terminal.then(bar),
            said: Mutex::new(said),
        }
    }

    /// The phase is so far: a position out of a length, where that is known, and a text beside.
    pub(super) fn show(&self, phase: &'static str, position: u64, length: Option<u64>, beside: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_prefix(phase);
                bar.set_message(beside.to_owned());
                match length {
                    Some(length) => bar.set_length(length),
                    None => bar.unset_length(),
                }
                bar.set_position(position);
            }
            None => self.say(phase, position, length, beside),
        }
    }

    fn say(&self, phase: &'static str, position: u64, length: Option<u64>, beside: &str) {
        let mut said = self.said.lock();
        if said.step == u64::MAX {
            return;
        }
        // Without an end, lines come ever more seldom.
        let step = match length.filter(|length| *length > 0) {
            Some(length) => position.saturating_mul(LINES_PER_PHASE) / length,
            None => u64::from(position.max(1).ilog2()) / 2,
        };
        if (said.phase, said.step) != (phase, step) {
            (said.phase, said.step) = (phase, step);
            match length.filter(|length| *length > 0) {
                Some(length) => eprintln!("{phase}: {}% {beside}", position.saturating_mul(100) / length),
                None => eprintln!("{phase}: {beside}"),
            }
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{spinner} {prefix} {wide_bar} {percent:>3}% {msg}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
