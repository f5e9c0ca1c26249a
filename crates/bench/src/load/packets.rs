//! pkt-lines of an answer that is there as a whole.

use anyhow::{Context, Result};

/// The first packet (`None` for a flush) and what follows it; without a copy, for there may be 100,000.
pub(super) fn next_packet(bytes: &[u8]) -> Result<(Option<&[u8]>, &[u8])> {
    let digits = bytes.get(..4).context("a pkt-line is cut short")?;
    let length = usize::from_str_radix(std::str::from_utf8(digits)?, 16)?;
    if length == 0 {
        return Ok((None, bytes.get(4..).unwrap_or_default()));
    }
    let packet = bytes.get(4..length).context("a pkt-line is cut short")?;
    Ok((Some(packet), bytes.get(length..).unwrap_or_default()))
}
