//! Pushes and listings by hand: commands that stock git's client would refuse to send.

use super::Scenario;
use crate::format::Format;
use crate::session::Session;
use crate::wire::{self, Command, Packet, push};
use anyhow::{Result, ensure};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("raw::funny_names", funny_names),
        Scenario::new("raw::stale_values", stale_values),
        Scenario::new("raw::name_conflicts", name_conflicts),
        Scenario::new("raw::repeated_commands", repeated_commands),
        Scenario::new("raw::missing_objects", missing_objects),
        Scenario::new("raw::ls_refs", ls_refs),
        Scenario::new("raw::without_side_band", without_side_band),
    ]
}

/// A published commit to point refs at, and its parent.
fn publish(session: &Session<'_>) -> Result<[String; 2]> {
    let client = session.init("client")?;
    let old = client.commit("main", "a", "1\n")?;
    let new = client.commit("main", "a", "2\n")?;
    client.git(&["push", "--quiet", "origin", "main", "main:x/y"])?;
    Ok([old, new])
}

/// A pack without objects, as git sends where the server has everything.
fn empty_pack(format: Format) -> Vec<u8> {
    crate::packs::Pack::new(format).finish()
}

/// Sends commands and records who was let through.
fn try_push(session: &Session<'_>, capabilities: &str, commands: &[Command<'_>]) -> Result<()> {
    let format = session.format();
    let needs_pack = commands.iter().any(|command| command.new != format.zero());
    let pack = if needs_pack { empty_pack(format) } else { Vec::new() };
    for Command { old, new, name } in commands {
        session.record(&format!("> {old} {new} {}", name.escape_debug()));
    }
    let report = push(session, capabilities, commands, &pack)?;
    session.record(&report.verdict());
    Ok(())
}

fn funny_names(session: &Session<'_>) -> Result<()> {
    let format = session.format();
    let [_, new] = publish(session)?;
    for name in [
        "refs/heads/..",
        "refs/heads/a..b",
        "refs/heads/.hidden",
        "refs/heads/dir/.hidden/x",
        "refs/heads/x.lock",
        "refs/heads/x.lock/y",
        "refs/heads/end.",
        "refs/heads/end/",
        "refs/heads//double",
        "refs/heads/a b",
        "refs/heads/a\tb",
        "refs/heads/a~b",
        "refs/heads/a^b",
        "refs/heads/a:b",
        "refs/heads/a?b",
        "refs/heads/a*b",
        "refs/heads/a[b",
        "refs/heads/a\\b",
        "refs/heads/a@{b",
        "refs/heads/@",
        "refs/heads/\u{7f}",
        "refs/heads/\u{e9}t\u{e9}",
        "refs/heads/-dash",
        "refs/heads/HEAD",
        "refs/heads/end.LOCK",
        "refs/other/ok",
        "refs/heads",
        "refs/one",
        "heads/main",
        "main",
        "@",
        "../../etc/passwd",
        "refs/../x",
        "refs/heads/refs/heads/main",
    ] {
        let old = format.zero();
        try_push(session, format.push_capabilities(), &[Command { old, new: &new, name }])?;
    }
    Ok(())
}

fn stale_values(session: &Session<'_>) -> Result<()> {
    let format = session.format();
    let [old, new] = publish(session)?;
    let name = "refs/heads/main";
    let other = "refs/heads/other";
    let unknown = format.absent();
    for command in [
        Command {
            old: format.zero(),
            new: &new,
            name,
        },
        Command {
            old: &old,
            new: &new,
            name,
        },
        Command {
            old: &old,
            new: &old,
            name,
        },
        Command {
            old: unknown,
            new: &old,
            name,
        },
        Command {
            old: &new,
            new: &new,
            name,
        },
        Command {
            old: &old,
            new: format.zero(),
            name: "refs/heads/x/y",
        },
        Command {
            old: &new,
            new: &old,
            name: "refs/heads/none",
        },
    ] {
        try_push(session, format.push_capabilities(), &[command])?;
    }
    let atomic = format!("{} atomic", format.push_capabilities());
    for capabilities in [&atomic, format.push_capabilities()] {
        let good = Command {
            old: format.zero(),
            new: &new,
            name: other,
        };
        let stale = Command {
            old: &old,
            new: &old,
            name,
        };
        try_push(session, capabilities, &[good, stale])?;
    }
    Ok(())
}

