//! OpenPGP public keys (RFC 9580), and what signatures by them are worth.
//!
//! Parsing and arithmetic are the library's. Whether a key may sign is decided here, by rules that are few and strict: the newest
//! self-signature counts, a revocation counts for ever, and a subkey signs only if it has said itself that it belongs there (its
//! back signature), or else a user could claim the pushes of another. SHA-1, DSA and short RSA keys prove nothing.

use bytes::Bytes;
use pgp::composed::{Deserializable, DetachedSignature, SignedPublicKey, SignedPublicSubKey};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{PublicKey, Signature, SignatureType};
use pgp::ser::Serialize;
use pgp::types::{KeyDetails, KeyVersion, PublicParams, SignedUser, Tag};
use std::fmt::Write;

/// Longest text that is read as a key. What others have signed is in it, too, and is not kept.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Most bytes of a key that are kept.
const KEY_BYTES_MAX: usize = 64 << 10;
/// Most subkeys of a key.
const SUBKEYS_MAX: usize = 64;
/// Longest text that is looked at as a signature: one by an RSA key of 16,384 bits takes 3 kB.
const SIGNATURE_BYTES_MAX: usize = 16 << 10;
/// Longest label that is kept.
const LABEL_BYTES_MAX: usize = 255;
/// RSA keys below this can be broken.
const RSA_BITS_MIN: u16 = 2048;
const BEGIN: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----";

/// A public key as its owner gives it, without what others have signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenPgpKey {
    /// The fingerprints of its keys, the primary key's first.
    pub fingerprints: Vec<Bytes>,
    /// The key, without armor.
    pub certificate: Bytes,
    /// Its first user id.
    pub label: String,
    /// What it is good for, at its best.
    pub standing: Standing,
}

/// Text that is no OpenPGP key that is taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenPgpKeyError {
    /// Not one armored public key.
    #[error("expected one armored OpenPGP public key, as 'gpg --armor --export' prints it")]
    Form,
    /// A private key was given.
    #[error("this is a private key: keep it to yourself and give what 'gpg --armor --export' prints")]
    Private,
    /// More than is kept.
    #[error("the key takes more than {KEY_BYTES_MAX} bytes, or has more than {SUBKEYS_MAX} subkeys")]
    Large,
    /// Nothing in it makes signatures that are taken.
    #[error(
        "no key in it can sign: it needs one for signing, no DSA, RSA of {RSA_BITS_MIN} bits, no SHA-1 in its own signatures"
    )]
    Unfit,
}

/// What a key is good for at some moment, from the worst to the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It is not for signing, is not of those that are taken, or does not belong to its primary key.
    Unfit,
    /// Its owner has taken it back.
    Revoked,
    /// Its time is over.
    Expired,
    /// It signs.
    Signs,
}

impl OpenPgpKey {
    /// Whether a text claims to be such a key.
    pub fn is_meant(text: &str) -> bool {
        text.contains(BEGIN)
    }

    /// Reads an armored key, at a moment in seconds since 1970. One that has expired or was revoked is taken: so is told what its
    /// signatures are not worth any more.
    pub fn parse(text: &str, now: u64) -> Result<Self, OpenPgpKeyError> {
        if text.contains("PRIVATE KEY") {
            return Err(OpenPgpKeyError::Private);
        }
        if text.len() > TEXT_BYTES_MAX || text.matches(BEGIN).count() != 1 {
            return Err(OpenPgpKeyError::Form);
        }
        let (mut keys, _) = SignedPublicKey::from_string_many(text).map_err(|_| OpenPgpKeyError::Form)?;
        let (Some(Ok(key)), None) = (keys.next(), keys.next()) else {
            return Err(OpenPgpKeyError::Form);
        };
        let key = own_part(key);
        if key.public_subkeys.len() > SUBKEYS_MAX {
            return Err(OpenPgpKeyError::Large);
        }
        let certificate = key.to_bytes().map_err(|_| OpenPgpKeyError::Form)?;
        if certificate.len() > KEY_BYTES_MAX {
            return Err(OpenPgpKeyError::Large);
        }
        let standing = best_standing(&key, now);
        if standing == Standing::Unfit {
            return Err(OpenPgpKeyError::Unfit);
        }
        Ok(Self {
            fingerprints: fingerprints(&key),
            certificate: certificate.into(),
            label: label(&key.details.users),
            standing,
        })
    }

