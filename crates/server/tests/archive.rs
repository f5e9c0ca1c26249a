//! `git archive --remote` over HTTP, held against stock git's own on the same repository.

#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::{Server, Work};

/// A repository with one of everything that an archive treats in its own way, and a server that has it.
struct Bench {
    server: Server,
    work: Work,
    source: PathBuf,
}

impl Bench {
    fn new(format: &str) -> Self {
        let (server, work) = (Server::start(), Work::new());
        let source = work.repository("source", format);
        fill(&work, &source);
        server.cuesta(&["repo", "create", "a/b", "--object-format", format]);
        work.git_in(&source, &["push", "-q", "--mirror", &server.url("a/b")]);
        server.cuesta(&["repo", "config", "a/b", "http.uploadarchive", "true"]);
        Self { server, work, source }
    }

    fn ours(&self, arguments: &[&str]) -> Output {
        self.archive(&self.server.url("a/b"), arguments)
    }

    fn stock(&self, arguments: &[&str]) -> Output {
        self.archive(self.source.to_str().unwrap(), arguments)
    }

    fn archive(&self, remote: &str, arguments: &[&str]) -> Output {
        let remote = format!("--remote={remote}");
        let arguments = [&["archive", &remote], arguments].concat();
        self.work.try_git_in(&self.source, &arguments)
    }

    /// Both give the same bytes.
    fn same(&self, arguments: &[&str]) -> Vec<u8> {
        let (ours, stock) = (self.ours(arguments), self.stock(arguments));
        assert!(stock.status.success(), "stock: {arguments:?}: {}", text(&stock.stderr));
        assert!(ours.status.success(), "{arguments:?}: {}", text(&ours.stderr));
        assert_eq!(ours.stdout.len(), stock.stdout.len(), "{arguments:?}");
        let differs = ours
            .stdout
            .iter()
            .zip(&stock.stdout)
            .position(|(ours, stock)| ours != stock);
        if let Some(at) = differs {
            let near = |bytes: &[u8]| {
                bytes[at.saturating_sub(80)..(at + 80).min(bytes.len())]
                    .escape_ascii()
                    .to_string()
            };
            panic!(
                "{arguments:?} differs at {at}:\n{}\n{}",
                near(&ours.stdout),
                near(&stock.stdout)
            );
        }
        ours.stdout
    }

