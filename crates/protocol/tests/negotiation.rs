//! Fetch negotiations, byte for byte as stock git has them, up to the pack.

#![allow(clippy::unwrap_used)] // A test asserts by it, in its helpers too.

mod support;

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId};
use cuesta_protocol::options::UploadOptions;
use cuesta_protocol::pktline::{Decoder, Packet};
use cuesta_protocol::upload::answer::FetchAnswer;
use cuesta_protocol::upload::{v0, v2};
use cuesta_protocol::{Limits, ProtocolError};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use support::Repository;

/// A repository and what a server knows of it.
struct Server {
    repository: Repository,
    parents: HashMap<ObjectId, Vec<ObjectId>>,
    dates: HashMap<ObjectId, u64>,
    pool: Vec<ObjectId>,
    wants: Vec<ObjectId>,
}

impl Server {
    fn new() -> Self {
        let repository = Repository::full(ObjectFormat::Sha1);
        let listed = repository.git(&["rev-list", "--parents", "--timestamp", "--all"]);
        let oid = |hex: &str| ObjectId::from_hex(ObjectFormat::Sha1, hex.as_bytes()).unwrap();
        let (mut parents, mut dates) = (HashMap::new(), HashMap::new());
        for line in String::from_utf8(listed).unwrap().lines() {
            let (date, ids) = line.split_once(' ').unwrap();
            let ids: Vec<ObjectId> = ids.split(' ').map(oid).collect();
            dates.insert(ids[0], date.parse().unwrap());
            parents.insert(ids[0], ids[1..].to_vec());
        }
        let revisions = [
            "main",
            "main~1",
            "main~3",
            "main~5",
            "main~7",
            "side/topic",
            "side/topic~2",
            "refs/tags/v1",
            "main:file",
        ];
        let mut pool: Vec<ObjectId> = revisions.iter().map(|revision| repository.oid(revision)).collect();
        pool.extend((1..=3u8).map(|n| ObjectId::from_bytes(ObjectFormat::Sha1, &[n; 20]).unwrap()));
        let wants = ["main", "side/topic", "refs/tags/light"]
            .map(|revision| repository.oid(revision))
            .to_vec();
        Self {
            repository,
            parents,
            dates,
            pool,
            wants,
        }
    }

    fn has(&self, oid: &ObjectId) -> bool {
        self.pool
            .iter()
            .position(|known| known == oid)
            .is_none_or(|index| index < self.pool.len() - 3)
    }

    /// Whether git finds a common object, or a parent of one, above every want. It looks no further than the oldest
    /// common commit, by date.
    fn enough(&self, wants: &[ObjectId], common: &[ObjectId]) -> bool {
        let parents = common.iter().filter_map(|oid| self.parents.get(oid)).flatten();
        let ends: HashSet<&ObjectId> = common.iter().chain(parents).collect();
        let oldest = common
            .iter()
            .filter_map(|oid| self.dates.get(oid))
            .min()
            .copied()
            .unwrap_or(0);
        !common.is_empty() && wants.iter().all(|want| self.reaches(want, &ends, oldest))
    }

    fn reaches(&self, from: &ObjectId, ends: &HashSet<&ObjectId>, oldest: u64) -> bool {
        let mut queue = vec![from];
        while let Some(oid) = queue.pop() {
            if ends.contains(oid) || self.parents[oid].iter().any(|parent| ends.contains(parent)) {
                return true;
            }
            queue.extend(self.parents[oid].iter().filter(|parent| self.dates[*parent] >= oldest));
        }
        false
    }

    fn stock(&self, wire: &[u8], protocol: Option<&str>) -> Vec<u8> {
        self.repository
            .run(&["upload-pack", "--stateless-rpc", "."], wire, protocol)
            .0
    }

