//! One ref update asked for by a push.

use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId, RefName};

use crate::error::within;
use crate::{Limits, ProtocolError};

/// The reason that reports give for a name git does not let be pushed.
pub const FUNNY_REFNAME: &str = "funny refname";

/// `<old> <new> <name>`: move a ref from one value to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The value the client saw; null to create.
    pub old: ObjectId,
    /// The value to set; null to delete.
    pub new: ObjectId,
    /// The name as it came. It may be no valid one: the report must name it all the same.
    pub name: Bytes,
}

impl Command {
    /// Whether the ref is to be deleted.
    pub fn deletes(&self) -> bool {
        self.new.is_null()
    }

    /// The name if git would let it be pushed: below `refs/`, well formed, and of at least two levels there unless the
    /// ref is deleted. Otherwise the reason to report.
    pub fn ref_name(&self) -> Result<RefName, &'static str> {
        let name = RefName::new(&self.name).map_err(|_| FUNNY_REFNAME)?;
        let below = self.name.strip_prefix(b"refs/").ok_or(FUNNY_REFNAME)?;
        if self.deletes() || below.contains(&b'/') {
            Ok(name)
        } else {
            Err(FUNNY_REFNAME)
        }
    }

    pub(super) fn parse(line: &[u8], format: ObjectFormat, limits: &Limits) -> Result<Self, ProtocolError> {
        let expected = || ProtocolError::malformed("protocol error: expected old/new/ref, got ", line);
        let (old, rest) = split_oid(line, format).ok_or_else(expected)?;
        let (new, name) = split_oid(rest, format).ok_or_else(expected)?;
        within(name.len(), limits.ref_name_bytes_max, "bytes in a ref name")?;
        Ok(Self {
            old,
            new,
            name: Bytes::copy_from_slice(name),
        })
    }
}

fn split_oid(line: &[u8], format: ObjectFormat) -> Option<(ObjectId, &[u8])> {
    let (hex, rest) = line.split_at_checked(format.hex_width())?;
    let oid = ObjectId::from_hex(format, hex).ok()?;
    Some((oid, rest.strip_prefix(b" ")?))
}