    /// Both refuse, and say the same.
    fn both_refuse(&self, arguments: &[&str]) {
        let (ours, stock) = (self.ours(arguments), self.stock(arguments));
        assert!(!ours.status.success() && !stock.status.success(), "{arguments:?}");
        assert_eq!(remote_lines(&ours), remote_lines(&stock), "{arguments:?}");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What the server said, without blanks at line ends.
fn remote_lines(output: &Output) -> Vec<String> {
    let stderr = text(&output.stderr);
    let said = stderr.lines().filter_map(|line| line.strip_prefix("remote: "));
    said.map(|line| line.trim_end().to_owned()).collect()
}

fn fill(work: &Work, source: &Path) {
    let write = |path: &str, content: &[u8]| {
        let path = source.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    write("empty", b"");
    write("bin/tool", b"#!/bin/sh\n");
    write("binary.dat", &[0, 1, 2, b'\n', 0]);
    write("dir/sub/deep/file.c", b"int x;\n");
    write("dir/sub/other.h", b"int y;\n");
    write("dir/a.c", b"a\n");
    write("dir-and-more/a.c", b"b\n");
    write("ignored/x/y", b"not there\n");
    write("half/kept", b"1\n");
    write("half/dropped.tmp", b"2\n");
    write("only-dropped/a.tmp", b"2\n");
    write(
        "subst/info.txt",
        b"$Format:%H %h %T %t %P %p$\n$Format:%an|%ae|%cn|%ce|%ad|%aD|%ai|%aI|%as|%at|%ct$ $Format:%d|%D$\n",
    );
    write(
        "subst/text.txt",
        b"$Format:%s|%f|%b|%B|%n|%x41|%%|%e|%m$ $Format:%Z %<(2147483647)$ unfinished $Format:%H\n",
    );
    write("crlf.bat", b"echo\necho\r\nend");
    write("auto.txt", b"one\ntwo\n");
    write("auto-mixed.txt", b"one\r\ntwo\n");
    write("ident.c", b"/* $Id$ $Id: old $ $Id: a b $ */\n");
    write("nodiff.txt", b"text, they say not\n");
    write("latin\u{e9}/\u{fc}.txt", b"u\n");
    write(&format!("{}/{}", "p".repeat(90), "n".repeat(90)), b"split\n");
    write(
        &format!("{}/{}/{}", "p".repeat(90), "q".repeat(90), "n".repeat(90)),
        b"pax\n",
    );
    write(&"n".repeat(100), b"100\n");
    write(&"m".repeat(101), b"101\n");
    write("large.bin", &noise(5 << 20));
    for number in 0..600 {
        write(
            &format!("many/{:02}/{number}", number % 7),
            format!("{number}\n").as_bytes(),
        );
    }
    write(
        ".gitattributes",
        b"[attr]private export-ignore\n/ignored private\n*.tmp export-ignore\nsubst/* export-subst\n\
          *.bat text eol=crlf\nauto*.txt text=auto eol=crlf\nident.c ident\nnodiff.txt -diff\n*.h diff\n",
    );
    write("half/.gitattributes", b"kept -export-ignore\n");
    for (target, link) in [("file", "link"), ("nowhere", "dir/dangling")] {
        std::os::unix::fs::symlink(target, source.join(link)).unwrap();
    }
    std::os::unix::fs::symlink("t/".repeat(70), source.join("long-link")).unwrap();
    work.git_in(source, &["add", "-A"]);
    work.git_in(source, &["update-index", "--chmod=+x", "bin/tool"]);
    let commit = work.git_in(source, &["rev-parse", "HEAD"]);
    work.git_in(
        source,
        &[
            "update-index",
            "--add",
            "--cacheinfo",
            &format!("160000,{commit},module"),
        ],
    );
    std::fs::create_dir(source.join("module")).unwrap();
    work.git_in(
        source,
        &["commit", "-q", "-m", "Second: all  of it..\nmore\n\n\nBody\n\nof two"],
    );
    work.git_in(source, &["tag", "v1"]);
    work.git_in(source, &["tag", "-a", "-m", "annotated", "v1a"]);
    work.git_in(source, &["tag", "of-tree", "HEAD^{tree}"]);
    work.git_in(source, &["tag", "of-blob", "HEAD:empty"]);
    work.git_in(source, &["branch", "side", "HEAD~1"]);
    // The next version of a large file goes over the wire as a delta.
    let mut large = noise(5 << 20);
    large[1 << 20] ^= 1;
    std::fs::write(source.join("large.bin"), large).unwrap();
    work.git_in(source, &["commit", "-q", "-a", "-m", "third"]);
}

/// Bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).flatten().take(len).collect()
}

const MTIME: &str = "--mtime=2005-05-27T22:00:00Z";

#[test]
fn tars_are_stock_gits_byte_for_byte() {
    for format in ["sha1", "sha256"] {
        let bench = Bench::new(format);
        let tables: [&[&str]; 30] = [
            &["HEAD"],
            &["main"],
            &["refs/heads/main"],
            &["heads/side"],
            &["v1"],
            &["v1a"],
            &[MTIME, "of-tree"],
            &[MTIME, "HEAD:dir"],
            &[MTIME, "v1:dir/sub"],
            &["--prefix=p/", "HEAD"],
            &["--prefix=p/q//", "HEAD"],
            &["--prefix=/", "HEAD", "bin"],
            &["--prefix=p-", "HEAD"],
            &["HEAD", "dir"],
            &["HEAD", "dir/"],
            &["HEAD", "dir/sub/deep", "bin"],
            &["HEAD", "*.c"],
            &["HEAD", ":(glob)dir/*.c"],
            &["HEAD", ":(glob)**/*.c"],
            &["HEAD", ":!many", ":!large.bin"],
            &["HEAD", "dir", ":(exclude)dir/sub"],
            &["HEAD", ":(icase)DIR/A.C"],
            &["HEAD", "module"],
            &["HEAD", "half", "only-dropped"],
            &["HEAD", "subst"],
            &["v1", "subst"],
            &["--mtime=@0 +0000", "HEAD", "dir"],
            &["--mtime=Fri, 27 May 2005 22:00:00 +0200", "HEAD", "dir"],
            &["--format=tar", "--", "HEAD", "dir"],
            &["HEAD", "dir", "--pref=x/"],
        ];
        for arguments in tables {
            bench.same(arguments);
        }
        assert_eq!(text(&bench.same(&["--list"])), "tar\ntgz\ntar.gz\nzip\n");
    }
}

#[test]
fn a_local_archive_is_the_same_too() {
    let bench = Bench::new("sha1");
    let stock = bench.work.try_git_in(&bench.source, &["archive", "HEAD"]);
    assert_eq!(bench.ours(&["HEAD"]).stdout, stock.stdout);
    // Once more from the bucket: read by ranges, from layers without inline parts.
    let mut bench = bench;
    assert!(bench.server.stop().success());
    bench.server.restart();
    assert_eq!(bench.ours(&["HEAD"]).stdout, stock.stdout);
}

#[test]
fn gzip_holds_the_same_tar() {
    let bench = Bench::new("sha1");
    let tar = bench.same(&["HEAD"]);
    for arguments in [
        &["--format=tgz", "HEAD"][..],
        &["--format=tar.gz", "-1", "HEAD"],
        &["--format=tgz", "-0", "HEAD"],
    ] {
        let packed = bench.ours(arguments).stdout;
        assert_eq!(packed[..10], bench.stock(arguments).stdout[..10], "{arguments:?}");
        std::fs::write(bench.work.path("a.tgz"), packed).unwrap();
        let unpacked = Command::new("gzip")
            .args(["-d", "-c"])
            .arg(bench.work.path("a.tgz"))
            .output()
            .unwrap();
        assert!(unpacked.status.success() && unpacked.stdout == tar, "{arguments:?}");
    }
}

/// Everything that Python's reader knows of two zip files, and their contents.
const COMPARE_ZIPS: &str = r#"
import sys, zipfile
ours, stock = (zipfile.ZipFile(path) for path in sys.argv[1:])
assert ours.testzip() is None
assert ours.comment == stock.comment, (ours.comment, stock.comment)
assert ours.namelist() == stock.namelist()
STREAM = 8
for one, other in zip(ours.infolist(), stock.infolist()):
    for field in ("filename date_time create_system create_version extra external_attr internal_attr CRC file_size".split()):
        assert getattr(one, field) == getattr(other, field), (one, other, field)
    assert one.flag_bits & ~STREAM == other.flag_bits, (one, other)
    assert ours.read(one) == stock.read(other), one
"#;

#[test]
fn zips_hold_what_stock_gits_hold() {
    for format in ["sha1", "sha256"] {
        let bench = Bench::new(format);
        for arguments in [
            &["HEAD"][..],
            &["--prefix=p/", "v1"],
            &[MTIME, "HEAD:dir"],
            &["-0", "HEAD", "dir", "binary.dat", "large.bin"],
            &["-9", "HEAD", "many"],
        ] {
            let arguments = [&["--format=zip"], arguments].concat();
            let (ours, stock) = (bench.work.path("ours.zip"), bench.work.path("stock.zip"));
            std::fs::write(&ours, bench.ours(&arguments).stdout).unwrap();
            std::fs::write(&stock, bench.stock(&arguments).stdout).unwrap();
            let compared = Command::new("python3")
                .args(["-c", COMPARE_ZIPS])
                .args([&ours, &stock])
                .output()
                .unwrap();
            assert!(compared.status.success(), "{arguments:?}: {}", text(&compared.stderr));
        }
    }
}

#[test]
fn paths_are_told_on_request() {
    let bench = Bench::new("sha1");
    for arguments in [
        &["-v", "HEAD", "dir", "bin"][..],
        &["-v", "--prefix=p/", "HEAD", "large.bin", "half"],
    ] {
        let (ours, stock) = (bench.ours(arguments), bench.stock(arguments));
        assert_eq!(ours.stdout, stock.stdout);
        assert_eq!(remote_lines(&ours), remote_lines(&stock), "{arguments:?}");
        assert!(!remote_lines(&ours).is_empty());
    }
}

#[test]
fn what_stock_refuses_is_refused_in_its_words() {
    let bench = Bench::new("sha1");
    let head = bench.work.git_in(&bench.source, &["rev-parse", "HEAD"]);
    let refused: [&[&str]; 16] = [
        &["nothing"],
        &[&head],
        &["HEAD^{tree}"],
        &["HEAD~1"],
        &["HEAD:nowhere"],
        &[":dir"],
        &["of-blob"],
        &["HEAD", "nowhere"],
        &["HEAD", "dir", "nowhere/*"],
        &["--format=rar", "HEAD"],
        &["-9", "HEAD"],
        &["--list", "extra"],
        &["--format=tar.xz", "HEAD"],
        &["HEAD:dir/a.c"],
        &["HEAD:dir/a.c/x"],
        &["HEAD", ":(top,nonsense)x"],
    ];
    for arguments in refused {
        if arguments == [":dir"]
            || arguments
                .last()
                .is_some_and(|last| last.ends_with("/x") || last.contains("nonsense"))
        {
            // Refused by both, in words of our own.
            assert!(
                !bench.ours(arguments).status.success() && !bench.stock(arguments).status.success(),
                "{arguments:?}"
            );
        } else {
            bench.both_refuse(arguments);
        }
    }
    for arguments in [
        &["--add-virtual-file=x:y", "HEAD"][..],
        &["--worktree-attributes", "HEAD"],
        &["--mtime=teatime", "HEAD"],
    ] {
        let ours = bench.ours(arguments);
        assert!(!ours.status.success() && ours.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn settings_decide_who_gets_what() {
    let bench = Bench::new("sha1");
    let set = |key: &str, value: &str| bench.server.cuesta(&["repo", "config", "a/b", key, value]);
    let side = bench.work.git_in(&bench.source, &["rev-parse", "side"]);
    set("uploadarchive.allowUnreachable", "true");
    let by_id = bench.ours(&[&side]);
    assert_eq!(by_id.stdout, bench.stock(&["side"]).stdout);
    assert!(bench.ours(&[MTIME, &format!("{side}:")]).status.success());
    set("uploadarchive.allowUnreachable", "false");
    assert!(!bench.ours(&[&side]).status.success());

    set("transfer.hideRefs", "refs/heads/side");
    assert!(text(&bench.ours(&["side"]).stderr).contains("no such ref: side"));
    set("tar.tar.gz.remote", "false");
    assert_eq!(text(&bench.ours(&["--list"]).stdout), "tar\ntgz\nzip\n");
    assert!(text(&bench.ours(&["--format=tar.gz", "HEAD"]).stderr).contains("Unknown archive format 'tar.gz'"));
    set("tar.umask", "0027");
    bench.work.git_in(&bench.source, &["config", "tar.umask", "0027"]);
    bench.same(&["HEAD", "dir", "bin"]);

    bench
        .server
        .cuesta(&["repo", "config", "a/b", "http.uploadarchive", "--unset"]);
    let refused = bench.ours(&["HEAD"]);
    assert!(text(&refused.stderr).contains("403"), "{}", text(&refused.stderr));
}

#[test]
fn raw_requests() {
    let bench = Bench::new("sha1");
    let post = |body: &[u8]| {
        let headers = [("Content-Type", "application/x-git-upload-archive-request")];
        bench
            .server
            .request("POST", "/a/b.git/git-upload-archive", &headers, body)
    };
    let good = post(b"0012argument HEAD\n000cargument0000");
    assert_eq!(
        good.header("content-type"),
        Some("application/x-git-upload-archive-result")
    );
    for (body, expected) in [
        (&b"0012argument HEAD\n"[..], "hung up"),
        (b"zzzz", "bad line length character"),
        (b"0009want\n0000", "'argument' token or flush expected"),
        (
            &[&b"0012argument HEAD\n"[..]; 65].concat()[..],
            "Too many options (>63)",
        ),
        (b"0000", "no tree-ish"),
    ] {
        let answer = post(body);
        assert_eq!(answer.status, 200);
        let text = answer.text();
        assert!(
            text.contains("0008ACK\n0000") && text.contains(expected) && text.contains("archiver died"),
            "{text}"
        );
    }
    assert_eq!(bench.server.get("GET", "/a/b/git-upload-archive", &[]).status, 405);
    assert_eq!(
        bench
            .server
            .request("POST", "/a/b/git-upload-archive", &[], b"0000")
            .status,
        415
    );
    assert_eq!(
        bench
            .server
            .request(
                "POST",
                "/a/none/git-upload-archive",
                &[("Content-Type", "application/x-git-upload-archive-request")],
                b"0000"
            )
            .status,
        404
    );
}

/// A tree whose paths nobody could count: 10 levels of 20 entries, all the same tree.
#[test]
fn a_bomb_costs_what_is_read_of_it() {
    let bench = Bench::new("sha1");
    let mut entry = {
        let blob = bench.work.git_in(&bench.source, &["rev-parse", "HEAD:empty"]);
        format!("100644 blob {blob}")
    };
    for _ in 0..10 {
        let lines: String = (0..20).map(|number| format!("{entry}\t{number:02}\n")).collect();
        std::fs::write(bench.work.path("tree"), lines).unwrap();
        let tree = bench.work.path("tree");
        let made = Command::new("sh")
            .args([
                "-c",
                &format!("git -C {} mktree < {}", bench.source.display(), tree.display()),
            ])
            .output()
            .unwrap();
        entry = format!("040000 tree {}", text(&made.stdout).trim());
    }
    let tree = entry.rsplit(' ').next().unwrap();
    let commit = bench.work.git_in(&bench.source, &["commit-tree", "-m", "bomb", tree]);
    bench.work.git_in(
        &bench.source,
        &[
            "push",
            "-q",
            &bench.server.url("a/b"),
            &format!("{commit}:refs/heads/bomb"),
        ],
    );
    // The server makes no more of it than somebody takes.
    let url = bench.server.url("a/b");
    let script = format!("git archive --remote={url} bomb | head -c 3000000 | wc -c");
    let taken = Command::new("sh")
        .args(["-c", &script])
        .current_dir(&bench.source)
        .output()
        .unwrap();
    assert_eq!(text(&taken.stdout).trim(), "3000000");
    assert!(bench.ours(&["HEAD", "dir"]).status.success());
}
