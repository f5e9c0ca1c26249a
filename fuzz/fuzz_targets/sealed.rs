//! Input for targets of formats that end with a checksum.

use bytes::Bytes;

/// The bytes with a checksum that holds, so that the fuzzer gets past it.
pub fn sealed(data: &[u8]) -> Bytes {
    let mut bytes = data.to_vec();
    bytes.extend_from_slice(&crc32c::crc32c(data).to_le_bytes());
    Bytes::from(bytes)
}
