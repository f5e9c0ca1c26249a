//! What taking packs in costs. Run by hand, in release:
//! `CUESTA_REPO=<bare repository> cargo test --release -p cuesta-engine measure -- --ignored --nocapture`

// Measuring is asking what time it is.
#![allow(clippy::disallowed_methods)]

use super::layers::options;
use super::repo::Repo;
use crate::receive::intake::Intake;
use crate::receive::known::Nothing;
use cuesta_git::{ObjectFormat, ObjectId};
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Instant;

/// CPU seconds of this process and its peak resident set in MiB.
fn usage() -> (f64, u64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    (
        ticks / 100.0,
        peak.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() / 1024,
    )
}

struct Stages {
    wall: Instant,
    cpu: f64,
}

impl Stages {
    fn done(&mut self, name: &str) {
        let (cpu, peak) = usage();
        println!(
            "{name:>8}: {:7.2} s wall, {:7.2} s CPU, peak {peak} MiB",
            self.wall.elapsed().as_secs_f64(),
            cpu - self.cpu
        );
        *self = Self {
            wall: Instant::now(),
            cpu,
        };
    }
}

#[test]
#[ignore = "needs a large repository, named by CUESTA_REPO"]
fn measure_a_whole_repository() {
    let repo = std::env::var("CUESTA_REPO").expect("CUESTA_REPO names a bare repository");
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(&repo).args(arguments).stdout(Stdio::piped());
        command
    };
    let refs = git(&["for-each-ref", "--format=%(objectname)"])
        .output()
        .unwrap()
        .stdout;
    let mut values: Vec<ObjectId> = Vec::new();
    let head = git(&["rev-parse", "HEAD"]).output().unwrap().stdout;
    for line in String::from_utf8(head)
        .unwrap()
        .lines()
        .chain(String::from_utf8(refs).unwrap().lines())
    {
        values.push(ObjectId::from_hex(ObjectFormat::Sha1, line.as_bytes()).unwrap());
    }
    let mut pack = git(&["pack-objects", "--all", "--stdout", "-q", "--delta-base-offset"])
        .spawn()
        .unwrap();
    let mut stdout = pack.stdout.take().unwrap();
    let mut options = options(ObjectFormat::Sha1);
    options.limits.spool_directory = std::env::var("CUESTA_SPOOL").map_or(std::env::temp_dir(), Into::into);
    let file = options.limits.spool_directory.join("measure.pack");
    std::io::copy(&mut stdout, &mut std::fs::File::create(&file).unwrap()).unwrap();
    pack.wait().unwrap();

    let mut stages = Stages {
        wall: Instant::now(),
        cpu: usage().0,
    };
    let mut intake = Intake::new(options);
    let mut input = std::fs::File::open(&file).unwrap();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let len = input.read(&mut buffer).unwrap();
        if len == 0 {
            break;
        }
        intake.feed(&buffer[..len]).unwrap();
    }
    intake.finish_pack().unwrap();
    stages.done("parse");
    let settled = intake.settle(&Nothing).unwrap();
    stages.done("resolve");
    let reached = settled.reach(&Nothing, &Default::default(), &values).unwrap();
    stages.done("cut");
    let incomplete = reached
        .tips
        .iter()
        .filter(|tip| **tip == crate::receive::tips::Tip::Incomplete)
        .count();
    let built = settled.build(&Nothing, &reached, 8 << 20, &mut |_| Ok(())).unwrap();
    stages.done("build");
    println!(
        "{} objects, {} segments, {} links, {} of {} values incomplete; pack {} MB, cue {} MB",
        built.objects,
        built.segments,
        reached.cut.links.len(),
        incomplete,
        values.len(),
        built.pack_bytes / 1_000_000,
        built.cue.len() / 1_000_000,
    );
    std::fs::remove_file(&file).unwrap();
}

#[test]
#[ignore = "a measurement"]
fn measure_a_small_push() {
    let repo = Repo::new();
    let mut stream = String::new();
    // Text that deflates to about 4 KB, so that the three files of the push make a pack of about 12 KB.
    let body: String = (0..400u32)
        .map(|n| format!("a line of text, {:08x}\n", n.wrapping_mul(2_654_435_761)))
        .collect();
    for mark in 1..=2 {
        stream +=
            &format!("commit refs/heads/main\nmark :{mark}\ncommitter C <c@example.com> {mark} +0000\ndata 1\nm\n");
        if mark > 1 {
            stream += "from :1\n";
        }
        for file in ["src/a/one", "src/b/two", "doc/three"] {
            let text = format!("{body}{mark}{file}\n");
            stream += &format!("M 100644 inline {file}\ndata {}\n{text}\n", text.len());
        }
        stream += "\n";
    }
    repo.git(&["fast-import", "--quiet"], stream.as_bytes());
    let (old, tip) = (repo.rev("main~"), repo.rev("main"));
    let mut layers = super::layers::Layers::default();
    layers.push(&repo.pack(&["main~".into()], &[]), &[old]).unwrap();
    let pack = repo.pack(
        &["main".into(), "^main~".into()],
        &["--thin", "--window=0", "--delta-base-offset"],
    );
    for round in 0..5 {
        const TIMES: u32 = 5000;
        let (start, cpu) = (Instant::now(), usage().0);
        let options = options(ObjectFormat::Sha1);
        for _ in 0..TIMES {
            let mut intake = Intake::new(options.clone());
            intake.feed(&pack).unwrap();
            intake.finish_pack().unwrap();
            let settled = intake.settle(&layers).unwrap();
            let reached = settled.reach(&layers, &Default::default(), &[tip]).unwrap();
            let built = settled.build(&layers, &reached, 1 << 30, &mut |_| Ok(())).unwrap();
            assert_eq!(built.objects, settled.objects());
        }
        let wall = start.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES);
        let cpu = (usage().0 - cpu) * 1e6 / f64::from(TIMES);
        println!(
            "round {round}: {wall:.0} us wall, {cpu:.0} us CPU for a pack of {} bytes",
            pack.len()
        );
    }
}
