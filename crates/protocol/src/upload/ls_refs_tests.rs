use proptest::prelude::*;

use super::*;
use crate::testing::{hex, oid, texts};

fn parse(lines: &[&str]) -> LsRefs {
    let mut parser = LsRefsParser::default();
    lines
        .iter()
        .for_each(|line| parser.take(line.as_bytes(), Unborn::Advertise, &Limits::new()).unwrap());
    parser.finish()
}

fn refs() -> Vec<AdvertisedRef<'static>> {
    let plain = |name: &'static str, n| AdvertisedRef {
        name: name.as_bytes(),
        oid: oid(n),
        peeled: None,
        symref_target: None,
    };
    vec![
        AdvertisedRef {
            symref_target: Some(b"refs/heads/main"),
            ..plain("HEAD", 1)
        },
        plain("refs/heads/main", 1),
        AdvertisedRef {
            symref_target: Some(b"refs/heads/main"),
            ..plain("refs/heads/other", 1)
        },
        AdvertisedRef {
            peeled: Some(oid(1)),
            ..plain("refs/tags/v1", 2)
        },
    ]
}

fn answer(ls_refs: &LsRefs, unborn: Option<&[u8]>, refs: &[AdvertisedRef<'_>]) -> Vec<String> {
    let mut out = Vec::new();
    ls_refs.write_answer(&mut out, unborn, refs.iter().copied());
    texts(&out)
}

#[test]
fn attributes_are_told_only_when_asked_for() {
    let (one, two) = (hex(1), hex(2));
    let bare = answer(&parse(&[]), None, &refs());
    let expected = [
        format!("{one} HEAD\n"),
        format!("{one} refs/heads/main\n"),
        format!("{one} refs/heads/other\n"),
        format!("{two} refs/tags/v1\n"),
        "0000".to_owned(),
    ];
    assert_eq!(bare, expected);
    let full = answer(&parse(&["peel", "symrefs"]), None, &refs());
    let expected = [
        format!("{one} HEAD symref-target:refs/heads/main\n"),
        format!("{one} refs/heads/main\n"),
        format!("{one} refs/heads/other symref-target:refs/heads/main\n"),
        format!("{two} refs/tags/v1 peeled:{one}\n"),
        "0000".to_owned(),
    ];
    assert_eq!(full, expected);
}

#[test]
fn prefixes_choose_refs() {
    let names = |lines: &[&str]| answer(&parse(lines), None, &refs()).len() - 1;
    assert_eq!(names(&["ref-prefix refs/tags/"]), 1);
    assert_eq!(names(&["ref-prefix refs/heads/m"]), 1);
    assert_eq!(
        names(&["ref-prefix HEAD", "ref-prefix refs/heads", "ref-prefix refs/heads/"]),
        3
    );
    assert_eq!(names(&["ref-prefix refs/heads/mainly"]), 0);
    assert_eq!(names(&["ref-prefix "]), 4);
    assert_eq!(
        parse(&["ref-prefix b", "ref-prefix a", "ref-prefix ab"]).prefixes(),
        [&b"a"[..], b"b"]
    );
}

#[test]
fn one_prefix_too_many_and_none_counts() {
    let mut limits = Limits::new();
    limits.ref_prefixes_max = 4;
    for (count, shown) in [(3, 0), (4, 4), (5, 4), (50, 4)] {
        let mut parser = LsRefsParser::default();
        for n in 0..count {
            parser
                .take(format!("ref-prefix none{n}").as_bytes(), Unborn::Advertise, &limits)
                .unwrap();
        }
        assert_eq!(
            answer(&parser.finish(), None, &refs()).len() - 1,
            shown,
            "{count} prefixes"
        );
    }
}

#[test]
fn an_unborn_head_is_told_to_those_who_can_use_it() {
    let line = "unborn HEAD symref-target:refs/heads/main\n";
    for (lines, told) in [
        (&["unborn", "symrefs"][..], true),
        (&["unborn", "symrefs", "ref-prefix HEAD"], true),
        (&["unborn", "symrefs", "ref-prefix refs/"], false),
        (&["unborn"], false),
        (&["symrefs"], false),
    ] {
        let answer = answer(&parse(lines), Some(b"refs/heads/main"), &[]);
        assert_eq!(answer.first().is_some_and(|first| first == line), told, "{lines:?}");
        assert_eq!(answer.last().unwrap(), "0000");
    }
    let mut parser = LsRefsParser::default();
    parser.take(b"unborn", Unborn::Ignore, &Limits::new()).unwrap();
    assert!(!parser.finish().unborn);
}

#[test]
fn other_arguments_are_refused() {
    for line in ["peelx", "ref-prefix", "", "foo bar"] {
        let error = LsRefsParser::default()
            .take(line.as_bytes(), Unborn::Advertise, &Limits::new())
            .unwrap_err();
        assert_eq!(error.to_string(), format!("unexpected line: '{line}'"));
    }
}

proptest! {
    #[test]
    fn the_search_agrees_with_trying_each_prefix(
        prefixes in proptest::collection::vec("[ab/]{0,4}", 0..12),
        names in proptest::collection::vec("[ab/]{0,6}", 1..20),
    ) {
        let lines: Vec<String> = prefixes.iter().map(|prefix| format!("ref-prefix {prefix}")).collect();
        let parsed = parse(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        for name in names {
            let matches = prefixes.is_empty() || prefixes.iter().any(|prefix| name.starts_with(prefix));
            prop_assert_eq!(parsed.matches(name.as_bytes()), matches, "{}", name);
        }
    }
}
