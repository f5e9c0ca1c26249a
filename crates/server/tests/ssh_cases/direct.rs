//! What git does not do by itself: requests one by one, beside stock git.

use super::{block_on, server};
use crate::ssh_client::{Connection, Ended, ended};
use crate::support::{Server, Work};
use russh::{ChannelMsg, Sig};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub const CASES: &[(&str, fn())] = &[
    ("commands_are_refused_as_git_shell_refuses_them", refused_commands),
    ("a_shell_gets_a_greeting", shell),
    ("everything_but_commands_is_refused", refused_requests),
    ("no_path_leads_outside", paths),
    ("conversations_are_those_of_stock_git", conversations),
    ("many_commands_on_one_channel", many_commands),
    ("answers_that_nobody_reads_yet", unread_answers),
    ("channels_share_a_connection", shared_connection),
    ("the_host_key_stays", host_key),
    ("sigterm_drains", drains),
    ("no_strangers_without_authentication", exposure),
];

fn connection(server: &Server) -> impl Future<Output = Connection> + use<> {
    Connection::anonymous(server.ssh_address.unwrap())
}

fn packet(text: &str) -> String {
    format!("{:04x}{text}", text.len() + 4)
}

fn refused_commands() {
    let (server, work) = (server(), Work::new());
    block_on(async {
        let connection = connection(&server).await;
        for line in [
            "ls",
            "git-upload-pack",
            "git-upload-pack '--help'",
            "git-receive-pack '-c'",
            "git upload-pack 'a",
            "scp -f x",
            "",
        ] {
            let ours = connection.run(line, None, b"").await;
            let stock = work.command(&work.path(""), &["shell", "-c", line]).output().unwrap();
            let said = String::from_utf8(stock.stderr).unwrap();
            assert_eq!(
                ours.code,
                stock.status.code().map(|code| code.try_into().unwrap()),
                "{line:?}"
            );
            assert!(ours.out.is_empty());
            if line.is_empty() {
                // git-shell takes the whole line for a name.
                assert!(ours.err.starts_with("fatal: "), "{}", ours.err);
            } else {
                assert_eq!(ours.err, said, "{line:?}");
            }
        }
    });
}

fn shell() {
    let server = server();
    block_on(async {
        let connection = connection(&server).await;
        let channel = connection.handle.channel_open_session().await.unwrap();
        channel.request_shell(true).await.unwrap();
        let ended = ended(channel).await;
        assert_eq!(ended.code, Some(1));
        assert_eq!(
            ended.err,
            "Hi! You've successfully authenticated, but Cuesta does not provide shell access.\n"
        );
    });
}

fn refused_requests() {
    let server = server();
    block_on(async {
        let connection = connection(&server).await;
        let mut channel = connection.handle.channel_open_session().await.unwrap();
        let granted = async |channel: &mut russh::Channel<_>| match channel.wait().await {
            Some(ChannelMsg::Success) => true,
            Some(ChannelMsg::Failure) => false,
            other => panic!("{other:?}"),
        };
        channel.request_pty(true, "xterm", 80, 24, 0, 0, &[]).await.unwrap();
        assert!(!granted(&mut channel).await, "pty");
        channel
            .request_x11(true, false, "MIT-MAGIC-COOKIE-1", "00", 0)
            .await
            .unwrap();
        assert!(!granted(&mut channel).await, "x11");
        channel.agent_forward(true).await.unwrap();
        assert!(!granted(&mut channel).await, "agent");
        channel.request_subsystem(true, "sftp").await.unwrap();
        assert!(!granted(&mut channel).await, "subsystem");
        for (name, value, taken) in [
            ("LD_PRELOAD", "/tmp/x.so", false),
            ("GIT_DIR", "/", false),
            ("LANG", "C", false),
            ("GIT_PROTOCOL", "--split-string=id", false),
            ("GIT_PROTOCOL", "version=2", true),
        ] {
            channel.set_env(true, name, value).await.unwrap();
            assert_eq!(granted(&mut channel).await, taken, "{name}={value}");
        }
        channel.signal(Sig::KILL).await.unwrap();
        channel.exec(true, "git-upload-pack 'ann/b'").await.unwrap();
        assert!(granted(&mut channel).await, "exec");
        channel.exec(true, "git-receive-pack 'ann/b'").await.unwrap();
        // One command, and it was not that one.
        let ended = ended(channel).await;
        assert_eq!(
            (ended.code, ended.err.as_str()),
            (Some(128), "ERROR: Repository not found.\n")
        );
        let handle = &connection.handle;
        assert!(
            handle
                .channel_open_direct_tcpip("127.0.0.1", 22, "127.0.0.1", 1)
                .await
                .is_err()
        );
        assert!(handle.channel_open_direct_streamlocal("/tmp/x").await.is_err());
        assert!(handle.channel_open_x11("127.0.0.1", 1).await.is_err());
        assert!(handle.tcpip_forward("127.0.0.1", 0).await.is_err());
        assert!(handle.streamlocal_forward("/tmp/x").await.is_err());
        let passwords = Connection::open(server.ssh_address.unwrap()).await;
        let mut handle = passwords.handle;
        assert!(!handle.authenticate_password("git", "x").await.unwrap().success());
    });
}

