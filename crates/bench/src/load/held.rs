//! What a server holds at the end of a level: memory, disk, and whatever a command of the user's counts.

use super::Server;
use crate::process;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

/// See the module; what nobody asked for is missing.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    memory: Option<process::Memory>,
    disk_bytes: Option<u64>,
    probed: Option<String>,
}

impl Held {
    /// Forgets the server's peak of memory, so that the next one is the level's. Not every kernel lets one.
    pub(super) fn begin(server: &Server) {
        if let Some(pid) = server.pid
            && let Err(error) = process::reset_peak(pid)
        {
            eprintln!("peaks are those since the server's start: {error:#}");
        }
    }

    /// Looks at a server.
    pub(super) fn of(server: &Server) -> Result<Self> {
        Ok(Self {
            memory: server.pid.map(process::memory).transpose()?,
            disk_bytes: server.directory.as_deref().map(bytes_below).transpose()?,
            probed: server.probe.as_deref().map(probe).transpose()?,
        })
    }

    /// MiB of memory that is no file's, the level's peak of all, MB on disk, and what the probe said.
    pub(super) fn cells(&self) -> [String; 4] {
        let or_none = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
        let mib = |bytes: u64| (bytes >> 20).to_string();
        [
            or_none(self.memory.map(|memory| mib(memory.anonymous_bytes))),
            or_none(self.memory.map(|memory| mib(memory.peak_bytes))),
            or_none(self.disk_bytes.map(|bytes| (bytes / 1_000_000).to_string())),
            or_none(self.probed.clone()),
        ]
    }
}

/// Bytes of all files below a directory. Files may go while it looks.
fn bytes_below(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries.flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => directories.push(entry.path()),
                Ok(metadata) => bytes += metadata.len(),
                Err(_) => {}
            }
        }
    }
    Ok(bytes)
}

/// What a command says, on its last line.
fn probe(command: &str) -> Result<String> {
    let output = Command::new("sh").arg("-c").arg(command).output();
    let output = output.with_context(|| format!("cannot run '{command}'"))?;
    ensure!(output.status.success(), "'{command}' failed: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text
        .trim_end()
        .lines()
        .next_back()
        .unwrap_or_default()
        .trim()
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_looked_at() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("below")).unwrap();
        std::fs::write(directory.path().join("below/file"), vec![0; 3_000_000]).unwrap();
        let server = Server {
            name: "this".to_owned(),
            url: String::new(),
            pid: Some(std::process::id()),
            directory: Some(directory.path().to_owned()),
            probe: Some("echo a; echo ' 7 '".to_owned()),
        };
        let held = Held::of(&server).unwrap();
        let memory = held.memory.unwrap();
        assert!(0 < memory.anonymous_bytes && memory.anonymous_bytes <= memory.peak_bytes);
        let [_, _, disk, probed] = held.cells();
        assert_eq!((disk.as_str(), probed.as_str()), ("3", "7"));
        assert!(probe("exit 1").is_err());
        let nothing = Server {
            pid: None,
            directory: None,
            probe: None,
            ..server
        };
        assert_eq!(Held::of(&nothing).unwrap().cells(), ["-"; 4]);
    }
}
