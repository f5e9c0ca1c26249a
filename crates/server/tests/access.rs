//! Who may do what, over real HTTP: the table of PROTOCOL's section 3.6, and what users of stock git see.

#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod support;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::path::Path;
use std::process::Output;
use support::{Answer, Server, Work};

const ACCOUNTS: [&str; 2] = ["--set", "authentication=accounts"];
const ARCHIVE: &str = "application/x-git-upload-archive-request";
const UPLOAD: &str = "application/x-git-upload-pack-request";
const RECEIVE: &str = "application/x-git-receive-pack-request";

/// A server with users, and the repositories `owner/private` and `owner/public`.
struct Site {
    server: Server,
}

impl Site {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(flags: &[&str]) -> Self {
        let server = Server::start_with(&[&ACCOUNTS[..], flags].concat());
        for command in [
            "user add root --admin",
            "user add owner",
            "user add reader",
            "repo create owner/private",
            "repo create owner/public",
            "access grant owner/private reader read",
            "access public owner/public read",
        ] {
            server.cuesta(&command.split(' ').collect::<Vec<_>>());
        }
        Self { server }
    }

    fn user(&self, name: &str) {
        self.server.cuesta(&["user", "add", name]);
    }

    fn token(&self, user: &str, flags: &[&str]) -> String {
        let arguments = [&["token", "create", user][..], flags].concat();
        self.server.cuesta(&arguments).trim().to_owned()
    }

    /// The advertisement for a fetch.
    fn refs(&self, repository: &str, authorization: &str) -> Answer {
        let target = format!("/{repository}/info/refs?service=git-upload-pack");
        self.server.get("GET", &target, &[("Authorization", authorization)])
    }

    /// Advertisement and POST of both services.
    fn requests(&self, repository: &str, authorization: Option<&str>) -> [Answer; 4] {
        let get = |service: &str| {
            let target = format!("/{repository}/info/refs?service={service}");
            let headers: Vec<_> = authorization.iter().map(|value| ("Authorization", *value)).collect();
            self.server.get("GET", &target, &headers)
        };
        let post = |service: &str, kind: &str| {
            let mut headers = vec![("Content-Type", kind)];
            headers.extend(authorization.iter().map(|value| ("Authorization", *value)));
            self.server
                .request("POST", &format!("/{repository}/{service}"), &headers, b"0000")
        };
        [
            get("git-upload-pack"),
            get("git-receive-pack"),
            post("git-upload-pack", UPLOAD),
            post("git-receive-pack", RECEIVE),
        ]
    }

    fn statuses(&self, repository: &str, authorization: Option<&str>) -> [u16; 4] {
        self.requests(repository, authorization).map(|answer| answer.status)
    }
}

