//! The rules for trees. This runs for every entry of every tree of a push, so it allocates nothing per entry.

use super::MessageId;
use super::dotname::{self, GITATTRIBUTES, GITIGNORE, GITMODULES, MAILMAP};
use super::finding::Report;
use super::special::SpecialBlobs;
use crate::{ObjectFormat, TreeEntry, TreeIter, TreeMode};
use std::ops::Range;

/// Names that a later tree of the same name would duplicate, as ranges of the tree's content; kept for its allocation.
pub(super) type NameStack = Vec<Range<usize>>;

/// Flags raised while walking a tree; each is reported once, in this order.
#[derive(Default)]
struct Flags {
    null_id: bool,
    full_path: bool,
    empty_name: bool,
    dot: bool,
    dotdot: bool,
    dotgit: bool,
    zero_pad: bool,
    bad_mode: bool,
    duplicate: bool,
    unsorted: bool,
    large_name: bool,
}

/// Checks a tree's entries and their order, and notes which of its blobs are special.
pub(super) fn check(
    format: ObjectFormat,
    content: &[u8],
    report: &mut Report<'_>,
    special: &mut SpecialBlobs,
    stack: &mut NameStack,
) {
    stack.clear();
    let mut flags = Flags::default();
    let mut order = Order {
        content,
        stack,
        previous: None,
    };
    let mut entries = TreeIter::new(format, content);
    let mut padded = content.first() == Some(&b'0');
    let mut next = entries.next();
    if matches!(next, Some(Err(_))) {
        let _ = report.report(MessageId::BadTree, "cannot be parsed as a tree");
        return;
    }
    while let Some(Ok(entry)) = next {
        flags.zero_pad |= padded;
        check_name(&entry, report, special, &mut flags);
        padded = entries.rest().first() == Some(&b'0');
        next = entries.next();
        if matches!(next, Some(Err(_))) {
            // As git: the entry before the broken one has had its name checked, its mode and order not.
            let _ = report.report(MessageId::BadTree, "cannot be parsed as a tree");
            break;
        }
        flags.bad_mode |= !is_good_mode(entry.mode, report.config.strict);
        match order.follow(entry.mode, entry.name) {
            Follows::Sorted => {}
            Follows::Unsorted => flags.unsorted = true,
            Follows::Duplicate => flags.duplicate = true,
        }
    }
    flags.report(report);
}

impl Flags {
    fn report(&self, report: &mut Report<'_>) {
        use MessageId::*;
        let table = [
            (self.null_id, NullSha1, "contains entries pointing to null sha1"),
            (self.full_path, FullPathname, "contains full pathnames"),
            (self.empty_name, EmptyName, "contains empty pathname"),
            (self.dot, HasDot, "contains '.'"),
            (self.dotdot, HasDotdot, "contains '..'"),
            (self.dotgit, HasDotgit, "contains '.git'"),
            (self.zero_pad, ZeroPaddedFilemode, "contains zero-padded file modes"),
            (self.bad_mode, BadFilemode, "contains bad file modes"),
            (self.duplicate, DuplicateEntries, "contains duplicate file entries"),
            (self.unsorted, TreeNotSorted, "not properly sorted"),
            (self.large_name, LargePathname, "contains excessively large pathname"),
        ];
        for (_, id, text) in table.into_iter().filter(|(raised, ..)| *raised) {
            let _ = report.report(id, text);
        }
    }
}

/// Modes git writes; 100664 is from its first days, and only a strict check minds.
fn is_good_mode(mode: TreeMode, strict: bool) -> bool {
    match mode {
        TreeMode::FILE | TreeMode::EXECUTABLE | TreeMode::SYMLINK | TreeMode::TREE | TreeMode::GITLINK => true,
        TreeMode(0o100_664) => !strict,
        _ => false,
    }
}

#[inline]
fn check_name(entry: &TreeEntry<'_>, report: &mut Report<'_>, special: &mut SpecialBlobs, flags: &mut Flags) {
    let name = entry.name;
    flags.null_id |= entry.oid.is_null();
    flags.empty_name |= name.is_empty();
    flags.large_name |= name.len() > report.config.tree_name_len_max;
    if dotname::may_be_dot_name(name) {
        flags.dot |= name == b".";
        flags.dotdot |= name == b"..";
        flags.dotgit |= dotname::is_dotgit(name);
        check_dot_file(entry, report, special);
    }
    if has_separator(name) {
        check_separators(entry, report, special, flags);
    }
}

/// Whether there is a slash of either kind; names are too short for a call of memchr to pay.
#[inline]
fn has_separator(name: &[u8]) -> bool {
    const ONES: u64 = u64::MAX / 0xff;
    let has_zero = |word: u64| word.wrapping_sub(ONES) & !word & (ONES << 7) != 0;
    let (words, tail) = name.as_chunks::<8>();
    let in_words = words
        .iter()
        .map(|word| u64::from_ne_bytes(*word))
        .any(|word| has_zero(word ^ (ONES * b'/' as u64)) || has_zero(word ^ (ONES * b'\\' as u64)));
    in_words || tail.iter().any(|byte| matches!(byte, b'/' | b'\\'))
}

