//! The state of a repository at one position of its log, and the one function that moves it: [`State::apply`].
//!
//! Pure. Maps are persistent: a clone costs a few reference counts, an edit costs what it changes, and a snapshot that
//! someone still holds stays as it was.

use crate::codec;
use crate::conflict::{Conflict, RefConflict};
use crate::layers::LayerRecord;
use crate::lists::Lists;
use crate::recent::Recent;
use crate::retired::Retired;
use crate::{LedgerError, Machine};
use bytes::Bytes;
use cuesta_format::{
    Cause, Checkpoint, Edit, EditId, LayerId, LayerPlace, LogId, RefTarget, RefUpdate, RetiredLayer, SymrefChange,
};
use cuesta_git::{ObjectFormat, ObjectId, RefName};
use imbl::{OrdMap, Vector};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// An immutable snapshot of a repository: refs, symbolic refs, settings, shallow boundary and layer list.
#[derive(Clone, Default)]
pub struct State {
    number: u64,
    object_format: Option<ObjectFormat>,
    refs: OrdMap<RefName, RefTarget>,
    symrefs: OrdMap<RefName, RefName>,
    settings: OrdMap<String, String>,
    shallow: Arc<[ObjectId]>,
    lists: Lists,
}

impl State {
    /// The number of the next entry: what is here is the log's outcome before that entry.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The object format, fixed by the log's first edit; `None` before it.
    pub fn object_format(&self) -> Option<ObjectFormat> {
        self.object_format
    }

    /// All refs that are not symbolic, in git's order.
    pub fn refs(&self) -> &OrdMap<RefName, RefTarget> {
        &self.refs
    }

    /// All symbolic refs and the refs they name, which need not exist.
    pub fn symrefs(&self) -> &OrdMap<RefName, RefName> {
        &self.symrefs
    }

    /// Settings that differ from their defaults.
    pub fn settings(&self) -> &OrdMap<String, String> {
        &self.settings
    }

    /// The repository's own shallow boundary, sorted; empty for a complete repository.
    pub fn shallow(&self) -> &[ObjectId] {
        &self.shallow
    }

    /// The layers, newest last. A layer that replaces others stands where the newest of them stood.
    pub fn layers(&self) -> &Vector<Arc<LayerRecord>> {
        self.lists.layers.list()
    }

    /// Those of the layers that are in the bucket, newest last. States of which one follows the other share the list as long as
    /// it stays the same.
    pub fn bucket_layers(&self) -> &Arc<[Arc<LayerRecord>]> {
        self.lists.layers.bucket()
    }

    /// The layer of that id.
    pub fn layer(&self, id: LayerId) -> Option<&Arc<LayerRecord>> {
        self.lists.layers.find(id)
    }

    /// Layers that left the list and whose payloads may still be in the bucket, in the order in which they left.
    pub fn retired(&self) -> &Vector<RetiredLayer> {
        self.lists.retired.list()
    }

    /// Where an object lies in the inline layers: the newest that has it, and its entry there.
    pub fn inline_object(&self, oid: &ObjectId) -> Option<(&Arc<LayerRecord>, u32)> {
        self.lists.inline_objects.find(oid, &self.lists.layers)
    }

