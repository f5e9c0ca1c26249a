//! Limits of connections and of what they carry, at their values and above.

use super::{block_on, server};
use crate::ssh_client::{Connection, ended};

/// Channels at once on a connection.
const CHANNELS_MAX: usize = 10;

pub const CASES: &[(&str, fn())] = &[("channels_at_once", channels), ("commands_have_a_length", commands)];

fn channels() {
    let server = server();
    block_on(async {
        let connection = Connection::anonymous(server.ssh_address.unwrap()).await;
        let mut open = Vec::new();
        for _ in 0..CHANNELS_MAX {
            open.push(connection.handle.channel_open_session().await.unwrap());
        }
        assert!(connection.handle.channel_open_session().await.is_err());
        // Another connection has channels of its own.
        let other = Connection::anonymous(server.ssh_address.unwrap()).await;
        other.handle.channel_open_session().await.unwrap();
        // One that has ended makes room.
        let last = open.pop().unwrap();
        last.exec(true, "git-upload-pack 'ann/none'").await.unwrap();
        assert_eq!(ended(last).await.code, Some(128));
        connection.handle.channel_open_session().await.unwrap();
    });
}

/// At the limit a command is looked at, above it is not.
fn commands() {
    const LEN_MAX: usize = 4096;
    let server = server();
    block_on(async {
        let connection = Connection::anonymous(server.ssh_address.unwrap()).await;
        let path = |len: usize| format!("'ann/{}'", "n".repeat(len - "git-upload-pack 'ann/'".len()));
        for (len, looked_at) in [(LEN_MAX - 1, true), (LEN_MAX, true), (LEN_MAX + 1, false)] {
            let command = format!("git-upload-pack {}", path(len));
            assert_eq!(command.len(), len);
            let refused = connection.run(&command, None, b"").await;
            assert_eq!(refused.code, Some(128), "{len}");
            assert_eq!(
                refused.err.contains("Repository not found"),
                looked_at,
                "{len}: {}",
                refused.err
            );
        }
    });
}
