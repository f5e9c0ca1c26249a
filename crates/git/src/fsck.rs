//! Git's fsck rules for objects: which are refused, with which message.
//!
//! Responsible for the verdict on one object's bytes, and for remembering which blobs are `.gitmodules` or
//! `.gitattributes`; not for whether the objects it names exist. Rules, messages and severities are those of git's
//! `fsck.c`. One difference is deliberate: where git forgets an error it has already printed (a tag whose tagger is
//! wrong and that passes the checks after it), this refuses.

mod commit;
mod config;
mod dotname;
mod finding;
mod ident;
mod message;
mod special;
mod submodule;
mod tag;
mod tree;
mod url;

pub use config::{Config, ConfigError};
pub use finding::{Finding, Refusal, WARNINGS_MAX};
pub use message::{MessageId, Severity};

use crate::{ObjectFormat, ObjectId, ObjectKind};
use finding::Report;
use special::SpecialBlobs;
use std::sync::Arc;

/// Checks objects one after another; keeps what must be known across them. One per thread is fine: [`absorb`] joins.
///
/// [`absorb`]: Self::absorb
pub struct Checker {
    format: ObjectFormat,
    config: Arc<Config>,
    warnings: Vec<Finding>,
    special: SpecialBlobs,
    tree_names: tree::NameStack,
}

impl Checker {
    /// A checker of objects of one format.
    pub fn new(format: ObjectFormat, config: Arc<Config>) -> Self {
        let (warnings, special, tree_names) = Default::default();
        Self {
            format,
            config,
            warnings,
            special,
            tree_names,
        }
    }

    /// Checks an object. A blob has no rules of its own: those that trees name `.gitmodules` and the like are checked
    /// by [`check_special_blob`](Self::check_special_blob).
    pub fn check(&mut self, kind: ObjectKind, oid: &ObjectId, content: &[u8]) -> Result<(), Refusal> {
        let mut report = Report::new(&self.config, oid, &mut self.warnings);
        // The outcome of each rule is in the report; what comes back only says where checking stopped.
        let _ = match kind {
            ObjectKind::Blob => Ok(()),
            ObjectKind::Commit => commit::check(self.format, content, &mut report),
            ObjectKind::Tag => tag::check(self.format, content, &mut report),
            ObjectKind::Tree => {
                tree::check(
                    self.format,
                    content,
                    &mut report,
                    &mut self.special,
                    &mut self.tree_names,
                );
                Ok(())
            }
        };
        report.finish()
    }

    /// The blobs that trees name `.gitmodules` or `.gitattributes` and that have not been checked yet, in order. The
    /// caller reads each and gives it to [`check_special_blob`](Self::check_special_blob).
    pub fn special_blobs(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.special.pending()
    }

    /// Checks the object that stands where `.gitmodules` or `.gitattributes` should; `content` is `None` if it is too
    /// large to be read into memory. Objects that no tree named so pass.
    pub fn check_special_blob(
        &mut self,
        oid: &ObjectId,
        kind: ObjectKind,
        content: Option<&[u8]>,
    ) -> Result<(), Refusal> {
        let mut report = Report::new(&self.config, oid, &mut self.warnings);
        self.special.check(oid, kind, content, &mut report);
        report.finish()
    }

    /// Refuses the special blobs that were never given: they are missing.
    pub fn finish(&mut self) -> Result<(), Refusal> {
        for (oid, id, text) in self.special.missing() {
            let mut report = Report::new(&self.config, &oid, &mut self.warnings);
            let _ = report.report(id, text);
            report.finish()?;
        }
        Ok(())
    }

    /// Takes over what another checker of the same push has learnt.
    pub fn absorb(&mut self, other: Self) {
        self.special.absorb(other.special);
        let room = WARNINGS_MAX.saturating_sub(self.warnings.len());
        self.warnings.extend(other.warnings.into_iter().take(room));
    }

    /// The warnings so far, at most [`WARNINGS_MAX`] since the last call.
    pub fn take_warnings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.warnings)
    }
}

#[cfg(test)]
mod tests;
