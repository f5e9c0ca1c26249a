//! Log lines, on standard error: what a command prints on standard output stays clean.

use crate::config::{LogFormat, Settings};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Starts logging as the settings say. Fails for directives that are none.
pub fn start(settings: &Settings) -> Result<(), String> {
    let filter = EnvFilter::try_new(&settings.log_level)
        .map_err(|error| format!("setting 'log_level' cannot be '{}': {error}", settings.log_level))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let started = match settings.log_format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| error.to_string())
}
