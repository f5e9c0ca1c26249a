//! What a process costs, read from `/proc`: for comparing servers by CPU and memory rather than by noisy wall time.

use anyhow::{Context, Result};
use std::time::Duration;

/// CPU that a process and all the children it has waited for have used.
pub fn cpu(pid: u32) -> Result<Duration> {
    ticks_of(&format!("/proc/{pid}/stat"), 11..15)
}

/// Linux reports CPU to user space in hundredths of a second, whatever the kernel's own tick.
const TICKS_PER_SECOND: u64 = 100;

/// The most resident memory a process has had, in bytes, since it started or since [`reset_peak`].
pub fn peak_resident_bytes(pid: u32) -> Result<u64> {
    Ok(memory(pid)?.peak_bytes)
}

/// Memory of a process.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Resident and of no file.
    pub anonymous_bytes: u64,
    /// The most that was resident, of files, too, since it started or since [`reset_peak`].
    pub peak_bytes: u64,
}

/// What a process holds.
pub fn memory(pid: u32) -> Result<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let bytes = |name: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let line = line.with_context(|| format!("no {name}"))?;
        let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse()?;
        Ok(kib << 10)
    };
    Ok(Memory {
        anonymous_bytes: bytes("RssAnon:")?,
        peak_bytes: bytes("VmHWM:")?,
    })
}

/// Forgets the peak so far.
pub fn reset_peak(pid: u32) -> Result<()> {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").context("cannot reset the memory peak")
}

/// CPU of all children this process has waited for.
pub fn children_cpu() -> Result<Duration> {
    ticks_of("/proc/self/stat", 13..15)
}

/// CPU of the calling thread.
pub fn thread_cpu() -> Result<Duration> {
    ticks_of("/proc/thread-self/stat", 11..13)
}

/// The sum of some fields of a `stat` file, counted from behind the command's name.
fn ticks_of(path: &str, fields: std::ops::Range<usize>) -> Result<Duration> {
    let stat = std::fs::read_to_string(path)?;
    // The name is in parentheses and may itself hold spaces and parentheses.
    let after_name = stat.rsplit_once(')').with_context(|| format!("odd {path}"))?.1;
    let all: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = all.get(fields).context("short stat line")?;
    let ticks = ticks.iter().map(|field| field.parse::<u64>()).sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}
