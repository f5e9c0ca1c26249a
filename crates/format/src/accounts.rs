//! Entries and checkpoints of the accounts (docs/format/accounts.md).

use crate::codec::{Envelope, Reader, Writer, check_flags};
use crate::error::{invalid, malformed};
use crate::list_entry::ListEntry;
use crate::{
    AccountChange, EditId, FormatError, Grantee, KeyRecord, LogId, OpenPgpKeyRecord, Result, Role, RoleRecord, TokenId,
    TokenRecord, UserRecord,
};
use bytes::Bytes;

const ENTRY: Envelope = Envelope {
    what: "accounts entry",
    magic: *b"CAE\0",
    version: 1,
};
const CHECKPOINT: Envelope = Envelope {
    what: "accounts checkpoint",
    magic: *b"CAC\0",
    version: 2,
};
/// Before there were OpenPGP keys.
const CHECKPOINT_OLDEST: u16 = 1;
const CHANGE_LEN_MIN: usize = 1 + FINGERPRINT_LEN_MIN;
const USER_LEN_MIN: usize = 3;
const TOKEN_LEN_MIN: usize = 46;
const KEY_LEN_MIN: usize = 16;
const OPENPGP_KEY_LEN_MIN: usize = 18 + FINGERPRINT_LEN_MIN;
const FINGERPRINT_LEN_MIN: usize = 2;
const ROLE_LEN_MIN: usize = 20;

const IS_ADMIN: u8 = 1;
const EXPIRES: u8 = 1;
const IS_LIMITED: u8 = 2;

const PUBLIC: u8 = 0;
const USER: u8 = 1;

/// All accounts at one place in their log. Every list is in strictly ascending order of what it is looked up by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountsCheckpoint {
    /// The number of the first entry that is not in it.
    pub number: u64,
    /// By name.
    pub users: Vec<UserRecord>,
    /// By id.
    pub tokens: Vec<TokenRecord>,
    /// By blob.
    pub keys: Vec<KeyRecord>,
    /// By repository, then by grantee.
    pub roles: Vec<RoleRecord>,
    /// The most recent edits, oldest first, to recognise one whose reply was lost.
    pub recent_edits: Vec<EditId>,
    /// By fingerprint.
    pub openpgp_keys: Vec<OpenPgpKeyRecord>,
}

/// One numbered record of the accounts' log.
pub type AccountsEntry = ListEntry<AccountChange>;

impl AccountsEntry {
    /// The bytes of the entry; fails where a text is longer than 65,535 bytes or a token's repositories do not ascend.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.encode_as(ENTRY, put_change)
    }

    /// Reads an entry.
    pub fn decode(bytes: &Bytes) -> Result<Self> {
        Self::decode_as(ENTRY, bytes, CHANGE_LEN_MIN, read_change)
    }
}

fn put_change(out: &mut Writer, change: &AccountChange) -> Result<()> {
    out.u8(code(change));
    match change {
        AccountChange::AddUser(user) | AccountChange::SetAdmin(user) => put_user(out, user),
        AccountChange::RemoveUser(name) => {
            out.name_len(name.as_bytes())?;
            out.u8(0);
            out.raw(name.as_bytes());
            Ok(())
        }
        AccountChange::AddToken(token) => put_token(out, token),
        AccountChange::RevokeToken(id) => {
            out.u64(id.0);
            Ok(())
        }
        AccountChange::AddKey(key) => put_key(out, key),
        AccountChange::RemoveKey(blob) => {
            out.count(blob.len())?;
            out.raw(blob);
            Ok(())
        }
        AccountChange::SetRole(role) => put_role(out, role),
        AccountChange::ForgetRepository(log) => {
            out.u128(log.0);
            Ok(())
        }
        AccountChange::PutOpenPgpKey(key) => put_openpgp_key(out, key),
        AccountChange::RemoveOpenPgpKey(fingerprint) => put_fingerprint(out, fingerprint),
    }
}

fn code(change: &AccountChange) -> u8 {
    match change {
        AccountChange::AddUser(_) => 1,
        AccountChange::RemoveUser(_) => 2,
        AccountChange::SetAdmin(_) => 3,
        AccountChange::AddToken(_) => 4,
        AccountChange::RevokeToken(_) => 5,
        AccountChange::AddKey(_) => 6,
        AccountChange::RemoveKey(_) => 7,
        AccountChange::SetRole(_) => 8,
        AccountChange::ForgetRepository(_) => 9,
        AccountChange::PutOpenPgpKey(_) => 10,
        AccountChange::RemoveOpenPgpKey(_) => 11,
    }
}

