//! What fetches are offered and answered by hand, byte for byte beside `git upload-pack`, and where ours is to be better.

#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod support;

use support::empty_pack;
use support::pair::{Pair, lines, v2};

const V2: &str = "version=2";
const V0: &str = "version=0";

/// Asks for `want` over v2, all else at its least.
fn fetch(want: &str) -> Vec<u8> {
    v2("fetch", &[], &[&format!("want {want}"), "no-progress", "done"])
}

fn fetch_v0(want: &str) -> Vec<u8> {
    [lines(&[&format!("want {want}")]), b"00000009done\n".to_vec()].concat()
}

/// The text of an `ERR` packet.
fn refusal(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    text.get(4..)
        .and_then(|text| text.strip_prefix("ERR "))
        .unwrap_or_else(|| panic!("{text}"))
        .to_owned()
}

#[test]
fn settings_make_the_same_offers() {
    let pair = Pair::new();
    let without_agents = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let words = text.split([' ', '\n']).filter(|word| !word.contains("agent="));
        // The length before the line of the agent, too.
        words
            .map(|word| word.trim_start_matches("000").to_owned())
            .collect::<Vec<_>>()
    };
    let check = |what: &str| {
        for (service, version) in [("upload-pack", V0), ("upload-pack", V2), ("receive-pack", V0)] {
            let answers = pair.advertisements(service, version);
            let [ours, stock] = [&answers.ours, &answers.stock].map(|bytes| {
                let mut words = without_agents(bytes);
                // Lengths differ with the agents.
                words.iter_mut().for_each(|word| {
                    *word = word.split('\0').next_back().unwrap().to_owned();
                });
                // Older versions of git leave the value out.
                words
                    .iter_mut()
                    .filter(|word| word.contains("object-info"))
                    .for_each(|word| *word = "object-info".to_owned());
                words.retain(|word| !word.contains("session-id=") && word.len() != 44);
                words
            });
            assert_eq!(ours, stock, "{what}: {service} {version}");
        }
    };
    check("defaults");
    for (key, value) in [
        ("uploadpack.allowRefInWant", "true"),
        ("uploadpack.allowSidebandAll", "yes"),
        ("transfer.advertiseObjectInfo", "1"),
        ("transfer.advertiseSID", "true"),
        ("uploadpack.allowFilter", "on"),
        ("uploadpack.allowTipSHA1InWant", "true"),
        ("uploadpack.allowReachableSHA1InWant", "true"),
        ("lsrefs.unborn", "allow"),
        (
            "uploadpack.blobPackfileUri",
            "78981922613b2afb6025042ff6bd878ac1994e85 78981922613b2afb6025042ff6bd878ac1994e85 https://x/y",
        ),
        ("receive.advertiseAtomic", "false"),
        ("receive.advertisePushOptions", "true"),
        ("repack.useDeltaBaseOffset", "false"),
        ("transfer.hideRefs", "refs/secret"),
    ] {
        pair.config(key, value);
        check(key);
    }
    let answer = pair.advertisements("upload-pack", V2);
    assert!(String::from_utf8_lossy(&answer.ours).contains("session-id="));
}

#[test]
fn settings_of_the_node_hold_where_a_repository_has_none() {
    let server = support::Server::start_with(&[
        "--set",
        "git=uploadpack.allowFilter=true\nUploadpack.hideRefs=refs/secret",
    ]);
    let work = support::Work::new();
    let source = work.repository("source", "sha1");
    work.git_in(
        &source,
        &["push", "-q", &server.url("a/b"), "main", "main:refs/secret/x"],
    )
    .clear();
    let offers = |what: &str| {
        let offer = server.get(
            "GET",
            "/a/b/info/refs?service=git-upload-pack",
            &[("Git-Protocol", "version=0")],
        );
        offer.text().contains(what)
    };
    assert!(offers(" filter ") && !offers("refs/secret/x"));
    server.cuesta(&["repo", "config", "a/b", "uploadpack.allowFilter", "false"]);
    server.cuesta(&["repo", "config", "a/b", "uploadpack.hideRefs", ""]);
    assert!(!offers(" filter ") && offers("refs/secret/x"));
}

