//! Objects, good and bad in every way git has a word for.

use crate::FORMAT;
use crate::repo::Object;
use cuesta_git::ObjectKind::{self, Blob, Commit, Tag, Tree};

const TREE: &str = "1111111111111111111111111111111111111111";
const PARENT: &str = "2222222222222222222222222222222222222222";
const TAGGED: &str = "3333333333333333333333333333333333333333";
const IDENT: &str = "A U Thor <author@example.com> 1112911993 -0700";

pub(crate) fn table() -> Vec<Object> {
    let mut objects = Vec::new();
    objects.extend(commits().into_iter().map(|text| Object::new(Commit, text)));
    objects.extend(idents().into_iter().flat_map(|ident| {
        let commit = format!("tree {TREE}\nauthor {ident}\ncommitter {IDENT}\n\nm\n");
        let tag = format!("object {TAGGED}\ntype blob\ntag ident\ntagger {ident}\n\nm\n");
        [Object::new(Commit, commit), Object::new(Tag, tag)]
    }));
    objects.extend(tags().into_iter().map(|text| Object::new(Tag, text)));
    objects.extend(trees().into_iter().map(|content| Object::new(Tree, content)));
    for text in gitmodules() {
        objects.extend(named(".gitmodules", &Object::new(Blob, text)));
    }
    for content in [
        vec![b'a'; 2047],
        vec![b'a'; 2048],
        [vec![b'\n'; 5], vec![b'b'; 2048], b"\n".to_vec()].concat(),
        [b"x\n\0".to_vec(), vec![b'c'; 4000]].concat(),
    ] {
        objects.extend(named(".gitattributes", &Object::new(Blob, content)));
    }
    objects.extend(named(
        ".gitmodules",
        &Object::new(
            Commit,
            format!("tree {TREE}\nauthor {IDENT}\ncommitter {IDENT}\n\nnot a blob\n"),
        ),
    ));
    objects.extend(named(
        ".gitattributes",
        &Object::new(Tree, tree(&[("100644", "inner", 9)])),
    ));
    objects
}

/// The object, and a tree that gives it that name.
fn named(name: &str, object: &Object) -> [Object; 2] {
    let mut content = format!("100644 {name}\0").into_bytes();
    content.extend_from_slice(object.id(FORMAT).as_bytes());
    [object.clone(), Object::new(Tree, content)]
}

fn commits() -> Vec<String> {
    let (author, committer) = (format!("author {IDENT}\n"), format!("committer {IDENT}\n"));
    let start = format!("tree {TREE}\n");
    let parent = format!("parent {PARENT}\n");
    vec![
        format!("{start}{author}{committer}\nmessage\n"),
        format!("{start}{author}{committer}"),
        format!("{start}{author}{committer}encoding latin1\n\n\u{e9}"),
        format!("{start}{parent}{parent}{author}{committer}\n"),
        format!("{start}{author}{committer}gpgsig x\n y\n\nm"),
        format!("{start}{author}{committer}\nnul \0 in body"),
        format!("{start}{author}{committer}x\0y\n\nbody"),
        format!("{start}{author}{committer}no newline at end"),
        format!("{start}{author}committer {IDENT}"),
        format!("{start}{author}{author}{committer}\n"),
        format!("{start}{author}{author}\n"),
        format!("{start}{committer}\n"),
        format!("{start}{author}\n"),
        format!("{start}{committer}{author}\n"),
        format!("{start}{author}{parent}{committer}\n"),
        format!("{start}x{author}{committer}\n"),
        format!("{start}\n{author}{committer}\n"),
        format!("tree {TREE}x\n{author}{committer}\n"),
        format!("tree {}\n{author}{committer}\n", &TREE[1..]),
        format!("tree {}G\n{author}{committer}\n", &TREE[1..]),
        format!("tree {}\n{author}{committer}\n", TREE.replace('1', "A")),
        format!("{start}parent {PARENT} \n{author}{committer}\n"),
        format!("{start}parent {}\n{author}{committer}\n", &PARENT[1..]),
        format!("{author}{committer}\n"),
        format!("{start}author\n{committer}\n"),
        String::new(),
        "\n".to_owned(),
        "\0".to_owned(),
        start,
    ]
}

