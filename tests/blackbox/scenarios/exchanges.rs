//! Single requests, written packet by packet, and the packets of the answers: where stock git answers, Cuesta's packets are the
//! same; where stock git refuses, or falls silent, Cuesta refuses.

use super::Scenario;
use crate::session::Session;
use crate::way::Transport;
use crate::wire::{self, Packet, write_packet};
use anyhow::Result;

pub(super) const V2: &str = "version=2";
pub(super) const UPLOAD: &str = "git-upload-pack";
/// More `ref-prefix` lines than this count as none.
const PREFIXES_MAX: usize = 65_536;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("exchanges::advertisements", advertisements),
        Scenario::new("exchanges::ls_refs", ls_refs),
        Scenario::new("exchanges::many_prefixes", many_prefixes),
        Scenario::new("exchanges::negotiations", negotiations),
        Scenario::new("exchanges::boundaries", boundaries),
        Scenario::new("exchanges::wants", wants),
        Scenario::new("exchanges::frames", frames),
        Scenario::new("exchanges::v2_by_settings", v2_by_settings),
        Scenario::new("exchanges::v2_refusals", v2_refusals),
        Scenario::new("exchanges::v0_refusals", v0_refusals),
        Scenario::new("exchanges::paths", paths).over_http(),
        Scenario::new("exchanges::lengths", lengths).over_http(),
    ]
}

/// What the repository holds: `main` of three commits, the oldest first, and a tag.
struct Published {
    commits: Vec<String>,
    tag: String,
    blob: String,
}

fn publish(session: &Session<'_>) -> Result<Published> {
    let client = session.init("publisher")?;
    let commits = ["1\n", "2\n", "3\n"].map(|content| client.commit("main", "a", content));
    client.git(&["tag", "-a", "-m", "one", "annotated", "main~1"])?;
    client.git(&["branch", "side", "main~1"])?;
    client.git(&["push", "--quiet", "--mirror", "origin"])?;
    Ok(Published {
        commits: commits.into_iter().collect::<Result<_>>()?,
        tag: client.git(&["rev-parse", "annotated"])?,
        blob: client.git(&["rev-parse", "main:a"])?,
    })
}

/// The line by which a client tells the object format.
pub(super) fn told(session: &Session<'_>) -> String {
    format!("object-format={}", session.format())
}

/// Lines, with `0000` and `0001` for themselves, as packets. A line ends with a line feed unless it says otherwise with `\`.
pub(super) fn body(lines: &[&str]) -> Vec<u8> {
    let mut body = Vec::new();
    for line in lines {
        match *line {
            "0000" | "0001" | "0002" | "0004" => body.extend_from_slice(line.as_bytes()),
            _ => match line.strip_suffix('\\') {
                Some(bare) => write_packet(&mut body, bare.as_bytes()),
                None => write_packet(&mut body, format!("{line}\n").as_bytes()),
            },
        }
    }
    body
}

/// An answer as lines, without what names the software or is compressed by its own taste.
fn show(answer: &[u8]) -> Result<String> {
    // The pack begins inside a packet or, where no side-band was asked for, outside of any.
    let end = answer.windows(8).position(|window| window == b"PACK\0\0\0\x02");
    let (start, pack) = match end.map(|at| &answer[..at]) {
        Some(before) if before.ends_with(b"\x01") => (&before[..before.len() - 5], "pack on band 1\n"),
        Some(before) => (before, "pack\n"),
        None => (answer, ""),
    };
    let mut text = String::new();
    for packet in wire::packets(start)? {
        match packet {
            Packet::Data(data) if data.first() == Some(&2) => {}
            Packet::Data(data) => {
                let line = String::from_utf8_lossy(&data).replace('\0', " NUL ");
                let words = line.trim_end().split(' ').filter(|word| !word.starts_with("agent="));
                text += &words.collect::<Vec<_>>().join(" ");
                text.push('\n');
            }
            other => text += &format!("{other:?}\n"),
        }
    }
    Ok(text + pack)
}

