//! Does a bucket keep its word? Checks by use, with real races, what layers and a ledger in the bucket stand on.
//!
//! A store that takes the headers of conditional writes may still let two writers win; a sequential check passes on most of
//! those. So the probe races.

use crate::bucket::{Bucket, Created, Swapped, Version};
use crate::error::{Result, StoreError, StoreErrorKind};
use crate::world::Entropy;
use bytes::Bytes;
use futures::future::join_all;
use std::fmt;
use std::future::Future;
use std::time::Duration;

/// One property of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Check {
    /// A payload written is read back whole, at once, and its size is told.
    ReadAfterWrite,
    /// A range gives exactly its bytes, and none that are not there.
    Ranges,
    /// A payload in parts appears whole, or not at all.
    Upload,
    /// A payload written is listed at once.
    ListAfterWrite,
    /// A payload deleted is gone at once, and may be deleted again.
    Delete,
    /// A second create is refused and changes nothing.
    Create,
    /// Of many simultaneous creates exactly one wins, and its payload is what all read.
    CreateRace,
    /// A swap by a version that is no more is refused and changes nothing.
    Swap,
    /// Of many simultaneous swaps by one version exactly one wins, and its payload is what all read.
    SwapRace,
}

/// What came of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It holds.
    Ok,
    /// The store does not offer it.
    Missing,
    /// The store offers it and breaks it, or could not be asked; why.
    Broken(String),
}

/// What a bucket can be trusted with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReport {
    bucket: String,
    findings: Vec<(Check, Finding)>,
}

impl ProbeReport {
    /// Each check made and what came of it, in the order made.
    pub fn findings(&self) -> &[(Check, Finding)] {
        &self.findings
    }

    /// Whether layers may be kept here: immutable payloads under names of their own, read by ranges.
    pub fn safe_for_layers(&self) -> bool {
        use Check::*;
        self.hold(&[ReadAfterWrite, Ranges, Upload, ListAfterWrite, Delete])
    }

    /// Whether a ledger may be kept here too: entry n durable if and only if n is the next.
    pub fn safe_for_bucket_ledger(&self) -> bool {
        self.safe_for_layers() && self.hold(&[Check::Create, Check::CreateRace])
    }

    fn hold(&self, checks: &[Check]) -> bool {
        let holds = |check: &Check| {
            self.findings
                .iter()
                .any(|(c, finding)| c == check && *finding == Finding::Ok)
        };
        checks.iter().all(holds)
    }
}

impl fmt::Display for ProbeReport {
    /// One line for each check.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "bucket '{}'", self.bucket)?;
        for (check, finding) in &self.findings {
            match finding {
                Finding::Ok => writeln!(f, "  {check}: ok")?,
                Finding::Missing => writeln!(f, "  {check}: missing")?,
                Finding::Broken(reason) => writeln!(f, "  {check}: broken: {reason}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ReadAfterWrite => "read after write",
            Self::Ranges => "exact ranges",
            Self::Upload => "upload in parts",
            Self::ListAfterWrite => "list after write",
            Self::Delete => "delete",
            Self::Create => "create if absent",
            Self::CreateRace => "one winner among racing creates",
            Self::Swap => "swap by version",
            Self::SwapRace => "one winner among racing swaps",
        })
    }
}

impl Bucket {
    /// Tries what this project needs of the bucket under `probe/<random>/`, and removes what it wrote. Costs a few hundred
    /// small requests; each check ends within [`CHECK_TIME_MAX`]. Never fails: what fails is in the report. A bucket that does
    /// not even give back what was written is asked nothing more.
    pub async fn probe(&self, entropy: &Entropy) -> ProbeReport {
        let probe = Probe::new(self, entropy);
        let mut findings = probe.what_layers_need().await;
        if is_readable(&findings) {
            findings.extend(probe.what_a_ledger_needs().await);
        }
        probe.end(findings).await
    }

    /// Only what [`ProbeReport::safe_for_layers`] asks: about thirty requests. Nothing races, for a store that locks a key
    /// may let each loser wait a second or more: too long for every start of a server whose ledger is elsewhere.
    pub async fn probe_for_layers(&self, entropy: &Entropy) -> ProbeReport {
        let probe = Probe::new(self, entropy);
        let findings = probe.what_layers_need().await;
        probe.end(findings).await
    }
}

type Findings = Vec<(Check, Finding)>;

/// Where nothing can be written and read, the other checks would only say so again, each after its own retries.
fn is_readable(findings: &Findings) -> bool {
    matches!(findings.first(), Some((_, Finding::Ok)))
}

/// The time after which a check counts as broken.
pub const CHECK_TIME_MAX: Duration = Duration::from_secs(30);

