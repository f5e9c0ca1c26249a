//! `cuesta cat` and `cuesta layers`: what a repository holds, as it is stored.

use super::{print, print_bytes, repo};
use anyhow::{Context, anyhow};
use cuesta_engine::Engine;
use cuesta_git::ObjectId;
use std::fmt::Write;

pub(super) async fn cat(engine: &Engine, name: &str, oid: &str) -> anyhow::Result<()> {
    let repository = repo::open(engine, name).await?;
    let oid =
        ObjectId::from_hex(repository.object_format(), oid.as_bytes()).context("expected an object id in full")?;
    let object = repository.view().await?.object(&oid).await?;
    let (_, content) = object.ok_or_else(|| anyhow!("object {oid} not found"))?;
    print_bytes(&content)
}

pub(super) async fn layers(engine: &Engine, name: &str) -> anyhow::Result<()> {
    let view = repo::open(engine, name).await?.view().await?;
    let mut text = format!(
        "{:<32} {:>5} {:>10} {:>10} {:>14} {:>12}  place\n",
        "layer", "level", "segments", "objects", "pack bytes", "cue bytes"
    );
    for record in view.state().layers() {
        let meta = record.meta;
        let place = match (record.is_inline(), meta.self_contained, meta.unreachable) {
            (true, ..) => "ledger",
            (false, _, true) => "bucket, unreachable",
            (false, true, _) => "bucket, self-contained",
            (false, false, _) => "bucket",
        };
        writeln!(
            text,
            "{:<32} {:>5} {:>10} {:>10} {:>14} {:>12}  {place}",
            meta.id.to_string(),
            meta.level,
            meta.segments,
            meta.objects,
            meta.pack_bytes,
            meta.cue_bytes
        )?;
    }
    print(&text)
}