/// Sends a request and records the answer.
pub(super) fn exchange(session: &Session<'_>, protocol: &str, lines: &[&str]) -> Result<()> {
    session.record(&format!("> {}", lines.join(" | ")));
    let answer = wire::ask(session, UPLOAD, protocol, &body(lines))?;
    session.record(&format!("{}\n{}", answer.status, show(&answer.body)?));
    Ok(())
}

/// Records whether a request was refused: by a status, an `ERR` packet or, as stock git does it, by saying nothing or not all.
pub(super) fn refusal(session: &Session<'_>, what: &str, protocol: &str, body: &[u8]) -> Result<()> {
    let answer = wire::ask(session, UPLOAD, protocol, body);
    let served = answer.is_ok_and(|answer| {
        let is_error = answer.body.windows(4).any(|window| window == b"ERR ");
        answer.status == 200 && !is_error && answer.body.ends_with(b"0000")
    });
    session.record(&format!("{what}: {}", if served { "served" } else { "refused" }));
    Ok(())
}

fn advertisements(session: &Session<'_>) -> Result<()> {
    publish(session)?;
    let mut services = vec![UPLOAD];
    if session.transport() != Transport::Git {
        services.push("git-receive-pack");
    }
    for service in services {
        for protocol in [
            "",
            "version=1",
            "version=0",
            "version=9",
            "x=1:version=1:y",
            "version=1:version=0",
        ] {
            let answer = wire::advertisement(session, service, protocol)?;
            session.record(&format!(
                "{service} '{protocol}': {}\n{}",
                answer.status,
                show(&answer.body)?
            ));
        }
    }
    Ok(())
}

fn ls_refs(session: &Session<'_>) -> Result<()> {
    publish(session)?;
    let format = told(session);
    let all: [&[&str]; 11] = [
        &[],
        &["peel"],
        &["symrefs"],
        &["peel", "symrefs", "unborn"],
        &["peel\\", "symrefs\\"],
        &["ref-prefix refs/heads/"],
        &["ref-prefix refs/heads/ma", "ref-prefix refs/heads/", "ref-prefix HEAD"],
        &["ref-prefix H"],
        &["ref-prefix refs/tags/annotated", "peel"],
        &["ref-prefix "],
        &["ref-prefix none"],
    ];
    for arguments in all {
        let lines = [&["command=ls-refs", &format, "0001"], arguments, &["0000"]].concat();
        exchange(session, V2, &lines)?;
    }
    exchange(session, V2, &["command=ls-refs", &format, "0000"])?;
    exchange(
        session,
        V2,
        &[
            "command=ls-refs",
            &format,
            "agent=x/1",
            "server-option=a",
            "server-option=b",
            "0001",
            "0000",
        ],
    )?;
    exchange(session, V2, &["0000"])
}

fn many_prefixes(session: &Session<'_>) -> Result<()> {
    publish(session)?;
    let format = told(session);
    for count in [PREFIXES_MAX - 1, PREFIXES_MAX] {
        let mut lines = vec!["command=ls-refs", &format, "0001", "ref-prefix refs/heads/side"];
        lines.resize(lines.len() + count - 1, "ref-prefix refs/none");
        lines.push("0000");
        let answer = wire::ask(session, UPLOAD, V2, &body(&lines))?;
        session.record(&format!("{count}: {}\n{}", answer.status, show(&answer.body)?));
    }
    Ok(())
}

