//! Sweeps: which ranges of a layer's pack are read as one, and the reading.

use crate::{EngineError, Layer};
use bytes::Bytes;
use cuesta_format::LayerId;
use futures::{StreamExt, TryStreamExt};
use std::ops::Range;
use std::sync::Arc;

/// Ranges are joined up to this.
const READ_BYTES_MAX: u64 = 4 << 20;
const READS_IN_FLIGHT_MAX: usize = 16;
/// From so many sweeps on, those of a layer are read together where the bucket can do that.
const SCATTERED_SWEEPS_MIN: usize = 32;
/// Where less than this is wanted of a layer, the bytes between do not matter. (A large push asks for 256 trees at a time.)
const WANTED_BYTES_MIN: u64 = 64 << 10;

/// How far apart two ranges may lie that are better read as one, in bytes: what a read costs, in bytes that could be read
/// meanwhile. Between the two it depends on what would be read for nothing; see [`choose_gap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GapBounds {
    /// Always joined.
    pub(crate) bytes_min: u64,
    /// Never joined beyond.
    pub(crate) bytes_max: u64,
}

/// One range that somebody wants of a layer, and the number they know it by.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) layer: Arc<Layer>,
    pub(crate) range: Range<u64>,
    pub(crate) number: usize,
}

/// The gap over which ranges (of one layer, ascending, apart) are joined: the largest of a few with which no more bytes are read
/// for nothing than are wanted. Many small ones that lie evenly among as small ones that nobody wants would else bring
/// several times their bytes.
fn choose_gap(ranges: impl Iterator<Item = Range<u64>> + Clone, bounds: GapBounds) -> u64 {
    let wanted: u64 = ranges.clone().map(|range| range.end - range.start).sum();
    let mut gap = bounds.bytes_max;
    if wanted < WANTED_BYTES_MIN {
        return gap;
    }
    while gap > bounds.bytes_min {
        let next = ranges.clone().skip(1);
        let between = ranges
            .clone()
            .zip(next)
            .map(|(range, next)| next.start.saturating_sub(range.end));
        if between.filter(|between| *between <= gap).sum::<u64>() <= wanted {
            break;
        }
        gap = (gap / 2).max(bounds.bytes_min);
    }
    gap
}

/// The bytes of each range, with its number, in no order: neighbours in one read, several reads in flight. `wanted` is
/// ascending, layer by layer.
pub(crate) async fn read(wanted: Vec<Wanted>) -> Result<Vec<(usize, Bytes)>, EngineError> {
    let sweeps = sweeps(wanted);
    let together = sweeps.len() >= SCATTERED_SWEEPS_MIN;
    let reads = futures::stream::iter(groups(sweeps, together))
        .map(read_group)
        .buffer_unordered(READS_IN_FLIGHT_MAX);
    let pieces: Vec<_> = reads.try_collect().await?;
    Ok(pieces.into_iter().flatten().collect())
}

fn sweeps(wanted: Vec<Wanted>) -> Vec<Sweep> {
    let mut sweeps: Vec<Sweep> = Vec::new();
    for of_layer in wanted.chunk_by(|one, next| one.layer.id() == next.layer.id()) {
        let Some(first) = of_layer.first() else { continue };
        let ranges = of_layer.iter().map(|wanted| wanted.range.clone());
        let gap = choose_gap(ranges, first.layer.gap_bounds());
        for Wanted { layer, range, number } in of_layer {
            match sweeps.last_mut() {
                Some(sweep) if sweep.takes(layer.id(), range, gap) => {
                    sweep.range.end = range.end;
                    sweep.pieces.push((*number, range.clone()));
                }
                _ => sweeps.push(Sweep {
                    layer: Arc::clone(layer),
                    range: range.clone(),
                    pieces: vec![(*number, range.clone())],
                }),
            }
        }
    }
    sweeps
}

/// The sweeps one by one, or `together`: those of one layer in groups of up to `READ_BYTES_MAX`, where it can read that way.
fn groups(sweeps: Vec<Sweep>, together: bool) -> Vec<Vec<Sweep>> {
    let mut groups: Vec<Vec<Sweep>> = Vec::new();
    let mut bytes = 0;
    for sweep in sweeps {
        let sweep_bytes = sweep.range.end - sweep.range.start;
        match groups.last_mut() {
            Some(group)
                if together
                    && sweep.layer.reads_scattered()
                    && bytes + sweep_bytes <= READ_BYTES_MAX
                    && group.first().is_some_and(|first| first.layer.id() == sweep.layer.id()) =>
            {
                bytes += sweep_bytes;
                group.push(sweep);
            }
            _ => {
                bytes = sweep_bytes;
                groups.push(vec![sweep]);
            }
        }
    }
    groups
}

