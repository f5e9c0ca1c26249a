//! Ids of logs in a file, as a hint for the process that comes after a crash: never synced.

use cuesta_format::LogId;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// Ids read from the file at start; one of our own has no more repositories than were busy at once.
const IDS_MAX: usize = 1 << 20;

/// One id a line, in hex. Failures are told of once and change nothing else: the file is a hint.
pub struct Journal {
    path: PathBuf,
    file: File,
    is_broken: bool,
}

impl Journal {
    /// Goes on with the file at `path`, which holds `logs` from now on.
    pub fn begin<'a>(path: PathBuf, logs: impl IntoIterator<Item = &'a LogId>) -> io::Result<Self> {
        let file = write_new(&path, logs)?;
        Ok(Self {
            path,
            file,
            is_broken: false,
        })
    }

    /// Adds a log.
    pub fn add(&mut self, log: LogId) {
        let written = self.file.write_all(line(log).as_bytes());
        self.check(written);
    }

    /// Has the file hold these logs only.
    pub fn rewrite(&mut self, logs: &BTreeSet<LogId>) {
        let written = write_new(&self.path, logs).map(|file| self.file = file);
        self.check(written);
    }

    fn check(&mut self, written: io::Result<()>) {
        if let Err(error) = written
            && !std::mem::replace(&mut self.is_broken, true)
        {
            let path = self.path.display().to_string();
            tracing::warn!(%path, error = ?error.to_string(), "cannot note which repositories wait for background work");
        }
    }
}

fn line(log: LogId) -> String {
    format!("{log}\n")
}

/// Replaces the file in one step.
fn write_new<'a>(path: &Path, logs: impl IntoIterator<Item = &'a LogId>) -> io::Result<File> {
    let next = path.with_extension("new");
    let mut file = File::create(&next)?;
    let lines: String = logs.into_iter().map(|log| line(*log)).collect();
    file.write_all(lines.as_bytes())?;
    std::fs::rename(&next, path)?;
    Ok(file)
}

/// The ids in the file. A line that a crash cut short, or that is none of ours, is passed over.
pub fn read(path: &Path) -> io::Result<BTreeSet<LogId>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        opened => opened?,
    };
    let mut logs = BTreeSet::new();
    for line in BufReader::new(file).split(b'\n').take(IDS_MAX) {
        let line = line?;
        logs.extend(std::str::from_utf8(&line).ok().and_then(LogId::from_hex));
    }
    Ok(logs)
}