    /// Whether `other`, another form of the same key, says that its owner has taken a key of it back, and this one does not: it was
    /// exported before that.
    pub fn lacks_revocation_of(&self, other: &[u8], now: u64) -> bool {
        let (Ok(before), Ok(after)) = (
            SignedPublicKey::from_bytes(other),
            SignedPublicKey::from_bytes(&self.certificate[..]),
        ) else {
            return false;
        };
        let (before, after) = (revoked(&before, now), revoked(&after, now));
        let is_whole = after.first().is_some_and(|one| Some(one) == self.fingerprints.first());
        !is_whole && before.iter().any(|one| !after.contains(one))
    }

    /// A fingerprint as gpg prints it: upper-case hex digits.
    pub fn fingerprint_text(fingerprint: &[u8]) -> String {
        fingerprint.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02X}");
            text
        })
    }
}

/// The key without what others say of it, and without pictures.
fn own_part(mut key: SignedPublicKey) -> SignedPublicKey {
    let primary = &key.primary_key;
    let details = &mut key.details;
    details.user_attributes.clear();
    details
        .revocation_signatures
        .retain(|one| one.verify_key(primary).is_ok());
    details.direct_signatures.retain(|one| one.verify_key(primary).is_ok());
    for user in &mut details.users {
        let id = &user.id;
        user.signatures
            .retain(|one| one.verify_certification(primary, Tag::UserId, id).is_ok());
    }
    details.users.retain(|user| !user.signatures.is_empty());
    for subkey in &mut key.public_subkeys {
        let bound = &subkey.key;
        subkey
            .signatures
            .retain(|one| one.verify_subkey_binding(primary, bound).is_ok());
    }
    key.public_subkeys.retain(|subkey| !subkey.signatures.is_empty());
    key
}

fn fingerprints(key: &SignedPublicKey) -> Vec<Bytes> {
    let subkeys = key.public_subkeys.iter().map(|subkey| subkey.key.fingerprint());
    std::iter::once(key.primary_key.fingerprint())
        .chain(subkeys)
        .map(|fingerprint| Bytes::copy_from_slice(fingerprint.as_bytes()))
        .collect()
}

fn label(users: &[SignedUser]) -> String {
    let id = users.first().map(|user| String::from_utf8_lossy(user.id.id()));
    let mut label: String = id.unwrap_or_default().replace(char::is_control, " ");
    label.truncate(label.floor_char_boundary(LABEL_BYTES_MAX));
    label
}

/// The fingerprints of the keys that the owner has taken back: of the primary key first.
fn revoked(key: &SignedPublicKey, now: u64) -> Vec<Bytes> {
    let is_whole = whole_standing(key, now).standing == Standing::Revoked;
    let subkeys = key.public_subkeys.iter().map(|subkey| {
        let standing = subkey_standing(key, subkey, Standing::Signs, now);
        standing == Standing::Revoked
    });
    let are_revoked = std::iter::once(is_whole).chain(subkeys);
    let revoked = fingerprints(key).into_iter().zip(are_revoked);
    revoked
        .filter(|(_, is_revoked)| *is_revoked)
        .map(|(one, _)| one)
        .collect()
}

fn best_standing(key: &SignedPublicKey, now: u64) -> Standing {
    let whole = whole_standing(key, now);
    let subkeys = key.public_subkeys.iter();
    let subkeys = subkeys.map(|subkey| subkey_standing(key, subkey, whole.standing, now));
    subkeys.fold(whole.as_signer(), Standing::max)
}

/// What a key as a whole is good for: nothing of it is better than its primary key.
struct Whole {
    standing: Standing,
    /// Whether the primary key itself is for signing.
    is_signer: bool,
}

impl Whole {
    const UNFIT: Self = Self {
        standing: Standing::Unfit,
        is_signer: false,
    };

    /// What the primary key is good for as a signer.
    fn as_signer(&self) -> Standing {
        match self.is_signer {
            true => self.standing,
            false => Standing::Unfit,
        }
    }
}

fn whole_standing(key: &SignedPublicKey, now: u64) -> Whole {
    let primary = &key.primary_key;
    let Some(newest) = self_signature(key, now) else {
        return Whole::UNFIT;
    };
    let mut revocations = key.details.revocation_signatures.iter();
    let standing = match () {
        () if !matches!(primary.version(), KeyVersion::V4 | KeyVersion::V6) => Standing::Unfit,
        () if is_weak(primary.public_params()) => Standing::Unfit,
        () if revocations.any(|one| one.verify_key(primary).is_ok()) => Standing::Revoked,
        () if is_over(newest, primary, now) => Standing::Expired,
        () => Standing::Signs,
    };
    Whole {
        standing,
        is_signer: newest.key_flags().sign(),
    }
}

