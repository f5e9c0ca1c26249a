//! Deltas: an object as copies from another and inserted bytes (gitformat-pack, "Deltified representation").

mod apply;
mod diff;
mod instructions;

pub use apply::{apply, apply_into};
pub use diff::{DeltaIndex, diff};
pub use instructions::{Instructions, Part};

use crate::ErrorKind;

/// The most bytes a [`DeltaHeader`] takes.
pub const DELTA_HEADER_LEN_MAX: usize = 20;

/// Git refuses a shorter delta: two sizes and one insertion of one byte are the least there is.
const DELTA_LEN_MIN: usize = 4;

/// A delta that cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaError {
    /// The delta ends inside its header or inside an instruction.
    #[error("delta ends early")]
    Truncated,
    /// A size takes more than 64 bits.
    #[error("delta size overflows 64 bits")]
    SizeOverflow,
    /// The delta was made for a base of another size.
    #[error("delta base size mismatch: delta says {expected}, base is {got}")]
    BaseSize {
        /// What the delta says.
        expected: u64,
        /// The base that was given.
        got: u64,
    },
    /// The instructions give another size than the header says.
    #[error("delta result size mismatch: delta says {expected}, instructions give {got}")]
    ResultSize {
        /// What the header says.
        expected: u64,
        /// What the instructions had given when it was noticed.
        got: u64,
    },
    /// A copy from outside the base.
    #[error("delta copies {len} bytes at {offset} from a base of {base_size}")]
    CopyOutOfBounds {
        /// First byte of the copy.
        offset: u64,
        /// Bytes to copy.
        len: u64,
        /// Bytes in the base.
        base_size: u64,
    },
    /// Instruction 0, which is reserved.
    #[error("unexpected delta opcode 0")]
    ReservedInstruction,
}

impl DeltaError {
    /// What sort of failure this is.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Corrupt
    }
}

/// The two sizes a delta begins with. Check `result_size` against your limit before applying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaHeader {
    /// Bytes of the base.
    pub base_size: u64,
    /// Bytes of the object that comes out.
    pub result_size: u64,
}

impl DeltaHeader {
    /// Reads the header, and how many bytes it takes.
    pub fn decode(delta: &[u8]) -> Result<(Self, usize), DeltaError> {
        let (base_size, base_len) = decode_size(delta)?;
        let (result_size, result_len) = decode_size(delta.get(base_len..).unwrap_or_default())?;
        Ok((Self { base_size, result_size }, base_len + result_len))
    }

    /// Appends the header's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for mut size in [self.base_size, self.result_size] {
            while size > 0x7f {
                out.push((size & 0x7f) as u8 | 0x80);
                size >>= 7;
            }
            out.push(size as u8);
        }
    }
}

fn decode_size(bytes: &[u8]) -> Result<(u64, usize), DeltaError> {
    let mut size = 0;
    let mut shift = 0;
    for (index, &byte) in bytes.iter().enumerate() {
        let bits = u64::from(byte & 0x7f);
        if shift >= u64::BITS || bits > u64::MAX >> shift {
            return Err(DeltaError::SizeOverflow);
        }
        size |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok((size, index + 1));
        }
        shift += 7;
    }
    Err(DeltaError::Truncated)
}
