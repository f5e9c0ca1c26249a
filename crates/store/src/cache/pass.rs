//! Long passes over payloads, such as clones: they keep nothing from others, and read files of a local directory as memory.

use super::{Access, BlockCache};
use crate::error::Result;
use bytes::Bytes;
use std::ops::Range;

impl BlockCache {
    /// As [`read`](Self::read), for one pass over much. Of a local directory it is parts of the file, mapped for as long as the
    /// bytes are held: no copy where the operating system has them in memory. What lies in one block is shared with others
    /// who pass there.
    pub async fn pass(&self, key: &str, object_size: u64, range: Range<u64>) -> Result<Bytes> {
        let blocks = self.blocks_of(&range);
        if blocks.end.saturating_sub(blocks.start) > 1
            && range.end <= object_size
            && let Some(mapped) = self.bucket().map(key, range.clone()).await?
        {
            return Ok(mapped);
        }
        Ok(self.concatenate(self.read_pieces(key, object_size, range, Access::Scan).await?))
    }
}