fn name_conflicts(session: &Session<'_>) -> Result<()> {
    let format = session.format();
    let [_, new] = publish(session)?;
    let create = |name| Command {
        old: format.zero(),
        new: &new,
        name,
    };
    let delete = |name| Command {
        old: &new,
        new: format.zero(),
        name,
    };
    let atomic = format!("{} atomic", format.push_capabilities());
    try_push(session, format.push_capabilities(), &[create("refs/heads/x")])?;
    try_push(session, format.push_capabilities(), &[create("refs/heads/x/y/z")])?;
    try_push(session, &atomic, &[create("refs/heads/p"), create("refs/heads/p/q")])?;
    try_push(session, &atomic, &[create("refs/heads/r"), create("refs/heads/x/y/z")])?;
    try_push(session, format.push_capabilities(), &[delete("refs/heads/x/y")])?;
    try_push(session, format.push_capabilities(), &[create("refs/heads/x")])
}

fn repeated_commands(session: &Session<'_>) -> Result<()> {
    let format = session.format();
    let [old, new] = publish(session)?;
    let name = "refs/heads/twice";
    let commands = || {
        [
            Command {
                old: format.zero(),
                new: &new,
                name,
            },
            Command {
                old: format.zero(),
                new: &old,
                name,
            },
        ]
    };
    try_push(session, &format!("{} atomic", format.push_capabilities()), &commands())
}

/// Commands and packs whose objects are not all there: nothing of them may be accepted.
fn missing_objects(session: &Session<'_>) -> Result<()> {
    use crate::packs::{Pack, commit, kind, oid, tree};
    let format = session.format();
    publish(session)?;
    let absent_blob = oid(format, kind::BLOB, b"absent\n");
    let absent_tree = oid(format, kind::TREE, &tree(&[("100644", "a", &absent_blob)])?);
    let absent_commit = oid(format, kind::COMMIT, &commit(&absent_tree, &[]));
    let empty_tree = oid(format, kind::TREE, b"");
    let mut packs: Vec<(&str, String, Pack)> = vec![("nothing at all", absent_commit.clone(), Pack::new(format))];
    let mut add = |what, build: &dyn Fn(&mut Pack) -> Result<String>| -> Result<()> {
        let mut pack = Pack::new(format);
        let tip = build(&mut pack)?;
        packs.push((what, tip, pack));
        Ok(())
    };
    add("no tree", &|pack| pack.object(kind::COMMIT, &commit(&absent_tree, &[])))?;
    add("no parent", &|pack| {
        pack.object(kind::TREE, b"")?;
        pack.object(kind::COMMIT, &commit(&empty_tree, &[&absent_commit]))
    })?;
    add("no blob", &|pack| {
        let tree = pack.object(kind::TREE, &tree(&[("100644", "a", &absent_blob)])?)?;
        pack.object(kind::COMMIT, &commit(&tree, &[]))
    })?;
    add("no subtree", &|pack| {
        let tree = pack.object(kind::TREE, &tree(&[("40000", "a", &absent_tree)])?)?;
        pack.object(kind::COMMIT, &commit(&tree, &[]))
    })?;
    add("a blob where a tree should be", &|pack| {
        let blob = pack.object(kind::BLOB, b"x\n")?;
        let tree = pack.object(kind::TREE, &tree(&[("40000", "a", &blob)])?)?;
        pack.object(kind::COMMIT, &commit(&tree, &[]))
    })?;
    add("a tree where a blob should be", &|pack| {
        let inner = pack.object(kind::TREE, b"")?;
        let tree = pack.object(kind::TREE, &tree(&[("100644", "a", &inner)])?)?;
        pack.object(kind::COMMIT, &commit(&tree, &[]))
    })?;
    add("a module that is nowhere", &|pack| {
        let tree = pack.object(kind::TREE, &tree(&[("160000", "a", &absent_commit)])?)?;
        pack.object(kind::COMMIT, &commit(&tree, &[]))
    })?;
    for (what, tip, pack) in &packs {
        session.record(what);
        let name = "refs/heads/tip";
        let command = Command {
            old: format.zero(),
            new: tip,
            name,
        };
        let report = push(session, format.push_capabilities(), &[command], &pack.finish())?;
        session.record(&report.refs_verdict());
    }
    Ok(())
}

