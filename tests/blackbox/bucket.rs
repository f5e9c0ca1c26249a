//! The buckets that the suite runs over.

use crate::cuesta::{Cuesta, Options};
use crate::session::Host;
use crate::stock;
use anyhow::{Context, Result, bail};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where Cuesta keeps repositories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BucketKind {
    /// Nowhere: stock git stands in for Cuesta.
    None,
    /// A local directory.
    Directory,
    /// An S3-compatible server.
    S3,
    /// An Azure Blob server.
    Azure,
}

/// The buckets that the environment asks for.
pub(crate) fn chosen() -> Result<Vec<BucketKind>> {
    let names = std::env::var("CUESTA_TEST_BUCKETS").unwrap_or_else(|_| "dir".to_owned());
    names.split(',').map(parse).collect()
}

fn parse(name: &str) -> Result<BucketKind> {
    Ok(match name {
        "none" => BucketKind::None,
        "dir" => BucketKind::Directory,
        "s3" => BucketKind::S3,
        "azure" => BucketKind::Azure,
        _ => bail!("unknown bucket '{name}' in CUESTA_TEST_BUCKETS"),
    })
}

impl fmt::Display for BucketKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Directory => "dir",
            Self::S3 => "s3",
            Self::Azure => "azure",
        })
    }
}

impl BucketKind {
    /// Whether there is a network between.
    pub(crate) fn is_remote(self) -> bool {
        matches!(self, Self::S3 | Self::Azure)
    }

    /// A server over a part of the bucket that nothing else uses.
    pub(crate) fn host(self) -> Result<Host> {
        if self == Self::None {
            return stock::host();
        }
        let directory = tempfile::tempdir()?;
        let server = Cuesta::start(&self.options(directory.path())?)?;
        Ok(Host::Cuesta { server, directory })
    }

    /// Options of a server whose data is below `directory`.
    pub(crate) fn options(self, directory: &Path) -> Result<Options> {
        let mut options = Options::new(directory.join("data"));
        match self {
            Self::None | Self::Directory => {}
            Self::S3 => {
                options.set("bucket", &url("s3", "CUESTA_TEST_S3_BUCKET"));
                options.set("bucket_region", "us-east-1");
                let names = ["ENDPOINT", "ACCESS_KEY", "SECRET_KEY"];
                set_access(&mut options, names.map(|name| format!("CUESTA_TEST_S3_{name}")))?;
            }
            Self::Azure => {
                options.set("bucket", &url("az", "CUESTA_TEST_AZURE_CONTAINER"));
                let names = ["ENDPOINT", "ACCOUNT", "KEY"];
                set_access(&mut options, names.map(|name| format!("CUESTA_TEST_AZURE_{name}")))?;
            }
        }
        Ok(options)
    }
}

fn set_access(options: &mut Options, variables: [String; 3]) -> Result<()> {
    let settings = ["bucket_endpoint", "bucket_access_key_id", "bucket_secret_access_key"];
    for (setting, variable) in settings.into_iter().zip(variables) {
        let value = std::env::var(&variable).with_context(|| format!("'{variable}' is not set"))?;
        options.set(setting, &value);
    }
    options.set("bucket_allow_http", "true");
    Ok(())
}

/// A prefix of the bucket that no other server uses, in this run or another.
fn url(scheme: &str, variable: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = std::env::var(variable).unwrap_or_else(|_| "cuesta".to_owned());
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{scheme}://{name}/run-{:016x}-{number}", fastrand::u64(..))
}
