//! Background work that nodes do beside requests.

use crate::log_store::FaultyLog;
use crate::node::{Node, Shared};
use bytes::Bytes;
use cuesta_engine::{Compacted, EngineError, ErrorKind, Watch};
use cuesta_format::{Key, checkpoint_key, layers_prefix};
use cuesta_ledger::{Base, LogStore};
use futures::TryStreamExt;
use std::sync::Arc;

/// One pass of one owner: a flush, a merge, a checkpoint or a collection. Says what it did.
pub async fn pass(node: &Node, choice: u8) -> Result<String, EngineError> {
    let repository = &node.repository;
    Ok(match choice % 12 {
        0..4 => format!("flushed {:?}", repository.flush().await?),
        4..6 => format!("merged {:?}", repository.maintain().await?),
        6 => format!("compacted {:?}", compact(node).await?),
        7 => format!("checkpoint {:?}", repository.write_checkpoint().await?),
        8 | 9 => {
            let noted = repository.collect().await?;
            format!("collected {noted:?}, {:?}", repository.collect().await?)
        }
        10 => format!("collected {:?}", node.engine.collect_abandoned().await?),
        _ => sweep(node).await?,
    })
}

/// An operator looks for what nothing remembers; others may be quicker to name it.
async fn sweep(node: &Node) -> Result<String, EngineError> {
    let swept = async {
        let mut found = node.repository.sweep(false).await?;
        found.extend(node.engine.sweep(false).await?);
        Ok(found.len())
    };
    match swept.await {
        Err(EngineError::Conflict(reason)) => Ok(format!("sweep overtaken: {reason}")),
        swept => Ok(format!("swept {}", swept?)),
    }
}

/// A collector as it must not be: deletes layers that it finds in the bucket and not in the list, and says so to nobody.
pub async fn careless_sweep(node: &Node) -> Result<String, EngineError> {
    let (bucket, log) = (node.engine.bucket(), node.repository.id());
    let state = node.repository.log().fresh().await?;
    let listed: Vec<_> = bucket.list(&layers_prefix(log)).try_collect().await?;
    let mut count = 0;
    for listed in listed {
        let (Some(Key::LayerPack(_, layer)) | Some(Key::LayerCue(_, layer))) = Key::parse(&listed.key) else {
            continue;
        };
        if state.layer(layer).is_none() && state.retired().iter().all(|retired| retired.id != layer) {
            bucket.delete(&listed.key).await?;
            count += 1;
        }
    }
    Ok(format!("carelessly swept {count}"))
}

/// Whether an error is what comes of having taken longer than anything may take.
pub fn is_too_late(error: &EngineError, since: tokio::time::Instant) -> bool {
    error.kind() == ErrorKind::Corrupt && since.elapsed() >= crate::node::GRACE
}

/// Makes one layer of all, unless others are at it, too.
pub async fn compact(node: &Node) -> Result<Option<Compacted>, EngineError> {
    match node.repository.compact_whole(&Watch::default()).await {
        Ok(done) => Ok(Some(done)),
        Err(EngineError::Conflict(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a checkpoint of what the node knows, then lets the log begin `keep` entries before it.
pub async fn fold(shared: &Shared, node: &Node, keep: u64) -> Result<(), EngineError> {
    let log = node.repository.id();
    let state = node.repository.log().current();
    let Some(checkpoint) = state.checkpoint(log) else {
        return Ok(());
    };
    let bytes = Bytes::from(
        checkpoint
            .encode()
            .map_err(|_| EngineError::Internal("no checkpoint can be made"))?,
    );
    let key = checkpoint_key(log, state.number());
    node.engine.bucket().create_payload(&key, bytes).await?;
    let base = Base {
        first: state.number().saturating_sub(keep),
        checkpoint: Some(state.number()),
    };
    let logs = FaultyLog::new(Arc::clone(&shared.logs), node.link.clone(), shared.inline_bytes_max);
    Ok(logs.advance(log, base).await?)
}
