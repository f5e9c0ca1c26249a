//! Trees walked depth first, in the order git archives them, with what the paths' attributes say.

use super::missing;
use crate::{EngineError, View};
use bytes::Bytes;
use cuesta_git::attributes::{AttributeStack, AttributeState, Attributes, FILE_NAME};
use cuesta_git::pathspec::Pathspec;
use cuesta_git::wildmatch::{Effort, TooMuchEffort};
use cuesta_git::worktree::{ATTRIBUTES, Conversion};
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind, TreeEntry, TreeIter, TreeMode};
use std::cmp::Ordering;
use std::collections::VecDeque;

/// Tree entries that one walk looks at.
pub const ENTRIES_MAX: u64 = 16_000_000;
/// Trees within trees (git: `core.maxTreeDepth`).
pub const DEPTH_MAX: usize = 2_048;
/// Bytes of the trees on the way down that are held at once.
pub const HELD_BYTES_MAX: u64 = 64 << 20;
/// Longest path, in bytes: what a zip file can say.
const PATH_LEN_MAX: usize = 65_535;
/// Entries after which others get their turn.
const ENTRIES_PER_TURN: u64 = 512;
/// Steps of matching that one path may take: some milliseconds, during which nobody else gets a turn.
const PATH_STEPS_MAX: u64 = 1 << 20;
/// Steps of matching that one walk may take: about a minute of a processor.
const WALK_STEPS_MAX: u64 = 1 << 34;
/// Steps of matching after which others get their turn.
const STEPS_PER_TURN: u64 = 1 << 18;
/// Files of attributes of this size and more are passed over, as in git.
const ATTRIBUTES_IGNORED_BYTES: u64 = 100 << 20;
/// Files of attributes between this and that are refused.
const ATTRIBUTES_BYTES_MAX: u64 = 8 << 20;

/// One entry of some tree.
pub(super) struct Entry {
    /// From the root tree, no slash at its end.
    pub(super) path: Vec<u8>,
    pub(super) mode: TreeMode,
    pub(super) oid: ObjectId,
}

enum Step {
    Entry(Entry),
    /// A tree has no more entries.
    Left,
    End,
}

/// A walk that asks before each tree.
struct TreeWalk {
    view: View,
    frames: Vec<Frame>,
    held_bytes: u64,
    visited: EntryCount,
}

/// The tree entries that a walk has looked at, on the way to its tree or in it: of them there may be [`ENTRIES_MAX`].
#[derive(Default)]
pub(super) struct EntryCount(u64);

impl EntryCount {
    /// Counts one more.
    pub(super) fn step(&mut self) -> Result<(), EngineError> {
        self.0 += 1;
        if self.0 > ENTRIES_MAX {
            return Err(EngineError::limit("tree entries of an archive", ENTRIES_MAX));
        }
        Ok(())
    }
}

/// The entry of that name in a tree, none of whose later entries are looked at. A tree that git would call unsorted may
/// hide it.
pub(super) fn find_entry<'a>(
    (format, tree): (ObjectFormat, &'a [u8]),
    name: &[u8],
    count: &mut EntryCount,
) -> Result<Option<TreeEntry<'a>>, EngineError> {
    for entry in TreeIter::new(format, tree) {
        count.step()?;
        let entry = entry.map_err(|error| EngineError::Refused(format!("a tree cannot be read: {error}")))?;
        match entry.name.cmp(name) {
            Ordering::Equal => return Ok(Some(entry)),
            // A directory stands where its name with a slash would: `a` may come after `a.b`.
            Ordering::Greater if !entry.name.starts_with(name) => return Ok(None),
            _ => {}
        }
    }
    Ok(None)
}

struct Frame {
    /// Empty, or with its slash.
    base: Vec<u8>,
    content: Bytes,
    at: usize,
}

impl TreeWalk {
    fn new(view: View) -> Self {
        Self {
            view,
            frames: Vec::new(),
            held_bytes: 0,
            visited: EntryCount::default(),
        }
    }