    /// The object that `name` stands for: through symbolic refs, as deep as git follows them.
    pub fn resolve<'a>(&'a self, name: &'a RefName) -> Option<(&'a RefName, &'a RefTarget)> {
        let name = self.symref_end(name)?;
        self.refs.get(name).map(|target| (name, target))
    }

    /// The last name in the chain of symbolic refs that begins at `name`; `None` if the chain is too long.
    pub fn symref_end<'a>(&'a self, name: &'a RefName) -> Option<&'a RefName> {
        let mut name = name;
        for _ in 0..=SYMREF_DEPTH_MAX {
            match self.symrefs.get(name) {
                Some(target) => name = target,
                None => return Some(name),
            }
        }
        None
    }

    /// The entry that holds the edit of this id, if it is among the last [`crate::RECENT_EDITS_MAX`].
    pub fn entry_of(&self, id: EditId) -> Option<u64> {
        self.lists.recent.entry_of(id)
    }

    /// Applies an edit whole, or changes nothing and says why.
    ///
    /// Every `old` must be true, no ref may lie below another's name (those that the edit deletes are gone first), names
    /// in the edit's refs must not be symbolic, layers removed must be there and layers added must not, nor be retired. A
    /// push moves `HEAD` only while there is no branch: of pushes that race to make the first one, the first in the log
    /// decides where it goes, as if they had come one after the other. The cost follows the edit, plus one pass over the
    /// layer list if it removes layers, and one over the retired for each layer in the bucket that it adds.
    pub fn apply(&mut self, edit: &Edit) -> Result<(), Conflict> {
        let lists = std::mem::take(&mut self.lists);
        let mut next = self.clone();
        let named = next.apply_format(edit).and_then(|()| next.apply_refs(edit));
        match named.and_then(|()| lists.check(next.object_format, edit)) {
            Err(conflict) => {
                self.lists = lists;
                Err(conflict)
            }
            Ok(planned) => {
                next.lists = lists;
                next.lists.apply(edit, planned, next.number);
                next.apply_settings(edit);
                *self = next;
                Ok(())
            }
        }
    }

    /// Ends an entry: the edits applied since the last call are that entry's.
    pub fn seal_entry(&mut self) {
        self.number += 1;
    }

    /// All of the state, to be written as a checkpoint. `None` for a log without a first edit: there is nothing to fold.
    /// Costs a pass over all refs and layers.
    pub fn checkpoint(&self, log: LogId) -> Option<Checkpoint> {
        Some(Checkpoint {
            log,
            number: self.number,
            object_format: self.object_format?,
            refs: self.refs.iter().map(|(name, target)| (name.clone(), *target)).collect(),
            symrefs: self
                .symrefs
                .iter()
                .map(|(name, target)| (name.clone(), target.clone()))
                .collect(),
            settings: self
                .settings
                .iter()
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            shallow: self.shallow.to_vec(),
            layers: self.layers().iter().map(|layer| layer.to_added()).collect(),
            recent_edits: self.lists.recent.ids().collect(),
            retired: self.retired().iter().copied().collect(),
        })
    }

    /// The state that a checkpoint holds. A conflict says what in it contradicts itself.
    pub fn from_checkpoint(checkpoint: Checkpoint) -> Result<Self, Conflict> {
        let format = Some(checkpoint.object_format);
        let recent = Recent::restored(checkpoint.recent_edits, checkpoint.number);
        let retired = Retired::restored(checkpoint.retired);
        Ok(Self {
            number: checkpoint.number,
            object_format: format,
            refs: checkpoint.refs.into_iter().collect(),
            symrefs: checkpoint.symrefs.into_iter().collect(),
            settings: checkpoint.settings.into_iter().collect(),
            shallow: checkpoint.shallow.into(),
            lists: Lists::restored(format, &checkpoint.layers, retired, recent)?,
        })
    }

    fn apply_format(&mut self, edit: &Edit) -> Result<(), Conflict> {
        match (self.object_format, edit.object_format) {
            (None, Some(format)) => self.object_format = Some(format),
            (Some(_), None) => {}
            (Some(format), Some(_)) => return Err(Conflict::ObjectFormatFixed { format }),
            (None, None) => return Err(Conflict::ObjectFormatMissing),
        }
        Ok(())
    }

    fn apply_refs(&mut self, edit: &Edit) -> Result<(), Conflict> {
        let conflict = |name: &RefName, reason| Conflict::Ref {
            name: name.clone(),
            reason,
        };
        check_each_once(edit)?;
        let head = (edit.cause == Cause::Push && self.has_branch()).then(RefName::head);
        for change in &edit.symrefs {
            self.end_symref(change)
                .map_err(|reason| conflict(&change.name, reason))?;
        }
        for update in &edit.refs {
            self.check_old(update)
                .map_err(|reason| conflict(&update.name, reason))?;
        }
        // Deletions first: `a` may go and `a/b` come in one edit. Names are checked when all are in, so that two new ones
        // cannot collide.
        let mut new_names = Vec::new();
        for update in &edit.refs {
            match update.new {
                None => drop(self.refs.remove(&update.name)),
                Some(target) if self.refs.insert(update.name.clone(), target).is_none() => new_names.push(&update.name),
                Some(_) => {}
            }
        }
        for change in edit.symrefs.iter().filter(|change| head.as_ref() != Some(&change.name)) {
            self.begin_symref(change, &mut new_names)
                .map_err(|reason| conflict(&change.name, reason))?;
        }
        new_names
            .into_iter()
            .try_for_each(|name| self.check_name(name).map_err(|reason| conflict(name, reason)))
    }

    fn check_old(&self, update: &RefUpdate) -> Result<(), RefConflict> {
        if let Some(target) = self.symrefs.get(&update.name) {
            return Err(RefConflict::Symbolic { target: target.clone() });
        }
        if let Some(new) = &update.new {
            self.check_target(new)?;
        }
        match (&update.old, self.refs.get(&update.name)) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err(RefConflict::Exists),
            (Some(_), None) => Err(RefConflict::Missing),
            (Some(old), Some(now)) if *old == now.oid => Ok(()),
            (Some(_), Some(now)) => Err(RefConflict::OldDiffers { now: now.oid }),
        }
    }

    /// A ref must name an object of the repository's own format.
    fn check_target(&self, target: &RefTarget) -> Result<(), RefConflict> {
        let ours = |oid: &ObjectId| Some(oid.format()) == self.object_format && !oid.is_null();
        let valid = ours(&target.oid) && target.peeled.as_ref().is_none_or(ours);
        if valid {
            Ok(())
        } else {
            Err(RefConflict::BadTarget { oid: target.oid })
        }
    }

    /// Whether `name` is neither a directory of another ref nor in a directory that is a ref.
    fn check_name(&self, name: &RefName) -> Result<(), RefConflict> {
        let bytes = name.as_bytes();
        for slash in memchr::memchr_iter(b'/', bytes) {
            if let Some(other) = bytes.get(..slash).and_then(|parent| self.name_of(parent)) {
                return Err(RefConflict::Name { other });
            }
        }
        let below = [bytes, b"/"].concat();
        match self.first_below(&below) {
            Some(other) => Err(RefConflict::Name { other }),
            None => Ok(()),
        }
    }

    /// The ref or symbolic ref of that name.
    fn name_of(&self, name: &[u8]) -> Option<RefName> {
        let in_refs = self.refs.get_key_value(name).map(|(name, _)| name);
        in_refs
            .or_else(|| self.symrefs.get_key_value(name).map(|(name, _)| name))
            .cloned()
    }

    /// The first ref or symbolic ref whose name begins with `prefix`.
    fn first_below(&self, prefix: &[u8]) -> Option<RefName> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let in_refs = self.refs.range::<_, [u8]>(from).next().map(|(name, _)| name);
        let in_symrefs = self.symrefs.range::<_, [u8]>(from).next().map(|(name, _)| name);
        [in_refs, in_symrefs]
            .into_iter()
            .flatten()
            .find(|name| name.as_bytes().starts_with(prefix))
            .cloned()
    }

    /// Whether there is any branch.
    pub fn has_branch(&self) -> bool {
        const BRANCHES: &[u8] = b"refs/heads/";
        let from = (Bound::Included(BRANCHES), Bound::Unbounded);
        let first = self.refs.range::<_, [u8]>(from).next();
        first.is_some_and(|(name, _)| name.as_bytes().starts_with(BRANCHES))
    }

    fn end_symref(&mut self, change: &SymrefChange) -> Result<(), RefConflict> {
        if change.target.is_none() && self.symrefs.remove(&change.name).is_none() {
            return Err(RefConflict::Missing);
        }
        Ok(())
    }

    fn begin_symref<'a>(
        &mut self,
        change: &'a SymrefChange,
        new_names: &mut Vec<&'a RefName>,
    ) -> Result<(), RefConflict> {
        let Some(target) = &change.target else { return Ok(()) };
        if self.refs.contains_key(&change.name) {
            return Err(RefConflict::Exists);
        }
        if self.symrefs.insert(change.name.clone(), target.clone()).is_none() {
            new_names.push(&change.name);
        }
        match self.symref_end(&change.name) {
            Some(_) => Ok(()),
            None => Err(RefConflict::Loop),
        }
    }

    fn apply_settings(&mut self, edit: &Edit) {
        for change in &edit.settings {
            match &change.value {
                Some(value) => drop(self.settings.insert(change.name.clone(), value.clone())),
                None => drop(self.settings.remove(&change.name)),
            }
        }
        if let Some(shallow) = &edit.shallow {
            let mut sorted = shallow.clone();
            // Pushes that add to the boundary at the same time must not undo one another.
            if edit.cause == Cause::Push {
                sorted.extend_from_slice(&self.shallow);
            }
            sorted.sort_unstable();
            sorted.dedup();
            self.shallow = sorted.into();
        }
    }
}

