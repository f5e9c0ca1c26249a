//! Layers that clients fetch by themselves: packfile-uris and bundle-uri, by stock git and by hand.

#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod support;

use std::path::{Path, PathBuf};
use support::pair::{Pair, v2};
use support::{Answer, Server, Work};

const V2: &str = "version=2";

/// A repository with one layer in the bucket, of a push too large for the ledger, and small pushes after it.
struct Served {
    server: Server,
    work: Work,
    source: PathBuf,
}

impl Served {
    fn new(settings: &str) -> Self {
        let node = format!("git=cuesta.uriBytesMin=1000\n{settings}");
        let (server, work) = (
            Server::start_with(&["--set", &node, "--set", "uri_seconds=600"]),
            Work::new(),
        );
        let source = work.repository("source", "sha1");
        let served = Self { server, work, source };
        std::fs::write(served.source.join("big"), noise(3 << 20)).unwrap();
        std::fs::write(served.source.join("text"), text(0)).unwrap();
        served.git(&["add", "."]);
        served.git(&["commit", "-q", "-m", "large"]);
        served.git(&["tag", "-a", "-m", "t", "v1"]);
        served.push(&["main", "v1"]);
        served
    }

    fn git(&self, arguments: &[&str]) -> String {
        self.work.git_in(&self.source, arguments)
    }

    fn push(&self, what: &[&str]) {
        self.git(&[&["push", "-q", &self.url()], what].concat());
    }

    fn url(&self) -> String {
        self.server.url("a/b")
    }

    /// Clones with some configuration, and checks what came.
    fn clone(&self, name: &str, config: &[&str]) -> PathBuf {
        let path = self.work.path(name);
        let config: Vec<&str> = config.iter().flat_map(|setting| ["-c", setting]).collect();
        let url = self.url();
        self.work
            .git(&[&config[..], &["clone", "-q", &url, path.to_str().unwrap()]].concat());
        self.work.git_in(&path, &["fsck", "--full", "--strict"]);
        let head = |path: &Path| self.work.git_in(path, &["rev-parse", "HEAD"]);
        assert_eq!(head(&path), head(&self.source));
        path
    }

    /// What the URIs in an answer to a fetch of everything say: checksum and target on this server.
    fn uris(&self) -> Vec<(String, String)> {
        let want = format!("want {}", self.git(&["rev-parse", "main"]));
        let tag = format!("want {}", self.git(&["rev-parse", "v1"]));
        let arguments = [
            &want,
            &tag,
            "ofs-delta",
            "sideband-all",
            "packfile-uris http,https",
            "done",
        ];
        let answer = self.post(&v2("fetch", &[], &arguments));
        let text = String::from_utf8_lossy(&answer).into_owned();
        let lines = text.split('\n').filter_map(|line| line.split_once(" http://"));
        let own = self.server.address.to_string();
        lines
            .map(|(checksum, uri)| {
                let checksum = checksum.rsplit('\u{1}').next().unwrap().to_owned();
                (checksum, uri.strip_prefix(&own).unwrap().to_owned())
            })
            .collect()
    }

    fn post(&self, request: &[u8]) -> Vec<u8> {
        let kind = ("Content-Type", "application/x-git-upload-pack-request");
        let headers = [kind, ("Git-Protocol", V2)];
        let host = format!(
            "POST /a/b/git-upload-pack HTTP/1.0\r\nHost: {}\r\n",
            self.server.address
        );
        let mut head = headers
            .iter()
            .fold(host, |head, (name, value)| head + &format!("{name}: {value}\r\n"));
        head += &format!("Content-Length: {}\r\n\r\n", request.len());
        Answer::parse(&self.server.raw(&[head.as_bytes(), request].concat())).body
    }

    fn get(&self, target: &str, headers: &[(&str, &str)]) -> Answer {
        self.server.get("GET", target, headers)
    }

    /// The request log's lines for a service, once the server has stopped: status and bytes sent.
    fn requests(&self, service: &str) -> Vec<(u16, u64)> {
        let log = plain(&self.server.log());
        let value = |line: &str, name: &str| -> u64 {
            let rest = line.split_once(&format!("{name}=")).unwrap().1;
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap()
        };
        let named = format!("service=\"{service}\"");
        let lines = log
            .lines()
            .filter(|line| line.contains(&named) && line.contains("repo=\"a/b\""));
        let found = lines.map(|line| (value(line, "status") as u16, value(line, "bytes_out")));
        found.collect()
    }
}

