//! What the compiler cannot check: which crate may know which, how long a file may be, and that every dependency has a
//! reason.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
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
    check_reasons(&root, &mut findings)?;
    check_lengths(&root, &mut findings)?;
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
    let all = package["dependencies"].as_array().into_iter().flatten();
    all.filter(|dependency| dependency["kind"] != "dev").map(name)
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

/// Every external dependency of the workspace has a line in the decisions that says why it is there.
fn check_reasons(root: &Path, findings: &mut Vec<String>) -> Result<()> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml"))?;
    let reasons = std::fs::read_to_string(root.join(REASONS)).with_context(|| format!("cannot read '{REASONS}'"))?;
    let table = manifest
        .split("[workspace.dependencies]")
        .nth(1)
        .context("no [workspace.dependencies]")?;
    let lines = table.lines().skip(1).take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split_once(" = ").map(|(name, _)| name));
    for name in names.filter(|name| !name.starts_with("cuesta-") && !name.starts_with('#')) {
        if !reasons.contains(&format!("`{name}`")) {
            findings.push(format!("dependency '{name}' has no reason in {REASONS}"));
        }
    }
    Ok(())
}

fn check_lengths(root: &Path, findings: &mut Vec<String>) -> Result<()> {
    let listed = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "*.rs"])
        .output()?;
    for path in String::from_utf8(listed.stdout)?.split_terminator('\0') {
        let Ok(source) = std::fs::read_to_string(root.join(path)) else {
            continue;
        };
        let is_test = path.contains("/tests/") || path.contains("tests.rs");
        let max = if is_test { 2 * FILE_LINES_MAX } else { FILE_LINES_MAX };
        let lines = source.lines().count();
        if lines > max {
            findings.push(format!(
                "'{path}' has {lines} lines, more than {max}: is it still one noun?"
            ));
        }
    }
    Ok(())
}
