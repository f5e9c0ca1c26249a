//! Lines that fetch requests of all versions share.

use std::collections::HashSet;
use std::num::NonZeroU32;

use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId};

use super::Deepen;
use crate::error::{quote, within};
use crate::filter::{FilterPolicy, FilterSpec};
use crate::{Limits, ProtocolError};

/// A number in decimal digits and nothing else.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| {
        let value = char::from(*digit).to_digit(10)?;
        number.checked_mul(10)?.checked_add(u64::from(value))
    })
}

/// Ids in the order they came, each once.
#[derive(Debug, Clone, Default)]
pub(super) struct IdSet {
    order: Vec<ObjectId>,
    seen: HashSet<ObjectId>,
}

impl IdSet {
    pub(super) fn insert(&mut self, oid: ObjectId, max: usize, what: &'static str) -> Result<(), ProtocolError> {
        if self.seen.insert(oid) {
            self.order.push(oid);
            within(self.order.len(), max, what)?;
        }
        Ok(())
    }

    pub(super) fn into_order(self) -> Vec<ObjectId> {
        self.order
    }
}

/// The `shallow`, `deepen*` and `filter` lines of one request.
#[derive(Debug, Default)]
pub(super) struct Boundary {
    shallow: IdSet,
    depth: Option<NonZeroU32>,
    since: Option<i64>,
    not: Vec<Bytes>,
    pub(super) relative: bool,
    filter: Option<FilterSpec>,
}

impl Boundary {
    /// Takes the line if it is one of the shallow lines; says whether it was.
    pub(super) fn take(&mut self, line: &[u8], format: ObjectFormat, limits: &Limits) -> Result<bool, ProtocolError> {
        if let Some(hex) = line.strip_prefix(b"shallow ") {
            let oid = ObjectId::from_hex(format, hex).map_err(|_| invalid("invalid shallow line", line))?;
            self.shallow.insert(oid, limits.shallows_max, "shallow lines")?;
        } else if let Some(depth) = line.strip_prefix(b"deepen ") {
            self.depth = Some(depth_of(depth).ok_or_else(|| invalid("Invalid deepen", line))?);
        } else if let Some(since) = line.strip_prefix(b"deepen-since ") {
            let since = decimal(since).and_then(|since| i64::try_from(since).ok());
            self.since = Some(since.ok_or_else(|| invalid("Invalid deepen-since", line))?);
        } else if let Some(name) = line.strip_prefix(b"deepen-not ") {
            self.not.push(Bytes::copy_from_slice(name));
            within(self.not.len(), limits.deepen_nots_max, "deepen-not lines")?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Takes what follows `filter `; a request has at most one, and it must be allowed.
    pub(super) fn take_filter(
        &mut self,
        spec: &[u8],
        policy: &FilterPolicy,
        limits: &Limits,
    ) -> Result<(), ProtocolError> {
        if self.filter.is_some() {
            return Err(ProtocolError::Malformed(
                "multiple filter-specs cannot be combined".to_owned(),
            ));
        }
        let filter = FilterSpec::parse(spec, limits)?;
        policy.check(&filter)?;
        self.filter = Some(filter);
        Ok(())
    }

    /// What the lines meant together.
    pub(super) fn finish(self) -> Result<(Vec<ObjectId>, Deepen, Option<FilterSpec>), ProtocolError> {
        let excludes = self.since.is_some() || !self.not.is_empty();
        let deepen = match self.depth {
            Some(_) if excludes => {
                let text = "git upload-pack: deepen and deepen-since (or deepen-not) cannot be used together";
                return Err(ProtocolError::Malformed(text.to_owned()));
            }
            Some(depth) if self.relative => Deepen::Relative(depth),
            Some(depth) => Deepen::Depth(depth),
            None if excludes => Deepen::Excluding {
                since: self.since,
                not: self.not,
            },
            None => Deepen::Unchanged,
        };
        Ok((self.shallow.into_order(), deepen, self.filter))
    }
}

/// These lines git repeats without quotes.
fn invalid(what: &str, line: &[u8]) -> ProtocolError {
    ProtocolError::Malformed(format!("{what}: {}", quote(line)))
}

fn depth_of(digits: &[u8]) -> Option<NonZeroU32> {
    let depth = decimal(digits).filter(|depth| *depth <= u64::from(super::DEPTH_INFINITE))?;
    NonZeroU32::new(u32::try_from(depth).ok()?)
}