/// A log without colours.
fn plain(log: &str) -> String {
    let mut out = String::new();
    let mut rest = log.chars();
    while let Some(letter) = rest.next() {
        match letter {
            '\u{1b}' => drop(rest.by_ref().find(|letter| letter.is_ascii_alphabetic())),
            letter => out.push(letter),
        }
    }
    out
}

/// Bytes that do not deflate.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut step = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| step()).collect()
}

fn text(change: u32) -> String {
    (0..2000)
        .map(|line| format!("{}\n", if line == 1000 { change } else { line }))
        .collect()
}

#[test]
fn clones_take_whole_layers_by_uri() {
    let mut served = Served::new("cuesta.packfileUris=true");
    let config = ["fetch.uriProtocols=http,https", "protocol.version=2"];
    served.clone("only", &config);
    // What is pushed later is sent, whole where its base is in what is not.
    std::fs::write(served.source.join("text"), text(7)).unwrap();
    served.git(&["commit", "-q", "-a", "-m", "small"]);
    served.push(&["main"]);
    served.clone("both", &config);
    served.clone("deaf", &["protocol.version=2"]);
    served.clone("old", &["protocol.version=0", config[0]]);
    served.server.stop();
    let layers = served.requests("payload");
    assert_eq!(layers.len(), 2, "{layers:?}");
    assert!(
        layers.iter().all(|(status, bytes)| *status == 200 && *bytes > 3 << 20),
        "{layers:?}"
    );
    let log = plain(&served.server.log());
    let fetches: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("service=\"upload-pack\""))
        .collect();
    let large = fetches.iter().filter(|line| {
        let bytes = line.split_once("bytes_out=").unwrap().1.split(' ').next().unwrap();
        bytes.parse::<u64>().unwrap() > 100_000
    });
    assert_eq!(large.count(), 2, "only those that did not ask");
}

#[test]
fn uris_are_signed_for_one_layer_and_a_while() {
    let served = Served::new("cuesta.packfileUris=server");
    let uris = served.uris();
    let [(checksum, target)] = &uris[..] else {
        panic!("{uris:?}")
    };
    assert_eq!(served.uris(), uris, "the same for all clients of a span");
    let whole = served.get(target, &[]);
    assert_eq!(whole.status, 200);
    assert_eq!(whole.header("Content-Type"), Some("application/x-git-packed-objects"));
    let cache = whole.header("Cache-Control").unwrap();
    assert!(
        cache.starts_with("public, max-age=") && cache.ends_with(", immutable"),
        "{cache}"
    );
    assert_eq!(whole.header("Content-Length"), Some(&*whole.body.len().to_string()));
    assert!(whole.body.starts_with(b"PACK"));
    let trailer: String = whole.body[whole.body.len() - 20..]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(&trailer, checksum);
    let part = served.get(target, &[("Range", "bytes=4-7")]);
    assert_eq!((part.status, &part.body[..]), (206, &whole.body[4..8]));
    let of = format!("bytes 4-7/{}", whole.body.len());
    assert_eq!(part.header("Content-Range"), Some(&*of));
    let far = served.get(target, &[("Range", &format!("bytes={}-", whole.body.len() - 3))]);
    assert_eq!((far.status, &far.body[..]), (206, &whole.body[whole.body.len() - 3..]));
    let beyond = served.get(target, &[("Range", &format!("bytes={}-", whole.body.len()))]);
    assert_eq!(beyond.status, 416);
    let head = served.server.get("HEAD", target, &[]);
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(served.server.get("PUT", target, &[]).status, 405);
    let (path, query) = target.split_once('?').unwrap();
    let forged = [
        path.to_owned(),
        format!("{path}?{}", query.replace("signature=", "signature=0")),
        format!("{path}?{}", query.replace("expires=", "expires=9")),
        format!("{}?{query}", path.replace(".pack", ".bundle")),
    ];
    for target in &forged {
        let answer = served.get(target, &[]);
        assert_eq!(answer.status, 403, "{target}");
        assert!(answer.header("Cache-Control").unwrap().contains("no-cache"));
    }
    served
        .work
        .git_in(&served.source, &["push", "-q", &served.server.url("a/other"), "main"]);
    assert_eq!(served.get(&target.replace("/a/b/", "/a/other/"), &[]).status, 403);
}

#[test]
fn layers_with_anything_hidden_or_gone_in_them_are_sent() {
    let served = Served::new("cuesta.packfileUris=server\nuploadpack.hideRefs=refs/hidden");
    assert_eq!(served.uris().len(), 1);
    served.push(&["+main:refs/hidden/x", ":v1"]);
    served.git(&["tag", "-f", "-a", "-m", "other", "v1"]);
    served.push(&["v1"]);
    // The first tag is in the layer, and no ref reaches it now.
    assert_eq!(served.uris(), []);
    served.clone("clone", &["fetch.uriProtocols=http"]);
}

