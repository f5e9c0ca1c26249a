//! Tests that pages name: each must be there, for a page that names one which is gone says what nobody checks.

use anyhow::Result;
use std::path::Path;

/// Pages whose tables name tests in their last column.
const PAGES: [&str; 3] = [
    "docs/compatibility-rules.md",
    "docs/compatibility-security.md",
    "docs/limits.md",
];

/// Findings: every named test that no source has, where `sources` are all of the project's Rust.
pub(crate) fn missing(root: &Path, sources: &str) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for page in PAGES {
        let text = std::fs::read_to_string(root.join(page))?;
        let names = text.lines().filter_map(last_cell).flat_map(names);
        findings.extend(
            names
                .filter(|name| !has(sources, name))
                .map(|name| format!("'{page}' names the test '{name}', which is not there")),
        );
    }
    Ok(findings)
}

fn last_cell(line: &str) -> Option<&str> {
    let row = line.trim_end().strip_suffix('|')?;
    row.rsplit_once(" | ").map(|(_, cell)| cell)
}

/// What stands between backticks and looks like the name of a function or of a scenario.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    let quoted = cell.split('`').skip(1).step_by(2);
    quoted.filter(|word| {
        let is_name = word
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b':'));
        is_name && (word.contains('_') || word.contains("::"))
    })
}

/// Whether a function has that name, or a string as trials and scenarios have them.
fn has(sources: &str, name: &str) -> bool {
    let last = name.rsplit("::").next().unwrap_or(name);
    [format!("fn {last}("), format!("\"{name}\""), format!("\"{last}\"")]
        .iter()
        .any(|form| sources.contains(form))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_the_last_column() {
        let line =
            "| `push_bytes_max` | no | wire `bytes_of_a_pack`; bb `large::one`, `damaged`, `a b`, `tests/ssh.rs` |";
        let found: Vec<_> = names(last_cell(line).unwrap()).collect();
        assert_eq!(found, ["bytes_of_a_pack", "large::one"]);
        assert_eq!(last_cell("no table, `a_b`"), None);
    }

    #[test]
    fn functions_and_strings_are_tests() {
        let sources = "fn one_thing() {}\nfn two() {}\nscenario(\"three\")";
        for (name, there) in [
            ("one_thing", true),
            ("m::two", true),
            ("m::three", true),
            ("one_thin", false),
        ] {
            assert_eq!(has(sources, name), there, "{name}");
        }
    }
}
