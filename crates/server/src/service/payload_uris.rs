//! Where clients find the layers that are not sent to them: URIs of this server, or of the bucket where it can sign its own.

use super::push_cert::now;
use super::repository_options::{BlobUri, PackfileUris, RepositoryOptions};
use crate::http::front::Call;
use bytes::Bytes;
use cuesta_engine::upload::Plan;
use cuesta_engine::{EngineError, PayloadId, Repository, View};
use cuesta_git::ObjectId;
use cuesta_protocol::Service;
use cuesta_protocol::upload::answer::write_bundle_uri;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What this server is reached by, and every client that knows bundles fetches them by.
const BUNDLE_SCHEMES: [&str; 2] = ["http", "https"];

/// Makes the URIs of one repository for one client.
pub struct PayloadUris {
    call: Arc<Call>,
    repository: Arc<Repository>,
    /// Whence layers come, if they are given by URI at all.
    from: Option<PackfileUris>,
    blobs: Vec<BlobUri>,
    /// What the client fetches by, such as `https`.
    schemes: Vec<Bytes>,
}

impl PayloadUris {
    /// For a client that understands these schemes; `None` if the options give nothing by URI.
    pub fn new(
        call: Arc<Call>,
        repository: Arc<Repository>,
        options: RepositoryOptions<'_>,
        schemes: &[Bytes],
    ) -> Option<Self> {
        let from = options.packfile_uris();
        let mut blobs = options.blob_uris(repository.object_format());
        blobs.retain(|blob| is_fit(&blob.uri, schemes));
        (from.is_some() || !blobs.is_empty()).then(|| Self {
            call,
            repository,
            from,
            blobs,
            schemes: schemes.to_vec(),
        })
    }

    /// Whether layers are given by URI.
    pub fn give_layers(&self) -> bool {
        self.from.is_some()
    }

    /// The blobs that the client can fetch by itself.
    pub fn blobs(&self) -> Vec<ObjectId> {
        self.blobs.iter().map(|blob| blob.oid).collect()
    }

    /// The checksums and URIs of what a plan leaves out; `None` if the client could not fetch all of it.
    pub async fn of(&self, plan: &Plan) -> Result<Option<Vec<(String, String)>>, EngineError> {
        let left_out = self.blobs.iter().filter(|blob| plan.left_out().contains(&blob.oid));
        let mut uris: Vec<_> = left_out.map(|blob| (blob.pack.to_string(), blob.uri.clone())).collect();
        for pack in plan.offloaded().await? {
            match self.uri(&pack.id).await? {
                Some(uri) => uris.push((pack.checksum.to_string(), uri)),
                None => return Ok(None),
            }
        }
        Ok(Some(uris))
    }

    async fn uri(&self, id: &PayloadId) -> Result<Option<String>, EngineError> {
        let is_fit = |uri: &String| is_fit(uri, &self.schemes);
        if self.from == Some(PackfileUris::Bucket) {
            let lifetime = Duration::from_secs(self.call.node.uris.seconds());
            let uri = self.repository.payload_url(id, lifetime).await?;
            if let Some(uri) = uri.filter(is_fit) {
                return Ok(Some(uri));
            }
        }
        Ok(own_uri(&self.call, &self.repository, id).filter(is_fit))
    }
}

/// Whether a URI may be given to a client that understands these schemes: it goes into a line of the answer, and into the
/// client's command line.
fn is_fit<S: AsRef<[u8]>>(uri: &str, schemes: &[S]) -> bool {
    let scheme = uri.split_once("://").map_or("", |(scheme, _)| scheme);
    let is_known = schemes.iter().any(|known| known.as_ref() == scheme.as_bytes());
    is_known && uri.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A signed URI of this server; `None` where it is not known by what name the client reaches it.
fn own_uri(call: &Call, repository: &Repository, id: &PayloadId) -> Option<String> {
    let signed = call.node.uris.sign(repository.id(), id, now(&call.node));
    // Names of repositories are made of letters that need no escape.
    Some(format!(
        "{}/{}/objects/layers/{signed}",
        call.origin.as_deref()?,
        call.name
    ))
}

/// The answer to `bundle-uri`: the settings below `bundle.` as in git, or else the layers that are bundles by themselves.
pub async fn bundle_uri(call: &Call, repository: &Repository, view: &View) -> Result<Vec<u8>, EngineError> {
    let options = RepositoryOptions::of(view);
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let mut values: BTreeMap<String, String> = options.settings().below("bundle.").into_iter().map(owned).collect();
    if values.is_empty() {
        let reach = view.reach(&options.hidden(Service::UploadPack)).await?;
        for id in view.bundles(&reach, options.uri_bytes_min()).await? {
            if let Some(uri) = own_uri(call, repository, &id).filter(|uri| is_fit(uri, &BUNDLE_SCHEMES)) {
                values.insert(format!("bundle.{}.uri", id.layer), uri);
            }
        }
        if !values.is_empty() {
            values.insert("bundle.version".to_owned(), "1".to_owned());
            values.insert("bundle.mode".to_owned(), "all".to_owned());
        }
    }
    let mut out = Vec::new();
    write_bundle_uri(&mut out, &values);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_neither_a_line_nor_a_command_line_carries_is_unfit() {
        assert!(is_fit("https://host/a/b?signature=0", &BUNDLE_SCHEMES));
        assert!(is_fit("http://host:1/a", &["http"]));
        for uri in [
            "ftp://host/a",
            "host/a",
            "https:/host",
            "https://host/a b",
            "https://host/\n",
            "https://h\u{f6}st/",
        ] {
            assert!(!is_fit(uri, &BUNDLE_SCHEMES), "{uri:?}");
        }
        assert!(!is_fit("http://host/a", &["https"]));
    }
}