    /// Goes down into a tree; its entries come next.
    async fn enter(&mut self, oid: &ObjectId, base: Vec<u8>) -> Result<Bytes, EngineError> {
        if self.frames.len() >= DEPTH_MAX {
            return Err(EngineError::Refused("exceeded maximum allowed tree depth".to_owned()));
        }
        let (kind, size) = self.view.kind_and_size(oid).await?.ok_or_else(|| missing(oid))?;
        if kind != ObjectKind::Tree {
            return Err(EngineError::Refused(format!("not a tree object: {oid}")));
        }
        if self.held_bytes.saturating_add(size) > HELD_BYTES_MAX {
            return Err(EngineError::limit("bytes of nested trees", HELD_BYTES_MAX));
        }
        let (_, content) = self.view.object(oid).await?.ok_or_else(|| missing(oid))?;
        self.held_bytes += content.len() as u64;
        self.frames.push(Frame {
            base,
            content: content.clone(),
            at: 0,
        });
        Ok(content)
    }

    async fn next(&mut self) -> Result<Step, EngineError> {
        self.visited.step()?;
        if self.visited.0.is_multiple_of(ENTRIES_PER_TURN) {
            tokio::task::yield_now().await;
        }
        let format = self.view.object_format();
        let Some(frame) = self.frames.last_mut() else {
            return Ok(Step::End);
        };
        let mut entries = TreeIter::new(format, frame.content.get(frame.at..).unwrap_or_default());
        match entries.next() {
            Some(Ok(entry)) => {
                let path = [&frame.base, entry.name].concat();
                if path.len() > PATH_LEN_MAX {
                    return Err(EngineError::limit("bytes of a path", PATH_LEN_MAX as u64));
                }
                frame.at = frame.content.len() - entries.rest().len();
                Ok(Step::Entry(Entry {
                    path,
                    mode: entry.mode,
                    oid: entry.oid,
                }))
            }
            Some(Err(error)) => Err(EngineError::Refused(format!("a tree cannot be read: {error}"))),
            None => {
                self.held_bytes -= frame.content.len() as u64;
                self.frames.pop();
                Ok(if self.frames.is_empty() { Step::End } else { Step::Left })
            }
        }
    }
}

/// Paths held against patterns, which both come from others: what that costs is counted, and has an end.
struct Matching {
    steps_left: u64,
    steps_in_turn: u64,
}

impl Matching {
    fn new() -> Self {
        Self {
            steps_left: WALK_STEPS_MAX,
            steps_in_turn: 0,
        }
    }

    /// Does what there is to match for one path.
    fn of_path<T>(&mut self, work: impl FnOnce(&mut Effort) -> Result<T, TooMuchEffort>) -> Result<T, EngineError> {
        let allowed = self.steps_left.min(PATH_STEPS_MAX);
        let mut effort = Effort::steps(allowed);
        let done = work(&mut effort).map_err(|error| EngineError::Refused(error.to_string()))?;
        let taken = allowed - effort.left();
        self.steps_left -= taken;
        self.steps_in_turn += taken;
        Ok(done)
    }