    fn v0(&self, wire: &[u8]) -> Result<(Vec<u8>, bool), ProtocolError> {
        let options = UploadOptions::new("test/1");
        let mut parser = v0::RequestParser::new(ObjectFormat::Sha1, options, Limits::new(), true);
        let mut decoder = Decoder::new();
        decoder.push(wire);
        let mut request = v0::Request::default();
        let mut negotiation = v0::Negotiation::new(&request, true);
        let (mut out, mut common) = (Vec::new(), Vec::new());
        while let Some(packet) = decoder.poll()? {
            let step = match parser.handle(&packet)? {
                v0::Event::Wants(wants) => {
                    request = *wants;
                    negotiation = v0::Negotiation::new(&request, true);
                    v0::Step::Continue
                }
                v0::Event::Have(oid) => {
                    let known = self.has(&oid);
                    let ready = negotiation.asks_ready(known) && self.enough(&request.pack.wants, &common);
                    negotiation.have(&mut out, oid, known, ready);
                    common.extend(known.then_some(oid));
                    v0::Step::Continue
                }
                v0::Event::Flush => {
                    let ready = negotiation.asks_ready_at_flush() && self.enough(&request.pack.wants, &common);
                    negotiation.flush(&mut out, ready)
                }
                v0::Event::Done => negotiation.done(&mut out),
                v0::Event::More | v0::Event::Nothing => v0::Step::Continue,
            };
            match step {
                v0::Step::Continue => {}
                v0::Step::End => return Ok((out, false)),
                v0::Step::Pack => return Ok((out, true)),
            }
        }
        parser.finish()?;
        Ok((out, false))
    }

    fn v2(&self, wire: &[u8]) -> Result<(Vec<u8>, bool), ProtocolError> {
        let mut parser = v2::RequestParser::new(ObjectFormat::Sha1, UploadOptions::new("test/1"), Limits::new());
        let mut decoder = Decoder::new();
        decoder.push(wire);
        let mut out = Vec::new();
        while let Some(packet) = decoder.poll()? {
            let v2::Event::Request(request) = parser.handle(&packet)? else {
                continue;
            };
            let v2::Command::Fetch(fetch) = request.command else {
                panic!("no fetch")
            };
            let common: Vec<ObjectId> = fetch.haves.iter().copied().filter(|oid| self.has(oid)).collect();
            let answer = FetchAnswer::new(&fetch);
            let pack = match fetch.step() {
                v2::FetchStep::Nothing => false,
                v2::FetchStep::Pack => true,
                v2::FetchStep::Acknowledge => {
                    let ready = fetch.asks_ready() && self.enough(&fetch.pack.wants, &common);
                    answer.acknowledgments(&mut out, &fetch, &common, ready)
                }
            };
            if pack {
                answer.packfile(&mut out);
            }
            return Ok((out, pack));
        }
        panic!("no request");
    }
}

fn encode(lines: &[String]) -> Vec<u8> {
    let mut wire = Vec::new();
    for line in lines {
        match &line[..] {
            "0000" => Packet::Flush.encode(&mut wire),
            "0001" => Packet::Delim.encode(&mut wire),
            line => Packet::Data(Bytes::copy_from_slice(line.as_bytes())).encode(&mut wire),
        }
    }
    wire
}

/// The answers must agree up to the pack, and on whether there is one.
fn compare(ours: (Vec<u8>, bool), stock: &[u8], lines: &[String]) -> Result<(), TestCaseError> {
    let (ours, pack) = ours;
    let ours_shown = ours.escape_ascii().to_string();
    let stock_shown = stock.escape_ascii().to_string();
    let rest = stock.get(ours.len()..).unwrap_or_default();
    prop_assert!(
        stock.starts_with(&ours),
        "{:?}\nours  {}\nstock {}",
        lines,
        ours_shown,
        stock_shown
    );
    let packed = rest.windows(4).take(16).any(|window| window == b"PACK");
    prop_assert_eq!(packed, pack, "{:?}\nstock {}", lines, stock_shown);
    prop_assert!(
        pack || rest.is_empty(),
        "{:?}\nours  {}\nstock {}",
        lines,
        ours_shown,
        stock_shown
    );
    Ok(())
}

/// Indices into wants; indices into the pool, each at most once, `None` for a flush.
fn conversation() -> impl Strategy<Value = (Vec<usize>, Vec<Option<usize>>, bool)> {
    let haves = Just((0..12usize).collect::<Vec<_>>()).prop_shuffle();
    let flushes = proptest::collection::vec(any::<prop::sample::Index>(), 0..3);
    let wants = proptest::sample::subsequence(vec![0usize, 1, 2], 1..=3);
    (wants, haves, 0..8usize, flushes, any::<bool>()).prop_map(|(wants, haves, count, flushes, done)| {
        let mut said: Vec<Option<usize>> = haves.into_iter().take(count).map(Some).collect();
        flushes
            .iter()
            .for_each(|at| said.insert(at.index(said.len() + 1), None));
        (wants, said, done)
    })
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        cases,
        source_file: Some(file!()),
        ..Config::default()
    })
}

