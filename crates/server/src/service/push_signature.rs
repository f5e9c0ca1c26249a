//! Who signed a push: SSH signatures (`gpg.format=ssh`, OpenSSH's PROTOCOL.sshsig) and OpenPGP signatures, by the keys of known
//! users.
//!
//! Signatures of other kinds, X.509's, are kept with their certificates and not verified.

use super::push_cert::{self, BAD_NONCE, OLD_NONCE};
use crate::access::{Gate, OpenPgpKey, OpenPgpSignature, PublicKey, Standing, Verdict};
use crate::node::Node;
use cuesta_engine::EngineError;
use cuesta_format::{NonceStatus, PushCertificate, PushSignature, SignatureStatus};
use cuesta_ledger::AccountsState;
use cuesta_protocol::receive::Certificate;
use russh::keys::ssh_key::{self, Algorithm, SshSig};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What git signs for: SSH signatures that were made for something else are worth nothing here.
const NAMESPACE: &str = "git";
const BEGIN_SSH: &[u8] = b"-----BEGIN SSH SIGNATURE-----";
const BEGIN_OPENPGP: &[u8] = b"-----BEGIN PGP SIGNATURE-----";

/// What every command of a push is refused with that is not signed where it has to be.
pub const UNSIGNED: &str = "signed push required (git push --signed)";
/// The same, for a signature that is not a known user's good one.
pub const NOT_BY_A_USER: &str = "push certificate is not signed by a known user's key";
/// The same, where no certificate can be had.
pub const NOT_OFFERED: &str = "signed push required, but receive.certNonceSeed is not set";

/// Why a push with this certificate is refused, if it is: where certificates are `offered`, and where they are `required`.
pub fn refusal(certificate: Option<&PushCertificate>, offered: bool, required: bool) -> Option<&'static str> {
    let nonce = certificate.map(|certificate| certificate.nonce);
    let signature = certificate.and_then(|certificate| certificate.signature.as_ref());
    match (nonce, signature.map(|signature| signature.status)) {
        (Some(NonceStatus::Bad | NonceStatus::Missing), _) => Some(BAD_NONCE),
        _ if !required => None,
        (None, _) if !offered => Some(NOT_OFFERED),
        (None, _) | (_, None) => Some(UNSIGNED),
        (Some(NonceStatus::Slop), _) => Some(OLD_NONCE),
        (_, Some(SignatureStatus::Good)) => None,
        (_, Some(_)) => Some(NOT_BY_A_USER),
    }
}

/// What the signature of a certificate is worth. Cost: that of one verification, and a look at the accounts.
pub async fn verify(node: &Node, certificate: &Certificate) -> Result<PushSignature, EngineError> {
    match &certificate.signature {
        none if none.is_empty() => Ok(by_nobody(SignatureStatus::None)),
        ssh if ssh.starts_with(BEGIN_SSH) => by_ssh_key(&node.gate, certificate).await,
        openpgp if openpgp.starts_with(BEGIN_OPENPGP) => by_openpgp_key(node, certificate).await,
        _ => Ok(by_nobody(SignatureStatus::Unchecked)),
    }
}

fn by_nobody(status: SignatureStatus) -> PushSignature {
    PushSignature {
        status,
        signer: String::new(),
        key: String::new(),
    }
}

async fn by_openpgp_key(node: &Node, certificate: &Certificate) -> Result<PushSignature, EngineError> {
    let state = node.gate.state().await?;
    let now = push_cert::now(node);
    let certificate = certificate.clone();
    let work = move || examine_openpgp(&state, &certificate.payload, &certificate.signature, now);
    // What a peer sent goes through a large library: where that stumbles, the signature is bad, and nothing else.
    let worth = node.workers.run(|| catch_unwind(AssertUnwindSafe(work))).await;
    Ok(worth.unwrap_or_else(|_| by_nobody(SignatureStatus::Bad)))
}

/// Of all keys that the signature may be by, the best verdict counts: that somebody holds another's key says nothing.
fn examine_openpgp(state: &AccountsState, payload: &[u8], signature: &[u8], now: u64) -> PushSignature {
    let Some(signature) = OpenPgpSignature::parse(signature) else {
        return by_nobody(SignatureStatus::Bad);
    };
    let mut worth = PushSignature {
        status: SignatureStatus::Unchecked,
        signer: String::new(),
        key: signature.issuer(),
    };
    for record in state.openpgp_keys().filter(|one| signature.claims(&one.fingerprints)) {
        let verdict = signature.verify(payload, &record.certificate, now);
        let status = status_of(&verdict);
        if let (Verdict::Of(key, _), SignatureStatus::Good) = (&verdict, status) {
            return PushSignature {
                status,
                signer: record.user.clone(),
                key: OpenPgpKey::fingerprint_text(key),
            };
        }
        if matches!(worth.status, SignatureStatus::Unchecked | SignatureStatus::Bad) {
            worth.status = status;
        }
    }
    worth
}

fn status_of(verdict: &Verdict) -> SignatureStatus {
    match verdict {
        Verdict::Bad | Verdict::Of(_, Standing::Unfit) => SignatureStatus::Bad,
        Verdict::Expired => SignatureStatus::Expired,
        Verdict::Of(_, Standing::Expired) => SignatureStatus::ExpiredKey,
        Verdict::Of(_, Standing::Revoked) => SignatureStatus::RevokedKey,
        Verdict::Of(_, Standing::Signs) => SignatureStatus::Good,
    }
}

