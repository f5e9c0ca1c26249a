//! Who made a commit, and when: `name <mail> seconds zone`.

use super::date::Civil;

pub(super) struct Person<'a> {
    name: &'a [u8],
    mail: &'a [u8],
    /// Seconds since 1970 as digits, and the zone.
    time: Option<(&'a [u8], i64)>,
}

impl<'a> Person<'a> {
    /// `None` if there is no `<mail>` in it.
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        let open = memchr::memchr(b'<', line)?;
        let close = open + memchr::memchr(b'>', line.get(open..)?)?;
        let last = memchr::memrchr(b'>', line)?;
        let time = parse_time(line.get(last + 1..)?);
        Some(Self {
            name: line.get(..open)?.trim_ascii(),
            mail: line.get(open + 1..close)?,
            time,
        })
    }

    /// Appends one part; nothing where the line does not have it.
    pub(super) fn write(&self, letter: u8, out: &mut Vec<u8>) {
        match (letter, self.time) {
            (b'n' | b'N', _) => out.extend_from_slice(self.name),
            (b'e' | b'E', _) => out.extend_from_slice(self.mail),
            (b'l' | b'L', _) => {
                out.extend_from_slice(self.mail.split(|byte| *byte == b'@').next().unwrap_or_default());
            }
            (b't', Some((digits, _))) => out.extend_from_slice(digits),
            (letter, Some((digits, zone))) => {
                let seconds = std::str::from_utf8(digits)
                    .ok()
                    .and_then(|digits| digits.parse().ok())
                    .unwrap_or(0);
                out.extend_from_slice(Civil::new(seconds, zone).write(letter).as_bytes());
            }
            (_, None) => {}
        }
    }
}

fn parse_time(text: &[u8]) -> Option<(&[u8], i64)> {
    let mut words = text.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let digits = words.next().filter(|word| word.iter().all(u8::is_ascii_digit))?;
    let zone = words
        .next()
        .and_then(|zone| std::str::from_utf8(zone).ok()?.parse().ok());
    // Git's own bound on zones.
    let zone = zone.filter(|zone: &i64| zone.abs() < 10_000).unwrap_or(0);
    Some((digits, zone))
}
