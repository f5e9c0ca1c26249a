//! The commands about users and what they may do.

use clap::{Args, Subcommand, ValueEnum};
use cuesta_format::Role;

/// `cuesta user …`.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Make a user, who owns all names below '<name>/'
    #[command(after_help = "Examples:\n  cuesta user add alice\n  cuesta user add root --admin")]
    Add {
        /// The name
        name: String,
        /// May do everything in every repository
        #[arg(long)]
        admin: bool,
    },
    /// Print all users
    List,
    /// Remove a user with every token, key and role of theirs; repositories stay
    Remove {
        /// The user
        name: String,
    },
    /// Make a user an administrator, or one no more
    #[command(after_help = "Examples:\n  cuesta user admin alice\n  cuesta user admin alice off")]
    Admin {
        /// The user
        name: String,
        /// On or off
        #[arg(value_enum, default_value = "on")]
        switch: Switch,
    },
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// From now on.
    On,
    /// No more.
    Off,
}

/// `cuesta token …`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token and print it, this once
    #[command(
        after_help = "Examples:\n  cuesta token create alice --name laptop\n  cuesta token create alice --scope read --expires never --repo alice/notes\n\n\
        Git asks for a user name and a password: the token is the password, the name does not matter."
    )]
    Create(TokenArgs),
    /// Print tokens, but for the tokens themselves
    List {
        /// Only this user's
        user: Option<String>,
    },
    /// End tokens
    Revoke {
        /// Their ids, as 'cuesta token list' prints them
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

/// `cuesta token create …`.
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// Whose it is
    pub user: String,
    /// What to call it
    #[arg(long, value_name = "NAME", default_value = "")]
    pub name: String,
    /// For how long it is good: '12h', '30d' or 'never'
    #[arg(long, value_name = "TIME", default_value = "90d")]
    pub expires: String,
    /// The most that may be done with it
    #[arg(long, value_enum, default_value = "write")]
    pub scope: RoleArg,
    /// Only for this repository; may be given several times
    #[arg(long = "repo", value_name = "NAME")]
    pub repositories: Vec<String>,
}

/// `cuesta key …`.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Give a user an SSH public key, or an OpenPGP one by which their signed pushes are known
    #[command(
        after_help = "Examples:\n  cuesta key add alice ~/.ssh/id_ed25519.pub\n  gpg --armor --export alice@example.org | cuesta key add alice -\n\n\
        An OpenPGP key that the user has already is replaced: so one brings its new subkeys, its later end or its revocation."
    )]
    Add {
        /// The user
        user: String,
        /// The .pub file, or an armored OpenPGP key; '-' reads standard input
        file: String,
    },
    /// Print keys
    List {
        /// Only this user's
        user: Option<String>,
    },
    /// Take a key away
    Remove {
        /// Its fingerprint, as 'cuesta key list' prints it
        fingerprint: String,
    },
}

/// `cuesta access …`.
#[derive(Debug, Subcommand)]
pub enum AccessCommand {
    /// Give a user a role in a repository
    #[command(after_help = "Example:\n  cuesta access grant alice/notes bob write")]
    Grant {
        /// The repository
        repository: String,
        /// The user
        user: String,
        /// What they may do
        #[arg(value_enum)]
        role: RoleArg,
    },
    /// Take a user's role in a repository away
    Revoke {
        /// The repository
        repository: String,
        /// The user
        user: String,
    },
    /// Print who may do what in a repository
    Show {
        /// The repository
        repository: String,
    },
    /// Set what everyone may do in a repository, known or not
    #[command(
        after_help = "Examples:\n  cuesta access public alice/notes read\n  cuesta access public alice/notes none"
    )]
    Public {
        /// The repository
        repository: String,
        /// What everyone may do
        #[arg(value_enum)]
        role: PublicRoleArg,
    },
}

/// A role, or a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleArg {
    /// Fetch
    Read,
    /// Fetch and push
    Write,
    /// Fetch, push, settings and roles
    Admin,
}

impl From<RoleArg> for Role {
    fn from(role: RoleArg) -> Self {
        match role {
            RoleArg::Read => Self::Read,
            RoleArg::Write => Self::Write,
            RoleArg::Admin => Self::Admin,
        }
    }
}

/// A role that everyone can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PublicRoleArg {
    /// Nothing
    None,
    /// Fetch
    Read,
    /// Fetch and push
    Write,
}

impl From<PublicRoleArg> for Option<Role> {
    fn from(role: PublicRoleArg) -> Self {
        match role {
            PublicRoleArg::None => None,
            PublicRoleArg::Read => Some(Role::Read),
            PublicRoleArg::Write => Some(Role::Write),
        }
    }
}
