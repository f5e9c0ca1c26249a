//! The accounts: each edit applies whole or not at all, and every node sees it.

// What is not as expected fails the test.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use cuesta_format::{
    AccountChange, AccountsEdit, EditId, Grantee, KeyRecord, LogId, OpenPgpKeyRecord, Role, RoleRecord, TokenId,
    TokenRecord, UserRecord,
};
use cuesta_ledger::{
    AccountConflict, Accounts, AccountsChanged, AccountsState, Log, LogOptions, LogStore, Machine as _, MemoryStore,
    NoCheckpoints,
};
use cuesta_store::{Clock, Entropy};
use proptest::prelude::*;
use std::sync::Arc;

async fn open(store: Arc<dyn LogStore>, seed: u64) -> Accounts {
    let log = Log::<AccountsState>::open(store, LogId::ACCOUNTS, Arc::new(NoCheckpoints), LogOptions::default());
    Accounts::new(
        log.await.unwrap(),
        Clock::new(|| 1_700_000_000_000),
        Entropy::seeded(seed),
    )
}

fn user(name: &str, is_admin: bool) -> UserRecord {
    UserRecord {
        name: name.to_owned(),
        is_admin,
    }
}

fn add(name: &str) -> AccountChange {
    AccountChange::AddUser(user(name, false))
}

fn token(user: &str, first: u8) -> TokenRecord {
    TokenRecord {
        digest: [first; 32],
        user: user.to_owned(),
        label: String::new(),
        scope: Role::Write,
        repositories: None,
        created_ms: 0,
        expires_ms: None,
    }
}

fn key(user: &str, blob: &'static [u8]) -> KeyRecord {
    KeyRecord {
        blob: Bytes::from_static(blob),
        user: user.to_owned(),
        label: String::new(),
        added_ms: 0,
    }
}

fn openpgp_key(user: &str, first: u8, certificate: &'static [u8]) -> OpenPgpKeyRecord {
    OpenPgpKeyRecord {
        fingerprints: vec![Bytes::copy_from_slice(&[first; 20])],
        certificate: Bytes::from_static(certificate),
        user: user.to_owned(),
        label: String::new(),
        added_ms: 0,
    }
}

fn role(log: u128, name: Option<&str>, role: Option<Role>) -> AccountChange {
    AccountChange::SetRole(RoleRecord {
        repository: LogId(log),
        grantee: name.map_or(Grantee::Public, |name| Grantee::User(name.to_owned())),
        role,
    })
}

async fn done(accounts: &Accounts, changes: Vec<AccountChange>) {
    assert_eq!(accounts.change(changes, "me").await.unwrap(), AccountsChanged::Done);
}

async fn conflict(accounts: &Accounts, changes: Vec<AccountChange>) -> AccountConflict {
    match accounts.change(changes, "me").await.unwrap() {
        AccountsChanged::Conflict(conflict) => conflict,
        AccountsChanged::Done => panic!("it applied"),
    }
}

#[tokio::test]
async fn what_one_node_changes_the_other_sees() {
    let memory = Arc::new(MemoryStore::new());
    let (here, there) = (open(memory.clone(), 1).await, open(memory, 2).await);
    done(
        &here,
        vec![
            add("ann"),
            AccountChange::AddToken(token("ann", 1)),
            role(9, Some("ann"), Some(Role::Write)),
        ],
    )
    .await;
    let state = there.fresh().await.unwrap();
    assert!(!state.user("ann").unwrap().is_admin);
    assert_eq!(state.token(TokenId(0x0101_0101_0101_0101)).unwrap().user, "ann");
    assert_eq!(state.roles(LogId(9)).unwrap().of("ann"), Some(Role::Write));
    assert_eq!(state.roles(LogId(9)).unwrap().public(), None);
    done(
        &there,
        vec![
            AccountChange::SetAdmin(user("ann", true)),
            role(9, None, Some(Role::Read)),
        ],
    )
    .await;
    let state = here.fresh().await.unwrap();
    assert!(state.user("ann").unwrap().is_admin);
    assert_eq!(state.roles(LogId(9)).unwrap().public(), Some(Role::Read));
}