fn paths() {
    let (server, work) = (server(), Work::new());
    let origin = work.repository("origin", "sha1");
    work.git_in(&origin, &["push", "-q", &server.url("ann/b"), "main"]);
    let before = files(&server.data().join("bucket"));
    block_on(async {
        let connection = connection(&server).await;
        let absent = connection.run("git-upload-pack 'ann/none'", None, b"").await;
        assert_eq!(
            (absent.code, absent.err.as_str()),
            (Some(128), "ERROR: Repository not found.\n")
        );
        for path in [
            "../ann/b",
            "/../ann/b",
            "ann/../ann/b",
            "ann/./b",
            "//ann/b",
            "ann//b",
            "ann/b/..",
            "ann/%62",
            "ann%2fb",
            "ann\\b",
            "/etc/passwd",
            "~/ann/b",
            "~",
            "ann/b/config",
            "ann/b.git.git",
            "ANN/b",
            "bucket/directory",
            ".",
            "..",
            "",
            "/",
            "ann/b;id",
            "ann/$(id)",
            "ann/\u{202e}b",
        ] {
            for program in ["git-upload-pack", "git-receive-pack", "git-upload-archive"] {
                if program == "git-receive-pack" && ["ANN/b", "/etc/passwd", "bucket/directory"].contains(&path) {
                    continue; // A name like any other: pushes may make it.
                }
                let ended = connection.run(&format!("{program} '{path}'"), None, b"").await;
                assert_eq!(ended, absent, "{program} '{path}'");
            }
        }
        for path in ["ann/b", "/ann/b.git", "~ann/b", "/~ann/b.git/"] {
            let ended = connection
                .run(&format!("git-upload-pack '{path}'"), None, b"0000")
                .await;
            assert_eq!(ended.code, Some(0), "{path}");
            assert!(String::from_utf8_lossy(&ended.out).contains("refs/heads/main"));
        }
    });
    assert_eq!(server.cuesta(&["repo", "list"]), "ann/b\n");
    let after = files(&server.data().join("bucket"));
    let new: Vec<&PathBuf> = after.iter().filter(|path| !before.contains(path)).collect();
    assert!(
        new.iter()
            .all(|path| path.starts_with("repos") || path.starts_with("directory")),
        "{new:?}"
    );
    assert!(!server.data().parent().unwrap().join("ann").exists());
}

/// The files below a directory, named from there.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in std::fs::read_dir(next).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                found.push(path.strip_prefix(directory).unwrap().to_owned());
            }
        }
    }
    found
}

/// The packets after the advertisement, up to the pack.
fn replies(out: &[u8]) -> Vec<String> {
    let mut packets = Vec::new();
    let mut rest = out;
    while let Some(digits) = rest.get(..4) {
        let len = usize::from_str_radix(std::str::from_utf8(digits).unwrap_or("0"), 16)
            .unwrap_or(0)
            .max(4);
        let Some(packet) = rest.get(4..len) else { break };
        if digits == b"PACK" || packet.starts_with(b"\x01") || packet.starts_with(b"\x02") {
            packets.push("a pack".to_owned());
            break;
        }
        packets.push(format!(
            "{}{}",
            String::from_utf8_lossy(digits),
            String::from_utf8_lossy(packet)
        ));
        rest = &rest[len..];
    }
    let advertised = packets
        .iter()
        .position(|packet| packet == "0000")
        .map_or(0, |flush| flush + 1);
    packets.split_off(advertised)
}

fn stock(directory: &Path, input: &[u8]) -> (Vec<u8>, i32) {
    let mut child = Command::new("git")
        .args(["upload-pack", directory.to_str().unwrap()])
        .env_remove("GIT_PROTOCOL")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Refused requests are not read to their end.
    let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), input);
    let output = child.wait_with_output().unwrap();
    (output.stdout, output.status.code().unwrap())
}

