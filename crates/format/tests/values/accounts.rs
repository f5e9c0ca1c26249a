//! Any edits and checkpoints of the accounts.

use bytes::Bytes;
use cuesta_format::{
    AccountChange, AccountsCheckpoint, AccountsEdit, AccountsEntry, EditId, Grantee, KeyRecord, LogId,
    OpenPgpKeyRecord, Role, RoleRecord, TokenId, TokenRecord, UserRecord,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;

fn roles() -> impl Strategy<Value = Role> {
    prop::sample::select(vec![Role::Read, Role::Write, Role::Admin])
}

fn users() -> impl Strategy<Value = UserRecord> {
    ("[a-zé]{0,5}", any::<bool>()).prop_map(|(name, is_admin)| UserRecord { name, is_admin })
}

fn tokens() -> impl Strategy<Value = TokenRecord> {
    let texts = ("[a-z]{1,4}", ".{0,9}");
    let times = (any::<i64>(), option::of(any::<i64>()));
    let limits = (roles(), option::of(btree_set(any::<u128>(), 0..4)));
    (any::<[u8; 32]>(), texts, times, limits).prop_map(|(digest, texts, times, limits)| TokenRecord {
        digest,
        user: texts.0,
        label: texts.1,
        scope: limits.0,
        repositories: limits.1.map(|logs| logs.into_iter().map(LogId).collect()),
        created_ms: times.0,
        expires_ms: times.1,
    })
}

fn keys() -> impl Strategy<Value = KeyRecord> {
    (vec(any::<u8>(), 0..40), "[a-z]{1,4}", ".{0,9}", any::<i64>()).prop_map(|(blob, user, label, added_ms)| {
        KeyRecord {
            blob: blob.into(),
            user,
            label,
            added_ms,
        }
    })
}

fn fingerprints() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 1..40).prop_map(Bytes::from)
}

fn openpgp_keys() -> impl Strategy<Value = OpenPgpKeyRecord> {
    let texts = ("[a-z]{1,4}", ".{0,9}");
    let fingerprints = vec(fingerprints(), 1..4);
    (fingerprints, vec(any::<u8>(), 0..40), texts, any::<i64>()).prop_map(
        |(fingerprints, certificate, (user, label), added_ms)| OpenPgpKeyRecord {
            fingerprints,
            certificate: certificate.into(),
            user,
            label,
            added_ms,
        },
    )
}

fn grantees() -> impl Strategy<Value = Grantee> {
    prop_oneof![Just(Grantee::Public), "[a-z]{1,4}".prop_map(Grantee::User)]
}

fn changes() -> impl Strategy<Value = AccountChange> {
    let role = (any::<u128>(), grantees(), option::of(roles()));
    prop_oneof![
        users().prop_map(AccountChange::AddUser),
        "[a-zé]{0,5}".prop_map(AccountChange::RemoveUser),
        users().prop_map(AccountChange::SetAdmin),
        tokens().prop_map(AccountChange::AddToken),
        any::<u64>().prop_map(|id| AccountChange::RevokeToken(TokenId(id))),
        keys().prop_map(AccountChange::AddKey),
        vec(any::<u8>(), 0..40).prop_map(|blob| AccountChange::RemoveKey(blob.into())),
        role.prop_map(|(log, grantee, role)| AccountChange::SetRole(RoleRecord {
            repository: LogId(log),
            grantee,
            role,
        })),
        any::<u128>().prop_map(|log| AccountChange::ForgetRepository(LogId(log))),
        openpgp_keys().prop_map(AccountChange::PutOpenPgpKey),
        fingerprints().prop_map(AccountChange::RemoveOpenPgpKey),
    ]
}

pub fn accounts_entries() -> impl Strategy<Value = AccountsEntry> {
    let edit = (any::<u128>(), any::<i64>(), ".{0,9}", vec(changes(), 0..5));
    let edit = edit.prop_map(|(id, time_ms, actor, changes)| AccountsEdit {
        id: EditId(id),
        time_ms,
        actor,
        changes,
    });
    (any::<u64>(), vec(edit, 0..4)).prop_map(|(number, edits)| AccountsEntry { number, edits })
}

pub fn accounts_checkpoints() -> impl Strategy<Value = AccountsCheckpoint> {
    let lists = (
        btree_map("[a-zé]{0,5}", any::<bool>(), 0..6),
        vec(tokens(), 0..6),
        vec(keys(), 0..6),
        btree_map((any::<u128>(), grantees()), roles(), 0..6),
        vec(openpgp_keys(), 0..6),
    );
    (any::<u64>(), lists, vec(any::<u128>(), 0..4)).prop_map(|(number, lists, recent)| {
        let (users, mut tokens, mut keys, roles, mut openpgp_keys) = lists;
        openpgp_keys.sort_by(|left, right| left.fingerprint().cmp(right.fingerprint()));
        openpgp_keys.dedup_by(|left, right| left.fingerprint() == right.fingerprint());
        tokens.sort_by_key(TokenRecord::id);
        tokens.dedup_by_key(|token| token.id());
        keys.sort_by(|left, right| left.blob.cmp(&right.blob));
        keys.dedup_by(|left, right| left.blob == right.blob);
        let roles = roles.into_iter().map(|((log, grantee), role)| RoleRecord {
            repository: LogId(log),
            grantee,
            role,
        });
        AccountsCheckpoint {
            number,
            users: users
                .into_iter()
                .map(|(name, is_admin)| UserRecord { name, is_admin })
                .collect(),
            tokens,
            keys,
            roles: roles.collect(),
            recent_edits: recent.into_iter().map(EditId).collect(),
            openpgp_keys,
        }
    })
}

