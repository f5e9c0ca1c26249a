//! Layers that clients fetch from the bucket, by URLs that the store itself signed.

use super::Check;
use crate::bucket::BucketKind;
use crate::client::Environment;
use crate::cuesta::Cuesta;
use anyhow::{Context, Result, ensure};

/// Size of the file that makes the layer worth a URI.
const FILE_BYTES: usize = 3 << 20;

pub(super) fn checks() -> Vec<Check> {
    vec![Check {
        name: "uris::clones_read_the_bucket",
        run: clones_read_the_bucket,
    }]
}

fn clones_read_the_bucket(bucket: BucketKind) -> Result<()> {
    let root = tempfile::tempdir()?;
    let mut options = bucket.options(root.path())?;
    options.set("git", "cuesta.packfileUris=true\ncuesta.uriBytesMin=1000");
    let server = Cuesta::start(&options)?;
    let own = format!("http://{}/", server.address());
    let url = format!("{own}suite/uris.git");
    let environment = Environment::new(root.path())?;
    // What git prints.
    let git = |arguments: &[&str]| -> Result<String> {
        let mut command = environment.git(root.path());
        let output = command.env("GIT_TRACE", "1").args(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "git {arguments:?} failed: {said}");
        Ok(said.into_owned())
    };
    git(&["init", "--quiet", "--initial-branch=main", "source"])?;
    let mut content = vec![0; FILE_BYTES];
    fastrand::Rng::with_seed(3).fill(&mut content);
    std::fs::write(root.path().join("source/large"), content)?;
    git(&["-C", "source", "add", "."])?;
    git(&["-C", "source", "commit", "--quiet", "--message=large"])?;
    git(&["-C", "source", "push", "--quiet", &url, "main"])?;

    let asks = ["-c", "protocol.version=2", "-c", "fetch.uriProtocols=http,https"];
    let clone = [&asks[..], &["clone", "--quiet", &url, "clone"]].concat();
    let trace = git(&clone)?;
    git(&["-C", "clone", "fsck", "--full", "--strict"])?;
    let fetch = trace.lines().find(|line| line.contains("http-fetch"));
    let fetch = fetch.with_context(|| format!("no layer was fetched by itself:\n{trace}"))?;
    let by_itself = fetch.contains(&own);
    ensure!(
        by_itself == (bucket == BucketKind::Directory),
        "a layer in bucket '{bucket}' came from elsewhere: {fetch}"
    );
    ensure!(
        server.log()?.contains("payload") == by_itself,
        "the server sent the layer, too, or not at all:\n{}",
        server.log()?
    );
    server.terminate()
}
