//! What an edit of the accounts says: users, their tokens and keys, and who may do what in which repository.

use crate::LogId;
use crate::list_entry::ListEdit;
use bytes::Bytes;
use std::fmt;

/// One atomic change of the accounts.
pub type AccountsEdit = ListEdit<AccountChange>;

/// One change of the accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountChange {
    /// A user who was not there.
    AddUser(UserRecord),
    /// A user goes, with every token, key and role of theirs.
    RemoveUser(String),
    /// A user becomes an administrator of everything, or is one no more.
    SetAdmin(UserRecord),
    /// A token that was not there, of a user who is.
    AddToken(TokenRecord),
    /// A token ends.
    RevokeToken(TokenId),
    /// A key that nobody has, of a user who is there.
    AddKey(KeyRecord),
    /// A key ends.
    RemoveKey(Bytes),
    /// What someone may do in a repository; `None` for nothing.
    SetRole(RoleRecord<Option<Role>>),
    /// A repository is gone: all roles in it end.
    ForgetRepository(LogId),
    /// An OpenPGP key that nobody has, or a newer form of one that the user has already.
    PutOpenPgpKey(OpenPgpKeyRecord),
    /// An OpenPGP key ends; it is named by its primary key's fingerprint.
    RemoveOpenPgpKey(Bytes),
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRecord {
    /// The name, which is also that of the user's namespace.
    pub name: String,
    /// May do everything in every repository.
    pub is_admin: bool,
}

/// A personal access token, without the token itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    /// SHA-256 of the token's text.
    pub digest: [u8; 32],
    /// Whose it is.
    pub user: String,
    /// What the user calls it.
    pub label: String,
    /// The most that may be done with it.
    pub scope: Role,
    /// The only repositories it is for, in ascending order; `None` for all.
    pub repositories: Option<Vec<LogId>>,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_ms: i64,
    /// From when on it is good for nothing, likewise.
    pub expires_ms: Option<i64>,
}

impl TokenRecord {
    /// The token's public name.
    pub fn id(&self) -> TokenId {
        TokenId::of(&self.digest)
    }
}

/// Names a token without giving it away: the first 64 bits of its digest, written as 16 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u64);

impl TokenId {
    /// The name of the token with that digest.
    pub fn of(digest: &[u8; 32]) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = *digest;
        Self(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }

    /// The id written as 16 hex digits.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let all_hex = hex.len() == 16 && hex.bytes().all(|digit| digit.is_ascii_hexdigit());
        all_hex.then(|| u64::from_str_radix(hex, 16).ok().map(Self)).flatten()
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An SSH public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// The key as SSH sends it (RFC 4253, section 6.6): algorithm and numbers, each with its length before it.
    pub blob: Bytes,
    /// Whose it is.
    pub user: String,
    /// What the user calls it: the comment of the key's file.
    pub label: String,
    /// When it was added, in milliseconds since the Unix epoch.
    pub added_ms: i64,
}

/// An OpenPGP public key (RFC 9580, section 10.1: a "transferable public key") by which a user's signatures are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenPgpKeyRecord {
    /// The fingerprints of its keys, the primary key's first, then those of the subkeys; never empty. Whoever takes a
    /// signature looks here for its issuer.
    pub fingerprints: Vec<Bytes>,
    /// The key as it goes over the wire, without armor.
    pub certificate: Bytes,
    /// Whose it is.
    pub user: String,
    /// What the user calls it: the first user id.
    pub label: String,
    /// When it was added, in milliseconds since the Unix epoch.
    pub added_ms: i64,
}

impl OpenPgpKeyRecord {
    /// The fingerprint that names the key as a whole: its primary key's.
    pub fn fingerprint(&self) -> &[u8] {
        self.fingerprints.first().map_or(&[], |first| first)
    }
}

/// What someone may do in one repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRecord<R = Role> {
    /// The repository, by its log: a rename changes nothing.
    pub repository: LogId,
    /// Who.
    pub grantee: Grantee,
    /// What.
    pub role: R,
}

/// Who is given a role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grantee {
    /// Everyone, known or not.
    Public,
    /// A user.
    User(String),
}

/// What may be done in a repository; each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Role {
    /// Fetch.
    Read = 1,
    /// Push.
    Write = 2,
    /// Change settings and roles.
    Admin = 3,
}

impl Role {
    /// The role's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
