use super::*;
use crate::testing::{hex, oid, texts};

fn report() -> Report {
    let ref_report = |name: &'static str, status| RefReport {
        name: name.into(),
        status,
    };
    let rewritten = RefOutcome {
        name: Some("refs/heads/x".into()),
        old: Some(oid(1)),
        new: Some(oid(2)),
        forced: true,
    };
    let second = RefOutcome {
        name: Some("refs/heads/y".into()),
        ..RefOutcome::default()
    };
    Report {
        unpack: Ok(()),
        refs: vec![
            ref_report("refs/heads/a", RefStatus::Ok(vec![])),
            ref_report("refs/heads/b", RefStatus::Ng("non-fast-forward".to_owned())),
            ref_report("refs/for/c", RefStatus::Ok(vec![rewritten, second])),
        ],
    }
}

fn written(report: &Report, version: ReportVersion, side_band: bool) -> Vec<u8> {
    let mut out = Vec::new();
    report.write(
        &mut out,
        &PushCapabilities {
            report: version,
            side_band,
            ..PushCapabilities::default()
        },
    );
    out
}

#[test]
fn every_command_is_reported_in_order() {
    let lines = [
        "unpack ok\n",
        "ok refs/heads/a\n",
        "ng refs/heads/b non-fast-forward\n",
        "ok refs/for/c\n",
        "0000",
    ];
    assert_eq!(texts(&written(&report(), ReportVersion::V1, false)), lines);
}

#[test]
fn the_second_version_tells_what_was_done_instead() {
    let old = format!("option old-oid {}\n", hex(1));
    let new = format!("option new-oid {}\n", hex(2));
    let lines = [
        "unpack ok\n",
        "ok refs/heads/a\n",
        "ng refs/heads/b non-fast-forward\n",
        "ok refs/for/c\n",
        "option refname refs/heads/x\n",
        &old,
        &new,
        "option forced-update\n",
        "ok refs/for/c\n",
        "option refname refs/heads/y\n",
        "0000",
    ];
    assert_eq!(texts(&written(&report(), ReportVersion::V2, false)), lines);
}

#[test]
fn a_side_band_wraps_the_report_and_has_a_flush_of_its_own() {
    let bare = written(&report(), ReportVersion::V1, false);
    let mut expected = Vec::new();
    SideBand::Large.data(&mut expected, &bare);
    expected.extend_from_slice(b"0000");
    assert_eq!(written(&report(), ReportVersion::V1, true), expected);
}

#[test]
fn nobody_is_told_who_did_not_ask() {
    assert_eq!(written(&report(), ReportVersion::None, false), b"");
    assert_eq!(written(&report(), ReportVersion::None, true), b"0000");
}

#[test]
fn reasons_are_one_line() {
    let mut refusal = Report::refusal([&"refs/heads/a".into()], "no\r\nsuch\x1b[31m");
    refusal.unpack = Err("index-pack\nfailed".to_owned());
    let lines = texts(&written(&refusal, ReportVersion::V1, false));
    assert_eq!(
        lines,
        ["unpack index-pack failed\n", "ng refs/heads/a no  such [31m\n", "0000"]
    );
    let long = Report::refusal([&"refs/heads/a".into()], &"\u{1f600}".repeat(100_000));
    assert_eq!(texts(&written(&long, ReportVersion::V1, false)).len(), 3);
}