fn conversations() {
    let (server, work) = (server(), Work::new());
    let origin = work.repository("origin", "sha1");
    let first = work.git_in(&origin, &["rev-parse", "HEAD"]);
    let second = work.commit(&origin, "second", "2\n");
    work.commit(&origin, "third", "3\n");
    work.git_in(&origin, &["push", "-q", &server.url("ann/b"), "main"]);
    let tip = work.git_in(&origin, &["rev-parse", "HEAD"]);
    let have = |oid: &str| packet(&format!("have {oid}\n"));
    let unknown = |digit: &str| have(&digit.repeat(40));
    let done = packet("done\n");
    let mut scripts = vec![
        "0000".to_owned(),
        String::new(),
        "zzzz".to_owned(),
        "0008ab".to_owned(),
        packet("nonsense\n"),
        format!("{}0000{done}", packet(&format!("want {second}\n"))),
        format!("{}0000{done}", packet(&format!("want {}\n", "7".repeat(40)))),
    ];
    for acks in ["", "multi_ack", "multi_ack_detailed"] {
        for band in ["", " side-band-64k"] {
            let want = packet(&format!("want {tip} {acks}{band} ofs-delta no-progress agent=t\n"));
            let wants = format!("{want}0000");
            scripts.push(format!("{wants}{done}"));
            scripts.push(format!("{wants}{}0000{}0000{done}", unknown("a"), unknown("b")));
            scripts.push(format!(
                "{wants}{}{}0000{}0000{done}",
                unknown("a"),
                have(&second),
                unknown("b")
            ));
            scripts.push(format!(
                "{wants}{}0000{}0000{}0000{done}",
                have(&first),
                have(&second),
                have(&tip)
            ));
            scripts.push(format!("{wants}{}{done}", have(&first)));
            scripts.push(format!("{wants}0000{}0000", unknown("a")));
            scripts.push(format!("{want}{}0000{done}", packet("deepen 1")));
            scripts.push(format!(
                "{want}{}{}0000{}0000{done}",
                packet(&format!("shallow {second}")),
                packet("deepen 2"),
                have(&second)
            ));
            scripts.push(wants);
        }
    }
    block_on(async {
        let connection = connection(&server).await;
        for script in scripts {
            let ours = connection.run("git-upload-pack 'ann/b'", None, script.as_bytes()).await;
            let (out, code) = stock(&origin, script.as_bytes());
            let (mut said, expected) = (replies(&ours.out), replies(&out));
            // Where stock git dies, its client has to guess why.
            if code != 0 && said.len() > expected.len() {
                let why = said.pop().unwrap();
                assert!(why.get(4..).is_some_and(|text| text.starts_with("ERR ")), "{why}");
            }
            assert_eq!(said, expected, "{script}");
            assert_eq!(ours.code, Some(u32::try_from(code).unwrap()), "{script}");
        }
    });
}

fn many_commands() {
    let (server, work) = (server(), Work::new());
    let origin = work.repository("origin", "sha1");
    work.git_in(&origin, &["push", "-q", &server.url("ann/b"), "main"]);
    let refs = format!("{}00010000", packet("command=ls-refs\n"));
    let bad = format!("{}0000", packet("command=nonsense\n"));
    block_on(async {
        let connection = connection(&server).await;
        let run = async |input: &str| {
            let Ended { out, code, .. } = connection
                .run("git-upload-pack 'ann/b'", Some("version=2"), input.as_bytes())
                .await;
            (String::from_utf8(out).unwrap(), code)
        };
        let (out, code) = run(&format!("{refs}{refs}{refs}0000{refs}")).await;
        assert!(out.starts_with("000eversion 2\n"), "{out}");
        assert_eq!((out.matches("refs/heads/main\n").count(), code), (3, Some(0)));
        assert_eq!(run(&refs).await.0.matches("refs/heads/main\n").count(), 1);
        assert_eq!(run("").await.1, Some(0));
        let (out, code) = run(&format!("{refs}{bad}{refs}")).await;
        assert!(out.contains("ERR invalid command 'nonsense'"), "{out}");
        assert_eq!((out.matches("refs/heads/main\n").count(), code), (1, Some(128)));
        assert_eq!(run(&refs[..10]).await.1, Some(128));
    });
    let log = server.log();
    assert!(
        log.contains("method=SSH") && log.contains("service=\"ssh-upload-pack\""),
        "{log}"
    );
}

