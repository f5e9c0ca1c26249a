//! The bytes on the socket (docs/format/ledger-socket.md).
//!
//! There is one way to write what a frame says, and every other is refused; but errors travel as far as callers tell them
//! apart.

use crate::{Appended, Base, ErrorKind, LedgerError, Limits};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use cuesta_format::LogId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const MAGIC: [u8; 4] = *b"CLS\0";
const VERSION: u16 = 1;
/// Bytes of a frame beside the entry or entries in it.
const FRAME_OVERHEAD_MAX: usize = 1 << 16;
/// Entries in one answer of `read`, in bytes with what is written before each; one entry always fits.
pub(super) const READ_BYTES_MAX: usize = 4 << 20;
/// Bytes before each entry in an answer of `read`.
const ENTRY_PREFIX_LEN: usize = 16;
const MESSAGE_BYTES_MAX: usize = 1 << 12;
/// The largest entry that a server may allow. It keeps the length of every frame within its four bytes.
const ENTRY_BYTES_LIMIT: u64 = 1 << 30;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Append {
        log: LogId,
        number: u64,
        entry: Bytes,
    },
    Read {
        log: LogId,
        from: u64,
        bytes_max: u64,
    },
    End {
        log: LogId,
    },
    Base {
        log: LogId,
    },
    Advance {
        log: LogId,
        base: Base,
    },
    Changed {
        log: LogId,
        than: u64,
    },
    Drop {
        log: LogId,
    },
    /// The answer to the request of this frame's id is no longer wanted.
    Cancel,
}

/// What a server answers.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Appended(Appended),
    Entries(Vec<(u64, Bytes)>),
    Number(u64),
    Base(Base),
    Done,
    Failed(LedgerError),
}

/// Reads a frame without its length as a request and as an answer, and insists that what can be read is written as it
/// was. For fuzzing: panics where that is not so.
pub fn check_frame(frame: &Bytes) {
    if let Ok((id, request)) = decode_request(frame.clone()) {
        let again = encode_request(id, &request);
        assert_eq!(again.get(4..), Some(&frame[..]));
    }
    let Ok((id, answer)) = decode_answer(frame.clone()) else {
        return;
    };
    let again = encode_answer(id, &answer);
    match answer {
        // Of texts that no store of ours wrote, only what they mean must last.
        Answer::Failed(error) => match decode_answer(again.slice(4..)) {
            Ok((_, Answer::Failed(read))) => assert_eq!(read.kind(), error.kind()),
            other => panic!("an error is read back as {other:?}"),
        },
        _ => assert_eq!(again.get(4..), Some(&frame[..])),
    }
}

/// A length that this side will read, given the store's limits.
pub(super) fn frame_bytes_max(limits: Limits) -> usize {
    limits
        .entry_bytes_max
        .max(READ_BYTES_MAX)
        .saturating_add(FRAME_OVERHEAD_MAX)
}

/// Writes this side's greeting; the server's has its limits.
pub(super) async fn greet(to: &mut (impl AsyncWrite + Unpin), limits: Option<Limits>) -> std::io::Result<()> {
    let mut out = BytesMut::with_capacity(24);
    out.put_slice(&MAGIC);
    out.put_u16_le(VERSION);
    out.put_u16_le(0);
    if let Some(limits) = limits {
        out.put_u64_le(limits.entry_bytes_max as u64);
        out.put_u64_le(limits.inline_bytes_max as u64);
    }
    to.write_all(&out).await?;
    to.flush().await
}

/// Reads and checks the peer's greeting.
pub(super) async fn read_greeting(from: &mut (impl AsyncRead + Unpin)) -> Result<(), LedgerError> {
    let mut greeting = [0; 8];
    from.read_exact(&mut greeting).await.map_err(lost)?;
    let [m0, m1, m2, m3, v0, v1, z0, z1] = greeting;
    if [m0, m1, m2, m3] != MAGIC {
        return Err(unexpected("a log store's greeting", format!("{greeting:02x?}")));
    }
    match (u16::from_le_bytes([v0, v1]), [z0, z1]) {
        (VERSION, [0, 0]) => Ok(()),
        (version, _) => Err(unexpected("protocol version 1", format!("version {version}"))),
    }
}

/// Reads the limits that follow the server's greeting.
pub(super) async fn read_limits(from: &mut (impl AsyncRead + Unpin)) -> Result<Limits, LedgerError> {
    let entry = from.read_u64_le().await.map_err(lost)?;
    let inline = from.read_u64_le().await.map_err(lost)?;
    match (usize::try_from(entry), usize::try_from(inline)) {
        (Ok(entry_bytes_max), Ok(inline_bytes_max)) if entry <= ENTRY_BYTES_LIMIT => Ok(Limits {
            entry_bytes_max,
            inline_bytes_max,
        }),
        _ => Err(unexpected(
            "limits of at most 1 GiB",
            format!("{entry} and {inline} bytes"),
        )),
    }
}

