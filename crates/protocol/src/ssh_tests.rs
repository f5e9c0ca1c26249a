//! Command lines, beside git-shell.

use super::*;
use proptest::prelude::*;
use std::process::Command;

fn parse(line: &str) -> Result<(Program, String), String> {
    let parsed = CommandLine::parse(line.as_bytes()).map_err(|error| error.to_string())?;
    Ok((parsed.program, String::from_utf8(parsed.path).unwrap()))
}

/// Quotes as git's own `sq_quote_buf` does.
fn quoted(path: &[u8]) -> Vec<u8> {
    let mut line = b"'".to_vec();
    for byte in path {
        match byte {
            b'\'' | b'!' => line.extend_from_slice(&[b'\'', b'\\', *byte, b'\'']),
            other => line.push(*other),
        }
    }
    line.push(b'\'');
    line
}

#[test]
fn both_spellings_of_the_three_programs() {
    for program in Program::ALL {
        let spaced = program.name().replacen('-', " ", 1);
        for name in [program.name(), &spaced, &spaced.replacen(' ', "\t", 1)] {
            assert_eq!(
                parse(&format!("{name} '/a/b.git'")),
                Ok((program, "/a/b.git".to_owned()))
            );
        }
    }
}

const LINES: &[(&str, &str)] = &[
    ("git-upload-pack 'a/b'", "runs"),
    ("git upload-pack '/a/b.git'", "runs"),
    ("git\tupload-pack 'a/b'", "runs"),
    ("git-receive-pack '~ann/b'", "runs"),
    ("git-upload-pack 'it'\\''s'", "runs"),
    ("git-upload-pack 'a'\\!'b'", "runs"),
    ("git-upload-pack ''", "runs"),
    ("git-upload-pack 'a b'", "runs"),
    ("git-upload-pack", "bad argument"),
    ("git-upload-pack ", "bad argument"),
    ("git-upload-pack a/b", "bad argument"),
    ("git-upload-pack  'a/b'", "bad argument"),
    ("git-upload-pack 'a/b", "bad argument"),
    ("git-upload-pack 'a/b' ", "bad argument"),
    ("git-upload-pack 'a/b' 'c'", "bad argument"),
    ("git-upload-pack 'a'b", "bad argument"),
    ("git-upload-pack 'a'\\''", "bad argument"),
    ("git-upload-pack 'a'\\x'b'", "bad argument"),
    ("git-upload-pack '--help'", "bad argument"),
    ("git-receive-pack '-c'", "bad argument"),
    ("git-upload-pack '--exec=touch x'", "bad argument"),
    ("git-upload-pack --strict 'a/b'", "bad argument"),
    ("git-upload-packs 'a/b'", "unrecognized command"),
    ("git-upload-pack\t'a/b'", "unrecognized command"),
    ("git  upload-pack 'a/b'", "unrecognized command"),
    ("gitxupload-pack 'a/b'", "unrecognized command"),
    ("Git-upload-pack 'a/b'", "unrecognized command"),
    (" git-upload-pack 'a/b'", "unrecognized command"),
    ("git-lfs-authenticate a/b download", "unrecognized command"),
    ("ls", "unrecognized command"),
    ("sh -c 'git-upload-pack a'", "unrecognized command"),
    ("scp -f /etc/passwd", "unrecognized command"),
];

fn verdict(line: &str) -> &'static str {
    match parse(line) {
        Ok(_) => "runs",
        Err(text) if text.starts_with("bad argument") => "bad argument",
        Err(text) if text.starts_with("unrecognized command") => "unrecognized command",
        Err(text) => panic!("{text}"),
    }
}

#[test]
fn command_lines_are_read_as_git_shell_reads_them() {
    let directory = std::env::temp_dir();
    for (line, expected) in LINES {
        assert_eq!(verdict(line), *expected, "{line:?}");
        let stock = Command::new("git")
            .args(["shell", "-c", line])
            .current_dir(&directory)
            .env("HOME", &directory)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&stock.stderr).into_owned();
        let refused = ["bad argument", "unrecognized command"]
            .into_iter()
            .find(|refusal| said.contains(refusal));
        assert_eq!(refused.unwrap_or("runs"), *expected, "{line:?}: {said}");
    }
}

#[test]
fn nul_and_endless_lines_are_refused() {
    assert!(CommandLine::parse(b"git-upload-pack 'a\0b'").is_err());
    let line = |len: usize| format!("git-upload-pack '{}'", "a".repeat(len));
    let longest = COMMAND_LEN_MAX - line(0).len();
    assert!(parse(&line(longest)).is_ok());
    assert!(parse(&line(longest + 1)).unwrap_err().len() < 300);
    assert!(!parse("\x1b[31m\r\n").unwrap_err().contains(char::is_control));
}

#[test]
fn one_variable_is_taken() {
    for value in ["version=2", "version=1", "version=2:side=left", "version=99", ""] {
        assert!(is_accepted_variable(b"GIT_PROTOCOL", value.as_bytes()), "{value}");
    }
    let long = "v".repeat(VARIABLE_LEN_MAX + 1);
    for value in [
        "--split-string=x",
        "version=2;id",
        "version=2 ",
        "a\n",
        "\0",
        "$(id)",
        &long,
    ] {
        assert!(!is_accepted_variable(b"GIT_PROTOCOL", value.as_bytes()), "{value}");
    }
    for name in ["GIT_PROTOCOL_", "git_protocol", "LD_PRELOAD", "GIT_DIR", "LANG", ""] {
        assert!(!is_accepted_variable(name.as_bytes(), b"version=2"), "{name}");
    }
}

proptest! {
    #[test]
    fn what_git_quotes_is_read_back(path in proptest::collection::vec(1u8.., 0..60)) {
        prop_assume!(!path.starts_with(b"-"));
        let line = [b"git-upload-pack ", &quoted(&path)[..]].concat();
        let parsed = CommandLine::parse(&line).unwrap();
        prop_assert_eq!((parsed.program, parsed.path), (Program::UploadPack, path));
    }

    #[test]
    fn whatever_comes_is_read_in_one_way_or_not_at_all(line in "(git[ -]upload-pack )?['\\\\!a-z/ .~-]{0,24}") {
        if let Ok(parsed) = CommandLine::parse(line.as_bytes()) {
            let again = [parsed.program.name().as_bytes(), b" ", &quoted(&parsed.path)].concat();
            prop_assert_eq!(CommandLine::parse(&again), Ok(parsed));
        }
    }
}
