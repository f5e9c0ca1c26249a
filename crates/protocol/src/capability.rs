//! Capability lists: words between spaces, some with a value (gitprotocol-capabilities).

/// The capabilities behind the NUL of a v0 line, or the features behind the `=` of a v2 capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities<'a>(&'a [u8]);

impl<'a> Capabilities<'a> {
    /// The list in these bytes; any bytes are a list.
    pub const fn parse(list: &'a [u8]) -> Self {
        Self(list)
    }

    /// Each capability with its value, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        self.0
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty())
            .map(split_value)
    }

    /// Whether the capability is there, with or without a value.
    pub fn has(&self, name: &str) -> bool {
        self.iter().any(|(found, _)| found == name.as_bytes())
    }

    /// The value of the first capability of that name; empty if it has none.
    pub fn value(&self, name: &str) -> Option<&'a [u8]> {
        self.values(name).next()
    }

    /// The values of all capabilities of that name, such as `symref`.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter(move |(found, _)| *found == name.as_bytes())
            .map(|(_, value)| value.unwrap_or_default())
    }
}

/// A capability and what follows its first `=`.
pub(crate) fn split_value(capability: &[u8]) -> (&[u8], Option<&[u8]>) {
    let mut halves = capability.splitn(2, |byte| *byte == b'=');
    (halves.next().unwrap_or_default(), halves.next())
}

/// A value made fit to be a capability's: printable and without spaces, as git does with `agent=`.
pub fn sanitized(value: &str) -> String {
    value
        .trim()
        .chars()
        .map(|letter| if letter.is_ascii_graphic() { letter } else { '.' })
        .collect()
}

/// Appends ` name` or ` name=value` to a list that starts empty.
pub(crate) fn push(list: &mut Vec<u8>, name: &str, value: Option<&[u8]>) {
    if !list.is_empty() {
        list.push(b' ');
    }
    list.extend_from_slice(name.as_bytes());
    if let Some(value) = value {
        list.push(b'=');
        list.extend_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_match_whole_and_the_first_value_counts() {
        let list = Capabilities::parse(b" side-band-64k multi_ack_detailed agent=git/2=x\tagent=b symref=\n");
        assert!(list.has("side-band-64k") && !list.has("side-band"));
        assert!(list.has("multi_ack_detailed") && !list.has("multi_ack"));
        assert_eq!(list.value("agent"), Some(&b"git/2=x"[..]));
        assert_eq!(list.values("agent").count(), 2);
        assert_eq!(list.value("symref"), Some(&b""[..]));
        assert_eq!(list.value("side-band-64k"), Some(&b""[..]));
        assert_eq!(list.value("missing"), None);
        assert_eq!(Capabilities::parse(b"").iter().count(), 0);
    }

    #[test]
    fn agents_are_printable_words() {
        assert_eq!(sanitized(" git/2.47 (\u{e9})\n"), "git/2.47.(.)");
    }
}
