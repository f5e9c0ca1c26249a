//! What clients were shown, with what may differ between servers masked, and how two such records are compared.

use anyhow::{Result, bail, ensure};
use std::fmt;

/// Reasons by which servers may tell the same loss of a race; git's own differ from version to version.
const CONFLICTS: &[&str] = &[
    "failed to update ref",
    "failed to lock",
    "incorrect old value provided",
    "reference already exists",
    "reference does not exist",
    "refname conflict",
];

/// What a line begins with that gives the reasons of a refusal.
pub(crate) const REASONS: &str = "because:";

/// The lines that clients printed, and figures.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transcript {
    lines: Vec<String>,
    figures: Vec<(String, u64)>,
}

impl Transcript {
    /// Adds lines. The server's own chatter (`remote:`) and progress are left out.
    pub(crate) fn add(&mut self, text: &str, host: &str, root: &str) {
        let shown = text
            .split(['\n', '\r'])
            .map(str::trim_end)
            .filter(|line| !line.is_empty() && !line.starts_with("remote:"));
        self.lines.extend(shown.map(|line| mask(line, host, root)));
    }

    /// Adds a figure.
    pub(crate) fn measure(&mut self, what: &str, figure: u64) {
        self.figures.push((what.to_owned(), figure));
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const TAIL: usize = 40;
        let skipped = self.lines.len().saturating_sub(TAIL);
        self.lines
            .iter()
            .skip(skipped)
            .try_for_each(|line| writeln!(f, "  {line}"))
    }
}

fn mask(line: &str, host: &str, root: &str) -> String {
    let mut line = line.replace(host, "<host>").replace(root, "<root>");
    for reason in CONFLICTS {
        line = line.replace(&format!("({reason})"), "(<conflict>)");
    }
    for before in ["error: remote unpack failed: "] {
        if let Some(at) = line.find(before) {
            line.truncate(at + before.len());
            line.push_str("<why>");
        }
    }
    line
}

/// Lines shown around a difference, and differences shown at most.
const CONTEXT: usize = 12;
const SHOWN_MAX: usize = 30;

/// Fails with what differs and what surrounds it.
pub(crate) fn compare(stock: &Transcript, cuesta: &Transcript) -> Result<()> {
    let same = stock.lines.len() == cuesta.lines.len();
    let same = same
        && stock
            .lines
            .iter()
            .zip(&cuesta.lines)
            .all(|(stock, cuesta)| agree(stock, cuesta));
    if !same {
        bail!("{}", difference(&stock.lines, &cuesta.lines));
    }
    ensure!(stock.figures.len() == cuesta.figures.len(), "different figures");
    for ((what, expected), (_, actual)) in stock.figures.iter().zip(&cuesta.figures) {
        // A server may send a little more than stock git, which searches harder for what it can leave out.
        let most = expected + expected / 4 + 16;
        ensure!(*actual <= most, "{what}: {actual}, stock git {expected}");
    }
    Ok(())
}

/// Whether two lines say the same. Stock git may give no reasons.
fn agree(stock: &str, cuesta: &str) -> bool {
    stock == cuesta || (stock == REASONS && cuesta.starts_with(REASONS))
}

fn difference(stock: &[String], cuesta: &[String]) -> String {
    let differs = |at: usize| match (stock.get(at), cuesta.get(at)) {
        (Some(stock), Some(cuesta)) => !agree(stock, cuesta),
        _ => true,
    };
    let longest = stock.len().max(cuesta.len());
    let differing: Vec<usize> = (0..longest).filter(|at| differs(*at)).collect();
    let first = differing.first().copied().unwrap_or_default();
    if stock.len() == cuesta.len() {
        // A table, or the same steps: every line that differs, below what it is about.
        let line = |at: usize| {
            let [about, expected, actual] = [stock.get(at.wrapping_sub(1)), stock.get(at), cuesta.get(at)]
                .map(|line| line.map_or("", String::as_str));
            format!("  {about}\n- {expected}\n+ {actual}\n")
        };
        let shown: String = differing.iter().take(SHOWN_MAX).map(|at| line(*at)).collect();
        return format!("{} lines\n{shown}", differing.len());
    }
    let after = |lines: &[String], sign: char| -> String {
        let lines = lines.iter().skip(first).take(CONTEXT);
        lines.map(|line| format!("{sign} {line}\n")).collect()
    };
    let before = stock.iter().take(first).skip(first.saturating_sub(CONTEXT));
    let before: String = before.map(|line| format!("  {line}\n")).collect();
    format!("\n{before}{}{}", after(stock, '-'), after(cuesta, '+'))
}
