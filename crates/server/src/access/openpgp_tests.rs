//! Keys and signatures that GnuPG 2.2.40 has made, dated 2024 by `--faked-system-time`: all signatures are of `payload`.

use super::*;
use pgp::composed::ArmorOptions;

const PAYLOAD: &[u8] = include_bytes!("openpgp_fixtures/payload");
/// 2024-06-15, 2024-12-01, 2025-06-15, 2026-06-15.
const JUNE: u64 = 1_718_409_600;
const DECEMBER: u64 = 1_733_011_200;
const NEXT_JUNE: u64 = 1_749_945_600;
const LATER: u64 = 1_781_481_600;

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("openpgp_fixtures/", $name))
    };
}

fn key(text: &str) -> OpenPgpKey {
    OpenPgpKey::parse(text, JUNE).unwrap()
}

/// What a signature is worth by a key at a moment; `None` if it does not even claim to be by it.
fn worth(signature: &str, key: &OpenPgpKey, now: u64) -> Option<Result<Standing, Verdict>> {
    let signature = OpenPgpSignature::parse(signature.as_bytes()).unwrap();
    signature
        .claims(&key.fingerprints)
        .then(|| match signature.verify(PAYLOAD, &key.certificate, now) {
            Verdict::Of(fingerprint, standing) => {
                assert!(key.fingerprints.contains(&fingerprint));
                assert_eq!(OpenPgpKey::fingerprint_text(&fingerprint), signature.issuer());
                Ok(standing)
            }
            other => Err(other),
        })
}

#[test]
fn a_key_is_known_by_its_fingerprint_and_name() {
    let plain = key(fixture!("plain.asc"));
    assert_eq!(plain.label, "Plain <plain@example.org>");
    assert_eq!((plain.fingerprints.len(), plain.standing), (1, Standing::Signs));
    let subkey = key(fixture!("subkey.asc"));
    assert_eq!((subkey.fingerprints.len(), subkey.standing), (4, Standing::Signs));
    // What is kept says the same as what was given.
    let kept = SignedPublicKey::from_bytes(&subkey.certificate[..]).unwrap();
    assert_eq!(fingerprints(&kept), subkey.fingerprints);
}

#[test]
fn good_signatures_are_by_keys_that_may_sign() {
    let (plain, subkey) = (key(fixture!("plain.asc")), key(fixture!("subkey.asc")));
    assert_eq!(worth(fixture!("plain.sig"), &plain, JUNE), Some(Ok(Standing::Signs)));
    assert_eq!(worth(fixture!("plain.sig"), &plain, LATER), Some(Ok(Standing::Signs)));
    assert_eq!(worth(fixture!("subkey.sig"), &subkey, JUNE), Some(Ok(Standing::Signs)));
    assert_eq!(
        worth(fixture!("subkey-p256.sig"), &subkey, JUNE),
        Some(Ok(Standing::Signs))
    );
    assert_eq!(worth(fixture!("plain.sig"), &subkey, JUNE), None, "another's");
}

#[test]
fn a_signature_is_of_its_text_and_by_its_key() {
    let (plain, subkey) = (key(fixture!("plain.asc")), key(fixture!("subkey.asc")));
    let signature = OpenPgpSignature::parse(fixture!("plain.sig").as_bytes()).unwrap();
    assert_eq!(signature.verify(b"another", &plain.certificate, JUNE), Verdict::Bad);
    assert_eq!(signature.verify(PAYLOAD, &subkey.certificate, JUNE), Verdict::Bad);
    assert_eq!(signature.verify(PAYLOAD, b"no key", JUNE), Verdict::Bad);
}

#[test]
fn the_time_of_keys_and_signatures_ends() {
    let (plain, subkey) = (key(fixture!("plain.asc")), key(fixture!("subkey.asc")));
    let (expired, extended) = (key(fixture!("expired.asc")), key(fixture!("extended.asc")));
    // Signed while it was good, and shown later: the time that counts is now.
    assert_eq!(
        worth(fixture!("expired.sig"), &expired, DECEMBER),
        Some(Ok(Standing::Signs))
    );
    assert_eq!(
        worth(fixture!("expired.sig"), &expired, NEXT_JUNE),
        Some(Ok(Standing::Expired))
    );
    assert_eq!(
        worth(fixture!("expired.sig"), &extended, NEXT_JUNE),
        Some(Ok(Standing::Signs)),
        "the newest word counts"
    );
    assert_eq!(
        worth(fixture!("subkey-p256.sig"), &subkey, LATER),
        Some(Ok(Standing::Expired))
    );
    assert_eq!(worth(fixture!("subkey.sig"), &subkey, LATER), Some(Ok(Standing::Signs)));
    assert_eq!(
        worth(fixture!("plain-short.sig"), &plain, JUNE),
        Some(Err(Verdict::Expired))
    );
}

