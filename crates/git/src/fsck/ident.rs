//! What commits and tags share: the end of their headers, ids in hex, and identity lines.

use super::MessageId;
use super::finding::{Report, Stop};
use crate::{ObjectFormat, ObjectId};

/// Headers contain no NUL, and end with an empty line or at least with a line.
pub(super) fn check_header_end(content: &[u8], report: &mut Report<'_>) -> Result<(), Stop> {
    let end = memchr::memchr_iter(b'\n', content).find(|line_end| content.get(line_end + 1) == Some(&b'\n'));
    let header = content.get(..end.unwrap_or(content.len())).unwrap_or(content);
    if let Some(nul) = memchr::memchr(0, header) {
        return report.report(
            MessageId::NulInHeader,
            format!("unterminated header: NUL at offset {nul}"),
        );
    }
    if end.is_none() && content.last() != Some(&b'\n') {
        return report.report(MessageId::UnterminatedHeader, "unterminated header");
    }
    Ok(())
}

/// Checks that an id and a LF stand at the start of `bytes`; answers what comes after.
pub(super) fn check_id<'a>(
    format: ObjectFormat,
    bytes: &'a [u8],
    report: &mut Report<'_>,
    id: MessageId,
    text: &'static str,
) -> Result<&'a [u8], Stop> {
    let hex_end = format.hex_width();
    let hex = bytes.get(..hex_end).unwrap_or_default();
    let is_hex = ObjectId::from_hex(format, hex).is_ok();
    if is_hex && bytes.get(hex_end) == Some(&b'\n') {
        return Ok(bytes.get(hex_end + 1..).unwrap_or_default());
    }
    report.report(id, text)?;
    // Only where the error was demoted: git takes the byte after the id for the LF; without an id there is a line.
    let end = if is_hex { hex_end } else { line_len(bytes) };
    Ok(bytes.get(end + 1..).unwrap_or_default())
}

/// Bytes before the first LF.
pub(super) fn line_len(bytes: &[u8]) -> usize {
    memchr::memchr(b'\n', bytes).unwrap_or(bytes.len())
}

/// Checks the identity line at the start of `bytes` (after its label): `<name> SP <LT> <email> <GT> SP <date> SP
/// <zone>`. Answers the lines after it, also where it is wrong.
pub(super) fn check_ident<'a>(bytes: &'a [u8], report: &mut Report<'_>) -> (&'a [u8], Result<(), Stop>) {
    let len = line_len(bytes);
    let line = bytes.get(..len).unwrap_or(bytes);
    let rest = bytes.get(len + 1..).unwrap_or_default();
    let outcome = check_name_and_email(line, report).and_then(|after| match after {
        Some(dated) => check_date(dated, report),
        None => Ok(()),
    });
    (rest, outcome)
}

/// The bytes after the email's `>`; `None` after a finding that was only a warning.
fn check_name_and_email<'a>(line: &'a [u8], report: &mut Report<'_>) -> Result<Option<&'a [u8]>, Stop> {
    use MessageId::*;
    let mut found = |id, text: &'static str| report.report(id, text).map(|()| None);
    if line.first() == Some(&b'<') {
        return found(
            MissingNameBeforeEmail,
            "invalid author/committer line - missing space before email",
        );
    }
    let Some(open) = memchr::memchr2(b'<', b'>', line) else {
        return found(MissingEmail, "invalid author/committer line - missing email");
    };
    if line.get(open) == Some(&b'>') {
        return found(BadName, "invalid author/committer line - bad name");
    }
    if line.get(..open).and_then(|name| name.last()) != Some(&b' ') {
        return found(
            MissingSpaceBeforeEmail,
            "invalid author/committer line - missing space before email",
        );
    }
    let email = line.get(open + 1..).unwrap_or_default();
    match memchr::memchr2(b'<', b'>', email) {
        Some(close) if email.get(close) == Some(&b'>') => Ok(email.get(close + 1..)),
        _ => found(BadEmail, "invalid author/committer line - bad email"),
    }
}

/// Digits of a date that git reads; far more than any date has.
const DATE_DIGITS_MAX: usize = 23;

/// ` <seconds> <zone>`, all there is after the email.
fn check_date(dated: &[u8], report: &mut Report<'_>) -> Result<(), Stop> {
    use MessageId::*;
    let Some(date) = dated.strip_prefix(b" ") else {
        return report.report(
            MissingSpaceBeforeDate,
            "invalid author/committer line - missing space before date",
        );
    };
    let blanks = date.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let date = date.get(blanks..).unwrap_or_default();
    if !date.first().is_some_and(u8::is_ascii_digit) {
        return report.report(BadDate, "invalid author/committer line - bad date");
    }
    if date.starts_with(b"0") && date.get(1) != Some(&b' ') {
        return report.report(ZeroPaddedDate, "invalid author/committer line - zero-padded date");
    }
    let mut digits = date.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let seconds = date.iter().take(digits).try_fold(0i64, |sum, digit| {
        sum.checked_mul(10)?.checked_add(i64::from(digit - b'0'))
    });
    if seconds.is_none() {
        report.report(
            BadDateOverflow,
            "invalid author/committer line - date causes integer overflow",
        )?;
        // Only where that was demoted: git reads no number of so many digits, and finds no space after none.
        if digits > DATE_DIGITS_MAX {
            digits = 0;
        }
    }
    let Some(zone) = date.get(digits..).and_then(|rest| rest.strip_prefix(b" ")) else {
        return report.report(BadDate, "invalid author/committer line - bad date");
    };
    match zone {
        [b'+' | b'-', digits @ ..] if digits.len() == 4 && digits.iter().all(u8::is_ascii_digit) => Ok(()),
        _ => report.report(BadTimezone, "invalid author/committer line - bad time zone"),
    }
}
