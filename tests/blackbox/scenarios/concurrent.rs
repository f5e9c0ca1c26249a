//! Many clients at once.

use super::Scenario;
use crate::client::Client;
use crate::session::Session;
use anyhow::{Context, Result, ensure};
use std::thread;

const PUSHERS: usize = 8;
const PUSHES: usize = 4;
const READERS: usize = 2;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("concurrent::own_branches", own_branches),
        Scenario::new("concurrent::one_branch", one_branch),
    ]
}

/// A client's work in a thread of its own: sessions record, so only plain data crosses.
struct Worker {
    environment: crate::client::Environment,
    directory: std::path::PathBuf,
}

impl Worker {
    fn of(session: &Session<'_>, client: &Client<'_, '_>) -> Self {
        Self {
            environment: session.environment().clone(),
            directory: client.directory().to_owned(),
        }
    }

    fn git(&self, arguments: &[&str]) -> Result<bool> {
        let mut command = self.environment.git(&self.directory);
        Ok(command.args(arguments).output()?.status.success())
    }
}

/// Pushes to different refs never fail one another, and readers see whole repositories all the while.
fn own_branches(session: &Session<'_>) -> Result<()> {
    let first = session.init("first")?;
    first.commit("main", "a", "1\n")?;
    first.succeed(&["push", "--quiet", "origin", "main"])?;
    let mut pushers = Vec::new();
    for number in 0..PUSHERS {
        let client = session.init(&format!("pusher{number}"))?;
        client.git(&["fetch", "--quiet", "origin", "main:own"])?;
        for push in 0..PUSHES {
            client.commit("own", &format!("dir{number}/file"), &format!("{push}\n"))?;
        }
        pushers.push(Worker::of(session, &client));
    }
    let reader = Worker::of(session, &Client::new(session, "."));
    let url = session.url();
    thread::scope(|scope| {
        let pushing = pushers.iter().enumerate().map(|(number, worker)| {
            scope.spawn(move || {
                for push in (0..PUSHES).rev() {
                    let refs = format!("own~{push}:refs/heads/own{number}");
                    ensure!(worker.git(&["push", "--quiet", "origin", &refs])?, "push {refs} failed");
                }
                Ok(())
            })
        });
        let pushing: Vec<_> = pushing.collect();
        let reading = (0..READERS).map(|number| {
            let (reader, url) = (&reader, &url);
            scope.spawn(move || {
                for run in 0..4 {
                    let name = format!("reader{number}-{run}.git");
                    ensure!(
                        reader.git(&["clone", "--quiet", "--mirror", url, &name])?,
                        "clone failed"
                    );
                    ensure!(reader.git(&["-C", &name, "fsck", "--full"])?, "'{name}' is broken");
                }
                Ok(())
            })
        });
        let reading: Vec<_> = reading.collect();
        for thread in pushing.into_iter().chain(reading) {
            thread.join().ok().context("a client panicked")??;
        }
        Ok(())
    })
}

/// Of pushes to one ref from one old value, exactly one wins.
fn one_branch(session: &Session<'_>) -> Result<()> {
    let first = session.init("first")?;
    first.commit("main", "a", "1\n")?;
    first.succeed(&["push", "--quiet", "origin", "main"])?;
    let mut workers = Vec::new();
    for number in 0..4 {
        let client = session.init(&format!("racer{number}"))?;
        client.git(&["fetch", "--quiet", "origin", "main:main"])?;
        client.commit("main", &format!("file{number}"), "mine\n")?;
        workers.push(Worker::of(session, &client));
    }
    let won = thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter()
            .map(|worker| scope.spawn(move || worker.git(&["push", "--quiet", "origin", "main"])))
            .collect();
        let outcomes = threads
            .into_iter()
            .map(|thread| thread.join().ok().context("a client panicked")?);
        outcomes.collect::<Result<Vec<_>>>()
    })?;
    let winners: Vec<_> = (0..won.len()).filter(|at| won.get(*at) == Some(&true)).collect();
    ensure!(winners.len() == 1, "{} of {} pushes won", winners.len(), won.len());
    let check = session.init("check")?;
    check.git(&["fetch", "--quiet", "origin", "main:main"])?;
    for number in winners {
        check.git(&["cat-file", "-e", &format!("main:file{number}")])?;
    }
    // Which one it was is chance: the end must be the same for both servers.
    first.succeed(&["push", "--quiet", "--force", "origin", "main"])
}