/// Requests whose answers are more than fits on the way, all sent before the first answer is read.
fn unread_answers() {
    let (server, work) = (server(), Work::new());
    let origin = work.repository("origin", "sha1");
    let refs: String = (0..500)
        .map(|number| format!("create refs/heads/a-branch-{number:04} HEAD\n"))
        .collect();
    work.git_with(&origin, &["update-ref", "--stdin"], refs.as_bytes());
    work.git_in(&origin, &["push", "-q", &server.url("ann/b"), "--all"]);
    const TIMES: usize = 200;
    let requests = format!("{}00010000", packet("command=ls-refs\n")).repeat(TIMES);
    block_on(async {
        let connection = connection(&server).await;
        let channel = connection.start("git-upload-pack 'ann/b'", Some("version=2")).await;
        channel.data(requests.as_bytes()).await.unwrap();
        channel.eof().await.unwrap();
        // Another channel is served meanwhile.
        let other = connection.run("git-upload-pack 'ann/b'", None, b"0000").await;
        assert_eq!(other.code, Some(0));
        let ended = ended(channel).await;
        assert_eq!(ended.code, Some(0));
        let out = String::from_utf8(ended.out).unwrap();
        assert!(out.len() > 4 << 20);
        assert_eq!(out.matches("refs/heads/a-branch-0000\n").count(), TIMES);
    });
}

fn shared_connection() {
    let (server, work) = (server(), Work::new());
    let origin = work.repository("origin", "sha1");
    work.git_in(&origin, &["push", "-q", &server.url("ann/b"), "main"]);
    block_on(async {
        let connection = connection(&server).await;
        let mut channels = Vec::new();
        for _ in 0..10 {
            channels.push(connection.start("git-upload-pack 'ann/b'", Some("version=2")).await);
        }
        assert!(connection.handle.channel_open_session().await.is_err(), "one too many");
        for channel in channels {
            channel.data(&b"0000"[..]).await.unwrap();
            assert_eq!(ended(channel).await.code, Some(0));
        }
        // Two pushes: the second is served when the first is done.
        let first = connection.start("git-receive-pack 'ann/b'", None).await;
        let second = connection.start("git-receive-pack 'ann/b'", None).await;
        first.data(&b"0000"[..]).await.unwrap();
        first.eof().await.unwrap();
        assert_eq!(ended(first).await.code, Some(0));
        second.data(&b"0000"[..]).await.unwrap();
        second.eof().await.unwrap();
        assert_eq!(ended(second).await.code, Some(0));
    });
}

fn host_key() {
    let mut server = server();
    let shown = |server: &Server| block_on(Connection::open(server.ssh_address.unwrap())).server_key;
    let key = shown(&server);
    let path = server.data().join("ssh_host_ed25519_key");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    server.restart_with(&["--ssh-listen", "127.0.0.1:0"]);
    assert_eq!(shown(&server), key);
    let moved = server.data().with_extension("key");
    std::fs::rename(path, &moved).unwrap();
    let named = format!("ssh_host_key={}", moved.display());
    server.restart_with(&["--ssh-listen", "127.0.0.1:0", "--set", &named]);
    assert_eq!(shown(&server), key);
}

fn drains() {
    let (mut server, work) = (server(), Work::new());
    let origin = work.repository("origin", "sha1");
    work.git_in(&origin, &["push", "-q", &server.url("ann/b"), "main"]);
    block_on(async {
        let idle = connection(&server).await;
        let busy = connection(&server).await;
        let mut channel = busy.start("git-upload-pack 'ann/b'", Some("version=2")).await;
        // It runs once it has said something.
        while !matches!(channel.wait().await, Some(ChannelMsg::Data { .. })) {}
        let stopping = tokio::task::spawn_blocking(move || {
            let status = server.stop();
            (server, status)
        });
        while !idle.handle.is_closed() {
            tokio::task::yield_now().await;
        }
        let refs = format!("{}000100000000", packet("command=ls-refs\n"));
        channel.data(refs.as_bytes()).await.unwrap();
        let ended = ended(channel).await;
        assert_eq!(ended.code, Some(0));
        assert!(String::from_utf8_lossy(&ended.out).contains("refs/heads/main"));
        let (server, status) = stopping.await.unwrap();
        assert!(status.success());
        assert!(!server.log().contains("cut off"), "{}", server.log());
    });
}

fn exposure() {
    let directory = tempfile::tempdir().unwrap();
    for address in ["0.0.0.0:0", "[::]:0", "nonsense"] {
        let run = Command::new(env!("CARGO_BIN_EXE_cuesta"))
            .args(["serve", "--listen", "127.0.0.1:0", "--ssh-listen", address, "--data"])
            .arg(directory.path())
            .env_clear()
            .output()
            .unwrap();
        assert!(!run.status.success());
        let said = String::from_utf8(run.stderr).unwrap();
        assert!(
            said.contains("ssh_listen") || said.contains("not a loopback address"),
            "{said}"
        );
    }
}
