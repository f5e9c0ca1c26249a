//! Requests, as git-daemon reads them.

use super::*;
use bytes::Bytes;
use proptest::prelude::*;

fn parse(data: &[u8]) -> Result<(Program, String, Version), String> {
    let parsed = GitRequest::parse(&Packet::Data(Bytes::copy_from_slice(data))).map_err(|error| error.to_string())?;
    Ok((parsed.program, String::from_utf8(parsed.path).unwrap(), parsed.version))
}

#[test]
fn what_git_sends_is_read() {
    for program in Program::ALL {
        for (tail, version) in [
            ("\0host=h.example:9418\0\0version=2\0", Version::V2),
            ("\0host=h.example\0\0version=1\0", Version::V1),
            ("\0host=h.example\0", Version::V0),
            ("\0host=[::1]:9418\0\0version=2", Version::V2),
            ("", Version::V0),
        ] {
            let request = format!("{} /ann/b.git{tail}", program.name());
            let expected = Ok((program, "/ann/b.git".to_owned(), version));
            assert_eq!(parse(request.as_bytes()), expected, "{request:?}");
        }
    }
}

#[test]
fn what_may_stand_behind_the_path() {
    let tails: &[(&[u8], Result<Version, &str>)] = &[
        (b"\0", Ok(Version::V0)),
        (b"\n", Ok(Version::V0)),
        (b"\n\0host=x\0\0version=2\0", Ok(Version::V2)),
        (b"\0HOST=x\0\0version=2\0", Ok(Version::V2)),
        (b"\0host=\0\0version=2\0", Ok(Version::V2)),
        (b"\0host=[\0\0version=2\0", Ok(Version::V2)),
        (b"\0\0version=2\0", Ok(Version::V2)),
        (b"\0\0\0\0version=1\0\0version=2\0", Ok(Version::V2)),
        (b"\0\0version=2\0side=left\0version=1\0", Ok(Version::V2)),
        (b"\0\0version=1:version=2\0", Ok(Version::V2)),
        (b"\0\0version=3\0colour\0", Ok(Version::V0)),
        (b"\0version=2\0", Err("invalid request")),
        (b"\0host\0", Err("invalid request")),
        (b"\0host=x\0version=2\0", Err("invalid request")),
        (b"\0host=x\0host=y\0", Err("invalid request")),
    ];
    for (tail, expected) in tails {
        let request = [b"git-upload-pack /a/b", *tail].concat();
        let version = parse(&request).map(|(_, path, version)| {
            assert_eq!(path, "/a/b");
            version
        });
        assert_eq!(version, expected.map_err(str::to_owned), "{}", request.escape_ascii());
    }
}

#[test]
fn paths_are_the_rest_of_the_line() {
    for path in ["", "/", "a", " /a", "/a b", "~ann/b", "/../a", "--help", "/a\n"] {
        let parsed = parse(format!("git-upload-pack {path}\n").as_bytes()).unwrap();
        assert_eq!(parsed.1, path);
    }
}

#[test]
fn nothing_else_is_a_request() {
    for line in [
        "",
        "\0",
        "git-upload-pack",
        "git-upload-pack\t/a",
        "git upload-pack /a",
        "upload-pack /a",
        "Git-upload-pack /a",
        "git-upload-packs /a",
        " git-upload-pack /a",
        "git-upload-pack\0 /a",
        "GET / HTTP/1.1\r\n",
    ] {
        let error = parse(line.as_bytes()).unwrap_err();
        assert!(error.starts_with("protocol error: "), "{line:?}: {error}");
    }
    for packet in [Packet::Flush, Packet::Delim, Packet::ResponseEnd] {
        assert!(GitRequest::parse(&packet).is_err());
    }
}

#[test]
fn what_is_said_of_it_is_short_and_plain() {
    let error = parse(&b"\x1b[31m".repeat(9_000)).unwrap_err();
    assert!(error.len() < 500 && !error.contains(char::is_control), "{error}");
}

proptest! {
    #[test]
    fn a_request_is_read_back(
        program in proptest::sample::select(&Program::ALL[..]),
        path in "/[^\0\n]{0,40}",
        host in proptest::option::of("[^\0]{0,20}"),
        parameters in proptest::collection::vec("[a-z]{1,4}(=[a-z]{0,4})?", 0..4),
        version in 0..3_u8,
    ) {
        let host = host.map_or(String::new(), |host| format!("host={host}\0"));
        let parameters: String = parameters.iter().map(|parameter| format!("{parameter}\0")).collect();
        let request = format!("{} {path}\0{host}\0version={version}\0{parameters}", program.name());
        let version = Version::requested(format!("version={version}").as_bytes());
        prop_assert_eq!(parse(request.as_bytes()), Ok((program, path, version)));
    }

    #[test]
    fn nothing_panics(start in "(git-upload-pack )?", data in proptest::collection::vec(any::<u8>(), 0..100)) {
        let data = [start.as_bytes(), &data].concat();
        if let Ok(parsed) = GitRequest::parse(&Packet::Data(data.clone().into())) {
            prop_assert!(!parsed.path.contains(&0));
            prop_assert!(data.starts_with(parsed.program.name().as_bytes()));
        }
    }
}
