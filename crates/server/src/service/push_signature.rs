//! Who signed a push: SSH signatures (`gpg.format=ssh`, OpenSSH's PROTOCOL.sshsig) by the keys of known users.
//!
//! Signatures of other kinds, such as OpenPGP's, are kept with their certificates and not verified.

use crate::access::{Gate, PublicKey};
use cuesta_engine::EngineError;
use cuesta_format::{PushSignature, SignatureStatus};
use cuesta_protocol::receive::Certificate;
use russh::keys::ssh_key::{self, Algorithm, SshSig};

/// What git signs for: signatures that were made for something else are worth nothing here.
const NAMESPACE: &str = "git";
const BEGIN: &[u8] = b"-----BEGIN SSH SIGNATURE-----";

/// What every command of a push is refused with that is not signed where it has to be.
pub const UNSIGNED: &str = "signed push required (git push --signed)";
/// The same, for a signature that is not a known user's good one.
pub const NOT_BY_A_USER: &str = "push certificate is not signed by a known user's SSH key";
/// The same, where no certificate can be had.
pub const NOT_OFFERED: &str = "signed push required, but receive.certNonceSeed is not set";

/// What the signature of a certificate is worth. Cost: that of one verification, and a look at the accounts.
pub async fn verify(gate: &Gate, certificate: &Certificate) -> Result<PushSignature, EngineError> {
    let (status, blob) = examine(&certificate.payload, &certificate.signature);
    let Some(blob) = blob else {
        return Ok(PushSignature {
            status,
            signer: String::new(),
            key: String::new(),
        });
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
fn examine(payload: &[u8], signature: &[u8]) -> (SignatureStatus, Option<Vec<u8>>) {
    if signature.is_empty() {
        return (SignatureStatus::None, None);
    }
    if !signature.starts_with(BEGIN) {
        return (SignatureStatus::Unchecked, None);
    }
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
                examine(payload, &signature),
                (SignatureStatus::Unknown, Some(key.clone())),
                "{kind:?}"
            );
            assert_eq!(
                examine(b"another", &signature),
                (SignatureStatus::Bad, Some(key)),
                "{kind:?}"
            );
        }
        let (signature, _) = signed(&["-t", "ed25519"], "file", payload);
        assert_eq!(
            examine(payload, &signature).0,
            SignatureStatus::Bad,
            "made for something else"
        );
    }

    #[test]
    fn what_is_no_ssh_signature_is_not_good() {
        for (signature, status) in [
            (&b""[..], SignatureStatus::None),
            (b"-----BEGIN PGP SIGNATURE-----\nx\n", SignatureStatus::Unchecked),
            (
                b"-----BEGIN SSH SIGNATURE-----\nnone\n-----END SSH SIGNATURE-----\n",
                SignatureStatus::Bad,
            ),
            (b"-----BEGIN SSH SIGNATURE-----\n", SignatureStatus::Bad),
        ] {
            assert_eq!(examine(b"x", signature), (status, None));
        }
    }
}