fn basic(user: &str, token: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{token}")))
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

const ALL: [u16; 4] = [200; 4];
const READS: [u16; 4] = [200, 403, 200, 403];
const MAKES: [u16; 4] = [404, 200, 404, 200];
const HIDDEN: [u16; 4] = [404; 4];
const WHO: [u16; 4] = [401; 4];

#[test]
fn the_table_of_who_gets_what() {
    let site = Site::start();
    for name in ["writer", "stranger"] {
        site.user(name);
    }
    site.server
        .cuesta(&["access", "grant", "owner/private", "writer", "write"]);
    assert_eq!(site.statuses("owner/private", None), WHO);
    assert_eq!(site.statuses("owner/public", None), [200, 401, 200, 401]);
    assert_eq!(site.statuses("owner/absent", None), WHO);
    let revoked = site.token("owner", &[]);
    let ids = site.server.cuesta(&["token", "list", "owner"]);
    let id = ids.lines().nth(1).unwrap().split(' ').next().unwrap();
    site.server.cuesta(&["token", "revoke", id]);
    // A private repository, a public one, a free name of `owner`, and a free name of nobody.
    let table = [
        ("stranger", site.token("stranger", &[]), [HIDDEN, READS, HIDDEN, HIDDEN]),
        ("reader", site.token("reader", &[]), [READS, READS, HIDDEN, HIDDEN]),
        ("writer", site.token("writer", &[]), [ALL, READS, HIDDEN, HIDDEN]),
        ("owner", site.token("owner", &[]), [ALL, ALL, MAKES, HIDDEN]),
        ("administrator", site.token("root", &[]), [ALL, ALL, MAKES, MAKES]),
        (
            "scope read",
            site.token("owner", &["--scope", "read"]),
            [READS, READS, HIDDEN, HIDDEN],
        ),
        (
            "other repository",
            site.token("owner", &["--repo", "owner/public"]),
            [HIDDEN, ALL, HIDDEN, HIDDEN],
        ),
        ("revoked", revoked, [WHO, WHO, WHO, WHO]),
    ];
    let names = ["owner/private", "owner/public", "owner/absent", "elsewhere/absent"];
    for (who, token, expected) in &table {
        for authorization in [basic("", token), basic("anybody", token), bearer(token)] {
            for (name, expected) in names.iter().zip(expected) {
                let got = site.statuses(name, Some(&authorization));
                // Guesses are slowed down; a revoked token is one.
                let expected = if got.contains(&429) { got } else { *expected };
                assert_eq!(got, expected, "{who}: {name} by {}", &authorization[..6]);
            }
        }
        if *who != "revoked" {
            assert!(
                site.server.cuesta(&["repo", "list"]).lines().count() == 2,
                "{who} has made something"
            );
        }
    }
}

#[test]
fn challenges_refusals_and_texts() {
    let site = Site::start();
    let reader = basic("reader", &site.token("reader", &[]));
    let [refs, ..] = site.requests("owner/private", None);
    assert_eq!(refs.header("www-authenticate"), Some("Basic realm=\"Cuesta\""));
    assert_eq!(refs.text(), "authentication is required\n");
    assert!(refs.header("content-type").unwrap().starts_with("text/plain"));
    let [_, push, ..] = site.requests("owner/private", Some(&reader));
    assert_eq!(
        (push.status, push.text().as_str()),
        (403, "you may read this repository, but not change it\n")
    );
    assert_eq!(push.header("www-authenticate"), None);
    let wrong = site.refs("owner/public", &basic("reader", "hunter2"));
    assert_eq!(wrong.status, 401, "wrong credentials are wrong for what is public, too");
    assert!(wrong.header("www-authenticate").is_some());
    for malformed in ["Basic", "Digest x", "Basic !!"] {
        assert_eq!(
            site.requests("owner/public", Some(malformed))[0].status,
            401,
            "{malformed}"
        );
    }
}

/// All that comes back, but for the request's own name and the time.
fn bytes_of(server: &Server, request: &str) -> String {
    let answer = String::from_utf8(server.raw(request.as_bytes())).unwrap();
    let own = |line: &&str| !line.starts_with("x-request-id:") && !line.starts_with("date:");
    answer.lines().filter(own).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_hidden_and_the_absent_answer_alike_to_the_byte() {
    let mut site = Site::start_with(&["--set", "log_format=json"]);
    site.user("stranger");
    let stranger = basic("stranger", &site.token("stranger", &[]));
    let limited = bearer(&site.token("owner", &["--repo", "owner/public"]));
    for authorization in ["", &stranger, &limited] {
        let line = match authorization {
            "" => String::new(),
            value => format!("Authorization: {value}\r\n"),
        };
        for (method, rest, kind) in [
            ("GET", "info/refs?service=git-upload-pack", ""),
            ("GET", "info/refs?service=git-receive-pack", ""),
            ("HEAD", "info/refs?service=git-upload-pack", ""),
            ("GET", "info/refs", ""),
            ("GET", "HEAD", ""),
            ("GET", "objects/info/packs", ""),
            ("GET", "objects/aa/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", ""),
            ("POST", "git-upload-archive", ARCHIVE),
            ("POST", "git-upload-pack", UPLOAD),
            ("POST", "git-receive-pack", RECEIVE),
            ("POST", "git-receive-pack", "text/plain"),
            ("DELETE", "git-upload-pack", UPLOAD),
        ] {
            let ask = |name: &str| {
                let head = format!("{method} /{name}/{rest} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{line}");
                let body = format!("Content-Type: {kind}\r\nContent-Length: 4\r\n\r\n0000");
                bytes_of(
                    &site.server,
                    &if kind.is_empty() { head + "\r\n" } else { head + &body },
                )
            };
            assert_eq!(
                ask("owner/private"),
                ask("owner/nothing"),
                "{method} {rest} {authorization}"
            );
        }
    }
    // Nor does one of them take another way: both are decided from what is in memory.
    assert!(site.server.stop().success());
    let log = site.server.log();
    let requests = |name: &str| -> Vec<_> {
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let of_name = lines.filter(|line| line["repo"] == name && line["message"] == "request");
        let told = ["service", "status", "bytes_in", "bytes_out", "bucket_requests"];
        of_name.map(|line| told.map(|field| line[field].to_string())).collect()
    };
    let hidden = requests("owner/private");
    assert!(hidden.len() > 20, "{log}");
    assert!(
        hidden.iter().all(|[.., bucket_requests]| bucket_requests == "0"),
        "{hidden:?}"
    );
    assert_eq!(hidden, requests("owner/nothing"));
}

#[test]
fn archives_are_for_users_and_files_for_readers() {
    let site = Site::start();
    let reader = basic("reader", &site.token("reader", &[]));
    let archive = |name: &str, authorization: &[(&str, &str)]| {
        let headers = [&[("Content-Type", ARCHIVE)][..], authorization].concat();
        let target = format!("/{name}/git-upload-archive");
        site.server
            .request("POST", &target, &headers, b"0013argument --list0000")
            .status
    };
    assert_eq!(archive("owner/private", &[("Authorization", &reader)]), 200);
    assert_eq!(archive("owner/private", &[]), 401);
    assert_eq!(archive("owner/public", &[]), 403, "as in stock, where nobody is known");
    let list = |name: &str, authorization: &[(&str, &str)]| {
        site.server
            .get("GET", &format!("/{name}/objects/info/packs"), authorization)
            .status
    };
    assert_eq!(list("owner/private", &[("Authorization", &reader)]), 200);
    assert_eq!(list("owner/private", &[]), 401);
    assert_eq!(list("owner/public", &[]), 200);
}

#[test]
fn what_ends_ends_at_once() {
    let site = Site::start();
    let token = bearer(&site.token("reader", &[]));
    let fetch = || site.refs("owner/private", &token).status;
    assert_eq!(fetch(), 200);
    site.server.cuesta(&["access", "revoke", "owner/private", "reader"]);
    assert_eq!(fetch(), 404);
    site.server.cuesta(&["access", "public", "owner/private", "read"]);
    assert_eq!(fetch(), 200);
    site.server.cuesta(&["user", "remove", "reader"]);
    assert_eq!(fetch(), 401);
    site.server.cuesta(&["user", "add", "reader"]);
    assert_eq!(fetch(), 401, "a name used again inherits no token");
}

#[test]
fn roles_go_with_the_repository_and_not_with_its_name() {
    let site = Site::start();
    let reader = bearer(&site.token("reader", &[]));
    let fetch = |name: &str| site.refs(name, &reader).status;
    site.server
        .cuesta(&["repo", "rename", "owner/private", "owner/renamed"]);
    assert_eq!((fetch("owner/renamed"), fetch("owner/private")), (200, 404));
    site.server.cuesta(&["repo", "create", "owner/private"]);
    assert_eq!(fetch("owner/private"), 404, "a name used again inherits no role");
    site.server.cuesta(&["repo", "delete", "owner/renamed"]);
    assert_eq!(fetch("owner/renamed"), 404);
}

#[test]
fn guessing_is_slowed_down() {
    let site = Site::start();
    let guess = bearer(&"x".repeat(40));
    let answers: Vec<Answer> = (0..30)
        .map(|_| {
            site.server.get(
                "GET",
                "/owner/private/info/refs?service=git-upload-pack",
                &[("Authorization", &guess)],
            )
        })
        .collect();
    let refused: Vec<&Answer> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert!(!refused.is_empty() && answers[0].status == 401);
    assert!(answers.iter().all(|answer| [401, 429].contains(&answer.status)));
    for answer in refused {
        let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds) && answer.text().starts_with("too many failed attempts"));
    }
    assert_eq!(
        site.requests("owner/public", None)[0].status,
        200,
        "who guesses nothing is not slowed down"
    );
}

