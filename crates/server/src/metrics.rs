//! Counters of this node, and their Prometheus text. Plain atomics: a request costs a handful of additions.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a request was for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Endpoint {
    /// Refs for a fetch.
    UploadPackRefs,
    /// Refs for a push.
    ReceivePackRefs,
    /// A fetch.
    UploadPack,
    /// A push.
    ReceivePack,
    /// An archive.
    UploadArchive,
    /// A file for a dumb client.
    File,
    /// Refs or a fetch over SSH, with the status that HTTP would have.
    SshUploadPack,
    /// Refs or a push over SSH.
    SshReceivePack,
    /// An archive over SSH.
    SshUploadArchive,
    /// Refs or a fetch over `git://`, likewise.
    GitUploadPack,
    /// An archive over `git://`.
    GitUploadArchive,
    /// A layer fetched by its URI.
    Payload,
    /// Everything else.
    #[default]
    Other,
}

impl Endpoint {
    const ALL: [Self; 13] = [
        Self::UploadPackRefs,
        Self::ReceivePackRefs,
        Self::UploadPack,
        Self::ReceivePack,
        Self::UploadArchive,
        Self::File,
        Self::SshUploadPack,
        Self::SshReceivePack,
        Self::SshUploadArchive,
        Self::GitUploadPack,
        Self::GitUploadArchive,
        Self::Payload,
        Self::Other,
    ];

    /// The name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::UploadPackRefs => "upload-pack-refs",
            Self::ReceivePackRefs => "receive-pack-refs",
            Self::UploadPack => "upload-pack",
            Self::ReceivePack => "receive-pack",
            Self::UploadArchive => "upload-archive",
            Self::File => "file",
            Self::SshUploadPack => "ssh-upload-pack",
            Self::SshReceivePack => "ssh-receive-pack",
            Self::SshUploadArchive => "ssh-upload-archive",
            Self::GitUploadPack => "git-upload-pack",
            Self::GitUploadArchive => "git-upload-archive",
            Self::Payload => "payload",
            Self::Other => "other",
        }
    }
}

/// Statuses that are counted apart; the last counts all others.
const STATUSES: [u16; 11] = [200, 206, 400, 403, 404, 405, 413, 415, 500, 503, 0];
/// Upper bounds of the duration histogram, in microseconds.
const DURATION_BOUNDS_US: [u64; 14] = [
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    100_000,
    250_000,
    1_000_000,
    5_000_000,
    30_000_000,
    120_000_000,
];

#[derive(Default)]
struct EndpointCounters {
    by_status: [AtomicU64; STATUSES.len()],
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    /// One more than the bounds: the last is for what is slower than all of them.
    durations: [AtomicU64; DURATION_BOUNDS_US.len() + 1],
    duration_us_total: AtomicU64,
}

/// The counters of a node's requests.
#[derive(Default)]
pub struct Metrics {
    endpoints: [EndpointCounters; Endpoint::ALL.len()],
    in_flight: AtomicU64,
    connections: AtomicU64,
    ssh_connections: AtomicU64,
    ssh_logins: AtomicU64,
    ssh_keys_refused: AtomicU64,
    git_connections: AtomicU64,
    git_connections_refused: AtomicU64,
    pushes_accepted: AtomicU64,
    pushes_refused: AtomicU64,
    flushes: AtomicU64,
    flush_failures: AtomicU64,
    collected: AtomicU64,
}

