//! What `export-subst` may say of the commit that is archived.

use super::abbreviate;
use super::missing;
use crate::{EngineError, View};
use cuesta_git::pretty::Facts;
use cuesta_git::{HiddenRefs, ObjectId};

/// Cost: the commit is read, the layers' indexes are asked for their ids near it, and all refs are looked at once.
pub(super) async fn of(view: &View, commit: &ObjectId, hidden: &HiddenRefs) -> Result<Facts, EngineError> {
    let (_, content) = view.object(commit).await?.ok_or_else(|| missing(commit))?;
    let facts = Facts::new(view.object_format(), *commit, &content);
    let mut facts = facts.map_err(|error| EngineError::Refused(format!("commit {commit} cannot be read: {error}")))?;
    let graph = view.graph().await?;
    // A commit may have any number of parents.
    let abbreviated = move || {
        let named: Vec<ObjectId> = facts.named().collect();
        for oid in named {
            facts.abbreviate(oid, abbreviate::digits(&graph, &oid)?);
        }
        Ok::<_, EngineError>(facts)
    };
    let mut facts = view.world().workers.run(abbreviated).await?;
    facts.decorate(decorations(view, commit, hidden));
    Ok(facts)
}

/// The names of the refs that are at the commit, as git's log shows them: `HEAD` first, then from the last name to the
/// first; the branch that `HEAD` names stands behind an arrow.
fn decorations(view: &View, commit: &ObjectId, hidden: &HiddenRefs) -> Vec<String> {
    let refs = view
        .refs()
        .filter(|shown| shown.oid == *commit || shown.peeled == Some(*commit));
    let refs = refs.filter(|shown| !hidden.hides(shown.name) && !shown.symref.is_some_and(|end| hidden.hides(end)));
    let mut names: Vec<&[u8]> = refs.map(|shown| shown.name.as_bytes()).collect();
    names.reverse();
    let mut shown = Vec::new();
    if let crate::Head::Born(head) = view.head()
        && head.oid == *commit
        && !head.symref.is_some_and(|end| hidden.hides(end))
    {
        let end = head.symref.map(|end| end.as_bytes());
        let at = end.and_then(|end| names.iter().position(|name| *name == end));
        shown.push(match at {
            Some(at) => format!("HEAD -> {}", short(names.remove(at))),
            None => "HEAD".to_owned(),
        });
    }
    shown.extend(names.into_iter().map(|name| {
        let tag = if name.starts_with(b"refs/tags/") { "tag: " } else { "" };
        format!("{tag}{}", short(name))
    }));
    shown
}

fn short(name: &[u8]) -> String {
    let spaces = [&b"refs/heads/"[..], b"refs/tags/", b"refs/remotes/"];
    let short = spaces
        .iter()
        .find_map(|space| name.strip_prefix(*space))
        .unwrap_or(name);
    String::from_utf8_lossy(short).into_owned()
}
