//! How much was asked of a bucket: requests, bytes and errors by kind of operation.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A kind of request to a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// A whole payload read.
    Get,
    /// A part of a payload read.
    GetRange,
    /// A payload written, whatever was there.
    Put,
    /// A payload written only where there was none.
    Create,
    /// A payload replaced only if it is still the known version.
    Swap,
    /// One part of a multipart upload; its start and its end count as one each.
    UploadPart,
    /// Keys under a prefix.
    List,
    /// A payload's size.
    Head,
    /// A payload removed.
    Delete,
}

impl Operation {
    /// Every kind, in a fixed order.
    pub const ALL: [Operation; 9] = [
        Self::Get,
        Self::GetRange,
        Self::Put,
        Self::Create,
        Self::Swap,
        Self::UploadPart,
        Self::List,
        Self::Head,
        Self::Delete,
    ];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::GetRange => "get_range",
            Self::Put => "put",
            Self::Create => "create",
            Self::Swap => "swap",
            Self::UploadPart => "upload_part",
            Self::List => "list",
            Self::Head => "head",
            Self::Delete => "delete",
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What one kind of operation has cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests made. A retry inside the client library is not counted again; a second try of a conditional write is.
    pub requests: u64,
    /// Requests that failed. `Exists`, `Stale` and absent payloads are answers, not failures.
    pub errors: u64,
    /// Payload bytes received.
    pub bytes_in: u64,
    /// Payload bytes sent.
    pub bytes_out: u64,
}

impl Tally {
    fn since(self, earlier: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            errors: self.errors.saturating_sub(earlier.errors),
            bytes_in: self.bytes_in.saturating_sub(earlier.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(earlier.bytes_out),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            errors: self.errors.saturating_add(other.errors),
            bytes_in: self.bytes_in.saturating_add(other.bytes_in),
            bytes_out: self.bytes_out.saturating_add(other.bytes_out),
        }
    }
}

/// A reading of a bucket's counters at one moment. Each figure is exact; figures read while requests run may be of
/// slightly different moments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters([Tally; Operation::ALL.len()]);

impl Counters {
    /// What `operation` has cost.
    pub fn of(&self, operation: Operation) -> Tally {
        self.0.get(operation.index()).copied().unwrap_or_default()
    }

    /// What all operations together have cost.
    pub fn total(&self) -> Tally {
        self.0.iter().fold(Tally::default(), |sum, tally| sum.plus(*tally))
    }

    /// What has been added since an `earlier` reading.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = *self;
        for (now, then) in difference.0.iter_mut().zip(earlier.0) {
            *now = now.since(then);
        }
        difference
    }
}

impl fmt::Display for Counters {
    /// The operations that were used, as `get 3 (12 B in)`, for reports and failed tests.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for operation in Operation::ALL {
            let tally = self.of(operation);
            if tally.requests > 0 {
                write!(f, "{separator}{operation} {}", tally.requests)?;
                write!(
                    f,
                    " ({} B in, {} B out, {} errors)",
                    tally.bytes_in, tally.bytes_out, tally.errors
                )?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

/// The live counters of one bucket.
#[derive(Debug, Default)]
pub(crate) struct Meter([Cells; Operation::ALL.len()]);

#[derive(Debug, Default)]
struct Cells {
    requests: AtomicU64,
    errors: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

impl Meter {
    pub(crate) fn request(&self, operation: Operation, bytes_out: usize) {
        if let Some(cells) = self.0.get(operation.index()) {
            cells.requests.fetch_add(1, Ordering::Relaxed);
            cells.bytes_out.fetch_add(bytes_out as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn received(&self, operation: Operation, bytes: usize) {
        if let Some(cells) = self.0.get(operation.index()) {
            cells.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn failed(&self, operation: Operation) {
        if let Some(cells) = self.0.get(operation.index()) {
            cells.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn snapshot(&self) -> Counters {
        let mut counters = Counters::default();
        for (tally, cells) in counters.0.iter_mut().zip(&self.0) {
            *tally = Tally {
                requests: cells.requests.load(Ordering::Relaxed),
                errors: cells.errors.load(Ordering::Relaxed),
                bytes_in: cells.bytes_in.load(Ordering::Relaxed),
                bytes_out: cells.bytes_out.load(Ordering::Relaxed),
            };
        }
        counters
    }
}
