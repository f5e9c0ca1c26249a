//! The ways to a repository that scenarios take: over which transport, and with which object format.

use crate::bucket::BucketKind;
use crate::format::Format;
use anyhow::{Context, Result};
use std::fmt;

/// What carries a client's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Http,
    Ssh,
    /// Reads over `git://`; pushes go over HTTP.
    Git,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Ssh => "ssh",
            Self::Git => "git",
        })
    }
}

/// A transport and an object format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// What carries requests.
    pub(crate) transport: Transport,
    /// What names objects.
    pub(crate) format: Format,
}

impl Way {
    const fn new(transport: Transport, format: Format) -> Self {
        Self { transport, format }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.transport, self.format)
    }
}

/// Every way. The first and the last differ in both transport and format: where time is dear, they do.
const ALL: [Way; 5] = [
    Way::new(Transport::Http, Format::Sha1),
    Way::new(Transport::Http, Format::Sha256),
    Way::new(Transport::Ssh, Format::Sha1),
    Way::new(Transport::Git, Format::Sha1),
    Way::new(Transport::Ssh, Format::Sha256),
];

/// The ways that a bucket's scenarios take: those that the environment asks for, or, over a directory, all, and elsewhere two.
pub(crate) fn chosen(bucket: BucketKind) -> Result<Vec<Way>> {
    let [first, .., last] = ALL;
    match std::env::var("CUESTA_TEST_WAYS") {
        Ok(names) => names.split(',').map(parse).collect(),
        Err(_) if bucket.is_remote() => Ok(vec![first, last]),
        Err(_) => Ok(ALL.to_vec()),
    }
}

fn parse(name: &str) -> Result<Way> {
    let found = ALL.into_iter().find(|way| way.to_string() == name);
    found.with_context(|| format!("unknown way '{name}' in CUESTA_TEST_WAYS"))
}
