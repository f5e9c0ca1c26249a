//! Log lines, on standard error: what a command prints on standard output stays clean.

use crate::config::{LogFormat, Settings};
use crate::log_lines::LogWriter;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Starts logging as the settings say; what still waits is written when the answer is dropped. Fails for directives that are
/// none.
pub fn start(settings: &Settings) -> Result<LogWriter, String> {
    let filter = EnvFilter::try_new(&settings.log_level)
        .map_err(|error| format!("setting 'log_level' cannot be '{}': {error}", settings.log_level))?;
    let writer = LogWriter::start(Box::new(std::io::stderr())).map_err(|error| format!("cannot log: {error}"))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer.lines())
        .with_ansi(std::io::stderr().is_terminal());
    let started = match settings.log_format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| error.to_string())?;
    Ok(writer)
}
