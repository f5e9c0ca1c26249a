//! Peers that do not mean well, on raw sockets.

use super::git::Client;
use super::server;
use crate::support::{Server, Work};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

pub const CASES: &[(&str, fn())] = &[
    ("endless_banners_are_cut_off", endless_banners),
    ("no_packet_is_four_gib", long_packet),
    ("idle_connections_keep_nobody_out", idle_connections),
    ("a_login_takes_few_attempts", attempts),
];

fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.ssh_address.unwrap()).unwrap()
}

/// Reads until the server ends the connection.
fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}"),
    }
    said
}

fn still_serves(server: &Server) {
    let work = Work::new();
    let repository = work.repository("r", "sha1");
    let pushed = Client::Own.git(&work, &repository, &["push", "-q", &server.ssh_url("ann/b"), "main"]);
    assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
}

fn endless_banners() {
    let server = server();
    for line in [&b"hello\r\n"[..], b"SSH-2.0-", b"x", b"\n", b"GET / HTTP/1.1\r\n\r\n"] {
        let mut stream = connect(&server);
        // The server stops reading long before the end.
        let mut sent = 0;
        while sent < 1 << 20 {
            match stream.write(&line.repeat(100)) {
                Ok(len) => sent += len,
                Err(_) => break,
            }
        }
        let said = until_closed(&mut stream);
        assert!(
            said.is_empty() || said.starts_with(b"SSH-2.0-Cuesta_"),
            "{}",
            said.escape_ascii()
        );
    }
    still_serves(&server);
}

fn long_packet() {
    let server = server();
    for len in [u32::MAX, 1 << 30, 1 << 20, 0, 1] {
        let mut stream = connect(&server);
        let _ = stream.write_all(b"SSH-2.0-x\r\n");
        let _ = stream.write_all(&len.to_be_bytes());
        let _ = stream.write_all(&[0; 64]);
        until_closed(&mut stream);
    }
    still_serves(&server);
}

/// More connections than may be on their way to a login: the oldest go, and who means it gets in.
fn idle_connections() {
    let server = server();
    let mut idle: Vec<TcpStream> = (0..400).map(|_| connect(&server)).collect();
    still_serves(&server);
    for stream in idle.iter_mut().take(100) {
        until_closed(stream);
    }
    // The newest are still there: they have been greeted and not been cut.
    let newest = idle.last_mut().unwrap();
    let mut greeting = [0; 15];
    newest.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"SSH-2.0-Cuesta_");
}

fn attempts() {
    let server = server();
    super::block_on(async {
        let mut connection = crate::ssh_client::Connection::open(server.ssh_address.unwrap()).await;
        let mut tried = 0;
        while let Ok(result) = connection.handle.authenticate_password("git", "guess").await {
            assert!(!result.success());
            tried += 1;
            assert!(tried <= 20, "nobody stops it");
        }
        assert!(tried >= 1);
    });
    still_serves(&server);
}
