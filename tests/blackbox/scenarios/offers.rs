//! What a server offers only where its settings say so: wants by id, sizes, bundles, packs by URI, promisor remotes.

use super::Scenario;
use super::exchanges::{UPLOAD, V2, body, exchange, refusal, refusal_v0, told};
use crate::client::Client;
use crate::session::Session;
use crate::way::Transport;
use crate::wire::{self, Packet};
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::TcpListener;

/// Size of a file that makes a layer worth a URI.
const FILE_BYTES: usize = 3 << 20;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("offers::wants", wants),
        Scenario::new("offers::object_info", object_info),
        Scenario::new("offers::include_tag", include_tag),
        Scenario::new("offers::bundles", bundles),
        Scenario::new("offers::blobs_by_uri", blobs_by_uri),
        // Clients that ask for bundles.
        Scenario::new("offers::layers_by_uri", layers_by_uri).since(|_| (2, 40)),
        Scenario::new("offers::promisor_remotes", promisor_remotes),
    ]
}

/// A repository whose objects are shown, hidden, unreachable and absent.
struct Published<'s, 'h> {
    client: Client<'s, 'h>,
    /// What shown refs name or reach, with what it is.
    shown: Vec<(&'static str, String)>,
    /// What only hidden refs, or no refs, reach.
    others: Vec<(&'static str, String)>,
}

fn publish<'s, 'h>(session: &'s Session<'h>) -> Result<Published<'s, 'h>> {
    let client = session.init("publisher")?;
    for content in ["1\n", "2\n", "3\n"] {
        client.commit("main", "a", content)?;
    }
    client.git(&["tag", "-a", "-m", "one", "one", "main~1"])?;
    for branch in ["secret", "gone"] {
        client.git(&["branch", branch, "main"])?;
        client.commit(branch, branch, "1\n")?;
        client.commit(branch, branch, "2\n")?;
    }
    client.git(&[
        "push",
        "--quiet",
        "origin",
        "main",
        "one",
        "secret:refs/secret/x",
        "gone",
    ])?;
    client.git(&["push", "--quiet", "origin", ":gone"])?;
    session.set("transfer.hideRefs", "refs/secret")?;
    let named = |names: [(&'static str, &str); 3]| -> Result<Vec<_>> {
        let found = names.into_iter();
        found
            .map(|(what, name)| Ok((what, client.git(&["rev-parse", name])?)))
            .collect()
    };
    let shown = named([("tip", "main"), ("tag", "one"), ("below a tip", "main~2")])?;
    let others = named([
        ("hidden tip", "secret"),
        ("below a hidden tip", "secret~1"),
        ("unreachable", "gone"),
    ])?;
    Ok(Published { client, shown, others })
}

/// Who may be asked for by id, over v0 and v2. Stock git's v2 serves all that it has: of hidden and unreachable objects Cuesta
/// asserts for itself that v2 is bound as v0 is.
fn wants(session: &Session<'_>) -> Result<()> {
    let Published { client, shown, others } = publish(session)?;
    let absent = vec![("absent", session.format().absent().to_owned())];
    const TIP: &str = "uploadpack.allowTipSHA1InWant";
    const REACHABLE: &str = "uploadpack.allowReachableSHA1InWant";
    const ANY: &str = "uploadpack.allowAnySHA1InWant";
    // What is set in turn, and how many of the others may be wanted over v2 from then on.
    let steps = [
        (TIP, "false", 0),
        (TIP, "true", 2),
        (REACHABLE, "true", 2),
        (TIP, "false", 2),
        (ANY, "true", 3),
    ];
    for (step, (key, value, served)) in steps.into_iter().enumerate() {
        session.set(key, value)?;
        session.record(&format!("== {key}={value}"));
        for (what, oid) in shown.iter().chain(&others).chain(&absent) {
            let request = body(&[&format!("want {oid}"), "0000", "done"]);
            refusal_v0(session, &format!("v0, {what}"), &request)?;
        }
        for (what, oid) in shown.iter().chain(&absent) {
            refusal(session, &format!("v2, {what}"), V2, &fetch(session, oid))?;
        }
        for (number, (what, oid)) in others.iter().enumerate().filter(|_| session.is_cuesta()) {
            let answer = wire::ask(session, UPLOAD, V2, &fetch(session, oid))?;
            let is_served = answer.body.windows(4).any(|window| window == b"PACK");
            ensure!(is_served == (number < served), "v2, {what}: {is_served}");
        }
        for (number, (what, oid)) in others.iter().enumerate() {
            let asking = session.init(&format!("asking-{step}-{number}"))?;
            let fetched = asking.output(&["-c", "protocol.version=0", "fetch", "--quiet", "origin", oid])?;
            let is_there = asking.output(&["cat-file", "-e", oid])?.status.success();
            let code = fetched.status.code().context("git was killed")?;
            session.record(&format!("git, {what}: exit {code}, fetched {is_there}"));
        }
    }
    client.record_objects()
}

/// A request of v2 for one object.
fn fetch(session: &Session<'_>, oid: &str) -> Vec<u8> {
    let (format, want) = (told(session), format!("want {oid}"));
    body(&["command=fetch", &format, "0001", &want, "done", "0000"])
}

/// Sizes of what may be fetched, told without it.
fn object_info(session: &Session<'_>) -> Result<()> {
    let Published { client, shown, others } = publish(session)?;
    let format = told(session);
    let blob = client.git(&["rev-parse", "main:a"])?;
    let tree = client.git(&["rev-parse", "main^{tree}"])?;
    let line = |oid: &str| format!("oid {oid}");
    let [commit, tag] = [&shown[0].1, &shown[1].1].map(|oid| line(oid));
    let (blob, tree, absent) = (line(&blob), line(&tree), line(session.format().absent()));
    let ask = |arguments: &[&str]| body(&[&["command=object-info", &format, "0001"], arguments, &["0000"]].concat());
    refusal(session, "not offered", V2, &ask(&["size", &blob]))?;
    session.set("transfer.advertiseObjectInfo", "true")?;
    for arguments in [
        &["size", &blob][..],
        &["size", &commit, &tag, &tree, &blob, &blob],
        &[&commit, &blob, "size"],
        &["size", &absent],
        &["size", &absent, &blob],
        &[&blob],
        &[&absent],
        &["size"],
        &[],
    ] {
        exchange(
            session,
            V2,
            &[&["command=object-info", &format, "0001"], arguments, &["0000"]].concat(),
        )?;
    }
    for arguments in [&["size", "oid nonsense"][..], &["size", "oid"], &["type", &blob]] {
        refusal(session, &arguments.join(" "), V2, &ask(arguments))?;
    }
    for (what, oid) in others.iter().filter(|_| session.is_cuesta()) {
        let answer = wire::ask(session, UPLOAD, V2, &ask(&["size", &line(oid)]))?;
        let told = answer.body.ends_with(format!("{oid} 0000").as_bytes());
        ensure!(told, "{what}: {}", answer.body.escape_ascii());
    }
    Ok(())
}

/// Which tags come with what they tag, through tags that no ref names.
fn include_tag(session: &Session<'_>) -> Result<()> {
    let client = session.init("publisher")?;
    for content in ["1\n", "2\n"] {
        client.commit("main", "a", content)?;
    }
    client.git(&["branch", "side", "main~1"])?;
    client.commit("side", "b", "1\n")?;
    for (name, target) in [
        ("one", "main"),
        ("two", "one"),
        ("three", "two"),
        ("old", "main~1"),
        ("older", "old"),
        ("aside", "side"),
        ("aside-too", "aside"),
        ("tree", "main^{tree}"),
        ("tree-too", "tree"),
        ("blob", "main:a"),
    ] {
        client.git(&["tag", "-a", "-m", name, name, target])?;
    }
    client.git(&["tag", "-d", "two", "tree", "old"])?;
    client.git(&["push", "--quiet", "--mirror", "origin"])?;
    let want = format!("want {}", client.git(&["rev-parse", "main"])?);
    let have = format!("have {}", client.git(&["rev-parse", "main~1"])?);
    let (format, first) = (told(session), format!("{want} side-band-64k ofs-delta no-progress"));
    let with_tags = format!("{first} include-tag");
    for (number, (protocol, lines)) in [
        (
            V2,
            &["command=fetch", &format, "0001", &want, "include-tag", "done", "0000"][..],
        ),
        (
            V2,
            &[
                "command=fetch",
                &format,
                "0001",
                &want,
                &have,
                "include-tag",
                "done",
                "0000",
            ],
        ),
        (V2, &["command=fetch", &format, "0001", &want, "done", "0000"]),
        ("", &[&with_tags, "0000", "done"]),
        ("", &[&with_tags, "0000", &have, "done"]),
        ("", &[&first, "0000", "done"]),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = wire::ask(session, UPLOAD, protocol, &body(lines))?;
        let taker = session.init(&format!("taker-{number}"))?;
        // Deltas may need what the client said to have.
        taker.git(&["fetch", "--quiet", "--no-tags", "origin", "side:base"])?;
        taker.feed(&["index-pack", "--stdin"], &pack_of(&answer.body)?)?;
        let listed = taker.git(&[
            "cat-file",
            "--batch-all-objects",
            "--batch-check=%(objecttype) %(objectname)",
        ])?;
        session.record(&format!("== {}", lines.join(" | ")));
        listed
            .lines()
            .filter(|line| line.starts_with("tag "))
            .for_each(|line| session.record(line));
    }
    Ok(())
}

/// The pack of an answer: what came on the first band.
fn pack_of(answer: &[u8]) -> Result<Vec<u8>> {
    let mut pack = Vec::new();
    for packet in wire::packets(answer)? {
        if let Packet::Data(data) = packet
            && let Some((1, part)) = data.split_first()
        {
            pack.extend_from_slice(part);
        }
    }
    ensure!(pack.starts_with(b"PACK"), "no pack");
    Ok(pack)
}

/// A bundle list of the settings, told by the command, and a clone that begins with what it names.
fn bundles(session: &Session<'_>) -> Result<()> {
    let client = session.init("publisher")?;
    let mut history = session.history(71);
    history.tangle("b", 3, 40);
    client.import(&history)?;
    client.git(&["branch", "main", "b0"])?;
    client.git(&["push", "--quiet", "--mirror", "origin"])?;
    let path = session.root().join("half.bundle");
    let path = path.to_str().context("no text")?;
    client.git(&["branch", "half", "b0~5"])?;
    client.git(&["bundle", "create", "--quiet", path, "refs/heads/half"])?;
    let request = ["command=bundle-uri", &told(session), "0001", "0000"];
    refusal(session, "not offered", V2, &body(&request))?;
    session.set("uploadpack.advertiseBundleURIs", "true")?;
    exchange(session, V2, &request)?;
    for (key, value) in [
        ("bundle.version", "1"),
        ("bundle.mode", "all"),
        ("bundle.heuristic", "creationToken"),
        ("bundle.half.uri", &format!("file://{path}")),
        ("bundle.half.creationToken", "1"),
    ] {
        session.set(key, value)?;
    }
    let lines = |answer: &[u8]| -> Result<Vec<String>> {
        let mut lines: Vec<_> = wire::packets(answer)?
            .iter()
            .map(|packet| match packet {
                Packet::Data(data) => String::from_utf8_lossy(data).into_owned(),
                other => format!("{other:?}"),
            })
            .collect();
        // Stock git tells them in the order of its tables.
        lines.sort_unstable();
        Ok(lines)
    };
    let answer = wire::ask(session, UPLOAD, V2, &body(&request))?;
    lines(&answer.body)?.iter().for_each(|line| session.record(line));
    for unfit in [
        ["command=bundle-uri", &told(session), "0001", "x", "0000"],
        ["command=bundle-uri", &told(session), "x", "0001", "0000"],
    ] {
        refusal(session, &unfit.join(" | "), V2, &body(&unfit))?;
    }
    for (name, setting) in [("with", "true"), ("without", "false")] {
        let setting = format!("transfer.bundleURI={setting}");
        let clone = session.clone_with(
            &["-c", &setting, "-c", "protocol.version=2"],
            name,
            &["--quiet", "--bare"],
        )?;
        clone.record_state()?;
    }
    Ok(())
}

/// A file that no layer holds for little, committed to `main` and pushed; its blob.
fn publish_large(client: &Client<'_, '_>) -> Result<String> {
    let mut content = vec![0; FILE_BYTES];
    fastrand::Rng::with_seed(3).fill(&mut content);
    let blob = client.feed_line(&["hash-object", "-w", "--stdin"], &content)?;
    let tree = client.feed_line(&["mktree"], format!("100644 blob {blob}\tlarge\n").as_bytes())?;
    let commit = client.git(&["commit-tree", "-m", "large", &tree])?;
    client.git(&["update-ref", "refs/heads/main", &commit])?;
    client.git(&["push", "--quiet", "origin", "main"])?;
    Ok(blob)
}

/// One blob is left to a URI of the settings, and everybody gets all.
fn blobs_by_uri(session: &Session<'_>) -> Result<()> {
    let client = session.init("publisher")?;
    let blob = publish_large(&client)?;
    let base = session.root().join("blob");
    let base = base.to_str().context("no text")?;
    let hash = client.feed_line(&["pack-objects", "-q", base], format!("{blob}\n").as_bytes())?;
    let uri = give(std::fs::read(format!("{base}-{hash}.pack"))?)?;
    session.set("uploadpack.allowSidebandAll", "true")?;
    session.set("uploadpack.blobPackfileUri", &format!("{blob} {hash} {uri}"))?;
    let (format, want) = (told(session), format!("want {}", client.git(&["rev-parse", "main"])?));
    for arguments in [
        &["sideband-all", "packfile-uris https,http"][..],
        &["sideband-all"],
        &["packfile-uris http"],
        &["sideband-all", "packfile-uris https"],
    ] {
        let lines = [
            &["command=fetch", &format, "0001", &want, "no-progress", "ofs-delta"],
            arguments,
            &["done", "0000"],
        ];
        let answer = wire::ask(session, UPLOAD, V2, &body(&lines.concat()))?.body;
        let tells = answer.windows(uri.len()).any(|window| window == uri.as_bytes());
        let has_all = answer.len() > FILE_BYTES;
        session.record(&format!(
            "{}: told {tells}, sent whole {has_all}",
            arguments.join(" | ")
        ));
    }
    for protocols in ["http,https", "https", ""] {
        let setting = format!("fetch.uriProtocols={protocols}");
        let name = format!("clone-{protocols}");
        let clone = session.clone_with(
            &["-c", &setting, "-c", "protocol.version=2"],
            &name,
            &["--quiet", "--bare"],
        )?;
        clone.record_state()?;
    }
    Ok(())
}

/// Gives one file to whoever asks, until this process ends; its URI.
fn give(content: Vec<u8>) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let uri = format!("http://{}/blob.pack", listener.local_addr()?);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        content.len()
    );
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (mut asked, mut byte) = (Vec::new(), [0]);
            while !asked.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
                asked.extend_from_slice(&byte);
            }
            let _ = stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(&content));
        }
    });
    Ok(uri)
}