fn read_change(from: &mut Reader<'_>) -> Result<AccountChange> {
    Ok(match from.u8()? {
        1 => AccountChange::AddUser(read_user(from)?),
        2 => {
            let len = from.u16()?;
            from.reserved::<1>()?;
            AccountChange::RemoveUser(from.text(len.into())?)
        }
        3 => AccountChange::SetAdmin(read_user(from)?),
        4 => AccountChange::AddToken(read_token(from)?),
        5 => AccountChange::RevokeToken(TokenId(from.u64()?)),
        6 => AccountChange::AddKey(read_key(from)?),
        7 => {
            let len = from.u32()?;
            AccountChange::RemoveKey(from.shared(len.into())?)
        }
        8 => AccountChange::SetRole(read_role(from)?),
        9 => AccountChange::ForgetRepository(LogId(from.u128()?)),
        10 => AccountChange::PutOpenPgpKey(read_openpgp_key(from)?),
        11 => AccountChange::RemoveOpenPgpKey(read_fingerprint(from)?),
        got => {
            return Err(FormatError::Unknown {
                what: "change of accounts",
                got: got.into(),
            });
        }
    })
}

fn put_user(out: &mut Writer, user: &UserRecord) -> Result<()> {
    out.name_len(user.name.as_bytes())?;
    out.u8(if user.is_admin { IS_ADMIN } else { 0 });
    out.raw(user.name.as_bytes());
    Ok(())
}

fn read_user(from: &mut Reader<'_>) -> Result<UserRecord> {
    let (name_len, flags) = (from.u16()?, from.u8()?);
    check_flags("user flags", flags, IS_ADMIN)?;
    Ok(UserRecord {
        name: from.text(name_len.into())?,
        is_admin: flags & IS_ADMIN != 0,
    })
}

fn put_token(out: &mut Writer, token: &TokenRecord) -> Result<()> {
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.raw(&token.digest);
    out.i64(token.created_ms);
    out.u8(token.scope as u8);
    out.u8(flag(token.expires_ms.is_some(), EXPIRES) | flag(token.repositories.is_some(), IS_LIMITED));
    out.name_len(token.user.as_bytes())?;
    out.name_len(token.label.as_bytes())?;
    token.expires_ms.iter().for_each(|expires| out.i64(*expires));
    if let Some(repositories) = &token.repositories {
        if !ascend(repositories) {
            return invalid("token", "repositories do not ascend");
        }
        out.count(repositories.len())?;
        repositories.iter().for_each(|log| out.u128(log.0));
    }
    out.raw(token.user.as_bytes());
    out.raw(token.label.as_bytes());
    Ok(())
}

fn read_token(from: &mut Reader<'_>) -> Result<TokenRecord> {
    let (digest, created_ms) = (from.array::<32>()?, from.i64()?);
    let (scope, flags) = (role(from.u8()?)?, from.u8()?);
    let Some(scope) = scope else {
        return malformed("token", "it has no scope");
    };
    check_flags("token flags", flags, EXPIRES | IS_LIMITED)?;
    let (user_len, label_len) = (from.u16()?, from.u16()?);
    let expires_ms = if flags & EXPIRES == 0 { None } else { Some(from.i64()?) };
    let repositories = if flags & IS_LIMITED == 0 {
        None
    } else {
        let count = from.u32()?;
        Some(from.items(count, 16, |from| from.u128().map(LogId))?)
    };
    if repositories.as_ref().is_some_and(|logs| !ascend(logs)) {
        return malformed("token", "repositories do not ascend");
    }
    Ok(TokenRecord {
        digest,
        user: from.text(user_len.into())?,
        label: from.text(label_len.into())?,
        scope,
        repositories,
        created_ms,
        expires_ms,
    })
}

fn put_key(out: &mut Writer, key: &KeyRecord) -> Result<()> {
    out.i64(key.added_ms);
    out.name_len(key.user.as_bytes())?;
    out.name_len(key.label.as_bytes())?;
    out.count(key.blob.len())?;
    out.raw(key.user.as_bytes());
    out.raw(key.label.as_bytes());
    out.raw(&key.blob);
    Ok(())
}

fn read_key(from: &mut Reader<'_>) -> Result<KeyRecord> {
    let (added_ms, user_len, label_len, blob_len) = (from.i64()?, from.u16()?, from.u16()?, from.u32()?);
    Ok(KeyRecord {
        user: from.text(user_len.into())?,
        label: from.text(label_len.into())?,
        blob: from.shared(blob_len.into())?,
        added_ms,
    })
}