fn idents() -> Vec<&'static str> {
    vec![
        IDENT,
        "",
        " ",
        "<a@b> 1 +0000",
        " <a@b> 1 +0000",
        "A <> 1 +0000",
        "A<a@b> 1 +0000",
        "A > <a@b> 1 +0000",
        "A <a@b",
        "A <a<b> 1 +0000",
        "A <a>b> 1 +0000",
        "A a@b 1 +0000",
        "A <a@b>1 +0000",
        "A <a@b>",
        "A <a@b> ",
        "A <a@b>  1 +0000",
        "A <a@b> \t 1 +0000",
        "A <a@b> x +0000",
        "A <a@b> -1 +0000",
        "A <a@b> 0 +0000",
        "A <a@b> 01 +0000",
        "A <a@b> 00 +0000",
        "A <a@b> 0",
        "A <a@b> 1",
        "A <a@b> 1 ",
        "A <a@b> 1  +0000",
        "A <a@b> 1+0000",
        "A <a@b> 9223372036854775807 +0000",
        "A <a@b> 9223372036854775808 +0000",
        "A <a@b> 18446744073709551615 +0000",
        "A <a@b> 18446744073709551616 +0000",
        "A <a@b> 11111111111111111111111 +0000",
        "A <a@b> 111111111111111111111111 +0000",
        "A <a@b> 1 0000",
        "A <a@b> 1 +000",
        "A <a@b> 1 +00000",
        "A <a@b> 1 +00a0",
        "A <a@b> 1 -9999",
        "A <a@b> 1 +0000 ",
        "A <a@b> 1 *0000",
        "A\tB <a b> 1 +0000",
        "\u{e9} <\u{e9}> 1 +0000",
        "A  <a@b> 1 +0000",
        "A \r<a@b> 1 +0000",
    ]
}

fn tags() -> Vec<String> {
    let good = format!("object {TAGGED}\ntype blob\ntag v1.0\ntagger {IDENT}\n");
    let start = format!("object {TAGGED}\ntype blob\n");
    let mut tags = vec![
        format!("{good}\nmessage\n"),
        good.clone(),
        format!("{good}extra header\n\nm\n"),
        format!("{good}gpgsig a\n b\n c\n\nm\n"),
        format!("{good}gpgsig-sha256 a\n b\nextra c\n\nm\n"),
        format!("{good}gpgsig a\n"),
        format!("{good}gpgsig a\n b"),
        format!("{good}no end"),
        format!("{good}\nnul \0 in message"),
        format!("{start}tag v1\n\nno tagger\n"),
        format!("{start}tag v1\nTAGGER x\n\nm\n"),
        format!("{start}tag v1\ntagger broken\nextra\n\nm\n"),
        format!("{start}\nno name\n"),
        format!("{start}tagger {IDENT}\n\nm\n"),
        format!("{start}tag a\0b\ntagger {IDENT}\n\nm\n"),
        format!("object {TAGGED}\ntag v1\ntagger {IDENT}\n\nm\n"),
        format!("object {TAGGED}\ntype bob\ntag v1\ntagger {IDENT}\n\nm\n"),
        format!("object {TAGGED}\ntype \ntag v1\ntagger {IDENT}\n\nm\n"),
        format!("object {}\ntype blob\ntag v1\ntagger {IDENT}\n\nm\n", &TAGGED[1..]),
        format!("object {TAGGED} \ntype blob\ntag v1\ntagger {IDENT}\n\nm\n"),
        format!("type blob\ntag v1\ntagger {IDENT}\n\nmuch longer than that\n"),
    ];
    let names = [
        "a/b", "a//b", "/a", "a/", "a..b", "a b", "a.lock", "a.lock/b", ".a", "a.", "a/.b", "@", "a@{b", "a~", "a^",
        "a:", "a?", "a*", "a[", "a\\", "a\u{7f}", "\u{e9}", "-a", "a\tb", "", "HEAD", "a/b.lock", "a.b", "a@", "{a}",
        "a./b",
    ];
    tags.extend(names.map(|name| format!("{start}tag {name}\ntagger {IDENT}\n\nm\n")));
    tags
}

fn tree(entries: &[(&str, &str, u8)]) -> Vec<u8> {
    let bytes =
        |(mode, name, id): &(&str, &str, u8)| [mode.as_bytes(), b" ", name.as_bytes(), b"\0", &[*id; 20]].concat();
    entries.iter().flat_map(bytes).collect()
}

