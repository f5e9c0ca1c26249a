//! URIs of payloads, signed: who holds one may read that payload, for a while, and nothing else.
//!
//! A signature binds the method (`GET`), the repository, the payload with all that names it, and the time after which it is
//! worth nothing. Whoever gets such a URI was allowed to read the repository when it was made.

use cuesta_engine::{PayloadForm, PayloadId};
use cuesta_format::{LayerId, LogId};
use cuesta_git::{ObjectFormat, hmac};
use std::collections::BTreeMap;
use subtle::ConstantTimeEq;

/// Signs URIs, and knows its own again. All nodes of a fleet need the same key.
pub struct UriSigner {
    key: Vec<u8>,
    seconds: u64,
}

/// A URI that was signed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignedPayload {
    /// What it gives.
    pub id: PayloadId,
    /// Until when, in seconds since 1970.
    pub expires: u64,
}

impl UriSigner {
    /// A signer whose URIs hold for at least that many seconds, and less than twice as many: all that are made in one such
    /// span are the same, so that caches between here and the clients can tell.
    pub fn new(key: Vec<u8>, seconds: u64) -> Self {
        Self {
            key,
            seconds: seconds.max(1),
        }
    }

    /// Seconds that a URI holds at least.
    pub fn seconds(&self) -> u64 {
        self.seconds
    }

    /// The last part of a payload's path, and its query.
    pub fn sign(&self, log: LogId, id: &PayloadId, now: u64) -> String {
        let expires = (now / self.seconds).saturating_add(2).saturating_mul(self.seconds);
        format!(
            "{}.{}?pack={}&cue={}&objects={}&expires={expires}&signature={}",
            id.layer,
            form_name(id.form),
            id.pack_bytes,
            id.cue_bytes,
            id.objects,
            self.signature(log, id, expires),
        )
    }

    /// The payload that a URI names, if it was signed here and still holds.
    pub fn check(&self, log: LogId, file: &str, query: &str, now: u64) -> Option<SignedPayload> {
        let (layer, form) = file.split_once('.')?;
        let mut values = BTreeMap::new();
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=')?;
            if values.insert(name, value).is_some() {
                return None;
            }
        }
        let number = |name: &str| values.get(name)?.parse::<u64>().ok();
        let id = PayloadId {
            layer: LayerId::from_hex(layer)?,
            form: form_of(form)?,
            pack_bytes: number("pack")?,
            cue_bytes: number("cue")?,
            objects: number("objects")?.try_into().ok()?,
        };
        let expires = number("expires")?;
        let expected = self.signature(log, &id, expires);
        let ours: bool = expected.as_bytes().ct_eq(values.get("signature")?.as_bytes()).into();
        (ours && now < expires).then_some(SignedPayload { id, expires })
    }

    fn signature(&self, log: LogId, id: &PayloadId, expires: u64) -> String {
        let text = format!(
            "GET {log} {} {} {} {} {} {expires}",
            id.layer,
            form_name(id.form),
            id.pack_bytes,
            id.cue_bytes,
            id.objects
        );
        hmac(ObjectFormat::Sha256, &self.key, text.as_bytes()).to_string()
    }
}

fn form_name(form: PayloadForm) -> &'static str {
    match form {
        PayloadForm::Pack => "pack",
        PayloadForm::Bundle => "bundle",
    }
}

fn form_of(name: &str) -> Option<PayloadForm> {
    [PayloadForm::Pack, PayloadForm::Bundle]
        .into_iter()
        .find(|form| form_name(*form) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: PayloadId = PayloadId {
        layer: LayerId(7),
        form: PayloadForm::Pack,
        pack_bytes: 1000,
        cue_bytes: 200,
        objects: 3,
    };

    fn check(signer: &UriSigner, log: u128, uri: &str, now: u64) -> bool {
        let (file, query) = uri.split_once('?').unwrap();
        signer
            .check(LogId(log), file, query, now)
            .is_some_and(|signed| signed.id == ID)
    }

    #[test]
    fn a_uri_holds_for_what_it_was_made_for() {
        let (signer, other) = (UriSigner::new(b"key".to_vec(), 60), UriSigner::new(b"yek".to_vec(), 60));
        let uri = signer.sign(LogId(1), &ID, 1_000);
        assert_eq!(uri, signer.sign(LogId(1), &ID, 1_019), "the same for a span");
        assert!(check(&signer, 1, &uri, 1_000) && check(&signer, 1, &uri, 1_079));
        assert!(!check(&signer, 1, &uri, 1_080), "expired");
        assert!(!check(&signer, 2, &uri, 1_000), "another repository");
        assert!(!check(&other, 1, &uri, 1_000), "another key");
        for (from, to) in [
            ("pack=1000", "pack=1001"),
            ("cue=200", "cue=201"),
            ("objects=3", "objects=4"),
            ("expires=1080", "expires=9080"),
            (".pack?", ".bundle?"),
            ("00007.", "00008."),
            ("&cue", "&cue=200&cue"),
            ("signature=", "signature=0"),
            ("&signature=", "&x"),
        ] {
            assert!(uri.contains(from), "{uri}");
            assert!(!check(&signer, 1, &uri.replace(from, to), 1_000), "{from} to {to}");
        }
    }
}
