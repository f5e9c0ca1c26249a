//! SSH public keys as users give them: a line of an `authorized_keys` or `.pub` file, without options.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use bytes::Bytes;
use sha2::{Digest, Sha256};

/// Longest line that is looked at: an RSA key of 16,384 bits takes 2,800 bytes.
const LINE_LEN_MAX: usize = 8192;
/// Longest label that is kept.
const LABEL_LEN_MAX: usize = 255;
/// RSA keys below this can be broken.
const RSA_BITS_MIN: usize = 2048;
const RSA: &str = "ssh-rsa";
/// The algorithms that are taken.
const ALGORITHMS: [&str; 7] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    RSA,
];

/// A public key and what its owner calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    /// The key as SSH sends it.
    pub blob: Bytes,
    /// The line's comment.
    pub label: String,
}

/// Text that is no public key that is taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublicKeyError {
    /// Not `<algorithm> <base64> [<comment>]`.
    #[error("expected '<algorithm> <base64> [<comment>]', as in a .pub file")]
    Form,
    /// A private key was given.
    #[error("this is a private key: keep it to yourself and give the .pub file")]
    Private,
    /// Not one of the algorithms that are taken.
    #[error("keys of type '{0}' are not accepted")]
    Algorithm(String),
    /// An RSA key that can be broken.
    #[error("RSA keys need {RSA_BITS_MIN} bits, this one has {0}")]
    Weak(usize),
}

impl PublicKey {
    /// Reads a line.
    pub fn parse(line: &str) -> Result<Self, PublicKeyError> {
        if line.contains("PRIVATE KEY") {
            return Err(PublicKeyError::Private);
        }
        let line = line.trim();
        if line.len() > LINE_LEN_MAX || line.contains(char::is_control) {
            return Err(PublicKeyError::Form);
        }
        let (algorithm, rest) = line.split_once(' ').ok_or(PublicKeyError::Form)?;
        let (encoded, comment) = rest.trim_start().split_once(' ').unwrap_or((rest.trim_start(), ""));
        if !ALGORITHMS.contains(&algorithm) {
            return Err(PublicKeyError::Algorithm(algorithm.chars().take(40).collect()));
        }
        let blob = STANDARD.decode(encoded).map_err(|_| PublicKeyError::Form)?;
        check(algorithm, &blob)?;
        let label = comment.trim();
        let end = label.floor_char_boundary(LABEL_LEN_MAX);
        Ok(Self {
            blob: blob.into(),
            label: label.get(..end).unwrap_or_default().to_owned(),
        })
    }

    /// What `ssh-keygen -l` prints of a key: `SHA256:…`.
    pub fn fingerprint(blob: &[u8]) -> String {
        format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(blob)))
    }

    /// The algorithm that a key names.
    pub fn algorithm(blob: &[u8]) -> &str {
        let name = fields(blob).next().flatten();
        name.and_then(|name| std::str::from_utf8(name).ok())
            .unwrap_or("unknown")
    }
}

/// The key is whole and of the algorithm that stands before it.
fn check(algorithm: &str, blob: &[u8]) -> Result<(), PublicKeyError> {
    let fields: Option<Vec<&[u8]>> = fields(blob).collect();
    let fields = fields.ok_or(PublicKeyError::Form)?;
    match fields.as_slice() {
        [name, _, ..] if *name != algorithm.as_bytes() => Err(PublicKeyError::Form),
        [_, _, modulus] if algorithm == RSA => match bits(modulus) {
            bits if bits < RSA_BITS_MIN => Err(PublicKeyError::Weak(bits)),
            _ => Ok(()),
        },
        _ if algorithm == RSA => Err(PublicKeyError::Form),
        [_, _, ..] => Ok(()),
        _ => Err(PublicKeyError::Form),
    }
}

/// The fields of a key, each with its length before it; `None` for one that is cut short.
fn fields(blob: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = blob;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = rest.split_first_chunk::<4>().and_then(|(len, after)| {
            let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
            let (field, after) = after.split_at_checked(len)?;
            rest = after;
            Some(field)
        });
        if field.is_none() {
            rest = &[];
        }
        Some(field)
    })
}

fn bits(number: &[u8]) -> usize {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let significant = number.get(zeros..).unwrap_or_default();
    let unused = significant.first().map_or(0, |first| first.leading_zeros());
    (8 * significant.len()).saturating_sub(usize::try_from(unused).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED25519: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f ann@laptop";

    fn line(algorithm: &str, fields: &[&[u8]]) -> String {
        let mut blob = Vec::new();
        for field in fields {
            blob.extend_from_slice(&u32::try_from(field.len()).unwrap().to_be_bytes());
            blob.extend_from_slice(field);
        }
        format!("{algorithm} {}", STANDARD.encode(blob))
    }

    #[test]
    fn a_pub_file_is_read() {
        let key = PublicKey::parse(&format!("{ED25519}\n")).unwrap();
        assert_eq!((key.label.as_str(), key.blob.len()), ("ann@laptop", 51));
        assert_eq!(PublicKey::algorithm(&key.blob), "ssh-ed25519");
        // What ssh-keygen -lf prints of it.
        assert_eq!(
            PublicKey::fingerprint(&key.blob),
            "SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA"
        );
        let bare = ED25519.rsplit_once(' ').unwrap().0;
        assert_eq!(PublicKey::parse(bare).unwrap().label, "");
        assert_eq!(PublicKey::parse(&format!("{bare}  a b c ")).unwrap().label, "a b c");
    }

    #[test]
    fn weak_and_strange_keys_are_refused() {
        let rsa = |len: usize| {
            line(
                "ssh-rsa",
                &[b"ssh-rsa", b"\x01\0\x01", &[&[0][..], &vec![0x80; len]].concat()],
            )
        };
        assert!(PublicKey::parse(&rsa(256)).is_ok());
        assert_eq!(PublicKey::parse(&rsa(255)), Err(PublicKeyError::Weak(2040)));
        let dss = line("ssh-dss", &[b"ssh-dss", b"1"]);
        assert_eq!(
            PublicKey::parse(&dss),
            Err(PublicKeyError::Algorithm("ssh-dss".to_owned()))
        );
        let private = "-----BEGIN OPENSSH PRIVATE KEY-----\nabc";
        assert_eq!(PublicKey::parse(private), Err(PublicKeyError::Private));
        for text in [
            "",
            "ssh-ed25519",
            "ssh-ed25519 !",
            "ssh-ed25519 AAAA",
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5",
            "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f",
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA\nssh-ed25519",
            &line("ssh-ed25519", &[b"ssh-ed25519"]),
            &line("ssh-rsa", &[b"ssh-rsa", b"1"]),
        ] {
            assert_eq!(PublicKey::parse(text), Err(PublicKeyError::Form), "{text:?}");
        }
    }
}