async fn read_group(group: Vec<Sweep>) -> Result<Vec<(usize, Bytes)>, EngineError> {
    let mut pieces = Vec::new();
    if let [first, _, ..] = &group[..] {
        let ranges: Vec<Range<u64>> = group.iter().map(|sweep| sweep.range.clone()).collect();
        let read = first.layer.read_scattered(&ranges).await?;
        for (sweep, bytes) in group.into_iter().zip(read) {
            pieces.append(&mut sweep.divide(&bytes)?);
        }
        return Ok(pieces);
    }
    for sweep in group {
        pieces.append(&mut sweep.read().await?);
    }
    Ok(pieces)
}

/// One read that serves several ranges of a layer.
struct Sweep {
    layer: Arc<Layer>,
    range: Range<u64>,
    pieces: Vec<(usize, Range<u64>)>,
}

impl Sweep {
    fn takes(&self, layer: LayerId, range: &Range<u64>, gap: u64) -> bool {
        self.layer.id() == layer
            && range.start >= self.range.end
            && range.start - self.range.end <= gap
            && range.end - self.range.start <= READ_BYTES_MAX
    }

    async fn read(self) -> Result<Vec<(usize, Bytes)>, EngineError> {
        let bytes = self.layer.read(self.range.clone()).await?;
        self.divide(&bytes)
    }

    /// The bytes of each piece.
    fn divide(self, bytes: &Bytes) -> Result<Vec<(usize, Bytes)>, EngineError> {
        let part = |(number, range): (usize, Range<u64>)| {
            let start = usize::try_from(range.start - self.range.start).ok()?;
            let end = usize::try_from(range.end - self.range.start).ok()?;
            (end <= bytes.len()).then(|| (number, bytes.slice(start..end)))
        };
        let parts: Option<Vec<_>> = self.pieces.into_iter().map(part).collect();
        parts.ok_or_else(|| self.layer.corrupt("a read came back short"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: GapBounds = GapBounds {
        bytes_min: 1 << 10,
        bytes_max: 4 << 10,
    };

    /// `count` ranges of `len` bytes, with `gap` bytes between them.
    fn ranges(count: u64, len: u64, gap: u64) -> impl Iterator<Item = Range<u64>> + Clone {
        (0..count).map(move |number| number * (len + gap)..number * (len + gap) + len)
    }

    #[test]
    fn gaps_bring_no_more_bytes_than_are_wanted() {
        // Count, length and distance of ranges; the gap that is chosen.
        let table = [
            // Less is wanted than matters, below the bound and at it.
            (63, 1024, 1500, 4 << 10),
            (64, 1024, 1500, 1 << 10),
            // As much between as is wanted, and a little more.
            (4096, 1024, 1024, 4 << 10),
            (4096, 1024, 1026, 1 << 10),
            (4096, 2000, 2000, 4 << 10),
            (4096, 2000, 2040, 1 << 10),
            // What is not joined costs nothing.
            (4096, 1024, 4097, 4 << 10),
            (4096, 1024, 4096, 2 << 10),
            (4096, 1024, 2048, 1 << 10),
            // Always joined, however little of it is wanted.
            (1 << 16, 64, 1000, 1 << 10),
            // One range, and none.
            (1, 8 << 20, 0, 4 << 10),
            (0, 0, 0, 4 << 10),
        ];
        for (count, len, gap, expected) in table {
            let chosen = choose_gap(ranges(count, len, gap), LOCAL);
            assert_eq!(chosen, expected, "{count} ranges of {len} bytes, {gap} between");
        }
    }

    #[test]
    fn where_a_read_is_a_request_the_gap_stays() {
        let bounds = GapBounds {
            bytes_min: 16 << 10,
            bytes_max: 16 << 10,
        };
        assert_eq!(choose_gap(ranges(4096, 1024, 16 << 10), bounds), 16 << 10);
    }
}