#[test]
fn refs_are_wanted_by_name() {
    let pair = Pair::new();
    let ask = |arguments: &[&str]| pair.ask("upload-pack", V2, &v2("fetch", &[], arguments));
    assert!(refusal(&ask(&["want-ref refs/heads/main", "no-progress", "done"]).ours).contains("unexpected line"));
    pair.config("uploadpack.allowRefInWant", "true");
    pair.config("transfer.hideRefs", "refs/secret");
    for (name, revision) in [("refs/heads/main", "main"), ("HEAD", "main"), ("refs/tags/v1", "v1")] {
        let section = ask(&[&format!("want-ref {name}"), "no-progress", "done"]).same_before_pack();
        assert!(
            section.contains("wanted-refs\n0") && section.contains(&pair.oid(revision)),
            "{section}"
        );
    }
    for arguments in [
        &["want-ref refs/heads/none", "done"][..],
        &["want-ref refs/secret/x", "no-progress", "done"],
        &["want-ref main", "no-progress", "done"],
        &[
            "want-ref refs/heads/main",
            "want-ref refs/heads/main",
            "no-progress",
            "done",
        ],
    ] {
        let text = refusal(ask(arguments).same().as_bytes());
        assert!(
            text.starts_with("unknown ref ") || text.starts_with("duplicate want-ref "),
            "{text}"
        );
    }
    // Both sections, in the order of the specification: stock git sends them in the other, which its client cannot read.
    let both = ask(&["want-ref refs/heads/main", "deepen 1", "no-progress", "done"]).ours;
    let both = String::from_utf8_lossy(&both);
    let at = |section: &str| both.find(section).unwrap();
    assert!(at("shallow-info\n") < at("wanted-refs\n") && at("wanted-refs\n") < at("packfile\n"));
    // A client that has it all, and the negotiation before.
    let have = format!("have {}", pair.oid("main"));
    let acknowledged = ask(&["want-ref refs/heads/main", "no-progress", &have]).same_before_pack();
    assert!(acknowledged.contains("ready\n0001"), "{acknowledged}");
}

#[test]
fn everything_goes_over_the_side_band_if_asked() {
    let pair = Pair::new();
    pair.config("uploadpack.allowSidebandAll", "true");
    let main = format!("want {}", pair.oid("main"));
    let ask = |arguments: &[&str]| pair.ask("upload-pack", V2, &v2("fetch", &[], arguments));
    ask(&["sideband-all", &main, "no-progress", "done"]).same_before_pack();
    let unknown = format!("want {}", "1".repeat(40));
    let refused = ask(&["sideband-all", &unknown, "no-progress", "done"]).same();
    assert!(
        refused.starts_with("0046\u{3}upload-pack: not our ref 1111"),
        "{refused}"
    );
}

#[test]
fn sizes_are_told_without_objects() {
    let pair = Pair::new();
    let object = |revision: &str| format!("oid {}", pair.oid(revision));
    let unknown = format!("oid {}", "1".repeat(40));
    let ask = |arguments: &[&str]| pair.ask("upload-pack", V2, &v2("object-info", &[], arguments));
    assert_eq!(refusal(&ask(&["size"]).ours), "invalid command 'object-info'");
    pair.config("transfer.advertiseObjectInfo", "true");
    let shown: Vec<String> = ["main", "main:file", "main^{tree}", "v1", "main~1:file", "secret"]
        .map(object)
        .into();
    let mut arguments: Vec<&str> = shown.iter().map(String::as_str).collect();
    ask(&arguments).same();
    arguments.insert(0, "size");
    arguments.push(&unknown);
    ask(&arguments).same();
    ask(&["size"]).same();
    // Stock git tells of everything it has.
    pair.config("transfer.hideRefs", "refs/secret");
    let hidden = [
        object("secret"),
        object("secret:file"),
        object("gone:file"),
        object("gone"),
    ];
    let arguments: Vec<&str> = hidden.iter().map(String::as_str).collect();
    let answer = String::from_utf8(ask(&arguments).ours).unwrap();
    // Behind each is the next packet: nothing is told of any.
    assert_eq!(answer.matches(" 00").count(), 4, "{answer}");
    for line in &hidden {
        assert!(answer.contains(&format!("{} ", &line[4..])), "{answer}");
    }
}