#[tokio::test]
async fn what_does_not_apply_changes_nothing() {
    let accounts = open(Arc::new(MemoryStore::new()), 1).await;
    done(
        &accounts,
        vec![
            add("ann"),
            AccountChange::AddKey(key("ann", b"k")),
            AccountChange::AddToken(token("ann", 1)),
            add("bea"),
            AccountChange::PutOpenPgpKey(openpgp_key("ann", 1, b"old")),
        ],
    )
    .await;
    let name = |name: &str| name.to_owned();
    let refused = [
        (add("ann"), AccountConflict::UserExists(name("ann"))),
        (
            AccountChange::RemoveUser(name("bob")),
            AccountConflict::NoUser(name("bob")),
        ),
        (
            AccountChange::SetAdmin(user("bob", true)),
            AccountConflict::NoUser(name("bob")),
        ),
        (
            AccountChange::AddToken(token("bob", 2)),
            AccountConflict::NoUser(name("bob")),
        ),
        (
            AccountChange::AddToken(token("ann", 1)),
            AccountConflict::TokenExists(token("ann", 1).id()),
        ),
        (
            AccountChange::RevokeToken(TokenId(7)),
            AccountConflict::NoToken(TokenId(7)),
        ),
        (
            AccountChange::AddKey(key("ann", b"k")),
            AccountConflict::KeyTaken(name("ann")),
        ),
        (
            AccountChange::RemoveKey(Bytes::from_static(b"other")),
            AccountConflict::NoKey,
        ),
        (
            AccountChange::PutOpenPgpKey(openpgp_key("bea", 1, b"old")),
            AccountConflict::KeyTaken(name("ann")),
        ),
        (
            AccountChange::PutOpenPgpKey(openpgp_key("bob", 2, b"old")),
            AccountConflict::NoUser(name("bob")),
        ),
        (
            AccountChange::RemoveOpenPgpKey(Bytes::from_static(&[2; 20])),
            AccountConflict::NoKey,
        ),
        (
            role(1, Some("bob"), Some(Role::Read)),
            AccountConflict::NoUser(name("bob")),
        ),
        (role(1, None, Some(Role::Admin)), AccountConflict::PublicAdmin),
    ];
    let before = accounts.fresh().await.unwrap().checkpoint();
    for (change, expected) in refused {
        // A change that would apply goes with it, and is undone with it.
        let changes = vec![role(5, Some("ann"), Some(Role::Read)), change];
        assert_eq!(conflict(&accounts, changes).await, expected);
    }
    let after = accounts.fresh().await.unwrap().checkpoint();
    assert_eq!(after, before);
}

#[tokio::test]
async fn a_user_goes_with_everything_and_comes_back_with_nothing() {
    let accounts = open(Arc::new(MemoryStore::new()), 1).await;
    let changes = vec![
        add("ann"),
        add("bob"),
        AccountChange::AddToken(token("ann", 1)),
        AccountChange::AddToken(token("bob", 2)),
        AccountChange::AddKey(key("ann", b"ann's")),
        AccountChange::AddKey(key("bob", b"bob's")),
        AccountChange::PutOpenPgpKey(openpgp_key("ann", 1, b"ann's")),
        AccountChange::PutOpenPgpKey(openpgp_key("bob", 2, b"bob's")),
        role(9, Some("ann"), Some(Role::Admin)),
        role(9, Some("bob"), Some(Role::Read)),
        role(8, Some("ann"), Some(Role::Admin)),
    ];
    done(&accounts, changes).await;
    done(&accounts, vec![AccountChange::RemoveUser("ann".to_owned()), add("ann")]).await;
    let state = accounts.fresh().await.unwrap();
    assert_eq!(
        state.tokens().map(|token| token.user.as_str()).collect::<Vec<_>>(),
        ["bob"]
    );
    assert!(state.key(b"ann's").is_none() && state.key(b"bob's").is_some());
    assert!(state.openpgp_key(&[1; 20]).is_none() && state.openpgp_key(&[2; 20]).is_some());
    assert_eq!(
        state.roles(LogId(9)).unwrap().users().collect::<Vec<_>>(),
        [("bob", Role::Read)]
    );
    assert_eq!(
        state.roles(LogId(8)),
        None,
        "a repository without roles leaves nothing behind"
    );
}