/// Reads one frame; `None` at a clean end.
pub(super) async fn read_frame(
    from: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
) -> Result<Option<Bytes>, LedgerError> {
    let length = match from.read_u32_le().await {
        Ok(length) => usize::try_from(length).unwrap_or(usize::MAX),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(lost(error)),
    };
    if length > bytes_max {
        return Err(unexpected(
            "a frame within the limit",
            format!("{length} bytes of {bytes_max}"),
        ));
    }
    let mut frame = BytesMut::zeroed(length);
    from.read_exact(&mut frame).await.map_err(lost)?;
    Ok(Some(frame.freeze()))
}

/// As many of the entries that were read as one answer holds; the first in any case.
pub(super) fn entries_of_one_answer(mut entries: Vec<(u64, Bytes)>) -> Vec<(u64, Bytes)> {
    let mut bytes = 0_usize;
    let fit = entries.iter().take_while(|(_, entry)| {
        let is_first = bytes == 0;
        bytes = bytes.saturating_add(ENTRY_PREFIX_LEN).saturating_add(entry.len());
        is_first || bytes <= READ_BYTES_MAX
    });
    let count = fit.count();
    entries.truncate(count);
    entries
}

/// A frame of the request, complete with its length. The caller keeps entries below the server's limit.
pub(super) fn encode_request(id: u64, request: &Request) -> Bytes {
    let mut out = begin(id);
    match request {
        Request::Append { log, number, entry } => {
            put_log(&mut out, 1, *log);
            out.put_u64_le(*number);
            out.put_slice(entry);
        }
        Request::Read { log, from, bytes_max } => {
            put_log(&mut out, 2, *log);
            out.put_u64_le(*from);
            out.put_u64_le(*bytes_max);
        }
        Request::End { log } => put_log(&mut out, 3, *log),
        Request::Base { log } => put_log(&mut out, 4, *log),
        Request::Advance { log, base } => {
            put_log(&mut out, 5, *log);
            put_base(&mut out, *base);
        }
        Request::Changed { log, than } => {
            put_log(&mut out, 6, *log);
            out.put_u64_le(*than);
        }
        Request::Drop { log } => put_log(&mut out, 7, *log),
        Request::Cancel => out.put_u8(8),
    }
    finish(out)
}

pub(super) fn decode_request(mut frame: Bytes) -> Result<(u64, Request), LedgerError> {
    let id = take_u64(&mut frame)?;
    let code = take_u8(&mut frame)?;
    if code == 8 {
        return whole(frame).map(|()| (id, Request::Cancel));
    }
    let log = LogId(frame.try_get_u128_le().map_err(|_| short())?);
    let request = match code {
        1 => Request::Append {
            log,
            number: take_u64(&mut frame)?,
            entry: std::mem::take(&mut frame),
        },
        2 => Request::Read {
            log,
            from: take_u64(&mut frame)?,
            bytes_max: take_u64(&mut frame)?,
        },
        3 => Request::End { log },
        4 => Request::Base { log },
        5 => Request::Advance {
            log,
            base: take_base(&mut frame)?,
        },
        6 => Request::Changed {
            log,
            than: take_u64(&mut frame)?,
        },
        7 => Request::Drop { log },
        other => return Err(unexpected("a request", format!("code {other}"))),
    };
    whole(frame).map(|()| (id, request))
}

/// A frame of the answer, complete with its length.
pub(super) fn encode_answer(id: u64, answer: &Answer) -> Bytes {
    let mut out = begin(id);
    match answer {
        Answer::Appended(Appended::Done) => out.put_u8(1),
        Answer::Appended(Appended::Taken) => out.put_u8(2),
        Answer::Entries(entries) => {
            out.put_u8(3);
            for (number, entry) in entries {
                out.put_u64_le(*number);
                out.put_u64_le(entry.len() as u64);
                out.put_slice(entry);
            }
        }
        Answer::Number(number) => {
            out.put_u8(4);
            out.put_u64_le(*number);
        }
        Answer::Base(base) => {
            out.put_u8(5);
            put_base(&mut out, *base);
        }
        Answer::Done => out.put_u8(6),
        Answer::Failed(error) => {
            out.put_u8(7);
            put_error(&mut out, error);
        }
    }
    finish(out)
}

pub(super) fn decode_answer(mut frame: Bytes) -> Result<(u64, Answer), LedgerError> {
    let id = take_u64(&mut frame)?;
    let answer = match take_u8(&mut frame)? {
        1 => Answer::Appended(Appended::Done),
        2 => Answer::Appended(Appended::Taken),
        3 => Answer::Entries(take_entries(std::mem::take(&mut frame))?),
        4 => Answer::Number(take_u64(&mut frame)?),
        5 => Answer::Base(take_base(&mut frame)?),
        6 => Answer::Done,
        7 => Answer::Failed(take_error(std::mem::take(&mut frame))?),
        other => return Err(unexpected("an answer", format!("code {other}"))),
    };
    whole(frame).map(|()| (id, answer))
}