#[test]
fn what_may_be_wanted_follows_the_settings_in_every_version() {
    let pair = Pair::new();
    pair.config("transfer.hideRefs", "refs/secret");
    let served = |version: &str, revision: &str| {
        let oid = pair.oid(revision);
        let request = if version == V2 { fetch(&oid) } else { fetch_v0(&oid) };
        let answers = pair.ask("upload-pack", version, &request);
        let has_pack = |bytes: &[u8]| bytes.windows(4).any(|four| four == b"PACK");
        if !has_pack(&answers.ours) {
            assert_eq!(refusal(&answers.ours), format!("upload-pack: not our ref {oid}"));
        }
        (has_pack(&answers.ours), has_pack(&answers.stock))
    };
    let all = [
        "main",
        "v1",
        "main~1",
        "main~1^{tree}",
        "main~2:file",
        "secret",
        "secret:file",
        "gone",
        "gone:file",
    ];
    // Stock git's v0 lets wants pass that are no commits; its v2 lets everything pass.
    let expect = |allowed: &[&str]| {
        for revision in all {
            for version in [V0, V2] {
                let (ours, stock) = served(version, revision);
                assert_eq!(ours, allowed.contains(&revision), "{revision} over {version}");
                if version == V0 && !revision.contains(':') && !revision.contains('{') {
                    assert_eq!(ours, stock, "{revision} over {version}");
                }
            }
        }
    };
    let shown = ["main", "v1", "main~1", "main~1^{tree}", "main~2:file"];
    let hidden = [&shown[..], &["secret", "secret:file"]].concat();
    expect(&shown);
    pair.config("uploadpack.allowTipSHA1InWant", "true");
    expect(&hidden);
    pair.config("uploadpack.allowTipSHA1InWant", "false");
    pair.config("uploadpack.allowReachableSHA1InWant", "true");
    expect(&hidden);
    pair.config("uploadpack.allowAnySHA1InWant", "true");
    expect(&all);
}

#[test]
fn nothing_of_another_repository_is_given_or_taken() {
    let pair = Pair::new();
    pair.config("uploadpack.allowAnySHA1InWant", "true");
    pair.git(&["checkout", "-q", "-b", "elsewhere"]);
    pair.work.commit(&pair.source, "elsewhere", "another's\n");
    pair.git(&["push", "-q", &pair.server.url("a/other"), "elsewhere"]);
    for revision in ["elsewhere", "elsewhere^{tree}", "elsewhere:file"] {
        let oid = pair.oid(revision);
        for (version, request) in [(V0, fetch_v0(&oid)), (V2, fetch(&oid))] {
            let answers = pair.ask("upload-pack", version, &request);
            assert_eq!(refusal(&answers.ours), format!("upload-pack: not our ref {oid}"));
        }
    }
    let (want, oid) = (format!("want {}", pair.oid("main")), pair.oid("elsewhere"));
    let have = format!("have {oid}");
    let asked = v2("fetch", &[], &[&want, "no-progress", "wait-for-done", &have]);
    assert!(pair.ask("upload-pack", V2, &asked).same().contains("NAK"));
    // Nor can a ref be pointed at it by who only knows its name.
    let line = format!("{} {oid} refs/heads/claimed\0report-status", "0".repeat(40));
    let command = format!("{:04x}{line}0000", line.len() + 4);
    let answers = pair.ask("receive-pack", V0, &[command.as_bytes(), &empty_pack()].concat());
    assert!(
        answers
            .same()
            .contains("ng refs/heads/claimed missing necessary objects")
    );
}

