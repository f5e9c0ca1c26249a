//! Git's message ids, their severities, and how settings change them (fsck-msgids).

use std::fmt;

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Not reported.
    Ignore,
    /// Reported as a warning, also by a strict check.
    Info,
    /// A warning; an error to a strict check.
    Warn,
    /// The object is refused.
    Error,
    /// The object is refused, and no setting changes that.
    Fatal,
}

impl Severity {
    /// The severity a setting names: `error`, `warn` or `ignore`.
    pub fn from_setting(name: &str) -> Option<Self> {
        match name {
            "error" => Some(Self::Error),
            "warn" => Some(Self::Warn),
            "ignore" => Some(Self::Ignore),
            _ => None,
        }
    }
}

/// Declares [`MessageId`] and its table from lines of `Variant, "nameAsGitSpellsIt", Severity`.
macro_rules! message_ids {
    ($($variant:ident, $name:literal, $severity:ident;)*) => {
        /// What is wrong with an object or a ref; named as in git's `fsck-msgids`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum MessageId {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl MessageId {
            /// Every id, in the order of git's table.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name, in git's spelling.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The severity where no setting says otherwise.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }
        }
    };
}

message_ids! {
    NulInHeader, "nulInHeader", Fatal;
    UnterminatedHeader, "unterminatedHeader", Fatal;
    BadHeaderContinuation, "badHeaderContinuation", Error;
    BadDate, "badDate", Error;
    BadDateOverflow, "badDateOverflow", Error;
    BadEmail, "badEmail", Error;
    BadGpgsig, "badGpgsig", Error;
    BadHeadTarget, "badHeadTarget", Error;
    BadName, "badName", Error;
    BadObjectSha1, "badObjectSha1", Error;
    BadPackedRefEntry, "badPackedRefEntry", Error;
    BadPackedRefHeader, "badPackedRefHeader", Error;
    BadParentSha1, "badParentSha1", Error;
    BadReferentName, "badReferentName", Error;
    BadRefContent, "badRefContent", Error;
    BadRefFiletype, "badRefFiletype", Error;
    BadRefName, "badRefName", Error;
    BadRefOid, "badRefOid", Error;
    BadTimezone, "badTimezone", Error;
    BadTree, "badTree", Error;
    BadTreeSha1, "badTreeSha1", Error;
    BadType, "badType", Error;
    DuplicateEntries, "duplicateEntries", Error;
    GitattributesBlob, "gitattributesBlob", Error;
    GitattributesLarge, "gitattributesLarge", Error;
    GitattributesLineLength, "gitattributesLineLength", Error;
    GitattributesMissing, "gitattributesMissing", Error;
    GitmodulesBlob, "gitmodulesBlob", Error;
    GitmodulesLarge, "gitmodulesLarge", Error;
    GitmodulesMissing, "gitmodulesMissing", Error;
    GitmodulesName, "gitmodulesName", Error;
    GitmodulesPath, "gitmodulesPath", Error;
    GitmodulesSymlink, "gitmodulesSymlink", Error;
    GitmodulesUpdate, "gitmodulesUpdate", Error;
    GitmodulesUrl, "gitmodulesUrl", Error;
    MissingAuthor, "missingAuthor", Error;
    MissingCommitter, "missingCommitter", Error;
    MissingEmail, "missingEmail", Error;
    MissingNameBeforeEmail, "missingNameBeforeEmail", Error;
    MissingObject, "missingObject", Error;
    MissingSpaceBeforeDate, "missingSpaceBeforeDate", Error;
    MissingSpaceBeforeEmail, "missingSpaceBeforeEmail", Error;
    MissingTag, "missingTag", Error;
    MissingTagEntry, "missingTagEntry", Error;
    MissingTree, "missingTree", Error;
    MissingType, "missingType", Error;
    MissingTypeEntry, "missingTypeEntry", Error;
    MultipleAuthors, "multipleAuthors", Error;
    PackedRefEntryNotTerminated, "packedRefEntryNotTerminated", Error;
    PackedRefUnsorted, "packedRefUnsorted", Error;
    TreeNotSorted, "treeNotSorted", Error;
    UnknownType, "unknownType", Error;
    ZeroPaddedDate, "zeroPaddedDate", Error;
    BadReftableTableName, "badReftableTableName", Warn;
    EmptyName, "emptyName", Warn;
    FullPathname, "fullPathname", Warn;
    HasDot, "hasDot", Warn;
    HasDotdot, "hasDotdot", Warn;
    HasDotgit, "hasDotgit", Warn;
    LargePathname, "largePathname", Warn;
    NullSha1, "nullSha1", Warn;
    NulInCommit, "nulInCommit", Warn;
    ZeroPaddedFilemode, "zeroPaddedFilemode", Warn;
    BadFilemode, "badFilemode", Info;
    BadTagName, "badTagName", Info;
    EmptyPackedRefsFile, "emptyPackedRefsFile", Info;
    GitattributesSymlink, "gitattributesSymlink", Info;
    GitignoreSymlink, "gitignoreSymlink", Info;
    GitmodulesParse, "gitmodulesParse", Info;
    MailmapSymlink, "mailmapSymlink", Info;
    MissingTaggerEntry, "missingTaggerEntry", Info;
    RefMissingNewline, "refMissingNewline", Info;
    SymlinkRef, "symlinkRef", Info;
    SymrefTargetIsNotARef, "symrefTargetIsNotARef", Info;
    TrailingRefContent, "trailingRefContent", Info;
    ExtraHeaderEntry, "extraHeaderEntry", Ignore;
}

impl MessageId {
    /// The id of that name, in any case, as in `receive.fsck.<id>`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|id| id.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_are_distinct() {
        for (position, id) in MessageId::ALL.iter().enumerate() {
            assert_eq!(*id as usize, position);
            assert_eq!(MessageId::from_name(&id.name().to_lowercase()), Some(*id));
        }
        assert_eq!(MessageId::from_name("noSuchMessage"), None);
    }
}
