//! A delta that comes in pieces, for a base or a result that memory need not hold.

use super::apply::{copied, operands_len};
use super::{DELTA_HEADER_LEN_MAX, DELTA_LEN_MIN, DeltaError, DeltaHeader};

/// A piece of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'d> {
    /// These bytes of the base, which has them.
    Copy {
        /// Where they begin.
        offset: u64,
        /// How many there are.
        len: u64,
    },
    /// These bytes.
    Insert(&'d [u8]),
}

/// Reads a delta against a base of known size. It holds an instruction at most, and refuses what [`super::apply`] refuses.
#[derive(Debug)]
pub struct Instructions {
    base_size: u64,
    header: Option<DeltaHeader>,
    /// The start of a header or a copy instruction.
    carry: Vec<u8>,
    /// Bytes still to be inserted.
    insert_left: usize,
    /// Bytes of the delta so far.
    taken: u64,
    /// Bytes of the result so far.
    produced: u64,
}

impl Instructions {
    /// For a base of that size.
    pub fn new(base_size: u64) -> Self {
        Self {
            base_size,
            header: None,
            carry: Vec::with_capacity(DELTA_HEADER_LEN_MAX),
            insert_left: 0,
            taken: 0,
            produced: 0,
        }
    }

    /// The sizes at the start of the delta, once they are there.
    pub fn header(&self) -> Option<DeltaHeader> {
        self.header
    }

    /// Takes the next piece of the delta; the parts of the result go to `part`, in order.
    pub fn feed<E: From<DeltaError>>(
        &mut self,
        mut piece: &[u8],
        part: &mut dyn FnMut(DeltaHeader, Part<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.taken += piece.len() as u64;
        while let Some((&byte, rest)) = piece.split_first() {
            let Some(header) = self.header else {
                self.read_header(byte)?;
                piece = rest;
                continue;
            };
            if self.insert_left > 0 {
                let (bytes, rest) = piece.split_at(self.insert_left.min(piece.len()));
                self.insert_left -= bytes.len();
                self.count(header, bytes.len() as u64)?;
                part(header, Part::Insert(bytes))?;
                piece = rest;
                continue;
            }
            if let Some((offset, len)) = self.read_instruction(byte)? {
                self.count(header, len)?;
                part(header, Part::Copy { offset, len })?;
            }
            piece = rest;
        }
        Ok(())
    }

    /// Ends the delta.
    pub fn finish(self) -> Result<DeltaHeader, DeltaError> {
        let is_whole = self.carry.is_empty() && self.insert_left == 0 && self.taken >= DELTA_LEN_MIN as u64;
        let header = self.header.filter(|_| is_whole).ok_or(DeltaError::Truncated)?;
        if self.produced != header.result_size {
            return Err(DeltaError::ResultSize {
                expected: header.result_size,
                got: self.produced,
            });
        }
        Ok(header)
    }

    fn read_header(&mut self, byte: u8) -> Result<(), DeltaError> {
        self.carry.push(byte);
        let header = match DeltaHeader::decode(&self.carry) {
            Ok((header, _)) => header,
            Err(DeltaError::Truncated) if self.carry.len() < DELTA_HEADER_LEN_MAX => return Ok(()),
            Err(error) => return Err(error),
        };
        self.carry.clear();
        self.header = Some(header);
        if header.base_size == self.base_size {
            Ok(())
        } else {
            Err(DeltaError::BaseSize {
                expected: header.base_size,
                got: self.base_size,
            })
        }
    }

    /// Takes a byte of an instruction; answers what is copied, if it is the last byte of a copy.
    fn read_instruction(&mut self, byte: u8) -> Result<Option<(u64, u64)>, DeltaError> {
        self.carry.push(byte);
        let Some((&opcode, operands)) = self.carry.split_first() else {
            return Ok(None);
        };
        match opcode {
            0 => return Err(DeltaError::ReservedInstruction),
            1..=0x7f => {
                self.insert_left = usize::from(opcode);
                self.carry.clear();
                return Ok(None);
            }
            0x80.. if operands.len() < operands_len(opcode) => return Ok(None),
            0x80.. => {}
        }
        let (offset, len) = copied(opcode, operands);
        let (offset, len) = (u64::from(offset), u64::from(len));
        self.carry.clear();
        if offset + len > self.base_size {
            return Err(DeltaError::CopyOutOfBounds {
                offset,
                len,
                base_size: self.base_size,
            });
        }
        Ok(Some((offset, len)))
    }

    fn count(&mut self, header: DeltaHeader, len: u64) -> Result<(), DeltaError> {
        self.produced += len;
        if self.produced > header.result_size {
            return Err(DeltaError::ResultSize {
                expected: header.result_size,
                got: self.produced,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::{apply, diff};
    use proptest::prelude::*;

    fn in_pieces(base: &[u8], delta: &[u8], piece_len: usize) -> Result<Vec<u8>, DeltaError> {
        let mut instructions = Instructions::new(base.len() as u64);
        let mut result = Vec::new();
        for piece in delta.chunks(piece_len) {
            instructions.feed(piece, &mut |_, part| {
                match part {
                    Part::Copy { offset, len } => result.extend(&base[offset as usize..][..len as usize]),
                    Part::Insert(bytes) => result.extend(bytes),
                }
                Ok::<_, DeltaError>(())
            })?;
        }
        instructions.finish()?;
        Ok(result)
    }

    proptest! {
        #[test]
        fn pieces_of_any_length_give_what_the_whole_gives(
            base in proptest::collection::vec(0..4u8, 1..400), target in proptest::collection::vec(0..4u8, 1..400), piece_len in 1..50usize
        ) {
            if let Some(delta) = diff(&base, &target) {
                prop_assert_eq!(in_pieces(&base, &delta, piece_len), Ok(target));
            }
        }

        #[test]
        fn broken_deltas_are_broken_in_pieces_too(
            base in proptest::collection::vec(any::<u8>(), 0..40), tail in proptest::collection::vec(any::<u8>(), 0..40), size in 0..100u8, piece_len in 1..9usize
        ) {
            let mut delta = vec![base.len() as u8, size];
            delta.extend(tail);
            // Which of several faults is found first may differ.
            prop_assert_eq!(in_pieces(&base, &delta, piece_len).ok(), apply(&base, &delta).ok());
            prop_assert_eq!(in_pieces(&[&base[..], b"x"].concat(), &delta, piece_len).ok(), None);
        }
    }
}
