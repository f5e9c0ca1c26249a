//! What a remote has: its version of the protocol and its refs.

use super::{AGENT, Remote, RemoteError, below};
use bytes::Bytes;
use cuesta_engine::import::SourceRefs;
use cuesta_git::{ObjectFormat, RefName};
use cuesta_protocol::client::{
    Advertisement, AdvertisementParser, LsRefsParser, LsRefsRequest, RefAdvertisement, RemoteRef, ServerCapabilities,
    write_ls_refs,
};
use cuesta_protocol::pktline::{Decoder, Packet};
use cuesta_protocol::{Limits, ProtocolError};
use futures::StreamExt;
use reqwest::{Method, Url};

/// A remote's refs, and how to go on.
#[derive(Debug)]
pub struct Discovered {
    /// The format of its ids.
    pub format: ObjectFormat,
    /// Its refs.
    pub refs: SourceRefs,
    /// Where the repository is, redirects followed.
    pub(super) url: Url,
    pub(super) server: Server,
}

/// What the host speaks.
#[derive(Debug)]
pub(super) enum Server {
    V2(ServerCapabilities),
    V0(RefAdvertisement),
}

impl Remote {
    /// Asks what the remote has.
    pub async fn discover(&self) -> Result<Discovered, RemoteError> {
        let mut asked = below(&self.url, "info/refs");
        asked.set_query(Some("service=git-upload-pack"));
        let request = self.request(Method::GET, &asked).header("Git-Protocol", "version=2");
        let answer = self.send(request, &asked).await?;
        let url = moved(answer.url(), &self.url);
        let is_smart = answer.headers().get("content-type").is_some_and(|value| {
            value
                .as_bytes()
                .starts_with(b"application/x-git-upload-pack-advertisement")
        });
        if !is_smart {
            return Err(RemoteError::NotSmart {
                url: Box::new(self.url.clone()),
            });
        }
        let mut parser = AdvertisementParser::new(Limits::new());
        match packets(answer, |packet| parser.handle(packet)).await? {
            Advertisement::Capabilities(server) => self.list(server, url).await,
            Advertisement::Refs(server) => {
                let mut refs = SourceRefs::default();
                let symrefs = symrefs(&server);
                for shown in &server.refs {
                    let mut shown = shown.clone();
                    let target = symrefs
                        .iter()
                        .find(|(name, _)| *name == shown.name)
                        .map(|(_, to)| to.clone());
                    shown.symref_target = shown.symref_target.or(target);
                    take(&mut refs, shown);
                }
                refs.shallow.clone_from(&server.shallow);
                let (format, server) = (server.format, Server::V0(server));
                Ok(Discovered {
                    format,
                    refs,
                    url,
                    server,
                })
            }
        }
    }

    /// Asks a v2 host for its refs.
    async fn list(&self, server: ServerCapabilities, url: Url) -> Result<Discovered, RemoteError> {
        let format = server.object_format()?;
        let request = LsRefsRequest {
            peel: false,
            symrefs: true,
            unborn: true,
            prefixes: vec![Bytes::from_static(b"HEAD"), Bytes::from_static(b"refs/")],
        };
        let mut body = Vec::new();
        write_ls_refs(&mut body, &server, AGENT, &request);
        let answer = self.post(&url, body, true).await?;
        let mut parser = LsRefsParser::new(format, Limits::new());
        let mut refs = SourceRefs::default();
        for shown in packets(answer, |packet| parser.handle(packet)).await? {
            take(&mut refs, shown);
        }
        let server = Server::V2(server);
        Ok(Discovered {
            format,
            refs,
            url,
            server,
        })
    }

    /// A request to the remote's upload-pack.
    pub(super) async fn post(&self, url: &Url, body: Vec<u8>, v2: bool) -> Result<reqwest::Response, RemoteError> {
        let url = below(url, "git-upload-pack");
        let request = self
            .request(Method::POST, &url)
            .header("Content-Type", "application/x-git-upload-pack-request")
            .header("Accept", "application/x-git-upload-pack-result")
            .body(body);
        let request = if v2 {
            request.header("Git-Protocol", "version=2")
        } else {
            request
        };
        self.send(request, &url).await
    }
}

/// Where the repository is, if asking for its refs led elsewhere.
fn moved(answered: &Url, asked: &Url) -> Url {
    match answered.path().strip_suffix("/info/refs") {
        Some(path) => {
            let mut moved = answered.clone();
            moved.set_path(path);
            moved.set_query(None);
            moved
        }
        None => asked.clone(),
    }
}

/// Gives packets of an answer to `handle` until it has what it wants.
async fn packets<T>(
    answer: reqwest::Response,
    mut handle: impl FnMut(&Packet) -> Result<Option<T>, ProtocolError>,
) -> Result<T, RemoteError> {
    let url = Box::new(answer.url().clone());
    let (mut decoder, mut chunks) = (Decoder::new(), answer.bytes_stream());
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| RemoteError::Unreachable {
            url: url.clone(),
            error: super::reason(&error),
        })?;
        decoder.push(&chunk);
        while let Some(packet) = decoder.poll()? {
            if let Some(done) = handle(&packet)? {
                return Ok(done);
            }
        }
    }
    Err(ProtocolError::Truncated.into())
}

/// `symref=HEAD:refs/heads/main` of a v0 host.
fn symrefs(server: &RefAdvertisement) -> Vec<(Bytes, Bytes)> {
    let capabilities = server.capabilities();
    let pairs = capabilities.values("symref").filter_map(|value| {
        let colon = value.iter().position(|byte| *byte == b':')?;
        let (name, target) = value.split_at_checked(colon)?;
        Some((Bytes::copy_from_slice(name), Bytes::copy_from_slice(target.get(1..)?)))
    });
    pairs.collect()
}

/// Takes a ref over. Names that are no ref names are passed over: a host may show anything.
fn take(refs: &mut SourceRefs, shown: RemoteRef) {
    let Ok(name) = RefName::new(&shown.name) else {
        let warning = format!("ignoring ref with broken name {}", shown.name.escape_ascii());
        return refs.warnings.push(warning);
    };
    let target = shown.symref_target.as_deref().map(RefName::new);
    match (target, shown.oid) {
        (Some(Ok(target)), _) => drop(refs.symrefs.insert(name, target)),
        (Some(Err(_)), None) | (None, None) => refs.warnings.push(format!("ignoring broken ref {name}")),
        (_, Some(oid)) => drop(refs.refs.insert(name, oid)),
    }
}