/// As git's SYMREF_MAXDEPTH.
const SYMREF_DEPTH_MAX: usize = 5;

/// Each name at most once, in refs and symbolic refs together, but that a symbolic ref may become a ref and back.
fn check_each_once(edit: &Edit) -> Result<(), Conflict> {
    fn repeated<'a>(names: impl Iterator<Item = &'a RefName>) -> Option<&'a RefName> {
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        names
            .iter()
            .zip(names.iter().skip(1))
            .find(|(name, next)| name == next)
            .map(|(name, _)| *name)
    }
    let refs = edit.refs.iter().map(|update| &update.name);
    let symrefs = edit.symrefs.iter().map(|change| &change.name);
    match repeated(refs).or_else(|| repeated(symrefs)) {
        Some(name) => Err(Conflict::Ref {
            name: name.clone(),
            reason: RefConflict::Repeated,
        }),
        None => Ok(()),
    }
}

/// Counts only: a repository may have a million refs.
impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("number", &self.number)
            .field("refs", &self.refs.len())
            .field("layers", &self.layers().len())
            .finish_non_exhaustive()
    }
}

impl Machine for State {
    type Edit = Edit;
    type Conflict = Conflict;

    fn number(&self) -> u64 {
        self.number
    }

    fn apply(&mut self, edit: &Edit) -> Result<(), Conflict> {
        State::apply(self, edit)
    }

