//! Tar as git writes it: ustar headers, pax headers where those are too narrow, records of 512 bytes, blocks of 10 KiB.
//!
//! Own code, since every byte is to be stock git's (where it splits a long name, how it calls a pax header, which fields
//! it pads how), so that checksums of archives stay what people have written down.

use super::walk::Item;
use cuesta_git::ObjectId;

const RECORD: u64 = 512;
const BLOCK: u64 = 20 * RECORD;
/// The largest number that a size or time field can say.
const FIELD_MAX: u64 = 0o77_777_777_777;
const NAME_LEN: usize = 100;
const PREFIX_LEN: usize = 155;
const PAX_MODE: u32 = 0o666;

pub(super) struct Tar {
    time: u64,
    umask: u32,
    /// Bytes written so far.
    len: u64,
    /// Bytes of content still to come of the file begun last.
    left: u64,
}

impl Tar {
    /// Begins an archive: with the commit's id in a comment, where `git get-tar-commit-id` finds it.
    pub(super) fn begin(out: &mut Vec<u8>, time: i64, umask: u32, commit: Option<&ObjectId>) -> Self {
        let mut tar = Self {
            time: u64::try_from(time).unwrap_or(0),
            umask,
            len: 0,
            left: 0,
        };
        let mut global = Vec::new();
        if let Some(commit) = commit {
            pax_record(&mut global, "comment", commit.to_string().as_bytes());
        }
        if tar.time > FIELD_MAX {
            pax_record(&mut global, "mtime", tar.time.to_string().as_bytes());
            tar.time = FIELD_MAX;
        }
        if !global.is_empty() {
            let header = Header {
                name: b"pax_global_header",
                kind: b'g',
                mode: PAX_MODE,
                ..Header::default()
            };
            tar.extended(out, header, &global);
        }
        tar
    }

    /// Appends a directory.
    pub(super) fn directory(&mut self, out: &mut Vec<u8>, path: &[u8], mode: u32, oid: &ObjectId) {
        let mode = (mode | 0o777) & !self.umask;
        self.entry(
            out,
            path,
            oid,
            b"",
            0,
            Header {
                kind: b'5',
                mode,
                ..Header::default()
            },
        );
    }

    /// Appends a symbolic link.
    pub(super) fn link(&mut self, out: &mut Vec<u8>, path: &[u8], item: &Item, target: &[u8]) {
        let header = Header {
            kind: b'2',
            mode: item.mode.0 | 0o777,
            ..Header::default()
        };
        self.entry(out, path, &item.oid, target, 0, header);
    }

    /// Begins a file of so many bytes, which follow by [`Tar::content`].
    pub(super) fn file(&mut self, out: &mut Vec<u8>, path: &[u8], item: &Item, size: u64) {
        let mode = item.mode.0;
        let all = if mode & 0o100 != 0 { 0o777 } else { 0o666 };
        let mode = (mode | all) & !self.umask;
        self.entry(
            out,
            path,
            &item.oid,
            b"",
            size,
            Header {
                kind: b'0',
                mode,
                ..Header::default()
            },
        );
        self.left = size;
    }

    /// Appends more of the file begun last.
    pub(super) fn content(&mut self, out: &mut Vec<u8>, content: &[u8]) {
        out.extend_from_slice(content);
        self.len += content.len() as u64;
        self.left = self.left.saturating_sub(content.len() as u64);
        if self.left == 0 {
            self.pad(out, RECORD);
        }
    }

