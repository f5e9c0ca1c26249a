//! What the compiler cannot check: which crate may know which, how long a file may be, that every dependency is used and has
//! a reason, and that the tests which pages name are there.

use crate::named_tests;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which workspace crates each crate may depend on (the table of `docs/architecture.md`).
const EDGES: &[(&str, &[&str])] = &[
    ("cuesta-git", &[]),
    ("cuesta-format", &["cuesta-git"]),
    ("cuesta-protocol", &["cuesta-git"]),
    ("cuesta-store", &[]),
    ("cuesta-ledger", &["cuesta-git", "cuesta-format", "cuesta-store"]),
    (
        "cuesta-engine",
        &["cuesta-git", "cuesta-format", "cuesta-store", "cuesta-ledger"],
    ),
    (
        "cuesta-server",
        &[
            "cuesta-git",
            "cuesta-format",
            "cuesta-protocol",
            "cuesta-store",
            "cuesta-ledger",
            "cuesta-engine",
        ],
    ),
    (
        "cuesta-sim",
        &[
            "cuesta-git",
            "cuesta-format",
            "cuesta-protocol",
            "cuesta-store",
            "cuesta-ledger",
            "cuesta-engine",
        ],
    ),
    ("cuesta-bench", &["cuesta-git", "cuesta-protocol"]),
    ("cuesta-blackbox", &["cuesta-bench"]),
    ("xtask", &[]),
];

/// Lines a source file may have; tests in a file of their own may have twice as many.
const FILE_LINES_MAX: usize = 700;

const REASONS: &str = "docs/decisions/dependencies.md";

/// Where requests are answered, by callers who were admitted to a repository.
const SERVICES: &str = "crates/server/src/service/";

/// The crates that a server is made of.
const SERVED: &[&str] = &["git", "format", "protocol", "store", "ledger", "engine", "server"];

/// What starts a process: nothing that a client sends is to become a word of a command line.
const PROCESSES: &[&str] = &[
    "process::Command",
    "tokio::process",
    "posix_spawn",
    "libc::fork",
    "libc::exec",
];

/// What connects to somewhere, but for the bucket's library: nothing that a client sends is to say where.
const CONNECTIONS: &[&str] = &[
    "reqwest",
    "crate::remote",
    "TcpStream::connect",
    "TcpSocket",
    "UdpSocket",
    "UnixStream::connect",
    "lookup_host",
    "to_socket_addrs",
];

/// Who may: commands of the operator, for imports, and for the ledger's socket.
const CONNECTS: &[&str] = &[
    "crates/server/src/remote/",
    "crates/server/src/commands/",
    "crates/ledger/src/embedded/",
    "crates/ledger/src/remote/client.rs",
];

/// Runs every check and reports all findings together.
pub(crate) fn check() -> Result<()> {
    let metadata = metadata()?;
    let root = PathBuf::from(
        metadata["workspace_root"]
            .as_str()
            .context("cargo metadata names no workspace root")?,
    );
    let mut findings = Vec::new();
    for package in members(&metadata) {
        check_edges(package, &mut findings);
        check_gix(package, &mut findings);
    }
    check_dependencies(&root, &metadata, &mut findings)?;
    check_sources(&root, &mut findings)?;
    for finding in &findings {
        eprintln!("tidy: {finding}");
    }
    ensure!(findings.is_empty(), "{} finding(s)", findings.len());
    println!("tidy: clean");
    Ok(())
}

fn metadata() -> Result<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .output()?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")
}

