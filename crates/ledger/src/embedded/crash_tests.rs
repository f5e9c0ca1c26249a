//! Power loss at the nth sync: what was acknowledged is there, whatever subset of the unsynced writes reached the disk.

use super::EmbeddedStore;
use crate::{Appended, Base, LedgerError, LogStore};
use bytes::Bytes;
use cuesta_format::LogId;
use cuesta_store::{Entropy, Workers};
use parking_lot::Mutex;
use redb::{Database, StorageBackend};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

const SEEDS: u64 = 40;
const LOGS: u128 = 3;

/// A disk with a cache of its own, which loses part of it when the power goes.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<Platters>>);

#[derive(Debug, Default)]
struct Platters {
    cached: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Write>,
    /// The power goes at the sync after so many.
    syncs_left: u64,
    dead: bool,
}

#[derive(Debug)]
enum Write {
    Bytes(usize, Vec<u8>),
    Len(usize),
}

impl Write {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Self::Len(len) => image.resize(*len, 0),
            Self::Bytes(offset, bytes) => {
                let end = offset + bytes.len();
                image.resize(image.len().max(end), 0);
                image[*offset..end].copy_from_slice(bytes);
            }
        }
    }
}

impl Disk {
    fn holding(image: Vec<u8>, syncs: u64) -> Self {
        Self(Arc::new(Mutex::new(Platters {
            cached: image.clone(),
            durable: image,
            syncs_left: syncs,
            ..Platters::default()
        })))
    }

    /// What is on it when the power comes back: what was synced, and of the rest what chance wills, even half a write.
    fn after_power_loss(&self, chance: &Entropy) -> Vec<u8> {
        let platters = self.0.lock();
        let mut image = platters.durable.clone();
        for write in &platters.unsynced {
            match (chance.bits64() % 3, write) {
                (0, _) => {}
                (1, Write::Bytes(offset, bytes)) => {
                    let sectors = bytes.len().div_ceil(512);
                    let whole = usize::try_from(chance.bits64()).unwrap_or(0) % (sectors + 1) * 512;
                    Write::Bytes(*offset, bytes[..whole.min(bytes.len())].to_vec()).apply(&mut image);
                }
                _ => write.apply(&mut image),
            }
        }
        image
    }

