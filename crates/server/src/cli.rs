//! The command line.

mod accounts;

pub use accounts::{AccessCommand, KeyCommand, PublicRoleArg, RoleArg, Switch, TokenArgs, TokenCommand, UserCommand};

use crate::config::Sources;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cuesta serve
  git push http://127.0.0.1:8717/alice/notes.git main
  cuesta repo list
  cuesta serve --data /srv/cuesta --bucket s3://my-bucket/git";

/// A Git server whose repositories live in object storage.
#[derive(Debug, Parser)]
#[command(name = "cuesta", version, about = "A Git server whose repositories live in object storage", after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    /// Where settings come from.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The flags that every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings (see 'cuesta config show')")]
pub struct SettingsArgs {
    /// Read settings from this TOML file
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The data directory: ledger, caches and, by default, the bucket [default: ./cuesta-data]
    #[arg(long, global = true, value_name = "DIR")]
    pub data: Option<String>,
    /// The bucket: a directory, s3://…, gs://…, az://… or memory: [default: <data>/bucket]
    #[arg(long, global = true, value_name = "URL")]
    pub bucket: Option<String>,
    /// Give any setting a value
    #[arg(long = "set", global = true, value_name = "NAME=VALUE", value_parser = assignment)]
    pub assignments: Vec<(String, String)>,
}

/// What `cuesta` can be told to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve repositories over smart HTTP, and over SSH and git:// if asked to
    #[command(
        after_help = "Examples:\n  cuesta serve\n  cuesta serve --listen 127.0.0.1:9000 --data /srv/cuesta\n  \
        cuesta serve --ssh-listen 127.0.0.1:2222\n  \
        CUESTA_LOG_FORMAT=json cuesta serve --config cuesta.toml\n\nSIGTERM and SIGINT drain: requests in flight end, then it exits."
    )]
    Serve {
        /// Address and port; port 0 takes a free one [default: 127.0.0.1:8717]
        #[arg(long, value_name = "ADDR:PORT")]
        listen: Option<String>,
        /// Address and port of SSH; port 0 takes a free one [default: no SSH]
        #[arg(long, value_name = "ADDR:PORT")]
        ssh_listen: Option<String>,
        /// Address and port of git://, for reads of what is public; port 0 takes a free one [default: no git://]
        #[arg(long, value_name = "ADDR:PORT")]
        git_listen: Option<String>,
    },
    /// Make, list and remove users
    #[command(subcommand)]
    User(UserCommand),
    /// Make, list and revoke access tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// Add, list and remove SSH and OpenPGP public keys
    #[command(subcommand)]
    Key(KeyCommand),
    /// Say who may do what in a repository
    #[command(subcommand)]
    Access(AccessCommand),
    /// Make, list and change repositories
    #[command(subcommand)]
    Repo(RepoCommand),
    /// Take a git directory or a remote repository in
    #[command(
        after_help = "Examples:\n  cuesta import alice/notes /srv/git/notes.git\n  cuesta import alice/notes https://example.org/notes.git"
    )]
    Import(ImportArgs),
    /// Print an object's content
    #[command(after_help = "Example:\n  cuesta cat alice/notes 8ab686eafeb1f44702738c8b0f24f2567c36da6d")]
    Cat {
        /// The repository
        repository: String,
        /// The object's id, in full
        oid: String,
    },
    /// Print the layers of a repository
    Layers {
        /// The repository
        repository: String,
    },
    /// Check everything that a repository holds
    Fsck {
        /// The repository
        repository: String,
        /// Check checksums and structure only, not every object
        #[arg(long)]
        quick: bool,
        /// Say nothing but what is damaged
        #[arg(long, short)]
        quiet: bool,
    },
    /// Delete what nothing needs from the bucket, once its grace period is over
    #[command(
        after_help = "The server does this by itself, but for what only a listing of the bucket can find: layers whose \
        push never ended, and what never got a name.\n\nExamples:\n  cuesta collect --dry-run\n  cuesta collect alice/notes"
    )]
    Collect {
        /// The repository; all, deleted ones and the rest of the bucket without it
        repository: Option<String>,
        /// Print what would be deleted, and delete nothing
        #[arg(long, short = 'n')]
        dry_run: bool,
    },
    /// Check that the bucket does what Cuesta relies on
    Doctor,
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
}