fn take_entries(mut frame: Bytes) -> Result<Vec<(u64, Bytes)>, LedgerError> {
    let mut entries = Vec::new();
    while frame.has_remaining() {
        let (number, length) = (take_u64(&mut frame)?, take_u64(&mut frame)?);
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= frame.len())
            .ok_or_else(short)?;
        entries.push((number, frame.split_to(length)));
    }
    Ok(entries)
}

/// Errors that callers tell apart travel whole; of others their kind and text do.
fn put_error(out: &mut BytesMut, error: &LedgerError) {
    let (code, log, first, second) = match error {
        LedgerError::Gap { log, end, number } => (1, *log, *end, *number),
        LedgerError::Gone { log, first, number } => (2, *log, *first, *number),
        LedgerError::Dropped { log } => (3, *log, 0, 0),
        LedgerError::TooLarge { bytes, bytes_max } => (4, LogId(0), *bytes as u64, *bytes_max as u64),
        LedgerError::BadBase { log, first, .. } => (5, *log, *first, 0),
        other if other.kind() == ErrorKind::Corrupt => (6, LogId(0), 0, 0),
        _ => (7, LogId(0), 0, 0),
    };
    out.put_u8(code);
    out.put_u128_le(log.0);
    out.put_u64_le(first);
    out.put_u64_le(second);
    let text = error.to_string();
    out.put_slice(text.as_bytes().get(..MESSAGE_BYTES_MAX).unwrap_or(text.as_bytes()));
}

fn take_error(mut frame: Bytes) -> Result<LedgerError, LedgerError> {
    let code = take_u8(&mut frame)?;
    let log = LogId(frame.try_get_u128_le().map_err(|_| short())?);
    let (first, second) = (take_u64(&mut frame)?, take_u64(&mut frame)?);
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let text = String::from_utf8_lossy(frame.get(..MESSAGE_BYTES_MAX).unwrap_or(&frame)).into_owned();
    Ok(match code {
        1 => LedgerError::Gap {
            log,
            end: first,
            number: second,
        },
        2 => LedgerError::Gone {
            log,
            first,
            number: second,
        },
        3 => LedgerError::Dropped { log },
        4 => LedgerError::TooLarge {
            bytes: size(first),
            bytes_max: size(second),
        },
        5 => LedgerError::BadBase {
            log,
            first,
            what: "the store refuses this base",
        },
        6 => LedgerError::BadStore {
            path: "socket".to_owned(),
            what: text,
        },
        _ => LedgerError::unavailable("use the lent log store", std::io::Error::other(text)),
    })
}

fn begin(id: u64) -> BytesMut {
    let mut out = BytesMut::with_capacity(64);
    out.put_u32_le(0);
    out.put_u64_le(id);
    out
}

fn finish(mut out: BytesMut) -> Bytes {
    // Within u32: entries are bounded by the limits, which fit.
    let length = u32::try_from(out.len().saturating_sub(4)).unwrap_or(u32::MAX);
    if let Some(prefix) = out.first_chunk_mut::<4>() {
        *prefix = length.to_le_bytes();
    }
    out.freeze()
}

fn put_log(out: &mut BytesMut, code: u8, log: LogId) {
    out.put_u8(code);
    out.put_u128_le(log.0);
}

fn put_base(out: &mut BytesMut, base: Base) {
    out.put_u64_le(base.first);
    out.put_u8(base.checkpoint.is_some().into());
    out.put_u64_le(base.checkpoint.unwrap_or(0));
}

fn take_base(frame: &mut Bytes) -> Result<Base, LedgerError> {
    let (first, has_checkpoint, number) = (take_u64(frame)?, take_u8(frame)?, take_u64(frame)?);
    let checkpoint = match (has_checkpoint, number) {
        (0, 0) => None,
        (1, number) => Some(number),
        other => return Err(unexpected("a checkpoint or none", format!("{other:?}"))),
    };
    Ok(Base { first, checkpoint })
}

fn take_u64(frame: &mut Bytes) -> Result<u64, LedgerError> {
    frame.try_get_u64_le().map_err(|_| short())
}

fn take_u8(frame: &mut Bytes) -> Result<u8, LedgerError> {
    frame.try_get_u8().map_err(|_| short())
}

/// Refuses bytes that nothing asked for.
fn whole(rest: Bytes) -> Result<(), LedgerError> {
    match rest.len() {
        0 => Ok(()),
        extra => Err(unexpected("the end of the frame", format!("{extra} more bytes"))),
    }
}

fn short() -> LedgerError {
    unexpected("a whole frame", "one cut short".to_owned())
}

fn unexpected(expected: &'static str, got: String) -> LedgerError {
    LedgerError::Protocol { expected, got }
}

pub(super) fn lost(error: std::io::Error) -> LedgerError {
    LedgerError::unavailable("reach the log store's socket", error)
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
