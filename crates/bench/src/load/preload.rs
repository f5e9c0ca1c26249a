//! Refs made before the load, so that advertisements have something to say.

use super::history::{RandomFiles, Shape};
use crate::http::{Connection, Target};
use anyhow::{Result, ensure};
use cuesta_git::pack::PackHeader;
use cuesta_git::{Checksum, ObjectFormat, ObjectId};
use cuesta_protocol::pktline;

/// Servers limit the commands of one push.
const REFS_PER_PUSH: usize = 5_000;

/// Makes `count` branches `<prefix>-<number>` that share one commit.
pub(super) async fn make_refs(target: &Target, prefix: &str, count: usize) -> Result<()> {
    let shape = Shape {
        files: 1..=1,
        file_bytes: 2048,
    };
    let mut pack = Vec::new();
    let oid = RandomFiles::new(prefix, shape).write_next(&mut pack)?;
    for first in (0..count).step_by(REFS_PER_PUSH) {
        let names = first..count.min(first + REFS_PER_PUSH);
        push(
            target,
            names.map(|number| format!("refs/heads/{prefix}-{number:06}")),
            oid,
            &pack,
        )
        .await?;
        pack = empty_pack();
    }
    Ok(())
}

async fn push(target: &Target, names: impl Iterator<Item = String>, oid: ObjectId, pack: &[u8]) -> Result<()> {
    let null = ObjectId::null(ObjectFormat::Sha1);
    let mut body = Vec::new();
    for (index, name) in names.enumerate() {
        let behind: &[u8] = if index == 0 { b"\0report-status" } else { b"" };
        pktline::encode(&mut body, &[format!("{null} {oid} {name}").as_bytes(), behind]);
    }
    body.extend_from_slice(pktline::FLUSH);
    let mut request = Vec::new();
    target.write_rpc(&mut request, "git-receive-pack", "", &[&body, pack]);
    let mut connection = Connection::open(target).await?;
    let status = connection.exchange(&request).await?;
    let report = String::from_utf8_lossy(connection.body());
    let done = status == 200 && report.contains("unpack ok") && !report.contains("ng refs/");
    ensure!(done, "cannot make refs: status {status}: {report:.300}");
    Ok(())
}

fn empty_pack() -> Vec<u8> {
    let header = PackHeader::new(0).encode();
    let mut checksum = Checksum::new(ObjectFormat::Sha1);
    checksum.update(&header);
    [&header[..], checksum.finish().as_bytes()].concat()
}
