//! Nonces of signed pushes (git-config, `receive.certNonceSeed` and `receive.certNonceSlop`).
//!
//! What is verified of a certificate: that its commands and options are those of the push, and that its nonce is one this
//! server gave for this repository; who signed it is looked at in `push_signature`. The certificate is kept in the ledger,
//! signature and all. Stock git leaves it to a hook to refuse a nonce; there are no hooks here, so that a certificate whose
//! nonce is missing or not ours is refused: it may be somebody's push to another repository. Over HTTP one that is ours but older
//! than the slop is taken, and its status `SLOP` kept and logged, as stock tells it to its hooks; but where only signed pushes
//! are taken it is refused, or an old certificate could be shown again by others. In a conversation only the one that it began
//! with is worth anything.

use super::repository_options::RepositoryOptions;
use crate::http::record::RequestId;
use crate::node::Node;
use cuesta_engine::Settings;
use cuesta_format::NonceStatus;
use cuesta_git::{ObjectFormat, hmac};
use cuesta_protocol::options::ReceiveOptions;
use cuesta_protocol::receive::Certificate;
use std::ops::RangeInclusive;
use subtle::ConstantTimeEq;

/// What every command of a push is refused with whose nonce is not ours.
pub const BAD_NONCE: &str = "push certificate has no nonce of this server";

/// The same, where only signed pushes are taken and the nonce is an old one.
pub const OLD_NONCE: &str = "push certificate has an old nonce";
/// How old a nonce may be where only signed pushes are taken and the settings do not say: over HTTP a push is never as new as
/// what it was offered.
const REQUIRED_SLOP_SECONDS: u64 = 300;

/// What makes nonces for one repository.
#[derive(Clone, PartialEq, Eq)]
pub struct NonceSeed {
    seed: String,
    /// Names the repository to the nonce, so that it is worth nothing elsewhere.
    place: String,
    format: ObjectFormat,
    slop_seconds: u64,
}

impl NonceSeed {
    /// The seed that the settings give; `None` takes no certificates. `place` tells this repository from all others; where pushes
    /// must be signed (`required`), the slop is some minutes if the settings do not say.
    pub fn of(settings: &Settings<'_>, place: String, format: ObjectFormat, required: bool) -> Option<Self> {
        let seed = settings.get("receive.certnonceseed").filter(|seed| !seed.is_empty())?;
        let slop = settings
            .get("receive.certnonceslop")
            .and_then(|slop| slop.trim().parse().ok());
        Some(Self {
            seed: seed.to_owned(),
            place,
            format,
            slop_seconds: slop.unwrap_or(if required { REQUIRED_SLOP_SECONDS } else { 0 }),
        })
    }

    /// The nonce of a moment, in seconds since 1970: `<seconds>-<HMAC>`, byte for byte as git makes it.
    pub fn nonce(&self, seconds: u64) -> String {
        let key = format!("{}:{seconds}", self.place);
        format!("{seconds}-{}", hmac(self.format, key.as_bytes(), self.seed.as_bytes()))
    }

    /// What the nonce of a certificate is worth at that moment. In a conversation it must be the one that was given when it
    /// began, between the moments `given`; where each request stands alone the slop counts (git's `check_nonce`).
    pub fn check(&self, certificate: &Certificate, now: u64, given: Option<&RangeInclusive<u64>>) -> NonceStatus {
        let Some(nonce) = certificate.nonce.as_deref() else {
            return NonceStatus::Missing;
        };
        let Some(seconds) = seconds_of(nonce) else {
            return NonceStatus::Bad;
        };
        let ours: bool = self.nonce(seconds).as_bytes().ct_eq(nonce).into();
        match given {
            _ if !ours => NonceStatus::Bad,
            Some(given) if given.contains(&seconds) => NonceStatus::Ok,
            Some(_) => NonceStatus::Bad,
            None if now.abs_diff(seconds) <= self.slop_seconds => NonceStatus::Ok,
            None => NonceStatus::Slop,
        }
    }
}

/// What receive-pack offers in one session, and what its nonces are made of. `place` is the id of the repository, or its name
/// if the push is to make it.
pub fn offer(
    node: &Node,
    options: RepositoryOptions<'_>,
    place: String,
    format: ObjectFormat,
    session: RequestId,
) -> (ReceiveOptions, Option<NonceSeed>) {
    let required = options.requires_certificate();
    let seed = NonceSeed::of(&options.settings(), place, format, required);
    let mut offered = options.receive(session);
    offered.push_cert_nonce = seed.as_ref().map(|seed| seed.nonce(now(node)));
    (offered, seed)
}

/// Seconds since 1970.
pub fn now(node: &Node) -> u64 {
    u64::try_from(node.clock.now_ms() / 1000).unwrap_or(0)
}

impl std::fmt::Debug for NonceSeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NonceSeed")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

