//! Push options, signed pushes and symbolic refs, by stock git and by hand, beside stock git's receive-pack.

#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod support;

use std::process::Command;
use support::empty_pack;
use support::pair::Pair;

/// A push of a new branch at `main`, by hand: nothing needs to be sent.
fn branch(pair: &Pair, name: &str, capabilities: &str) -> Vec<u8> {
    packet(&format!(
        "{} {} {name}\0{capabilities}",
        "0".repeat(40),
        pair.oid("main")
    ))
}

fn packet(line: &str) -> Vec<u8> {
    format!("{:04x}{line}", line.len() + 4).into_bytes()
}

#[test]
fn push_options_are_taken_and_logged_as_one_value() {
    let mut pair = Pair::new();
    let push = |option: &str| {
        let arguments = ["push", "-q", "-o", option, &pair.url(), "main:refs/heads/options"];
        pair.work.try_git_in(&pair.source, &arguments)
    };
    let refused = push("a");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("does not support push options"));
    pair.config("receive.advertisePushOptions", "true");
    assert!(push("ci.skip=\"; status=500 \u{1b}[0m").status.success());
    // With a deletion alone there are options, too, and no pack.
    let main = pair.oid("main");
    let delete = format!(
        "{main} {} refs/heads/options\0report-status push-options",
        "0".repeat(40)
    );
    let request = [packet(&delete), b"0000".to_vec(), packet("last\n"), b"0000".to_vec()].concat();
    let answer = pair.server.request(
        "POST",
        "/a/b/git-receive-pack",
        &[("Content-Type", "application/x-git-receive-pack-request")],
        &request,
    );
    assert_eq!(answer.text(), "000eunpack ok\n001aok refs/heads/options\n0000");
    pair.server.stop();
    let log = pair.server.log();
    assert!(!log.contains('\u{1b}'));
    let logged = |part: &str| log.lines().any(|line| line.contains("options") && line.contains(part));
    assert!(logged("ci.skip") && logged("x1b[0m") && logged("last"), "{log}");
}

#[test]
fn too_many_options_are_refused_before_the_pack_is_looked_at() {
    let pair = Pair::new();
    pair.config("receive.advertisePushOptions", "true");
    let push = |option_len: usize, count: usize| {
        let option = packet(&"x".repeat(option_len)).repeat(count);
        let commands = branch(
            &pair,
            &format!("refs/heads/o{option_len}-{count}"),
            "report-status push-options",
        );
        let request = [commands, b"0000".to_vec(), option, b"0000".to_vec(), empty_pack()].concat();
        let kind = ("Content-Type", "application/x-git-receive-pack-request");
        pair.server
            .request("POST", "/a/b/git-receive-pack", &[kind], &request)
            .text()
    };
    for (len, count, taken) in [
        (64 << 10 >> 1, 8, true),
        (64 << 10 >> 1, 9, false),
        (1, 1024, true),
        (1, 1025, false),
    ] {
        let answer = push(len, count);
        assert_eq!(answer.contains("unpack ok"), taken, "{len} x {count}: {answer}");
        assert_eq!(answer.contains("ERR too many"), !taken, "{len} x {count}: {answer}");
    }
}

#[test]
fn symbolic_refs_are_pushed_to_as_to_stock_git() {
    let pair = Pair::new();
    pair.work
        .git_in(&pair.stock, &["symbolic-ref", "HEAD", "refs/heads/main"]);
    let old = pair.oid("main");
    let new = pair.work.commit(&pair.source, "fourth", "four\n");
    let kinds = "report-status-v2 object-format=sha1";
    // HEAD is the symbolic ref that both sides have.
    let pack = {
        pair.push(&["main:refs/heads/there"]);
        empty_pack()
    };
    let request = |commands: &[String]| {
        let lines = commands.iter().enumerate().map(|(at, line)| match at {
            0 => packet(&format!("{line}\0{kinds}")),
            _ => packet(line),
        });
        [lines.collect::<Vec<_>>().concat(), b"0000".to_vec(), pack.clone()].concat()
    };
    for commands in [
        vec![format!("{old} {new} HEAD")],
        vec![
            format!("{old} {new} refs/heads/main"),
            format!("{} {new} refs/heads/x", "0".repeat(40)),
        ],
    ] {
        pair.ask("receive-pack", "", &request(&commands)).same();
    }
}

