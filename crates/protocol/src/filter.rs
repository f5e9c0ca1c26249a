//! Filter specifications of partial clones (`git rev-list --filter`, gitprotocol-v2 `filter`).

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use cuesta_git::ObjectKind;

use crate::error::{quote, within};
use crate::{Limits, ProtocolError};

/// Which objects to leave out of a pack. Objects wanted by id are sent all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterSpec {
    /// `blob:none`: no blobs.
    BlobNone,
    /// `blob:limit=<n>[kmg]`: no blobs of that many bytes or more.
    BlobLimit(u64),
    /// `tree:<depth>`: no trees or blobs that many levels below a root tree, or deeper; 0 leaves out root trees too.
    TreeDepth(u64),
    /// `object:type=<kind>`: only objects of that kind.
    ObjectType(ObjectKind),
    /// `sparse:oid=<blob-ish>`: only blobs on paths that match the sparse patterns in that blob; a revision expression.
    SparseOid(Bytes),
    /// `combine:<filter>+...`: only objects that every one of them leaves in. Never a sole `combine` of nothing.
    Combine(Vec<FilterSpec>),
}

impl FilterSpec {
    /// The filter that a specification means.
    ///
    /// Refuses what git refuses, in its words, and anything past the `filter_*` limits.
    pub fn parse(spec: &[u8], limits: &Limits) -> Result<Self, ProtocolError> {
        within(spec.len(), limits.filter_bytes_max, "bytes in a filter")?;
        let mut parser = Parser {
            filters_left: limits.filters_max,
            limits,
        };
        parser.parse(spec, 0)
    }

    /// The name that git's settings use for this kind of filter: `uploadpackfilter.<name>.allow`.
    pub const fn config_name(&self) -> &'static str {
        match self {
            Self::BlobNone => "blob:none",
            Self::BlobLimit(_) => "blob:limit",
            Self::TreeDepth(_) => "tree",
            Self::ObjectType(_) => "object:type",
            Self::SparseOid(_) => "sparse:oid",
            Self::Combine(_) => "combine",
        }
    }

    /// Appends the specification, with numbers in full, as a client writes it.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::BlobNone => out.extend_from_slice(b"blob:none"),
            Self::BlobLimit(bytes) => out.extend_from_slice(format!("blob:limit={bytes}").as_bytes()),
            Self::TreeDepth(depth) => out.extend_from_slice(format!("tree:{depth}").as_bytes()),
            Self::ObjectType(kind) => out.extend_from_slice(format!("object:type={kind}").as_bytes()),
            Self::SparseOid(name) => out.extend_from_slice(&[b"sparse:oid=", &name[..]].concat()),
            Self::Combine(filters) => write_combined(filters, out),
        }
    }
}

impl fmt::Display for FilterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut spec = Vec::new();
        self.write(&mut spec);
        f.write_str(&quote(&spec))
    }
}

/// Which filters a server takes (`uploadpackfilter.*`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterPolicy {
    /// Whether kinds that `kinds` does not name are allowed (`uploadpackfilter.allow`; git: true).
    pub allow: bool,
    /// Kinds by their [`config_name`](FilterSpec::config_name) (`uploadpackfilter.<kind>.allow`).
    pub kinds: BTreeMap<String, bool>,
    /// The deepest `tree:` allowed (`uploadpackfilter.tree.maxDepth`); `None` is any.
    pub tree_depth_max: Option<u64>,
}

impl Default for FilterPolicy {
    fn default() -> Self {
        Self {
            allow: true,
            kinds: BTreeMap::new(),
            tree_depth_max: None,
        }
    }
}

impl FilterPolicy {
    /// Refuses a filter that is not allowed, or has a part that is not.
    pub fn check(&self, filter: &FilterSpec) -> Result<(), ProtocolError> {
        let name = filter.config_name();
        if !self.kinds.get(name).copied().unwrap_or(self.allow) {
            return Err(ProtocolError::Refused(format!("filter '{name}' not supported")));
        }
        match (filter, self.tree_depth_max) {
            (FilterSpec::TreeDepth(depth), Some(max)) if *depth > max => {
                let text = format!("tree filter allows max depth {max}, but got {depth}");
                Err(ProtocolError::Refused(text))
            }
            (FilterSpec::Combine(filters), _) => filters.iter().try_for_each(|filter| self.check(filter)),
            _ => Ok(()),
        }
    }
}

struct Parser<'a> {
    filters_left: usize,
    limits: &'a Limits,
}

