//! `cuesta serve`.

use super::print;
use crate::background::Background;
use crate::config::Settings;
use crate::http::listener;
use crate::logs;
use crate::node::Node;
use crate::storage::{self, Role};
use anyhow::{Context, anyhow};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Serves until SIGTERM or SIGINT, then drains.
pub(super) async fn run(settings: &Settings) -> anyhow::Result<()> {
    settings.check_exposure().map_err(|refusal| anyhow!(refusal))?;
    logs::start(settings).map_err(|error| anyhow!(error))?;
    // Taken before anything is opened, so that an early signal drains too.
    let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let listener = TcpListener::bind(settings.listen)
        .await
        .with_context(|| format!("cannot listen on '{}'", settings.listen))?;
    let node = Node::new(settings.clone(), storage::open(settings, Role::Server).await?);
    let background = Background::start(node.clone());
    announce(&listener)?;
    let stopping = node.clone();
    let stop = async move {
        wait(terminate, interrupt).await;
        tracing::info!("draining: no new connections, requests in flight end");
        stopping.drain();
    };
    let drained = listener::serve(node.clone(), listener, stop).await;
    if !drained {
        tracing::warn!(in_flight = node.metrics.in_flight(), "requests in flight were cut off");
    }
    background.finish(Duration::from_secs(settings.drain_seconds_max)).await;
    tracing::info!("stopped");
    Ok(())
}

async fn wait(mut terminate: Signal, mut interrupt: Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

fn announce(listener: &TcpListener) -> anyhow::Result<()> {
    let address = listener.local_addr()?;
    print(&format!(
        "cuesta {version} serves http://{address}/\n\nPush a repository:\n  git push http://{address}/alice/notes.git main\n",
        version = env!("CARGO_PKG_VERSION"),
    ))
}
