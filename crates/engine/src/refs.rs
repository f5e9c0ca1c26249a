//! The refs of a view as advertisements show them.

use crate::View;
use cuesta_format::RefTarget;
use cuesta_git::{ObjectId, RefName};

/// One ref to be advertised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvertisedRef<'a> {
    /// Its name.
    pub name: &'a RefName,
    /// The object it names, through symbolic refs.
    pub oid: ObjectId,
    /// Where that is an annotated tag, the object it peels to.
    pub peeled: Option<ObjectId>,
    /// For a symbolic ref, the ref it names in the end.
    pub symref: Option<&'a RefName>,
}

/// What `HEAD` is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head<'a> {
    /// There is none.
    Missing,
    /// It names a branch that does not exist yet.
    Unborn(&'a RefName),
    /// It names an object, mostly through a branch.
    Born(AdvertisedRef<'a>),
}

impl View {
    /// `HEAD`.
    pub fn head(&self) -> Head<'_> {
        let state = self.state();
        match state.symrefs().get_key_value(b"HEAD".as_slice()) {
            Some((name, _)) => match (self.symbolic(name), state.symref_end(name)) {
                (Some(head), _) => Head::Born(head),
                (None, Some(end)) => Head::Unborn(end),
                (None, None) => Head::Missing,
            },
            None => match state.refs().get_key_value(b"HEAD".as_slice()) {
                Some((name, target)) => Head::Born(direct(name, target)),
                None => Head::Missing,
            },
        }
    }

    /// Every ref but `HEAD` that names an object, in byte order of the names. Symbolic refs are among them. Which of
    /// them a client may see is for the caller to filter.
    pub fn refs(&self) -> impl Iterator<Item = AdvertisedRef<'_>> {
        let mut refs = self
            .state()
            .refs()
            .iter()
            .map(|(name, target)| direct(name, target))
            .peekable();
        let mut symrefs = self
            .state()
            .symrefs()
            .keys()
            .filter_map(|name| self.symbolic(name))
            .peekable();
        let merged = std::iter::from_fn(move || match (refs.peek(), symrefs.peek()) {
            (Some(plain), Some(symbolic)) if symbolic.name < plain.name => symrefs.next(),
            (None, _) => symrefs.next(),
            _ => refs.next(),
        });
        merged.filter(|shown| shown.name.as_bytes() != b"HEAD")
    }

    fn symbolic<'a>(&'a self, name: &'a RefName) -> Option<AdvertisedRef<'a>> {
        let (end, target) = self.state().resolve(name)?;
        Some(AdvertisedRef {
            symref: Some(end),
            ..direct(name, target)
        })
    }
}

fn direct<'a>(name: &'a RefName, target: &RefTarget) -> AdvertisedRef<'a> {
    AdvertisedRef {
        name,
        oid: target.oid,
        peeled: target.peeled,
        symref: None,
    }
}