/// The time in front of a nonce, in the one way to write it.
fn seconds_of(nonce: &[u8]) -> Option<u64> {
    let end = nonce.iter().position(|byte| *byte == b'-')?;
    let digits = std::str::from_utf8(nonce.get(..end)?).ok()?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use std::collections::BTreeMap;

    fn seed(slop: &str, place: &str) -> NonceSeed {
        let node = [("receive.certnonceseed", "sekrit"), ("receive.certnonceslop", slop)];
        let node: BTreeMap<String, String> = node.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        NonceSeed::of(&Settings::of_node(&node), place.to_owned(), ObjectFormat::Sha1, false).unwrap()
    }

    fn with(nonce: Option<&str>) -> Certificate {
        Certificate {
            payload: Bytes::new(),
            signature: Bytes::new(),
            pusher: None,
            pushee: None,
            nonce: nonce.map(|nonce| Bytes::copy_from_slice(nonce.as_bytes())),
            push_options: Vec::new(),
        }
    }

    #[test]
    fn nonces_are_worth_something_for_their_repository_and_a_while() {
        let (here, there) = (seed("10", "a"), seed("10", "b"));
        let nonce = here.nonce(1_000);
        let check = |nonce: &str, now| here.check(&with(Some(nonce)), now, None);
        for (now, status) in [
            (1_000, NonceStatus::Ok),
            (1_010, NonceStatus::Ok),
            (990, NonceStatus::Ok),
        ] {
            assert_eq!(check(&nonce, now), status, "{now}");
        }
        assert_eq!(check(&nonce, 1_011), NonceStatus::Slop);
        assert_eq!(
            seed("0", "a").check(&with(Some(&nonce)), 1_001, None),
            NonceStatus::Slop
        );
        assert_eq!(here.check(&with(None), 1_000, None), NonceStatus::Missing);
        for (given, status) in [
            (999..=1_000, NonceStatus::Ok),
            (1_000..=1_000, NonceStatus::Ok),
            (1_001..=1_001, NonceStatus::Bad),
            (990..=999, NonceStatus::Bad),
        ] {
            assert_eq!(
                here.check(&with(Some(&nonce)), 1_500, Some(&given)),
                status,
                "{given:?}"
            );
        }
        assert_eq!(
            here.check(&with(Some(&there.nonce(1_000))), 1_000, Some(&(1_000..=1_000))),
            NonceStatus::Bad
        );
        assert_eq!(check(&there.nonce(1_000), 1_000), NonceStatus::Bad);
        let forged = nonce.replace("1000-", "1001-");
        for bad in [
            "",
            "-",
            "x",
            "1000",
            "1000-",
            "01000-0",
            "99999999999999999999-0",
            &forged,
            &nonce[..20],
        ] {
            assert_eq!(check(bad, 1_000), NonceStatus::Bad, "{bad}");
        }
    }

    #[test]
    fn where_pushes_must_be_signed_a_nonce_is_good_for_minutes() {
        let of = |slop: &[(&str, &str)], required| {
            let seed = [("receive.certnonceseed", "sekrit")];
            let settings = seed.iter().chain(slop);
            let settings: BTreeMap<_, _> = settings
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            let settings = Settings::of_node(&settings);
            NonceSeed::of(&settings, "a".to_owned(), ObjectFormat::Sha1, required).unwrap()
        };
        let set = [("receive.certnonceslop", "7")];
        for (seed, seconds) in [
            (of(&[], false), 0),
            (of(&[], true), REQUIRED_SLOP_SECONDS),
            (of(&set, true), 7),
        ] {
            let nonce = seed.nonce(1_000);
            let check = |now| seed.check(&with(Some(&nonce)), now, None);
            assert_eq!(check(1_000 + seconds), NonceStatus::Ok);
            assert_eq!(check(1_001 + seconds), NonceStatus::Slop);
        }
    }

    #[test]
    fn there_are_none_without_a_seed() {
        let none = BTreeMap::new();
        assert_eq!(
            NonceSeed::of(&Settings::of_node(&none), "a".to_owned(), ObjectFormat::Sha1, true),
            None
        );
        let empty = BTreeMap::from([("receive.certnonceseed".to_owned(), String::new())]);
        assert_eq!(
            NonceSeed::of(&Settings::of_node(&empty), "a".to_owned(), ObjectFormat::Sha1, false),
            None
        );
    }

    #[test]
    fn nonces_are_those_of_git() {
        for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
            let directory = tempfile::tempdir().unwrap();
            let git = |arguments: &[&str]| {
                let mut git = std::process::Command::new("git");
                git.current_dir(&directory)
                    .args(arguments)
                    .env("GIT_CONFIG_NOSYSTEM", "1");
                git.output().unwrap().stdout
            };
            git(&["init", "-q", "--bare", &format!("--object-format={format}"), "."]);
            git(&["config", "receive.certNonceSeed", "sekrit"]);
            let place = directory.path().to_str().unwrap();
            let offered = git(&["receive-pack", "--http-backend-info-refs", place]);
            let offered = String::from_utf8_lossy(&offered).into_owned();
            let nonce = offered.split_once("push-cert=").unwrap().1.split(' ').next().unwrap();
            let seconds = seconds_of(nonce.as_bytes()).unwrap();
            let seed = NonceSeed {
                format,
                ..seed("0", place)
            };
            assert_eq!(seed.nonce(seconds), nonce);
        }
    }
}
