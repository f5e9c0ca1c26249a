//! Annotated tags.

use super::{ObjectError, date::date_of, id_line};
use crate::{ObjectFormat, ObjectId, ObjectKind};

/// What an annotated tag says before its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TagRef<'a> {
    /// The object tagged.
    pub target: ObjectId,
    /// The kind the tag says its target has.
    pub target_kind: ObjectKind,
    /// The tag's name.
    pub name: &'a [u8],
    /// Name, email, date and zone of the tagger; early tags have none.
    pub tagger: Option<&'a [u8]>,
    /// The tagger's date in seconds since 1970; 0 where it is missing or broken.
    pub tagger_time: i64,
}

impl<'a> TagRef<'a> {
    /// Parses a tag, refusing only what git's own parser refuses.
    pub fn parse(format: ObjectFormat, content: &'a [u8]) -> Result<Self, ObjectError> {
        if content.len() < format.hex_width() + 24 {
            return Err(ObjectError::BogusTag);
        }
        let (target, rest) = id_line(format, content, b"object ").ok_or(ObjectError::BogusTag)?;
        let (kind, rest) = labelled_line(rest, b"type ").ok_or(ObjectError::BogusTag)?;
        let target_kind = ObjectKind::from_name(kind).ok_or(ObjectError::UnknownTagType)?;
        let (name, rest) = labelled_line(rest, b"tag ").ok_or(ObjectError::BogusTag)?;
        let tagger = rest
            .strip_prefix(b"tagger ")
            .map(|line| match memchr::memchr(b'\n', line) {
                Some(end) => line.get(..end).unwrap_or_default(),
                None => line,
            });
        Ok(Self {
            target,
            target_kind,
            name,
            tagger,
            tagger_time: tagger.map_or(0, date_of),
        })
    }
}

fn labelled_line<'a>(bytes: &'a [u8], label: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let value = bytes.strip_prefix(label)?;
    let end = memchr::memchr(b'\n', value)?;
    Some((value.get(..end)?, value.get(end + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: &str = "0123456789abcdef0123456789abcdef01234567";

    fn parse(text: &str) -> Result<TagRef<'_>, ObjectError> {
        TagRef::parse(ObjectFormat::Sha1, text.as_bytes())
    }

    #[test]
    fn a_tag() {
        let text = format!("object {TARGET}\ntype commit\ntag v1\ntagger T <t> 3 +0000\n\nmessage\n");
        let tag = parse(&text).unwrap();
        assert_eq!(tag.target.to_string(), TARGET);
        assert_eq!(
            (tag.target_kind, tag.name, tag.tagger_time),
            (ObjectKind::Commit, &b"v1"[..], 3)
        );
        assert_eq!(tag.tagger, Some(&b"T <t> 3 +0000"[..]));
    }

    #[test]
    fn an_early_tag_has_no_tagger() {
        let text = format!("object {TARGET}\ntype blob\ntag junio-gpg-pub\n\nmessage\n");
        let tag = parse(&text).unwrap();
        assert_eq!((tag.tagger, tag.tagger_time), (None, 0));
    }

    #[test]
    fn refusals() {
        let table = [
            (String::new(), ObjectError::BogusTag),
            (
                format!("object {TARGET}\ntype commit\n\n\n\n\n\n\n\n"),
                ObjectError::BogusTag,
            ),
            (
                format!("object {TARGET}\ntype commix\ntag v1\n"),
                ObjectError::UnknownTagType,
            ),
            (format!("object {TARGET}\ntype commit\ntag v1"), ObjectError::BogusTag),
            (
                format!("object x{TARGET}\ntype commit\ntag v1\n"),
                ObjectError::BogusTag,
            ),
        ];
        for (text, error) in table {
            assert_eq!(parse(&text), Err(error), "{text}");
        }
    }
}