fn negotiations(session: &Session<'_>) -> Result<()> {
    let Published { commits, blob, .. } = publish(session)?;
    let line = |verb: &str, oid: &str| format!("{verb} {oid}");
    let want = line("want", &commits[2]);
    let (have, absent) = (line("have", &commits[0]), line("have", session.format().absent()));
    let format = told(session);
    let fetch = ["command=fetch", &format, "0001"];
    let rounds: [&[&str]; 9] = [
        &[&want, "0000"],
        &[&want, &absent, "0000"],
        &[&want, &have, "0000"],
        &[&want, &absent, &have, &have, "0000"],
        &[&want, &have, "wait-for-done", "0000"],
        &[&have, &absent, "wait-for-done", "0000"],
        &[&want, "done", "0000"],
        &[&want, &have, "done", "0000"],
        &[&want, &line("have", &blob), "0000"],
    ];
    for round in rounds {
        exchange(session, V2, &[&fetch[..], round].concat())?;
    }
    for capabilities in ["", " multi_ack", " multi_ack_detailed", " multi_ack_detailed no-done"] {
        let first = format!("{want}{capabilities} side-band-64k ofs-delta");
        let rounds: [&[&str]; 6] = [
            &[&first, "0000", "done"],
            &[&first, "0000", &absent, "0000"],
            &[&first, "0000", &absent, &have, "0000"],
            &[&first, "0000", &have, "0000", &absent, "0000"],
            &[&first, "0000", &have, "done"],
            &[&first, "0000"],
        ];
        for round in rounds {
            exchange(session, "", round)?;
        }
    }
    exchange(session, "", &["0000"])
}

fn boundaries(session: &Session<'_>) -> Result<()> {
    let Published { commits, .. } = publish(session)?;
    let (format, want) = (told(session), format!("want {}", commits[2]));
    let shallow: Vec<String> = commits.iter().map(|commit| format!("shallow {commit}")).collect();
    let depths: [&[&str]; 8] = [
        &["deepen 1"],
        &["deepen 2"],
        &["deepen 100"],
        &["deepen 2147483647"],
        &[&shallow[2], "deepen 2"],
        &[&shallow[1], "deepen 1", "deepen-relative"],
        &[&shallow[2], "deepen 2147483647"],
        &["deepen-not refs/heads/side"],
    ];
    for depth in depths {
        let lines = [&["command=fetch", &format, "0001", &want], depth, &["done", "0000"]].concat();
        exchange(session, V2, &lines)?;
        // There the relative depth is a capability.
        if !depth.contains(&"deepen-relative") {
            let first = format!("{want} side-band-64k shallow deepen-not deepen-since");
            exchange(session, "", &[&[&first[..]], depth, &["0000", "done"]].concat())?;
        }
    }
    Ok(())
}

/// Who may be asked for over v0, and what is said of what is not there.
fn wants(session: &Session<'_>) -> Result<()> {
    let Published { commits, tag, .. } = publish(session)?;
    let format = told(session);
    let (zero, absent) = (session.format().zero(), session.format().absent());
    for oid in [&commits[2], &commits[1], &commits[0], &tag] {
        exchange(session, "", &[&format!("want {oid}"), "0000", "done"])?;
    }
    for lines in [
        &[&format!("want {absent}")[..], "0000", "done"][..],
        &[&format!("want {zero}"), "0000", "done"],
        &[
            &format!("want {}", commits[2]),
            &format!("want {absent}"),
            "0000",
            "done",
        ],
    ] {
        refusal(session, &lines.join(" | "), "", &body(lines))?;
        let v2 = [
            &["command=fetch", &format, "0001"],
            &lines[..lines.len() - 2],
            &["done", "0000"],
        ]
        .concat();
        refusal(session, &v2.join(" | "), V2, &body(&v2))?;
    }
    Ok(())
}

/// Bytes that are no packets, in the place of a request that would be served.
fn frames(session: &Session<'_>) -> Result<()> {
    publish(session)?;
    let good = body(&["command=ls-refs", &told(session), "0001", "0000"]);
    refusal(session, "whole", V2, &good)?;
    let cut = good.len() - 4;
    for (what, tail) in [
        ("no flush", &b""[..]),
        ("half a length", b"00"),
        ("a letter in a length", b"00zz0000"),
        ("a sign in a length", b"+0050000"),
        ("spaces in a length", b"  050000"),
        ("length 3", b"00030000"),
        ("a response end", b"00020000"),
        ("two delimiters", b"00010000"),
        ("longer than there is", b"0010peel\n"),
        ("longer than a packet may be", b"fff1peel"),
    ] {
        refusal(session, what, V2, &[&good[..cut], tail].concat())?;
    }
    Ok(())
}

