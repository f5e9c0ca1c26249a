//! Where clients find the layers that are not sent to them: URIs of this server, or of the bucket where it can sign its own.

use super::push_cert::now;
use super::repository_options::{PackfileUris, RepositoryOptions};
use crate::http::front::Call;
use bytes::Bytes;
use cuesta_engine::upload::Plan;
use cuesta_engine::{EngineError, PayloadId, Repository, View};
use cuesta_protocol::Service;
use cuesta_protocol::upload::answer::write_bundle_uri;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Makes the URIs of one repository for one client.
pub struct PayloadUris {
    call: Arc<Call>,
    repository: Arc<Repository>,
    from: PackfileUris,
    /// What the client fetches by, such as `https`.
    schemes: Vec<Bytes>,
}

impl PayloadUris {
    /// For a client that understands these schemes.
    pub fn new(call: Arc<Call>, repository: Arc<Repository>, from: PackfileUris, schemes: &[Bytes]) -> Self {
        Self {
            call,
            repository,
            from,
            schemes: schemes.to_vec(),
        }
    }

    /// The checksums and URIs of what a plan leaves out; `None` if the client could not fetch all of it.
    pub async fn of(&self, plan: &Plan) -> Result<Option<Vec<(String, String)>>, EngineError> {
        let mut uris = Vec::new();
        for pack in plan.offloaded().await? {
            match self.uri(&pack.id).await? {
                Some(uri) => uris.push((pack.checksum.to_string(), uri)),
                None => return Ok(None),
            }
        }
        Ok(Some(uris))
    }

    async fn uri(&self, id: &PayloadId) -> Result<Option<String>, EngineError> {
        if self.from == PackfileUris::Bucket {
            let lifetime = Duration::from_secs(self.call.node.uris.seconds());
            let uri = self.repository.payload_url(id, lifetime).await?;
            if let Some(uri) = uri.filter(|uri| self.is_fit(uri)) {
                return Ok(Some(uri));
            }
        }
        Ok(own_uri(&self.call, &self.repository, id).filter(|uri| self.is_fit(uri)))
    }

    /// A URI goes into a line of the answer, and into the client's command line.
    fn is_fit(&self, uri: &str) -> bool {
        let scheme = uri.split_once("://").map_or("", |(scheme, _)| scheme);
        self.schemes.iter().any(|known| known == scheme.as_bytes()) && uri.bytes().all(|byte| byte.is_ascii_graphic())
    }
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
            if let Some(uri) = own_uri(call, repository, &id) {
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