/// The newest statement of a key about itself (RFC 9580, section 5.2.3.10): of version 6 a direct one; of older ones that of a user
/// id that was not taken back, too.
fn self_signature(key: &SignedPublicKey, now: u64) -> Option<&Signature> {
    let primary = &key.primary_key;
    let direct = key.details.direct_signatures.iter();
    let direct = direct.filter(|one| one.typ() == Some(SignatureType::Key) && one.verify_key(primary).is_ok());
    let users = key
        .details
        .users
        .iter()
        .filter(|_| primary.version() != KeyVersion::V6)
        .flat_map(|user| user_signatures(primary, user));
    newest(direct.chain(users), now)
}

fn user_signatures<'a>(primary: &'a PublicKey, user: &'a SignedUser) -> impl Iterator<Item = &'a Signature> {
    let own = move |one: &&Signature| one.verify_certification(primary, Tag::UserId, &user.id).is_ok();
    let is_revocation = |one: &&Signature| one.typ() == Some(SignatureType::CertRevocation);
    let is_revoked = user.signatures.iter().filter(is_revocation).any(|one| own(&one));
    let signatures = user.signatures.iter().filter(move |_| !is_revoked);
    signatures.filter(move |one| !is_revocation(one) && own(one))
}

/// What a subkey is good for as a signer, where the key as a whole is good for `whole`.
fn subkey_standing(key: &SignedPublicKey, subkey: &SignedPublicSubKey, whole: Standing, now: u64) -> Standing {
    let (primary, bound) = (&key.primary_key, &subkey.key);
    let own = |kind: SignatureType| {
        let own = subkey.signatures.iter().filter(move |one| one.typ() == Some(kind));
        own.filter(|one| one.verify_subkey_binding(primary, bound).is_ok())
    };
    let Some(binding) = newest(own(SignatureType::SubkeyBinding), now) else {
        return Standing::Unfit;
    };
    let agrees = binding.embedded_signature().is_some_and(|back| {
        is_strong(back)
            && back.typ() == Some(SignatureType::KeyBinding)
            && back.verify_primary_key_binding(bound, primary).is_ok()
    });
    match () {
        () if !agrees || !binding.key_flags().sign() || is_weak(bound.public_params()) => Standing::Unfit,
        () if own(SignatureType::SubkeyRevocation).next().is_some() => whole.min(Standing::Revoked),
        () if is_over(binding, bound, now) => whole.min(Standing::Expired),
        () => whole,
    }
}

/// The newest of signatures that hold at that moment.
fn newest<'a>(signatures: impl Iterator<Item = &'a Signature>, now: u64) -> Option<&'a Signature> {
    signatures
        .filter(|one| is_strong(one) && !has_run_out(one, now))
        .filter(|one| made(one).is_some_and(|made| made <= now))
        .max_by_key(|one| made(one))
}

fn made(signature: &Signature) -> Option<u64> {
    signature.created().map(|created| created.as_secs().into())
}

/// Whether the time that a signature was given is over.
fn has_run_out(signature: &Signature, now: u64) -> bool {
    let seconds = signature
        .signature_expiration_time()
        .map_or(0, |time| u64::from(time.as_secs()));
    seconds > 0 && made(signature).is_none_or(|made| made + seconds <= now)
}

/// Whether the time that a key was given by `statement` is over.
fn is_over(statement: &Signature, key: &impl KeyDetails, now: u64) -> bool {
    let seconds = statement
        .key_expiration_time()
        .map_or(0, |time| u64::from(time.as_secs()));
    seconds > 0 && u64::from(key.created_at().as_secs()) + seconds <= now
}

/// By the time that anybody reads this, collisions of what is not named here can be bought.
fn is_strong(signature: &Signature) -> bool {
    use HashAlgorithm::{Sha3_256, Sha3_512, Sha256, Sha384, Sha512};
    matches!(
        signature.hash_alg(),
        Some(Sha256 | Sha384 | Sha512 | Sha3_256 | Sha3_512)
    )
}

