//! Archives, and clients that know only the dumb protocol.

use super::Scenario;
use crate::session::Session;
use anyhow::Result;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("files::archive", archive),
        Scenario::new("files::dumb", dumb).over_http(),
    ]
}

fn archive(session: &Session<'_>) -> Result<()> {
    session.create()?;
    session.set("http.uploadarchive", "true")?;
    let client = session.init("client")?;
    client.commit("main", "dir/a.c", "a $Format:%s %ad$\n")?;
    client.commit("main", ".gitattributes", "*.c export-subst\nsecret export-ignore\n")?;
    client.commit("main", "secret", "not for all\n")?;
    client.git(&["push", "--quiet", "origin", "main"])?;
    let remote = format!("--remote={}", session.url());
    for arguments in [&["main"][..], &["--prefix=p/", "main", "dir"], &["--list"]] {
        let output = client.output(&[&["archive", &remote], arguments].concat())?;
        session.record(&format!(
            "{arguments:?}: {}\n{}",
            output.status.success(),
            output.stdout.escape_ascii()
        ));
    }
    client.refused(&["archive", &remote, "nothing"])?;
    client.refused(&["archive", &remote, "main", "nowhere"])?;
    session.set("http.uploadarchive", "false")?;
    let output = client.output(&["archive", &remote, "main"])?;
    session.record(&format!("switched off: {}", output.status.success()));
    Ok(())
}

fn dumb(session: &Session<'_>) -> Result<()> {
    session.create()?;
    let client = session.init("client")?;
    for number in 0..5 {
        client.commit("main", "a", &"line\n".repeat(100 + number))?;
        client.git(&["push", "--quiet", "origin", "main"])?;
    }
    client.git(&["tag", "-a", "-m", "x", "v1", "main"])?;
    client.git(&["push", "--quiet", "origin", "v1"])?;
    let copy = session.init("copy")?;
    copy.run_env(
        &[("GIT_SMART_HTTP", "0")],
        &["fetch", "--quiet", &session.url(), "+refs/*:refs/*"],
    )?;
    copy.record_state()?;
    copy.record_objects()
}