/// Whole layers as bundles and as packs, which stock git has not: what a clone holds is the same. Over SSH a server does not know
/// by what name it is reached over HTTP.
fn layers_by_uri(session: &Session<'_>) -> Result<()> {
    let client = session.init("publisher")?;
    publish_large(&client)?;
    client.commit("main", "small", "1\n")?;
    client.git(&["push", "--quiet", "origin", "main"])?;
    for (key, value) in [
        ("uploadpack.advertiseBundleURIs", "true"),
        ("cuesta.packfileUris", "true"),
        ("cuesta.uriBytesMin", "1000"),
    ] {
        session.set(key, value)?;
    }
    let is_reached = session.is_cuesta() && session.transport() == Transport::Http;
    let request = ["command=bundle-uri", &told(session), "0001", "0000"];
    let listed = wire::ask(session, UPLOAD, V2, &body(&request))?;
    let count = |needle: &[u8]| listed.body.windows(needle.len()).filter(|part| *part == needle).count();
    ensure!(
        count(b".uri=") == usize::from(is_reached),
        "{}",
        listed.body.escape_ascii()
    );
    ensure!(count(b"bundle.mode=all") == usize::from(is_reached), "no mode");
    for (name, settings) in [
        ("bundle", ["transfer.bundleURI=true", "fetch.uriProtocols="]),
        ("pack", ["transfer.bundleURI=false", "fetch.uriProtocols=http,https"]),
        ("both", ["transfer.bundleURI=true", "fetch.uriProtocols=http,https"]),
        ("neither", ["transfer.bundleURI=false", "fetch.uriProtocols="]),
    ] {
        let target = session.root().join(name);
        let target = target.to_str().context("no text")?;
        let [bundle, uris] = settings;
        let url = session.url();
        let arguments = [
            "-c",
            bundle,
            "-c",
            uris,
            "-c",
            "protocol.version=2",
            "clone",
            "--quiet",
            "--bare",
        ];
        client.git(&[&arguments[..], &[&url, target]].concat())?;
        let clone = Client::new(session, name);
        let begun = clone.git(&["for-each-ref", "refs/bundles"])?;
        let expected = is_reached && bundle.ends_with("true");
        ensure!(begun.is_empty() != expected, "{name} began with '{begun}'");
        clone.record_objects()?;
        clone.git(&["fsck", "--full", "--strict"])?;
    }
    Ok(())
}

