//! What checks find, and how a severity decides what becomes of it.

use super::{Config, MessageId, Severity};
use crate::{ErrorKind, ObjectId};
use std::borrow::Cow;
use std::fmt;

/// Warnings kept by a checker; a push may cause any number of them.
pub const WARNINGS_MAX: usize = 100;

/// One thing that is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The object.
    pub oid: ObjectId,
    /// The rule it breaks.
    pub id: MessageId,
    /// The rule in words, as git has them.
    pub text: Cow<'static, str>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "object {}: {}: {}", self.oid, self.id, self.text)
    }
}

/// An object is refused; displays its first error as `object <oid>: <id>: <text>`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{first}")]
pub struct Refusal {
    /// The first error found.
    pub first: Finding,
    /// What was found after it.
    pub rest: Vec<Finding>,
}

impl Refusal {
    /// What sort of failure this is.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Corrupt
    }
}

/// The rest of the object is not to be checked.
pub(super) struct Stop;

/// Collects the findings in one object.
pub(super) struct Report<'a> {
    pub(super) config: &'a Config,
    oid: &'a ObjectId,
    errors: Vec<Finding>,
    warnings: &'a mut Vec<Finding>,
}

impl<'a> Report<'a> {
    pub(super) fn new(config: &'a Config, oid: &'a ObjectId, warnings: &'a mut Vec<Finding>) -> Self {
        Self {
            config,
            oid,
            errors: Vec::new(),
            warnings,
        }
    }

    /// Notes a finding; `Err` if it is an error. Rules that go on regardless ignore that.
    #[cold]
    pub(super) fn report(&mut self, id: MessageId, text: impl Into<Cow<'static, str>>) -> Result<(), Stop> {
        let severity = self.config.severity(id);
        if severity == Severity::Ignore || self.config.skips(self.oid) {
            return Ok(());
        }
        let finding = Finding {
            oid: *self.oid,
            id,
            text: text.into(),
        };
        if severity >= Severity::Error {
            self.errors.push(finding);
            return Err(Stop);
        }
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(finding);
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(), Refusal> {
        let mut errors = self.errors.into_iter();
        match errors.next() {
            None => Ok(()),
            Some(first) => Err(Refusal {
                first,
                rest: errors.collect(),
            }),
        }
    }
}
