//! Users, told apart by their keys.

use super::block_on;
use super::git::Client;
use crate::ssh_client::{Connection, KEY, ended};
use crate::support::{Server, Work};
use russh::ChannelMsg;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::RsaKeypair;
use russh::keys::{Algorithm, EcdsaCurve, HashAlg, PrivateKey, PrivateKeyWithHashAlg};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

pub const CASES: &[(&str, fn())] = &[
    ("keys_say_who_it_is", keys),
    ("rsa_keys_sign_over_sha2_only", rsa),
    ("what_one_may_not_read_is_not_there", hidden),
    ("what_ends_ends_on_open_connections_too", revoked),
];

fn server() -> Server {
    Server::start_with(&["--ssh-listen", "127.0.0.1:0", "--set", "authentication=accounts"])
}

fn new_key(algorithm: Algorithm) -> PrivateKey {
    PrivateKey::random(&mut russh::keys::key::safe_rng(), algorithm).unwrap()
}

/// Makes a user with that key; gives back where the key is.
fn user(server: &Server, work: &Work, name: &str, key: &PrivateKey) -> PathBuf {
    let (private, public) = (work.path(&format!("{name}.key")), work.path(&format!("{name}.pub")));
    key.write_openssh_file(&private, LineEnding::LF).unwrap();
    key.public_key().write_openssh_file(&public).unwrap();
    server.cuesta(&["user", "add", name]);
    server.cuesta(&["key", "add", name, public.to_str().unwrap()]);
    private
}

