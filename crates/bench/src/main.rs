//! `cuesta-bench`: comparisons with stock git.

use anyhow::Result;
use clap::{Parser, Subcommand};
use cuesta_bench::{cgi, compare};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

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
        /// How many commits the fetching clients are behind
        #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000")]
        behind: Vec<u32>,
        /// Directory for the files of servers and clients, a temporary one if not given
        #[arg(long)]
        scratch: Option<PathBuf>,
    },
    /// Serve bare repositories by git http-backend
    HttpBackend {
        /// Directory of the repositories
        #[arg(long)]
        root: PathBuf,
        /// Address to listen on
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Compare {
            repository,
            cuesta,
            bucket,
            runs,
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
                behind,
                scratch,
            })
        }
        Command::HttpBackend { root, listen } => {
            let listener = TcpListener::bind(listen)?;
            println!("serving '{}' at http://{}", root.display(), listener.local_addr()?);
            cgi::Backend::new(root).serve(&listener)
        }
    }
}