/// `cuesta import …`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The repository, made if it is not there
    pub name: String,
    /// A git directory, or the URL of a remote
    pub source: String,
    /// Make the repository equal to the directory: refs pruned, HEAD, symrefs, shallow list and settings taken over
    #[arg(long)]
    pub exact: bool,
    /// Let in objects that break git's fsck rules
    #[arg(long)]
    pub no_strict: bool,
    /// Take objects, too, from the directories that this one borrows from
    #[arg(long)]
    pub alternates: bool,
    /// The user at the remote; the password is taken from CUESTA_IMPORT_PASSWORD
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Say nothing unless it fails
    #[arg(long, short)]
    pub quiet: bool,
}

/// `cuesta repo …`.
#[derive(Debug, Subcommand)]
pub enum RepoCommand {
    /// Make an empty repository
    #[command(
        after_help = "Examples:\n  cuesta repo create alice/notes\n  cuesta repo create alice/notes --object-format sha256"
    )]
    Create {
        /// `<owner>/<name>`
        name: String,
        /// The hash that names its objects
        #[arg(long, value_enum, default_value = "sha1")]
        object_format: FormatArg,
    },
    /// Print the names of all repositories
    List,
    /// Print what is known of a repository
    Show {
        /// The repository
        name: String,
    },
    /// Delete a repository and its name
    Delete {
        /// The repository
        name: String,
    },
    /// Give a repository another name
    Rename {
        /// The name it has
        from: String,
        /// The name it gets
        to: String,
    },
    /// Make one layer of all, with the bases of deltas chosen anew
    #[command(
        after_help = "Servers do this by themselves in idle moments, a layer at a time. It takes about as long as a full clone does\n\
        a client, and may run beside the server."
    )]
    Compact {
        /// The repository
        name: String,
        /// Say nothing unless it fails
        #[arg(long, short)]
        quiet: bool,
    },
    /// Make HEAD name a branch, which need not exist yet
    #[command(after_help = "Example:\n  cuesta repo set-head alice/notes refs/heads/trunk")]
    SetHead {
        /// The repository
        name: String,
        /// The full name of the ref
        target: String,
    },
    /// Print or change settings, under git's own names
    #[command(
        after_help = "Examples:\n  cuesta repo config alice/notes\n  cuesta repo config alice/notes receive.denyNonFastForwards true\n  \
        cuesta repo config alice/notes receive.denyNonFastForwards --unset"
    )]
    Config {
        /// The repository
        name: String,
        /// The setting; all are printed without it
        key: Option<String>,
        /// Its new value; the present one is printed without it
        value: Option<String>,
        /// Put the setting back to its default
        #[arg(long, conflicts_with = "value", requires = "key")]
        unset: bool,
    },
}

/// `cuesta config …`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the effective settings and where each came from
    Show,
}

/// `--object-format`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FormatArg {
    /// 20-byte object ids
    Sha1,
    /// 32-byte object ids
    Sha256,
}

impl Cli {
    /// What settings are to be made from, given the environment.
    pub fn sources(&self, environment: Vec<(String, String)>) -> Sources {
        let (listen, ssh_listen, git_listen) = match &self.command {
            Command::Serve {
                listen,
                ssh_listen,
                git_listen,
            } => (listen.as_ref(), ssh_listen.as_ref(), git_listen.as_ref()),
            _ => (None, None, None),
        };
        let named = [
            ("data", self.settings.data.as_ref()),
            ("bucket", self.settings.bucket.as_ref()),
            ("listen", listen),
            ("ssh_listen", ssh_listen),
            ("git_listen", git_listen),
        ];
        let named = named
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.clone())));
        let flags = self.settings.assignments.iter().cloned().chain(named).collect();
        Sources {
            file: self.settings.config.clone(),
            environment,
            flags,
        }
    }
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_become_settings() {
        let cli = Cli::try_parse_from([
            "cuesta",
            "serve",
            "--data",
            "/srv",
            "--listen",
            "127.0.0.1:0",
            "--set",
            "fetches_max=3",
        ]);
        let settings = Config::load(&cli.unwrap().sources(Vec::new())).unwrap().settings;
        assert_eq!(
            (settings.data, settings.listen.port(), settings.fetches_max),
            ("/srv".into(), 0, 3)
        );
    }

    #[test]
    fn a_flag_of_its_own_beats_set() {
        let cli = Cli::try_parse_from(["cuesta", "doctor", "--data", "/a", "--set", "data=/b"]).unwrap();
        assert_eq!(
            Config::load(&cli.sources(Vec::new())).unwrap().settings.data,
            PathBuf::from("/a")
        );
        assert!(Cli::try_parse_from(["cuesta", "doctor", "--set", "data"]).is_err());
    }
}