#[test]
fn a_have_is_acknowledged_only_if_a_shown_ref_reaches_it() {
    let pair = Pair::new();
    let ask = |version: &str, oid: &str| {
        let (want, have) = (format!("want {}", pair.oid("main")), format!("have {oid}"));
        let request = if version == V2 {
            v2("fetch", &[], &[&want, "no-progress", "wait-for-done", &have])
        } else {
            let want = format!("{want} multi_ack_detailed");
            [lines(&[&want]), b"0000".to_vec(), lines(&[&have]), b"0000".to_vec()].concat()
        };
        pair.ask("upload-pack", version, &request)
    };
    let is_acknowledged = |answer: &[u8]| String::from_utf8_lossy(answer).contains("ACK ");
    let shown = ["main", "main~1", "v1", "main~1^{tree}", "main~2:file"];
    let others = ["secret", "secret:file", "gone", "gone^{tree}"];
    for version in [V0, V2] {
        for revision in [&shown[..], &others].concat() {
            let answers = ask(version, &pair.oid(revision));
            assert!(is_acknowledged(&answers.ours), "{revision} over {version}");
            assert!(is_acknowledged(&answers.stock), "{revision} over {version}");
            // Of what is no commit, and clients never say, stock git's v0 does not see where it leads; of a commit it looks
            // at its parents at once, whether the client said that it has them or not.
            if ["main", "main~1"].contains(&revision) {
                answers.same();
            }
        }
    }
    pair.config("transfer.hideRefs", "refs/secret");
    for version in [V0, V2] {
        for revision in shown {
            let answers = ask(version, &pair.oid(revision));
            assert!(is_acknowledged(&answers.ours), "{revision} over {version}");
        }
        let unknown = ask(version, &"1".repeat(40)).same();
        for revision in others {
            let answers = ask(version, &pair.oid(revision));
            assert!(is_acknowledged(&answers.stock));
            assert_eq!(answers.ours, unknown.as_bytes(), "{revision} over {version}");
        }
    }
    // Nor does a boundary of what is not shown tell anything: stock git says what kind of object it is.
    let deepen = |oid: &str| {
        let (want, shallow) = (format!("want {}", pair.oid("main")), format!("shallow {oid}"));
        let arguments = [&*want, &shallow, "deepen 2", "no-progress", "done"];
        pair.ask("upload-pack", V2, &v2("fetch", &[], &arguments))
    };
    let unknown = deepen(&"1".repeat(40)).ours;
    for revision in others {
        assert_eq!(deepen(&pair.oid(revision)).ours, unknown, "{revision}");
    }
    assert_ne!(deepen(&pair.oid("main")).ours, unknown);
    // Who may ask for it by id may learn that it is there.
    pair.config("uploadpack.allowTipSHA1InWant", "true");
    ask(V2, &pair.oid("secret")).same();
}

/// gitprotocol-v2, `promisor-remote`; git before 2.49 does not know it.
#[test]
fn promisor_remotes_are_offered_where_they_are_to_be() {
    let pair = Pair::new();
    let set = |key: &str, value: &str| pair.server.cuesta(&["repo", "config", "a/b", key, value]);
    let offered = || {
        let text = String::from_utf8_lossy(&pair.advertisements("upload-pack", V2).ours).into_owned();
        let line = text.split_once("promisor-remote=").map(|(_, rest)| rest.to_owned());
        line.map(|rest| rest.lines().next().unwrap().to_owned())
    };
    let ask = || {
        let request = v2("ls-refs", &["promisor-remote=big"], &["ref-prefix HEAD"]);
        pair.ask("upload-pack", V2, &request).ours
    };
    for (key, value) in [
        ("remote.big.url", "https://host/a;b,c%20 d"),
        ("remote.big.promisor", "true"),
        ("remote.no-url.promisor", "true"),
        ("remote.plain.url", "https://host/plain"),
        ("remote.Small.url", "https://host/small"),
        ("remote.Small.partialCloneFilter", "blob:none"),
        ("remote.Small.token", "s3cret"),
    ] {
        set(key, value);
    }
    assert_eq!(offered(), None);
    assert!(refusal(&ask()).contains("unknown capability"));
    set("promisor.advertise", "true");
    let big = "name=big,url=https://host/a%3bb%2cc%2520%20d";
    assert_eq!(offered().unwrap(), format!("name=Small,url=https://host/small;{big}"));
    assert!(
        String::from_utf8_lossy(&ask()).contains("HEAD"),
        "what a client accepts changes nothing: all is here"
    );
    set("promisor.sendFields", "partialCloneFilter, token");
    let small = "name=Small,url=https://host/small,partialCloneFilter=blob:none,token=s3cret";
    assert_eq!(offered().unwrap(), format!("{small};{big}"));
}