/// Signs with a key of its own, as a user would have it set up.
fn signing(pair: &Pair) {
    let key = pair.work.ssh_key();
    pair.git(&["config", "gpg.format", "ssh"]);
    pair.git(&["config", "user.signingkey", key.to_str().unwrap()]);
}

fn signed_push(pair: &Pair, to: &str, more: &[&str]) -> (bool, String) {
    let url = pair.url();
    let to = format!("main:{to}");
    let arguments = [&["push", "--signed"], more, &[&url, &to]].concat();
    let output = pair.work.try_git_in(&pair.source, &arguments);
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn signed_pushes_are_taken_with_a_nonce_of_ours() {
    let mut pair = Pair::new();
    signing(&pair);
    let (taken, said) = signed_push(&pair, "refs/heads/signed", &[]);
    assert!(!taken && said.contains("does not support --signed"), "{said}");
    pair.config("receive.certNonceSeed", "sekrit");
    pair.config("receive.certNonceSlop", "3600");
    pair.config("receive.advertisePushOptions", "true");
    let (taken, said) = signed_push(&pair, "refs/heads/signed", &["-o", "one", "-o", "two"]);
    assert!(taken, "{said}");
    assert_eq!(listed(&pair, "refs/heads/signed"), pair.oid("main"));
    // A repository that the push makes.
    let elsewhere = pair.server.url("a/new");
    let server = support::Server::start_with(&["--set", "git=receive.certNonceSeed=x\nreceive.certNonceSlop=60"]);
    let made = server.url("a/made");
    let output = pair
        .work
        .try_git_in(&pair.source, &["push", "-q", "--signed", &made, "main"]);
    assert!(
        output.status.success(),
        "{elsewhere}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    pair.server.stop();
    let log = pair.server.log();
    assert!(
        log.lines()
            .any(|line| line.contains("certificate") && line.contains("OK")),
        "{log}"
    );
}

#[test]
fn signatures_are_held_against_the_keys_of_users() {
    let mut pair = Pair::new();
    signing(&pair);
    pair.config("receive.certNonceSeed", "sekrit");
    pair.config("receive.certNonceSlop", "3600");
    assert!(
        signed_push(&pair, "refs/heads/unknown", &[]).0,
        "nobody's key is taken, as by stock"
    );
    pair.config("cuesta.certRequired", "true");
    let refused = |what: &str, (taken, said): (bool, String)| assert!(!taken && said.contains(what), "{said}");
    let not_known = "push certificate is not signed by a known user's key";
    refused(not_known, signed_push(&pair, "refs/heads/refused", &[]));
    pair.server.cuesta(&["user", "add", "ann"]);
    let key = pair.work.path("key.pub");
    pair.server.cuesta(&["key", "add", "ann", key.to_str().unwrap()]);
    let (taken, said) = signed_push(&pair, "refs/heads/known", &[]);
    assert!(taken, "{said}");
    assert_eq!(listed(&pair, "refs/heads/known"), pair.oid("main"));
    let unsigned = pair.work.try_git_in(
        &pair.source,
        &["push", &pair.url(), "main:refs/heads/refused", ":refs/heads/known"],
    );
    let said = String::from_utf8_lossy(&unsigned.stderr).into_owned();
    refused(
        "signed push required (git push --signed)",
        (unsigned.status.success(), said),
    );
    // A signature that is not of these commands.
    let nonce = offered_nonce(&pair);
    let forged = certified(&pair, "refs/heads/refused", Some(&nonce), [&[], &[]]);
    let kind = ("Content-Type", "application/x-git-receive-pack-request");
    let answer = pair.server.request("POST", "/a/b/git-receive-pack", &[kind], &forged);
    assert!(
        answer.text().contains(&format!("ng refs/heads/refused {not_known}")),
        "{}",
        answer.text()
    );
    pair.config("receive.certNonceSeed", "");
    let unsigned = pair
        .work
        .try_git_in(&pair.source, &["push", &pair.url(), "main:refs/heads/refused"]);
    let said = String::from_utf8_lossy(&unsigned.stderr).into_owned();
    refused("receive.certNonceSeed is not set", (unsigned.status.success(), said));
    assert_eq!(listed(&pair, "refs/heads/refused"), "");
    pair.server.stop();
    let log = pair.server.log();
    let fingerprint = Command::new("ssh-keygen").arg("-lf").arg(&key).output().unwrap().stdout;
    let fingerprint = String::from_utf8(fingerprint).unwrap();
    let fingerprint = fingerprint.split(' ').nth(1).unwrap();
    assert!(
        log.contains(&format!("G ann {fingerprint}")) && log.contains(&format!("U {fingerprint}")),
        "{log}"
    );
}

/// A keyring with one key, and a program for git that signs by it.
struct Gpg {
    home: tempfile::TempDir,
}

impl Gpg {
    /// `None` where there is no gpg.
    fn new() -> Option<Self> {
        Command::new("gpg").arg("--version").output().ok()?;
        // Its agent listens in there, on a socket whose path must be short.
        let gpg = Self {
            home: tempfile::Builder::new().prefix("gpg").tempdir_in("/tmp").unwrap(),
        };
        gpg.run(&[
            "--quick-generate-key",
            "Ann <ann@example.org>",
            "ed25519",
            "sign,cert",
            "never",
        ]);
        let program = format!(
            "#!/bin/sh\nexec gpg --homedir '{}' --batch --pinentry-mode loopback --passphrase '' \"$@\"\n",
            gpg.home.path().display()
        );
        std::fs::write(gpg.program(), program).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(gpg.program(), executable).unwrap();
        Some(gpg)
    }

    fn program(&self) -> std::path::PathBuf {
        self.home.path().join("program")
    }

    fn run(&self, arguments: &[&str]) -> Vec<u8> {
        let mut gpg = Command::new("gpg");
        gpg.arg("--homedir").arg(self.home.path());
        gpg.args(["--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]);
        let output = gpg.args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    fn fingerprint(&self) -> String {
        let listed = String::from_utf8(self.run(&["--with-colons", "--list-keys"])).unwrap();
        let line = listed.lines().find(|line| line.starts_with("fpr:")).unwrap();
        line.split(':').nth(9).unwrap().to_owned()
    }

    /// The public key in a file.
    fn exported(&self) -> String {
        let path = self.home.path().join("key.asc");
        std::fs::write(&path, self.run(&["--armor", "--export"])).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn revoke(&self) {
        let path = format!("openpgp-revocs.d/{}.rev", self.fingerprint());
        let made = std::fs::read_to_string(self.home.path().join(path)).unwrap();
        let revocation = self.home.path().join("revocation.asc");
        std::fs::write(&revocation, made.replace("\n:-----BEGIN", "\n-----BEGIN")).unwrap();
        self.run(&["--import", revocation.to_str().unwrap()]);
    }
}

impl Drop for Gpg {
    fn drop(&mut self) {
        let _ = Command::new("gpgconf")
            .arg("--homedir")
            .arg(self.home.path())
            .args(["--kill", "all"])
            .output();
    }
}

#[test]
fn openpgp_signatures_are_held_against_the_keys_of_users() {
    let Some(gpg) = Gpg::new() else {
        eprintln!("skipped: there is no gpg");
        return;
    };
    let mut pair = Pair::new();
    pair.git(&["config", "gpg.program", gpg.program().to_str().unwrap()]);
    pair.git(&["config", "user.signingkey", &gpg.fingerprint()]);
    pair.config("receive.certNonceSeed", "sekrit");
    pair.config("receive.certNonceSlop", "3600");
    let (taken, said) = signed_push(&pair, "refs/heads/unknown", &[]);
    assert!(taken, "nobody's key is taken, as by stock: {said}");
    pair.config("cuesta.certRequired", "true");
    let refused = || {
        let (taken, said) = signed_push(&pair, "refs/heads/refused", &[]);
        assert!(!taken && said.contains("not signed by a known user's key"), "{said}");
    };
    refused();
    pair.server.cuesta(&["user", "add", "ann"]);
    let add = |key: &str| pair.server.cuesta(&["key", "add", "ann", key]);
    let printed = add(&gpg.exported());
    assert_eq!(printed.trim(), gpg.fingerprint());
    assert!(
        pair.server
            .cuesta(&["key", "list", "ann"])
            .contains("Ann <ann@example.org>")
    );
    let (taken, said) = signed_push(&pair, "refs/heads/known", &[]);
    assert!(taken, "{said}");
    assert_eq!(listed(&pair, "refs/heads/known"), pair.oid("main"));
    pair.server.cuesta(&["key", "remove", &gpg.fingerprint()]);
    refused();
    add(&gpg.exported());
    let (nonce, made) = (offered_nonce(&pair), pair.work.path("certificate"));
    let old = {
        let text = certificate(&pair, "refs/heads/refused", Some(&nonce), &[]);
        std::fs::write(&made, &text).unwrap();
        let signature = gpg.run(&["--armor", "--detach-sign", "--output", "-", made.to_str().unwrap()]);
        text + &String::from_utf8(signature).unwrap()
    };
    gpg.revoke();
    add(&gpg.exported());
    // It signed before it was revoked, which anyone who has stolen a key can claim.
    let answer = push_certificate(&pair, &old);
    assert!(
        answer.contains("ng refs/heads/refused push certificate is not signed by a known user's key"),
        "{answer}"
    );
    assert_eq!(listed(&pair, "refs/heads/refused"), "");
    pair.server.stop();
    let (log, fingerprint) = (pair.server.log(), gpg.fingerprint());
    for status in [
        format!("E {fingerprint}"),
        format!("G ann {fingerprint}"),
        format!("R {fingerprint}"),
    ] {
        assert!(log.contains(&status), "'{status}' is not in {log}");
    }
}

/// The nonce that is offered now.
fn offered_nonce(pair: &Pair) -> String {
    let answer = pair.server.get("GET", "/a/b/info/refs?service=git-receive-pack", &[]);
    let text = answer.text();
    let nonce = text.split_once("push-cert=").unwrap().1;
    nonce.split(' ').next().unwrap().to_owned()
}

/// The value of a ref as clients see it.
fn listed(pair: &Pair, name: &str) -> String {
    let line = pair.git(&["ls-remote", &pair.url(), name]);
    line.split('\t').next().unwrap().to_owned()
}

/// A certificate of a new branch at `main`, without its signature.
fn certificate(pair: &Pair, name: &str, nonce: Option<&str>, options: &[&str]) -> String {
    let mut text = "certificate version 0.1\npusher key 1700000000 +0000\npushee x\n".to_owned();
    text += &nonce.map(|nonce| format!("nonce {nonce}\n")).unwrap_or_default();
    options
        .iter()
        .for_each(|option| text += &format!("push-option {option}\n"));
    text + &format!("\n{} {} {name}\n", "0".repeat(40), pair.oid("main"))
}

/// A signed push as it goes over the wire, for a nonce.
fn certified(pair: &Pair, name: &str, nonce: Option<&str>, options: [&[&str]; 2]) -> Vec<u8> {
    let mut text = certificate(pair, name, nonce, options[0]);
    text += "-----BEGIN SSH SIGNATURE-----\nnone\n-----END SSH SIGNATURE-----\n";
    let mut request = certificate_packets("report-status push-options object-format=sha1", &text);
    options[1].iter().for_each(|option| request.extend(packet(option)));
    request.extend(b"0000");
    request.extend(empty_pack());
    request
}

fn certificate_packets(capabilities: &str, signed: &str) -> Vec<u8> {
    let mut request = packet(&format!("push-cert\0{capabilities}\n"));
    signed
        .split_inclusive('\n')
        .for_each(|line| request.extend(packet(line)));
    request.extend(packet("push-cert-end\n"));
    request.extend(b"0000");
    request
}

/// What is answered to a push with that certificate.
fn push_certificate(pair: &Pair, signed: &str) -> String {
    let commands = certificate_packets("report-status object-format=sha1", signed);
    let kind = ("Content-Type", "application/x-git-receive-pack-request");
    let request = [commands, empty_pack()].concat();
    pair.server
        .request("POST", "/a/b/git-receive-pack", &[kind], &request)
        .text()
}

#[test]
fn certificates_must_agree_with_the_push_and_be_for_this_server() {
    let pair = Pair::new();
    pair.config("receive.certNonceSeed", "sekrit");
    pair.config("receive.advertisePushOptions", "true");
    pair.config("receive.certNonceSlop", "3600");
    let kind = ("Content-Type", "application/x-git-receive-pack-request");
    let offer = |path: &str| {
        let answer = pair
            .server
            .get("GET", &format!("/{path}/info/refs?service=git-receive-pack"), &[]);
        let text = answer.text();
        text.split_once("push-cert=")
            .map(|(_, rest)| rest.split(' ').next().unwrap().to_owned())
    };
    pair.work
        .git_in(&pair.source, &["push", "-q", &pair.server.url("a/other"), "main"]);
    pair.server
        .cuesta(&["repo", "config", "a/other", "receive.certNonceSeed", "sekrit"]);
    let (ours, other) = (offer("a/b").unwrap(), offer("a/other").unwrap());
    let push = |name: &str, nonce: Option<&str>, options| {
        let request = certified(&pair, name, nonce, options);
        pair.server
            .request("POST", "/a/b/git-receive-pack", &[kind], &request)
            .text()
    };
    let refused = "push certificate has no nonce of this server";
    assert!(push("refs/heads/ok", Some(&ours), [&["x"], &["x"]]).contains("ok refs/heads/ok"));
    assert!(
        push("refs/heads/a", Some(&other), [&[], &[]]).contains(refused),
        "another repository's"
    );
    assert!(push("refs/heads/a", None, [&[], &[]]).contains(refused), "none");
    assert!(
        push("refs/heads/a", Some("1700000000-00"), [&[], &[]]).contains(refused),
        "forged"
    );
    let options: [[&[&str]; 2]; 4] = [
        [&["x"], &[]],
        [&[], &["x"]],
        [&["x"], &["y"]],
        [&["x", "y"], &["y", "x"]],
    ];
    for options in options {
        let request = certified(&pair, "refs/heads/a", Some(&ours), options);
        let answers = pair.ask("receive-pack", "", &request);
        assert!(answers.same().contains("ng refs/heads/a inconsistent push options"));
    }
    assert!(!pair.git(&["ls-remote", &pair.url()]).contains("refs/heads/a"));
    let unasked = certified(&pair, "refs/heads/a", Some(&ours), [&[], &[]]);
    pair.config("receive.certNonceSeed", "");
    assert_eq!(offer("a/b"), None);
    let answer = pair
        .server
        .request("POST", "/a/b/git-receive-pack", &[kind], &unasked)
        .text();
    assert!(
        answer.contains("ERR push certificates are not accepted here"),
        "{answer}"
    );
}
