//! The date at the end of an identity line.

/// The date in seconds since 1970 at the end of `line` (without its LF), read as git's commit walk does: after the
/// last `>`, 0 if there is none. What does not fit is the far future, as it is to git.
pub(super) fn date_of(line: &[u8]) -> i64 {
    let Some(email_end) = memchr::memrchr(b'>', line) else {
        return 0;
    };
    let date = line.get(email_end + 1..).unwrap_or_default();
    let start = date
        .iter()
        .position(|byte| !matches!(byte, b' ' | b'\t' | b'\r'))
        .unwrap_or(date.len());
    let date = date.get(start..).unwrap_or_default();
    match date.first() {
        // git reads with strtoumax, to which a negative number is a huge one
        Some(b'-') => match digits(date.get(1..).unwrap_or_default()) {
            0 => 0,
            _ => i64::MAX,
        },
        _ => digits(date),
    }
}

/// The number at the start of `text`, 0 if there is none, saturated.
fn digits(text: &[u8]) -> i64 {
    text.iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0i64, |sum, digit| {
            sum.saturating_mul(10).saturating_add(i64::from(digit - b'0'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_good_and_odd_lines() {
        let table: [(&[u8], i64); 10] = [
            (b"committer A <a@b> 1234567890 +0100", 1_234_567_890),
            (b"committer A <a@b>  \t12 +0000", 12),
            (b"committer A <a@b>12", 12),
            (b"committer A <a@b> x > 7 +0000", 7),
            (b"committer A a@b 5 +0000", 0),
            (b"committer A <a@b> later", 0),
            (b"committer A <a@b>", 0),
            (b"committer A <a@b> -1 +0000", i64::MAX),
            (b"committer A <a@b> 18446744073709551615 +0000", i64::MAX),
            (b"committer A <a@b> 9223372036854775806 +0000", i64::MAX - 1),
        ];
        for (line, date) in table {
            assert_eq!(date_of(line), date, "{}", line.escape_ascii());
        }
    }
}
