//! The gate over an engine in memory, at times of the test's choice.

use super::*;
use crate::access::TokenText;
use cuesta_engine::{EngineOptions, EngineParts};
use cuesta_format::{AccountChange, Grantee, KeyRecord, Role, RoleRecord, TokenRecord, UserRecord};
use cuesta_git::ObjectFormat;
use cuesta_ledger::MemoryStore;
use cuesta_store::{BlockCache, Bucket, BucketOptions, CacheOptions, Entropy, Workers};
use std::sync::atomic::{AtomicI64, Ordering};

const START_MS: i64 = 1_700_000_000_000;

struct World {
    engine: Engine,
    time: Arc<AtomicI64>,
    gate: Gate,
    entropy: Entropy,
}

impl World {
    async fn new(authentication: Authentication) -> Self {
        let bucket = Bucket::open("memory:", &BucketOptions::default()).unwrap();
        let (time, entropy) = (Arc::new(AtomicI64::new(START_MS)), Entropy::seeded(1));
        let now = time.clone();
        let clock = Clock::new(move || now.load(Ordering::Relaxed));
        let parts = EngineParts {
            cache: BlockCache::new(bucket, CacheOptions::default()).unwrap(),
            log_store: Arc::new(MemoryStore::new()),
            clock: clock.clone(),
            entropy: entropy.clone(),
            workers: Workers::Pool(tokio::runtime::Handle::current()),
            options: EngineOptions::default(),
        };
        let engine = Engine::open(parts).await.unwrap();
        let settings = Settings {
            authentication,
            ..Settings::default()
        };
        let gate = Gate::new(&settings, engine.clone(), clock);
        Self {
            engine,
            time,
            gate,
            entropy,
        }
    }

    async fn change(&self, change: AccountChange) {
        self.engine.change_accounts(vec![change], "test").await.unwrap();
    }

    async fn user(&self, name: &str) {
        let name = name.to_owned();
        self.change(AccountChange::AddUser(UserRecord { name, is_admin: false }))
            .await;
    }

    async fn token(&self, user: &str, expires_ms: Option<i64>) -> TokenText {
        let token = TokenText::random(&self.entropy);
        let record = TokenRecord {
            digest: token.digest(),
            user: user.to_owned(),
            label: String::new(),
            scope: Role::Write,
            repositories: None,
            created_ms: START_MS,
            expires_ms,
        };
        self.change(AccountChange::AddToken(record)).await;
        token
    }

    async fn show(&self, claimed: &str, token: &TokenText, peer: &str) -> Result<Identity, Denied> {
        let credential = Credential {
            claimed: Some(claimed.to_owned()),
            token: Some(token.clone()),
        };
        self.gate
            .authenticate(Ok(Some(credential)), peer.parse().unwrap())
            .await
    }

    /// Fails so often that the next attempt has to wait.
    async fn fail(&self, claimed: &str, peers: impl Iterator<Item = String>) {
        for peer in peers {
            let wrong = TokenText::random(&self.entropy);
            let denied = self.show(claimed, &wrong, &peer).await.unwrap_err();
            assert!(matches!(denied, Denied::Invalid), "{denied:?}");
        }
    }

    fn wait(&self, ms: i64) {
        self.time.fetch_add(ms, Ordering::Relaxed);
    }
}

fn name(text: &str) -> RepositoryName {
    RepositoryName::parse(text).unwrap()
}

const PEER: &str = "10.0.0.1";

#[tokio::test]
async fn tokens_are_good_until_they_expire_or_are_revoked() {
    let world = World::new(Authentication::Accounts).await;
    world.user("ann").await;
    let (short, long) = (
        world.token("ann", Some(START_MS + 100)).await,
        world.token("ann", None).await,
    );
    for token in [&short, &long] {
        let identity = world.show("whoever", token, PEER).await.unwrap();
        assert_eq!(identity.name(), "ann");
    }
    world.wait(99);
    let open = world.show("", &short, PEER).await.unwrap();
    world.wait(1);
    for _ in 0..30 {
        let denied = world.show("", &short, PEER).await.unwrap_err();
        assert!(
            matches!(denied, Denied::Invalid),
            "expired tokens are no guesses: {denied:?}"
        );
    }
    let admitted = world.gate.admit(&open, &name("ann/x"), Want::Write).await.unwrap();
    assert_eq!(
        admitted,
        Admission::Refused(Access::Unauthenticated),
        "an identity ends with its token"
    );
    world.change(AccountChange::RevokeToken(long.id())).await;
    assert!(matches!(world.show("", &long, PEER).await, Err(Denied::Invalid)));
}

#[tokio::test]
async fn a_token_with_the_id_of_another_is_not_the_other() {
    let world = World::new(Authentication::Accounts).await;
    world.user("ann").await;
    let token = TokenText::random(&world.entropy);
    let mut digest = token.digest();
    digest[31] ^= 1;
    let record = TokenRecord {
        digest,
        user: "ann".to_owned(),
        label: String::new(),
        scope: Role::Admin,
        repositories: None,
        created_ms: 0,
        expires_ms: None,
    };
    assert_eq!(record.id(), token.id());
    world.change(AccountChange::AddToken(record)).await;
    assert!(matches!(world.show("ann", &token, PEER).await, Err(Denied::Invalid)));
}

