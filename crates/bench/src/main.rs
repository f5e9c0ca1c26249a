//! `cuesta-bench`: loads, and comparisons with stock git.

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use cuesta_bench::load::{self, Operation, Plan};
use cuesta_bench::slow_link::{Link, Requests};
use cuesta_bench::{cgi, cold, compare, large_tree, stub, together};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

/// Measures Cuesta beside stock git
#[derive(Parser)]
#[command(name = "cuesta-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Push, clone, fetch and list a repository on Cuesta and on git http-backend, interleaved; prints a table
    Compare {
        /// Bare repository to use
        repository: PathBuf,
        /// The cuesta binary
        #[arg(long, default_value = "target/release/cuesta")]
        cuesta: PathBuf,
        /// Bucket for cuesta, a directory below the scratch directory if not given
        #[arg(long)]
        bucket: Option<String>,
        /// Runs of each cheap operation
        #[arg(long, default_value_t = 9)]
        runs: usize,
        /// Let stock git repack with bitmaps and a commit-graph after the push, and cuesta compact
        #[arg(long)]
        repack: bool,
        /// Let cuesta alone compact after the push, as it does by itself when nobody has pushed for a minute
        #[arg(long)]
        compact: bool,
        /// Let agents push to cuesta, fetch from it and clone it for so many seconds before all else is measured
        #[arg(long)]
        aged: Option<u64>,
        /// Only operations with this in their names, such as 'clone' or 'fetch, 10'
        #[arg(long, default_value = "")]
        only: String,
        /// How many commits the fetching clients are behind; those that are 0 behind are up to date
        #[arg(long, value_delimiter = ',', default_value = "0,1,10,100,1000")]
        behind: Vec<u32>,
        /// Directory for the files of servers and clients, a temporary one if not given
        #[arg(long)]
        scratch: Option<PathBuf>,
    },
    /// Push into a repository of 65,536 leaf trees and very many blobs, beside stock git; prints a table
    LargeTree {
        /// Blobs in all
        #[arg(long, default_value_t = 1_000_000)]
        blobs: u64,
        /// Leaf trees changed by a push
        #[arg(long, value_delimiter = ',', default_value = "20000,65536")]
        changed: Vec<u32>,
        /// Pushes of each size to each server
        #[arg(long, default_value_t = 1)]
        runs: u32,
        /// Do not restart cuesta before each push
        #[arg(long)]
        warm: bool,
        /// Leave stock git out
        #[arg(long)]
        alone: bool,
        /// The cuesta binary
        #[arg(long, default_value = "target/release/cuesta")]
        cuesta: PathBuf,
        /// Directory for packs and servers' files; what it holds from an earlier run is used again
        #[arg(long)]
        scratch: PathBuf,
    },
    /// Clone and fetch by a node with and without a cache, from a bucket behind a slow link; prints a table
    Cold {
        /// Bare repository to use
        repository: PathBuf,
        /// The cuesta binary
        #[arg(long, default_value = "target/release/cuesta")]
        cuesta: PathBuf,
        /// Bucket for cuesta, with its keys in the environment (CUESTA_BUCKET_ACCESS_KEY_ID, …)
        #[arg(long)]
        bucket: String,
        /// The S3-compatible server that has the bucket, over plain HTTP
        #[arg(long)]
        endpoint: SocketAddr,
        /// From a request to the first byte of its answer, at least
        #[arg(long, default_value_t = 30)]
        round_trip_ms: u64,
        /// Bandwidth of each connection, in each direction
        #[arg(long, default_value_t = 100)]
        megabytes_per_second: u64,
        /// Runs of each operation
        #[arg(long, default_value_t = 3)]
        runs: usize,
        /// Print what each operation asked the bucket for in its last cold run, and when
        #[arg(long)]
        list: bool,
        /// Directory for the files of the node and the clients, a temporary one if not given
        #[arg(long)]
        scratch: Option<PathBuf>,
    },
    /// Many identical clones at once, beside one of them and beside their bytes alone; prints a table
    Together {
        /// The repository
        url: String,
        /// The server's process, whose CPU is counted
        #[arg(long)]
        pid: u32,
        /// Clones at once
        #[arg(long, default_value_t = 32)]
        clones: u32,
        /// Of that depth, of HEAD alone
        #[arg(long)]
        depth: Option<u32>,
        /// With that filter
        #[arg(long)]
        filter: Option<String>,
    },
    /// Serve bare repositories by git http-backend
    HttpBackend {
        /// Directory of the repositories
        #[arg(long)]
        root: PathBuf,
        /// Address to listen on
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// A setting for git, such as core.fsync=all
        #[arg(long, value_name = "NAME=VALUE")]
        set: Vec<String>,
    },
    /// Many agents push small commits; prints a table and audits what was acknowledged
    Push(LoadArguments),
    /// Many agents clone the repository over and over
    Clone(LoadArguments),
    /// Many agents clone, push and fetch, and begin again
    Session {
        #[command(flatten)]
        load: LoadArguments,
        /// Pushes, each followed by a fetch, between two clones
        #[arg(long, default_value_t = 3)]
        pushes: u32,
    },
    /// Many agents push, fetch and clone at random
    Mixed {
        #[command(flatten)]
        load: LoadArguments,
        /// How often each is chosen, in proportion: pushes, fetches, clones
        #[arg(long, value_delimiter = ',', num_args = 3, default_value = "8,4,1")]
        weights: Vec<u32>,
    },
    /// Acknowledge every push at once: tells what the generator itself can do
    Stub {
        /// Address to listen on
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
}