/// The key without what takes it, or subkeys of it, back.
fn before_revocation(text: &str) -> OpenPgpKey {
    let (mut key, _) = SignedPublicKey::from_string(text).unwrap();
    key.details.revocation_signatures.clear();
    for subkey in &mut key.public_subkeys {
        subkey
            .signatures
            .retain(|one| one.typ() != Some(SignatureType::SubkeyRevocation));
    }
    self::key(&key.to_armored_string(ArmorOptions::default()).unwrap())
}

#[test]
fn an_older_form_takes_no_revocation_back() {
    for text in [fixture!("revoked.asc"), fixture!("subkey-revoked.asc")] {
        let (older, newer) = (before_revocation(text), key(text));
        assert_ne!(older.standing, Standing::Revoked);
        assert!(older.lacks_revocation_of(&newer.certificate, JUNE));
        assert!(!newer.lacks_revocation_of(&older.certificate, JUNE));
        assert!(!newer.lacks_revocation_of(&newer.certificate, JUNE));
    }
    let plain = key(fixture!("plain.asc"));
    assert!(!plain.lacks_revocation_of(&plain.certificate, JUNE));
}

#[test]
fn revoked_keys_sign_nothing_any_more() {
    let (revoked, subkey) = (key(fixture!("revoked.asc")), key(fixture!("subkey-revoked.asc")));
    assert_eq!(revoked.standing, Standing::Revoked);
    assert_eq!(
        worth(fixture!("revoked.sig"), &revoked, DECEMBER),
        Some(Ok(Standing::Revoked))
    );
    assert_eq!(
        worth(fixture!("subkey.sig"), &subkey, DECEMBER),
        Some(Ok(Standing::Revoked))
    );
    assert_eq!(
        worth(fixture!("subkey-p256.sig"), &subkey, DECEMBER),
        Some(Ok(Standing::Signs))
    );
}

#[test]
fn sha1_proves_nothing() {
    let plain = key(fixture!("plain.asc"));
    assert_eq!(worth(fixture!("plain-sha1.sig"), &plain, JUNE), Some(Err(Verdict::Bad)));
    assert_eq!(
        OpenPgpKey::parse(fixture!("sha1.asc"), JUNE),
        Err(OpenPgpKeyError::Unfit)
    );
}

#[test]
fn keys_that_cannot_sign_are_refused() {
    for text in [fixture!("dsa.asc"), fixture!("weak.asc"), fixture!("certifies.asc")] {
        assert_eq!(OpenPgpKey::parse(text, JUNE), Err(OpenPgpKeyError::Unfit), "{text}");
    }
}