#[tokio::test]
async fn a_peer_that_fails_too_often_waits_and_nobody_else_does() {
    let world = World::new(Authentication::Accounts).await;
    world.user("ann").await;
    let good = world.token("ann", None).await;
    world.fail("", (0..10).map(|_| PEER.to_owned())).await;
    for token in [&good, &TokenText::random(&world.entropy)] {
        let denied = world.show("", token, PEER).await.unwrap_err();
        assert!(matches!(denied, Denied::Throttled { seconds: 6 }), "{denied:?}");
    }
    assert!(world.show("", &good, "10.0.0.2").await.is_ok());
    let anonymous = world.gate.authenticate(Ok(None), PEER.parse().unwrap()).await;
    assert_eq!(anonymous.unwrap(), Identity::Anonymous);
    world.wait(6_000);
    assert!(world.show("", &good, PEER).await.is_ok());
}

#[tokio::test]
async fn a_user_name_that_many_try_is_refused_to_all_but_its_owner() {
    let world = World::new(Authentication::Accounts).await;
    world.user("ann").await;
    let good = world.token("ann", None).await;
    world.fail("ann", (0..10).map(|n| format!("10.0.1.{n}"))).await;
    let wrong = TokenText::random(&world.entropy);
    let denied = world.show("ann", &wrong, "10.0.2.1").await.unwrap_err();
    assert!(matches!(denied, Denied::Throttled { .. }), "{denied:?}");
    assert!(world.show("ann", &good, "10.0.2.2").await.is_ok());
}

#[tokio::test]
async fn keys_are_their_users() {
    let world = World::new(Authentication::Accounts).await;
    world.user("ann").await;
    let key = KeyRecord {
        blob: "a key".into(),
        user: "ann".to_owned(),
        label: String::new(),
        added_ms: 0,
    };
    world.change(AccountChange::AddKey(key)).await;
    let identity = world.gate.authenticate_key(b"a key").await.unwrap().unwrap();
    assert_eq!(identity.name(), "ann");
    assert_eq!(world.gate.authenticate_key(b"another").await.unwrap(), None);
    let admit = async || world.gate.admit(&identity, &name("ann/x"), Want::Write).await.unwrap();
    assert_eq!(admit().await, Admission::Granted(None));
    world.change(AccountChange::RemoveKey("a key".into())).await;
    assert_eq!(admit().await, Admission::Refused(Access::Unauthenticated));
}

#[tokio::test]
async fn admission_is_to_the_repository_and_not_to_its_name() {
    let world = World::new(Authentication::Accounts).await;
    for user in ["ann", "bob"] {
        world.user(user).await;
    }
    let token = world.token("bob", None).await;
    let bob = world.show("", &token, PEER).await.unwrap();
    let make = async |text: &str| {
        world
            .engine
            .create_repository(&name(text), ObjectFormat::Sha1, "")
            .await
            .unwrap()
            .id()
    };
    let log = make("ann/x").await;
    world
        .change(AccountChange::SetRole(RoleRecord {
            repository: log,
            grantee: Grantee::User("bob".to_owned()),
            role: Some(Role::Write),
        }))
        .await;
    let admit = async |text: &str, want| world.gate.admit(&bob, &name(text), want).await.unwrap();
    let granted = |admission| matches!(admission, Admission::Granted(Some(record)) if record.log == log);
    assert!(granted(admit("ann/x", Want::Write).await));
    world
        .engine
        .rename_repository(&name("ann/x"), &name("ann/y"), "")
        .await
        .unwrap();
    make("ann/x").await;
    assert!(granted(admit("ann/y", Want::Write).await));
    assert_eq!(admit("ann/x", Want::Read).await, Admission::Refused(Access::Hidden));
    assert_eq!(admit("bob/new", Want::Write).await, Admission::Granted(None));
    assert_eq!(admit("bob/new", Want::Read).await, Admission::Refused(Access::Hidden));
    assert_eq!(admit("ann/new", Want::Write).await, Admission::Refused(Access::Hidden));
}

#[tokio::test]
async fn without_accounts_nobody_is_asked() {
    let world = World::new(Authentication::None).await;
    let wrong = TokenText::random(&world.entropy);
    for _ in 0..20 {
        assert_eq!(world.show("ann", &wrong, PEER).await.unwrap(), Identity::Unchecked);
    }
    let admit = async |want| {
        world
            .gate
            .admit(&Identity::Unchecked, &name("a/b"), want)
            .await
            .unwrap()
    };
    assert_eq!(admit(Want::Read).await, Admission::Refused(Access::Hidden));
    assert_eq!(admit(Want::Write).await, Admission::Granted(None));
    world
        .engine
        .create_repository(&name("a/b"), ObjectFormat::Sha1, "")
        .await
        .unwrap();
    assert!(matches!(admit(Want::Read).await, Admission::Granted(Some(_))));
}