async fn by_ssh_key(gate: &Gate, certificate: &Certificate) -> Result<PushSignature, EngineError> {
    let (status, blob) = examine_ssh(&certificate.payload, &certificate.signature);
    let Some(blob) = blob else {
        return Ok(by_nobody(status));
    };
    let signer = match status {
        SignatureStatus::Unknown => gate.key_owner(&blob).await?,
        _ => None,
    };
    Ok(PushSignature {
        status: signer.as_ref().map_or(status, |_| SignatureStatus::Good),
        signer: signer.unwrap_or_default(),
        key: PublicKey::fingerprint(&blob),
    })
}

/// What can be told without knowing anybody: whether the signature is good (then by a key that is unknown yet), and the key
/// that it names.
fn examine_ssh(payload: &[u8], signature: &[u8]) -> (SignatureStatus, Option<Vec<u8>>) {
    let Ok(signature) = SshSig::from_pem(signature) else {
        return (SignatureStatus::Bad, None);
    };
    let key = ssh_key::PublicKey::from(signature.public_key().clone());
    let Ok(blob) = key.to_bytes() else {
        return (SignatureStatus::Bad, None);
    };
    // SHA-1 proves nothing any more.
    let is_weak = signature.signature().algorithm() == Algorithm::Rsa { hash: None };
    let status = match key.verify(NAMESPACE, payload, &signature) {
        Ok(()) if !is_weak => SignatureStatus::Unknown,
        _ => SignatureStatus::Bad,
    };
    (status, Some(blob))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// What `ssh-keygen -Y sign` makes of a payload, and the key.
    fn signed(kind: &[&str], namespace: &str, payload: &[u8]) -> (Vec<u8>, String) {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let run = |arguments: &[&str]| {
            let done = Command::new("ssh-keygen")
                .current_dir(&directory)
                .args(arguments)
                .output()
                .unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        };
        run(&[&["-q", "-N", "", "-f", "key"], kind].concat());
        std::fs::write(path("payload"), payload).unwrap();
        run(&["-q", "-Y", "sign", "-n", namespace, "-f", "key", "payload"]);
        let line = std::fs::read_to_string(path("key.pub")).unwrap();
        (std::fs::read(path("payload.sig")).unwrap(), line)
    }

    #[test]
    fn where_signatures_are_required_nothing_less_is_taken() {
        let certificate = |nonce, status| {
            let signature = PushSignature {
                status,
                ..by_nobody(status)
            };
            PushCertificate {
                text: bytes::Bytes::new(),
                nonce,
                signature: Some(signature),
            }
        };
        let good = certificate(NonceStatus::Ok, SignatureStatus::Good);
        let old = certificate(NonceStatus::Slop, SignatureStatus::Good);
        let foreign = certificate(NonceStatus::Bad, SignatureStatus::Good);
        for (certificate, at_will, required) in [
            (None, None, Some(UNSIGNED)),
            (Some(&good), None, None),
            (Some(&old), None, Some(OLD_NONCE)),
            (Some(&foreign), Some(BAD_NONCE), Some(BAD_NONCE)),
        ] {
            assert_eq!(refusal(certificate, true, false), at_will, "{certificate:?}");
            assert_eq!(refusal(certificate, true, true), required, "{certificate:?}");
        }
        assert_eq!(refusal(None, false, true), Some(NOT_OFFERED));
        use SignatureStatus::{Bad, Expired, ExpiredKey, None as Missing, RevokedKey, Unchecked, Unknown};
        for status in [Bad, Expired, ExpiredKey, Missing, RevokedKey, Unchecked, Unknown] {
            let certificate = certificate(NonceStatus::Ok, status);
            assert_eq!(
                refusal(Some(&certificate), true, true),
                Some(NOT_BY_A_USER),
                "{status:?}"
            );
            assert_eq!(refusal(Some(&certificate), true, false), None, "{status:?}");
        }
    }

    #[test]
    fn signatures_of_every_kind_of_key_are_verified() {
        let payload = b"certificate version 0.1\n";
        for kind in [
            &["-t", "ed25519"][..],
            &["-t", "ecdsa", "-b", "384"],
            &["-t", "rsa", "-b", "2048"],
        ] {
            let (signature, line) = signed(kind, NAMESPACE, payload);
            let key = PublicKey::parse(&line).unwrap().blob.to_vec();
            assert_eq!(
                examine_ssh(payload, &signature),
                (SignatureStatus::Unknown, Some(key.clone())),
                "{kind:?}"
            );
            assert_eq!(
                examine_ssh(b"another", &signature),
                (SignatureStatus::Bad, Some(key)),
                "{kind:?}"
            );
        }
        let (signature, _) = signed(&["-t", "ed25519"], "file", payload);
        assert_eq!(
            examine_ssh(payload, &signature).0,
            SignatureStatus::Bad,
            "made for something else"
        );
    }

    #[test]
    fn what_is_no_ssh_signature_is_not_good() {
        for signature in [
            &b"-----BEGIN SSH SIGNATURE-----\nnone\n-----END SSH SIGNATURE-----\n"[..],
            b"-----BEGIN SSH SIGNATURE-----\n",
        ] {
            assert_eq!(examine_ssh(b"x", signature), (SignatureStatus::Bad, None));
        }
    }
}