#[derive(Args)]
struct LoadArguments {
    /// Repositories, http[s]://[user:password@]host[:port]/path; several take turns at every level
    #[arg(required = true)]
    urls: Vec<String>,
    /// What to call each in the table, in the order of the URLs
    #[arg(long, value_delimiter = ',')]
    names: Vec<String>,
    /// The servers' processes, in the order of the URLs: their CPU and memory is told
    #[arg(long = "pid", value_delimiter = ',')]
    pids: Vec<u32>,
    /// The servers' data directories, in the order of the URLs: their size after each level is told
    #[arg(long = "data", value_delimiter = ',')]
    directories: Vec<PathBuf>,
    /// Shell commands, in the order of the URLs: the last line that each prints after a level goes into the table
    #[arg(long = "probe")]
    probes: Vec<String>,
    /// Certificates to trust over HTTPS, a PEM file
    #[arg(long)]
    ca: Option<PathBuf>,
    /// Numbers of agents, one after another
    #[arg(long, value_delimiter = ',', default_value = "1,8,32,128")]
    agents: Vec<usize>,
    /// Repeat all levels so often
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Seconds counted at each level
    #[arg(long, default_value_t = 10)]
    duration: u64,
    /// Seconds before them that are not
    #[arg(long, default_value_t = 2)]
    warmup: u64,
    /// Fewest files in a commit
    #[arg(long, default_value_t = 1)]
    files_min: usize,
    /// Most files in a commit
    #[arg(long, default_value_t = 10)]
    files_max: usize,
    /// Bytes of each file
    #[arg(long, default_value_t = 2048)]
    file_size: usize,
    /// Refs to make first
    #[arg(long, default_value_t = 0)]
    preload: usize,
    /// Bare repository whose head is pushed first; commits then change some of its files, in thin packs
    #[arg(long)]
    base: Option<PathBuf>,
    /// Branches that the agents share; each has its own if 0
    #[arg(long, default_value_t = 0)]
    branches: usize,
    /// Operations a second of all agents together, whatever the server does; latencies then count from when each was due
    #[arg(long)]
    rate: Option<f64>,
    /// Operations on one connection, no limit if 0
    #[arg(long, default_value_t = 0)]
    per_connection: usize,
    /// Clone at the end and check with git fsck
    #[arg(long)]
    fsck: bool,
}

