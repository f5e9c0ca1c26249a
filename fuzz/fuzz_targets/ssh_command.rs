//! Any bytes as the command line of an SSH session: it leads to one path or nowhere, and a path to one repository or none.
#![no_main]

use cuesta_engine::RepositoryName;
use cuesta_protocol::ssh::{CommandLine, is_accepted_variable};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let prefixed = [b"git-upload-pack '", data, b"'"].concat();
    for line in [data, &prefixed] {
        let Ok(parsed) = CommandLine::parse(line) else { continue };
        assert!(!parsed.path.starts_with(b"-") && !parsed.path.contains(&0));
        let name = std::str::from_utf8(&parsed.path).ok().and_then(|path| RepositoryName::parse(path).ok());
        if let Some(name) = name {
            assert_eq!(RepositoryName::parse(name.as_str()).as_ref(), Ok(&name));
        }
    }
    if is_accepted_variable(b"GIT_PROTOCOL", data) {
        assert!(!data.iter().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control() || *byte == b'$'));
    }
});
