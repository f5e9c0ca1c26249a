//! Whether a submodule's URL is safe to give to a client (git's `submodule-config.c`, `urlmatch.c`).
//!
//! Old clients could be made to send credentials elsewhere by URLs with an encoded newline, or by relative ones that
//! climb over the host. The rules are theirs; other schemes pass.

/// Whether git allows `url` in `.gitmodules`.
pub(super) fn is_allowed(url: &[u8]) -> bool {
    if url.starts_with(b"-") {
        return false;
    }
    if is_relative(url) || url.starts_with(b"git://") {
        return !decodes_to_newline(url) && !climbs_into_host(url);
    }
    match curl_url(url) {
        Some(url) => normalize(url).is_some_and(|normal| !decodes_to_newline(&normal)),
        None => true,
    }
}

/// `./` and `../`; a backslash is a separator too, lest the answer depend on the client's platform.
fn strip_dots<'a>(url: &'a [u8], dots: &[u8]) -> Option<&'a [u8]> {
    match url.strip_prefix(dots)? {
        [b'/' | b'\\', rest @ ..] => Some(rest),
        _ => None,
    }
}

fn is_relative(url: &[u8]) -> bool {
    strip_dots(url, b".").is_some() || strip_dots(url, b"..").is_some()
}

/// Whether `../` components lead to an empty component or to a scheme of the URL it will be appended to.
fn climbs_into_host(url: &[u8]) -> bool {
    let (mut rest, mut climbs) = (url, false);
    loop {
        if let Some(after) = strip_dots(rest, b"..") {
            climbs = true;
            rest = after;
        } else if let Some(after) = strip_dots(rest, b".") {
            rest = after;
        } else {
            return climbs && matches!(rest.first(), Some(b':' | b'/'));
        }
    }
}

/// The URL that git's curl helper would be given, if it would.
fn curl_url(url: &[u8]) -> Option<&[u8]> {
    const SCHEMES: [&[u8]; 4] = [b"http", b"https", b"ftp", b"ftps"];
    SCHEMES.iter().find_map(|scheme| match url.strip_prefix(*scheme)? {
        [b':', b':', rest @ ..] => Some(rest),
        [b':', b'/', b'/', ..] => Some(url),
        _ => None,
    })
}

/// Whether `url`, its escapes resolved, contains a newline. What comes before the first colon has no escapes.
fn decodes_to_newline(url: &[u8]) -> bool {
    let scheme_len = memchr::memchr(b':', url).unwrap_or(0);
    let mut at = scheme_len;
    while let Some(found) = memchr::memchr(b'%', url.get(at..).unwrap_or_default()) {
        at += found + 1;
        match url.get(at..).and_then(hex_byte) {
            Some(b'\n') => return true,
            // git leaves an escaped NUL as it stands
            Some(0) | None => {}
            Some(_) => at += 2,
        }
    }
    url.contains(&b'\n')
}

/// The byte that two hex digits at the start of `bytes` stand for.
fn hex_byte(bytes: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    match bytes {
        [high, low, ..] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    }
}

fn is_scheme_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'.' | b'-')
}

fn is_host_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'[' | b':' | b']')
}

/// Bytes up to the end of a host or a path segment.
fn component_len(url: &[u8]) -> usize {
    url.iter()
        .position(|byte| matches!(byte, b'/' | b'?' | b'#'))
        .unwrap_or(url.len())
}

/// The URL in git's normal form; `None` if git cannot make sense of it.
fn normalize(url: &[u8]) -> Option<Vec<u8>> {
    let mut normal = Vec::with_capacity(url.len() + 1);
    let rest = normalize_scheme(url, &mut normal)?;
    let rest = normalize_user(rest, &mut normal)?;
    let rest = normalize_host(rest, &mut normal)?;
    let rest = normalize_path(rest, &mut normal)?;
    push_escaped(rest, &mut normal)?;
    Some(normal)
}

fn normalize_scheme<'a>(url: &'a [u8], normal: &mut Vec<u8>) -> Option<&'a [u8]> {
    let len = url.iter().take_while(|byte| is_scheme_byte(byte)).count();
    let (scheme, rest) = url.split_at_checked(len)?;
    let rest = rest.strip_prefix(b"://")?;
    scheme.first().filter(|byte| byte.is_ascii_alphabetic())?;
    normal.extend(scheme.iter().map(u8::to_ascii_lowercase));
    normal.extend(b"://");
    Some(rest)
}

fn normalize_user<'a>(rest: &'a [u8], normal: &mut Vec<u8>) -> Option<&'a [u8]> {
    match memchr::memchr(b'@', rest) {
        Some(at) if at < component_len(rest) => {
            push_escaped(rest.get(..at)?, normal)?;
            normal.push(b'@');
            rest.get(at + 1..)
        }
        _ => Some(rest),
    }
}

/// Host and port; only `file:` URLs may be without a host, and they have no port.
fn normalize_host<'a>(rest: &'a [u8], normal: &mut Vec<u8>) -> Option<&'a [u8]> {
    let has_host = !matches!(rest.first(), None | Some(b':' | b'/' | b'?' | b'#'));
    if !has_host && !normal.starts_with(b"file:") {
        return None;
    }
    let (authority, after) = rest.split_at_checked(component_len(rest))?;
    // A colon inside brackets is part of an IPv6 address.
    let colon = memchr::memrchr2(b':', b']', authority).filter(|at| authority.get(*at) == Some(&b':'));
    let (host, port) = match colon {
        Some(at) => (authority.get(..at)?, authority.get(at + 1..)?),
        None => (authority, &[][..]),
    };
    if !has_host && !port.is_empty() || !host.iter().all(is_host_byte) {
        return None;
    }
    normal.extend(host.iter().map(u8::to_ascii_lowercase));
    normalize_port(port, normal)?;
    Some(after)
}