fn put_openpgp_key(out: &mut Writer, key: &OpenPgpKeyRecord) -> Result<()> {
    let Ok(count @ 1..) = u16::try_from(key.fingerprints.len()) else {
        return invalid("OpenPGP key", "it has no fingerprint, or too many");
    };
    out.i64(key.added_ms);
    out.name_len(key.user.as_bytes())?;
    out.name_len(key.label.as_bytes())?;
    out.count(key.certificate.len())?;
    out.u16(count);
    key.fingerprints.iter().try_for_each(|one| put_fingerprint(out, one))?;
    out.raw(key.user.as_bytes());
    out.raw(key.label.as_bytes());
    out.raw(&key.certificate);
    Ok(())
}

fn read_openpgp_key(from: &mut Reader<'_>) -> Result<OpenPgpKeyRecord> {
    let (added_ms, user_len, label_len) = (from.i64()?, from.u16()?, from.u16()?);
    let (certificate_len, count) = (from.u32()?, from.u16()?);
    if count == 0 {
        return malformed("OpenPGP key", "it has no fingerprint");
    }
    Ok(OpenPgpKeyRecord {
        fingerprints: from.items(count.into(), FINGERPRINT_LEN_MIN, read_fingerprint)?,
        user: from.text(user_len.into())?,
        label: from.text(label_len.into())?,
        certificate: from.shared(certificate_len.into())?,
        added_ms,
    })
}

fn put_fingerprint(out: &mut Writer, fingerprint: &[u8]) -> Result<()> {
    let Ok(len @ 1..) = u8::try_from(fingerprint.len()) else {
        return invalid("OpenPGP key", "a fingerprint is empty or too long");
    };
    out.u8(len);
    out.raw(fingerprint);
    Ok(())
}

fn read_fingerprint(from: &mut Reader<'_>) -> Result<Bytes> {
    match from.u8()? {
        0 => malformed("OpenPGP key", "a fingerprint is empty"),
        len => from.shared(len.into()),
    }
}

fn put_role(out: &mut Writer, record: &RoleRecord<Option<Role>>) -> Result<()> {
    let (kind, name) = match &record.grantee {
        Grantee::Public => (PUBLIC, ""),
        Grantee::User(name) => (USER, name.as_str()),
    };
    out.u128(record.repository.0);
    out.u8(kind);
    out.u8(record.role.map_or(0, |role| role as u8));
    out.name_len(name.as_bytes())?;
    out.raw(name.as_bytes());
    Ok(())
}

fn read_role(from: &mut Reader<'_>) -> Result<RoleRecord<Option<Role>>> {
    let (repository, kind) = (LogId(from.u128()?), from.u8()?);
    let (role, name_len) = (role(from.u8()?)?, from.u16()?);
    let grantee = match (kind, name_len) {
        (PUBLIC, 0) => Grantee::Public,
        (PUBLIC, _) => return malformed("role", "the public has a name"),
        (USER, len) => Grantee::User(from.text(len.into())?),
        (got, _) => {
            return Err(FormatError::Unknown {
                what: "kind of grantee",
                got: got.into(),
            });
        }
    };
    Ok(RoleRecord {
        repository,
        grantee,
        role,
    })
}

/// The role of a code; 0 is none.
fn role(code: u8) -> Result<Option<Role>> {
    match code {
        0 => Ok(None),
        1 => Ok(Some(Role::Read)),
        2 => Ok(Some(Role::Write)),
        3 => Ok(Some(Role::Admin)),
        got => Err(FormatError::Unknown {
            what: "role",
            got: got.into(),
        }),
    }
}

fn ascend<T: PartialOrd>(items: &[T]) -> bool {
    items.is_sorted_by(|left, right| left < right)
}

impl AccountsCheckpoint {
    /// The bytes of the checkpoint; fails where a list does not ascend, and as [`AccountsEntry::encode`] does.
    pub fn encode(&self) -> Result<Vec<u8>> {
        if let Some(reason) = self.disorder() {
            return invalid(CHECKPOINT.what, reason);
        }
        let items = self.users.len() + self.tokens.len() + self.keys.len() + self.roles.len();
        let openpgp_len = self.openpgp_keys.iter().map(|key| 128 + key.certificate.len());
        let lists_len = 128 * items + 16 * self.recent_edits.len() + openpgp_len.sum::<usize>();
        let mut out = Writer::new(CHECKPOINT, lists_len);
        out.u64(self.number);
        out.count(self.users.len())?;
        out.count(self.tokens.len())?;
        out.count(self.keys.len())?;
        out.count(self.roles.len())?;
        out.count(self.recent_edits.len())?;
        out.count(self.openpgp_keys.len())?;
        self.users.iter().try_for_each(|user| put_user(&mut out, user))?;
        self.tokens.iter().try_for_each(|token| put_token(&mut out, token))?;
        self.keys.iter().try_for_each(|key| put_key(&mut out, key))?;
        for record in &self.roles {
            let record = RoleRecord {
                repository: record.repository,
                grantee: record.grantee.clone(),
                role: Some(record.role),
            };
            put_role(&mut out, &record)?;
        }
        self.recent_edits.iter().for_each(|id| out.u128(id.0));
        let mut openpgp_keys = self.openpgp_keys.iter();
        openpgp_keys.try_for_each(|key| put_openpgp_key(&mut out, key))?;
        Ok(out.finish())
    }

