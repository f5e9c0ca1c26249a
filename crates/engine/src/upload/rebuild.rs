//! Entries made anew: whole objects instead of deltas on what the client does not have.

use super::{Plan, answers};
use crate::graph::Position;
use crate::{EngineError, objects};
use cuesta_git::pack::{EntryHeader, EntryKind};
use cuesta_git::zlib::Deflater;
use std::collections::HashMap;
use std::sync::Arc;

/// The objects at `positions`, each as a pack entry that is no delta: as a kept answer has it, or else made here.
pub(super) async fn entries(
    plan: Arc<Plan>,
    positions: Vec<Position>,
) -> Result<Vec<(Position, Vec<u8>)>, EngineError> {
    let mut kept = match &plan.whole {
        Some(whole) => answers::entries(&plan.view, &plan.graph, whole, &positions).await?,
        None => HashMap::new(),
    };
    let others = positions.iter().filter(|position| !kept.contains_key(*position));
    let mut made = made(&plan, others.copied().collect()).await?.into_iter();
    let mut entry = |position: Position| {
        let kept = kept.remove(&position).map(|entry| (position, entry));
        kept.or_else(|| made.next())
    };
    let all: Option<Vec<_>> = positions.into_iter().map(&mut entry).collect();
    all.ok_or(EngineError::Internal("an entry was not made"))
}

async fn made(plan: &Arc<Plan>, positions: Vec<Position>) -> Result<Vec<(Position, Vec<u8>)>, EngineError> {
    let locations = objects::locations(&plan.graph, &positions)?;
    let objects = objects::read(&plan.view, &locations).await?;
    let world = plan.view.world();
    let level = world.options.answer_deflate_level;
    let deflate = move || {
        let mut deflater = Deflater::new(level);
        let made = positions
            .into_iter()
            .zip(objects)
            .map(|(position, object)| Ok((position, entry(&object, &mut deflater)?)));
        made.collect()
    };
    world.workers.run(deflate).await
}

fn entry((kind, content): &objects::Object, deflater: &mut Deflater) -> Result<Vec<u8>, EngineError> {
    let mut bytes = Vec::new();
    EntryHeader {
        kind: EntryKind::Object(*kind),
        size: content.len() as u64,
    }
    .encode(&mut bytes);
    deflater
        .deflate(content, &mut bytes)
        .map_err(|_| EngineError::Internal("deflate failed"))?;
    Ok(bytes)
}