    /// Lets others have their turn if this one has been long.
    async fn take_turns(&mut self) {
        if self.steps_in_turn >= STEPS_PER_TURN {
            self.steps_in_turn = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Refuses pathspecs of which one means nothing in the tree.
pub(super) async fn check_paths(view: &View, root: ObjectId, paths: &Pathspec) -> Result<(), EngineError> {
    let mut unmatched: Vec<(usize, Pathspec)> = (0..paths.len()).map(|number| (number, paths.only(number))).collect();
    if unmatched.is_empty() {
        return Ok(());
    }
    let (mut walk, mut matching) = (TreeWalk::new(view.clone()), Matching::new());
    walk.enter(&root, Vec::new()).await?;
    loop {
        match walk.next().await? {
            Step::Entry(entry) => {
                matching.take_turns().await;
                let goes_on_below = matching.of_path(|effort| strike_out(&mut unmatched, &entry, effort))?;
                if unmatched.is_empty() {
                    return Ok(());
                }
                if goes_on_below {
                    walk.enter(&entry.oid, [&entry.path, &b"/"[..]].concat()).await?;
                }
            }
            Step::Left => {}
            Step::End => break,
        }
    }
    match unmatched.first() {
        Some((number, _)) => {
            let text = paths.text(*number).escape_ascii();
            Err(EngineError::Refused(format!(
                "pathspec '{text}' did not match any files"
            )))
        }
        None => Ok(()),
    }
}

/// Takes out the pathspecs that mean the entry; answers whether others may mean something below it.
fn strike_out(
    unmatched: &mut Vec<(usize, Pathspec)>,
    entry: &Entry,
    effort: &mut Effort,
) -> Result<bool, TooMuchEffort> {
    let is_tree = entry.mode.is_tree();
    let (mut left, mut goes_on_below) = (Vec::with_capacity(unmatched.len()), false);
    for (number, spec) in std::mem::take(unmatched) {
        if !spec.matches(&entry.path, is_tree || entry.mode.is_gitlink(), effort)? {
            goes_on_below |= is_tree && spec.may_match_below(&entry.path, effort)?;
            left.push((number, spec));
        }
    }
    *unmatched = left;
    Ok(goes_on_below)
}

/// What goes into an archive.
pub(super) struct Item {
    /// From the root tree; directories and submodules end in a slash.
    pub(super) path: Vec<u8>,
    pub(super) mode: TreeMode,
    pub(super) oid: ObjectId,
    /// Whether `$Format:…$` is replaced.
    pub(super) substitute: bool,
    pub(super) conversion: Conversion,
    /// What the `diff` attribute says of its being text.
    pub(super) text: Option<bool>,
}

const EXPORT_IGNORE: usize = 0;
const EXPORT_SUBST: usize = 1;
const DIFF: usize = 2;
const CONVERSION: usize = 3;

/// A walk over what is selected: by pathspec, and not taken out by `export-ignore`. A directory comes when something in
/// it does, and just before that.
pub(super) struct SelectedWalk {
    walk: TreeWalk,
    paths: Pathspec,
    attributes: AttributeStack,
    matching: Matching,
    /// The trees entered, below the root: what each is as an item, until it has been given.
    waiting: Vec<Option<Item>>,
    ready: VecDeque<Item>,
}

impl SelectedWalk {
    pub(super) async fn new(view: View, root: ObjectId, paths: Pathspec) -> Result<Self, EngineError> {
        let [text, crlf, eol, ident] = ATTRIBUTES;
        let mut walk = Self {
            walk: TreeWalk::new(view),
            paths,
            attributes: AttributeStack::new(&["export-ignore", "export-subst", "diff", text, crlf, eol, ident]),
            matching: Matching::new(),
            waiting: Vec::new(),
            ready: VecDeque::new(),
        };
        walk.enter(&root, Vec::new()).await?;
        Ok(walk)
    }

    pub(super) async fn next(&mut self) -> Result<Option<Item>, EngineError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            self.matching.take_turns().await;
            match self.walk.next().await? {
                Step::Entry(entry) if entry.mode.is_tree() => self.tree(entry).await?,
                Step::Entry(entry) => self.leaf(entry)?,
                Step::Left => {
                    self.attributes.pop();
                    self.waiting.pop();
                }
                Step::End => return Ok(None),
            }
        }
    }

    async fn tree(&mut self, entry: Entry) -> Result<(), EngineError> {
        let path = [&entry.path, &b"/"[..]].concat();
        let (paths, attributes) = (&self.paths, &self.attributes);
        let found = self
            .matching
            .of_path(|effort| match paths.may_match_below(&entry.path, effort)? {
                true => attributes.of(&path, effort).map(Some),
                false => Ok(None),
            })?;
        let Some(attributes) = found.filter(|attributes| !attributes.is_set(EXPORT_IGNORE)) else {
            return Ok(());
        };
        let base = path.clone();
        self.waiting
            .push(Some(Item::new(path, entry.mode, entry.oid, &attributes)));
        self.enter(&entry.oid, base).await
    }

    async fn enter(&mut self, oid: &ObjectId, base: Vec<u8>) -> Result<(), EngineError> {
        let format = self.walk.view.object_format();
        let content = self.walk.enter(oid, base.clone()).await?;
        let found = find_entry((format, &content), FILE_NAME, &mut self.walk.visited)?;
        let file = found.filter(|entry| entry.mode.is_blob()).map(|entry| entry.oid);
        let rules = match file {
            Some(oid) => self.attribute_file(&oid).await?,
            None => Bytes::new(),
        };
        let pushed = self.attributes.push(&base, &rules);
        pushed.map_err(|error| EngineError::Refused(error.to_string()))
    }

    async fn attribute_file(&self, oid: &ObjectId) -> Result<Bytes, EngineError> {
        let view = &self.walk.view;
        let (_, size) = view.kind_and_size(oid).await?.ok_or_else(|| missing(oid))?;
        match size {
            0..=ATTRIBUTES_BYTES_MAX => Ok(view.object(oid).await?.ok_or_else(|| missing(oid))?.1),
            ATTRIBUTES_IGNORED_BYTES.. => Ok(Bytes::new()),
            _ => Err(EngineError::limit(
                "bytes of a .gitattributes file",
                ATTRIBUTES_BYTES_MAX,
            )),
        }
    }

    fn leaf(&mut self, entry: Entry) -> Result<(), EngineError> {
        let is_gitlink = entry.mode.is_gitlink();
        let (paths, attributes) = (&self.paths, &self.attributes);
        let mut path = entry.path;
        let found = self.matching.of_path(|effort| {
            if !paths.matches(&path, is_gitlink, effort)? {
                return Ok(None);
            }
            if is_gitlink {
                path.push(b'/');
            }
            attributes.of(&path, effort).map(Some)
        })?;
        let Some(attributes) = found else { return Ok(()) };
        // As git: the directories above come even if this one does not.
        self.ready.extend(self.waiting.iter_mut().filter_map(Option::take));
        if !attributes.is_set(EXPORT_IGNORE) {
            self.ready
                .push_back(Item::new(path, entry.mode, entry.oid, &attributes));
        }
        Ok(())
    }
}

impl Item {
    fn new(path: Vec<u8>, mode: TreeMode, oid: ObjectId, attributes: &Attributes) -> Self {
        let text = match attributes.state(DIFF) {
            AttributeState::Set => Some(true),
            AttributeState::Unset => Some(false),
            _ => None,
        };
        let regular = mode.is_blob() && !mode.is_symlink();
        Self {
            path,
            mode,
            oid,
            substitute: regular && attributes.is_set(EXPORT_SUBST),
            conversion: if regular {
                Conversion::of(attributes, CONVERSION)
            } else {
                Conversion::NONE
            },
            text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(entries: &[(&str, &str)]) -> Vec<u8> {
        let entry = |(mode, name): &(&str, &str)| [format!("{mode} {name}\0").as_bytes(), &[7; 20]].concat();
        entries.iter().flat_map(entry).collect()
    }

    fn find(tree: &[u8], name: &str, count: &mut EntryCount) -> Result<bool, EngineError> {
        let found = find_entry((ObjectFormat::Sha1, tree), name.as_bytes(), count)?;
        Ok(found.is_some_and(|entry| entry.name == name.as_bytes()))
    }

    #[test]
    fn what_is_looked_at_on_the_way_is_counted() {
        let tree = tree(&[
            ("100644", "a.b"),
            ("40000", "a"),
            ("100644", "a0"),
            ("100644", "b"),
            ("100644", "c"),
        ]);
        for (name, there, looked_at) in [
            ("a", true, 2),
            ("a.b", true, 1),
            ("b", true, 4),
            ("B", false, 1),
            ("aa", false, 4),
            ("d", false, 5),
        ] {
            let mut count = EntryCount::default();
            assert_eq!(find(&tree, name, &mut count).unwrap(), there, "{name}");
            assert_eq!(count.0, looked_at, "{name}");
        }
        let mut count = EntryCount(ENTRIES_MAX - 2);
        assert!(find(&tree, "a", &mut count).unwrap());
        assert!(matches!(
            find(&tree, "a", &mut count),
            Err(EngineError::Limit { max: ENTRIES_MAX, .. })
        ));
        assert!(find(b"100644 a", "a", &mut EntryCount::default()).is_err());
    }
}
