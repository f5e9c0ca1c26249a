//! The accounts at one place in their log, and what an edit does to them.

use crate::recent::Recent;
use crate::{LedgerError, Machine, codec};
use bytes::Bytes;
use cuesta_format::{
    AccountChange, AccountsCheckpoint, AccountsEdit, EditId, Grantee, KeyRecord, LogId, OpenPgpKeyRecord, Role,
    RoleRecord, TokenId, TokenRecord, UserRecord, account_change_len_max,
};
use imbl::OrdMap;
use std::fmt;
use std::sync::Arc;

/// An immutable snapshot of the accounts.
#[derive(Clone, Default)]
pub struct AccountsState {
    number: u64,
    users: OrdMap<String, User>,
    tokens: OrdMap<TokenId, Arc<TokenRecord>>,
    keys: OrdMap<Bytes, Arc<KeyRecord>>,
    openpgp_keys: OrdMap<Bytes, Arc<OpenPgpKeyRecord>>,
    roles: OrdMap<LogId, Roles>,
    recent: Recent,
}

/// What is known of a user beside the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// May do everything in every repository.
    pub is_admin: bool,
}

/// Who may do what in one repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    public: Option<Role>,
    users: OrdMap<String, Role>,
}

impl Roles {
    /// What everyone may do.
    pub fn public(&self) -> Option<Role> {
        self.public
    }

    /// What a user was given, beside what everyone may do.
    pub fn of(&self, user: &str) -> Option<Role> {
        self.users.get(user).copied()
    }

    /// All users who were given a role, by name.
    pub fn users(&self) -> impl Iterator<Item = (&str, Role)> {
        self.users.iter().map(|(name, role)| (name.as_str(), *role))
    }

    fn set(&mut self, grantee: &Grantee, role: Option<Role>) {
        match (grantee, role) {
            (Grantee::Public, role) => self.public = role,
            (Grantee::User(name), Some(role)) => drop(self.users.insert(name.clone(), role)),
            (Grantee::User(name), None) => drop(self.users.remove(name)),
        }
    }

    fn is_empty(&self) -> bool {
        self.public.is_none() && self.users.is_empty()
    }
}

/// Why a change of the accounts does not apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccountConflict {
    /// The name is taken.
    #[error("user '{0}' already exists")]
    UserExists(String),
    /// Nobody has that name.
    #[error("user '{0}' not found")]
    NoUser(String),
    /// The very token is there already.
    #[error("token {0} already exists")]
    TokenExists(TokenId),
    /// No token has that id.
    #[error("token {0} not found")]
    NoToken(TokenId),
    /// A key tells one user only.
    #[error("the key is already that of user '{0}'")]
    KeyTaken(String),
    /// Nobody has that key.
    #[error("key not found")]
    NoKey,
    /// Nobody in particular cannot be answerable for a repository.
    #[error("the public cannot administer a repository")]
    PublicAdmin,
}

impl AccountsState {
    /// The number of the accounts log's next entry.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The user of that name.
    pub fn user(&self, name: &str) -> Option<User> {
        self.users.get(name).copied()
    }

    /// All users, by name.
    pub fn users(&self) -> impl Iterator<Item = (&str, User)> {
        self.users.iter().map(|(name, user)| (name.as_str(), *user))
    }

    /// The token of that id. Whoever takes its word compares the digest.
    pub fn token(&self, id: TokenId) -> Option<&Arc<TokenRecord>> {
        self.tokens.get(&id)
    }

    /// All tokens, by id.
    pub fn tokens(&self) -> impl Iterator<Item = &TokenRecord> {
        self.tokens.values().map(Arc::as_ref)
    }

    /// The key that SSH sends as `blob`.
    pub fn key(&self, blob: &[u8]) -> Option<&Arc<KeyRecord>> {
        self.keys.get(blob)
    }

    /// All keys, by blob.
    pub fn keys(&self) -> impl Iterator<Item = &KeyRecord> {
        self.keys.values().map(Arc::as_ref)
    }

    /// The OpenPGP key whose primary key has that fingerprint.
    pub fn openpgp_key(&self, fingerprint: &[u8]) -> Option<&Arc<OpenPgpKeyRecord>> {
        self.openpgp_keys.get(fingerprint)
    }

    /// All OpenPGP keys, by fingerprint.
    pub fn openpgp_keys(&self) -> impl Iterator<Item = &Arc<OpenPgpKeyRecord>> {
        self.openpgp_keys.values()
    }

    /// Who may do what in a repository; `None` if nobody was given a role.
    pub fn roles(&self, repository: LogId) -> Option<&Roles> {
        self.roles.get(&repository)
    }

