//! What stock git printed for the same commits.

use super::*;

const TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

fn facts(message: &str) -> Facts {
    let text = format!(
        "tree {TREE}\nparent {}\nauthor A U Thor <author@example.com> 1117231200 -0730\n\
         committer C <c@x> 1700000000 +0000\n\n{message}",
        "1".repeat(40)
    );
    let oid = ObjectId::from_hex(ObjectFormat::Sha1, "2".repeat(40).as_bytes()).unwrap();
    let mut facts = Facts::new(ObjectFormat::Sha1, oid, text.as_bytes()).unwrap();
    facts.abbreviate(oid, 7);
    facts.decorate(vec!["HEAD -> main".to_owned(), "tag: v1".to_owned()]);
    facts
}

fn format(text: &str) -> String {
    let mut out = Vec::new();
    facts("\nA  subject: of..two \nlines\n\n\nBody\n\nmore\n")
        .format(text.as_bytes(), &mut out, 1000)
        .unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn placeholders() {
    let table = [
        ("%h", "2222222"),
        ("%T", TREE),
        ("%P", "1111111111111111111111111111111111111111"),
        ("%an <%ae> %al", "A U Thor <author@example.com> author"),
        ("%ad", "Fri May 27 14:30:00 2005 -0730"),
        ("%aD", "Fri, 27 May 2005 14:30:00 -0730"),
        ("%ai", "2005-05-27 14:30:00 -0730"),
        ("%aI", "2005-05-27T14:30:00-07:30"),
        ("%as %at", "2005-05-27 1117231200"),
        ("%cI", "2023-11-14T22:13:20Z"),
        ("%d|%D", " (HEAD -> main, tag: v1)|HEAD -> main, tag: v1"),
        ("%s", "A  subject: of..two lines"),
        ("%f", "A-subject-of.two"),
        ("%b", "Body\n\nmore\n"),
        ("%x41%x0a%n%%", "A\n\n%"),
        ("%Cred%C(bold blue)x%Creset", "x"),
        ("a%+sb% e%-e", "a\nA  subject: of..two linesb"),
        ("%e", ""),
    ];
    for (text, expected) in table {
        assert_eq!(format(text), expected, "{text}");
    }
}

#[test]
fn what_is_not_known_stays() {
    for text in [
        "%<(2147483647)",
        "%>|(5)%",
        "%w(99999,1,2)",
        "%(describe)",
        "%ar",
        "%GG",
        "%Z",
        "%",
        "%x4",
        "%a",
    ] {
        assert_eq!(format(text), text);
    }
}

#[test]
fn texts_are_substituted_where_they_are_whole() {
    let substitute = |text: &str| {
        facts("s\n")
            .substitute(text.as_bytes(), 1000)
            .unwrap()
            .map(|out| String::from_utf8(out).unwrap())
    };
    assert_eq!(
        substitute("A$Format:%h%n$O$Format:%s$"),
        Some("A2222222\nOs".to_owned())
    );
    assert_eq!(substitute("A$Format:%h"), None);
    assert_eq!(substitute("$Format:%s$ $Format:"), Some("s $Format:".to_owned()));
}

#[test]
fn the_result_is_bounded() {
    let facts = facts(&"x".repeat(100));
    let text = format!("$Format:{}$", "%B".repeat(10));
    assert!(facts.substitute(text.as_bytes(), 1000).unwrap().is_some());
    assert_eq!(facts.substitute(text.as_bytes(), 999), Err(FormatError::TooLong(999)));
}

/// What stands for nothing makes no text longer, but takes a look at the commit each time.
#[test]
fn looks_at_the_commit_are_bounded() {
    let facts = facts(&"x".repeat(1 << 20));
    let text = |count: usize| format!("$Format:{}$", "%e".repeat(count));
    assert_eq!(facts.substitute(text(1_000).as_bytes(), 1_000), Ok(Some(Vec::new())));
    let error = facts.substitute(text(1_024).repeat(2).as_bytes(), 1_000);
    assert_eq!(error, Err(FormatError::TooMuchWork));
}