/// A subkey's own agreement stands where the primary key did not sign it, so that anybody may leave it out or replace it.
#[test]
fn a_subkey_belongs_where_it_says_it_does() {
    let (text, _) = SignedPublicKey::from_string(fixture!("subkey.asc")).unwrap();
    let back = |key: &SignedPublicKey, at: usize| {
        let binding = &key.public_subkeys[at].signatures[0];
        let packets = &binding.config().unwrap().unhashed_subpackets;
        let at = packets
            .iter()
            .position(|one| matches!(one.data, pgp::packet::SubpacketData::EmbeddedSignature(_)));
        (at.unwrap(), packets[at.unwrap()].clone())
    };
    let mut without = text.clone();
    let (at, _) = back(&text, 0);
    without.public_subkeys[0].signatures[0]
        .unhashed_subpacket_remove(at)
        .unwrap();
    let mut foreign = without.clone();
    let (_, of_another) = back(&text, 1);
    foreign.public_subkeys[0].signatures[0]
        .unhashed_subpacket_push(of_another)
        .unwrap();
    let signature = OpenPgpSignature::parse(fixture!("subkey.sig").as_bytes()).unwrap();
    for (key, expected) in [
        (text, Standing::Signs),
        (without, Standing::Unfit),
        (foreign, Standing::Unfit),
    ] {
        match signature.verify(PAYLOAD, &key.to_bytes().unwrap(), JUNE) {
            Verdict::Of(_, standing) => assert_eq!(standing, expected),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_is_no_key_is_refused() {
    let plain = fixture!("plain.asc");
    let refused = |text: &str| OpenPgpKey::parse(text, JUNE).unwrap_err();
    let private = plain.replace("PUBLIC KEY", "PRIVATE KEY");
    assert_eq!(refused(&private), OpenPgpKeyError::Private);
    for text in [
        "",
        BEGIN,
        &plain[..200],
        &format!("{plain}{plain}"),
        &format!("{}{plain}", " ".repeat(TEXT_BYTES_MAX)),
        fixture!("plain.sig"),
    ] {
        assert_eq!(refused(text), OpenPgpKeyError::Form, "{}", &text[..text.len().min(80)]);
    }
}

#[test]
fn keys_and_signatures_have_a_size() {
    let (text, _) = SignedPublicKey::from_string(fixture!("subkey.asc")).unwrap();
    let with = |subkeys: usize, users: usize| {
        let mut key = text.clone();
        key.public_subkeys = text.public_subkeys.iter().cycle().take(subkeys).cloned().collect();
        key.details.users = text.details.users.iter().cycle().take(users).cloned().collect();
        OpenPgpKey::parse(&key.to_armored_string(ArmorOptions::default()).unwrap(), JUNE)
    };
    assert_eq!(with(SUBKEYS_MAX, 1).unwrap().fingerprints.len(), SUBKEYS_MAX + 1);
    assert_eq!(with(SUBKEYS_MAX + 1, 1), Err(OpenPgpKeyError::Large));
    let len = |users| with(1, users).unwrap().certificate.len();
    let users = 1 + (KEY_BYTES_MAX - len(1)) / (len(2) - len(1));
    assert!(len(users) <= KEY_BYTES_MAX);
    assert_eq!(with(1, users + 1), Err(OpenPgpKeyError::Large));
    let padded = |text: &str, len: usize| format!("{text}{}", "\n".repeat(len - text.len()));
    let key = |len| OpenPgpKey::parse(&padded(fixture!("plain.asc"), len), JUNE);
    assert!(key(TEXT_BYTES_MAX).is_ok());
    assert_eq!(key(TEXT_BYTES_MAX + 1), Err(OpenPgpKeyError::Form));
    let signature = |len| OpenPgpSignature::parse(padded(fixture!("plain.sig"), len).as_bytes());
    assert!(signature(SIGNATURE_BYTES_MAX).is_some());
    assert!(signature(SIGNATURE_BYTES_MAX + 1).is_none());
}

#[test]
fn what_is_not_one_signature_is_none() {
    let signature = fixture!("plain.sig");
    let padded = signature.replacen('\n', &format!("\nComment: {}\n", "x".repeat(SIGNATURE_BYTES_MAX)), 1);
    for text in [
        "",
        "-----BEGIN PGP SIGNATURE-----\nx\n",
        &signature[..100],
        fixture!("plain.asc"),
        &padded,
    ] {
        assert!(OpenPgpSignature::parse(text.as_bytes()).is_none(), "{text}");
    }
}

#[test]
fn damaged_bytes_are_no_more_than_bad() {
    let plain = key(fixture!("plain.asc"));
    let armored = fixture!("plain.sig").as_bytes();
    for at in 0..armored.len() {
        let mut damaged = armored.to_vec();
        damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
        if let Some(signature) = OpenPgpSignature::parse(&damaged) {
            signature.verify(PAYLOAD, &plain.certificate, JUNE);
        }
    }
    let signature = OpenPgpSignature::parse(armored).unwrap();
    for at in 0..plain.certificate.len() {
        let mut damaged = plain.certificate.to_vec();
        damaged[at] ^= 1;
        signature.verify(PAYLOAD, &damaged, JUNE);
        assert_ne!(
            signature.verify(PAYLOAD, &damaged[..at], JUNE),
            Verdict::Of(plain.fingerprints[0].clone(), Standing::Signs),
            "cut at {at}"
        );
    }
}
