//! The `object-info` command: sizes of objects, without the objects (gitprotocol-v2, `object-info`).

use super::repository_options::RepositoryOptions;
use cuesta_engine::upload::may_have;
use cuesta_engine::{EngineError, View};
use cuesta_protocol::upload::answer::write_object_info;
use cuesta_protocol::upload::v2::ObjectInfo;
use cuesta_protocol::{Service, Version};

/// The whole answer. An object that could not be fetched is as unknown as one that is not there: its size, and that it is
/// there, are nobody's who may not have it.
///
/// Cost: a look-up for each object, in memory.
pub async fn write(view: &View, request: &ObjectInfo) -> Result<Vec<u8>, EngineError> {
    let options = RepositoryOptions::of(view);
    let (policy, hidden) = (options.wants(Version::V2, true), options.hidden(Service::UploadPack));
    let mut sizes = Vec::with_capacity(request.oids.len());
    for oid in &request.oids {
        let known = view.kind_and_size(oid).await?;
        let shown = known.is_some() && may_have(view, oid, policy, &hidden).await?;
        sizes.push(known.filter(|_| shown).map(|(_, size)| size));
    }
    let mut out = Vec::with_capacity(64 * sizes.len() + 16);
    write_object_info(&mut out, request, &sizes);
    Ok(out)
}