fn trees() -> Vec<Vec<u8>> {
    let mut trees = vec![
        vec![],
        b"garbage".to_vec(),
        vec![0; 30],
        tree(&[("100644", "a", 0)]),
        tree(&[("100644", "", 1)]),
    ];
    let modes = [
        "100644",
        "100755",
        "120000",
        "40000",
        "160000",
        "100664",
        "100600",
        "0100644",
        "040000",
        "0",
        "644",
        "100000",
        "170000",
        "60000",
        "1100644",
        "777777",
        "200000",
        "140000",
        "",
        "10064x",
        "x",
        "00100644",
        "33333333333333333",
    ];
    trees.extend(modes.map(|mode| tree(&[(mode, "mode", 2)])));
    let dot_modules: Vec<String> = [
        ".gitmodules",
        "GITMOD~1",
        "gi7eba~1",
        "gi7eb~12",
        "~1000000",
        "a\\.gitmodules",
        "a\\gitmod~2",
        ".gitm\u{200c}odules",
    ]
    .map(str::to_owned)
    .into();
    let names = [
        ".",
        "..",
        "...",
        ".git",
        ".GIT",
        ".Git.",
        ".git ",
        ".git . .",
        ".git::$INDEX_ALLOCATION",
        ".git:x",
        "git~1",
        "GIT~1 ",
        "git~2",
        ".git\\x",
        "x\\.git",
        "x\\git~1",
        "x\\.git\\y",
        "\\",
        "a/b",
        "/",
        "a/",
        ".git/x",
        "\u{200c}.git",
        ".g\u{200d}it",
        ".git\u{206f}",
        "\u{feff}.git",
        ".git\u{2060}",
        ".git\u{fffe}",
        ".git\u{ffff}",
        ".gitx",
        ".gi",
        ".gitignore",
        ".gitattributes",
        ".mailmap",
        "gi7d29~1",
        "gi250a~1",
        "maba30~1",
        "mailma~1",
        "MAILMA~4",
        "gitatt~1",
        "gitign~3",
        "gitign~5",
        ".gitattributes:x",
        ".mailmap. ",
        "a\\.gitattributes",
        "\u{e9}",
        "a\u{7f}",
        "-a",
        " ",
    ];
    for mode in ["100644", "120000", "40000"] {
        trees.extend(names.iter().map(|name| tree(&[(mode, name, 3)])));
    }
    trees.extend(dot_modules.iter().map(|name| tree(&[("120000", name, 4)])));
    for invalid in [
        &b".git\xff"[..],
        b".git\xc0\x80",
        b".git\xed\xa0\x80",
        b".git\xf0\x9f\x98\x80",
        b".git\xf0\x9f\x98",
        b".git\xe2\x80",
        b"\xff.git",
        b".gi\xfft",
    ] {
        trees.push([b"100644 ", invalid, b"\0", &[5; 20]].concat());
    }
    let long = "n".repeat(4096);
    trees.extend([
        tree(&[("100644", &long, 6)]),
        tree(&[("100644", &format!("{long}n"), 6)]),
    ]);
    trees.extend(orders());
    let whole = tree(&[("100644", "a", 7), ("100644", "b", 7)]);
    trees.extend((1..whole.len()).map(|len| whole[..len].to_vec()));
    trees.push(tree(&[("100644", "b", 7), ("100666", "a", 7), ("zzz", ".git", 7)]));
    trees
}

/// Orders and duplicates, `/` at the end marking a tree.
fn orders() -> Vec<Vec<u8>> {
    let lists: [&[&str]; 22] = [
        &["a", "b"],
        &["b", "a"],
        &["a", "a"],
        &["a", "a/"],
        &["a/", "a"],
        &["a.b", "a/"],
        &["a/", "a.b"],
        &["a/", "a0"],
        &["a0", "a/"],
        &["a", "a.b", "a/"],
        &["a", "a.b", "a.b.c", "a.b/", "a/"],
        &["a", "a.b", "a.b.c", "a/"],
        &["a", "a.b", "b", "a/"],
        &["a", "a-b", "a.b", "a/"],
        &["a", "a0", "a/"],
        &["a", "ab", "a/"],
        &["a.b", "a", "a/"],
        &["a", "a.b/", "a/"],
        &["a", "a.b", "a.c", "a/"],
        &["a", "a.b", "a.b/", "a/", "a0"],
        &["a", "a ", "a.b", "a/"],
        &["foo", "foo.bar", "foo.bar.baz", "foo.bar/", "foo/"],
    ];
    let entries = |list: &&[&'static str]| -> Vec<u8> {
        list.iter()
            .flat_map(|name| match name.strip_suffix('/') {
                Some(name) => tree(&[("40000", name, 8)]),
                None => tree(&[("100644", name, 8)]),
            })
            .collect()
    };
    lists.iter().map(entries).collect()
}

