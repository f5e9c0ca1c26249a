//! Zlib streams, as objects and pack entries are stored, with state that is reused from one stream to the next.
//!
//! Nothing here trusts a declared size: output stops at it, and memory grows only with the input's length.
//! Streaming is zlib-rs; libdeflate does what it does faster, which is all that is whole in memory.

use crate::ErrorKind;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// A stream that cannot be inflated, or not to the size it should have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ZlibError {
    /// The bytes are no zlib stream, or its checksum is wrong.
    #[error("inflate: data stream error")]
    Corrupt,
    /// The input ends before the stream does.
    #[error("inflate: stream ends early")]
    Truncated,
    /// The stream goes on past the size it should have.
    #[error("inflate: stream is longer than the {expected} bytes expected")]
    TooLong {
        /// Bytes it should inflate to.
        expected: usize,
    },
    /// The stream ends before the size it should have.
    #[error("inflate: stream is {got} bytes, expected {expected}")]
    TooShort {
        /// Bytes it should inflate to.
        expected: usize,
        /// Bytes it inflates to.
        got: usize,
    },
    /// The compressor refused its own state; it never should.
    #[error("deflate: stream error")]
    Deflate,
}

impl ZlibError {
    /// What sort of failure this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::TooLong { .. } => ErrorKind::TooLarge,
            _ => ErrorKind::Corrupt,
        }
    }
}

/// What one step of [`Inflater::inflate`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inflated {
    /// Bytes taken from the input; exact, also at the end of the stream.
    pub consumed: usize,
    /// Bytes put into the output.
    pub produced: usize,
    /// Whether the stream has ended, its checksum verified.
    pub done: bool,
}

/// Inflates one stream after another; [`reset`](Self::reset) between them keeps the allocation (about 40 KiB).
pub struct Inflater {
    state: Decompress,
}

impl Default for Inflater {
    fn default() -> Self {
        Self::new()
    }
}

impl Inflater {
    /// An inflater at the start of a stream.
    pub fn new() -> Self {
        Self {
            state: Decompress::new(true),
        }
    }

    /// Forgets the current stream; the next bytes start another.
    pub fn reset(&mut self) {
        self.state.reset(true);
    }

    /// Inflates as much of `input` as fits `output`. Neither consumed nor produced, and not done, means that the step
    /// needs more of one of them.
    pub fn inflate(&mut self, input: &[u8], output: &mut [u8]) -> Result<Inflated, ZlibError> {
        let (in_before, out_before) = (self.state.total_in(), self.state.total_out());
        let status = self
            .state
            .decompress(input, output, FlushDecompress::None)
            .map_err(|_| ZlibError::Corrupt)?;
        Ok(Inflated {
            consumed: usize::try_from(self.state.total_in() - in_before).unwrap_or(input.len()),
            produced: usize::try_from(self.state.total_out() - out_before).unwrap_or(output.len()),
            done: status == Status::StreamEnd,
        })
    }

    /// Inflates the whole stream at the start of `input` into `output`, which is cleared first; answers how many bytes
    /// of input the stream takes. Resets before and so may be called at any time.
    ///
    /// The stream must inflate to exactly `size` bytes. `output` never grows past what `input` could inflate to,
    /// whatever `size` claims.
    pub fn inflate_exact(&mut self, input: &[u8], size: usize, output: &mut Vec<u8>) -> Result<usize, ZlibError> {
        self.reset();
        output.clear();
        output.resize(size.min(inflated_len_max(input.len())), 0);
        let (mut consumed, mut produced) = (0, 0);
        loop {
            let room = output.get_mut(produced..).unwrap_or_default();
            let mut probe = [0u8; 1];
            let probing = room.is_empty();
            let target = if probing { &mut probe[..] } else { room };
            let step = self.inflate(input.get(consumed..).unwrap_or_default(), target)?;
            consumed += step.consumed;
            if probing && step.produced > 0 {
                return Err(ZlibError::TooLong { expected: size });
            }
            produced += step.produced;
            if step.done {
                break;
            }
            if step.consumed == 0 && step.produced == 0 {
                return Err(ZlibError::Truncated);
            }
        }
        output.truncate(produced);
        if produced != size {
            return Err(ZlibError::TooShort {
                expected: size,
                got: produced,
            });
        }
        Ok(consumed)
    }
}