fn git_as(key: &Path, client: Client, work: &Work, directory: &Path, arguments: &[&str]) -> Output {
    let mut command = work.command(directory, arguments);
    command.envs(client.environment()).env(KEY, key);
    if client == Client::OpenSsh {
        let (_, ssh) = &client.environment()[0];
        let ssh = format!("{ssh} -o IdentitiesOnly=yes -i {}", key.display());
        command.env("GIT_SSH_COMMAND", ssh);
    }
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn connect(server: &Server, key: &PrivateKey) -> Connection {
    let mut connection = Connection::open(server.ssh_address.unwrap()).await;
    assert!(connection.try_key(key).await);
    connection
}

fn keys() {
    let (server, work) = (server(), Work::new());
    let algorithms = [
        Algorithm::Ed25519,
        Algorithm::Ecdsa {
            curve: EcdsaCurve::NistP256,
        },
        Algorithm::Ecdsa {
            curve: EcdsaCurve::NistP384,
        },
        Algorithm::Ecdsa {
            curve: EcdsaCurve::NistP521,
        },
    ];
    let users = ["ann", "bob", "carol", "dave"];
    let keys: Vec<PrivateKey> = algorithms.into_iter().map(new_key).collect();
    for (name, key) in users.iter().zip(&keys) {
        user(&server, &work, name, key);
    }
    block_on(async {
        let mut stranger = Connection::open(server.ssh_address.unwrap()).await;
        assert!(!stranger.handle.authenticate_none("git").await.unwrap().success());
        assert!(!stranger.try_key(&new_key(Algorithm::Ed25519)).await);
        // The next key of the same agent.
        assert!(stranger.try_key(&keys[0]).await);
        for (name, key) in users.iter().zip(&keys) {
            let channel = connect(&server, key).await.handle.channel_open_session().await.unwrap();
            channel.request_shell(true).await.unwrap();
            let ended = ended(channel).await;
            assert!(
                ended
                    .err
                    .starts_with(&format!("Hi {name}! You've successfully authenticated")),
                "{}",
                ended.err
            );
            assert_eq!(ended.code, Some(1));
        }
    });
}

fn rsa() {
    let (server, work) = (server(), Work::new());
    let key = PrivateKey::from(RsaKeypair::random(&mut russh::keys::key::safe_rng(), 2048).unwrap());
    user(&server, &work, "ann", &key);
    block_on(async {
        for (hash, taken) in [
            (None, false),
            (Some(HashAlg::Sha256), true),
            (Some(HashAlg::Sha512), true),
        ] {
            let mut connection = Connection::open(server.ssh_address.unwrap()).await;
            let signer = PrivateKeyWithHashAlg::new(Arc::new(key.clone()), hash);
            let result = connection.handle.authenticate_publickey("git", signer).await.unwrap();
            assert_eq!(result.success(), taken, "{hash:?}");
        }
    });
}

fn hidden() {
    let (server, work) = (server(), Work::new());
    let (ann_key, bob_key) = (new_key(Algorithm::Ed25519), new_key(Algorithm::Ed25519));
    let ann = user(&server, &work, "ann", &ann_key);
    let bob = user(&server, &work, "bob", &bob_key);
    let origin = work.repository("origin", "sha1");
    let url = server.ssh_url("ann/notes");
    let clients = [Client::Own, Client::OpenSsh]
        .into_iter()
        .filter(|client| client.is_installed());
    for client in clients {
        let pushed = git_as(&ann, client, &work, &origin, &["push", "-q", "--force", &url, "main"]);
        assert!(pushed.status.success(), "{}", said(&pushed));
        for arguments in [&["ls-remote", &url][..], &["push", &url, "main"]] {
            let refused = git_as(&bob, client, &work, &origin, arguments);
            assert!(!refused.status.success());
            assert!(
                said(&refused).contains("ERROR: Repository not found."),
                "{}",
                said(&refused)
            );
        }
        let stranger = git_as(
            &bob,
            client,
            &work,
            &origin,
            &["push", &server.ssh_url("ann/other"), "main"],
        );
        assert!(
            said(&stranger).contains("ERROR: Repository not found."),
            "{}",
            said(&stranger)
        );
    }
    block_on(async {
        let connection = connect(&server, &bob_key).await;
        for program in ["git-upload-pack", "git-receive-pack"] {
            let there = connection.run(&format!("{program} 'ann/notes'"), None, b"0000").await;
            let absent = connection.run(&format!("{program} 'ann/none'"), None, b"0000").await;
            assert_eq!(there, absent);
        }
    });
    server.cuesta(&["access", "grant", "ann/notes", "bob", "read"]);
    let read = git_as(&bob, Client::Own, &work, &origin, &["ls-remote", &url]);
    assert!(read.status.success(), "{}", said(&read));
    let refused = git_as(&bob, Client::Own, &work, &origin, &["push", &url, "main:topic"]);
    assert!(
        said(&refused).contains("ERROR: you may read this repository, but not change it"),
        "{}",
        said(&refused)
    );
    server.cuesta(&["access", "grant", "ann/notes", "bob", "write"]);
    let written = git_as(
        &bob,
        Client::Own,
        &work,
        &origin,
        &["push", &url, "main:refs/heads/topic"],
    );
    assert!(written.status.success(), "{}", said(&written));
}

fn revoked() {
    let (server, work) = (server(), Work::new());
    let key = new_key(Algorithm::Ed25519);
    let ann = user(&server, &work, "ann", &key);
    let origin = work.repository("origin", "sha1");
    let pushed = git_as(
        &ann,
        Client::Own,
        &work,
        &origin,
        &["push", "-q", &server.ssh_url("ann/notes"), "main"],
    );
    assert!(pushed.status.success(), "{}", said(&pushed));
    let refs = "0014command=ls-refs\n00010000";
    block_on(async {
        let connection = connect(&server, &key).await;
        let mut channel = connection.start("git-upload-pack 'ann/notes'", Some("version=2")).await;
        channel.data(refs.as_bytes()).await.unwrap();
        let mut out = Vec::new();
        while !out.ends_with(b"refs/heads/main\n0000") {
            if let Some(ChannelMsg::Data { data }) = channel.wait().await {
                out.extend_from_slice(&data);
            }
        }
        let fingerprint = key.public_key().fingerprint(HashAlg::Sha256).to_string();
        server.cuesta(&["key", "remove", &fingerprint]);
        channel.data(refs.as_bytes()).await.unwrap();
        let cut = ended(channel).await;
        assert_eq!((cut.code, cut.out.len()), (Some(128), 0), "{cut:?}");
        let next = connection.run("git-upload-pack 'ann/notes'", None, b"0000").await;
        assert_eq!((next.code, next.out.len()), (Some(128), 0), "{next:?}");
        assert!(!Connection::open(server.ssh_address.unwrap()).await.try_key(&key).await);
    });
}
