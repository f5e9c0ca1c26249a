//! Inflating any bytes: what is consumed and produced keeps to what was given and asked for.
#![no_main]

use cuesta_git::zlib::{Deflater, inflate_exact};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((size, stream)) = data.split_first_chunk::<2>() else {
        return;
    };
    let size = usize::from(u16::from_le_bytes(*size));
    if let Ok((content, consumed)) = inflate_exact(stream, size) {
        assert_eq!(content.len(), size);
        assert!(consumed <= stream.len());
    }
    if data[0] % 16 > 9 {
        return;
    }
    let mut deflated = Vec::new();
    Deflater::new(u32::from(data[0] % 16))
        .deflate(stream, &mut deflated)
        .unwrap();
    assert_eq!(
        inflate_exact(&deflated, stream.len()),
        Ok((stream.to_vec(), deflated.len()))
    );
});