    fn seal_entry(&mut self) {
        State::seal_entry(self);
    }

    fn entry_of(&self, id: EditId) -> Option<u64> {
        State::entry_of(self, id)
    }

    fn has_forgotten(&self) -> bool {
        self.lists.recent.is_full()
    }

    fn edit_id(edit: &Edit) -> EditId {
        edit.id
    }

    fn edit_bytes(edit: &Edit) -> usize {
        let names = edit.refs.iter().map(|update| update.name.as_bytes().len());
        let symrefs = edit.symrefs.iter().map(|change| {
            change.name.as_bytes().len() + change.target.as_ref().map_or(0, |target| target.as_bytes().len())
        });
        let layers = edit.added.iter().map(|added| match &added.place {
            LayerPlace::Inline { pack, cue } => pack.len() + cue.len(),
            LayerPlace::Bucket => 0,
        });
        let settings = edit
            .settings
            .iter()
            .map(|change| change.name.len() + change.value.as_ref().map_or(0, String::len));
        let items = edit.refs.len() + edit.symrefs.len() + edit.added.len() + edit.removed.len() + edit.settings.len();
        let shallow = edit.shallow.as_ref().map_or(0, Vec::len);
        let orphans = edit
            .collection
            .as_ref()
            .map_or(0, |collection| collection.orphans.len());
        EDIT_BYTES_MAX
            + edit.actor.len()
            + names.chain(symrefs).chain(layers).chain(settings).sum::<usize>()
            + (items + shallow + orphans) * ITEM_BYTES_MAX
    }

    fn encode_entry(number: u64, edits: &mut dyn Iterator<Item = &Edit>) -> Result<Bytes, LedgerError> {
        codec::encode_entry(number, edits)
    }

    fn decode_entry(log: LogId, number: u64, bytes: &Bytes) -> Result<Vec<Edit>, LedgerError> {
        codec::decode_entry(log, number, bytes)
    }

    fn decode_checkpoint(log: LogId, number: u64, bytes: &Bytes) -> Result<Self, LedgerError> {
        let checkpoint = codec::decode_checkpoint(log, number, bytes)?;
        Self::from_checkpoint(checkpoint).map_err(|what| LedgerError::Corrupt {
            log,
            number,
            what: what.to_string(),
        })
    }
}

/// Bytes of an edit beside its lists.
const EDIT_BYTES_MAX: usize = 128;
/// Bytes of a ref update, layer or the like beside its name and payload: three ids of 32 bytes and lengths.
const ITEM_BYTES_MAX: usize = 160;
