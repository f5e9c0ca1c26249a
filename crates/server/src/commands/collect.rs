//! `cuesta collect`: deletes what nothing needs, or says what that is.

use super::{print, repo};
use cuesta_engine::{Engine, Needless, Repository};
use std::fmt::Write;

pub(super) async fn run(engine: &Engine, name: Option<&str>, dry_run: bool) -> anyhow::Result<()> {
    let mut tally = Tally::default();
    match name {
        Some(name) => collect(&*repo::open(engine, name).await?, dry_run, &mut tally).await?,
        None => {
            let state = engine.directory().log().fresh().await?;
            for record in state.names().values() {
                collect(&*engine.open_repository(*record).await?, dry_run, &mut tally).await?;
            }
            collect_rest(engine, dry_run, &mut tally).await?;
        }
    }
    tally.print(dry_run)
}

/// What was done, or would be.
#[derive(Default)]
struct Tally {
    needless: u64,
    bytes: u64,
    layers: usize,
    repositories: usize,
    waiting: usize,
}

async fn collect(repository: &Repository, dry_run: bool, tally: &mut Tally) -> anyhow::Result<()> {
    if dry_run {
        let (due, waiting) = repository.collectable().await?;
        tally.layers += due;
        tally.waiting += waiting;
    } else {
        let done = repository.collect().await?;
        tally.layers += done.deleted;
        tally.waiting += done.waiting;
    }
    tally.list(&repository.sweep(dry_run).await?)
}

/// Deleted repositories, and what has no name.
async fn collect_rest(engine: &Engine, dry_run: bool, tally: &mut Tally) -> anyhow::Result<()> {
    if dry_run {
        let (due, waiting) = engine.abandoned_due().await?;
        tally.repositories += due;
        tally.waiting += waiting;
    } else {
        let done = engine.collect_abandoned().await?;
        tally.repositories += done.deleted;
        tally.waiting += done.waiting;
    }
    tally.list(&engine.sweep(dry_run).await?)
}

impl Tally {
    /// Prints keys as they are found: a bucket may have many.
    fn list(&mut self, needless: &[Needless]) -> anyhow::Result<()> {
        let mut text = String::new();
        for Needless { key, bytes, why } in needless {
            writeln!(text, "{key} {bytes} ({why})")?;
            self.needless += 1;
            self.bytes += bytes;
        }
        print(&text)
    }

    fn print(&self, dry_run: bool) -> anyhow::Result<()> {
        let verb = if dry_run { "would delete" } else { "deleted" };
        print(&format!(
            "{verb} {} merged layers, {} repositories, and {} payloads of {} bytes that nothing names; {} wait for their \
             grace period\n",
            self.layers, self.repositories, self.needless, self.bytes, self.waiting
        ))
    }
}
