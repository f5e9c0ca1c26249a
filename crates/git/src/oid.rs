//! Object ids of either object format, and the four kinds of object.

use std::fmt;

/// The hash function that names a repository's objects (gitformat: `extensions.objectFormat`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum ObjectFormat {
    /// 20-byte ids.
    #[default]
    Sha1,
    /// 32-byte ids.
    Sha256,
}

impl ObjectFormat {
    /// Bytes in an id.
    pub const fn width(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// Hex digits in an id.
    pub const fn hex_width(self) -> usize {
        self.width() * 2
    }

    /// The name git uses in `object-format=` and `extensions.objectFormat`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }

    /// The format of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "sha1" => Some(Self::Sha1),
            "sha256" => Some(Self::Sha256),
            _ => None,
        }
    }
}

impl fmt::Display for ObjectFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The kind of an object; the values are those of pack entries (gitformat-pack).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ObjectKind {
    /// A commit.
    Commit = 1,
    /// A tree.
    Tree = 2,
    /// A blob.
    Blob = 3,
    /// An annotated tag.
    Tag = 4,
}

impl ObjectKind {
    /// The name git uses in object headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Tree => "tree",
            Self::Blob => "blob",
            Self::Tag => "tag",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        match name {
            b"commit" => Some(Self::Commit),
            b"tree" => Some(Self::Tree),
            b"blob" => Some(Self::Blob),
            b"tag" => Some(Self::Tag),
            _ => None,
        }
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of an object. Ids of one format order by their bytes, as in git's indexes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectId {
    /// An id of the sha1 format.
    Sha1([u8; 20]),
    /// An id of the sha256 format.
    Sha256([u8; 32]),
}

/// Text or bytes that are no id of the format asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a {format} object id: expected {} hex digits", format.hex_width())]
pub struct ParseIdError {
    /// The format that was expected.
    pub format: ObjectFormat,
}

impl ObjectId {
    /// The all-zero id, which stands for "no object" in ref updates.
    pub const fn null(format: ObjectFormat) -> Self {
        match format {
            ObjectFormat::Sha1 => Self::Sha1([0; 20]),
            ObjectFormat::Sha256 => Self::Sha256([0; 32]),
        }
    }

    /// The id with these raw bytes, whose count must be the format's width.
    pub fn from_bytes(format: ObjectFormat, bytes: &[u8]) -> Result<Self, ParseIdError> {
        let wrong_width = |_| ParseIdError { format };
        match format {
            ObjectFormat::Sha1 => bytes.try_into().map(Self::Sha1).map_err(wrong_width),
            ObjectFormat::Sha256 => bytes.try_into().map(Self::Sha256).map_err(wrong_width),
        }
    }

    /// The id written in hex, either case, exactly as many digits as the format has.
    pub fn from_hex(format: ObjectFormat, hex: &[u8]) -> Result<Self, ParseIdError> {
        let mut bytes = [0u8; 32];
        let bytes = &mut bytes[..format.width()];
        if hex.len() != format.hex_width() {
            return Err(ParseIdError { format });
        }
        for (byte, pair) in bytes.iter_mut().zip(hex.as_chunks::<2>().0) {
            match (hex_digit(pair[0]), hex_digit(pair[1])) {
                (Some(high), Some(low)) => *byte = high << 4 | low,
                _ => return Err(ParseIdError { format }),
            }
        }
        Self::from_bytes(format, bytes)
    }

    /// The raw bytes, as many as the format's width.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Sha1(bytes) => bytes,
            Self::Sha256(bytes) => bytes,
        }
    }

    /// The format this id belongs to.
    pub const fn format(&self) -> ObjectFormat {
        match self {
            Self::Sha1(_) => ObjectFormat::Sha1,
            Self::Sha256(_) => ObjectFormat::Sha256,
        }
    }

    /// Whether this is the all-zero id.
    pub fn is_null(&self) -> bool {
        self.as_bytes().iter().all(|byte| *byte == 0)
    }

    /// Appends the hex form to `out`.
    pub fn push_hex(&self, out: &mut Vec<u8>) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for byte in self.as_bytes() {
            out.push(DIGITS[usize::from(byte >> 4)]);
            out.push(DIGITS[usize::from(byte & 15)]);
        }
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips_in_both_formats() {
        for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
            let bytes: Vec<u8> = (0..format.width()).map(|i| (i * 7) as u8).collect();
            let oid = ObjectId::from_bytes(format, &bytes).unwrap();
            assert_eq!(ObjectId::from_hex(format, oid.to_string().as_bytes()), Ok(oid));
            let mut pushed = Vec::new();
            oid.push_hex(&mut pushed);
            assert_eq!(pushed, oid.to_string().into_bytes());
        }
    }

    #[test]
    fn wrong_lengths_and_digits_are_refused() {
        for hex in ["", "12", "zz34567890123456789012345678901234567890"] {
            assert!(ObjectId::from_hex(ObjectFormat::Sha1, hex.as_bytes()).is_err());
        }
    }

    #[test]
    fn only_zeros_are_null() {
        assert!(ObjectId::null(ObjectFormat::Sha256).is_null());
        assert!(!ObjectId::from_bytes(ObjectFormat::Sha1, &[1; 20]).unwrap().is_null());
    }
}
