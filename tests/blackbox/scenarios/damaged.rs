//! Packs that are not right: refused by both servers, and nothing of them is kept.

use super::Scenario;
use crate::format::Format;
use crate::packs::{Pack, appending_delta, commit, kind, oid, seal, tree, write_size};
use crate::session::Session;
use crate::wire::{Command, push};
use anyhow::Result;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("damaged::packs", packs),
        Scenario::new("damaged::deltas", deltas),
    ]
}

const BASE: &[u8] = b"some text that is long enough to be copied from\n";

/// A whole small history: a tree of one file and its commit.
struct Good {
    pack: Pack,
    tip: String,
}

fn good(format: Format) -> Result<Good> {
    with_blob(format, |pack| pack.object(kind::BLOB, BASE))
}

/// The same around a file that `add` writes.
fn with_blob(format: Format, add: impl Fn(&mut Pack) -> Result<String>) -> Result<Good> {
    let mut pack = Pack::new(format);
    let blob = add(&mut pack)?;
    let tree = pack.object(kind::TREE, &tree(&[("100644", "a", &blob)])?)?;
    let tip = pack.object(kind::COMMIT, &commit(&tree, &[]))?;
    Ok(Good { pack, tip })
}

fn try_pack(session: &Session<'_>, what: &str, tip: &str, pack: &[u8]) -> Result<()> {
    let format = session.format();
    let name = format!("refs/heads/{}", what.replace(' ', "-"));
    let command = Command {
        old: format.zero(),
        new: tip,
        name: &name,
    };
    let report = push(session, format.push_capabilities(), &[command], pack)?;
    session.record(&format!("{what}\n{}", report.verdict()));
    Ok(())
}

fn packs(session: &Session<'_>) -> Result<()> {
    let format = session.format();
    session.create()?;
    session.set_head("refs/heads/none")?;
    let Good { pack, tip } = good(format)?;
    let whole = pack.finish();
    let end = whole.len();
    let checksum_len = format.digest(b"").len();
    let cut = |at: usize| whole.get(..at).unwrap_or_default().to_vec();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 0x40;
        }
        bytes
    };
    let resealed = |mut bytes: Vec<u8>| {
        bytes.truncate(end - checksum_len);
        seal(format, &mut bytes);
        bytes
    };
    let cases = [
        ("cut in the header", cut(7)),
        ("cut in an entry", cut(end / 2)),
        ("cut before the checksum", cut(end - checksum_len)),
        ("cut in the checksum", cut(end - 5)),
        ("wrong checksum", flipped(end - 1)),
        ("bad signature", resealed(flipped(0))),
        ("bad zlib", resealed(flipped(20))),
        ("a flipped bit", flipped(end / 2)),
        ("version 9", pack.finish_as(9, 3)),
        ("one entry missing", pack.finish_as(2, 4)),
        ("one entry too many", pack.finish_as(2, 2)),
        ("no pack", Vec::new()),
    ];
    for (what, bytes) in cases {
        try_pack(session, what, &tip, &bytes)?;
    }
    for (what, kind) in [("kind 0", 0), ("kind 5", 5)] {
        let bad = with_blob(format, |pack| {
            pack.entry(kind, BASE.len(), &[], BASE)?;
            Ok(oid(format, kind::BLOB, BASE))
        })?;
        try_pack(session, what, &bad.tip, &bad.pack.finish())?;
    }
    for (what, size) in [
        ("too long", BASE.len() - 1),
        ("too short", BASE.len() + 1),
        ("huge", 1 << 60),
    ] {
        let bad = with_blob(format, |pack| {
            pack.entry(kind::BLOB, size, &[], BASE)?;
            Ok(oid(format, kind::BLOB, BASE))
        })?;
        try_pack(session, what, &bad.tip, &bad.pack.finish())?;
    }
    try_pack(session, "whole", &tip, &whole)
}

fn deltas(session: &Session<'_>) -> Result<()> {
    let format = session.format();
    session.create()?;
    session.set_head("refs/heads/none")?;
    // The base of thin packs.
    let Good { pack, tip } = good(format)?;
    try_pack(session, "base", &tip, &pack.finish())?;
    let target = [BASE, b"more\n"].concat();
    let delta = appending_delta(BASE.len(), b"more\n");
    let base_oid = oid(format, kind::BLOB, BASE);
    let absent = oid(format, kind::BLOB, b"nowhere");
    let target_oid = oid(format, kind::BLOB, &target);
    let mut cases: Vec<(&str, Good)> = Vec::new();
    let mut add = |what, write: &dyn Fn(&mut Pack) -> Result<()>| -> Result<()> {
        let good = with_blob(format, |pack| {
            write(pack)?;
            Ok(target_oid.clone())
        })?;
        cases.push((what, good));
        Ok(())
    };
    let far = |pack: &Pack, by: usize| pack.next_offset() - pack.offset(0) + by;
    add("base absent", &|pack| pack.ref_delta(&absent, &delta))?;
    add("base of itself", &|pack| pack.ref_delta(&target_oid, &delta))?;
    add("offset before the pack", &|pack| {
        pack.object(kind::BLOB, BASE)?;
        pack.offset_delta(1000, &delta)
    })?;
    add("offset within an entry", &|pack| {
        pack.object(kind::BLOB, BASE)?;
        pack.offset_delta(far(pack, 0) - 3, &delta)
    })?;
    add("offset of nothing", &|pack| pack.offset_delta(0, &delta))?;
    add("wrong base size", &|pack| {
        pack.object(kind::BLOB, BASE)?;
        pack.ref_delta(&base_oid, &appending_delta(BASE.len() - 1, b"more\n"))
    })?;
    add("copy past the base", &|pack| {
        pack.object(kind::BLOB, BASE)?;
        let mut bad = Vec::new();
        write_size(&mut bad, BASE.len());
        write_size(&mut bad, target.len());
        bad.extend_from_slice(&[0b1001_0001, 40, 53]);
        pack.ref_delta(&base_oid, &bad)
    })?;
    add("instruction 0", &|pack| {
        pack.object(kind::BLOB, BASE)?;
        let mut bad = Vec::new();
        write_size(&mut bad, BASE.len());
        write_size(&mut bad, target.len());
        bad.push(0);
        pack.ref_delta(&base_oid, &bad)
    })?;
    add("cut short", &|pack| {
        pack.object(kind::BLOB, BASE)?;
        pack.ref_delta(&base_oid, delta.get(..4).unwrap_or_default())
    })?;
    add("an offset delta", &|pack| {
        pack.object(kind::BLOB, BASE)?;
        pack.offset_delta(far(pack, 0), &delta)
    })?;
    add("a delta before its base", &|pack| {
        pack.ref_delta(&base_oid, &delta)?;
        pack.object(kind::BLOB, BASE).map(drop)
    })?;
    add("a thin pack", &|pack| pack.ref_delta(&base_oid, &delta))?;
    add("the same object twice", &|pack| {
        pack.object(kind::BLOB, &target)?;
        pack.object(kind::BLOB, &target).map(drop)
    })?;
    for (what, good) in &cases {
        try_pack(session, what, &good.tip, &good.pack.finish())?;
    }
    Ok(())
}