async fn bounded(check: Check, outcome: impl Future<Output = Result<(), Fault>>) -> (Check, Finding) {
    let finding = match tokio::time::timeout(CHECK_TIME_MAX, outcome).await {
        Ok(Ok(())) => Finding::Ok,
        Ok(Err(Fault::Store(error))) if error.kind() == StoreErrorKind::Invalid => Finding::Missing,
        Ok(Err(Fault::Store(error))) => Finding::Broken(error.to_string()),
        Ok(Err(Fault::Promise(broken))) => Finding::Broken(broken),
        Err(_) => Finding::Broken(format!("no end after {} seconds", CHECK_TIME_MAX.as_secs())),
    };
    (check, finding)
}

/// Why a check does not hold.
enum Fault {
    Store(StoreError),
    Promise(String),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

fn demand(holds: bool, broken: impl FnOnce() -> String) -> Result<(), Fault> {
    match holds {
        true => Ok(()),
        false => Err(Fault::Promise(broken())),
    }
}

struct Probe<'a> {
    bucket: &'a Bucket,
    directory: String,
}

impl<'a> Probe<'a> {
    fn new(bucket: &'a Bucket, entropy: &Entropy) -> Self {
        Self {
            bucket,
            directory: format!("probe/{:032x}", entropy.bits128()),
        }
    }

    async fn what_layers_need(&self) -> Findings {
        let mut findings = vec![bounded(Check::ReadAfterWrite, self.read_after_write()).await];
        if is_readable(&findings) {
            findings.extend([
                bounded(Check::Ranges, self.ranges()).await,
                bounded(Check::Upload, self.upload()).await,
                bounded(Check::ListAfterWrite, self.list_after_write()).await,
                bounded(Check::Delete, self.delete()).await,
            ]);
        }
        findings
    }

    async fn what_a_ledger_needs(&self) -> Findings {
        vec![
            bounded(Check::Create, self.create()).await,
            bounded(Check::CreateRace, self.create_race()).await,
            bounded(Check::Swap, self.swap()).await,
            bounded(Check::SwapRace, self.swap_race()).await,
        ]
    }

