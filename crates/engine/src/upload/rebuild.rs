//! Entries made anew: whole objects instead of deltas on what the client does not have.

use super::Plan;
use crate::graph::Position;
use crate::{EngineError, objects};
use cuesta_git::pack::{EntryHeader, EntryKind};
use cuesta_git::zlib::Deflater;
use std::sync::Arc;

/// The objects at `positions`, each as a pack entry that is no delta.
pub(super) async fn entries(
    plan: Arc<Plan>,
    positions: Vec<Position>,
) -> Result<Vec<(Position, Vec<u8>)>, EngineError> {
    let locations = objects::locations(&plan.graph, &positions)?;
    let objects = objects::read(&plan.view, &locations).await?;
    let world = plan.view.world();
    let level = world.options.deflate_level;
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