/// Notes `.gitmodules` and `.gitattributes`; none of git's files should be a symbolic link.
fn check_dot_file(entry: &TreeEntry<'_>, report: &mut Report<'_>, special: &mut SpecialBlobs) {
    use MessageId::*;
    let symlink = entry.mode.is_symlink();
    if GITMODULES.matches(entry.name) {
        note_gitmodules(entry, report, special);
    }
    if GITATTRIBUTES.matches(entry.name) {
        if symlink {
            let _ = report.report(GitattributesSymlink, ".gitattributes is a symlink");
        } else {
            special.gitattributes.found(entry.oid);
        }
    }
    if symlink && GITIGNORE.matches(entry.name) {
        let _ = report.report(GitignoreSymlink, ".gitignore is a symlink");
    }
    if symlink && MAILMAP.matches(entry.name) {
        let _ = report.report(MailmapSymlink, ".mailmap is a symlink");
    }
}

fn note_gitmodules(entry: &TreeEntry<'_>, report: &mut Report<'_>, special: &mut SpecialBlobs) {
    if entry.mode.is_symlink() {
        let _ = report.report(MessageId::GitmodulesSymlink, ".gitmodules is a symbolic link");
    } else {
        special.gitmodules.found(entry.oid);
    }
}

/// A slash makes a name a path; a backslash does so on NTFS, where what follows may be a dot name.
fn check_separators(entry: &TreeEntry<'_>, report: &mut Report<'_>, special: &mut SpecialBlobs, flags: &mut Flags) {
    flags.full_path |= entry.name.contains(&b'/');
    for backslash in memchr::memchr_iter(b'\\', entry.name) {
        let after = entry.name.get(backslash + 1..).unwrap_or_default();
        flags.dotgit |= dotname::is_ntfs_dotgit(after);
        if GITMODULES.matches_ntfs(after) {
            note_gitmodules(entry, report, special);
        }
    }
}

enum Follows {
    Sorted,
    Unsorted,
    Duplicate,
}

/// Whether entries come in git's order, in which a tree's name sorts as if it ended in a slash.
struct Order<'a, 's> {
    content: &'a [u8],
    stack: &'s mut NameStack,
    previous: Option<(TreeMode, &'a [u8])>,
}

impl<'a> Order<'a, '_> {
    #[inline]
    fn follow(&mut self, mode: TreeMode, name: &'a [u8]) -> Follows {
        let Some((previous_mode, previous)) = self.previous.replace((mode, name)) else {
            return Follows::Sorted;
        };
        match previous.iter().zip(name).find(|(before, after)| before != after) {
            Some((before, after)) if before < after => Follows::Sorted,
            Some(_) => Follows::Unsorted,
            None => self.follow_prefix((previous_mode, previous), (mode, name)),
        }
    }

    /// One name is the start of the other: the byte after it decides, a tree's end being a slash.
    ///
    /// A file and a tree of one name need not be neighbours (`foo`, `foo.bar`, `foo/`), so files whose tree may still
    /// come are kept on a stack.
    fn follow_prefix(&mut self, previous: (TreeMode, &'a [u8]), this: (TreeMode, &'a [u8])) -> Follows {
        if previous.1.len() == this.1.len() {
            return Follows::Duplicate;
        }
        let len = previous.1.len().min(this.1.len());
        let after_start = |(mode, name): (TreeMode, &[u8])| match name.get(len) {
            Some(byte) => *byte,
            None if mode.is_tree() => b'/',
            None => 0,
        };
        let (before, after) = (after_start(previous), after_start(this));
        if before == 0 && sorts_before_slash(after) {
            self.push(previous.1);
        } else if after == b'/' && sorts_before_slash(before) && self.duplicates_earlier(this.1) {
            return Follows::Duplicate;
        }
        if before < after {
            Follows::Sorted
        } else {
            Follows::Unsorted
        }
    }

    /// Whether a file of this tree's name came before it, with only names in between that sort between the two.
    fn duplicates_earlier(&mut self, name: &[u8]) -> bool {
        while let Some(range) = self.stack.pop() {
            let Some(rest) = self.content.get(range.clone()).and_then(|file| name.strip_prefix(file)) else {
                continue;
            };
            match rest.first() {
                None => return true,
                Some(byte) if sorts_before_slash(*byte) => {
                    self.stack.push(range);
                    return false;
                }
                Some(_) => {}
            }
        }
        false
    }

    fn push(&mut self, name: &[u8]) {
        let start = (name.as_ptr() as usize).wrapping_sub(self.content.as_ptr() as usize);
        self.stack.push(start..start.wrapping_add(name.len()));
    }
}

fn sorts_before_slash(byte: u8) -> bool {
    byte > 0 && byte < b'/'
}
