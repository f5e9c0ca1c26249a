//! The `ls-refs` command over a view.

use super::shown_refs;
use crate::ref_rope::{Form, RefLines, Rope};
use cuesta_git::HiddenRefs;
use cuesta_ledger::State;
use cuesta_protocol::pktline::FLUSH;
use cuesta_protocol::upload::ls_refs::LsRefs;

/// The whole answer; `rope` has what upload-pack shows of `state`. Cost: `HEAD`, and a search for each prefix.
pub fn write(state: &State, hidden: &HiddenRefs, rope: &Rope, request: &LsRefs) -> RefLines {
    let mut lines = RefLines::default();
    lines.push(write_head(state, hidden, request));
    let form = Form::of_request(request);
    if request.prefixes().is_empty() {
        rope.append_all(form, &mut lines);
    }
    for prefix in request.prefixes() {
        rope.append_prefixed(prefix, form, &mut lines);
    }
    lines.push(&FLUSH[..]);
    lines
}

/// `HEAD`, if it is asked for: what it leads to, or that it leads to nothing.
fn write_head(state: &State, hidden: &HiddenRefs, request: &LsRefs) -> Vec<u8> {
    let mut out = Vec::new();
    if request.matches(b"HEAD") {
        match (shown_refs::head(state, hidden), shown_refs::unborn_head(state)) {
            (Some(head), _) => request.write_ref(&mut out, &head),
            (None, Some(target)) if !hidden.hides(target) => {
                request.write_unborn_head(&mut out, target.as_bytes());
            }
            (None, _) => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::shown_refs;
    use bytes::Buf;
    use cuesta_format::{Cause, Edit, EditId, RefTarget, RefUpdate, SymrefChange};
    use cuesta_git::{HiddenRefs, ObjectFormat, ObjectId, RefName};
    use cuesta_protocol::Limits;
    use cuesta_protocol::options::UploadOptions;
    use cuesta_protocol::upload::v2::Command;
    use proptest::prelude::*;

    fn name(text: &str) -> RefName {
        RefName::new(text.as_bytes()).unwrap()
    }

    fn state(refs: &[&str], symrefs: &[(&str, &str)]) -> State {
        let oid = ObjectId::from_hex(ObjectFormat::Sha1, "1".repeat(40).as_bytes()).unwrap();
        let target = |target: &str| {
            Some(RefTarget {
                oid,
                peeled: target.contains("tags").then_some(oid),
            })
        };
        let mut state = State::default();
        let edit = Edit {
            object_format: Some(ObjectFormat::Sha1),
            refs: refs
                .iter()
                .map(|text| RefUpdate {
                    name: name(text),
                    old: None,
                    new: target(text),
                })
                .collect(),
            symrefs: symrefs
                .iter()
                .map(|(from, to)| SymrefChange {
                    name: name(from),
                    target: Some(name(to)),
                })
                .collect(),
            ..Edit::new(EditId(1), 0, Cause::Import, "")
        };
        state.apply(&edit).unwrap();
        state
    }

    fn ask(state: &State, hidden: &str, arguments: &[&str]) -> String {
        let mut body = b"0014command=ls-refs\n0001".to_vec();
        for argument in arguments {
            body.extend(format!("{:04x}{argument}", argument.len() + 4).into_bytes());
        }
        body.extend(b"0000");
        let options = UploadOptions::new("test");
        let request = crate::service::negotiate::read_v2(&body, ObjectFormat::Sha1, options, Limits::new());
        let Command::LsRefs(request) = request.unwrap().unwrap().command else {
            panic!("not ls-refs")
        };
        let hidden = HiddenRefs::new(hidden.lines());
        let rope = Rope::new(ObjectFormat::Sha1, shown_refs::named(state, &hidden, b""));
        let mut answer = write(state, &hidden, &rope, &request);
        let answer = answer.copy_to_bytes(answer.remaining());
        let answer = String::from_utf8(answer.to_vec()).unwrap();
        answer.replace(&"1".repeat(40), "1")
    }

    /// The names in an answer, in order.
    fn names(answer: &str) -> Vec<&str> {
        answer.lines().filter_map(|line| line.split(' ').nth(1)).collect()
    }

    const REFS: &[&str] = &[
        "refs/heads/a",
        "refs/heads/a-b",
        "refs/heads/main",
        "refs/pull/1",
        "refs/tags/v1",
    ];
    const SYMREFS: &[(&str, &str)] = &[
        ("HEAD", "refs/heads/main"),
        ("refs/heads/alias", "refs/heads/a"),
        ("refs/zz", "refs/heads/none"),
    ];

    #[test]
    fn head_comes_first_and_symbolic_refs_stand_in_order() {
        let state = state(REFS, SYMREFS);
        let all = ask(&state, "refs/pull", &["peel", "symrefs"]);
        let expected = [
            "HEAD",
            "refs/heads/a",
            "refs/heads/a-b",
            "refs/heads/alias",
            "refs/heads/main",
            "refs/tags/v1",
        ];
        assert_eq!(names(&all), expected);
        assert!(all.contains("1 HEAD symref-target:refs/heads/main\n"), "{all}");
        assert!(all.contains("1 refs/heads/alias symref-target:refs/heads/a\n"), "{all}");
        assert!(
            all.contains("1 refs/tags/v1 peeled:1\n") && all.ends_with("0000"),
            "{all}"
        );
        assert!(!ask(&state, "refs/pull", &[]).contains("symref-target"));
    }

    #[test]
    fn prefixes_choose() {
        let state = state(REFS, SYMREFS);
        assert_eq!(
            names(&ask(&state, "", &["ref-prefix HEAD", "ref-prefix refs/tags/"])),
            ["HEAD", "refs/tags/v1"]
        );
        assert_eq!(
            names(&ask(
                &state,
                "",
                &["ref-prefix refs/heads/a", "ref-prefix refs/heads/al"]
            )),
            ["refs/heads/a", "refs/heads/a-b", "refs/heads/alias"]
        );
        assert!(names(&ask(&state, "", &["ref-prefix refs/none"])).is_empty());
    }

    #[test]
    fn an_unborn_head_is_told_of_if_asked_for() {
        let unborn = state(&["refs/heads/a"], &[("HEAD", "refs/heads/main")]);
        assert!(ask(&unborn, "", &["symrefs", "unborn"]).contains("unborn HEAD symref-target:refs/heads/main\n"));
        assert_eq!(names(&ask(&unborn, "", &["symrefs"])), ["refs/heads/a"]);
        let hidden = state(&[], &[("HEAD", "refs/heads/main")]);
        assert!(!ask(&hidden, "refs/heads", &["symrefs", "unborn"]).contains("unborn"));
    }

    proptest! {
        /// Reading only the ranges of the prefixes gives what reading everything and choosing gives.
        #[test]
        fn ranges_give_what_a_filter_gives(
            chosen in proptest::collection::btree_set("refs/[ab]/[abc]{1,2}", 0..12),
            prefixes in proptest::collection::vec("(HEAD|refs/?[ab]?/?[abc]{0,2})", 0..4),
        ) {
            let refs: Vec<&str> = chosen.iter().map(String::as_str).collect();
            let Some(first) = refs.first() else { return Ok(()) };
            let state = state(&refs, &[("HEAD", first)]);
            let hidden = HiddenRefs::new(["refs/a/b"]);
            let all = shown_refs::upload_refs(&state, &hidden);
            let wanted = |shown: &[u8]| prefixes.is_empty() || prefixes.iter().any(|prefix| shown.starts_with(prefix.as_bytes()));
            let expected: Vec<String> = all
                .filter(|shown| wanted(shown.name))
                .map(|shown| String::from_utf8_lossy(shown.name).into_owned())
                .collect();
            let arguments: Vec<String> = prefixes.iter().map(|prefix| format!("ref-prefix {prefix}")).collect();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let answer = ask(&state, "refs/a/b", &arguments);
            prop_assert_eq!(names(&answer), expected);
        }
    }
}