#[test]
fn v0_acknowledgments_are_those_of_git() {
    let server = Server::new();
    let modes = prop::sample::select(vec![
        "",
        " multi_ack",
        " multi_ack_detailed",
        " multi_ack_detailed no-done",
    ]);
    let band = prop::sample::select(vec!["", " side-band", " side-band-64k"]);
    runner(160)
        .run(&(conversation(), modes, band), |((wants, said, done), mode, band)| {
            let mut lines = Vec::new();
            for (index, want) in wants.iter().enumerate() {
                let list = if index == 0 {
                    format!("{mode}{band} no-progress ofs-delta")
                } else {
                    String::new()
                };
                lines.push(format!("want {}{list}\n", server.wants[*want]));
            }
            lines.push("0000".to_owned());
            // Without multi_ack git also acknowledges a parent of the first common commit: one is the rule.
            let said = if mode.is_empty() {
                distinct(&server, &said)
            } else {
                said
            };
            for have in said {
                lines.push(have.map_or("0000".to_owned(), |index| format!("have {}\n", server.pool[index])));
            }
            lines.push(if done { "done\n".to_owned() } else { "0000".to_owned() });
            let wire = encode(&lines);
            compare(server.v0(&wire).unwrap(), &server.stock(&wire, None), &lines)
        })
        .unwrap();
}

#[test]
fn v2_acknowledgments_are_those_of_git() {
    let server = Server::new();
    runner(120)
        .run(&(conversation(), any::<bool>()), |((wants, said, done), wait)| {
            let mut lines: Vec<String> = ["command=fetch", "object-format=sha1", "0001", "no-progress"]
                .map(str::to_owned)
                .into();
            lines.extend(wants.iter().map(|want| format!("want {}\n", server.wants[*want])));
            // Git leaves out parents of earlier haves; the specification names every common one.
            let haves = distinct(&server, &said).into_iter().flatten();
            lines.extend(haves.map(|index| format!("have {}\n", server.pool[index])));
            lines.extend(wait.then(|| "wait-for-done".to_owned()));
            lines.extend(done.then(|| "done".to_owned()));
            lines.push("0000".to_owned());
            let wire = encode(&lines);
            compare(
                server.v2(&wire).unwrap(),
                &server.stock(&wire, Some("version=2")),
                &lines,
            )
        })
        .unwrap();
}

/// The haves without those whose child came earlier.
fn distinct(server: &Server, said: &[Option<usize>]) -> Vec<Option<usize>> {
    let mut implied = HashSet::new();
    let mut kept = Vec::new();
    for have in said {
        if have.is_some_and(|index| implied.contains(&server.pool[index])) {
            continue;
        }
        let parents = have.and_then(|index| server.parents.get(&server.pool[index]));
        implied.extend(parents.into_iter().flatten().copied());
        kept.push(*have);
    }
    kept
}

#[test]
fn requests_that_end_early_are_answered_as_git_does() {
    let server = Server::new();
    let want = format!("want {} multi_ack_detailed side-band-64k\n", server.wants[0]);
    for lines in [vec![want.clone(), "0000".to_owned()], vec!["0000".to_owned()]] {
        let wire = encode(&lines);
        compare(server.v0(&wire).unwrap(), &server.stock(&wire, None), &lines).unwrap();
    }
    for arguments in [&["done"][..], &["wait-for-done"], &["wait-for-done", "done"]] {
        let mut lines: Vec<String> = ["command=fetch", "0001", "no-progress"].map(str::to_owned).into();
        lines.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        lines.push("0000".to_owned());
        let wire = encode(&lines);
        compare(
            server.v2(&wire).unwrap(),
            &server.stock(&wire, Some("version=2")),
            &lines,
        )
        .unwrap();
    }
}

#[test]
fn unknown_wants_are_refused_as_git_does() {
    let server = Server::new();
    let absent = server.pool[11];
    let mut ours = Vec::new();
    let error = ProtocolError::NotOurRef(absent);
    cuesta_protocol::pktline::encode_error(&mut ours, &error.to_string());
    let wire = encode(&[format!("want {absent}\n"), "0000".to_owned(), "done".to_owned()]);
    assert_eq!(
        ours.escape_ascii().to_string(),
        server.stock(&wire, None).escape_ascii().to_string()
    );
    let lines = ["command=fetch", "0001", &format!("want {absent}"), "done", "0000"].map(str::to_owned);
    let stock = server.stock(&encode(&lines), Some("version=2"));
    assert_eq!(ours.escape_ascii().to_string(), stock.escape_ascii().to_string());
}
