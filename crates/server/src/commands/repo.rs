//! `cuesta repo …`: repositories made, listed, shown, changed.

use super::progress::Progress;
use super::{ACTOR, print};
use crate::access::{Identity, create_repository};
use crate::cli::{FormatArg, RepoCommand};
use crate::config::{Settings, Visibility, canonical_key};
use crate::storage::Opened;
use anyhow::{Context, anyhow, bail};
use cuesta_engine::{Engine, Repository, RepositoryName, Watch};
use cuesta_git::{ObjectFormat, RefName};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// Names read from the directory at a time.
const NAMES_PER_PAGE: usize = 1000;
/// Time between two looks at how far a command is.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

pub(super) async fn run(storage: &Opened, settings: &Settings, command: &RepoCommand) -> anyhow::Result<()> {
    let engine = &storage.engine;
    match command {
        RepoCommand::Create { name, object_format } => {
            let is_public = settings.new_repositories == Visibility::Public;
            let (name, format) = (parse(name)?, format(*object_format));
            create_repository(engine, &storage.entropy, &name, format, &Identity::Unchecked, is_public).await?;
            Ok(())
        }
        RepoCommand::List => list(engine).await,
        RepoCommand::Show { name } => show(engine, name).await,
        RepoCommand::Delete { name } => Ok(engine.delete_repository(&parse(name)?, ACTOR).await?),
        RepoCommand::Rename { from, to } => Ok(engine.rename_repository(&parse(from)?, &parse(to)?, ACTOR).await?),
        RepoCommand::Compact { name, quiet } => compact(engine, name, *quiet).await,
        RepoCommand::SetHead { name, target } => set_head(engine, name, target).await,
        RepoCommand::Config { name, key: None, .. } => print_settings(engine, name).await,
        RepoCommand::Config {
            name,
            key: Some(key),
            value,
            unset,
        } => config(engine, name, key, value.as_deref(), *unset).await,
    }
}

/// The repository that a command names.
pub(super) async fn open(engine: &Engine, name: &str) -> anyhow::Result<Arc<Repository>> {
    let name = parse(name)?;
    let found = engine.repository(&name).await?;
    found.ok_or_else(|| anyhow!("repository '{name}' not found"))
}

fn parse(name: &str) -> anyhow::Result<RepositoryName> {
    Ok(RepositoryName::parse(name)?)
}

fn format(format: FormatArg) -> ObjectFormat {
    match format {
        FormatArg::Sha1 => ObjectFormat::Sha1,
        FormatArg::Sha256 => ObjectFormat::Sha256,
    }
}

async fn list(engine: &Engine) -> anyhow::Result<()> {
    let mut last: Option<String> = None;
    loop {
        let page = engine.directory().list("", last.as_deref(), NAMES_PER_PAGE).await?;
        let text: String = page.iter().map(|(name, _)| format!("{name}\n")).collect();
        print(&text)?;
        if page.len() < NAMES_PER_PAGE {
            return Ok(());
        }
        last = page.into_iter().next_back().map(|(name, _)| name);
    }
}

async fn show(engine: &Engine, name: &str) -> anyhow::Result<()> {
    let repository = open(engine, name).await?;
    let view = repository.view().await?;
    let state = view.state();
    let head = state.symrefs().get(&RefName::head());
    let metas = state.layers().iter().map(|record| record.meta);
    let (objects, bytes) = metas.fold((0u64, 0u64), |(objects, bytes), meta| {
        (
            objects + u64::from(meta.objects),
            bytes + meta.pack_bytes + meta.cue_bytes,
        )
    });
    let mut text = String::new();
    writeln!(text, "name           {}", parse(name)?)?;
    writeln!(text, "id             {}", repository.id())?;
    writeln!(text, "object format  {}", repository.object_format().name())?;
    writeln!(
        text,
        "HEAD           {}",
        head.map_or_else(|| "none".to_owned(), RefName::to_string)
    )?;
    writeln!(text, "refs           {}", state.refs().len())?;
    writeln!(text, "layers         {}", state.layers().len())?;
    writeln!(text, "objects        {objects}")?;
    writeln!(text, "bytes          {bytes}")?;
    writeln!(text, "log entries    {}", state.number())?;
    for (key, value) in state.settings() {
        writeln!(text, "setting        {key}={value}")?;
    }
    print(&text)
}

async fn compact(engine: &Engine, name: &str, quiet: bool) -> anyhow::Result<()> {
    let repository = open(engine, name).await?;
    let (watch, progress) = (Watch::default(), Progress::new(quiet));
    let show = || {
        let (done, total) = watch.progress();
        progress.show("compacting", done, Some(total).filter(|total| *total > 0), "");
    };
    let mut work = std::pin::pin!(repository.compact_whole(&watch));
    let done = loop {
        match tokio::time::timeout(PROGRESS_EVERY, &mut work).await {
            Ok(done) => break done?,
            Err(_) => show(),
        }
    };
    progress.finish();
    if quiet {
        return Ok(());
    }
    print(&format!(
        "layers      {} -> {}\npack bytes  {} -> {}\n",
        done.layers_before, done.layers_after, done.pack_bytes_before, done.pack_bytes_after
    ))
}

async fn set_head(engine: &Engine, name: &str, target: &str) -> anyhow::Result<()> {
    let target = RefName::new(target.as_bytes()).with_context(|| "expected the full name of a ref")?;
    if !target.as_bytes().starts_with(b"refs/heads/") {
        bail!("HEAD can only name a branch below 'refs/heads/'");
    }
    Ok(open(engine, name).await?.set_head(target, ACTOR).await?)
}

async fn print_settings(engine: &Engine, name: &str) -> anyhow::Result<()> {
    let view = open(engine, name).await?.view().await?;
    let line = |(key, value): (&String, &String)| format!("{key}={value}\n");
    print(&view.state().settings().iter().map(line).collect::<String>())
}

async fn config(engine: &Engine, name: &str, key: &str, value: Option<&str>, unset: bool) -> anyhow::Result<()> {
    let repository = open(engine, name).await?;
    let key = canonical_key(key).map_err(anyhow::Error::msg)?;
    if value.is_some() || unset {
        return Ok(repository.set_setting(&key, value, ACTOR).await?);
    }
    let view = repository.view().await?;
    match view.state().settings().get(&key) {
        Some(value) => print(&format!("{value}\n")),
        None => bail!("'{key}' is not set"),
    }
}