fn members(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

fn name(value: &Value) -> &str {
    value["name"].as_str().unwrap_or_default()
}

/// The names a package depends on; a package's own tests may know more, so dev-dependencies are left out.
fn dependencies(package: &Value) -> impl Iterator<Item = &str> {
    all_dependencies(package)
        .filter(|dependency| dependency["kind"] != "dev")
        .map(name)
}

fn all_dependencies(package: &Value) -> impl Iterator<Item = &Value> {
    package["dependencies"].as_array().into_iter().flatten()
}

fn check_edges(package: &Value, findings: &mut Vec<String>) {
    let from = name(package);
    let Some((_, allowed)) = EDGES.iter().find(|(crate_name, _)| *crate_name == from) else {
        findings.push(format!("crate '{from}' has no row in the table of edges"));
        return;
    };
    let ours = dependencies(package).filter(|to| to.starts_with("cuesta-"));
    findings.extend(
        ours.filter(|to| !allowed.contains(to))
            .map(|to| format!("'{from}' may not depend on '{to}'")),
    );
}

fn check_gix(package: &Value, findings: &mut Vec<String>) {
    let from = name(package);
    if from != "cuesta-git" {
        let gix = dependencies(package).filter(|to| to.starts_with("gix"));
        findings.extend(gix.map(|to| format!("only cuesta-git may name '{to}', not '{from}'")));
    }
}

/// Every dependency that a crate names stands in the workspace's table and has a line in the decisions that says why it
/// is there; and the table holds nothing that no crate names.
fn check_dependencies(root: &Path, metadata: &Value, findings: &mut Vec<String>) -> Result<()> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml"))?;
    let reasons = std::fs::read_to_string(root.join(REASONS)).with_context(|| format!("cannot read '{REASONS}'"))?;
    let table = shared_dependencies(&manifest).context("no [workspace.dependencies]")?;
    let named: BTreeSet<&str> = members(metadata).flat_map(all_dependencies).map(name).collect();
    findings.extend(unnamed(&table, &named));
    findings.extend(unshared(&table, &named));
    findings.extend(unreasoned(&reasons, &named));
    Ok(())
}

/// The names in the manifest's table of dependencies that crates share.
fn shared_dependencies(manifest: &str) -> Option<BTreeSet<&str>> {
    let table = manifest.split("[workspace.dependencies]").nth(1)?;
    let lines = table.lines().skip(1).take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split_once([' ', '.', '=']).map(|(name, _)| name));
    Some(
        names
            .filter(|name| !name.is_empty() && !name.starts_with('#'))
            .collect(),
    )
}

fn unnamed(table: &BTreeSet<&str>, named: &BTreeSet<&str>) -> Vec<String> {
    let idle = table.difference(named);
    idle.map(|name| format!("[workspace.dependencies] has '{name}', which no crate names"))
        .collect()
}

fn unshared(table: &BTreeSet<&str>, named: &BTreeSet<&str>) -> Vec<String> {
    let own = named.difference(table);
    own.map(|name| format!("dependency '{name}' does not stand in [workspace.dependencies]"))
        .collect()
}

fn unreasoned(reasons: &str, named: &BTreeSet<&str>) -> Vec<String> {
    let theirs = named.iter().filter(|name| !name.starts_with("cuesta-"));
    theirs
        .filter(|name| !reasons.lines().any(|line| line.starts_with(&format!("| `{name}` |"))))
        .map(|name| format!("dependency '{name}' has no reason in {REASONS}"))
        .collect()
}

fn check_sources(root: &Path, findings: &mut Vec<String>) -> Result<()> {
    let listed = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "*.rs"])
        .output()?;
    let mut sources = String::new();
    for path in String::from_utf8(listed.stdout)?.split_terminator('\0') {
        let Ok(source) = std::fs::read_to_string(root.join(path)) else {
            continue;
        };
        findings.extend(too_long(path, &source));
        findings.extend(unadmitted(path, &source));
        findings.extend(reaches_out(path, &source));
        sources.push_str(&source);
    }
    findings.extend(named_tests::missing(root, &sources)?);
    Ok(())
}

