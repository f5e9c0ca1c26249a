//! The `ls-refs` command: its arguments, and the lines that answer it (gitprotocol-v2, `ls-refs`).

use bytes::Bytes;

use crate::advertise::AdvertisedRef;
use crate::options::Unborn;
use crate::pktline;
use crate::{Limits, ProtocolError};

/// The arguments of one `ls-refs`.
///
/// The answer is one line per ref ([`write_ref`](Self::write_ref)): HEAD first, then by name, then a flush.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LsRefs {
    /// Whether peeled values are asked for.
    pub peel: bool,
    /// Whether the targets of symbolic refs are asked for.
    pub symrefs: bool,
    /// Whether a HEAD without a commit is to be told of; never set where the server ignores it.
    pub unborn: bool,
    prefixes: Prefixes,
}

impl LsRefs {
    /// Whether a ref of that name is asked for; every one if no prefix was given, or too many.
    pub fn matches(&self, name: &[u8]) -> bool {
        self.prefixes.match_name(name)
    }

    /// The prefixes in byte order, none the start of another; empty means every ref. Each is one range of the sorted
    /// names, and no two ranges overlap.
    pub fn prefixes(&self) -> &[Bytes] {
        &self.prefixes.0
    }

    /// Appends the line of a ref, with the attributes asked for.
    pub fn write_ref(&self, out: &mut Vec<u8>, shown: &AdvertisedRef<'_>) {
        let mut id = Vec::with_capacity(64);
        shown.oid.push_hex(&mut id);
        let mut peeled = Vec::new();
        if let Some(oid) = shown.peeled.filter(|_| self.peel) {
            peeled.extend_from_slice(b" peeled:");
            oid.push_hex(&mut peeled);
        }
        let target = shown.symref_target.filter(|_| self.symrefs);
        write_line(out, &id, shown.name, target, &peeled);
    }

    /// Appends the line of a HEAD that follows a ref which does not exist, if that was asked for; call it first.
    pub fn write_unborn_head(&self, out: &mut Vec<u8>, target: &[u8]) {
        if self.unborn && self.symrefs && self.matches(b"HEAD") {
            write_line(out, b"unborn", b"HEAD", Some(target), b"");
        }
    }

    /// Appends a whole answer. `refs` as for [`write_refs`](crate::advertise::write_refs), all or only those that
    /// match; `unborn_head` is what HEAD follows where that does not exist.
    pub fn write_answer<'a>(
        &self,
        out: &mut Vec<u8>,
        unborn_head: Option<&[u8]>,
        refs: impl IntoIterator<Item = AdvertisedRef<'a>>,
    ) {
        if let Some(target) = unborn_head {
            self.write_unborn_head(out, target);
        }
        for shown in refs.into_iter().filter(|shown| self.matches(shown.name)) {
            self.write_ref(out, &shown);
        }
        out.extend_from_slice(pktline::FLUSH);
    }
}

fn write_line(out: &mut Vec<u8>, id: &[u8], name: &[u8], target: Option<&[u8]>, peeled: &[u8]) {
    let key: &[u8] = if target.is_some() { b" symref-target:" } else { b"" };
    pktline::encode(out, &[id, b" ", name, key, target.unwrap_or_default(), peeled, b"\n"]);
}

/// Byte order, none the start of another, so that one search decides a match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Prefixes(Vec<Bytes>);

impl Prefixes {
    fn new(mut prefixes: Vec<Bytes>) -> Self {
        prefixes.sort_unstable();
        // A prefix sorts before everything it covers, with nothing uncovered in between.
        prefixes.dedup_by(|later, kept| later.starts_with(kept));
        Self(prefixes)
    }

    fn match_name(&self, name: &[u8]) -> bool {
        let above = self.0.partition_point(|prefix| &prefix[..] <= name);
        let nearest = above.checked_sub(1).and_then(|index| self.0.get(index));
        self.0.is_empty() || nearest.is_some_and(|prefix| name.starts_with(prefix))
    }
}

/// Collects the arguments of one `ls-refs`.
#[derive(Debug, Default)]
pub(super) struct LsRefsParser {
    parsed: LsRefs,
    prefixes: Vec<Bytes>,
    too_many: bool,
}

impl LsRefsParser {
    pub(super) fn take(&mut self, line: &[u8], unborn: Unborn, limits: &Limits) -> Result<(), ProtocolError> {
        match line {
            b"peel" => self.parsed.peel = true,
            b"symrefs" => self.parsed.symrefs = true,
            b"unborn" => self.parsed.unborn = unborn != Unborn::Ignore,
            _ => match line.strip_prefix(b"ref-prefix ") {
                Some(prefix) => self.take_prefix(prefix, limits),
                None => return Err(ProtocolError::malformed("unexpected line: ", line)),
            },
        }
        Ok(())
    }

    pub(super) fn finish(self) -> LsRefs {
        LsRefs {
            prefixes: Prefixes::new(self.prefixes),
            ..self.parsed
        }
    }

    /// Prefixes are a hint: a server that is given too many may show every ref, and does.
    fn take_prefix(&mut self, prefix: &[u8], limits: &Limits) {
        if self.prefixes.len() + 1 >= limits.ref_prefixes_max {
            self.too_many = true;
            self.prefixes = Vec::new();
        }
        if !self.too_many {
            self.prefixes.push(Bytes::copy_from_slice(prefix));
        }
    }
}

#[cfg(test)]
#[path = "ls_refs_tests.rs"]
mod tests;