fn is_weak(key: &PublicParams) -> bool {
    match key {
        // A number of OpenPGP begins with its bits.
        PublicParams::RSA(_) => match key.to_bytes().as_deref() {
            Ok([high, low, ..]) => u16::from_be_bytes([*high, *low]) < RSA_BITS_MIN,
            _ => true,
        },
        PublicParams::ECDSA(_) | PublicParams::EdDSALegacy(_) | PublicParams::Ed25519(_) | PublicParams::Ed448(_) => {
            false
        }
        _ => true,
    }
}

/// A detached signature.
#[derive(Clone, Debug)]
pub struct OpenPgpSignature(Signature);

/// What a signature is worth in view of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was not made by any key of it, or not of this.
    Bad,
    /// It was made of this, but its own time is over.
    Expired,
    /// It was made of this by the key with that fingerprint.
    Of(Bytes, Standing),
}

impl OpenPgpSignature {
    /// Reads the one signature in an armored text; `None` for anything else, for more than one, and for what is too long.
    pub fn parse(armored: &[u8]) -> Option<Self> {
        if armored.len() > SIGNATURE_BYTES_MAX {
            return None;
        }
        let (mut signatures, _) = DetachedSignature::from_armor_many_buf(armored).ok()?;
        match (signatures.next(), signatures.next()) {
            (Some(Ok(one)), None) => Some(Self(one.signature)),
            _ => None,
        }
    }

    /// Whether it says that it was made by one of the keys with these fingerprints. Anyone can say so.
    pub fn claims(&self, fingerprints: &[Bytes]) -> bool {
        let issuers = self.0.issuer_fingerprint();
        if issuers.is_empty() {
            let ids = self.0.issuer_key_id();
            return fingerprints
                .iter()
                .any(|one| ids.iter().any(|id| key_id(one) == Some(id.as_ref())));
        }
        fingerprints
            .iter()
            .any(|one| issuers.iter().any(|issuer| issuer.as_bytes() == &one[..]))
    }

    /// The key that it names, as gpg prints it; empty if it names none.
    pub fn issuer(&self) -> String {
        let fingerprint = self.0.issuer_fingerprint().first().map(|one| one.as_bytes().to_vec());
        let id = || self.0.issuer_key_id().first().map(|id| id.as_ref().to_vec());
        OpenPgpKey::fingerprint_text(&fingerprint.or_else(id).unwrap_or_default())
    }

    /// What it is worth as one of `payload` by a key of `certificate`, at a moment in seconds since 1970. The moment that counts is
    /// that, not the one which the signature names.
    ///
    /// Cost: about one verification for each signature in the certificate, which is bounded when it is taken.
    pub fn verify(&self, payload: &[u8], certificate: &[u8], now: u64) -> Verdict {
        let Ok(key) = SignedPublicKey::from_bytes(certificate) else {
            return Verdict::Bad;
        };
        if !is_strong(&self.0) || !matches!(self.0.typ(), Some(SignatureType::Binary | SignatureType::Text)) {
            return Verdict::Bad;
        }
        let is_later = |key: &dyn KeyDetails| made(&self.0) >= Some(key.created_at().as_secs().into());
        let primary = &key.primary_key;
        let (fingerprint, standing) = if self.0.verify(primary, payload).is_ok() && is_later(primary) {
            (primary.fingerprint(), whole_standing(&key, now).as_signer())
        } else {
            let mut subkeys = key.public_subkeys.iter();
            match subkeys.find(|subkey| self.0.verify(&subkey.key, payload).is_ok() && is_later(&subkey.key)) {
                Some(subkey) => {
                    let whole = whole_standing(&key, now).standing;
                    (subkey.key.fingerprint(), subkey_standing(&key, subkey, whole, now))
                }
                None => return Verdict::Bad,
            }
        };
        match has_run_out(&self.0, now) {
            true => Verdict::Expired,
            false => Verdict::Of(Bytes::copy_from_slice(fingerprint.as_bytes()), standing),
        }
    }
}

/// The short name of a key (RFC 9580, section 5.5.4): a part of its fingerprint.
fn key_id(fingerprint: &[u8]) -> Option<&[u8]> {
    match fingerprint.len() {
        20 => fingerprint.last_chunk::<8>().map(<[u8; 8]>::as_slice),
        _ => fingerprint.first_chunk::<8>().map(<[u8; 8]>::as_slice),
    }
}

#[cfg(test)]
#[path = "openpgp_tests.rs"]
mod tests;
