//! `Range`: one part of a file (RFC 9110, section 14). Several parts at once may be ignored, and are.

use cuesta_engine::dumb::FileStream;
use futures::{StreamExt, TryStreamExt};
use http::HeaderMap;
use http::header::{IF_RANGE, RANGE};
use std::ops::Range;

/// What of a file is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// All of it.
    Whole,
    /// These bytes; at least one.
    Part(Range<u64>),
    /// Bytes that it does not have.
    Beyond,
}

/// What a request asks of a file of `len` bytes. With `If-Range` all of it: no validator is ever sent that could match.
pub fn asked(headers: &HeaderMap, len: u64) -> Asked {
    let mut ranges = headers.get_all(RANGE).iter();
    let text = match (ranges.next(), ranges.next()) {
        (Some(one), None) if !headers.contains_key(IF_RANGE) => one.to_str().ok(),
        _ => None,
    };
    text.and_then(|text| parse(text, len)).unwrap_or(Asked::Whole)
}

/// `None` if it cannot be read, and so does not count.
fn parse(text: &str, len: u64) -> Option<Asked> {
    let (first, last) = text.strip_prefix("bytes=")?.trim().split_once('-')?;
    let number = |digits: &str| match digits.bytes().all(|digit| digit.is_ascii_digit()) {
        true => digits.parse::<u64>().ok(),
        false => None,
    };
    let range = match (first, last) {
        ("", count) => len.saturating_sub(number(count)?)..len,
        (first, "") => number(first)?..len,
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            first..last.saturating_add(1).min(len)
        }
    };
    Some(if range.start < range.end {
        Asked::Part(range)
    } else {
        Asked::Beyond
    })
}

/// The part of a file that is made from its start.
pub fn cut(file: FileStream, range: Range<u64>) -> FileStream {
    let mut at = 0u64;
    let parts = file.map_ok(move |piece| {
        let here = at..at.saturating_add(piece.len() as u64);
        at = here.end;
        let within =
            |bound: u64| usize::try_from(bound.clamp(here.start, here.end) - here.start).unwrap_or(piece.len());
        piece.slice(within(range.start)..within(range.end).max(within(range.start)))
    });
    parts.boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn ranges() {
        let table = [
            ("bytes=0-", Asked::Part(0..10)),
            ("bytes=3-", Asked::Part(3..10)),
            ("bytes=3-5", Asked::Part(3..6)),
            ("bytes=3-3", Asked::Part(3..4)),
            ("bytes=3-100", Asked::Part(3..10)),
            ("bytes=3-18446744073709551615", Asked::Part(3..10)),
            ("bytes=-4", Asked::Part(6..10)),
            ("bytes=-40", Asked::Part(0..10)),
            ("bytes=-0", Asked::Beyond),
            ("bytes=10-", Asked::Beyond),
            ("bytes=99-100", Asked::Beyond),
            ("bytes=5-3", Asked::Whole),
            ("bytes=0-1,3-4", Asked::Whole),
            ("bytes=a-b", Asked::Whole),
            ("bytes=+1-2", Asked::Whole),
            ("bytes=99999999999999999999-", Asked::Whole),
            ("lines=1-2", Asked::Whole),
            ("bytes=-", Asked::Whole),
        ];
        for (text, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, text.parse().unwrap());
            assert_eq!(asked(&headers, 10), expected, "{text}");
            headers.insert(IF_RANGE, "\"x\"".parse().unwrap());
            assert_eq!(asked(&headers, 10), Asked::Whole, "{text}");
        }
        assert_eq!(asked(&HeaderMap::new(), 10), Asked::Whole);
    }

    #[test]
    fn every_part_of_a_stream() {
        let file = Bytes::from_static(b"0123456789");
        for start in 0..10 {
            for end in start + 1..=10 {
                let pieces = [0..3, 3..3, 3..9, 9..10].map(|range| Ok(file.slice(range)));
                let parts = cut(futures::stream::iter(pieces).boxed(), start..end);
                let parts: Vec<Bytes> = futures::executor::block_on(parts.try_collect()).unwrap();
                assert_eq!(parts.concat(), file[start as usize..end as usize]);
            }
        }
    }
}
