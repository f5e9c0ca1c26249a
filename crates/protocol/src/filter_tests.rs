use proptest::prelude::*;

use super::*;

fn parse(spec: &str) -> Result<FilterSpec, String> {
    FilterSpec::parse(spec.as_bytes(), &Limits::new()).map_err(|error| error.to_string())
}

#[test]
fn every_kind_is_taken() {
    use FilterSpec::*;
    let sparse = |name: &'static str| SparseOid(Bytes::from_static(name.as_bytes()));
    for (spec, filter) in [
        ("blob:none", BlobNone),
        ("blob:limit=0", BlobLimit(0)),
        ("blob:limit=1k", BlobLimit(1024)),
        ("blob:limit=2M", BlobLimit(2 << 20)),
        ("blob:limit=3g", BlobLimit(3 << 30)),
        ("tree:0", TreeDepth(0)),
        ("tree:17", TreeDepth(17)),
        ("sparse:oid=main:specs/a b", sparse("main:specs/a b")),
        ("object:type=commit", ObjectType(ObjectKind::Commit)),
        ("object:type=tag", ObjectType(ObjectKind::Tag)),
        ("combine:blob:none", Combine(vec![BlobNone])),
        ("combine:tree:3+blob:none", Combine(vec![TreeDepth(3), BlobNone])),
        ("combine:+tree:3++blob:none+", Combine(vec![TreeDepth(3), BlobNone])),
        ("combine:%74ree:3+blob%3anone", Combine(vec![TreeDepth(3), BlobNone])),
        ("combine:sparse:oid=a%2bb%7E%25", Combine(vec![sparse("a+b~%")])),
        (
            "combine:combine:tree:1%2bblob:none+tree:2",
            Combine(vec![Combine(vec![TreeDepth(1), BlobNone]), TreeDepth(2)]),
        ),
    ] {
        assert_eq!(parse(spec), Ok(filter), "{spec}");
    }
}

#[test]
fn faults_are_named_as_git_does() {
    for (spec, text) in [
        ("", "invalid filter-spec ''"),
        ("blob:none ", "invalid filter-spec 'blob:none '"),
        ("blob:limit=", "invalid filter-spec 'blob:limit='"),
        ("blob:limit=-1", "invalid filter-spec 'blob:limit=-1'"),
        ("blob:limit=1kk", "invalid filter-spec 'blob:limit=1kk'"),
        (
            "blob:limit=99999999999999999999",
            "invalid filter-spec 'blob:limit=99999999999999999999'",
        ),
        (
            "blob:limit=18446744073709551615k",
            "invalid filter-spec 'blob:limit=18446744073709551615k'",
        ),
        ("tree:", "expected 'tree:<depth>'"),
        ("tree:x", "expected 'tree:<depth>'"),
        ("sparse:path=x", "sparse:path filters support has been dropped"),
        (
            "object:type=foo",
            "'foo' for 'object:type=<type>' is not a valid object type",
        ),
        ("combine:", "expected something after combine:"),
        ("combine:+", "expected something after combine:"),
        ("combine:tree:3+blob:none~", "must escape char in sub-filter-spec: '~'"),
        ("combine:tree:3 +blob:none", "must escape char in sub-filter-spec: ' '"),
        ("combine:tree:3+x", "invalid filter-spec 'x'"),
        ("auto", "invalid filter-spec 'auto'"),
    ] {
        assert_eq!(parse(spec), Err(text.to_owned()), "{spec}");
    }
}

#[test]
fn limits_hold_at_their_values_and_not_above() {
    let mut limits = Limits::new();
    limits.filters_max = 3;
    limits.filter_depth_max = 2;
    let parse = |spec: &str| {
        FilterSpec::parse(spec.as_bytes(), &limits)
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    assert_eq!(parse("combine:tree:1+tree:2"), Ok(()));
    assert_eq!(
        parse("combine:tree:1+tree:2+tree:3"),
        Err("too many filters: the limit is 3".to_owned())
    );
    assert_eq!(parse("combine:combine:tree:1"), Ok(()));
    let deep = "combine:combine:combine:tree:1";
    assert_eq!(
        parse(deep),
        Err("too many levels of combined filters: the limit is 2".to_owned())
    );
    limits.filter_bytes_max = 9;
    assert!(FilterSpec::parse(b"blob:none", &limits).is_ok());
    assert!(FilterSpec::parse(b"tree:00000", &limits).is_err());
}

#[test]
fn policies_reach_into_combinations() {
    let filter = |spec: &str| parse(spec).unwrap();
    let check = |policy: &FilterPolicy, spec: &str| policy.check(&filter(spec)).map_err(|error| error.to_string());
    let mut policy = FilterPolicy::default();
    assert_eq!(check(&policy, "combine:tree:9+blob:none"), Ok(()));
    policy.kinds.insert("blob:none".to_owned(), false);
    assert_eq!(check(&policy, "blob:limit=1"), Ok(()));
    assert_eq!(
        check(&policy, "combine:tree:9+blob:none"),
        Err("filter 'blob:none' not supported".to_owned())
    );
    policy.tree_depth_max = Some(5);
    assert_eq!(check(&policy, "tree:5"), Ok(()));
    assert_eq!(
        check(&policy, "combine:tree:6"),
        Err("tree filter allows max depth 5, but got 6".to_owned())
    );
    let closed = FilterPolicy {
        allow: false,
        kinds: [("tree".to_owned(), true)].into(),
        tree_depth_max: None,
    };
    assert_eq!(check(&closed, "tree:1"), Ok(()));
    assert_eq!(
        check(&closed, "combine:tree:1"),
        Err("filter 'combine' not supported".to_owned())
    );
    assert_eq!(
        check(&closed, "object:type=tag"),
        Err("filter 'object:type' not supported".to_owned())
    );
}

fn filter() -> impl Strategy<Value = FilterSpec> {
    let kind = prop::sample::select(vec![
        ObjectKind::Commit,
        ObjectKind::Tree,
        ObjectKind::Blob,
        ObjectKind::Tag,
    ]);
    let leaf = prop_oneof![
        Just(FilterSpec::BlobNone),
        any::<u64>().prop_map(FilterSpec::BlobLimit),
        any::<u64>().prop_map(FilterSpec::TreeDepth),
        kind.prop_map(FilterSpec::ObjectType),
        proptest::collection::vec(1..=255u8, 0..12).prop_map(|name| FilterSpec::SparseOid(name.into())),
    ];
    leaf.prop_recursive(4, 20, 3, |inner| {
        proptest::collection::vec(inner, 1..4).prop_map(FilterSpec::Combine)
    })
}

proptest! {
    #[test]
    fn written_filters_parse_to_themselves(filter in filter()) {
        let mut spec = Vec::new();
        filter.write(&mut spec);
        prop_assert_eq!(FilterSpec::parse(&spec, &Limits::new()), Ok(filter));
    }

    #[test]
    fn any_specification_is_taken_or_refused(spec in "(combine:|blob:|tree:|[%+:=0-9a-f~])*") {
        let _ = FilterSpec::parse(spec.as_bytes(), &Limits::new());
    }
}
