//! Background work that nodes do beside requests.

use crate::log_store::FaultyLog;
use crate::node::{Node, Shared};
use bytes::Bytes;
use cuesta_engine::EngineError;
use cuesta_format::checkpoint_key;
use cuesta_ledger::{Base, LogStore};
use std::sync::Arc;

/// One pass of one owner: a flush, a merge or a checkpoint. Says what it did.
pub async fn pass(node: &Node, choice: u8) -> Result<String, EngineError> {
    let repository = &node.repository;
    Ok(match choice % 8 {
        0..4 => format!("flushed {:?}", repository.flush().await?),
        4..7 => format!("merged {:?}", repository.maintain().await?),
        _ => format!("checkpoint {:?}", repository.write_checkpoint().await?),
    })
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