fn user(name: &str, is_admin: bool) -> UserRecord {
    UserRecord {
        name: name.to_owned(),
        is_admin,
    }
}

fn token(first: u8, limited: bool) -> TokenRecord {
    let mut digest = [7; 32];
    digest[0] = first;
    TokenRecord {
        digest,
        user: "ann".to_owned(),
        label: "laptop".to_owned(),
        scope: if limited { Role::Read } else { Role::Admin },
        repositories: limited.then(|| vec![LogId(2), LogId(3)]),
        created_ms: 1_764_512_000_123,
        expires_ms: limited.then_some(1_772_288_000_123),
    }
}

fn key() -> KeyRecord {
    KeyRecord {
        blob: Bytes::from_static(b"\0\0\0\x0bssh-ed25519\0\0\0\x04key!"),
        user: "ann".to_owned(),
        label: "ann@laptop".to_owned(),
        added_ms: -1,
    }
}

fn role<R>(log: u128, name: Option<&str>, role: R) -> RoleRecord<R> {
    RoleRecord {
        repository: LogId(log),
        grantee: name.map_or(Grantee::Public, |name| Grantee::User(name.to_owned())),
        role,
    }
}

/// An accounts entry with one of everything.
pub fn full_accounts_entry() -> AccountsEntry {
    let changes = vec![
        AccountChange::AddUser(user("ann", false)),
        AccountChange::AddUser(user("josé", true)),
        AccountChange::SetAdmin(user("ann", true)),
        AccountChange::RemoveUser("bob".to_owned()),
        AccountChange::AddToken(token(1, true)),
        AccountChange::AddToken(token(2, false)),
        AccountChange::RevokeToken(TokenId(0x0123_4567_89ab_cdef)),
        AccountChange::AddKey(key()),
        AccountChange::RemoveKey(Bytes::from_static(b"a key")),
        AccountChange::SetRole(role(2, Some("ann"), Some(Role::Admin))),
        AccountChange::SetRole(role(2, None, Some(Role::Read))),
        AccountChange::SetRole(role(3, Some("ann"), None)),
        AccountChange::ForgetRepository(LogId(4)),
    ];
    let edit = AccountsEdit {
        id: EditId(5),
        time_ms: 1_764_512_000_123,
        actor: "root".to_owned(),
        changes,
    };
    AccountsEntry {
        number: 6,
        edits: vec![edit],
    }
}

fn openpgp_key() -> OpenPgpKeyRecord {
    OpenPgpKeyRecord {
        fingerprints: vec![Bytes::from_static(&[0x0a; 20]), Bytes::from_static(&[0x0b; 32])],
        certificate: Bytes::from_static(b"\x98\x33a key and a subkey"),
        user: "ann".to_owned(),
        label: "Ann <ann@example.org>".to_owned(),
        added_ms: 1_764_512_000_123,
    }
}

/// An accounts entry about OpenPGP keys.
pub fn openpgp_accounts_entry() -> AccountsEntry {
    let edit = AccountsEdit {
        id: EditId(5),
        time_ms: 1_764_512_000_123,
        actor: "root".to_owned(),
        changes: vec![
            AccountChange::PutOpenPgpKey(openpgp_key()),
            AccountChange::RemoveOpenPgpKey(Bytes::from_static(&[0x0c; 20])),
        ],
    };
    AccountsEntry {
        number: 6,
        edits: vec![edit],
    }
}

/// What the first version could say of [`full_accounts_checkpoint`].
pub fn old_accounts_checkpoint() -> AccountsCheckpoint {
    AccountsCheckpoint {
        openpgp_keys: Vec::new(),
        ..full_accounts_checkpoint()
    }
}

/// An accounts checkpoint with one of everything.
pub fn full_accounts_checkpoint() -> AccountsCheckpoint {
    AccountsCheckpoint {
        number: 7,
        users: vec![user("ann", true), user("josé", false)],
        tokens: vec![token(1, true), token(2, false)],
        keys: vec![key()],
        roles: vec![
            role(2, None, Role::Read),
            role(2, Some("ann"), Role::Admin),
            role(3, Some("josé"), Role::Write),
        ],
        recent_edits: vec![EditId(5)],
        openpgp_keys: vec![openpgp_key()],
    }
}