/// A port from 1 to 65535, the scheme's own left out.
fn normalize_port(port: &[u8], normal: &mut Vec<u8>) -> Option<()> {
    if port.is_empty() {
        return Some(());
    }
    let zeros = port.iter().take_while(|digit| **digit == b'0').count();
    let digits = port.get(zeros..)?;
    let is_default =
        normal.starts_with(b"http:") && digits == b"80" || normal.starts_with(b"https:") && digits == b"443";
    if is_default {
        return Some(());
    }
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u16 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    if number == 0 {
        return None;
    }
    normal.push(b':');
    normal.extend(digits);
    Some(())
}

/// The path without `.` and `..` segments, always beginning with a slash; answers query and fragment.
fn normalize_path<'a>(rest: &'a [u8], normal: &mut Vec<u8>) -> Option<&'a [u8]> {
    let path_start = normal.len();
    normal.push(b'/');
    let mut rest = rest.strip_prefix(b"/").unwrap_or(rest);
    loop {
        let segment_start = normal.len();
        let (segment, after) = rest.split_at_checked(component_len(rest))?;
        push_escaped(segment, normal)?;
        let removed = match normal.get(segment_start..)? {
            b"." => Some(segment_start),
            b".." if segment_start == path_start + 1 => return None,
            b".." => Some(memchr::memrchr(b'/', normal.get(..segment_start - 1)?)? + 1),
            _ => None,
        };
        // Without the segment goes the slash before it, but for the first of the path.
        let at_root = removed == Some(path_start + 1);
        if let Some(len) = removed {
            normal.truncate(if at_root { len } else { len - 1 });
        }
        let Some(next) = after.strip_prefix(b"/") else {
            return Some(after);
        };
        if !at_root {
            normal.push(b'/');
        }
        rest = next;
    }
}

/// Appends `bytes`, escapes resolved where they need not be and made where they must.
fn push_escaped(bytes: &[u8], normal: &mut Vec<u8>) -> Option<()> {
    const RESERVED: &[u8] = b":/?#[]@!$&'()*+,;=";
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        let escaped = first == b'%';
        let byte = if escaped { hex_byte(after)? } else { first };
        rest = if escaped { after.get(2..)? } else { after };
        let unsafe_byte = matches!(byte, 0..=0x1f | 0x7f.. | b' ' | b'<' | b'>' | b'"' | b'%' | b'{' | b'}' | b'|' | b'\\' | b'^' | b'`');
        if unsafe_byte || escaped && RESERVED.contains(&byte) {
            normal.extend(format!("%{byte:02X}").bytes());
        } else {
            normal.push(byte);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn normal(url: &str) -> Option<String> {
        normalize(url.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn normal_forms() {
        let table = [
            ("HTTP://User%41:p%2fw@Host:080", Some("http://UserA:p%2Fw@host/")),
            ("https://h:443/a/./b/../c?q=%41#f", Some("https://h/a/c?q=A#f")),
            ("https://h/a/..", Some("https://h/")),
            ("https://h/./..", None),
            ("https://h/a/b/..", Some("https://h/a")),
            ("https://h/.", Some("https://h/")),
            ("https://h/a/.", Some("https://h/a")),
            ("https://[::1]:8080/x", Some("https://[::1]:8080/x")),
            ("https://h:0065535/", Some("https://h:65535/")),
            ("https://h:65536/", None),
            ("https://h:0/", None),
            ("https://h:x/", None),
            ("https://h:/", Some("https://h/")),
            ("https:///x", None),
            ("file:///x y", Some("file:///x%20y")),
            ("file://:1/x", None),
            ("https://h/%zz", None),
            ("https://h!/", None),
            ("1http://h/", None),
            ("http:/h/", None),
        ];
        for (url, expected) in table {
            assert_eq!(normal(url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn urls() {
        let table = [
            ("https://example.com/repo.git", true),
            ("git@example.com:repo.git", true),
            ("../sibling", true),
            ("/absolute\n", true),
            ("-oProxyCommand=x", false),
            ("git://host/%0a", false),
            ("git://host/%250a", true),
            ("../%0a", false),
            ("..//host", false),
            (".././../:host", false),
            ("./:host", true),
            ("https://host/%0a", false),
            ("https://host/%0a/../x", true),
            ("http::https://host/%0aX", false),
            ("https::host", false),
            ("https://", false),
            ("ssh://host/%0a", true),
        ];
        for (url, allowed) in table {
            assert_eq!(is_allowed(url.as_bytes()), allowed, "{url:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer(tail in proptest::collection::vec(any::<u8>(), 0..40)) {
            for start in [&b""[..], b"https://", b"../", b"git://h/"] {
                let _ = is_allowed(&[start, &tail].concat());
            }
        }

        // With one colon at most: git takes `a::` for the host `a:` without a port, and `a:a:` likewise.
        #[test]
        fn normal_forms_are_stable(tail in "[a.%@0-9]{0,10}(:[0-9]{0,6})?([/?#][a.%/:@?#0-9]{0,12})?") {
            if let Some(once) = normal(&format!("https://{tail}")) {
                prop_assert_eq!(normal(&once), Some(once));
            }
        }
    }
}