/// Inflates streams that are whole in memory and whose end is known, as those of stored entries are: up to twice as
/// fast as [`Inflater`], but without a word on where the stream ends.
#[derive(Default)]
pub struct WholeInflater {
    state: libdeflater::Decompressor,
}

impl WholeInflater {
    /// An inflater; it keeps its state (about 12 KiB) from stream to stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Inflates `stream` into `output`, which is cleared first. It must inflate to exactly `size` bytes; bytes after
    /// its end are ignored.
    pub fn inflate(&mut self, stream: &[u8], size: usize, output: &mut Vec<u8>) -> Result<(), ZlibError> {
        use libdeflater::DecompressionError::{BadData, InsufficientSpace};
        output.clear();
        output.resize(size.min(inflated_len_max(stream.len())), 0);
        let got = self
            .state
            .zlib_decompress(stream, output)
            .map_err(|error| match error {
                InsufficientSpace => ZlibError::TooLong { expected: size },
                BadData => ZlibError::Corrupt,
            })?;
        output.truncate(got);
        if got == size {
            Ok(())
        } else {
            Err(ZlibError::TooShort { expected: size, got })
        }
    }
}

/// Deflate codes at best 258 bytes in 2 bits; the real bound of zlib streams is 1032 to 1.
fn inflated_len_max(compressed_len: usize) -> usize {
    compressed_len.saturating_mul(1032)
}

/// [`Inflater::inflate_exact`] for a single stream: the content, and how many bytes of input its stream takes.
pub fn inflate_exact(input: &[u8], size: usize) -> Result<(Vec<u8>, usize), ZlibError> {
    let mut output = Vec::new();
    let consumed = Inflater::new().inflate_exact(input, size, &mut output)?;
    Ok((output, consumed))
}

/// Deflates one buffer after another at one level, reusing the state (a few hundred KiB).
pub struct Deflater {
    state: DeflateState,
}

enum DeflateState {
    ZlibRs(Box<Compress>),
    Libdeflate(libdeflater::Compressor),
}

/// From this level on libdeflate is the faster one, half as fast again; below, zlib-rs is.
const LIBDEFLATE_LEVEL_MIN: u32 = 4;

impl Deflater {
    /// A deflater of a level from 0 (store) to 9 (best); higher levels mean 9.
    pub fn new(level: u32) -> Self {
        let level = level.min(9);
        let whole = i32::try_from(level)
            .ok()
            .and_then(|level| libdeflater::CompressionLvl::new(level).ok());
        let state = match whole {
            Some(whole) if level >= LIBDEFLATE_LEVEL_MIN => {
                DeflateState::Libdeflate(libdeflater::Compressor::new(whole))
            }
            _ => DeflateState::ZlibRs(Box::new(Compress::new(Compression::new(level), true))),
        };
        Self { state }
    }

    /// Appends the zlib stream of `content` to `output`.
    pub fn deflate(&mut self, content: &[u8], output: &mut Vec<u8>) -> Result<(), ZlibError> {
        match &mut self.state {
            DeflateState::ZlibRs(state) => deflate_with_zlib_rs(state, content, output),
            DeflateState::Libdeflate(state) => {
                let start = output.len();
                output.resize(start + state.zlib_compress_bound(content.len()), 0);
                let room = output.get_mut(start..).unwrap_or_default();
                let len = state.zlib_compress(content, room).map_err(|_| ZlibError::Deflate)?;
                output.truncate(start + len);
                Ok(())
            }
        }
    }
}

