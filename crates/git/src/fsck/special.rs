//! Blobs with rules of their own, because git reads them: `.gitmodules` and `.gitattributes`.

use super::MessageId;
use super::finding::Report;
use super::submodule;
use crate::{ObjectId, ObjectKind};
use std::collections::BTreeSet;

/// A longer `.gitattributes` is ignored by git, in bytes.
const GITATTRIBUTES_SIZE_MAX: usize = 100 << 20;

/// A line of `.gitattributes` must be shorter, in bytes.
const GITATTRIBUTES_LINE_LEN_MAX: usize = 2048;

/// What trees have said about special blobs, and which of them have been checked.
#[derive(Debug, Default)]
pub(super) struct SpecialBlobs {
    pub(super) gitmodules: Named,
    pub(super) gitattributes: Named,
}

/// Blobs that trees give one of the special names.
#[derive(Debug, Default)]
pub(super) struct Named {
    found: BTreeSet<ObjectId>,
    done: BTreeSet<ObjectId>,
}

impl Named {
    pub(super) fn found(&mut self, oid: ObjectId) {
        self.found.insert(oid);
    }

    fn pending(&self) -> impl Iterator<Item = &ObjectId> + '_ {
        self.found.difference(&self.done)
    }

    /// Whether the blob has this name; it then counts as checked.
    fn begin(&mut self, oid: &ObjectId) -> bool {
        self.found.contains(oid) && {
            self.done.insert(*oid);
            true
        }
    }

    fn absorb(&mut self, other: Self) {
        self.found.extend(other.found);
        self.done.extend(other.done);
    }
}

impl SpecialBlobs {
    pub(super) fn pending(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let attributes = self
            .gitattributes
            .pending()
            .filter(|oid| !self.gitmodules.found.contains(oid));
        self.gitmodules.pending().chain(attributes).copied()
    }

    pub(super) fn missing(&self) -> Vec<(ObjectId, MessageId, &'static str)> {
        let modules = self.gitmodules.pending();
        let modules = modules.map(|oid| (*oid, MessageId::GitmodulesMissing, "unable to read .gitmodules blob"));
        let attributes = self.gitattributes.pending();
        let attributes = attributes.map(|oid| {
            (
                *oid,
                MessageId::GitattributesMissing,
                "unable to read .gitattributes blob",
            )
        });
        modules.chain(attributes).collect()
    }

    pub(super) fn absorb(&mut self, other: Self) {
        self.gitmodules.absorb(other.gitmodules);
        self.gitattributes.absorb(other.gitattributes);
    }

    pub(super) fn check(&mut self, oid: &ObjectId, kind: ObjectKind, content: Option<&[u8]>, report: &mut Report<'_>) {
        use MessageId::*;
        let is_blob = kind == ObjectKind::Blob;
        // The outcome is in the report; both kinds of check run whatever the first finds.
        if self.gitmodules.begin(oid) {
            let _ = match content {
                _ if !is_blob => report.report(GitmodulesBlob, "non-blob found at .gitmodules"),
                None => report.report(GitmodulesLarge, ".gitmodules too large to parse"),
                Some(content) => {
                    submodule::check(content, report);
                    Ok(())
                }
            };
        }
        if self.gitattributes.begin(oid) {
            let _ = match content {
                _ if !is_blob => report.report(GitattributesBlob, "non-blob found at .gitattributes"),
                Some(content) if content.len() <= GITATTRIBUTES_SIZE_MAX => {
                    check_gitattributes(content, report);
                    Ok(())
                }
                _ => report.report(GitattributesLarge, ".gitattributes too large to parse"),
            };
        }
    }
}

/// No line, up to the first NUL, is as long as git's limit.
fn check_gitattributes(content: &[u8], report: &mut Report<'_>) {
    let text = content.split(|byte| *byte == 0).next().unwrap_or_default();
    if text
        .split(|byte| *byte == b'\n')
        .any(|line| line.len() >= GITATTRIBUTES_LINE_LEN_MAX)
    {
        let _ = report.report(
            MessageId::GitattributesLineLength,
            ".gitattributes has too long lines to parse",
        );
    }
}
