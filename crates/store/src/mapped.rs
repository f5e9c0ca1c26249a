//! Parts of files as memory (docs/decisions/mapped-cues.md).

use bytes::Bytes;
use memmap2::{Advice, MmapOptions};
use std::fs::File;
use std::io;
use std::ops::Range;

/// A range of a file, which must end within it, as bytes that the operating system pages in and out. Reads them all in once, so
/// that who looks at them does not wait for a disk that has them not in memory yet, and a disk that fails is an error here
/// and no signal later. Blocks.
pub(crate) fn map(file: &File, range: &Range<u64>) -> io::Result<Bytes> {
    let too_large = |_| io::Error::from(io::ErrorKind::OutOfMemory);
    let len = usize::try_from(range.end.saturating_sub(range.start)).map_err(too_large)?;
    if len == 0 {
        return Ok(Bytes::new());
    }
    let mut options = MmapOptions::new();
    options.offset(range.start).len(len);
    let mapped = read_only(&options, file)?;
    match mapped.advise(Advice::PopulateRead) {
        // Linux before 5.14 does not know it: pages come as they are looked at.
        Err(error) if error.kind() != io::ErrorKind::InvalidInput => Err(error),
        _ => Ok(Bytes::from_owner(mapped)),
    }
}

#[allow(unsafe_code, reason = "the one place where files become memory")]
fn read_only(options: &MmapOptions, file: &File) -> io::Result<memmap2::Mmap> {
    // SAFETY: the bytes of a mapping must not change while it lives. Payload files never do: they are written under another
    // name, then renamed, and only ever unlinked, which leaves a mapping whole. Somebody who writes into them from outside
    // breaks the bucket in any case; cutting one short ends the process (SIGBUS), which restarts without a loss.
    unsafe { options.map(file) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_of_a_file_is_mapped_and_outlives_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let content: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let file = File::open(&path).unwrap();
        let ranges = [
            0..100_000,
            1..2,
            4095..4097,
            4096..8192,
            99_999..100_000,
            70_000..70_000,
        ];
        let maps = ranges.clone().map(|range| map(&file, &range).unwrap());
        drop(file);
        std::fs::remove_file(&path).unwrap();
        for (range, mapped) in ranges.into_iter().zip(maps) {
            assert!(mapped == content[range.start as usize..range.end as usize], "{range:?}");
        }
    }
}
