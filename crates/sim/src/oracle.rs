//! What must hold of what nodes show.

use crate::forge::{FORMAT, Forge};
use crate::log_store::SharedLogs;
use crate::node::Node;
use cuesta_engine::upload::{UploadRequest, plan};
use cuesta_engine::{EngineError, View};
use cuesta_format::{Edit, Entry, LogId};
use cuesta_git::ObjectId;
use futures::TryStreamExt;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Refs by name.
pub type Refs = BTreeMap<String, ObjectId>;

/// The refs of a view.
pub fn refs_of(view: &View) -> Refs {
    let refs = view.state().refs().iter();
    refs.map(|(name, target)| (text(name.as_bytes()), target.oid)).collect()
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Reads everything that `tips` reach, object by object, and compares it with what was pushed. Only outages are errors.
pub async fn check_closure(view: &View, forge: &Mutex<Forge>, tips: &[ObjectId]) -> Result<(), EngineError> {
    let closure: Vec<ObjectId> = forge.lock().closure(tips).into_iter().collect();
    for oids in closure.chunks(64) {
        let objects = view.objects(oids).await?;
        let forge = forge.lock();
        for (oid, object) in oids.iter().zip(objects) {
            let made = forge.object(oid).expect("it is in the closure");
            let (kind, content) = object.unwrap_or_else(|| panic!("{} {oid} is missing in {view:?}", made.kind));
            assert_eq!(
                (kind, &content),
                (made.kind, &made.content),
                "{oid} is not what was pushed"
            );
        }
    }
    Ok(())
}

/// Fetches `wants` as a client that has everything `common` reach, and looks whether it is then whole.
pub async fn check_fetch(
    view: &View,
    forge: &Mutex<Forge>,
    wants: Vec<ObjectId>,
    common: Vec<ObjectId>,
    random: u8,
) -> Result<(), EngineError> {
    let request = UploadRequest {
        wants: wants.clone(),
        common: common.clone(),
        thin: random & 1 == 1,
        ofs_delta: random & 2 == 2,
        ..UploadRequest::default()
    };
    let pack: Vec<bytes::Bytes> = plan(view, &request).await?.stream().try_collect().await?;
    let forge = forge.lock();
    let known = forge.closure(&common);
    let base_of = if request.thin { known.clone() } else { BTreeSet::new() };
    let sent = forge.unpack(&pack.concat(), &base_of);
    for oid in forge.closure(&wants) {
        assert!(
            known.contains(&oid) || sent.contains(&oid),
            "{oid} was not sent for {wants:?} in {view:?}"
        );
    }
    Ok(())
}

/// The repository checks itself, layer by layer, and finds no damage.
pub async fn check_repository(node: &Node) {
    let report = node.repository.fsck(false, Arc::new(|_| ())).await;
    let report = report.unwrap_or_else(|error| panic!("an observer cannot check: {error}"));
    assert_eq!(report.damages, 0, "{:?}", report.findings);
}

/// The edits of a log, each with the entry it came in.
pub fn edits_of(logs: &SharedLogs, log: LogId) -> Vec<(u64, Edit)> {
    let mut edits = Vec::new();
    for (number, bytes) in logs.entries(log).iter().enumerate() {
        let entry = Entry::decode(bytes).unwrap_or_else(|error| panic!("entry {number} is unreadable: {error}"));
        assert_eq!(entry.number, number as u64, "an entry knows its number");
        edits.extend(entry.edits.into_iter().map(|edit| (entry.number, edit)));
    }
    edits
}

/// The refs that a log amounts to, by a model of its own: every edit once, every `old` true.
pub fn replay(edits: &[(u64, Edit)]) -> Refs {
    let mut refs = Refs::new();
    let mut ids = BTreeSet::new();
    for (number, edit) in edits {
        assert!(ids.insert(edit.id.0), "edit {} is in the log twice", edit.id);
        let before = refs.clone();
        for update in &edit.refs {
            let name = text(update.name.as_bytes());
            assert_eq!(
                before.get(&name),
                update.old.as_ref(),
                "entry {number} replaces what '{name}' was not"
            );
            match &update.new {
                Some(target) => refs.insert(name, target.oid),
                None => refs.remove(&name),
            };
        }
    }
    refs
}

/// The null id, which commands use for "no such ref".
pub fn null() -> ObjectId {
    ObjectId::null(FORMAT)
}