fn deflate_with_zlib_rs(state: &mut Compress, content: &[u8], output: &mut Vec<u8>) -> Result<(), ZlibError> {
    state.reset();
    output.reserve(content.len() / 2 + 64);
    loop {
        let taken = usize::try_from(state.total_in()).unwrap_or(content.len());
        let rest = content.get(taken..).unwrap_or_default();
        match state.compress_vec(rest, output, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => return Ok(()),
            Ok(_) => output.reserve(output.capacity().max(64)),
            Err(_) => return Err(ZlibError::Deflate),
        }
    }
}

/// Makes one zlib stream of content that comes in pieces, for what is too large to be held.
pub struct StreamDeflater {
    state: Compress,
}

impl StreamDeflater {
    /// A deflater of a level from 0 (store) to 9 (best); higher levels mean 9.
    pub fn new(level: u32) -> Self {
        Self {
            state: Compress::new(Compression::new(level.min(9)), true),
        }
    }

    /// As [`StreamDeflater::new`], without the zlib header and checksum: what gzip and zip wrap in their own.
    pub fn raw(level: u32) -> Self {
        Self {
            state: Compress::new(Compression::new(level.min(9)), false),
        }
    }

    /// Takes the next piece; appends to `output` what is ready of the stream.
    pub fn deflate(&mut self, mut piece: &[u8], output: &mut Vec<u8>) -> Result<(), ZlibError> {
        while !piece.is_empty() {
            let before = self.state.total_in();
            output.reserve(piece.len() / 2 + 64);
            self.state
                .compress_vec(piece, output, FlushCompress::None)
                .map_err(|_| ZlibError::Deflate)?;
            let taken = usize::try_from(self.state.total_in() - before).unwrap_or(piece.len());
            piece = piece.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    /// Appends the rest of the stream.
    pub fn finish(mut self, output: &mut Vec<u8>) -> Result<(), ZlibError> {
        loop {
            output.reserve(1 << 10);
            match self.state.compress_vec(&[], output, FlushCompress::Finish) {
                Ok(Status::StreamEnd) => return Ok(()),
                Ok(_) => {}
                Err(_) => return Err(ZlibError::Deflate),
            }
        }
    }
}

/// The CRC-32 of gzip, zip and pack indexes.
#[derive(Default)]
pub struct Crc32(flate2::Crc);

impl Crc32 {
    /// The checksum of nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes so far.
    pub fn value(&self) -> u32 {
        self.0.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn deflated(content: &[u8], level: u32) -> Vec<u8> {
        let mut out = Vec::new();
        Deflater::new(level).deflate(content, &mut out).unwrap();
        out
    }

    fn compressible() -> impl Strategy<Value = Vec<u8>> {
        (proptest::collection::vec(any::<u8>(), 0..600), 1..40usize).prop_map(|(bytes, times)| bytes.repeat(times))
    }

    proptest! {
        #[test]
        fn what_was_deflated_inflates_and_the_rest_is_left(content in compressible(), level in 0..=9u32, tail in any::<[u8; 5]>()) {
            let mut stream = deflated(&content, level);
            let len = stream.len();
            stream.extend(tail);
            let mut whole = Vec::new();
            prop_assert_eq!(WholeInflater::new().inflate(&stream, content.len(), &mut whole), Ok(()));
            prop_assert_eq!(&whole, &content);
            prop_assert_eq!(inflate_exact(&stream, content.len()), Ok((content, len)));
        }

        #[test]
        fn streaming_in_any_pieces_gives_the_same(content in compressible(), input_step in 1..50usize, output_step in 1..50usize) {
            let stream = deflated(&content, 6);
            let mut inflater = Inflater::new();
            let (mut at, mut got, mut done) = (0, Vec::new(), false);
            while !done {
                let mut piece = vec![0; output_step];
                let step = inflater.inflate(&stream[at..stream.len().min(at + input_step)], &mut piece).unwrap();
                at += step.consumed;
                got.extend(&piece[..step.produced]);
                done = step.done;
            }
            prop_assert_eq!((at, got), (stream.len(), content));
        }

        #[test]
        fn deflating_in_any_pieces_gives_a_stream_of_the_same(content in compressible(), step in 1..500usize) {
            let (mut deflater, mut stream) = (StreamDeflater::new(6), Vec::new());
            for piece in content.chunks(step) {
                deflater.deflate(piece, &mut stream).unwrap();
            }
            deflater.finish(&mut stream).unwrap();
            prop_assert_eq!(inflate_exact(&stream, content.len()), Ok((content, stream.len())));
        }

        #[test]
        fn a_wrong_size_is_refused(content in compressible(), off in 1..2000usize) {
            let stream = deflated(&content, 6);
            let expected = content.len() + off;
            prop_assert_eq!(inflate_exact(&stream, expected), Err(ZlibError::TooShort { expected, got: content.len() }));
            if let Some(expected) = content.len().checked_sub(off) {
                prop_assert_eq!(inflate_exact(&stream, expected), Err(ZlibError::TooLong { expected }));
            }
        }

        #[test]
        fn a_truncated_stream_is_refused(content in compressible(), cut in 1..8usize) {
            let stream = deflated(&content, 6);
            let kept = stream.len().saturating_sub(cut);
            prop_assert_eq!(inflate_exact(&stream[..kept], content.len()), Err(ZlibError::Truncated));
        }
    }

    #[test]
    fn a_bomb_stops_at_the_declared_size_and_a_boast_allocates_nothing() {
        let bomb = deflated(&vec![0; 8 << 20], 9);
        let mut output = Vec::new();
        let outcome = Inflater::new().inflate_exact(&bomb, 100, &mut output);
        assert_eq!(outcome, Err(ZlibError::TooLong { expected: 100 }));
        let boast = deflated(b"small", 9);
        let mut output = Vec::new();
        let outcome = Inflater::new().inflate_exact(&boast, usize::MAX, &mut output);
        assert_eq!(
            outcome,
            Err(ZlibError::TooShort {
                expected: usize::MAX,
                got: 5
            })
        );
        assert!(output.capacity() < 64 << 10);
    }

    #[test]
    fn a_whole_stream_is_trusted_no_more() {
        let (mut inflater, mut output) = (WholeInflater::new(), Vec::new());
        let stream = deflated(&b"0123456789".repeat(1000), 9);
        let table = [
            (
                &stream[..],
                10_001,
                ZlibError::TooShort {
                    expected: 10_001,
                    got: 10_000,
                },
            ),
            (&stream[..], 9_999, ZlibError::TooLong { expected: 9_999 }),
            (&stream[..], 0, ZlibError::TooLong { expected: 0 }),
            (&stream[..stream.len() - 1], 10_000, ZlibError::Corrupt),
            (b"", 0, ZlibError::Corrupt),
        ];
        for (stream, size, error) in table {
            assert_eq!(inflater.inflate(stream, size, &mut output), Err(error));
        }
        let short = deflated(b"small", 1);
        assert!(inflater.inflate(&short, usize::MAX, &mut output).is_err());
        assert!(output.capacity() < 64 << 10);
        assert_eq!(inflater.inflate(&deflated(b"", 9), 0, &mut output), Ok(()));
    }

    #[test]
    fn a_flipped_bit_anywhere_is_refused_or_changes_nothing() {
        let content = b"tree of life ".repeat(20);
        let stream = deflated(&content, 6);
        for bit in 0..stream.len() * 8 {
            let mut flipped = stream.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // A few header bits (window size) carry no content.
            if let Ok((got, _)) = inflate_exact(&flipped, content.len()) {
                assert_eq!(got, content);
            }
        }
    }

    #[test]
    fn one_state_serves_many_streams() {
        let (mut inflater, mut deflater, mut output) = (Inflater::new(), Deflater::new(1), Vec::new());
        for content in [&b"first"[..], b"", b"third, longer than the others"] {
            let mut stream = Vec::new();
            deflater.deflate(content, &mut stream).unwrap();
            assert_eq!(
                inflater.inflate_exact(&stream, content.len(), &mut output),
                Ok(stream.len())
            );
            assert_eq!(output, content);
        }
        assert_eq!(
            inflater.inflate_exact(b"not zlib", 4, &mut output),
            Err(ZlibError::Corrupt)
        );
    }
}
