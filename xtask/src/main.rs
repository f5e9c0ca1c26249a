//! Checks and chores: `cargo xtask tidy`.

mod tidy;

use anyhow::{Result, bail};

const USAGE: &str = "usage: cargo xtask <command>

commands:
  tidy    check what the compiler cannot: crate edges, file lengths, reasons for dependencies";

fn main() -> Result<()> {
    let command = std::env::args().nth(1);
    match command.as_deref() {
        Some("tidy") => tidy::check(),
        _ => bail!("{USAGE}"),
    }
}