impl Parser<'_> {
    fn parse(&mut self, spec: &[u8], depth: usize) -> Result<FilterSpec, ProtocolError> {
        within(depth, self.limits.filter_depth_max, "levels of combined filters")?;
        self.filters_left = self
            .filters_left
            .checked_sub(1)
            .ok_or_else(|| limit("filters", self.limits.filters_max))?;
        if spec == b"blob:none" {
            return Ok(FilterSpec::BlobNone);
        }
        if let Some(size) = spec.strip_prefix(b"blob:limit=") {
            return number(size).map(FilterSpec::BlobLimit).ok_or_else(|| invalid(spec));
        }
        if let Some(depth) = spec.strip_prefix(b"tree:") {
            let expected = || ProtocolError::Malformed("expected 'tree:<depth>'".to_owned());
            return number(depth).map(FilterSpec::TreeDepth).ok_or_else(expected);
        }
        if let Some(name) = spec.strip_prefix(b"sparse:oid=") {
            return Ok(FilterSpec::SparseOid(Bytes::copy_from_slice(name)));
        }
        if spec.starts_with(b"sparse:path=") {
            return Err(ProtocolError::Refused(
                "sparse:path filters support has been dropped".to_owned(),
            ));
        }
        if let Some(kind) = spec.strip_prefix(b"object:type=") {
            return ObjectKind::from_name(kind)
                .map(FilterSpec::ObjectType)
                .ok_or_else(|| no_kind(kind));
        }
        match spec.strip_prefix(b"combine:") {
            Some(parts) => self.combine(parts, depth),
            None => Err(invalid(spec)),
        }
    }

    fn combine(&mut self, parts: &[u8], depth: usize) -> Result<FilterSpec, ProtocolError> {
        if parts.is_empty() {
            return Err(ProtocolError::Malformed("expected something after combine:".to_owned()));
        }
        let mut filters = Vec::new();
        for part in parts.split(|byte| *byte == b'+').filter(|part| !part.is_empty()) {
            if let Some(byte) = part.iter().find(|byte| is_reserved(**byte)) {
                return Err(ProtocolError::malformed(
                    "must escape char in sub-filter-spec: ",
                    &[*byte],
                ));
            }
            filters.push(self.parse(&percent_decoded(part), depth + 1)?);
        }
        if filters.is_empty() {
            return Err(ProtocolError::Malformed("expected something after combine:".to_owned()));
        }
        Ok(FilterSpec::Combine(filters))
    }
}

/// A number with git's unit suffixes (`git_parse_ulong`), in decimal.
fn number(text: &[u8]) -> Option<u64> {
    let (digits, unit) = match text.split_last()? {
        (b'k' | b'K', digits) => (digits, 1 << 10),
        (b'm' | b'M', digits) => (digits, 1 << 20),
        (b'g' | b'G', digits) => (digits, 1 << 30),
        _ => (text, 1),
    };
    crate::upload::decimal(digits)?.checked_mul(unit)
}

/// `%` and two hex digits become that byte; anything else, and `%00`, stays as it is (git's `url_percent_decode`).
fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let escape = tail.first_chunk::<2>().filter(|_| *first == b'%').and_then(hex_byte);
        decoded.push(escape.unwrap_or(*first));
        rest = if escape.is_some() {
            tail.get(2..).unwrap_or_default()
        } else {
            tail
        };
    }
    decoded
}

fn hex_byte(digits: &[u8; 2]) -> Option<u8> {
    let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high? << 4 | low?).ok().filter(|byte| *byte != 0)
}

fn write_combined(filters: &[FilterSpec], out: &mut Vec<u8>) {
    out.extend_from_slice(b"combine:");
    for (index, filter) in filters.iter().enumerate() {
        if index > 0 {
            out.push(b'+');
        }
        let mut part = Vec::new();
        filter.write(&mut part);
        for byte in part {
            if is_reserved(byte) || matches!(byte, b'%' | b'+') || !byte.is_ascii() {
                out.extend_from_slice(format!("%{byte:02x}").as_bytes());
            } else {
                out.push(byte);
            }
        }
    }
}

fn is_reserved(byte: u8) -> bool {
    byte <= b' ' || b"~`!@#$^&*()[]{}\\;'\",<>?".contains(&byte)
}

fn invalid(spec: &[u8]) -> ProtocolError {
    ProtocolError::malformed("invalid filter-spec ", spec)
}

fn no_kind(kind: &[u8]) -> ProtocolError {
    ProtocolError::Malformed(format!(
        "'{}' for 'object:type=<type>' is not a valid object type",
        quote(kind)
    ))
}

fn limit(what: &'static str, max: usize) -> ProtocolError {
    ProtocolError::Limit {
        what,
        max: u64::try_from(max).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