/// gitprotocol-v2, `promisor-remote`. Git knows it from 2.49 on: an older stock server tells nothing, so that the line itself is
/// held against the specification, and only what clients get against stock git.
fn promisor_remotes(session: &Session<'_>) -> Result<()> {
    let client = session.init("publisher")?;
    client.commit("main", "a", "1\n")?;
    client.git(&["push", "--quiet", "origin", "main"])?;
    for (key, value) in [
        ("remote.big.url", "https://host/a;b,c%20 d"),
        ("remote.big.promisor", "true"),
        ("remote.plain.url", "https://host/plain"),
    ] {
        session.set(key, value)?;
    }
    let told_of = || -> Result<Option<String>> {
        let advertised = wire::advertisement(session, UPLOAD, V2)?;
        let lines = wire::packets(&advertised.body)?
            .into_iter()
            .filter_map(|packet| match packet {
                Packet::Data(data) => Some(String::from_utf8_lossy(&data).trim_end().to_owned()),
                _ => None,
            });
        let mut remotes = lines.filter_map(|line| Some(line.strip_prefix("promisor-remote=")?.to_owned()));
        Ok(remotes.next())
    };
    let request = ["command=ls-refs", &told(session), "promisor-remote=big", "0001", "0000"];
    ensure!(told_of()?.is_none(), "told without leave");
    refusal(session, "not offered", V2, &body(&request))?;
    session.set("promisor.advertise", "true")?;
    if session.is_cuesta() {
        let remotes = told_of()?;
        let expected = "name=big,url=https://host/a%3bb%2cc%2520%20d";
        ensure!(remotes.as_deref() == Some(expected), "{remotes:?}");
        let answer = wire::ask(session, UPLOAD, V2, &body(&request))?;
        ensure!(answer.body.windows(4).any(|part| part == b"main"), "an accepted remote");
    }
    let accepting = ["-c", "promisor.acceptFromServer=all", "-c", "protocol.version=2"];
    session
        .clone_with(&accepting, "clone", &["--quiet", "--bare"])?
        .record_state()
}