/// The packets of an answer, those of the pack's band that follow one another as one: where a pack is cut means nothing, and
/// differs between one that is made and one that was kept.
fn packets(answer: &[u8]) -> Vec<Vec<u8>> {
    const PACK_BAND: u8 = 1;
    let mut packets: Vec<Vec<u8>> = Vec::new();
    let mut rest = answer;
    while let Some((length, after)) = rest.split_at_checked(4) {
        let length = usize::from_str_radix(std::str::from_utf8(length).unwrap(), 16).unwrap();
        let (packet, after) = after.split_at(length.saturating_sub(4));
        match (packets.last_mut(), packet.split_first()) {
            (Some(last), Some((&PACK_BAND, part))) if last.first() == Some(&PACK_BAND) => last.extend(part),
            _ => packets.push(packet.to_vec()),
        }
        rest = after;
    }
    packets
}

#[test]
fn who_does_not_ask_sees_no_difference() {
    let served = Served::new("uploadpack.allowSidebandAll=true");
    let want = format!("want {}", served.git(&["rev-parse", "main"]));
    let requests = [
        v2("fetch", &[], &[&want, "ofs-delta", "done"]),
        v2("fetch", &[], &[&want, "sideband-all", "done"]),
        v2("fetch", &[], &[&want, "ofs-delta", "sideband-all", "deepen 1", "done"]),
    ];
    let answers = || -> Vec<_> {
        let answer = |request: &Vec<u8>| packets(&served.post(request));
        requests.iter().map(answer).collect()
    };
    let before = answers();
    served
        .server
        .cuesta(&["repo", "config", "a/b", "cuesta.packfileUris", "true"]);
    assert!(before == answers());
    // Without the side-band, with a scheme that is not served, or where the answer is no whole history.
    let sent = |arguments: &[&str]| {
        let answer = served.post(&v2("fetch", &[], &[&[&*want, "ofs-delta", "done"], arguments].concat()));
        assert!(answer.windows(4).any(|four| four == b"PACK"));
        assert!(
            !String::from_utf8_lossy(&answer).contains("objects/layers"),
            "{arguments:?}"
        );
        answer.len() > 3 << 20
    };
    assert!(sent(&["packfile-uris http"]));
    assert!(sent(&["sideband-all", "packfile-uris https,gopher"]));
    assert!(sent(&["sideband-all", "packfile-uris http", "deepen 1"]));
}

#[test]
fn clones_begin_with_bundles() {
    let mut served = Served::new("uploadpack.advertiseBundleURIs=true");
    let listed = String::from_utf8(served.post(&v2("bundle-uri", &[], &[]))).unwrap();
    assert!(
        listed.contains("bundle.version=1") && listed.contains("bundle.mode=all"),
        "{listed}"
    );
    let target = listed.split_once(&served.server.address.to_string()).unwrap().1;
    let target = target.split(|letter: char| letter.is_whitespace()).next().unwrap();
    let target = &target[..target.find("&signature=").unwrap() + "&signature=".len() + 64];
    let bundle = served.get(target, &[]);
    assert_eq!(bundle.header("Content-Type"), Some("application/x-git-bundle"));
    let middle = served.get(target, &[("Range", "bytes=10-1000")]);
    assert_eq!(middle.body, bundle.body[10..=1000]);
    let path = served.work.path("layer.bundle");
    std::fs::write(&path, &bundle.body).unwrap();
    served.git(&["bundle", "verify", "-q", path.to_str().unwrap()]);
    std::fs::write(served.source.join("text"), text(7)).unwrap();
    served.git(&["commit", "-q", "-a", "-m", "small"]);
    served.push(&["main"]);
    let clone = served.clone("clone", &["transfer.bundleURI=true", "protocol.version=2"]);
    let refs = served.work.git_in(&clone, &["for-each-ref", "refs/bundles"]);
    assert_eq!(refs.lines().count(), 1, "{refs}");
    served.server.stop();
    let layers = served.requests("payload");
    assert!(
        layers
            .iter()
            .filter(|(status, bytes)| *status == 200 && *bytes > 3 << 20)
            .count()
            >= 2,
        "{layers:?}"
    );
    let sent = served
        .requests("upload-pack")
        .iter()
        .map(|(_, bytes)| *bytes)
        .max()
        .unwrap();
    assert!(sent < 100_000, "{sent}");
}