    /// All of the state, to be written as a checkpoint.
    pub fn checkpoint(&self) -> AccountsCheckpoint {
        let users = self.users().map(|(name, user)| UserRecord {
            name: name.to_owned(),
            is_admin: user.is_admin,
        });
        AccountsCheckpoint {
            number: self.number,
            users: users.collect(),
            tokens: self.tokens().cloned().collect(),
            keys: self.keys().cloned().collect(),
            roles: self
                .roles
                .iter()
                .flat_map(|(log, roles)| role_records(*log, roles))
                .collect(),
            recent_edits: self.recent.ids().collect(),
            openpgp_keys: self.openpgp_keys().map(|key| OpenPgpKeyRecord::clone(key)).collect(),
        }
    }

    /// The state that a checkpoint holds.
    pub fn from_checkpoint(checkpoint: AccountsCheckpoint) -> Self {
        let users = checkpoint.users.into_iter().map(|user| {
            let is_admin = user.is_admin;
            (user.name, User { is_admin })
        });
        let tokens = checkpoint.tokens.into_iter();
        let keys = checkpoint.keys.into_iter();
        let openpgp_keys = checkpoint.openpgp_keys.into_iter();
        let mut state = Self {
            number: checkpoint.number,
            users: users.collect(),
            tokens: tokens.map(|token| (token.id(), Arc::new(token))).collect(),
            keys: keys.map(|key| (key.blob.clone(), Arc::new(key))).collect(),
            openpgp_keys: openpgp_keys.map(by_fingerprint).collect(),
            roles: OrdMap::new(),
            recent: Recent::restored(checkpoint.recent_edits, checkpoint.number),
        };
        for record in checkpoint.roles {
            let roles = state.roles.entry(record.repository).or_default();
            roles.set(&record.grantee, Some(record.role));
        }
        state
    }

    fn apply_change(&mut self, change: &AccountChange) -> Result<(), AccountConflict> {
        match change {
            AccountChange::AddUser(user) => self.add_user(user),
            AccountChange::RemoveUser(name) => self.remove_user(name),
            AccountChange::SetAdmin(user) => {
                self.known(&user.name)?.is_admin = user.is_admin;
                Ok(())
            }
            AccountChange::AddToken(token) => self.add_token(token),
            AccountChange::RevokeToken(id) => {
                let revoked = self.tokens.remove(id);
                revoked.map(drop).ok_or(AccountConflict::NoToken(*id))
            }
            AccountChange::AddKey(key) => self.add_key(key),
            AccountChange::RemoveKey(blob) => {
                let removed = self.keys.remove(blob);
                removed.map(drop).ok_or(AccountConflict::NoKey)
            }
            AccountChange::SetRole(record) => self.set_role(record),
            AccountChange::ForgetRepository(log) => {
                self.roles.remove(log);
                Ok(())
            }
            AccountChange::PutOpenPgpKey(key) => self.put_openpgp_key(key),
            AccountChange::RemoveOpenPgpKey(fingerprint) => {
                let removed = self.openpgp_keys.remove(fingerprint);
                removed.map(drop).ok_or(AccountConflict::NoKey)
            }
        }
    }

    fn known(&mut self, name: &str) -> Result<&mut User, AccountConflict> {
        let user = self.users.get_mut(name);
        user.ok_or_else(|| AccountConflict::NoUser(name.to_owned()))
    }

    fn add_user(&mut self, user: &UserRecord) -> Result<(), AccountConflict> {
        if self.users.contains_key(&user.name) {
            return Err(AccountConflict::UserExists(user.name.clone()));
        }
        let is_admin = user.is_admin;
        self.users.insert(user.name.clone(), User { is_admin });
        Ok(())
    }

    /// Cost: one look at every token and key, and at the roles of every repository.
    fn remove_user(&mut self, name: &str) -> Result<(), AccountConflict> {
        self.known(name)?;
        self.users.remove(name);
        let tokens = self.tokens.iter().filter(|(_, token)| token.user != name);
        self.tokens = tokens.map(|(id, token)| (*id, Arc::clone(token))).collect();
        let keys = self.keys.iter().filter(|(_, key)| key.user != name);
        self.keys = keys.map(|(blob, key)| (blob.clone(), Arc::clone(key))).collect();
        let openpgp_keys = self.openpgp_keys.iter().filter(|(_, key)| key.user != name);
        self.openpgp_keys = openpgp_keys
            .map(|(fingerprint, key)| (fingerprint.clone(), Arc::clone(key)))
            .collect();
        let has_role = self.roles.iter().filter(|(_, roles)| roles.of(name).is_some());
        let logs: Vec<LogId> = has_role.map(|(log, _)| *log).collect();
        for log in logs {
            self.put_role(log, &Grantee::User(name.to_owned()), None);
        }
        Ok(())
    }