    async fn end(&self, findings: Findings) -> ProbeReport {
        // What a failed clean-up leaves is small, and nothing reads it.
        let _ = tokio::time::timeout(CHECK_TIME_MAX, self.clean_up()).await;
        ProbeReport {
            bucket: self.bucket.name().to_owned(),
            findings,
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    async fn read_after_write(&self) -> Result<(), Fault> {
        let key = self.key("written");
        for round in 0..ROUNDS {
            let payload = payload_of(round, 0);
            self.bucket.put(&key, payload.clone()).await?;
            demand(self.bucket.get(&key).await? == payload, || {
                "read something else than was written".to_owned()
            })?;
            let size = self.bucket.size(&key).await?;
            demand(size == Some(payload.len() as u64), || {
                format!("size is {size:?}, not {}", payload.len())
            })?;
        }
        Ok(())
    }

    async fn ranges(&self) -> Result<(), Fault> {
        let key = self.key("ranges");
        let payload = payload_of(0, 0);
        let end = payload.len() as u64;
        self.bucket.put(&key, payload.clone()).await?;
        for range in [0..1, 0..end, 1..end - 1, end - 1..end, 100..356] {
            let wanted = payload.slice(range.start as usize..range.end as usize);
            let got = self.bucket.get_range(&key, range.clone()).await?;
            demand(got == wanted, || format!("range {range:?} gave other bytes"))?;
        }
        let beyond = self.bucket.get_range(&key, end - 1..end + 1).await;
        demand(beyond.is_err(), || "a range past the end gave bytes".to_owned())
    }

    async fn upload(&self) -> Result<(), Fault> {
        let key = self.key("uploaded");
        let part = Bytes::from(vec![7; UPLOAD_PART_BYTES]);
        let mut upload = self.bucket.upload_in_parts(&key, UPLOAD_PART_BYTES)?;
        upload.write(part.clone()).await?;
        upload.write(Bytes::from_static(b"end")).await?;
        demand(self.bucket.size(&key).await?.is_none(), || {
            "an unfinished upload is visible".to_owned()
        })?;
        let size = upload.finish().await?;
        let tail = self.bucket.get_range(&key, size - 4..size).await?;
        demand(tail == b"\x07end"[..], || "the parts came together wrongly".to_owned())
    }

    async fn list_after_write(&self) -> Result<(), Fault> {
        let directory = self.key("listed");
        for n in 0..ROUNDS {
            let key = format!("{directory}/{n}");
            self.bucket.put(&key, Bytes::from_static(b"x")).await?;
            let listed = self.bucket.list_all(&directory).await?;
            demand(
                listed.len() == n + 1 && listed.iter().any(|listed| listed.key == key),
                || format!("{} of {} keys listed", listed.len(), n + 1),
            )?;
        }
        Ok(())
    }

    async fn delete(&self) -> Result<(), Fault> {
        let key = self.key("deleted");
        self.bucket.put(&key, Bytes::from_static(b"x")).await?;
        self.bucket.delete(&key).await?;
        demand(self.bucket.size(&key).await?.is_none(), || {
            "a deleted payload is still there".to_owned()
        })?;
        self.bucket.delete(&key).await?;
        Ok(())
    }

    async fn create(&self) -> Result<(), Fault> {
        let key = self.key("created");
        let (first, second) = (payload_of(0, 1), payload_of(0, 2));
        demand(self.bucket.create(&key, first.clone()).await? == Created::Done, || {
            "a new key exists".to_owned()
        })?;
        let again = self.bucket.create(&key, second).await?;
        demand(again == Created::Exists, || "a second create was accepted".to_owned())?;
        demand(self.bucket.get(&key).await? == first, || {
            "a refused create changed the payload".to_owned()
        })
    }

    async fn create_race(&self) -> Result<(), Fault> {
        for round in 0..RACE_ROUNDS {
            let key = self.key(&format!("create-race-{round}"));
            let race = (0..WRITERS).map(|writer| self.bucket.create(&key, payload_of(round, writer)));
            let mut winners = Vec::new();
            for (writer, outcome) in join_all(race).await.into_iter().enumerate() {
                if outcome? == Created::Done {
                    winners.push(writer);
                }
            }
            self.demand_winner(&key, round, &winners).await?;
        }
        Ok(())
    }

    async fn swap(&self) -> Result<(), Fault> {
        let key = self.key("swapped");
        let first = self.swapped(&key, None, payload_of(0, 1)).await?;
        let second = self.swapped(&key, Some(&first), payload_of(0, 2)).await?;
        demand(first != second, || "two writes have one version".to_owned())?;
        for stale in [None, Some(&first)] {
            let outcome = self.bucket.swap(&key, stale, payload_of(0, 3)).await?;
            demand(outcome == Swapped::Stale, || {
                "a swap by a stale version was accepted".to_owned()
            })?;
        }
        let read = self.bucket.get_version(&key).await?;
        demand(read == Some((payload_of(0, 2), second)), || {
            "a refused swap changed the payload".to_owned()
        })
    }

    async fn swap_race(&self) -> Result<(), Fault> {
        let key = self.key("swap-race");
        let mut version = self.swapped(&key, None, payload_of(RACE_ROUNDS, 0)).await?;
        for round in 0..RACE_ROUNDS {
            let race = (0..WRITERS).map(|writer| self.bucket.swap(&key, Some(&version), payload_of(round, writer)));
            let (mut winners, mut next) = (Vec::new(), None);
            for (writer, outcome) in join_all(race).await.into_iter().enumerate() {
                if let Swapped::Done(version) = outcome? {
                    winners.push(writer);
                    next = Some(version);
                }
            }
            self.demand_winner(&key, round, &winners).await?;
            version = next.unwrap_or(version);
        }
        Ok(())
    }

    async fn swapped(&self, key: &str, expected: Option<&Version>, payload: Bytes) -> Result<Version, Fault> {
        match self.bucket.swap(key, expected, payload).await? {
            Swapped::Done(version) => Ok(version),
            Swapped::Stale => Err(Fault::Promise("a swap by the right version was refused".to_owned())),
        }
    }

    async fn demand_winner(&self, key: &str, round: usize, winners: &[usize]) -> Result<(), Fault> {
        let [winner] = winners else {
            return Err(Fault::Promise(format!(
                "{} of {WRITERS} racing writers won",
                winners.len()
            )));
        };
        for stored in join_all((0..READERS).map(|_| self.bucket.get(key))).await {
            let ours = stored? == payload_of(round, *winner);
            demand(ours, || "the payload stored is not the winner's".to_owned())?;
        }
        Ok(())
    }

    async fn clean_up(&self) -> Result<()> {
        for listed in self.bucket.list_all(&self.directory).await? {
            self.bucket.delete(&listed.key).await?;
        }
        Ok(())
    }
}

/// A few kilobytes that no other round or writer has; each writer's are of a length of their own.
fn payload_of(round: usize, writer: usize) -> Bytes {
    let line = format!("round {round} writer {writer}\n");
    Bytes::from(line.repeat(PAYLOAD_LINES + writer))
}

const ROUNDS: usize = 3;
// A store that locks a key may let each loser wait a second or more, so many more would outlast a check's time.
const RACE_ROUNDS: usize = 3;
const WRITERS: usize = 8;
const READERS: usize = 3;
const PAYLOAD_LINES: usize = 200;
/// The least that S3 takes for a part that is not the last.
const UPLOAD_PART_BYTES: usize = 5 << 20;
