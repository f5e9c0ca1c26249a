//! Applying a delta to its base.

use super::{DELTA_LEN_MIN, DeltaError, DeltaHeader};

/// Room taken at once for a result; a larger one grows as its bytes come, so that a false size costs nothing.
const RESERVE_MAX: usize = 16 << 20;

/// The object that `delta` makes of `base`. The caller has checked [`DeltaHeader::result_size`] against its limit.
pub fn apply(base: &[u8], delta: &[u8]) -> Result<Vec<u8>, DeltaError> {
    let mut out = Vec::new();
    apply_into(base, delta, &mut out)?;
    Ok(out)
}

/// As [`apply`], into `out`, which is cleared first and holds no more than the declared size after an error.
pub fn apply_into(base: &[u8], delta: &[u8], out: &mut Vec<u8>) -> Result<(), DeltaError> {
    out.clear();
    let (header, header_len) = DeltaHeader::decode(delta)?;
    if delta.len() < DELTA_LEN_MIN {
        return Err(DeltaError::Truncated);
    }
    if header.base_size != base.len() as u64 {
        return Err(DeltaError::BaseSize {
            expected: header.base_size,
            got: base.len() as u64,
        });
    }
    out.reserve(
        usize::try_from(header.result_size)
            .unwrap_or(RESERVE_MAX)
            .min(RESERVE_MAX),
    );
    let mut instructions = delta.get(header_len..).unwrap_or_default();
    while let Some((&opcode, rest)) = instructions.split_first() {
        let (bytes, rest) = match opcode {
            0 => return Err(DeltaError::ReservedInstruction),
            1..=0x7f => rest
                .split_at_checked(usize::from(opcode))
                .ok_or(DeltaError::Truncated)?,
            0x80.. => copy(base, opcode, rest)?,
        };
        let len = (out.len() + bytes.len()) as u64;
        if len > header.result_size {
            return Err(DeltaError::ResultSize {
                expected: header.result_size,
                got: len,
            });
        }
        out.extend_from_slice(bytes);
        instructions = rest;
    }
    if out.len() as u64 != header.result_size {
        return Err(DeltaError::ResultSize {
            expected: header.result_size,
            got: out.len() as u64,
        });
    }
    Ok(())
}

/// What a copy instruction copies, and what follows it.
fn copy<'a, 'd>(base: &'a [u8], opcode: u8, operands: &'d [u8]) -> Result<(&'a [u8], &'d [u8]), DeltaError>
where
    'd: 'a,
{
    let (used, rest) = operands
        .split_at_checked(operands_len(opcode))
        .ok_or(DeltaError::Truncated)?;
    let (offset, len) = copied(opcode, used);
    let out_of_bounds = DeltaError::CopyOutOfBounds {
        offset: offset.into(),
        len: len.into(),
        base_size: base.len() as u64,
    };
    let bytes = base
        .get(offset as usize..)
        .and_then(|tail| tail.get(..len as usize))
        .ok_or(out_of_bounds)?;
    Ok((bytes, rest))
}

/// How many bytes follow the opcode of a copy instruction.
pub(super) fn operands_len(opcode: u8) -> usize {
    (opcode & 0x7f).count_ones() as usize
}

/// Offset and length of a copy instruction: four bits say which bytes of the offset follow, three which of the length; 0
/// means 64 KiB.
pub(super) fn copied(opcode: u8, operands: &[u8]) -> (u32, u32) {
    let mut operand = operands.iter().map(|byte| u32::from(*byte));
    let mut number = |bits: std::ops::Range<u8>| {
        bits.enumerate()
            .filter(|(_, bit)| opcode >> bit & 1 == 1)
            .fold(0u32, |sum, (place, _)| sum | operand.next().unwrap_or(0) << (8 * place))
    };
    let offset = number(0..4);
    let len = match number(4..7) {
        0 => 0x10000,
        len => len,
    };
    (offset, len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn copies_and_insertions() {
        let base = b"0123456789";
        // copy 4 at 2; insert "ab"; copy 1 at 9
        assert_eq!(
            apply(base, &[10, 7, 0x91, 2, 4, 2, b'a', b'b', 0x91, 9, 1]).unwrap(),
            b"2345ab9"
        );
        let long = vec![7; 0x10000];
        assert_eq!(apply(&long, &[0x80, 0x80, 4, 0x80, 0x80, 4, 0x80]).unwrap(), long);
    }

    #[test]
    fn broken_deltas() {
        let table: [(&[u8], DeltaError); 9] = [
            (&[], DeltaError::Truncated),
            (&[10], DeltaError::Truncated),
            (&[10, 0], DeltaError::Truncated),
            (&[9, 1, 1, b'a'], DeltaError::BaseSize { expected: 9, got: 10 }),
            (&[10, 1, 0, b'a'], DeltaError::ReservedInstruction),
            (&[10, 2, 1, b'a'], DeltaError::ResultSize { expected: 2, got: 1 }),
            (&[10, 1, 2, b'a', b'b'], DeltaError::ResultSize { expected: 1, got: 2 }),
            (
                &[10, 5, 0x91, 6, 5],
                DeltaError::CopyOutOfBounds {
                    offset: 6,
                    len: 5,
                    base_size: 10,
                },
            ),
            (&[10, 5, 0x91, 6], DeltaError::Truncated),
        ];
        for (delta, error) in table {
            assert_eq!(apply(b"0123456789", delta), Err(error), "{delta:?}");
        }
        assert_eq!(apply(b"", &[0xff; 30]), Err(DeltaError::SizeOverflow));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer(base in proptest::collection::vec(any::<u8>(), 0..40), tail in proptest::collection::vec(any::<u8>(), 0..40), size in 0..100u8) {
            let mut delta = vec![base.len() as u8, size];
            delta.extend(tail);
            if let Ok(result) = apply(&base, &delta) {
                prop_assert_eq!(result.len(), usize::from(size));
            }
        }
    }
}