    /// Appends the end: two empty records, and what is missing of the last block.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        let tail = BLOCK - self.len % BLOCK;
        let zeros = if tail < 2 * RECORD { tail + BLOCK } else { tail };
        self.zeros(out, zeros);
    }

    fn entry(
        &mut self,
        out: &mut Vec<u8>,
        path: &[u8],
        oid: &ObjectId,
        link: &[u8],
        size: u64,
        header: Header<'static>,
    ) {
        let mut pax = Vec::new();
        let (data_name, pax_name) = (format!("{oid}.data"), format!("{oid}.paxheader"));
        let see = format!("see {pax_name}");
        let mut header: Header<'_> = header;
        match split_name(path) {
            Some((prefix, name)) => (header.prefix, header.name) = (prefix, name),
            None => {
                header.name = data_name.as_bytes();
                pax_record(&mut pax, "path", path);
            }
        }
        header.link = link;
        if link.len() > NAME_LEN {
            header.link = see.as_bytes();
            pax_record(&mut pax, "linkpath", link);
        }
        header.size = size;
        if size > FIELD_MAX {
            header.size = 0;
            pax_record(&mut pax, "size", size.to_string().as_bytes());
        }
        if !pax.is_empty() {
            let extended = Header {
                name: pax_name.as_bytes(),
                kind: b'x',
                mode: PAX_MODE,
                ..Header::default()
            };
            self.extended(out, extended, &pax);
        }
        self.header(out, &header);
    }

    fn extended(&mut self, out: &mut Vec<u8>, mut header: Header<'_>, records: &[u8]) {
        header.size = records.len() as u64;
        self.header(out, &header);
        out.extend_from_slice(records);
        self.len += records.len() as u64;
        self.pad(out, RECORD);
    }

    fn header(&mut self, out: &mut Vec<u8>, header: &Header<'_>) {
        let start = out.len();
        text(out, header.name, NAME_LEN);
        octal(out, u64::from(header.mode & 0o7777), 7);
        octal(out, 0, 7);
        octal(out, 0, 7);
        octal(out, header.size, 11);
        octal(out, self.time, 11);
        let sum_at = out.len();
        out.extend_from_slice(b"        ");
        out.push(header.kind);
        text(out, header.link, NAME_LEN);
        out.extend_from_slice(b"ustar\x0000");
        text(out, b"root", 32);
        text(out, b"root", 32);
        octal(out, 0, 7);
        octal(out, 0, 7);
        text(out, header.prefix, PREFIX_LEN);
        out.extend_from_slice(&[0; 12]);
        let sum: u64 = out
            .get(start..)
            .unwrap_or_default()
            .iter()
            .map(|byte| u64::from(*byte))
            .sum();
        let sum = format!("{sum:07o}\0");
        if let Some(field) = out.get_mut(sum_at..sum_at + 8) {
            field.copy_from_slice(sum.as_bytes());
        }
        self.len += RECORD;
    }

    fn pad(&mut self, out: &mut Vec<u8>, unit: u64) {
        self.zeros(out, self.len.next_multiple_of(unit) - self.len);
    }

    fn zeros(&mut self, out: &mut Vec<u8>, count: u64) {
        // At most two blocks.
        out.resize(out.len() + count as usize, 0);
        self.len += count;
    }
}

#[derive(Default)]
struct Header<'a> {
    prefix: &'a [u8],
    name: &'a [u8],
    kind: u8,
    mode: u32,
    size: u64,
    link: &'a [u8],
}

/// A path in the two fields that a header has for it; `None` if it fits in neither way.
fn split_name(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.len() <= NAME_LEN {
        return Some((b"", path));
    }
    let end = path.len() - usize::from(path.ends_with(b"/"));
    let searched = path.get(..end.min(PREFIX_LEN))?;
    let slash = searched
        .iter()
        .rposition(|byte| *byte == b'/')
        .filter(|slash| *slash > 0)?;
    let name = path.get(slash + 1..)?;
    (name.len() <= NAME_LEN).then_some((path.get(..slash)?, name))
}

/// Text, and NULs up to the field's end.
fn text(out: &mut Vec<u8>, text: &[u8], width: usize) {
    let end = out.len() + width;
    out.extend(text.iter().take(width));
    out.resize(end, 0);
}

/// Octal digits, and a NUL.
fn octal(out: &mut Vec<u8>, number: u64, digits: usize) {
    out.extend_from_slice(format!("{number:0digits$o}\0").as_bytes());
}

/// `<length> <key>=<value>\n`, its own length counted.
fn pax_record(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while len != rest + decimal_len(len) {
        len = rest + decimal_len(len);
    }
    out.extend_from_slice(format!("{len} {key}=").as_bytes());
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn decimal_len(number: usize) -> usize {
    number.to_string().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pax_records_count_themselves() {
        for (value, len) in [(84, "96 "), (87, "99 "), (88, "101 "), (985, "998 "), (987, "1001 ")] {
            let mut out = Vec::new();
            pax_record(&mut out, "comment", &vec![b'x'; value]);
            assert_eq!(out.len().to_string() + " ", len);
            assert!(out.starts_with(len.as_bytes()));
        }
    }

    #[test]
    fn long_names_are_split_at_a_slash() {
        let long = |parts: &[usize]| parts.iter().map(|len| "x".repeat(*len)).collect::<Vec<_>>().join("/");
        assert!(split_name(long(&[100]).as_bytes()).is_some_and(|(prefix, _)| prefix.is_empty()));
        assert_eq!(split_name(long(&[101]).as_bytes()), None);
        assert_eq!(
            split_name(long(&[154, 100]).as_bytes()).map(|(prefix, name)| (prefix.len(), name.len())),
            Some((154, 100))
        );
        assert_eq!(split_name(long(&[156, 100]).as_bytes()), None);
        assert_eq!(
            split_name(format!("{}/", long(&[60, 50])).as_bytes()).map(|(prefix, _)| prefix.len()),
            Some(60)
        );
        assert_eq!(split_name(format!("/{}", "x".repeat(100)).as_bytes()), None);
    }
}