    /// Reads a checkpoint of any version.
    pub fn decode(bytes: &Bytes) -> Result<Self> {
        let (mut from, version) = Reader::since(CHECKPOINT_OLDEST, CHECKPOINT, bytes)?;
        let number = from.u64()?;
        let (users, tokens, keys) = (from.u32()?, from.u32()?, from.u32()?);
        let (roles, recent_edits) = (from.u32()?, from.u32()?);
        let openpgp_keys = if version == CHECKPOINT_OLDEST { 0 } else { from.u32()? };
        let checkpoint = Self {
            number,
            users: from.items(users, USER_LEN_MIN, read_user)?,
            tokens: from.items(tokens, TOKEN_LEN_MIN, read_token)?,
            keys: from.items(keys, KEY_LEN_MIN, read_key)?,
            roles: from.items(roles, ROLE_LEN_MIN, read_given_role)?,
            recent_edits: from.items(recent_edits, 16, |from| from.u128().map(EditId))?,
            openpgp_keys: from.items(openpgp_keys, OPENPGP_KEY_LEN_MIN, read_openpgp_key)?,
        };
        from.finish()?;
        match checkpoint.disorder() {
            None => Ok(checkpoint),
            Some(reason) => malformed(CHECKPOINT.what, reason),
        }
    }

    /// Which list is not in order.
    fn disorder(&self) -> Option<&'static str> {
        let checks = [
            (
                self.users.is_sorted_by(|left, right| left.name < right.name),
                "users do not ascend",
            ),
            (
                self.tokens.is_sorted_by(|left, right| left.id() < right.id()),
                "tokens do not ascend",
            ),
            (
                self.keys.is_sorted_by(|left, right| left.blob < right.blob),
                "keys do not ascend",
            ),
            (
                self.roles
                    .is_sorted_by(|left, right| (left.repository, &left.grantee) < (right.repository, &right.grantee)),
                "roles do not ascend",
            ),
            (
                self.openpgp_keys
                    .is_sorted_by(|left, right| left.fingerprint() < right.fingerprint()),
                "OpenPGP keys do not ascend",
            ),
        ];
        checks
            .into_iter()
            .find(|(in_order, _)| !in_order)
            .map(|(_, reason)| reason)
    }
}

fn read_given_role(from: &mut Reader<'_>) -> Result<RoleRecord> {
    let record = read_role(from)?;
    match record.role {
        Some(role) => Ok(RoleRecord {
            repository: record.repository,
            grantee: record.grantee,
            role,
        }),
        None => malformed(CHECKPOINT.what, "a role of nothing"),
    }
}

/// How many bytes a change takes in an entry, at most.
pub fn account_change_len_max(change: &AccountChange) -> usize {
    let texts = match change {
        AccountChange::AddUser(user) | AccountChange::SetAdmin(user) => user.name.len(),
        AccountChange::RemoveUser(name) => name.len(),
        AccountChange::AddToken(token) => {
            token.user.len() + token.label.len() + 16 * token.repositories.as_ref().map_or(0, Vec::len)
        }
        AccountChange::AddKey(key) => key.user.len() + key.label.len() + key.blob.len(),
        AccountChange::RemoveKey(blob) => blob.len(),
        AccountChange::SetRole(record) => match &record.grantee {
            Grantee::Public => 0,
            Grantee::User(name) => name.len(),
        },
        AccountChange::RevokeToken(_) | AccountChange::ForgetRepository(_) => 0,
        AccountChange::PutOpenPgpKey(key) => {
            let fingerprints = key.fingerprints.iter().map(|one| 1 + one.len());
            key.user.len() + key.label.len() + key.certificate.len() + fingerprints.sum::<usize>()
        }
        AccountChange::RemoveOpenPgpKey(fingerprint) => fingerprint.len(),
    };
    CHANGE_LEN_FIXED_MAX + texts
}

/// Bytes of a change beside its texts and lists: a token's, with its expiry and the count of its repositories.
const CHANGE_LEN_FIXED_MAX: usize = 1 + TOKEN_LEN_MIN + 8 + 4;
