//! The refs of a repository as the wire shows them, kept as a rope: shared chunks of lines, patched where refs moved.
//!
//! An answer about refs costs what changed since the last one and the bytes on the socket, however many refs there are;
//! requests share its memory, and so do the services and forms whose bytes are equal. `HEAD`, the capabilities and what
//! ends an answer are not in here: they are written for each request.

mod cache;
mod chunk;
mod lines;
mod rope;
mod shown;
#[cfg(test)]
mod tests;

pub use cache::RopeCache;
pub use lines::RefLines;
pub use rope::Rope;

use cuesta_protocol::advertise::{self, AdvertisedRef};
use cuesta_protocol::upload::ls_refs::LsRefs;

/// What a ref's lines tell of it beside its name and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Nothing: receive-pack's advertisement, and `ls-refs` without arguments.
    Plain,
    /// A second line with the peeled value: upload-pack's advertisement.
    PeeledLines,
    /// `ls-refs` with `peel`.
    Peeled,
    /// `ls-refs` with `symrefs`.
    Targets,
    /// `ls-refs` with both.
    PeeledTargets,
}

impl Form {
    /// How many forms there are.
    const COUNT: usize = 5;
    /// Every form, each at its own [`index`](Self::index).
    const ALL: [Self; Self::COUNT] = [
        Self::Plain,
        Self::PeeledLines,
        Self::Peeled,
        Self::Targets,
        Self::PeeledTargets,
    ];

    /// The form that answers `request`.
    pub fn of_request(request: &LsRefs) -> Self {
        Self::with_attributes(request.peel, request.symrefs)
    }

    fn with_attributes(peeled: bool, targets: bool) -> Self {
        match (peeled, targets) {
            (false, false) => Self::Plain,
            (true, false) => Self::Peeled,
            (false, true) => Self::Targets,
            (true, true) => Self::PeeledTargets,
        }
    }

    /// Whether lines tell of peeled values and of targets, as attributes.
    fn attributes(self) -> (bool, bool) {
        match self {
            Self::Plain | Self::PeeledLines => (false, false),
            Self::Peeled => (true, false),
            Self::Targets => (false, true),
            Self::PeeledTargets => (true, true),
        }
    }

    /// The simplest form with the same bytes for refs some of which have peeled values, or targets, or not.
    fn simplest(self, has_peeled: bool, has_targets: bool) -> Self {
        if self == Self::PeeledLines && has_peeled {
            return self;
        }
        let (peeled, targets) = self.attributes();
        Self::with_attributes(peeled && has_peeled, targets && has_targets)
    }

    /// Appends the lines of a ref.
    fn write(self, out: &mut Vec<u8>, shown: &AdvertisedRef<'_>) {
        match self {
            Self::Plain => advertise::write_ref(out, shown.name, &shown.oid, None),
            Self::PeeledLines => advertise::write_ref(out, shown.name, &shown.oid, shown.peeled.as_ref()),
            Self::Peeled | Self::Targets | Self::PeeledTargets => {
                let mut request = LsRefs::default();
                (request.peel, request.symrefs) = self.attributes();
                request.write_ref(out, shown);
            }
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}