    fn add_token(&mut self, token: &TokenRecord) -> Result<(), AccountConflict> {
        self.known(&token.user)?;
        if self.tokens.contains_key(&token.id()) {
            return Err(AccountConflict::TokenExists(token.id()));
        }
        self.tokens.insert(token.id(), Arc::new(token.clone()));
        Ok(())
    }

    fn add_key(&mut self, key: &KeyRecord) -> Result<(), AccountConflict> {
        self.known(&key.user)?;
        if let Some(other) = self.keys.get(&key.blob) {
            return Err(AccountConflict::KeyTaken(other.user.clone()));
        }
        self.keys.insert(key.blob.clone(), Arc::new(key.clone()));
        Ok(())
    }

    fn put_openpgp_key(&mut self, key: &OpenPgpKeyRecord) -> Result<(), AccountConflict> {
        self.known(&key.user)?;
        match self.openpgp_keys.get(key.fingerprint()) {
            Some(other) if other.user != key.user => return Err(AccountConflict::KeyTaken(other.user.clone())),
            _ => {}
        }
        let (fingerprint, key) = by_fingerprint(key.clone());
        self.openpgp_keys.insert(fingerprint, key);
        Ok(())
    }

    fn set_role(&mut self, record: &RoleRecord<Option<Role>>) -> Result<(), AccountConflict> {
        match &record.grantee {
            Grantee::Public if record.role == Some(Role::Admin) => return Err(AccountConflict::PublicAdmin),
            Grantee::Public => {}
            Grantee::User(name) => drop(self.known(name)?),
        }
        self.put_role(record.repository, &record.grantee, record.role);
        Ok(())
    }

    fn put_role(&mut self, repository: LogId, grantee: &Grantee, role: Option<Role>) {
        let mut roles = self.roles.get(&repository).cloned().unwrap_or_default();
        roles.set(grantee, role);
        if roles.is_empty() {
            self.roles.remove(&repository);
        } else {
            self.roles.insert(repository, roles);
        }
    }
}

fn by_fingerprint(key: OpenPgpKeyRecord) -> (Bytes, Arc<OpenPgpKeyRecord>) {
    let fingerprint = key.fingerprints.first().cloned().unwrap_or_default();
    (fingerprint, Arc::new(key))
}

/// The roles of one repository, the public's first.
fn role_records(repository: LogId, roles: &Roles) -> impl Iterator<Item = RoleRecord> {
    let public = roles.public.map(|role| (Grantee::Public, role));
    let users = roles.users().map(|(name, role)| (Grantee::User(name.to_owned()), role));
    public.into_iter().chain(users).map(move |(grantee, role)| RoleRecord {
        repository,
        grantee,
        role,
    })
}

impl fmt::Debug for AccountsState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountsState")
            .field("number", &self.number)
            .field("users", &self.users.len())
            .field("tokens", &self.tokens.len())
            .field("keys", &self.keys.len())
            .field("openpgp_keys", &self.openpgp_keys.len())
            .finish_non_exhaustive()
    }
}

impl Machine for AccountsState {
    type Edit = AccountsEdit;
    type Conflict = AccountConflict;

    fn number(&self) -> u64 {
        self.number
    }

    fn apply(&mut self, edit: &AccountsEdit) -> Result<(), AccountConflict> {
        let mut next = self.clone();
        edit.changes.iter().try_for_each(|change| next.apply_change(change))?;
        next.recent.push(edit.id, next.number);
        *self = next;
        Ok(())
    }

    fn seal_entry(&mut self) {
        self.number += 1;
    }

    fn entry_of(&self, id: EditId) -> Option<u64> {
        self.recent.entry_of(id)
    }

    fn has_forgotten(&self) -> bool {
        self.recent.is_full()
    }

    fn edit_id(edit: &AccountsEdit) -> EditId {
        edit.id
    }

    fn edit_bytes(edit: &AccountsEdit) -> usize {
        let changes: usize = edit.changes.iter().map(account_change_len_max).sum();
        EDIT_BYTES_MAX + edit.actor.len() + changes
    }

    fn encode_entry(number: u64, edits: &mut dyn Iterator<Item = &AccountsEdit>) -> Result<Bytes, LedgerError> {
        codec::encode_accounts_entry(number, edits)
    }

    fn decode_entry(log: LogId, number: u64, bytes: &Bytes) -> Result<Vec<AccountsEdit>, LedgerError> {
        codec::decode_accounts_entry(log, number, bytes)
    }

    fn decode_checkpoint(log: LogId, number: u64, bytes: &Bytes) -> Result<Self, LedgerError> {
        codec::decode_accounts_checkpoint(log, number, bytes).map(Self::from_checkpoint)
    }
}

/// Bytes of an edit beside its actor and changes.
const EDIT_BYTES_MAX: usize = 64;
