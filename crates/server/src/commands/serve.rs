//! `cuesta serve`.

use super::print;
use crate::background::Background;
use crate::config::{Authentication, Settings};
use crate::git_transport;
use crate::http::listener;
use crate::logs;
use crate::node::Node;
use crate::ssh;
use crate::storage::{self, Role};
use crate::tls::Tls;
use anyhow::{Context, anyhow};
use futures::FutureExt;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Serves until SIGTERM or SIGINT, then drains.
pub(super) async fn run(settings: &Settings) -> anyhow::Result<()> {
    settings.check_exposure().map_err(|refusal| anyhow!(refusal))?;
    let _logs = logs::start(settings).map_err(|error| anyhow!(error))?;
    // Taken before anything is opened, so that an early signal drains too.
    let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let listener = bind(settings.listen).await?;
    let ssh = match settings.ssh_address().map_err(|refusal| anyhow!(refusal))? {
        Some(address) => Some((bind(address).await?, ssh::host_key::load(settings)?)),
        None => None,
    };
    let git = match settings.git_address().map_err(|refusal| anyhow!(refusal))? {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let node = Node::new(settings.clone(), storage::open(settings, Role::Server).await?);
    let tls = open_tls(&node)?;
    if settings.is_readable_on_the_way() {
        tracing::warn!(
            "without TLS, credentials are refused from beyond this machine: only what is public is served there"
        );
    }
    let background = Background::start(node.clone());
    let over_ssh = ssh.as_ref().map(|(listener, _)| listener);
    announce(&listener, over_ssh, git.as_ref(), settings)?;
    let stopping = node.clone();
    let stop = async move {
        wait(terminate, interrupt).await;
        tracing::info!("draining: no new connections, requests in flight end");
        stopping.drain();
    };
    let stop = stop.boxed().shared();
    let over_ssh = async {
        match ssh {
            Some((listener, key)) => ssh::listener::serve(node.clone(), listener, key, stop.clone()).await,
            None => true,
        }
    };
    let over_git = async {
        match git {
            Some(listener) => git_transport::listener::serve(node.clone(), listener, stop.clone()).await,
            None => true,
        }
    };
    let over_http = listener::serve(node.clone(), listener, tls, stop.clone());
    let drained: [bool; 3] = tokio::join!(over_http, over_ssh, over_git).into();
    if drained.contains(&false) {
        tracing::warn!(in_flight = node.metrics.in_flight(), "requests in flight were cut off");
    }
    background.finish(Duration::from_secs(settings.drain_seconds_max)).await;
    tracing::info!("stopped");
    Ok(())
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.with_context(|| format!("cannot listen on '{address}'"))
}

async fn wait(mut terminate: Signal, mut interrupt: Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

fn open_tls(node: &Node) -> anyhow::Result<Option<Tls>> {
    let settings = &node.settings;
    if !settings.serves_tls() {
        return Ok(None);
    }
    let (certificate, key) = (&settings.tls_certificate, &settings.tls_key);
    Ok(Some(Tls::open(
        certificate,
        key,
        node.clock.clone(),
        node.workers.clone(),
    )?))
}

fn announce(
    listener: &TcpListener,
    ssh: Option<&TcpListener>,
    git: Option<&TcpListener>,
    settings: &Settings,
) -> anyhow::Result<()> {
    let address = listener.local_addr()?;
    let scheme = if settings.serves_tls() { "https" } else { "http" };
    let ssh = match ssh {
        Some(listener) => format!("cuesta serves ssh://git@{}/\n", listener.local_addr()?),
        None => String::new(),
    };
    let git = match git {
        Some(listener) => format!("cuesta serves git://{}/\n", listener.local_addr()?),
        None => String::new(),
    };
    print(&format!(
        "cuesta {version} serves {scheme}://{address}/\n{ssh}{git}\nPush a repository:\n  git push {scheme}://{address}/alice/notes.git main\n",
        version = env!("CARGO_PKG_VERSION"),
    ))?;
    if settings.authentication == Authentication::Accounts {
        print("\nMake a user and a token first:\n  cuesta user add alice\n  cuesta token create alice\n")?;
    }
    Ok(())
}
