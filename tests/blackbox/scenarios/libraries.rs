//! Other implementations of Git as clients: libgit2 (through pygit2) and dulwich.

use super::Scenario;
use crate::session::Session;
use anyhow::{Result, ensure};
use std::path::Path;

/// A Python that has both.
const PYTHON: &str = "CUESTA_TEST_PYTHON";

pub(super) fn scenarios() -> Vec<Scenario> {
    ["pygit2", "dulwich"]
        .map(|library| Scenario {
            needs: Some(PYTHON),
            ..Scenario::new(format!("libraries::{library}"), move |session| run(session, library))
        })
        .into()
}

fn run(session: &Session<'_>, library: &str) -> Result<()> {
    session.create("sha1")?;
    let python = std::env::var(PYTHON)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("libraries.py");
    let output = session
        .environment()
        .command(&python, session.root())
        .arg(script)
        .args([library, &session.url()])
        .output()?;
    session.record(&String::from_utf8_lossy(&output.stdout));
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{library}: {said}");
    Ok(())
}
