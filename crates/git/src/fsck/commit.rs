//! The rules for commits.

use super::MessageId;
use super::finding::{Report, Stop};
use super::ident::{check_header_end, check_id, check_ident};
use crate::ObjectFormat;

/// `tree`, any `parent`s, one `author`, one `committer`, and no NUL anywhere.
pub(super) fn check(format: ObjectFormat, content: &[u8], report: &mut Report<'_>) -> Result<(), Stop> {
    use MessageId::*;
    check_header_end(content, report)?;
    let Some(rest) = content.strip_prefix(b"tree ") else {
        return report.report(MissingTree, "invalid format - expected 'tree' line");
    };
    let mut rest = check_id(
        format,
        rest,
        report,
        BadTreeSha1,
        "invalid 'tree' line format - bad sha1",
    )?;
    while let Some(parent) = rest.strip_prefix(b"parent ") {
        rest = check_id(
            format,
            parent,
            report,
            BadParentSha1,
            "invalid 'parent' line format - bad sha1",
        )?;
    }
    let mut authors = 0usize;
    while let Some(author) = rest.strip_prefix(b"author ") {
        authors += 1;
        let (after, outcome) = check_ident(author, report);
        outcome?;
        rest = after;
    }
    match authors {
        0 => report.report(MissingAuthor, "invalid format - expected 'author' line")?,
        1 => {}
        _ => report.report(MultipleAuthors, "invalid format - multiple 'author' lines")?,
    }
    let Some(committer) = rest.strip_prefix(b"committer ") else {
        return report.report(MissingCommitter, "invalid format - expected 'committer' line");
    };
    check_ident(committer, report).1?;
    if memchr::memchr(0, content).is_some() {
        report.report(NulInCommit, "NUL byte in the commit object body")?;
    }
    Ok(())
}