fn too_long(path: &str, source: &str) -> Option<String> {
    let is_test = path.contains("/tests/") || path.contains("tests.rs");
    let max = if is_test { 2 * FILE_LINES_MAX } else { FILE_LINES_MAX };
    let lines = source.lines().count();
    (lines > max).then(|| format!("'{path}' has {lines} lines, more than {max}: is it still one noun?"))
}

/// A service that looks a name up itself may find another repository than the one its caller was admitted to.
fn unadmitted(path: &str, source: &str) -> Option<String> {
    let looks_up = path.starts_with(SERVICES) && source.contains("engine.repository(");
    looks_up.then(|| format!("'{path}' opens a repository by its name: open what was admitted"))
}

/// Whether the code of a server, its tests apart, starts processes, or connects where requests could lead it.
fn reaches_out(path: &str, source: &str) -> Vec<String> {
    let is_served = SERVED
        .iter()
        .any(|name| path.starts_with(&format!("crates/{name}/src/")));
    let is_test = path.contains("/tests/") || path.ends_with("tests.rs");
    if !is_served || is_test {
        return Vec::new();
    }
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let connects = CONNECTS.iter().any(|allowed| path.starts_with(allowed));
    let connections = CONNECTIONS.iter().filter(|_| !connects);
    let named = PROCESSES.iter().chain(connections).filter(|name| code.contains(**name));
    named
        .map(|name| format!("'{path}' names '{name}': a server starts no process, and connects to its storage only"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_starts_no_process_and_connects_nowhere() {
        let found = |path: &str, source: &str| reaches_out(path, source).len();
        for name in [
            "use std::process::Command;",
            "tokio::process::Command::new()",
            "TcpStream::connect(host)",
        ] {
            assert_eq!(found("crates/server/src/service/fetch.rs", name).min(1), 1, "{name}");
            assert_eq!(found("crates/engine/src/upload.rs", name).min(1), 1, "{name}");
            assert_eq!(found("crates/bench/src/load.rs", name), 0);
            assert_eq!(found("crates/server/src/service/tests/fetch.rs", name), 0);
            let test = format!("fn x() {{}}\n#[cfg(test)]\nmod tests {{\n{name}");
            assert_eq!(found("crates/server/src/service/fetch.rs", &test), 0);
        }
        assert_eq!(found("crates/server/src/commands/import.rs", "reqwest::get(url)"), 0);
        assert_eq!(
            found("crates/server/src/commands/import.rs", "std::process::Command"),
            1
        );
    }

    const MANIFEST: &str =
        "[workspace.dependencies]\na = \"1\"\n# b = \"1\"\n\nc-d = { version = \"1\" }\n[profile.dev]\ne = 1\n";

    #[test]
    fn the_table_ends_at_the_next_and_has_comments() {
        assert_eq!(shared_dependencies(MANIFEST), Some(BTreeSet::from(["a", "c-d"])));
        assert_eq!(shared_dependencies("[workspace]\n"), None);
    }

    #[test]
    fn services_open_what_was_admitted() {
        let source = "match call.node.engine.repository(&call.name).await {";
        assert!(unadmitted("crates/server/src/service/fetch.rs", source).is_some());
        assert!(unadmitted("crates/server/src/commands/repo.rs", source).is_none());
        assert!(unadmitted("crates/server/src/service/fetch.rs", "match call.repository().await {").is_none());
    }

    #[test]
    fn dependencies_are_named_shared_and_reasoned() {
        let table = BTreeSet::from(["a", "c-d"]);
        let named = BTreeSet::from(["a", "f", "cuesta-git"]);
        assert!(unnamed(&table, &named)[0].contains("'c-d'"));
        assert_eq!(unnamed(&table, &table), [""; 0]);
        assert_eq!(unshared(&table, &named).len(), 2);
        assert_eq!(unshared(&table, &table), [""; 0]);
        let reasons = "| `a` | for `f` |\n";
        assert_eq!(unreasoned(reasons, &named).len(), 1);
        assert!(unreasoned(reasons, &named)[0].contains("'f'"));
    }
}
