//! `cuesta import`: a repository taken over from a directory or from another host.

use super::progress::Progress;
use super::{ACTOR, print};
use crate::access::give_first_roles;
use crate::cli::ImportArgs;
use crate::config::{ENVIRONMENT_IMPORT_PASSWORD, Settings, Visibility};
use crate::remote::{Credentials, Remote};
use anyhow::bail;
use cuesta_engine::import::{ImportOptions, ImportProgress, ImportReport, OnProgress};
use cuesta_engine::{Engine, RepositoryName};
use std::path::PathBuf;
use std::sync::Arc;

pub(super) async fn run(engine: &Engine, settings: &Settings, arguments: &ImportArgs) -> anyhow::Result<()> {
    let name = RepositoryName::parse(&arguments.name)?;
    let options = ImportOptions {
        exact: arguments.exact,
        strict: !arguments.no_strict,
        alternates: arguments.alternates,
        actor: ACTOR.to_owned(),
    };
    let progress = Arc::new(Progress::new(arguments.quiet));
    let imported = match remote(arguments)? {
        Some(remote) => from_remote(engine, &name, &remote, &options, &progress).await,
        None => {
            let source = PathBuf::from(&arguments.source);
            let imported = engine.import_directory(&name, source, &options, on_progress(&progress));
            imported.await.map_err(anyhow::Error::from)
        }
    };
    progress.finish();
    let report = imported?;
    give_first_roles(engine, &name, settings.new_repositories == Visibility::Public, ACTOR).await?;
    for warning in &report.warnings {
        eprintln!("warning: {warning}");
    }
    match arguments.quiet {
        true => Ok(()),
        false => print(&summary(&report)),
    }
}

/// The remote that the source names, if it is a URL and no directory.
fn remote(arguments: &ImportArgs) -> anyhow::Result<Option<Remote>> {
    if !arguments.source.contains("://") {
        return Ok(None);
    }
    if arguments.exact {
        bail!("--exact needs a directory: a remote shows neither its settings nor what is unreachable");
    }
    // Not a flag: others see those.
    let password = std::env::var(ENVIRONMENT_IMPORT_PASSWORD).ok();
    let credentials = arguments
        .user
        .as_deref()
        .map(|user| Credentials::new(user, password.as_deref()));
    Ok(Some(Remote::new(&arguments.source, credentials)?))
}

async fn from_remote(
    engine: &Engine,
    name: &RepositoryName,
    remote: &Remote,
    options: &ImportOptions,
    progress: &Arc<Progress>,
) -> anyhow::Result<ImportReport> {
    let discovered = remote.discover().await?;
    let repository = engine.repository(name).await?;
    let wanted = discovered.refs.refs.values().copied();
    let (wants, haves, shallow) = match &repository {
        Some(repository) => {
            let view = repository.view().await?;
            let haves = view.refs().map(|shown| shown.peeled.unwrap_or(shown.oid)).collect();
            (
                repository.missing(wanted).await?,
                haves,
                view.state().shallow().to_vec(),
            )
        }
        None => (wanted.collect(), Vec::new(), Vec::new()),
    };
    let shown = progress.clone();
    let on_text = Arc::new(move |text: &str| shown.show("remote", 0, None, text));
    let fetched = discovered.fetch(remote, wants, haves, shallow, on_text).await?;
    let (format, refs, pack) = (fetched.format, fetched.refs, fetched.pack);
    let imported = engine.import_remote(name, format, refs, pack, options, on_progress(progress));
    Ok(imported.await?)
}

fn on_progress(progress: &Arc<Progress>) -> OnProgress {
    let progress = progress.clone();
    Arc::new(move |at| match at {
        ImportProgress::Reading {
            objects,
            bytes,
            bytes_total,
        } => progress.show(
            "reading objects",
            bytes,
            bytes_total,
            &format!("{objects} objects, {} MiB", bytes >> 20),
        ),
        ImportProgress::Checking { objects } => {
            progress.show("checking objects", 0, None, &format!("{objects} objects"))
        }
        ImportProgress::Storing { objects } => progress.show("storing layers", 0, None, &format!("{objects} objects")),
    })
}

fn summary(report: &ImportReport) -> String {
    if report.number.is_none() {
        return "nothing to do: the repository has it all\n".to_owned();
    }
    let (created, updated, deleted) = (report.refs_created, report.refs_updated, report.refs_deleted);
    format!(
        "{} objects read; {created} refs created, {updated} updated, {deleted} deleted\n",
        report.objects_read
    )
}