#[test]
fn hidden_tags_do_not_come_with_what_they_tag() {
    let pair = Pair::new();
    pair.git(&["tag", "-a", "-m", "t", "hidden-tag"]);
    pair.push(&["hidden-tag"]);
    let want = format!("want {}", pair.oid("main"));
    let count = |bytes: &[u8]| {
        let at = bytes.windows(4).position(|four| four == b"PACK").unwrap();
        u32::from_be_bytes(bytes[at + 8..at + 12].try_into().unwrap())
    };
    let ask = || {
        let arguments = [&*want, "include-tag", "no-progress", "done"];
        let answers = pair.ask("upload-pack", V2, &v2("fetch", &[], &arguments));
        (count(&answers.ours), count(&answers.stock))
    };
    let (ours, stock) = ask();
    assert_eq!(ours, stock, "both tags");
    pair.config("transfer.hideRefs", "refs/tags/hidden-tag");
    assert_eq!(ask(), (ours - 1, stock), "stock git sends the hidden one, too");
}

#[test]
fn banned_filters_are_refused_in_gits_words() {
    let pair = Pair::new();
    pair.config("uploadpack.allowFilter", "true");
    let want = format!("want {}", pair.oid("main"));
    let ask = |filter: &str| {
        let answers = pair.ask(
            "upload-pack",
            V2,
            &v2(
                "fetch",
                &[],
                &[&want, &format!("filter {filter}"), "no-progress", "done"],
            ),
        );
        let has_pack = |bytes: &[u8]| bytes.windows(4).any(|four| four == b"PACK");
        assert_eq!(has_pack(&answers.ours), has_pack(&answers.stock), "{filter}");
        if has_pack(&answers.ours) {
            String::new()
        } else {
            refusal(answers.same().as_bytes())
        }
    };
    let taken = [
        "blob:none",
        "blob:limit=1k",
        "tree:1",
        "object:type=blob",
        "combine:tree:1+blob:none",
    ];
    taken.iter().for_each(|filter| assert_eq!(ask(filter), ""));
    pair.config("uploadpackfilter.blob:none.allow", "false");
    assert_eq!(ask("blob:none"), "filter 'blob:none' not supported");
    assert_eq!(
        ask("combine:tree:1+combine:blob:limit=1+blob%3anone"),
        "filter 'blob:none' not supported"
    );
    pair.config("uploadpackfilter.tree.maxDepth", "2");
    assert_eq!(ask("tree:2"), "");
    assert_eq!(
        ask("combine:tree:3+blob:limit=1"),
        "tree filter allows max depth 2, but got 3"
    );
    pair.config("uploadpackfilter.allow", "false");
    assert_eq!(ask("object:type=tree"), "filter 'object:type' not supported");
    assert_eq!(ask("combine:tree:1+tree:1"), "filter 'combine' not supported");
    assert_eq!(ask("tree:1"), "");
}

#[test]
fn clients_names_and_options_are_logged_as_one_value() {
    let mut pair = Pair::new();
    pair.config("transfer.advertiseSID", "true");
    let tricky = "server-option=a\"; status=200 \u{1b}[31m";
    let request = v2(
        "ls-refs",
        &["session-id=client-1", "server-option=plain", tricky],
        &["ref-prefix HEAD"],
    );
    pair.ask("upload-pack", V2, &request).same();
    let wrong = v2("ls-refs", &["server-option"], &[]);
    pair.ask("upload-pack", V2, &wrong).same();
    pair.server.stop();
    let log = pair.server.log();
    let line = log.lines().find(|line| line.contains("client-1")).expect("not logged");
    assert!(!line.contains('\u{1b}'), "{line}");
    assert!(
        line.contains("client-1") && line.contains("plain") && line.contains("x1b[31m"),
        "{line}"
    );
}

#[test]
fn requests_that_stock_git_answers_with_nothing_are_refused_in_words() {
    let pair = Pair::new();
    let long = "x".repeat(300);
    for request in [
        v2("fetch", &[], &["want nothing"]),
        v2("none", &[], &[]),
        v2("ls-refs", &["object-format=sha256"], &[]),
        v2("ls-refs", &["session-id=x"], &[]),
        v2("ls-refs", &[], &[&long]),
        lines(&["hello"]),
        b"0003".to_vec(),
        b"zzzz".to_vec(),
        b"0014command=ls-refs\n".to_vec(),
    ] {
        let answers = pair.ask("upload-pack", V2, &request);
        let text = refusal(&answers.ours);
        assert!(!text.is_empty() && !text.chars().any(char::is_control), "{text}");
    }
}