/// What v2 does where settings let it.
fn v2_by_settings(session: &Session<'_>) -> Result<()> {
    let Published { commits, tag, blob } = publish(session)?;
    for (key, value) in [
        ("transfer.advertiseObjectInfo", "true"),
        ("transfer.advertiseSID", "true"),
        ("uploadpack.allowRefInWant", "true"),
    ] {
        session.set(key, value)?;
    }
    let format = told(session);
    let oids = [&commits[0], &tag, &blob].map(|oid| format!("oid {oid}"));
    for lines in [
        &[
            "command=object-info",
            &format,
            "0001",
            "size",
            &oids[0],
            &oids[1],
            &oids[2],
            "0000",
        ][..],
        &[
            "command=ls-refs",
            &format,
            "session-id=mine",
            "0001",
            "ref-prefix refs/heads/",
            "0000",
        ],
        &[
            "command=fetch",
            &format,
            "0001",
            "no-progress",
            "want-ref refs/heads/main",
            "done",
            "0000",
        ],
        &[
            "command=fetch",
            &format,
            "0001",
            "no-progress",
            "want-ref refs/heads/side",
            &format!("have {}", commits[0]),
            "0000",
        ],
    ] {
        exchange(session, V2, lines)?;
    }
    for name in ["refs/heads/none", "main"] {
        let lines = [
            "command=fetch",
            &format,
            "0001",
            &format!("want-ref {name}"),
            "done",
            "0000",
        ];
        refusal(session, name, V2, &body(&lines))?;
    }
    Ok(())
}

fn v2_refusals(session: &Session<'_>) -> Result<()> {
    let Published { commits, .. } = publish(session)?;
    let want = format!("want {}", commits[2]);
    let format = told(session);
    let fetch = |arguments: &[&str]| {
        [&["command=fetch", &format, "0001"], arguments, &["0000"]]
            .concat()
            .join("|")
    };
    let plain = |line: &str| format!("command=ls-refs|{format}|{line}");
    let cases = [
        plain("0000"),
        plain("nonsense|0001|0000"),
        plain("nonsense=1|0001|0000"),
        format!("{format}|agent=x|0001|0000"),
        format!("command=none|{format}|0001|0000"),
        format!("command=agent|{format}|0001|0000"),
        format!("command|{format}|0001|0000"),
        format!("ls-refs|{format}|0001|0000"),
        format!("command=ls-refs=x|{format}|0001|0000"),
        plain("fetch|0001|0000"),
        plain("command=fetch|0001|0000"),
        "command=ls-refs|object-format=sha256|0001|0000".to_owned(),
        "command=ls-refs|object-format=sha1|0001|0000".to_owned(),
        "command=ls-refs|0001|0000".to_owned(),
        "command=ls-refs|object-format=none|0001|0000".to_owned(),
        plain("0001|nonsense|0000"),
        format!("command=object-info|{format}|0001|size|0000"),
        format!("command=bundle-uri|{format}|0001|0000"),
        fetch(&[&want, "nonsense", "done"]),
        fetch(&["want nonsense", "done"]),
        fetch(&["want 1234", "done"]),
        fetch(&["have nonsense", "done"]),
        fetch(&["shallow nonsense", "done"]),
        fetch(&[&want, "deepen 0", "done"]),
        fetch(&[&want, "deepen -1", "done"]),
        fetch(&[&want, "deepen x", "done"]),
        fetch(&[&want, "deepen 1x", "done"]),
        fetch(&[&want, "deepen-since x", "done"]),
        fetch(&[&want, "deepen-not none", "done"]),
        fetch(&[&want, "deepen 1", "deepen-since 1", "done"]),
        fetch(&[&want, "deepen 1", "deepen-not side", "done"]),
        fetch(&[&want, "deepen-since 9999999999", "done"]),
        fetch(&[&want, "filter blob:none", "done"]),
        fetch(&["want-ref refs/heads/main", "done"]),
        fetch(&[&want, "packfile-uris https", "done"]),
        fetch(&[&want, "sideband-all", "done"]),
    ];
    for case in &cases {
        let lines: Vec<&str> = case.split('|').collect();
        refusal(session, case, V2, &body(&lines))?;
    }
    Ok(())
}

