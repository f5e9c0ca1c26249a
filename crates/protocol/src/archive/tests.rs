//! Requests of upload-archive, good and bad.

use super::*;

fn request(arguments: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    for argument in arguments {
        pktline::encode(&mut out, &[b"argument ", argument.as_bytes(), b"\n"]);
    }
    out.extend_from_slice(FLUSH);
    out
}

fn command(arguments: &[&str]) -> Result<ArchiveCommand, String> {
    let arguments = read_request(&request(arguments), Limits::new()).unwrap();
    ArchiveCommand::parse(arguments, &ArchiveName::ALL).map_err(|error| error.to_string())
}

fn options(arguments: &[&str]) -> ArchiveOptions {
    match command(arguments) {
        Ok(ArchiveCommand::Archive(options)) => options,
        other => panic!("{arguments:?}: {other:?}"),
    }
}

#[test]
fn options_may_stand_anywhere() {
    let expected = options(&["--format=zip", "--prefix=a/", "-v", "-9", "HEAD", "b", "c"]);
    assert_eq!(expected.format, ArchiveName::Zip);
    assert_eq!((expected.level, expected.verbose), (Some(9), true));
    assert_eq!(
        (&expected.prefix[..], &expected.treeish[..]),
        (&b"a/"[..], &b"HEAD"[..])
    );
    assert_eq!(expected.paths, ["b", "c"]);
    for arguments in [
        &["HEAD", "--format", "zip", "b", "--pref=a/", "-v9", "c"][..],
        &[
            "-9v",
            "--form=tar",
            "--prefix",
            "x",
            "--format=zip",
            "--prefix=a/",
            "--",
            "HEAD",
            "b",
            "c",
        ],
        &[
            "--no-prefix",
            "--verb",
            "-1",
            "-9",
            "--format=zip",
            "--prefix=a/",
            "--end-of-options",
            "HEAD",
            "b",
            "c",
        ],
    ] {
        assert_eq!(options(arguments), expected, "{arguments:?}");
    }
    assert_eq!(options(&["--", "-x", "--y"]).paths, ["--y"]);
    assert_eq!(options(&["HEAD"]).format, ArchiveName::Tar);
    assert_eq!(options(&["--format=tgz", "-0", "HEAD", "-"]).level, Some(0));
    assert_eq!(command(&["-l"]), Ok(ArchiveCommand::List));
    assert_eq!(command(&["--list", "--end-of-options"]), Ok(ArchiveCommand::List));
}

#[test]
fn what_a_remote_client_may_not_say_is_refused() {
    let table: [(&[&str], &str); 17] = [
        (
            &["--add-file=x", "HEAD"],
            "options '--add-file' and '--remote' cannot be used together",
        ),
        (
            &["--add-virtual-file=x:y", "HEAD"],
            "options '--add-file' and '--remote' cannot be used together",
        ),
        (
            &["--worktree-attributes", "HEAD"],
            "options '--worktree-attributes' and '--remote' cannot be used together",
        ),
        (&["--output=/etc/x", "HEAD"], "Unexpected option --output"),
        (&["-o", "/etc/x", "HEAD"], "Unexpected option --output"),
        (&["-o/etc/x", "HEAD"], "Unexpected option --output"),
        (&["--remote=x", "HEAD"], "Unexpected option --remote"),
        (&["--exec=x", "HEAD"], "the option '--exec' requires '--remote'"),
        (&["--list", "x"], "extra command line parameter 'x'"),
        (&["--format=rar", "HEAD"], "Unknown archive format 'rar'"),
        (&["-5", "HEAD"], "Argument not supported for format 'tar': -5"),
        (
            &["--format=zip", "-10", "HEAD"],
            "Argument not supported for format 'zip': -10",
        ),
        (&[], "no tree-ish is named"),
        (&["--frobnicate"], "unknown option `frobnicate'"),
        (
            &["--add", "HEAD"],
            "ambiguous option: add (could be --add-file or --add-virtual-file)",
        ),
        (&["-x"], "unknown switch `x'"),
        (&["--mtime"], "option `mtime' requires a value"),
    ];
    for (arguments, expected) in table {
        assert_eq!(command(arguments).unwrap_err(), expected, "{arguments:?}");
    }
    let arguments = vec![Bytes::from_static(b"--format=tar.gz"), Bytes::from_static(b"HEAD")];
    let refused = ArchiveCommand::parse(arguments, &[ArchiveName::Tar]).unwrap_err();
    assert_eq!(refused.to_string(), "Unknown archive format 'tar.gz'");
}

#[test]
fn arguments_are_counted() {
    let request = |count: usize| read_request(&request(&vec!["x"; count]), Limits::new());
    assert_eq!(request(ARGUMENTS_MAX - 1).unwrap().len(), ARGUMENTS_MAX - 1);
    assert_eq!(request(ARGUMENTS_MAX).unwrap().len(), ARGUMENTS_MAX);
    assert_eq!(
        request(ARGUMENTS_MAX + 1).unwrap_err().to_string(),
        "Too many options (>63)"
    );
}

#[test]
fn other_packets_and_cut_requests_are_refused() {
    let limits = Limits::new();
    for bytes in [&b"0008want0000"[..], b"00010000", b"0004"] {
        let error = read_request(bytes, limits).unwrap_err();
        assert_eq!(
            error.to_string(),
            "'argument' token or flush expected",
            "{}",
            bytes.escape_ascii()
        );
    }
    let whole = request(&["HEAD"]);
    for end in 0..whole.len() {
        assert_eq!(
            read_request(&whole[..end], limits),
            Err(ProtocolError::Truncated),
            "{end}"
        );
    }
    let mut small = Limits::new();
    small.request_bytes_max = whole.len() - 1;
    assert_eq!(read_request(&whole, small).unwrap_err().kind(), crate::ErrorKind::Limit);
    small.request_bytes_max = whole.len();
    assert!(read_request(&whole, small).is_ok());
}
