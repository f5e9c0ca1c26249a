//! A stored layer's pack, taken apart again, beside the cue that describes it.
//!
//! Whoever fed the pack has seen that it is whole and every object sound; here each value of the cue is compared with what
//! the pack really holds, and each segment with one cut anew.

use super::entries::{Entries, Stored};
use super::intake::Settled;
use super::tips::Reached;
use cuesta_format::{Base, Cue, Link};
use cuesta_git::ObjectId;
use std::collections::{HashMap, HashSet};

impl Settled {
    /// Compares entries: where they are, what they hold, what they are based on. Answers what differs.
    pub(crate) fn audit_entries(&self, cue: &Cue) -> Vec<String> {
        let entries = &self.parsed.entries;
        if entries.len() != cue.entries.len() {
            return vec![format!(
                "the pack has {} entries, the cue {}",
                entries.len(),
                cue.entries.len()
            )];
        }
        let differing = (0..entries.len()).filter_map(|entry| audit_entry(entries, cue, entry));
        differing.collect()
    }

    /// Compares commits and tags with the objects that they are.
    pub(crate) fn audit_objects(&self, cue: &Cue, shallow: &HashSet<ObjectId>) -> Vec<String> {
        let mut found = Vec::new();
        for (segment, row) in (0..cue.segments.len()).zip(&self.parsed.inspector.commits) {
            let oid = cue.oid(segment);
            let parents: Vec<ObjectId> = cue.segments.parents(segment).map(|link| cue.link_oid(link)).collect();
            let cut_off = parents.is_empty() && shallow.contains(&oid);
            if row.entry != segment {
                found.push(format!("segment {segment} has no commit"));
            } else if parents != row.commit.parents.as_slice() && !cut_off {
                found.push(format!("commit {oid}: the cue names other parents"));
            } else if cue.segments.root_tree(segment) != row.commit.tree {
                found.push(format!("commit {oid}: the cue names another tree"));
            } else if cue.segments.commit_time(segment) != row.commit.committer_time {
                found.push(format!("commit {oid}: the cue has another time"));
            }
        }
        for row in &self.parsed.inspector.tags {
            if cue.roots.tag_target(row.entry) != Some((row.target, row.target_kind)) {
                found.push(format!("tag {}: the cue names another object", cue.oid(row.entry)));
            }
        }
        found
    }

    /// Compares segments and root sets with those cut anew: what these need, those must name.
    pub(crate) fn audit_sets(&self, cue: &Cue, reached: &Reached) -> Vec<String> {
        let mut found = Vec::new();
        let (order, cut) = (&reached.order, &reached.cut);
        let rows = &self.parsed.inspector.commits;
        for (place, commit) in order.commits.iter().enumerate() {
            let Some(segment) = rows.get(commit.row as usize).map(|row| row.entry) else {
                continue;
            };
            let oid = cue.oid(segment);
            let generation = cut.generations.get(place).copied();
            if generation != Some(cue.segments.generation(segment)) {
                found.push(format!("commit {oid}: the cue has another generation"));
            }
            let own = cue.segments.trees(segment).chain(cue.segments.blobs(segment));
            let named = names(cue, own, cue.segments.links(segment));
            if let Some(missing) = self.set(reached, place).find(|needed| !named.contains(needed)) {
                found.push(format!("commit {oid}: its segment does not name {missing}"));
            }
        }
        let root_of: HashMap<ObjectId, u32> = (0..cue.roots.len()).map(|root| (cue.roots.oid(root), root)).collect();
        for (number, (oid, _, _)) in cut.roots.iter().enumerate() {
            let Some(root) = root_of.get(oid) else { continue };
            let own = cue.roots.trees(*root).chain(cue.roots.blobs(*root));
            let named = names(cue, own, cue.roots.links(*root));
            let mut set = self.set(reached, cut.segments.len() + number);
            if let Some(missing) = set.find(|needed| !named.contains(needed)) {
                found.push(format!("root {oid}: its set does not name {missing}"));
            }
        }
        found
    }

    /// The objects of a set that was cut anew: segments first, then roots.
    fn set<'a>(&'a self, reached: &'a Reached, number: usize) -> impl Iterator<Item = ObjectId> + 'a {
        let cut = &reached.cut;
        let at = move |number: usize| match number.checked_sub(cut.segments.len()) {
            None => cut.segments.get(number).copied(),
            Some(root) => cut.roots.get(root).map(|(_, _, set)| *set),
        };
        let before = number.checked_sub(1).and_then(at).unwrap_or_default();
        let set = at(number).unwrap_or(before);
        let entries = &self.parsed.entries;
        let trees = cut.trees.get(before.trees_end as usize..set.trees_end as usize);
        let blobs = cut.blobs.get(before.blobs_end as usize..set.blobs_end as usize);
        let links = cut.links.get(before.links_end as usize..set.links_end as usize);
        let own = trees
            .into_iter()
            .chain(blobs)
            .flatten()
            .map(|entry| entries.oid(*entry));
        let linked = links.into_iter().flatten().filter_map(|link| match link {
            Link::Local(entry) => Some(entries.oid(*entry)),
            Link::External(external) => cut.externals.get(*external as usize).copied(),
        });
        own.chain(linked)
    }
}

fn names(cue: &Cue, own: impl Iterator<Item = u32>, links: impl Iterator<Item = Link>) -> HashSet<ObjectId> {
    own.map(|entry| cue.oid(entry))
        .chain(links.map(|link| cue.link_oid(link)))
        .collect()
}

fn audit_entry(entries: &Entries, cue: &Cue, entry: u32) -> Option<String> {
    let oid = entries.oid(entry);
    let span = entries.span(entry);
    let start = entries.pack_offset(span.start);
    let base = match entries.stored(entry) {
        Stored::Whole => Base::None,
        Stored::Delta(base) => Base::Entry(base),
        Stored::Named(number) => {
            let named = entries.named_base(number);
            return match cue.entries.base(entry) {
                Base::External(external) if cue.externals.oid(external) == named => None,
                _ => Some(format!("entry {entry} ({oid}): the cue names another base")),
            };
        }
    };
    let what = if oid != cue.oid(entry) {
        format!("the cue says {}", cue.oid(entry))
    } else if entries.kind(entry) != Some(cue.entries.kind(entry)) {
        "the cue has another kind".to_owned()
    } else if entries.size(entry) != cue.entries.size(entry) {
        "the cue has another size".to_owned()
    } else if cue.entries.range(entry) != (start..start + (span.end - span.start)) {
        "the cue has another place".to_owned()
    } else if base != cue.entries.base(entry) {
        "the cue names another base".to_owned()
    } else {
        return None;
    };
    Some(format!("entry {entry} ({oid}): {what}"))
}
