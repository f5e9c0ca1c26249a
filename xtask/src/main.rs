//! Checks and chores: `cargo xtask test`, `cargo xtask tidy`.

mod named_tests;
mod services;
mod test;
mod tidy;

use anyhow::{Result, bail};

const USAGE: &str = "usage: cargo xtask <command>

commands:
  test           every check there is: format, lints, tidy, all tests, real clients over a directory, S3 and Azure
  test --quick   the same without S3, Azure and the clients that must be downloaded
  services       start S3 and Azure servers for tests, print the environment to test with, and wait for the end of input
  tidy           check what the compiler cannot: crate edges, file lengths, reasons for dependencies, tests named in docs";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["test"] => test::run(test::Extent::Everything),
        ["test", "--quick"] => test::run(test::Extent::Quick),
        ["services"] => services::lend(),
        ["tidy"] => tidy::check(),
        _ => bail!("{USAGE}"),
    }
}