fn helper(token: &str) -> String {
    format!("credential.helper=!f() {{ echo username=x; echo password={token}; }}; f")
}

/// Runs git with a token that its helper knows; none if it is empty.
fn git(work: &Work, directory: &Path, token: &str, arguments: &[&str]) -> Output {
    let helper = helper(token);
    let credential = if token.is_empty() { vec![] } else { vec!["-c", &helper] };
    work.try_git_in(directory, &[&credential[..], arguments].concat())
}

fn error_of(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn stock_git_with_a_credential_helper() {
    let mut site = Site::start();
    let work = Work::new();
    let repository = work.repository("work", "sha1");
    let owner = site.token("owner", &["--name", "laptop"]);
    let run = |token: &str, arguments: &[&str]| git(&work, &repository, token, arguments);
    let done = |token: &str, arguments: &[&str]| {
        let output = run(token, arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    for name in ["owner/private", "owner/public.git"] {
        done(&owner, &["push", &site.server.url(name), "main"]);
        let target = work.path(&name.replace('/', "-"));
        done(&owner, &["clone", &site.server.url(name), target.to_str().unwrap()]);
        assert_eq!(
            work.git_in(&target, &["rev-parse", "HEAD"]),
            work.git_in(&repository, &["rev-parse", "HEAD"])
        );
    }
    for version in ["0", "1", "2"] {
        let version = format!("protocol.version={version}");
        done("", &["-c", &version, "ls-remote", &site.server.url("owner/public")]);
        let refused = error_of(&run(
            "",
            &["-c", &version, "ls-remote", &site.server.url("owner/private")],
        ));
        assert!(refused.contains("could not read Username"), "{refused}");
    }
    let header = format!("http.extraHeader=Authorization: Bearer {owner}");
    done("", &["-c", &header, "ls-remote", &site.server.url("owner/private")]);
    done(&owner, &["push", &site.server.url("owner/first"), "main"]);
    assert_eq!(
        site.server.cuesta(&["access", "show", "owner/first"]),
        "(everyone) none\nowner admin\nroot admin (of everything)\n"
    );
    assert!(site.server.stop().success());
    let log = site.server.log();
    assert!(log.contains("user=\"owner\"") || log.contains("user=owner"), "{log}");
    let secret = owner.strip_prefix("cuesta_").unwrap();
    assert!(
        !log.contains(secret) && !log.contains(&STANDARD.encode(format!("x:{owner}"))),
        "a token is in the log"
    );
}

#[test]
fn what_users_of_stock_git_see_of_refusals() {
    let site = Site::start();
    site.user("stranger");
    let work = Work::new();
    let repository = work.repository("work", "sha1");
    let (reader, stranger) = (site.token("reader", &[]), site.token("stranger", &[]));
    let refused = |token: &str, arguments: &[&str]| error_of(&git(&work, &repository, token, arguments));
    let private = site.server.url("owner/private");
    let shown = refused(&reader, &["push", &private, "main"]);
    assert!(
        shown.contains("remote: you may read this repository, but not change it"),
        "{shown}"
    );
    assert!(shown.contains("The requested URL returned error: 403"), "{shown}");
    for url in [&private, &site.server.url("owner/absent")] {
        for verb in [&["ls-remote", url][..], &["push", url, "main"]] {
            let shown = refused(&stranger, verb);
            assert!(
                shown.contains("remote: repository not found") && shown.contains("not found"),
                "{shown}"
            );
        }
    }
    let shown = refused("wrong", &["ls-remote", &private]);
    assert!(
        shown.contains("remote: the token is not valid, has expired or was revoked"),
        "{shown}"
    );
    assert!(shown.contains("Authentication failed for"), "{shown}");
    let shown = refused("", &["push", &site.server.url("owner/public"), "main"]);
    assert!(shown.contains("could not read Username"), "{shown}");
}

#[test]
fn commands_refuse_what_makes_no_sense() {
    let site = Site::start();
    let refused = |arguments: &str, text: &str| {
        let output = site.server.try_cuesta(&arguments.split(' ').collect::<Vec<_>>());
        let shown = error_of(&output);
        assert!(shown.contains(text), "{arguments}: {shown}");
    };
    refused("user add owner", "user 'owner' already exists");
    refused("user add Owner", "could be mistaken for user 'owner'");
    refused("user add a/b", "not a valid user name");
    refused("user remove nobody", "user 'nobody' not found");
    refused("token create nobody", "user 'nobody' not found");
    refused("token create owner --expires 1w", "expected '12h', '30d' or 'never'");
    refused(
        "token create owner --repo owner/absent",
        "repository 'owner/absent' not found",
    );
    refused("token revoke 0123456789abcdef", "token 0123456789abcdef not found");
    refused("token revoke x", "'x' is no token id");
    refused("access grant owner/private nobody read", "user 'nobody' not found");
    refused(
        "access grant owner/absent owner read",
        "repository 'owner/absent' not found",
    );
    refused("access public owner/private admin", "invalid value 'admin'");
    refused("key remove SHA256:x", "not found");
}

#[test]
fn keys_are_kept_by_their_fingerprints() {
    let site = Site::start();
    let work = Work::new();
    let line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f ann@laptop\n";
    std::fs::write(work.path("key.pub"), line).unwrap();
    let file = work.path("key.pub");
    let added = site.server.cuesta(&["key", "add", "owner", file.to_str().unwrap()]);
    assert_eq!(added, "SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA\n");
    let again = site
        .server
        .try_cuesta(&["key", "add", "reader", file.to_str().unwrap()]);
    assert!(error_of(&again).contains("the key is already that of user 'owner'"));
    let listed = site.server.cuesta(&["key", "list", "owner"]);
    assert!(listed.contains("owner  ssh-ed25519  ann@laptop"), "{listed}");
    site.server.cuesta(&["key", "remove", added.trim()]);
    assert_eq!(site.server.cuesta(&["key", "list"]).lines().count(), 1);
}

#[test]
fn new_repositories_are_as_public_as_the_settings_say() {
    let site = Site::start_with(&["--set", "new_repositories=public"]);
    let work = Work::new();
    let repository = work.repository("work", "sha1");
    let pushed = git(
        &work,
        &repository,
        &site.token("owner", &[]),
        &["push", &site.server.url("owner/new"), "main"],
    );
    assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
    assert_eq!(site.statuses("owner/new", None), [200, 401, 200, 401]);
}

#[test]
fn tls_with_our_own_certificate() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls");
    let (certificate, key) = (
        format!("tls_certificate={directory}/first.crt"),
        format!("tls_key={directory}/first.key"),
    );
    let site = Site::start_with(&["--set", &certificate, "--set", &key]);
    let work = Work::new();
    let repository = work.repository("work", "sha1");
    let owner = site.token("owner", &[]);
    let url = format!("https://{}/owner/private", site.server.address);
    let authority = format!("http.sslCAInfo={directory}/first.crt");
    for http in ["http.version=HTTP/1.1", "http.version=HTTP/2"] {
        let tip = work.commit(&repository, http, http);
        let pushed = git(
            &work,
            &repository,
            &owner,
            &["-c", &authority, "-c", http, "push", &url, "main"],
        );
        assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
        let listed = git(
            &work,
            &repository,
            &owner,
            &["-c", &authority, "-c", http, "ls-remote", &url, "main"],
        );
        assert!(String::from_utf8_lossy(&listed.stdout).starts_with(&tip));
    }
    let stranger = format!("http.sslCAInfo={directory}/second.crt");
    let refused = error_of(&git(&work, &repository, &owner, &["-c", &stranger, "ls-remote", &url]));
    assert!(refused.contains("certificate"), "{refused}");
    assert!(
        !site.server.raw(b"GET /healthz HTTP/1.0\r\n\r\n").starts_with(b"HTTP"),
        "plain HTTP where TLS is spoken"
    );
}

/// Needs an address of this machine that is not loopback.
#[test]
fn credentials_in_the_clear_are_refused_and_not_asked_for() {
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let outside = probe.connect("192.0.2.1:9").and_then(|()| probe.local_addr());
    let Some(outside) = outside.ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback()) else {
        eprintln!("skipped: no address but loopback");
        return;
    };
    let listen = format!("{outside}:0");
    for (proxy, expected) in [
        ("behind_tls_proxy=false", [403, 403, 200]),
        ("behind_tls_proxy=true", [401, 200, 200]),
    ] {
        let site = Site::start_with(&["--listen", &listen, "--set", proxy]);
        let token = bearer(&site.token("owner", &[]));
        let anonymous = site.requests("owner/private", None)[0].status;
        let known = site.requests("owner/private", Some(&token))[0].status;
        let public = site.requests("owner/public", None)[0].status;
        assert_eq!([anonymous, known, public], expected, "{proxy}");
    }
}
