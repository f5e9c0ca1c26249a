//! The whole table of who gets what.

use super::*;
use cuesta_format::{
    AccountChange, AccountsEdit, EditId, Grantee, KeyRecord, Role, RoleRecord, TokenRecord, UserRecord,
};
use cuesta_ledger::Machine as _;

const NOW: i64 = 1_000;
const PRIVATE: LogId = LogId(10);
const PUBLIC: LogId = LogId(11);
const OPEN: LogId = LogId(12);

fn token(
    user: &str,
    first: u8,
    scope: Role,
    repositories: Option<Vec<LogId>>,
    expires_ms: Option<i64>,
) -> AccountChange {
    AccountChange::AddToken(TokenRecord {
        digest: [first; 32],
        user: user.to_owned(),
        label: String::new(),
        scope,
        repositories,
        created_ms: 0,
        expires_ms,
    })
}

fn accounts() -> AccountsState {
    let mut changes = Vec::new();
    for (name, is_admin) in [
        ("root", true),
        ("owner", false),
        ("writer", false),
        ("reader", false),
        ("stranger", false),
    ] {
        changes.push(AccountChange::AddUser(UserRecord {
            name: name.to_owned(),
            is_admin,
        }));
    }
    let role = |repository, name: Option<&str>, role| {
        AccountChange::SetRole(RoleRecord {
            repository,
            grantee: name.map_or(Grantee::Public, |name| Grantee::User(name.to_owned())),
            role: Some(role),
        })
    };
    for repository in [PRIVATE, PUBLIC, OPEN] {
        changes.push(role(repository, Some("owner"), Role::Admin));
        changes.push(role(repository, Some("writer"), Role::Write));
        changes.push(role(repository, Some("reader"), Role::Read));
    }
    changes.push(role(PUBLIC, None, Role::Read));
    changes.push(role(OPEN, None, Role::Write));
    for (first, name) in (1..).zip(["root", "owner", "writer", "reader", "stranger"]) {
        changes.push(token(name, first, Role::Admin, None, None));
        changes.push(AccountChange::AddKey(KeyRecord {
            blob: format!("{name}'s").into(),
            user: name.to_owned(),
            label: String::new(),
            added_ms: 0,
        }));
    }
    changes.push(token("owner", 20, Role::Read, None, None));
    changes.push(token("owner", 21, Role::Write, None, Some(NOW + 1)));
    changes.push(token("owner", 22, Role::Admin, Some(vec![LogId(99)]), None));
    changes.push(token("owner", 23, Role::Admin, Some(vec![PRIVATE]), None));
    changes.push(token("owner", 24, Role::Admin, None, Some(NOW)));
    changes.push(token("root", 25, Role::Read, None, None));
    changes.push(token("root", 26, Role::Admin, Some(vec![LogId(99)]), None));
    let mut state = AccountsState::default();
    let edit = AccountsEdit {
        id: EditId(1),
        time_ms: 0,
        actor: String::new(),
        changes,
    };
    state.apply(&edit).unwrap();
    state
}

fn by_token(name: &str, first: u8) -> Identity {
    Identity::User {
        name: name.into(),
        proof: Proof::Token(TokenId::of(&[first; 32])),
    }
}

fn by_key(name: &str) -> Identity {
    Identity::User {
        name: name.into(),
        proof: Proof::Key(format!("{name}'s").into()),
    }
}

const YES: Access = Access::Allowed;
const HIDE: Access = Access::Hidden;
const WHO: Access = Access::Unauthenticated;
const ROLE: Access = Access::Forbidden(Lack::Role);
const SCOPE: Access = Access::Forbidden(Lack::Scope);

