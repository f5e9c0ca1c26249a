//! Any bytes as a config file, as `.gitmodules` and imported directories have them: what is read is no longer than the
//! file, and more lines after it change nothing of what came before.

#![no_main]

use cuesta_git::config_file::{SyntaxError, parse};
use libfuzzer_sys::fuzz_target;

type Variables = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fuzz_target!(|data: &[u8]| {
    let (variables, whole) = read(data);
    for (name, value) in &variables {
        assert!(!name.is_empty() && name.len() <= data.len() + 1);
        assert!(value.as_ref().is_none_or(|value| value.len() <= data.len()));
    }
    let (longer, _) = read(&[data, b"\n[end]\nkey = value\n"].concat());
    // A line that ends in a backslash goes on.
    if whole.is_ok() && !data.ends_with(b"\\") {
        assert_eq!(longer.get(..variables.len()), Some(&variables[..]));
    }
});

fn read(content: &[u8]) -> (Variables, Result<(), SyntaxError>) {
    let mut variables = Vec::new();
    let outcome = parse(content, |name, value| variables.push((name.to_vec(), value.map(<[u8]>::to_vec))));
    (variables, outcome)
}
