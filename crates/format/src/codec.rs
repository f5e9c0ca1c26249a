//! What the formats share: codes, and reading and writing of length-prefixed little-endian fields.

use crate::{FormatError, Result};
use cuesta_git::ObjectFormat;

/// The code of an object format in every format of ours.
pub(crate) const fn object_format_code(format: ObjectFormat) -> u8 {
    match format {
        ObjectFormat::Sha1 => 1,
        ObjectFormat::Sha256 => 2,
    }
}

/// The object format of that code.
pub(crate) fn object_format(code: u8) -> Result<ObjectFormat> {
    match code {
        1 => Ok(ObjectFormat::Sha1),
        2 => Ok(ObjectFormat::Sha256),
        got => Err(FormatError::Unknown {
            what: "object format",
            got: got.into(),
        }),
    }
}