#[test]
fn the_table() {
    let state = accounts();
    // Read, write, administer.
    let table = [
        (
            "unchecked",
            Identity::Unchecked,
            [[YES, YES, YES], [YES, YES, YES], [YES, YES, YES]],
        ),
        (
            "anonymous",
            Identity::Anonymous,
            [[WHO, WHO, WHO], [YES, WHO, WHO], [YES, YES, WHO]],
        ),
        (
            "stranger",
            by_token("stranger", 5),
            [[HIDE, HIDE, HIDE], [YES, ROLE, ROLE], [YES, YES, ROLE]],
        ),
        (
            "reader",
            by_token("reader", 4),
            [[YES, ROLE, ROLE], [YES, ROLE, ROLE], [YES, YES, ROLE]],
        ),
        (
            "writer",
            by_token("writer", 3),
            [[YES, YES, ROLE], [YES, YES, ROLE], [YES, YES, ROLE]],
        ),
        (
            "owner",
            by_token("owner", 2),
            [[YES, YES, YES], [YES, YES, YES], [YES, YES, YES]],
        ),
        (
            "administrator",
            by_token("root", 1),
            [[YES, YES, YES], [YES, YES, YES], [YES, YES, YES]],
        ),
        (
            "scope read",
            by_token("owner", 20),
            [[YES, SCOPE, SCOPE], [YES, SCOPE, SCOPE], [YES, SCOPE, SCOPE]],
        ),
        (
            "scope write",
            by_token("owner", 21),
            [[YES, YES, SCOPE], [YES, YES, SCOPE], [YES, YES, SCOPE]],
        ),
        (
            "other repository",
            by_token("owner", 22),
            [[HIDE, HIDE, HIDE], [YES, ROLE, ROLE], [YES, YES, ROLE]],
        ),
        (
            "this repository",
            by_token("owner", 23),
            [[YES, YES, YES], [YES, ROLE, ROLE], [YES, YES, ROLE]],
        ),
        (
            "expired",
            by_token("owner", 24),
            [[WHO, WHO, WHO], [WHO, WHO, WHO], [WHO, WHO, WHO]],
        ),
        (
            "administrator's, scope read",
            by_token("root", 25),
            [[YES, SCOPE, SCOPE], [YES, SCOPE, SCOPE], [YES, SCOPE, SCOPE]],
        ),
        (
            "administrator's, other repository",
            by_token("root", 26),
            [[HIDE, HIDE, HIDE], [YES, ROLE, ROLE], [YES, YES, ROLE]],
        ),
        (
            "somebody else's token",
            by_token("reader", 2),
            [[WHO, WHO, WHO], [WHO, WHO, WHO], [WHO, WHO, WHO]],
        ),
        (
            "revoked",
            by_token("owner", 77),
            [[WHO, WHO, WHO], [WHO, WHO, WHO], [WHO, WHO, WHO]],
        ),
        (
            "owner's key",
            by_key("owner"),
            [[YES, YES, YES], [YES, YES, YES], [YES, YES, YES]],
        ),
        (
            "reader's key",
            by_key("reader"),
            [[YES, ROLE, ROLE], [YES, ROLE, ROLE], [YES, YES, ROLE]],
        ),
        (
            "nobody's key",
            by_key("nobody"),
            [[WHO, WHO, WHO], [WHO, WHO, WHO], [WHO, WHO, WHO]],
        ),
    ];
    for (who, identity, expected) in table {
        for (log, expected) in [PRIVATE, PUBLIC, OPEN].into_iter().zip(expected) {
            for (want, expected) in [Want::Read, Want::Write, Want::Admin].into_iter().zip(expected) {
                let got = decide(&state, NOW, &identity, Target::Repository(log), want);
                assert_eq!(got, expected, "{who} wants to {want:?} {log:?}");
            }
            let push = decide(&state, NOW, &identity, Target::Repository(log), Want::Write);
            let make = decide(&state, NOW, &identity, Target::Repository(log), Want::Create);
            assert_eq!(make, push, "{who}: what came to be meanwhile is pushed to");
        }
    }
}

#[test]
fn what_is_not_there_can_be_made_by_some() {
    let state = accounts();
    let own = RepositoryName::parse("owner/new").unwrap();
    let other = RepositoryName::parse("elsewhere/new").unwrap();
    // In the namespace of `owner`, and elsewhere.
    let table = [
        ("anonymous", Identity::Anonymous, [WHO, WHO]),
        ("stranger", by_token("stranger", 5), [HIDE, HIDE]),
        ("owner", by_token("owner", 2), [YES, HIDE]),
        ("owner's key", by_key("owner"), [YES, HIDE]),
        ("administrator", by_token("root", 1), [YES, YES]),
        ("scope read", by_token("owner", 20), [HIDE, HIDE]),
        ("scope write", by_token("owner", 21), [YES, HIDE]),
        ("for one repository", by_token("owner", 23), [HIDE, HIDE]),
        ("expired", by_token("owner", 24), [WHO, WHO]),
    ];
    for (who, identity, expected) in table {
        for (name, expected) in [&own, &other].into_iter().zip(expected) {
            assert_eq!(
                decide(&state, NOW, &identity, Target::Absent(name), Want::Create),
                expected,
                "{who}: {name}"
            );
            let hidden = if expected == WHO { WHO } else { HIDE };
            for want in [Want::Read, Want::Write, Want::Admin] {
                assert_eq!(
                    decide(&state, NOW, &identity, Target::Absent(name), want),
                    hidden,
                    "{who}: {want:?} {name}"
                );
            }
        }
    }
}

/// Whoever may not read cannot tell a repository from nothing, whatever they try.
#[test]
fn the_hidden_looks_like_the_absent() {
    let state = accounts();
    let name = RepositoryName::parse("elsewhere/x").unwrap();
    for identity in [
        Identity::Anonymous,
        by_token("stranger", 5),
        by_token("owner", 22),
        by_token("root", 26),
    ] {
        for want in [Want::Read, Want::Write, Want::Admin, Want::Create] {
            let hidden = decide(&state, NOW, &identity, Target::Repository(PRIVATE), want);
            let absent = decide(&state, NOW, &identity, Target::Absent(&name), want);
            assert_eq!(hidden, absent, "{identity:?} {want:?}");
        }
    }
}
