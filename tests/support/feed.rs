//! A command that reads much and writes much at once; included by the tests of several crates.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// Runs the command with this input. A thread writes it, so that neither side waits for the other to read.
pub(crate) fn feed(command: &mut Command, input: &[u8]) -> Output {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipes.stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The command may end before it has read everything; its exit status tells.
            let _ = stdin.write_all(input);
        });
        child.wait_with_output().unwrap()
    })
}
