//! What a level measured, as a row of a Markdown table.

use anyhow::Result;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// Bytes on the wire over a whole level, warm-up included.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    pub(super) pushes: usize,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
}

/// One level on one server.
#[derive(Debug)]
pub(super) struct Level {
    agents: usize,
    duration: Duration,
    /// Pushes that ended while CPU was being counted, however they ended.
    pub(super) ended: usize,
    /// Of the acknowledged pushes that count, ascending.
    pub(super) latencies: Vec<Duration>,
    pub(super) conflicts: usize,
    /// How often each reason came.
    pub(super) errors: BTreeMap<String, usize>,
    pub(super) server_cpu: Option<Duration>,
    pub(super) generator_cpu: Duration,
    pub(super) traffic: Traffic,
}

impl Level {
    pub(super) fn new(agents: usize, duration: Duration, ended: usize) -> Self {
        Self {
            agents,
            duration,
            ended,
            latencies: Vec::new(),
            conflicts: 0,
            errors: BTreeMap::new(),
            server_cpu: None,
            generator_cpu: Duration::ZERO,
            traffic: Traffic::default(),
        }
    }

    pub(super) fn failures(&self) -> impl Iterator<Item = &str> {
        self.errors.keys().map(String::as_str)
    }

    fn microseconds_per_push(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() * 1e6 / self.ended.max(1) as f64
    }
}

/// The table's head, and how busy the machine is with other work: a reader must know.
pub(super) fn heading() -> Result<String> {
    let load = std::fs::read_to_string("/proc/loadavg")?;
    let cores = std::thread::available_parallelism()?;
    Ok(format!(
        "load average at the start: {}, {cores} cores\n\n\
         | agents | server | pushes/s | p50 ms | p95 | p99 | p99.9 | max | conflicts, errors | server CPU us/push | \
         generator CPU us/push | sent B/push | received B/push |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        load.split(' ').take(3).collect::<Vec<_>>().join(" ")
    ))
}

/// One row, and a line for each reason of failure.
pub(super) fn row(server: &str, level: &Level) -> String {
    let mut row = format!("| {} | {server} ", level.agents);
    let rate = level.latencies.len() as f64 / level.duration.as_secs_f64();
    let mut cells = vec![format!("{rate:.1}")];
    for per_mille in [500, 950, 990, 999, 1000] {
        let latency = nearest_rank(&level.latencies, per_mille).unwrap_or_default();
        cells.push(format!("{:.2}", latency.as_secs_f64() * 1e3));
    }
    cells.push(format!("{}, {}", level.conflicts, level.errors.values().sum::<usize>()));
    let server_cpu = level
        .server_cpu
        .map(|cpu| format!("{:.0}", level.microseconds_per_push(cpu)));
    cells.push(server_cpu.unwrap_or_else(|| "-".to_owned()));
    cells.push(format!("{:.0}", level.microseconds_per_push(level.generator_cpu)));
    let pushes = level.traffic.pushes.max(1) as u64;
    cells.push((level.traffic.sent_bytes / pushes).to_string());
    cells.push((level.traffic.received_bytes / pushes).to_string());
    cells.iter().for_each(|cell| _ = write!(row, "| {cell} "));
    row.push_str("|\n");
    for (reason, count) in &level.errors {
        eprintln!("{server}, {} agents: {count} times: {reason}", level.agents);
    }
    row
}

/// The smallest value that is not below `per_mille` of all; `values` ascend.
fn nearest_rank(values: &[Duration], per_mille: usize) -> Option<Duration> {
    let rank = (values.len() * per_mille).div_ceil(1000);
    values.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<_> = (1..=10).map(Duration::from_millis).collect();
        let rank = |per_mille| nearest_rank(&values, per_mille).map(|value| value.as_millis());
        assert_eq!(rank(500), Some(5));
        assert_eq!(rank(501), Some(6));
        assert_eq!(rank(990), Some(10));
        assert_eq!(rank(1000), Some(10));
        assert_eq!(nearest_rank(&[], 500), None);
        assert_eq!(nearest_rank(&values[..1], 1), Some(values[0]));
    }
}
