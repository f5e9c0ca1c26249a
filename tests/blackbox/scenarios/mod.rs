//! Every scenario, by what a user does.

mod concurrent;
mod crash;
mod damaged;
mod exchanges;
mod fetch;
mod files;
mod http;
mod large;
mod libraries;
mod misuse;
mod offers;
mod partial;
mod push;
mod raw;
mod strict;
mod uris;

use crate::bucket::BucketKind;
use crate::client::Version;
use crate::format::Format;
use crate::session::Session;
use crate::way::{Transport, Way};
use anyhow::Result;
use std::sync::Arc;

/// A scenario's steps.
type Run = dyn Fn(&Session<'_>) -> Result<()> + Send + Sync;

/// What is done to both servers and compared.
#[derive(Clone)]
pub(crate) struct Scenario {
    /// Its name, `<family>::<what>`; also its repository's.
    pub(crate) name: String,
    /// What it does.
    pub(crate) run: Arc<Run>,
    /// An environment variable without which it cannot run.
    needs: Option<&'static str>,
    /// Whether clients read what they are shown, so that it can be done over `git://`, too.
    reads: bool,
    /// The one transport that it is about, if it is.
    transport: Option<Transport>,
    /// The one object format that it is about, if it is.
    format: Option<Format>,
    /// The first git that can be its client on a way.
    since: fn(Way) -> Version,
}

impl Scenario {
    fn new(name: impl Into<String>, run: impl Fn(&Session<'_>) -> Result<()> + Send + Sync + 'static) -> Self {
        Self {
            name: name.into(),
            run: Arc::new(run),
            needs: None,
            reads: false,
            transport: None,
            format: None,
            since: |_| (0, 0),
        }
    }

    /// For scenarios whose client must be so new, on the ways that need it.
    fn since(mut self, since: fn(Way) -> Version) -> Self {
        self.since = since;
        self
    }

    /// For scenarios that clone over a version of the protocol. Over HTTP and below v2 git could not always where ids are those
    /// of sha256.
    fn clones_over(self, version: &str) -> Self {
        if version == "2" {
            return self;
        }
        self.since(|way| match (way.transport, way.format) {
            (Transport::Http, Format::Sha256) => (2, 32),
            _ => (0, 0),
        })
    }

    /// For scenarios about HTTP itself.
    fn over_http(mut self) -> Self {
        self.transport = Some(Transport::Http);
        self
    }

    /// For scenarios that are about reading.
    fn of_reads(mut self) -> Self {
        self.reads = true;
        self
    }

    /// For scenarios of clients that know no other object format.
    fn with_sha1(mut self) -> Self {
        self.format = Some(Format::Sha1);
        self
    }

    /// What it is about that `way` is not, or what the client is not, for the listing; nothing where it can go that way.
    pub(crate) fn only(&self, way: Way, client: Version) -> Option<String> {
        let (major, minor) = (self.since)(way);
        let transport = self.transport.filter(|transport| *transport != way.transport);
        let format = self.format.filter(|format| *format != way.format);
        let more = way.transport == Transport::Git && !self.reads;
        transport
            .map(|transport| format!("{transport} only"))
            .or_else(|| more.then(|| "not only reads".to_owned()))
            .or_else(|| format.map(|format| format!("{format} only")))
            .or_else(|| (client < (major, minor)).then(|| format!("since git {major}.{minor}")))
    }

    /// The environment variable that it lacks.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        self.needs.filter(|name| std::env::var_os(name).is_none())
    }
}

/// What is done to Cuesta alone.
pub(crate) struct Check {
    /// Its name, `<family>::<what>`.
    pub(crate) name: &'static str,
    /// What it does, with servers of its own.
    pub(crate) run: fn(BucketKind) -> Result<()>,
}

/// All scenarios.
pub(crate) fn compared() -> Vec<Scenario> {
    let families = [
        push::scenarios(),
        fetch::scenarios().into_iter().map(Scenario::of_reads).collect(),
        partial::scenarios().into_iter().map(Scenario::of_reads).collect(),
        raw::scenarios(),
        exchanges::scenarios().into_iter().map(Scenario::of_reads).collect(),
        offers::scenarios(),
        damaged::scenarios(),
        strict::scenarios(),
        http::scenarios(),
        files::scenarios(),
        concurrent::scenarios(),
        libraries::scenarios(),
    ];
    families.into_iter().flatten().collect()
}

/// All checks.
pub(crate) fn checks() -> Vec<Check> {
    [crash::checks(), large::checks(), misuse::checks(), uris::checks()]
        .into_iter()
        .flatten()
        .collect()
}
