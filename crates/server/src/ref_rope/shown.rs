//! A rope together with the state whose refs it shows, from which it finds what has moved since.

use super::Form;
use super::chunk::Change;
use super::rope::Rope;
use crate::service::repository_options::RepositoryOptions;
use crate::service::shown_refs;
use cuesta_engine::Settings;
use cuesta_format::RefTarget;
use cuesta_git::{HiddenRefs, ObjectFormat, ObjectId, RefName};
use cuesta_ledger::State;
use cuesta_protocol::Service;
use cuesta_protocol::advertise::AdvertisedRef;
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Settings of the node by name ([`cuesta_engine::Settings`]).
pub(crate) type Defaults = Arc<BTreeMap<String, String>>;

/// The rules that hide refs from a service.
pub(super) fn hidden(state: &State, defaults: &Defaults, service: Service) -> HiddenRefs {
    RepositoryOptions::new(Settings::new(state, defaults)).hidden(service)
}

/// The refs of one state that one service shows, but `HEAD`. Cheap to clone.
#[derive(Clone)]
pub(super) struct Shown {
    service: Service,
    /// The state's number: states of one log with the same number are the same.
    number: u64,
    refs: OrdMap<RefName, RefTarget>,
    settings: OrdMap<String, String>,
    /// The node's settings, where the repository has none.
    defaults: Defaults,
    hidden: Arc<HiddenRefs>,
    symbolic: Arc<[Symbolic]>,
    rope: Rope,
    /// Bits of the forms that were asked for.
    forms: u8,
}

/// A symbolic ref that is shown, and what it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Symbolic {
    name: Box<[u8]>,
    end: Box<[u8]>,
    oid: ObjectId,
    peeled: Option<ObjectId>,
}

impl Shown {
    /// Writes all refs. Cost: a line for each.
    pub(super) fn new(state: &State, service: Service, defaults: &Defaults) -> Self {
        let hidden = hidden(state, defaults, service);
        let rope = Rope::new(format(state), shown_refs::named(state, &hidden, b""));
        Self {
            service,
            number: state.number(),
            refs: state.refs().clone(),
            settings: state.settings().clone(),
            symbolic: symbolic(state, &hidden),
            defaults: defaults.clone(),
            hidden: Arc::new(hidden),
            rope,
            forms: 0,
        }
    }

    /// The same for another state of the log, made from this one by what differs between them; `None` if that is more
    /// than `changes_max` refs, or if other refs are hidden.
    ///
    /// Cost: in proportion to what differs, and a look at each symbolic ref.
    pub(super) fn of(&self, state: &State, changes_max: usize) -> Option<Self> {
        if !self.settings.ptr_eq(state.settings()) && hidden(state, &self.defaults, self.service) != *self.hidden {
            return None;
        }
        let symbolic = symbolic(state, &self.hidden);
        let links = self.links(&symbolic);
        let moved = self
            .refs
            .diff(state.refs())
            .filter_map(|item| change(&self.hidden, item));
        let moved: Vec<Change<'_>> = moved.take(changes_max.saturating_add(1)).collect();
        if moved.len() + links.len() > changes_max {
            return None;
        }
        let mut rope = self.rope.clone();
        rope.patch(&merged(moved, links));
        Some(Self {
            number: state.number(),
            refs: state.refs().clone(),
            settings: state.settings().clone(),
            symbolic,
            rope,
            ..self.clone()
        })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn rope(&self) -> &Rope {
        &self.rope
    }

    /// Remembers that a form was asked for, whose bytes the rope may then keep.
    pub(super) fn asked_for(&mut self, form: Form) {
        self.forms |= 1 << form.index();
    }

    /// What it keeps in memory, in bytes, beside what the repository has anyway.
    pub(super) fn weight(&self) -> u64 {
        let forms = Form::ALL.into_iter().filter(|form| self.forms & 1 << form.index() != 0);
        self.rope.weight(forms)
    }

    /// What became of symbolic refs.
    fn links<'a>(&'a self, now: &'a [Symbolic]) -> Vec<Change<'a>> {
        let mut changes = Vec::new();
        let (mut old, mut new) = (self.symbolic.iter().peekable(), now.iter().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (Some(old), Some(new)) => old.name.cmp(&new.name),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return changes,
            };
            let before = if order.is_le() { old.next() } else { None };
            let after = if order.is_ge() { new.next() } else { None };
            if before != after {
                let name = before.or(after).map_or(&b""[..], |link| &link.name);
                let now = after.map(Symbolic::shown);
                changes.push(Change { name, now });
            }
        }
    }
}

impl Symbolic {
    fn shown(&self) -> AdvertisedRef<'_> {
        AdvertisedRef {
            name: &self.name,
            oid: self.oid,
            peeled: self.peeled,
            symref_target: Some(&self.end),
        }
    }
}

/// What a difference of two states' refs means for what is shown.
fn change<'a>(hidden: &HiddenRefs, item: DiffItem<'a, 'a, RefName, RefTarget>) -> Option<Change<'a>> {
    let (name, now) = match item {
        DiffItem::Add(name, target) => (name, Some(target)),
        DiffItem::Update {
            new: (name, target), ..
        } => (name, Some(target)),
        DiffItem::Remove(name, _) => (name, None),
    };
    (!hidden.hides(name)).then(|| Change {
        name: name.as_bytes(),
        now: now.map(|target| shown_refs::direct(name, target)),
    })
}

/// Both lists as one, in order. Where a symbolic ref became a plain one or the reverse, what it is now counts.
fn merged<'a>(moved: Vec<Change<'a>>, links: Vec<Change<'a>>) -> Vec<Change<'a>> {
    if links.is_empty() {
        return moved;
    }
    let mut all = [moved, links].concat();
    all.sort_by(|one, other| {
        one.name
            .cmp(other.name)
            .then(other.now.is_some().cmp(&one.now.is_some()))
    });
    all.dedup_by_key(|change| change.name);
    all
}

fn symbolic(state: &State, hidden: &HiddenRefs) -> Arc<[Symbolic]> {
    let links = shown_refs::links(state, hidden, b"");
    let owned = links.filter_map(|link| {
        Some(Symbolic {
            name: link.name.into(),
            end: link.symref_target?.into(),
            oid: link.oid,
            peeled: link.peeled,
        })
    });
    owned.collect()
}

fn format(state: &State) -> ObjectFormat {
    state.object_format().unwrap_or_default()
}