fn ls_refs(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    client.commit("main", "a", "1\n")?;
    client.git(&["tag", "-a", "-m", "t", "t", "main"])?;
    client.git(&["tag", "-a", "-m", "n", "n", "t"])?;
    client.git(&["push", "--quiet", "origin", "main", "main:side", "--tags"])?;
    for head in ["refs/heads/main", "refs/heads/unborn"] {
        session.set_head(head)?;
        for arguments in [
            &[][..],
            &["peel"],
            &["symrefs"],
            &["peel", "symrefs", "unborn"],
            &["unborn"],
            &["ref-prefix HEAD"],
            &["ref-prefix refs/heads/"],
            &["ref-prefix refs/heads/ma", "ref-prefix refs/tags/t", "peel"],
            &["ref-prefix refs/none", "symrefs"],
            &["ref-prefix ref", "ref-prefix refs/heads/", "symrefs", "unborn"],
        ] {
            list(session, arguments)?;
        }
    }
    Ok(())
}

fn list(session: &Session<'_>, arguments: &[&str]) -> Result<()> {
    session.record(&format!("ls-refs {arguments:?}"));
    let mut body = Vec::new();
    wire::write_packet(&mut body, b"command=ls-refs\n");
    wire::write_packet(&mut body, format!("object-format={}", session.format()).as_bytes());
    body.extend_from_slice(b"0001");
    for argument in arguments {
        wire::write_packet(&mut body, format!("{argument}\n").as_bytes());
    }
    body.extend_from_slice(b"0000");
    let answer = wire::ask(session, "git-upload-pack", "version=2", &body)?;
    ensure!(answer.status == 200, "status {}", answer.status);
    for packet in wire::packets(&answer.body)? {
        match packet {
            Packet::Data(line) => session.record(&String::from_utf8_lossy(&line)),
            other => session.record(&format!("{other:?}")),
        }
    }
    Ok(())
}

/// The oldest clients ask for nothing but a report.
fn without_side_band(session: &Session<'_>) -> Result<()> {
    let format = session.format();
    let [_, new] = publish(session)?;
    // Who says nothing of the object format means sha1.
    let both = ["report-status-v2", "report-status"].map(|report| format!("{report} object-format={format}"));
    let bare = (format == Format::Sha1).then(|| "report-status".to_owned());
    for (number, capabilities) in both.into_iter().chain(bare).enumerate() {
        let mut body = Vec::new();
        let command = format!("{} {new} refs/heads/plain{number}\0{capabilities}", format.zero());
        wire::write_packet(&mut body, command.as_bytes());
        body.extend_from_slice(b"0000");
        body.extend_from_slice(&empty_pack(format));
        let answer = wire::ask(session, "git-receive-pack", "", &body)?;
        session.record(&format!("status {}", answer.status));
        for packet in wire::packets(&answer.body)? {
            match packet {
                Packet::Data(line) => session.record(&String::from_utf8_lossy(&line)),
                other => session.record(&format!("{other:?}")),
            }
        }
    }
    Ok(())
}
