//! The check of refs.

use super::{Finding, FsckReport};
use crate::{EngineError, Head, Location, View};
use cuesta_format::RefTarget;
use cuesta_git::{ObjectId, ObjectKind, RefName, TagRef};

/// Tags of tags that are followed.
const TAG_DEPTH_MAX: usize = 64;

pub(super) async fn check(view: &View, quick: bool, report: &mut FsckReport) -> Result<(), EngineError> {
    for (name, target) in view.state().refs() {
        match check_ref(view, name, target, quick).await {
            Ok(None) => {}
            Ok(Some(what)) => report.add(found(name, what)),
            Err(error) if error.kind() == crate::ErrorKind::Corrupt => report.add(found(name, error.to_string())),
            Err(error) => return Err(error),
        }
    }
    for name in view.state().symrefs().keys() {
        if view.state().symref_end(name).is_none() {
            report.add(found(name, "symbolic refs lead in a circle".to_owned()));
        }
    }
    match view.head() {
        Head::Missing => report.add(Finding::Ref {
            name: "HEAD".to_owned(),
            what: "detached HEAD points at nothing".to_owned(),
        }),
        Head::Unborn(branch) => report.add(Finding::Notice(format!("HEAD points to an unborn branch ({branch})"))),
        Head::Born(_) => {}
    }
    Ok(())
}

fn found(name: &RefName, what: String) -> Finding {
    Finding::Ref {
        name: name.to_string(),
        what,
    }
}

async fn check_ref(
    view: &View,
    name: &RefName,
    target: &RefTarget,
    quick: bool,
) -> Result<Option<String>, EngineError> {
    let Some(kind) = kind_of(view, &target.oid).await? else {
        return Ok(Some(format!("invalid sha1 pointer {}", target.oid)));
    };
    if name.as_bytes().starts_with(b"refs/heads/") && kind != ObjectKind::Commit {
        return Ok(Some(format!("not a commit: {}", target.oid)));
    }
    if (kind == ObjectKind::Tag) != target.peeled.is_some() {
        return Ok(Some("only tags peel to another object".to_owned()));
    }
    if quick || kind != ObjectKind::Tag {
        return Ok(None);
    }
    Ok(match peel(view, target.oid).await? {
        peeled if peeled == target.peeled => None,
        Some(peeled) => Some(format!("peels to {peeled}, which is not what is recorded")),
        None => Some(format!("tag {} leads nowhere", target.oid)),
    })
}

/// The kind of an object in a layer that vouches for it.
async fn kind_of(view: &View, oid: &ObjectId) -> Result<Option<ObjectKind>, EngineError> {
    for Location { layer, entry } in view.copies(oid).await? {
        if !layer.meta().unreachable {
            return Ok(Some(layer.index_of(entry).await?.kind(entry)));
        }
    }
    Ok(None)
}

async fn peel(view: &View, tag: ObjectId) -> Result<Option<ObjectId>, EngineError> {
    let mut at = tag;
    for _ in 0..TAG_DEPTH_MAX {
        match view.object(&at).await? {
            Some((ObjectKind::Tag, content)) => match TagRef::parse(view.object_format(), &content) {
                Ok(tag) => at = tag.target,
                Err(_) => return Ok(None),
            },
            Some(_) => return Ok(Some(at)),
            None => return Ok(None),
        }
    }
    Ok(None)
}
