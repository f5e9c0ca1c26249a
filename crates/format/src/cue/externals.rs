//! The externals section: oids of objects in other layers (docs/format/cue.md, "Externals").

use super::column::{Carver, Column};
use super::{CueHeader, SectionKind};
use crate::Result;
use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId};

/// The objects of other layers that this layer names, each once, in order of first mention.
#[derive(Clone, Debug)]
pub struct Externals {
    section: Bytes,
    format: ObjectFormat,
    oids: Column,
}

impl Externals {
    /// The view of the section's bytes, which are empty where the layer names nothing outside.
    pub fn new(header: &CueHeader, section: Bytes) -> Result<Self> {
        header.check(SectionKind::Externals, &section)?;
        let format = header.object_format;
        let mut carver = Carver::new(SectionKind::Externals.name(), &section);
        let oids = carver.column(header.counts.externals.into(), format.width())?;
        carver.finish()?;
        Ok(Self { section, format, oids })
    }

    /// How many externals there are.
    #[inline]
    pub fn len(&self) -> u32 {
        u32::try_from(self.oids.count()).unwrap_or(u32::MAX)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.oids.count() == 0
    }

    /// The oid of an external; null past the end.
    #[inline]
    pub fn oid(&self, external: u32) -> ObjectId {
        self.oids.oid(&self.section, external as usize, self.format)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = ObjectId> + '_ {
        (0..self.len()).map(|external| self.oid(external))
    }
}
