//! The refs of a view as the wire shows them: HEAD first, then by name, symbolic ones resolved, hidden ones left out.

use cuesta_format::RefTarget;
use cuesta_git::{HiddenRefs, ObjectId, RefName};
use cuesta_ledger::State;
use cuesta_protocol::advertise::AdvertisedRef;
use std::ops::Bound;

/// All refs that `hidden` does not hide, in git's order; `HEAD` only if it has a value.
pub fn upload_refs<'a>(state: &'a State, hidden: &'a HiddenRefs) -> impl Iterator<Item = AdvertisedRef<'a>> {
    head(state, hidden).into_iter().chain(named(state, hidden, b""))
}

/// What receive-pack shows: no `HEAD`, no peeled values.
pub fn receive_refs<'a>(state: &'a State, hidden: &'a HiddenRefs) -> impl Iterator<Item = AdvertisedRef<'a>> {
    named(state, hidden, b"").map(|shown| AdvertisedRef { peeled: None, ..shown })
}

/// `HEAD`, if it leads to a value.
pub fn head<'a>(state: &'a State, hidden: &HiddenRefs) -> Option<AdvertisedRef<'a>> {
    let (name, _) = state.symrefs().get_key_value(HEAD)?;
    symbolic(state, hidden, name)
}

/// What `HEAD` names although that does not exist.
pub fn unborn_head(state: &State) -> Option<&RefName> {
    let (head, _) = state.symrefs().get_key_value(HEAD)?;
    let end = state.symref_end(head)?;
    (!state.refs().contains_key(end)).then_some(end)
}

/// The value of the one ref that a name, full or short, stands for (gitrevisions, `<refname>`); `None` if it stands for
/// none or for several.
pub fn expand(state: &State, hidden: &HiddenRefs, name: &[u8]) -> Option<ObjectId> {
    let mut values = candidates(state, hidden, name);
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// The value of the first ref that a name stands for.
pub fn first(state: &State, hidden: &HiddenRefs, name: &[u8]) -> Option<ObjectId> {
    let name = if name == b"@" { HEAD } else { name };
    candidates(state, hidden, name).next()
}

fn candidates<'a>(state: &'a State, hidden: &'a HiddenRefs, name: &'a [u8]) -> impl Iterator<Item = ObjectId> + 'a {
    const RULES: [(&[u8], &[u8]); 6] = [
        (b"", b""),
        (b"refs/", b""),
        (b"refs/tags/", b""),
        (b"refs/heads/", b""),
        (b"refs/remotes/", b""),
        (b"refs/remotes/", b"/HEAD"),
    ];
    let full = RULES
        .into_iter()
        .map(move |(before, after)| [before, name, after].concat());
    full.filter_map(move |name| value(state, hidden, &name))
}

/// The value of the ref of that full name, symbolic or not; `None` if it has none or is hidden.
pub fn value(state: &State, hidden: &HiddenRefs, name: &[u8]) -> Option<ObjectId> {
    let name = RefName::new(name).ok()?;
    let (end, target) = state.resolve(&name)?;
    (!hidden.hides(&name) && !hidden.hides(end)).then_some(target.oid)
}

const HEAD: &[u8] = b"HEAD";

/// Refs and symbolic refs but `HEAD` that begin with `prefix`, merged by name. Cost: theirs, not all refs'.
pub fn named<'a>(
    state: &'a State,
    hidden: &'a HiddenRefs,
    prefix: &'a [u8],
) -> impl Iterator<Item = AdvertisedRef<'a>> {
    let from = (Bound::Included(prefix), Bound::Unbounded);
    let visible = |(name, _): &(&RefName, &RefTarget)| hidden.is_empty() || !hidden.hides(name);
    let plain = state
        .refs()
        .range::<_, [u8]>(from)
        .take_while(move |(name, _)| name.as_bytes().starts_with(prefix));
    let mut plain = plain
        .filter(visible)
        .map(|(name, target)| direct(name, target))
        .peekable();
    let mut links = links(state, hidden, prefix).peekable();
    std::iter::from_fn(move || match (plain.peek(), links.peek()) {
        (Some(first), Some(link)) if link.name < first.name => links.next(),
        (Some(_), _) => plain.next(),
        (None, _) => links.next(),
    })
}

/// Symbolic refs but `HEAD` that begin with `prefix` and lead to a value, by name.
pub fn links<'a>(
    state: &'a State,
    hidden: &'a HiddenRefs,
    prefix: &'a [u8],
) -> impl Iterator<Item = AdvertisedRef<'a>> {
    let from = (Bound::Included(prefix), Bound::Unbounded);
    let names = state.symrefs().range::<_, [u8]>(from).map(|(name, _)| name);
    let names = names.take_while(move |name| name.as_bytes().starts_with(prefix));
    let shown = names.filter(|name| name.as_bytes() != HEAD && !hidden.hides(name));
    shown.filter_map(|name| symbolic(state, hidden, name))
}

/// A ref that is not symbolic.
pub fn direct<'a>(name: &'a RefName, target: &RefTarget) -> AdvertisedRef<'a> {
    AdvertisedRef {
        name: name.as_bytes(),
        oid: target.oid,
        peeled: target.peeled,
        symref_target: None,
    }
}

fn symbolic<'a>(state: &'a State, hidden: &HiddenRefs, name: &'a RefName) -> Option<AdvertisedRef<'a>> {
    let (end, target) = state.resolve(name)?;
    let shown = !hidden.hides(end);
    shown.then_some(AdvertisedRef {
        symref_target: Some(end.as_bytes()),
        ..direct(name, target)
    })
}
