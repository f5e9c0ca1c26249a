//! The rules for annotated tags.

use super::MessageId;
use super::finding::{Report, Stop};
use super::ident::{check_header_end, check_id, check_ident, line_len};
use crate::{ObjectFormat, ObjectKind};

/// `object`, `type`, `tag`, `tagger`, perhaps a signature, and nothing else before the message.
pub(super) fn check(format: ObjectFormat, content: &[u8], report: &mut Report<'_>) -> Result<(), Stop> {
    use MessageId::*;
    check_header_end(content, report)?;
    let Some(object) = content.strip_prefix(b"object ") else {
        return report.report(MissingObject, "invalid format - expected 'object' line");
    };
    let rest = check_id(
        format,
        object,
        report,
        BadObjectSha1,
        "invalid 'object' line format - bad sha1",
    )?;
    let Some(kind) = rest.strip_prefix(b"type ") else {
        return report.report(MissingTypeEntry, "invalid format - expected 'type' line");
    };
    let Some((kind, rest)) = split_line(kind) else {
        return report.report(MissingType, "invalid format - unexpected end after 'type' line");
    };
    if ObjectKind::from_name(kind).is_none() {
        report.report(BadType, "invalid 'type' value")?;
    }
    let Some(name) = rest.strip_prefix(b"tag ") else {
        return report.report(MissingTagEntry, "invalid format - expected 'tag' line");
    };
    let Some((name, rest)) = split_line(name) else {
        return report.report(MissingTag, "invalid format - unexpected end after 'type' line");
    };
    check_name(name, report)?;
    let rest = check_tagger(rest, report)?;
    check_end(check_signature(rest, report)?, report)
}

/// The name must do for a ref below `refs/tags/`.
fn check_name(name: &[u8], report: &mut Report<'_>) -> Result<(), Stop> {
    let full = [b"refs/tags/", name].concat();
    if gix_validate::reference::name(full.as_slice().into()).is_ok() {
        return Ok(());
    }
    let text = format!("invalid 'tag' name: {}", String::from_utf8_lossy(name));
    report.report(MessageId::BadTagName, text)
}

fn check_tagger<'a>(rest: &'a [u8], report: &mut Report<'_>) -> Result<&'a [u8], Stop> {
    match rest.strip_prefix(b"tagger ") {
        Some(tagger) => {
            let (after, outcome) = check_ident(tagger, report);
            // As git: the lines after a bad tagger are looked at all the same.
            let _ = outcome;
            Ok(after)
        }
        None => {
            report.report(MessageId::MissingTaggerEntry, "invalid format - expected 'tagger' line")?;
            Ok(rest)
        }
    }
}

/// Skips a `gpgsig` or `gpgsig-sha256` header with its continuation lines.
fn check_signature<'a>(rest: &'a [u8], report: &mut Report<'_>) -> Result<&'a [u8], Stop> {
    let Some(signature) = rest
        .strip_prefix(b"gpgsig ")
        .or_else(|| rest.strip_prefix(b"gpgsig-sha256 "))
    else {
        return Ok(rest);
    };
    let Some((_, mut rest)) = split_line(signature) else {
        let text = "invalid format - unexpected end after 'gpgsig' or 'gpgsig-sha256' line";
        report.report(MessageId::BadGpgsig, text)?;
        return Ok(&[]);
    };
    while rest.starts_with(b" ") {
        let Some((_, after)) = split_line(rest) else {
            let text = "invalid format - unexpected end in 'gpgsig' or 'gpgsig-sha256' continuation line";
            report.report(MessageId::BadHeaderContinuation, text)?;
            return Ok(&[]);
        };
        rest = after;
    }
    Ok(rest)
}

fn check_end(rest: &[u8], report: &mut Report<'_>) -> Result<(), Stop> {
    match rest.first() {
        None | Some(b'\n') => Ok(()),
        Some(_) => report.report(
            MessageId::ExtraHeaderEntry,
            "invalid format - extra header(s) after 'tagger'",
        ),
    }
}

fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = line_len(bytes);
    Some((bytes.get(..len)?, bytes.get(len + 1..)?))
}
