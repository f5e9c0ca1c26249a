//! What a level measured, as a row of a Markdown table.

use super::held::Held;
use super::plan::Operation;
use anyhow::Result;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// Bytes on the wire over a whole level, warm-up included.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    pub(super) operations: usize,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
}

/// What operations of one kind took.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// Of those that succeeded and count, ascending.
    pub(super) latencies: Vec<Duration>,
    pub(super) conflicts: usize,
    /// How often each reason came.
    pub(super) errors: BTreeMap<String, usize>,
}

/// One level on one server.
#[derive(Debug)]
pub(super) struct Level {
    agents: usize,
    duration: Duration,
    /// Operations that ended while CPU was being counted, however they ended.
    ended: usize,
    pub(super) operations: BTreeMap<Operation, Figures>,
    pub(super) server_cpu: Option<Duration>,
    pub(super) generator_cpu: Duration,
    pub(super) traffic: Traffic,
    pub(super) held: Held,
}

impl Level {
    pub(super) fn new(agents: usize, duration: Duration, ended: usize) -> Self {
        Self {
            agents,
            duration,
            ended,
            operations: BTreeMap::new(),
            server_cpu: None,
            generator_cpu: Duration::ZERO,
            traffic: Traffic::default(),
            held: Held::default(),
        }
    }

    fn microseconds_each(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() * 1e6 / self.ended.max(1) as f64
    }

    /// CPU and bytes of an operation, whichever it is, and what the server holds in the end.
    fn costs(&self) -> Vec<String> {
        let operations = self.traffic.operations.max(1) as u64;
        let server_cpu = self.server_cpu.map(|cpu| format!("{:.0}", self.microseconds_each(cpu)));
        let costs = [
            server_cpu.unwrap_or_else(|| "-".to_owned()),
            format!("{:.0}", self.microseconds_each(self.generator_cpu)),
            (self.traffic.sent_bytes / operations).to_string(),
            (self.traffic.received_bytes / operations).to_string(),
        ];
        costs.into_iter().chain(self.held.cells()).collect()
    }
}

/// The table's head, and how busy the machine is with other work: a reader must know.
pub(super) fn heading() -> Result<String> {
    let load = std::fs::read_to_string("/proc/loadavg")?;
    let cores = std::thread::available_parallelism()?;
    Ok(format!(
        "load average at the start: {}, {cores} cores\n\n\
         | agents | server | operation | per s | p50 ms | p95 | p99 | p99.9 | max | conflicts, errors | server CPU us each | \
         generator CPU us each | sent B each | received B each | memory MiB | peak MiB | disk MB | probe |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        load.split(' ').take(3).collect::<Vec<_>>().join(" ")
    ))
}

/// A row for each operation, and a line for each reason of failure. Costs are those of all operations together: they
/// stand in the first row.
pub(super) fn rows(server: &str, level: &Level) -> String {
    let mut rows = String::new();
    let mut costs = Some(level.costs());
    for (operation, figures) in &level.operations {
        let _ = write!(rows, "| {} | {server} | {operation} ", level.agents);
        let rate = figures.latencies.len() as f64 / level.duration.as_secs_f64();
        let mut cells = vec![format!("{rate:.1}")];
        for per_mille in [500, 950, 990, 999, 1000] {
            let latency = nearest_rank(&figures.latencies, per_mille).unwrap_or_default();
            cells.push(format!("{:.2}", latency.as_secs_f64() * 1e3));
        }
        cells.push(format!(
            "{}, {}",
            figures.conflicts,
            figures.errors.values().sum::<usize>()
        ));
        cells.extend(costs.take().unwrap_or_else(|| vec!["\"".to_owned(); 8]));
        cells.iter().for_each(|cell| _ = write!(rows, "| {cell} "));
        rows.push_str("|\n");
        for (reason, count) in &figures.errors {
            eprintln!(
                "{server}, {} agents, {operation}: {count} times: {reason}",
                level.agents
            );
        }
    }
    rows
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