fn gitmodules() -> Vec<String> {
    let mut texts: Vec<String> = [
        "",
        "[submodule \"a\"]\n\tpath = a\n\turl = ../a\n",
        "[submodule \"..\"]\nurl = x\n",
        "[submodule \"a/../b\"]\npath = x\n",
        "[submodule \"a\\\\..\"]\npath = x\n",
        "[submodule \"..a\"]\npath = x\n",
        "[submodule \"\"]\npath = x\n",
        "[submodule]\npath = -x\n",
        "[submodule.Name]\nurl = -x\n",
        "[submodule \"a\"]\npath = -x\n",
        "[submodule \"a\"]\nupdate = !cmd\n",
        "[submodule \"a\"]\nupdate = rebase\n",
        "[submodule \"a\"]\nupdate = bogus\n",
        "[submodule \"a\"]\nURL = -x\n",
        "[SUBMODULE \"a\"]\nurl = -x\n",
        "[submodule \"a\"]\nurl\n",
        "[submodule \"a\"]\nurl = \"-x\"\n",
        "[submodule \"a\"]\nurl = -x ; y\n",
        "[submodule \"a\"] url = -x",
        "[other \"a\"]\nurl = -x\n",
        "[submodule \"a\"\nurl = -x\n",
        "[submodule \"a\"]\nurl = -x\n[broken\n",
        "[submodule \"a\"]\nurl = \"x\n",
        "[submodule \"a\\\nb\"]\n",
        "garbage",
        "\u{feff}[submodule \"a\"]\nurl = -x\n",
        "[submodule \"a.b\"]\nurl = -x\n",
        "[submodule \"a\"]\r\n\turl = -x\r\n",
        "[submodule \"a\0b\"]\nurl = -x\n",
        "[submodule \"a\"]\nurl = \0-x\n",
        "[submodule \"a\"]\nurl = a\\\n-x\n",
        "[submodule \"a\"]\npath = a\n\turl=\\\n-x\n",
        "[submodule \"a\"]\nurl = \\q\n",
        "# comment\n; more\n",
    ]
    .map(str::to_owned)
    .into();
    let urls = [
        "./a",
        "../a",
        "..",
        "../",
        "..//a",
        "../:a",
        "./:a",
        ".//a",
        "../../:a",
        ".././:a",
        "./../:x",
        "..\\\\:x",
        "../a%0ab",
        "../a\\nb",
        "../%00",
        "git://h/a",
        "git://h/%0a",
        "git://h/%250a",
        "git://h/%%0a",
        "http://h/a",
        "http://h/%0a",
        "http://h/\\n",
        "http:///a",
        "http://",
        "https::http://h/",
        "https::h",
        "http::-x",
        "ftp://h/%0A",
        "ftps::ftp://h/%0a",
        "HTTP://h/%0a",
        "http://u%0a@h/",
        "http://u@h/",
        "http://@h/",
        "http://h:80/",
        "http://h:x/",
        "http://h:99999/",
        "http://h:0/",
        "http://h:/",
        "http://[::1]/",
        "http://[::1]:8/",
        "http://h!/",
        "http://h/../a",
        "http://h/a/../b",
        "http://h/%0a/../b",
        "http://h/a/%2e%2e/b",
        "http://h?%0a",
        "http://h#%0a",
        "http://h/%",
        "http://h/%z1",
        "http://h/%00",
        "https://h/?a@b",
        "https://a/b@c",
        "https://a?b@c/%0a",
        "http::file:///x",
        "http::file://:1/x",
        "http::file:x",
        "ssh://h/%0a",
        "user@h:a",
        "file:///a%0a",
        "/a",
        "-a",
        "--a",
        "a%0a",
        "http:h",
        "https:/h/a",
        "http::ftp::x",
        "http::1a://h/",
        "ext::sh -c x",
    ];
    texts.extend(urls.map(|url| format!("[submodule \"u\"]\n\turl = \"{url}\"\n")));
    texts
}

/// A xorshift generator: the same everywhere for one seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Objects of the table with a few bytes or lines changed, moved or dropped.
pub(crate) fn mutations(seed: u64, count: usize) -> Vec<Object> {
    let mut random = Random(seed | 1);
    let originals: Vec<Object> = table()
        .into_iter()
        .filter(|object| !object.content.is_empty() && object.content.len() < 1000)
        .collect();
    let mut objects = Vec::new();
    while objects.len() < count {
        let mut object = originals[random.below(originals.len())].clone();
        for _ in 0..=random.below(3) {
            mutate(&mut object.content, &mut random);
        }
        if object.kind == ObjectKind::Blob {
            objects.extend(named(".gitmodules", &object));
        } else {
            objects.push(object);
        }
    }
    objects
}

fn mutate(content: &mut Vec<u8>, random: &mut Random) {
    const BYTES: &[u8] = b"\0\n\n  <>+-0189:/\\.~a%@[]\"=#;\t\r\xe2\xff";
    let at = random.below(content.len());
    match random.below(6) {
        0 if !content.is_empty() => content[at] = BYTES[random.below(BYTES.len())],
        1 => content.insert(at, BYTES[random.below(BYTES.len())]),
        2 if !content.is_empty() => drop(content.remove(at)),
        3 => content.truncate(at),
        4 => {
            let to = at + random.below(content.len() - at + 1);
            let piece = content[at..to].to_vec();
            content.splice(at..at, piece);
        }
        _ => {
            let mut lines: Vec<Vec<u8>> = content
                .split_inclusive(|byte| *byte == b'\n')
                .map(<[u8]>::to_vec)
                .collect();
            if lines.len() > 1 {
                let (a, b) = (random.below(lines.len()), random.below(lines.len()));
                lines.swap(a, b);
            }
            *content = lines.concat();
        }
    }
}