#[test]
fn bundles_of_the_settings_are_told_as_git_does() {
    let pair = Pair::new();
    let ask = || pair.ask("upload-pack", V2, &v2("bundle-uri", &[], &[]));
    assert!(String::from_utf8_lossy(&ask().ours).contains("ERR invalid command 'bundle-uri'"));
    pair.config("uploadpack.advertiseBundleURIs", "true");
    assert_eq!(ask().same(), "0000", "small layers are no bundles");
    for (key, value) in [
        ("bundle.mode", "any"),
        ("bundle.one.uri", "https://x/y"),
        ("bundle.version", "1"),
    ] {
        pair.config(key, value);
    }
    let sorted = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let mut lines: Vec<String> = text
            .split("bundle.")
            .map(|line| line.trim_end_matches(char::is_alphanumeric).to_owned())
            .collect();
        lines.sort();
        lines
    };
    let answers = ask();
    assert_eq!(answers.ours.len(), answers.stock.len());
    assert_eq!(sorted(&answers.ours), sorted(&answers.stock));
    let with_argument = pair.ask("upload-pack", V2, &v2("bundle-uri", &[], &["x"])).ours;
    assert!(String::from_utf8_lossy(&with_argument).contains("ERR bundle-uri: unexpected argument: 'x'"));
}

/// One file, given to whoever asks, until the test ends.
fn host(content: Vec<u8>) -> String {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
                head.push(byte[0]);
            }
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                content.len()
            );
            let _ = stream.write_all(&[answer.as_bytes(), &content].concat());
        }
    });
    format!("http://{address}/blob.pack")
}

/// `uploadpack.blobPackfileUri`, byte for byte beside stock git until the pack, and a clone.
#[test]
fn blobs_are_left_to_their_uris() {
    let pair = Pair::new();
    std::fs::write(pair.source.join("big"), noise(2 << 20)).unwrap();
    pair.git(&["add", "big"]);
    pair.git(&["commit", "-q", "-m", "big"]);
    pair.push(&["main"]);
    let blob = pair.oid("main:big");
    let input = format!("{blob}\n");
    let base = pair.work.path("blob");
    let made = ["pack-objects", "-q", base.to_str().unwrap()];
    let hash = pair
        .work
        .git_with(&pair.source, &made, input.as_bytes())
        .trim()
        .to_owned();
    let pack = std::fs::read(format!("{}-{hash}.pack", base.display())).unwrap();
    let uri = host(pack);
    let want = format!("want {}", pair.oid("main"));
    let ask = |more: &[&str]| {
        let arguments = [&[&*want, "ofs-delta", "no-progress", "done"], more].concat();
        pair.ask("upload-pack", V2, &v2("fetch", &[], &arguments))
    };
    pair.config("uploadpack.allowSidebandAll", "true");
    pair.config("uploadpack.blobPackfileUri", &format!("{blob} {hash} {uri}"));
    let answers = ask(&["sideband-all", "packfile-uris https,http"]);
    assert!(answers.ours.len() < 100_000 && answers.stock.len() < 100_000);
    let head = answers.same_before_pack();
    assert!(
        head.contains("packfile-uris\n") && head.contains(&format!("{hash} {uri}\n")),
        "{head}"
    );
    for more in [
        &["sideband-all"][..],
        &["packfile-uris http"],
        &["sideband-all", "packfile-uris https"],
    ] {
        let answers = ask(more);
        assert!(
            answers.ours.len() > 2 << 20 && answers.stock.len() > 2 << 20,
            "{more:?}"
        );
        assert!(!String::from_utf8_lossy(&answers.ours).contains(&uri), "{more:?}");
    }
    for (name, config) in [("asks", "fetch.uriProtocols=http"), ("does-not", "fetch.x=y")] {
        let path = pair.work.path(name);
        let url = pair.url();
        pair.work.git(&[
            "-c",
            config,
            "-c",
            "protocol.version=2",
            "clone",
            "-q",
            &url,
            path.to_str().unwrap(),
        ]);
        pair.work.git_in(&path, &["fsck", "--full", "--strict"]);
        assert_eq!(pair.work.git_in(&path, &["rev-parse", "HEAD:big"]), blob);
    }
    // A line of another form is none.
    pair.server.cuesta(&[
        "repo",
        "config",
        "a/b",
        "uploadpack.blobPackfileUri",
        &format!("{blob} {uri}"),
    ]);
    assert!(ask(&["sideband-all", "packfile-uris http"]).ours.len() > 2 << 20);
}
