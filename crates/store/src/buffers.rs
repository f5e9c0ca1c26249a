//! Memory of large reads and of what merges write, used again: a fresh page costs more than what is done with it, and a pack
//! that is sent takes each for a millisecond.

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;

/// Buffers that were given back, up to a bound of bytes. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Buffers(Arc<Mutex<Free>>);

#[derive(Debug, Default)]
struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

/// A buffer on loan: the bytes that own it give it back when the last of them is dropped.
struct Loan {
    buffer: Vec<u8>,
    home: Buffers,
}

impl Buffers {
    /// `len` bytes that `fill` writes, all of them: what they hold before is left from an earlier use. Small ones are not worth
    /// the trouble and are fresh.
    pub(crate) fn filled<E>(&self, len: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Bytes, E> {
        if len < REUSED_BYTES_MIN {
            let mut buffer = vec![0; len];
            return fill(&mut buffer).map(|()| Bytes::from(buffer));
        }
        let mut loan = Loan {
            buffer: self.take(len),
            home: self.clone(),
        };
        fill(&mut loan.buffer)?;
        Ok(Bytes::from_owner(loan))
    }

    /// An empty buffer with room for `capacity` bytes.
    pub fn empty(&self, capacity: usize) -> Vec<u8> {
        let mut buffer = self.used(capacity).unwrap_or_else(|| Vec::with_capacity(capacity));
        buffer.clear();
        buffer
    }

    /// The bytes of a buffer, which comes back here when the last of them is dropped.
    pub fn lend(&self, buffer: Vec<u8>) -> Bytes {
        if buffer.capacity() < REUSED_BYTES_MIN {
            return Bytes::from(buffer);
        }
        Bytes::from_owner(Loan {
            buffer,
            home: self.clone(),
        })
    }

    /// A buffer of that length.
    fn take(&self, len: usize) -> Vec<u8> {
        let Some(mut buffer) = self.used(len) else {
            return vec![0; len];
        };
        buffer.resize(len, 0);
        buffer
    }

    /// A buffer that was given back, of that capacity or little more.
    fn used(&self, capacity: usize) -> Option<Vec<u8>> {
        let mut free = self.0.lock();
        // What is kept long, as blocks are, weighs its length: little may lie idle behind it.
        let fits = |buffer: &Vec<u8>| (capacity..=capacity + capacity / 8).contains(&buffer.capacity());
        let at = free.buffers.iter().rposition(fits)?;
        let buffer = free.buffers.swap_remove(at);
        free.bytes -= buffer.capacity();
        Some(buffer)
    }

    fn give_back(&self, buffer: Vec<u8>) {
        let mut free = self.0.lock();
        if free.bytes + buffer.capacity() <= FREE_BYTES_MAX {
            free.bytes += buffer.capacity();
            free.buffers.push(buffer);
        }
    }
}

impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.buffer));
    }
}

/// Below this the allocator keeps memory for itself.
const REUSED_BYTES_MIN: usize = 128 << 10;
/// What may lie idle.
const FREE_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(buffers: &Buffers, len: usize, value: u8) -> Bytes {
        let fill = |bytes: &mut [u8]| {
            bytes.fill(value);
            Ok::<_, ()>(())
        };
        buffers.filled(len, fill).unwrap()
    }

    fn idle(buffers: &Buffers) -> usize {
        buffers.0.lock().bytes
    }

    #[test]
    fn a_buffer_is_used_again_once_nobody_reads_it() {
        let buffers = Buffers::default();
        let first = filled(&buffers, 1 << 20, 1);
        let (part, place) = (first.slice(5..9), first.as_ptr());
        drop(first);
        assert_eq!(idle(&buffers), 0);
        let second = filled(&buffers, 1 << 20, 2);
        assert_ne!(second.as_ptr(), place);
        assert_eq!(&part[..], [1; 4]);
        drop(part);
        assert_eq!(idle(&buffers), 1 << 20);
        let third = filled(&buffers, (1 << 20) - 7, 3);
        assert_eq!((third.as_ptr(), third.len()), (place, (1 << 20) - 7));
        assert!(third.iter().all(|byte| *byte == 3));
        drop((second, third));
        assert_eq!(filled(&buffers, 1 << 20, 4), vec![4; 1 << 20]);
    }

    #[test]
    fn what_was_written_comes_back_empty() {
        let buffers = Buffers::default();
        let mut buffer = buffers.empty(1 << 20);
        let capacity = buffer.capacity();
        buffer.extend_from_slice(b"abc");
        let (place, bytes) = (buffer.as_ptr(), buffers.lend(buffer));
        let part = bytes.slice(1..);
        drop(bytes);
        assert_eq!(idle(&buffers), 0);
        assert_eq!(&part[..], b"bc");
        drop(part);
        assert_eq!(idle(&buffers), capacity);
        let again = buffers.empty(1 << 20);
        assert_eq!((again.as_ptr(), again.len(), idle(&buffers)), (place, 0, 0));
        // Small ones are the allocator's.
        drop(buffers.lend(vec![0; REUSED_BYTES_MIN - 1]));
        assert_eq!(idle(&buffers), 0);
    }

    #[test]
    fn a_failed_read_gives_its_buffer_back() {
        let buffers = Buffers::default();
        assert_eq!(buffers.filled(1 << 20, |_| Err("torn")), Err("torn"));
        assert_eq!(idle(&buffers), 1 << 20);
    }

    #[test]
    fn what_lies_idle_is_bounded_and_misfits_are_left() {
        let buffers = Buffers::default();
        let held: Vec<_> = (0..40).map(|_| filled(&buffers, 1 << 20, 0)).collect();
        drop(held);
        assert_eq!(idle(&buffers), FREE_BYTES_MAX);
        let small = filled(&buffers, REUSED_BYTES_MIN, 0);
        assert_eq!(idle(&buffers), FREE_BYTES_MAX);
        let _tiny = filled(&buffers, REUSED_BYTES_MIN - 1, 0);
        drop(small);
        assert_eq!(idle(&buffers), FREE_BYTES_MAX);
    }
}