#[tokio::test]
async fn an_openpgp_key_is_replaced_by_its_newer_form() {
    let accounts = open(Arc::new(MemoryStore::new()), 1).await;
    let put = |certificate| AccountChange::PutOpenPgpKey(openpgp_key("ann", 1, certificate));
    done(&accounts, vec![add("ann"), put(b"old"), put(b"new")]).await;
    let state = accounts.fresh().await.unwrap();
    assert_eq!(&state.openpgp_key(&[1; 20]).unwrap().certificate[..], b"new");
    assert_eq!(state.openpgp_keys().count(), 1);
    done(
        &accounts,
        vec![AccountChange::RemoveOpenPgpKey(Bytes::from_static(&[1; 20]))],
    )
    .await;
    assert_eq!(accounts.fresh().await.unwrap().openpgp_keys().count(), 0);
}

#[tokio::test]
async fn a_forgotten_repository_has_no_roles() {
    let accounts = open(Arc::new(MemoryStore::new()), 1).await;
    done(
        &accounts,
        vec![
            add("ann"),
            role(9, Some("ann"), Some(Role::Admin)),
            role(9, None, Some(Role::Read)),
        ],
    )
    .await;
    done(&accounts, vec![AccountChange::ForgetRepository(LogId(9))]).await;
    assert_eq!(accounts.fresh().await.unwrap().roles(LogId(9)), None);
}

fn changes() -> impl Strategy<Value = AccountChange> {
    let names = || prop::sample::select(vec!["ann", "bob", "cy"]);
    let roles = prop::option::of(prop::sample::select(vec![Role::Read, Role::Write, Role::Admin]));
    prop_oneof![
        (names(), any::<bool>()).prop_map(|(name, is_admin)| AccountChange::AddUser(user(name, is_admin))),
        names().prop_map(|name| AccountChange::RemoveUser(name.to_owned())),
        (names(), any::<bool>()).prop_map(|(name, is_admin)| AccountChange::SetAdmin(user(name, is_admin))),
        (names(), 0u8..4).prop_map(|(name, first)| AccountChange::AddToken(token(name, first))),
        (0u8..4).prop_map(|first| AccountChange::RevokeToken(token("", first).id())),
        (names(), prop::sample::select(vec![&b"x"[..], b"y"]))
            .prop_map(|(name, blob)| AccountChange::AddKey(key(name, blob))),
        prop::sample::select(vec![&b"x"[..], b"y"]).prop_map(|blob| AccountChange::RemoveKey(blob.into())),
        (0u128..3, prop::option::of(names()), roles).prop_map(|(log, name, given)| role(log, name, given)),
        (0u128..3).prop_map(|log| AccountChange::ForgetRepository(LogId(log))),
    ]
}

proptest! {
    /// A checkpoint holds the whole state; nothing in it names a user who is not there.
    #[test]
    fn a_checkpoint_holds_the_accounts(changes in prop::collection::vec(changes(), 0..40)) {
        let mut state = AccountsState::default();
        for (n, change) in (0..).zip(changes) {
            let edit = AccountsEdit { id: EditId(n), time_ms: 0, actor: String::new(), changes: vec![change] };
            let _ = state.apply(&edit);
            state.seal_entry();
        }
        let checkpoint = state.checkpoint();
        for name in checkpoint.tokens.iter().map(|token| &token.user).chain(checkpoint.keys.iter().map(|key| &key.user)) {
            prop_assert!(state.user(name).is_some());
        }
        for record in &checkpoint.roles {
            if let Grantee::User(name) = &record.grantee {
                prop_assert!(state.user(name).is_some());
            }
        }
        let bytes = checkpoint.encode().unwrap().into();
        let reread = AccountsState::decode_checkpoint(LogId::ACCOUNTS, state.number(), &bytes).unwrap();
        prop_assert_eq!(reread.checkpoint(), checkpoint);
    }
}
