//! `cuesta fsck`: says what is damaged, one line each.

use super::progress::Progress;
use super::{print, repo};
use anyhow::bail;
use cuesta_engine::Engine;
use cuesta_engine::fsck::FsckProgress;
use std::sync::Arc;

pub(super) async fn run(engine: &Engine, name: &str, quick: bool, quiet: bool) -> anyhow::Result<()> {
    let repository = repo::open(engine, name).await?;
    let progress = Arc::new(Progress::new(quiet));
    let shown = progress.clone();
    let on_progress = Arc::new(move |at: FsckProgress| {
        let beside = format!("{}/{} layers", at.layers, at.layers_total);
        shown.show("checking layers", at.bytes, Some(at.bytes_total), &beside);
    });
    let report = repository.fsck(quick, on_progress).await;
    progress.finish();
    let report = report?;
    let lines: String = report.findings.iter().map(|finding| format!("{finding}\n")).collect();
    print(&lines)?;
    match report.damages {
        0 => Ok(()),
        1 => bail!("'{name}' is damaged"),
        damages => bail!("'{name}' is damaged in {damages} places"),
    }
}