    fn alive(&self) -> io::Result<parking_lot::MutexGuard<'_, Platters>> {
        let platters = self.0.lock();
        if platters.dead {
            Err(io::Error::other("no power"))
        } else {
            Ok(platters)
        }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.alive()?.cached.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let platters = self.alive()?;
        let offset = usize::try_from(offset).unwrap();
        out.copy_from_slice(&platters.cached[offset..offset + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.write_op(Write::Len(usize::try_from(len).unwrap()))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut platters = self.alive()?;
        if platters.syncs_left == 0 {
            platters.dead = true;
            return Err(io::Error::other("power lost"));
        }
        platters.syncs_left -= 1;
        platters.durable = platters.cached.clone();
        platters.unsynced.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_op(Write::Bytes(usize::try_from(offset).unwrap(), data.to_vec()))
    }
}

impl Disk {
    fn write_op(&self, write: Write) -> io::Result<()> {
        let mut platters = self.alive()?;
        write.apply(&mut platters.cached);
        platters.unsynced.push(write);
        Ok(())
    }
}

/// What a writer was told.
#[derive(Clone, Copy, Default)]
struct Told {
    end: u64,
    base: u64,
    base_asked: u64,
}

fn open(disk: &Disk) -> Result<EmbeddedStore, LedgerError> {
    let database = Database::builder()
        .set_cache_size(1 << 20)
        .create_with_backend(disk.clone());
    let database = database.map_err(|error| LedgerError::unavailable("open", error))?;
    EmbeddedStore::start(database, "disk", Workers::Pool(tokio::runtime::Handle::current()))
}

fn payload(log: LogId, number: u64) -> Bytes {
    let length = usize::try_from(number * 977 % 9000).unwrap();
    Bytes::from(format!("{log} {number} ").repeat(1 + length / 40))
}

/// Appends until the power goes, and truncates now and then. `before` is what earlier lives were told.
async fn write_until_dark(store: Arc<EmbeddedStore>, log: LogId, before: Told) -> Told {
    let (Ok(end), Ok(base)) = (store.end(log).await, store.base(log).await) else {
        return before;
    };
    let mut told = Told {
        end,
        base: base.first,
        base_asked: base.first,
    };
    loop {
        match store.append(log, told.end, payload(log, told.end)).await {
            Ok(Appended::Done) => told.end += 1,
            Ok(Appended::Taken) => panic!("entry {} of {log} was taken by nobody", told.end),
            Err(_) => return told,
        }
        if told.end.is_multiple_of(7) {
            told.base_asked = told.end - 3;
            let base = Base {
                first: told.base_asked,
                checkpoint: Some(told.base_asked),
            };
            if store.advance(log, base).await.is_err() {
                return told;
            }
            told.base = told.base_asked;
        }
    }
}

async fn audit(store: &EmbeddedStore, log: LogId, told: &Told) {
    let base = store.base(log).await.unwrap();
    assert!(
        base.first == told.base || base.first == told.base_asked,
        "{base:?}, told {}",
        told.base
    );
    let end = store.end(log).await.unwrap();
    assert!(
        end == told.end || end == told.end + 1,
        "{log} ends at {end}, told {}",
        told.end
    );
    let entries = store.read(log, base.first, usize::MAX).await.unwrap();
    let expected: Vec<_> = (base.first..end).map(|number| (number, payload(log, number))).collect();
    assert_eq!(entries, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_power_loss_at_any_sync() {
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let chance = Entropy::seeded(seed);
        let mut image = Vec::new();
        let mut told: BTreeMap<u128, Told> = BTreeMap::new();
        // Three lives, each ended by a power loss; the last one's audit sees all.
        for _ in 0..3 {
            // On a copy: trimming goes on in the background, and the power must not fail while we look.
            let copy = open(&Disk::holding(image.clone(), u64::MAX)).unwrap();
            for (log, told) in &told {
                audit(&copy, LogId(*log), told).await;
            }
            let disk = Disk::holding(image, 1 + chance.bits64() % 25);
            if let Ok(store) = open(&disk) {
                let store = Arc::new(store);
                let writers: Vec<_> = (1..=LOGS)
                    .map(|log| {
                        let before = told.get(&log).copied().unwrap_or_default();
                        (log, tokio::spawn(write_until_dark(store.clone(), LogId(log), before)))
                    })
                    .collect();
                for (log, writer) in writers {
                    told.insert(log, writer.await.unwrap());
                }
            }
            image = disk.after_power_loss(&chance);
        }
        let store = open(&Disk::holding(image, u64::MAX)).unwrap();
        for (log, told) in &told {
            audit(&store, LogId(*log), told).await;
        }
    }
}

#[tokio::test]
async fn a_store_whose_disk_failed_takes_nothing_more() {
    let disk = Disk::holding(Vec::new(), u64::MAX);
    let store = open(&disk).unwrap();
    assert_eq!(
        store.append(LogId(1), 0, payload(LogId(1), 0)).await.unwrap(),
        Appended::Done
    );
    disk.0.lock().syncs_left = 0;
    assert!(store.append(LogId(1), 1, payload(LogId(1), 1)).await.is_err());
    // Even if the disk comes back: what the kernel dropped is gone, so only a new start may say what is there.
    disk.0.lock().dead = false;
    disk.0.lock().syncs_left = u64::MAX;
    assert!(store.append(LogId(1), 1, payload(LogId(1), 1)).await.is_err());
    assert_eq!(store.end(LogId(1)).await.unwrap(), 1);
}
