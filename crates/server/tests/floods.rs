//! HTTP/2 frames that a client may send without end: the connection is ended, or the stream refused, and others are served.

#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use support::Server;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;
/// How long a server that has something to say may take.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Streams at once, as the server says in its settings.
const STREAMS_MAX: u32 = 64;

/// One frame (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A literal field whose name is in the static table (RFC 7541, section 6.2.2), not indexed.
fn literal(index: u8, value: &str) -> Vec<u8> {
    let name = if index < 15 { vec![index] } else { vec![15, index - 15] };
    let len = u8::try_from(value.len()).ok().filter(|len| *len < 127).unwrap();
    [&name[..], &[len], value.as_bytes()].concat()
}

/// `:method`, `:scheme`, `:path` and `:authority`.
fn head(method: u8, path: &str) -> Vec<u8> {
    [&[0x80 | method, 0x86][..], &literal(4, path), &literal(1, "x")].concat()
}

fn get(path: &str) -> Vec<u8> {
    head(2, path)
}

/// A frame that came.
#[derive(Debug)]
struct Frame {
    kind: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    /// The error code at this place.
    fn code(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// A connection in cleartext, whose client begins at once.
struct Connection {
    stream: TcpStream,
    frames: Receiver<Frame>,
}

impl Connection {
    fn open(server: &Server) -> Self {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        stream
            .write_all(&[&preface[..], &frame(SETTINGS, 0, 0, b"")].concat())
            .unwrap();
        let (reader, (sender, frames)) = (stream.try_clone().unwrap(), channel());
        std::thread::spawn(move || read_frames(reader, &sender));
        Self { stream, frames }
    }

    /// Sends as much of that as the server takes before it closes; how many bytes that is.
    fn flood(&mut self, mut next: impl FnMut(u32) -> Vec<u8>, count: u32) -> usize {
        let mut taken = 0;
        for number in 0..count {
            let bytes = next(number);
            if self.stream.write_all(&bytes).is_err() {
                break;
            }
            taken += bytes.len();
        }
        taken
    }

    /// What the server sent until there is so much of what is looked for, or it closed, or was silent for a minute.
    fn frames(self, looked_for: impl Fn(&Frame) -> bool, count: usize) -> Vec<Frame> {
        let (mut frames, mut found) = (Vec::new(), 0);
        while found < count {
            let Ok(frame) = self.frames.recv_timeout(SILENCE_MAX) else {
                break;
            };
            found += usize::from(looked_for(&frame));
            frames.push(frame);
        }
        frames
    }
}

fn read_frames(mut stream: TcpStream, frames: &Sender<Frame>) {
    let mut head = [0; 9];
    while stream.read_exact(&mut head).is_ok() {
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; len];
        if stream.read_exact(&mut payload).is_err() {
            break;
        }
        let frame = Frame {
            kind: head[3],
            stream: u32::from_be_bytes(head[5..9].try_into().unwrap()),
            payload,
        };
        if frames.send(frame).is_err() {
            break;
        }
    }
}

/// Whether it begins an answer.
fn answers(frame: &Frame) -> bool {
    frame.kind == HEADERS
}

fn is_farewell(frame: &Frame) -> bool {
    frame.kind == GOAWAY
}

fn assert_serves(server: &Server) {
    assert_eq!(server.get("GET", "/healthz", &[]).status, 200);
}

#[test]
fn frames_of_this_test_are_understood() {
    let server = Server::start();
    let mut connection = Connection::open(&server);
    let request = frame(HEADERS, END_STREAM | END_HEADERS, 1, &get("/healthz"));
    connection.stream.write_all(&request).unwrap();
    let frames = connection.frames(answers, 1);
    assert!(
        frames.iter().any(|frame| answers(frame) && frame.stream == 1),
        "{frames:?}"
    );
}

#[test]
fn streams_that_are_reset_at_once_end_the_connection() {
    let server = Server::start();
    let mut connection = Connection::open(&server);
    let request = get("/healthz");
    let reset = |number: u32| {
        let stream = 2 * number + 1;
        let begin = frame(HEADERS, END_STREAM | END_HEADERS, stream, &request);
        [begin, frame(RST_STREAM, 0, stream, &8u32.to_be_bytes())].concat()
    };
    // In one piece: a server that keeps up with single ones has no reason to complain.
    let all: Vec<u8> = (0..20_000).flat_map(reset).collect();
    connection.flood(|_| all.clone(), 1);
    let frames = connection.frames(is_farewell, 1);
    let farewell = frames.iter().find(|frame| is_farewell(frame)).unwrap();
    assert_eq!(farewell.code(4), ENHANCE_YOUR_CALM);
    assert_serves(&server);
}

#[test]
fn only_so_many_streams_are_open_at_once() {
    const MORE: u32 = 5;
    let server = Server::start();
    server.cuesta(&["repo", "create", "a/b"]);
    let mut connection = Connection::open(&server);
    // Each waits for a body.
    let kind = literal(31, "application/x-git-upload-pack-request");
    let request = [head(3, "/a/b/git-upload-pack"), kind].concat();
    connection.flood(
        |number| frame(HEADERS, END_HEADERS, 2 * number + 1, &request),
        STREAMS_MAX + MORE,
    );
    for number in 0..STREAMS_MAX {
        connection.flood(|_| frame(DATA, END_STREAM, 2 * number + 1, b"0000"), 1);
    }
    let frames = connection.frames(answers, STREAMS_MAX as usize);
    let refused = |frame: &&Frame| frame.kind == RST_STREAM && frame.code(0) == REFUSED_STREAM;
    let refused: Vec<u32> = frames.iter().filter(refused).map(|frame| frame.stream).collect();
    let expected: Vec<u32> = (STREAMS_MAX..STREAMS_MAX + MORE).map(|number| 2 * number + 1).collect();
    assert_eq!(refused, expected);
    assert_eq!(
        frames.iter().filter(|frame| answers(frame)).count(),
        STREAMS_MAX as usize
    );
    assert_serves(&server);
}

#[test]
fn heads_without_end_end_the_connection() {
    const FLOOD: u32 = 16_384;
    let server = Server::start();
    // One field after the other, small ones and large ones, none of them the last.
    for size in [1, 100] {
        let field = [&[0, 1, b'a'][..], &[size], &vec![b'v'; size.into()]].concat();
        let block = field.repeat(16_000 / field.len());
        let mut connection = Connection::open(&server);
        connection.flood(|_| frame(HEADERS, 0, 1, &get("/healthz")), 1);
        let taken = connection.flood(|_| frame(CONTINUATION, 0, 1, &block), FLOOD);
        // Of 256 MB it has taken what lay in the sockets.
        assert!(taken < FLOOD as usize * block.len() / 4, "{taken} bytes were taken");
        let frames = connection.frames(answers, 1);
        assert!(!frames.iter().any(answers), "{frames:?}");
        assert_serves(&server);
    }
}

#[test]
fn settings_and_pings_without_end_are_not_kept() {
    let server = Server::start();
    for flood in [frame(PING, 0, 0, b"are here"), frame(SETTINGS, 0, 0, b"")] {
        let mut connection = Connection::open(&server);
        let batch = flood.repeat(1000);
        connection.flood(|_| batch.clone(), 200);
        connection.flood(|_| frame(HEADERS, END_STREAM | END_HEADERS, 1, &get("/healthz")), 1);
        let frames = connection.frames(|frame| answers(frame) || is_farewell(frame), 1);
        assert!(frames.last().is_some_and(|frame| answers(frame) || is_farewell(frame)));
        assert_serves(&server);
    }
}