fn v0_refusals(session: &Session<'_>) -> Result<()> {
    let Published { commits, .. } = publish(session)?;
    let want = format!("want {}", commits[2]);
    let cases = [
        format!("{want} unknown-capability|0000|done"),
        "want nonsense|0000|done".to_owned(),
        "want 1234|0000|done".to_owned(),
        format!("{want}|nonsense|0000|done"),
        format!("{want}|deepen 0|0000|done"),
        format!("{want}|deepen -1|0000|done"),
        format!("{want}|deepen x|0000|done"),
        format!("{want}|deepen 1|deepen-since 1|0000|done"),
        format!("{want}|deepen-not none|0000|done"),
        format!("{want}|filter blob:none|0000|done"),
        format!("{want}|shallow nonsense|0000|done"),
        format!("{want}|0000|have nonsense|done"),
        format!("{want}|0000|nonsense"),
    ];
    for case in &cases {
        let lines: Vec<&str> = case.split('|').collect();
        refusal_v0(session, case, &body(&lines))?;
    }
    Ok(())
}

/// Over v0, without a side-band, an answer that has a pack was served.
pub(super) fn refusal_v0(session: &Session<'_>, what: &str, body: &[u8]) -> Result<()> {
    let answer = wire::ask(session, UPLOAD, "", body);
    let served = answer.is_ok_and(|answer| answer.body.windows(4).any(|window| window == b"PACK"));
    session.record(&format!("{what}: {}", if served { "served" } else { "refused" }));
    Ok(())
}

/// Spellings of a repository.
fn paths(session: &Session<'_>) -> Result<()> {
    publish(session)?;
    let path = session.path();
    let bare = path.trim_end_matches(".git").to_owned();
    for target in [
        path.clone(),
        bare.clone(),
        format!("/{path}"),
        path.replacen('/', "/../", 1),
        path.replacen('/', "/%2e%2e/", 1),
        format!("{path}%00"),
        format!("{path}/objects/../.."),
        path.to_ascii_uppercase(),
    ] {
        let head = format!("GET {target}/info/refs?service=git-upload-pack HTTP/1.1\r\n");
        let status = wire::request(session.address(), &head, b"").map_or(400, |answer| answer.status);
        let class = if status < 400 { "served" } else { "refused" };
        session.record(&format!("{}: {class}", target.escape_debug()));
    }
    Ok(())
}

/// Lengths that are not those of the body: nothing of it may be applied. (One that is more than comes is tested of Cuesta alone:
/// git-http-backend 2.47 then waits for ever, at full speed.)
fn lengths(session: &Session<'_>) -> Result<()> {
    let published = publish(session)?;
    let format = session.format();
    let line = format!(
        "{} {} refs/heads/new\0report-status",
        format.zero(),
        published.commits[0]
    );
    let mut push = body(&[&format!("{line}\\"), "0000"]);
    push.extend_from_slice(&crate::packs::Pack::new(format).finish());
    let path = session.path();
    for length in ["-1", "x", "99999999999999999999", "10"] {
        let head = format!(
            "POST {path}/git-receive-pack HTTP/1.1\r\nContent-Type: application/x-git-receive-pack-request\r\n\
             Content-Length: {length}\r\n"
        );
        wire::request_cut(session.address(), &head, &push)?;
        let client = session.init(&format!("looking-{}", length.trim_start_matches('-')))?;
        let found = client.git(&["ls-remote", "origin", "refs/heads/new"])?;
        session.record(&format!(
            "{length}: {}",
            if found.is_empty() { "nothing" } else { "applied" }
        ));
    }
    Ok(())
}
