//! Who sends a request, and whether it is served: the gate's answers as HTTP says them.
//!
//! Without credentials, what is not for everyone is 401, whether it exists or not, so that git asks its helpers. With them,
//! what one may not read is the 404 of what does not exist, and what one may only read is 403 to a push.

use super::answer::Answer;
use super::peer::Peer;
use super::record::Record;
use crate::access::{Access, Admission, Credential, Denied, Identity, Want};
use crate::node::Node;
use cuesta_engine::RepositoryName;
use cuesta_format::RepositoryRecord;
use http::request::Parts;
use http::{HeaderMap, StatusCode};

const PLAIN_HTTP: &str = "credentials are not accepted over plain http: use https";

/// Who sends a request that is served, and of what.
pub struct Admitted {
    /// Who sends it.
    pub identity: Identity,
    /// The repository; `None` if it is to be made.
    pub repository: Option<RepositoryRecord>,
}

/// Decides about a request for a repository, or gives the answer that refuses it.
pub async fn admit(
    node: &Node,
    peer: &Peer,
    parts: &Parts,
    record: &Record,
    name: &RepositoryName,
    want: Want,
) -> Result<Admitted, Box<Answer>> {
    let identity = identify(node, peer, &parts.headers, record).await?;
    match node.gate.admit(&identity, name, want).await {
        Ok(Admission::Granted(repository)) => Ok(Admitted { identity, repository }),
        Ok(Admission::Refused(access)) => Err(Box::new(refusal(access, peer, record))),
        Err(error) => Err(Box::new(Answer::engine_error(&error, record))),
    }
}

/// Decides about a request for what concerns the whole node: the machine's own users, or an administrator.
pub async fn admit_operator(node: &Node, peer: &Peer, headers: &HeaderMap, record: &Record) -> Result<(), Box<Answer>> {
    if !node.gate.checks() || peer.is_local {
        return Ok(());
    }
    let identity = identify(node, peer, headers, record).await?;
    let refused = match node.gate.is_site_admin(&identity).await {
        Ok(true) => return Ok(()),
        Ok(false) if identity == Identity::Anonymous => refusal(Access::Unauthenticated, peer, record),
        Ok(false) => refusal(Access::Hidden, peer, record),
        Err(error) => Answer::engine_error(&error, record),
    };
    Err(Box::new(refused))
}

async fn identify(node: &Node, peer: &Peer, headers: &HeaderMap, record: &Record) -> Result<Identity, Box<Answer>> {
    let shown = Credential::of(headers);
    if node.gate.checks() && !peer.is_confidential && shown != Ok(None) {
        record.failed(PLAIN_HTTP);
        return Err(Box::new(Answer::error(StatusCode::FORBIDDEN, PLAIN_HTTP)));
    }
    match node.gate.authenticate(shown, peer.address).await {
        Ok(identity) => {
            record.is_by(&identity);
            Ok(identity)
        }
        Err(denied) => Err(Box::new(denial(denied, peer, record))),
    }
}

fn denial(denied: Denied, peer: &Peer, record: &Record) -> Answer {
    match denied {
        Denied::Invalid => {
            record.failed(&format!("invalid credentials from {}", peer.address));
            Answer::unauthenticated("the token is not valid, has expired or was revoked")
        }
        Denied::Throttled { seconds } => {
            record.failed(&format!("too many failed attempts from {}", peer.address));
            Answer::too_many_attempts(seconds)
        }
        Denied::Engine(error) => Answer::engine_error(&error, record),
    }
}

fn refusal(access: Access, peer: &Peer, record: &Record) -> Answer {
    match access {
        Access::Forbidden(lack) => {
            record.failed(&lack.to_string());
            Answer::error(StatusCode::FORBIDDEN, &lack.to_string())
        }
        Access::Unauthenticated if peer.is_confidential => Answer::unauthenticated("authentication is required"),
        // A challenge would make the client send its credentials for all to read.
        Access::Unauthenticated => Answer::error(StatusCode::FORBIDDEN, PLAIN_HTTP),
        Access::Hidden | Access::Allowed => Answer::not_found(),
    }
}