impl Metrics {
    pub(crate) fn request_started(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn request_ended(
        &self,
        endpoint: Endpoint,
        status: u16,
        bytes_in: u64,
        bytes_out: u64,
        duration: Duration,
    ) {
        let counters = &self.endpoints[endpoint as usize];
        let status = STATUSES
            .iter()
            .position(|known| *known == status)
            .unwrap_or(STATUSES.len() - 1);
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = DURATION_BOUNDS_US
            .iter()
            .position(|bound| micros <= *bound)
            .unwrap_or(DURATION_BOUNDS_US.len());
        counters.by_status[status].fetch_add(1, Ordering::Relaxed);
        counters.durations[bucket].fetch_add(1, Ordering::Relaxed);
        counters.duration_us_total.fetch_add(micros, Ordering::Relaxed);
        counters.bytes_in.fetch_add(bytes_in, Ordering::Relaxed);
        counters.bytes_out.fetch_add(bytes_out, Ordering::Relaxed);
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ssh_connection_opened(&self) {
        self.ssh_connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ssh_logged_in(&self) {
        self.ssh_logins.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ssh_key_refused(&self) {
        self.ssh_keys_refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn git_connection_opened(&self) {
        self.git_connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn git_connection_refused(&self) {
        self.git_connections_refused.fetch_add(1, Ordering::Relaxed);
    }

    /// A push whose every ref was taken (`accepted`), or not.
    pub fn push_ended(&self, accepted: bool) {
        let counter = if accepted {
            &self.pushes_accepted
        } else {
            &self.pushes_refused
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// One repository's inline layers were moved to the bucket, or that failed.
    pub fn flush_ended(&self, succeeded: bool) {
        let counter = if succeeded { &self.flushes } else { &self.flush_failures };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Payloads of so many layers and repositories were deleted.
    pub fn collected(&self, count: usize) {
        self.collected.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Requests that have begun and not ended.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Writes the request counters.
    pub fn render(&self, page: &mut Page) {
        page.family(
            "cuesta_http_requests_total",
            "counter",
            "requests by service and status",
        );
        self.each(|name, counters| {
            for (status, count) in STATUSES.iter().zip(&counters.by_status) {
                let status = if *status == 0 {
                    "other".to_owned()
                } else {
                    status.to_string()
                };
                page.sample_if_any(&[("service", name), ("status", &status)], load(count));
            }
        });
        page.family(
            "cuesta_http_request_bytes_total",
            "counter",
            "request body bytes as received",
        );
        self.each(|name, counters| page.sample(&[("service", name)], load(&counters.bytes_in)));
        page.family(
            "cuesta_http_response_bytes_total",
            "counter",
            "response body bytes as sent",
        );
        self.each(|name, counters| page.sample(&[("service", name)], load(&counters.bytes_out)));
        page.family(
            "cuesta_http_request_seconds",
            "histogram",
            "time from the first header to the last byte sent",
        );
        self.each(|name, counters| render_histogram(page, name, counters));
        let plain = [
            (
                "cuesta_http_requests_in_flight",
                "gauge",
                "requests being served",
                &self.in_flight,
            ),
            (
                "cuesta_http_connections_total",
                "counter",
                "connections accepted",
                &self.connections,
            ),
            (
                "cuesta_ssh_connections_total",
                "counter",
                "SSH connections accepted",
                &self.ssh_connections,
            ),
            (
                "cuesta_ssh_logins_total",
                "counter",
                "SSH connections that were authenticated",
                &self.ssh_logins,
            ),
            (
                "cuesta_ssh_keys_refused_total",
                "counter",
                "SSH keys that nobody has",
                &self.ssh_keys_refused,
            ),
            (
                "cuesta_git_connections_total",
                "counter",
                "git:// connections accepted",
                &self.git_connections,
            ),
            (
                "cuesta_git_connections_refused_total",
                "counter",
                "git:// connections refused, because their address had too many",
                &self.git_connections_refused,
            ),
            (
                "cuesta_flushes_total",
                "counter",
                "moves of inline layers to the bucket",
                &self.flushes,
            ),
            (
                "cuesta_flush_failures_total",
                "counter",
                "moves of inline layers that failed",
                &self.flush_failures,
            ),
            (
                "cuesta_collected_total",
                "counter",
                "layers and repositories whose payloads were deleted",
                &self.collected,
            ),
        ];
        for (name, kind, help, value) in plain {
            page.value(name, kind, help, load(value));
        }
        page.family("cuesta_pushes_total", "counter", "pushes by outcome");
        page.sample(&[("outcome", "accepted")], load(&self.pushes_accepted));
        page.sample(&[("outcome", "refused")], load(&self.pushes_refused));
    }

    fn each(&self, mut render: impl FnMut(&'static str, &EndpointCounters)) {
        Endpoint::ALL
            .iter()
            .zip(&self.endpoints)
            .for_each(|(endpoint, counters)| render(endpoint.name(), counters));
    }
}

fn render_histogram(page: &mut Page, name: &str, counters: &EndpointCounters) {
    let mut total = 0;
    for (i, count) in counters.durations.iter().enumerate() {
        total += load(count);
        let bound = DURATION_BOUNDS_US
            .get(i)
            .map_or_else(|| "+Inf".to_owned(), |micros| seconds(*micros).to_string());
        page.suffixed("_bucket", &[("service", name), ("le", &bound)], total);
    }
    page.suffixed("_sum", &[("service", name)], seconds(load(&counters.duration_us_total)));
    page.suffixed("_count", &[("service", name)], total);
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[allow(clippy::cast_precision_loss)]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// A page in Prometheus' text format, version 0.0.4.
#[derive(Default)]
pub struct Page {
    text: String,
    family: String,
}

impl Page {
    /// Begins a family of samples.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.family = name.to_owned();
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A family of one sample without labels.
    pub fn value(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, kind, help);
        self.sample(&[], value);
    }

    /// A sample of the current family. Label values are ours: no escaping is needed.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.suffixed("", labels, value);
    }

    fn sample_if_any(&mut self, labels: &[(&str, &str)], value: u64) {
        if value > 0 {
            self.sample(labels, value);
        }
    }

    fn suffixed(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{value}\""))
            .collect();
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", labels.join(","))
        };
        let _ = writeln!(self.text, "{}{suffix}{labels} {value}", self.family);
    }

    /// The finished page.
    pub fn finish(self) -> String {
        self.text
    }
}

/// Resident memory of this process, in bytes; `None` where `/proc` does not say.
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_shows_in_every_family() {
        let metrics = Metrics::default();
        metrics.request_started();
        metrics.request_started();
        assert_eq!(metrics.in_flight(), 2);
        metrics.request_ended(Endpoint::UploadPack, 200, 10, 1000, Duration::from_micros(250));
        metrics.request_ended(Endpoint::UploadPack, 418, 1, 2, Duration::from_secs(200));
        let mut page = Page::default();
        metrics.render(&mut page);
        let text = page.finish();
        for line in [
            "cuesta_http_requests_total{service=\"upload-pack\",status=\"200\"} 1",
            "cuesta_http_requests_total{service=\"upload-pack\",status=\"other\"} 1",
            "cuesta_http_request_bytes_total{service=\"upload-pack\"} 11",
            "cuesta_http_response_bytes_total{service=\"upload-pack\"} 1002",
            "cuesta_http_request_seconds_bucket{service=\"upload-pack\",le=\"0.0001\"} 0",
            "cuesta_http_request_seconds_bucket{service=\"upload-pack\",le=\"0.00025\"} 1",
            "cuesta_http_request_seconds_bucket{service=\"upload-pack\",le=\"120\"} 1",
            "cuesta_http_request_seconds_bucket{service=\"upload-pack\",le=\"+Inf\"} 2",
            "cuesta_http_request_seconds_sum{service=\"upload-pack\"} 200.00025",
            "cuesta_http_request_seconds_count{service=\"upload-pack\"} 2",
            "cuesta_http_requests_in_flight 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert!(!text.contains("status=\"404\""));
    }

    #[test]
    fn memory_is_known_on_linux() {
        assert!(resident_bytes().is_none_or(|bytes| bytes > 1 << 20));
    }
}