impl LoadArguments {
    fn options(self, plan: Plan) -> Result<load::Options> {
        ensure!(self.files_min <= self.files_max, "--files-min is above --files-max");
        ensure!(self.rate.is_none_or(|rate| rate > 0.0), "--rate must be above 0");
        let servers = self.urls.into_iter().enumerate().map(|(index, url)| load::Server {
            name: self.names.get(index).unwrap_or(&url).clone(),
            pid: self.pids.get(index).copied(),
            directory: self.directories.get(index).cloned(),
            probe: self.probes.get(index).cloned(),
            url,
        });
        Ok(load::Options {
            servers: servers.collect(),
            plan,
            levels: self.agents,
            rounds: self.rounds,
            warmup: Duration::from_secs(self.warmup),
            duration: Duration::from_secs(self.duration),
            shape: load::Shape {
                files: self.files_min..=self.files_max,
                file_bytes: self.file_size,
            },
            base: self.base,
            branches: self.branches,
            rate: self.rate,
            operations_per_connection: self.per_connection,
            preload: self.preload,
            authorities: self.ca,
            fsck: self.fsck,
        })
    }
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Compare {
            repository,
            cuesta,
            bucket,
            runs,
            repack,
            compact,
            aged,
            only,
            behind,
            scratch,
        } => {
            let temporary = tempfile::tempdir()?;
            let scratch = scratch.unwrap_or_else(|| temporary.path().to_owned());
            let serve_arguments = bucket.map_or_else(Vec::new, |url| vec!["--bucket".to_owned(), url]);
            compare::run(&compare::Options {
                repository,
                cuesta,
                serve_arguments,
                runs,
                repack,
                compact,
                aged: aged.map(Duration::from_secs),
                only,
                behind,
                scratch,
            })
        }
        Command::LargeTree {
            blobs,
            changed,
            runs,
            warm,
            alone,
            cuesta,
            scratch,
        } => large_tree::run(&large_tree::Options {
            blobs,
            changed,
            runs,
            cuesta,
            warm,
            stock: !alone,
            scratch,
        }),
        Command::Cold {
            repository,
            cuesta,
            bucket,
            endpoint,
            round_trip_ms,
            megabytes_per_second,
            runs,
            list,
            scratch,
        } => {
            ensure!(megabytes_per_second > 0, "--megabytes-per-second must be above 0");
            let temporary = tempfile::tempdir()?;
            cold::run(&cold::Options {
                repository,
                cuesta,
                bucket,
                endpoint,
                link: Link {
                    round_trip: Duration::from_millis(round_trip_ms),
                    bytes_per_second: megabytes_per_second.saturating_mul(1_000_000),
                    requests: Requests::default(),
                },
                list,
                runs,
                scratch: scratch.unwrap_or_else(|| temporary.path().to_owned()),
            })
        }
        Command::Together {
            url,
            pid,
            clones,
            depth,
            filter,
        } => together::run(&together::Options {
            url,
            pid,
            clones,
            depth,
            filter,
        }),
        Command::HttpBackend { root, listen, set } => {
            let listener = TcpListener::bind(listen)?;
            println!("serving '{}' at http://{}", root.display(), listener.local_addr()?);
            let mut backend = cgi::Backend::new(root);
            for setting in &set {
                let (name, value) = setting.split_once('=').context("--set takes NAME=VALUE")?;
                backend.settings.push((name.to_owned(), value.to_owned()));
            }
            backend.serve(&listener)
        }
        Command::Push(load) => load::run(&load.options(Plan::only(Operation::Push))?),
        Command::Clone(load) => load::run(&load.options(Plan::only(Operation::Clone))?),
        Command::Session { load, pushes } => load::run(&load.options(Plan::Session(pushes))?),
        Command::Mixed { load, weights } => {
            let operations = [Operation::Push, Operation::Fetch, Operation::Clone];
            let weights = operations.into_iter().zip(weights).collect();
            load::run(&load.options(Plan::Mixed(weights))?)
        }
        Command::Stub { listen } => stub::serve(listen),
    }
}
