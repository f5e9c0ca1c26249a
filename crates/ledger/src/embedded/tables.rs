//! The tables of the embedded store, and what is read from and written to them within one transaction.
//!
//! * `entries`: (log, number) to the entry's bytes.
//! * `bases`: log to (first, checkpoint, dropped), for logs that were advanced or dropped. It stays when all entries are
//!   gone, so that their numbers are not used again.
//! * `trims`: logs with entries below their base that are still to be deleted.
//! * `meta`: `version` to the version of this layout.
//!
//! The end of a log is one above its last entry, or its base's `first` without entries.

use crate::{Base, LedgerError};
use bytes::Bytes;
use cuesta_format::LogId;
use redb::{
    Database, ReadOnlyTable, ReadableDatabase, ReadableTable, StorageError, Table, TableDefinition, TableError,
    WriteTransaction,
};

const VERSION: u64 = 1;

type EntryKey = (u128, u64);
type BaseRow = (u64, Option<u64>, bool);

const ENTRIES: TableDefinition<EntryKey, &[u8]> = TableDefinition::new("entries");
const BASES: TableDefinition<u128, BaseRow> = TableDefinition::new("bases");
const TRIMS: TableDefinition<u128, ()> = TableDefinition::new("trims");
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// Where a log begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) base: Base,
    pub(super) end: u64,
}

/// Makes the tables, or checks that they are of the version we know.
pub(super) fn prepare(database: &Database, path: &str) -> Result<(), LedgerError> {
    let bad = |what: String| LedgerError::BadStore {
        path: path.to_owned(),
        what,
    };
    let transaction = database.begin_write().map_err(|error| bad(error.to_string()))?;
    let version = {
        let mut meta = transaction.open_table(META).map_err(|error| bad(error.to_string()))?;
        let version = meta
            .get("version")
            .map_err(failed("read the version"))?
            .map(|version| version.value());
        if version.is_none() {
            meta.insert("version", VERSION).map_err(failed("write the version"))?;
        }
        version
    };
    match version {
        Some(VERSION) => Ok(()),
        Some(other) => Err(bad(format!(
            "its layout has version {other}, this build knows {VERSION}"
        ))),
        None => {
            let mut tables = WriteTables::open(&transaction).map_err(|error| bad(error.to_string()))?;
            tables.bases()?;
            tables.trims()?;
            drop(tables);
            transaction.commit().map_err(|error| bad(error.to_string()))
        }
    }
}

/// A snapshot of the store.
pub(super) struct ReadTables {
    entries: ReadOnlyTable<EntryKey, &'static [u8]>,
    bases: ReadOnlyTable<u128, BaseRow>,
}

impl ReadTables {
    pub(super) fn begin(database: &Database) -> Result<Self, LedgerError> {
        let action = "begin to read";
        let transaction = database
            .begin_read()
            .map_err(|error| LedgerError::unavailable(action, error))?;
        let entries = transaction
            .open_table(ENTRIES)
            .map_err(|error| LedgerError::unavailable(action, error))?;
        let bases = transaction
            .open_table(BASES)
            .map_err(|error| LedgerError::unavailable(action, error))?;
        Ok(Self { entries, bases })
    }

    pub(super) fn head(&self, log: LogId) -> Result<Head, LedgerError> {
        head(&self.entries, &self.bases, log)
    }

    /// As [`crate::LogStore::read`].
    pub(super) fn entries(&self, log: LogId, from: u64, bytes_max: usize) -> Result<Vec<(u64, Bytes)>, LedgerError> {
        let base = base(&self.bases, log)?;
        if from < base.first {
            return Err(LedgerError::Gone {
                log,
                first: base.first,
                number: from,
            });
        }
        let (mut entries, mut bytes) = (Vec::new(), 0usize);
        for row in self
            .entries
            .range((log.0, from)..=(log.0, u64::MAX))
            .map_err(failed("read entries"))?
        {
            let (key, value) = row.map_err(failed("read an entry"))?;
            bytes = bytes.saturating_add(value.value().len());
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            entries.push((key.value().1, Bytes::copy_from_slice(value.value())));
        }
        Ok(entries)
    }
}

/// The tables within the committer's transaction. Most transactions append and nothing else, so that the others are opened by
/// whoever needs them.
pub(super) struct WriteTables<'t> {
    transaction: &'t WriteTransaction,
    entries: Table<'t, EntryKey, &'static [u8]>,
    bases: Option<Table<'t, u128, BaseRow>>,
    trims: Option<Table<'t, u128, ()>>,
}

impl<'t> WriteTables<'t> {
    pub(super) fn open(transaction: &'t WriteTransaction) -> Result<Self, TableError> {
        Ok(Self {
            transaction,
            entries: transaction.open_table(ENTRIES)?,
            bases: None,
            trims: None,
        })
    }

    pub(super) fn head(&mut self, log: LogId) -> Result<Head, LedgerError> {
        let bases = opened(self.transaction, BASES, &mut self.bases)?;
        head(&self.entries, bases, log)
    }

    fn bases(&mut self) -> Result<&mut Table<'t, u128, BaseRow>, LedgerError> {
        opened(self.transaction, BASES, &mut self.bases)
    }

    fn trims(&mut self) -> Result<&mut Table<'t, u128, ()>, LedgerError> {
        opened(self.transaction, TRIMS, &mut self.trims)
    }

    pub(super) fn insert(&mut self, log: LogId, number: u64, entry: &[u8]) -> Result<(), LedgerError> {
        self.entries
            .insert((log.0, number), entry)
            .map(drop)
            .map_err(failed("write an entry"))
    }

    /// Moves the base; what lies below it is deleted later, by [`WriteTables::trim`].
    pub(super) fn advance(&mut self, log: LogId, base: Base) -> Result<(), LedgerError> {
        self.put_base(log, (base.first, base.checkpoint, false))
    }

    /// Marks the log as dropped: its entries are deleted later, its row stays.
    pub(super) fn drop_log(&mut self, log: LogId) -> Result<(), LedgerError> {
        self.put_base(log, (u64::MAX, None, true))
    }

    fn put_base(&mut self, log: LogId, row: BaseRow) -> Result<(), LedgerError> {
        self.bases()?.insert(log.0, row).map_err(failed("write a base"))?;
        self.trims()?.insert(log.0, ()).map(drop).map_err(failed("note a trim"))
    }

    /// Deletes at most `count_max` entries below their logs' bases. Answers whether there may be more.
    pub(super) fn trim(&mut self, count_max: usize) -> Result<bool, LedgerError> {
        let next = self
            .trims()?
            .first()
            .map_err(failed("read trims"))?
            .map(|(log, _)| log.value());
        let Some(log) = next else { return Ok(false) };
        let first = self
            .bases()?
            .get(log)
            .map_err(failed("read a base"))?
            .map_or(0, |row| row.value().0);
        let below = self
            .entries
            .range((log, 0)..(log, first))
            .map_err(failed("read entries"))?;
        let numbers: Result<Vec<u64>, _> = below
            .take(count_max)
            .map(|row| row.map(|(key, _)| key.value().1))
            .collect();
        let numbers = numbers.map_err(failed("read entries"))?;
        for number in &numbers {
            self.entries.remove((log, *number)).map_err(failed("delete an entry"))?;
        }
        if numbers.len() < count_max {
            self.trims()?.remove(log).map_err(failed("end a trim"))?;
        }
        Ok(true)
    }
}

fn opened<'a, 't, K: redb::Key + 'static, V: redb::Value + 'static>(
    transaction: &'t WriteTransaction,
    definition: TableDefinition<'_, K, V>,
    table: &'a mut Option<Table<'t, K, V>>,
) -> Result<&'a mut Table<'t, K, V>, LedgerError> {
    match table {
        Some(table) => Ok(table),
        none => {
            let opened = transaction.open_table(definition);
            Ok(none.insert(opened.map_err(|error| LedgerError::unavailable("open a table", error))?))
        }
    }
}

fn head(
    entries: &impl ReadableTable<EntryKey, &'static [u8]>,
    bases: &impl ReadableTable<u128, BaseRow>,
    log: LogId,
) -> Result<Head, LedgerError> {
    let base = base(bases, log)?;
    let last = entries
        .range((log.0, base.first)..=(log.0, u64::MAX))
        .map_err(failed("find the end"))?
        .next_back();
    let end = match last {
        Some(row) => row.map_err(failed("find the end"))?.0.value().1 + 1,
        None => base.first,
    };
    Ok(Head { base, end })
}

fn base(bases: &impl ReadableTable<u128, BaseRow>, log: LogId) -> Result<Base, LedgerError> {
    let row = bases.get(log.0).map_err(failed("read a base"))?.map(|row| row.value());
    match row {
        None => Ok(Base::default()),
        Some((_, _, true)) => Err(LedgerError::Dropped { log }),
        Some((first, checkpoint, false)) => Ok(Base { first, checkpoint }),
    }
}

fn failed(action: &'static str) -> impl Fn(StorageError) -> LedgerError {
    move |error| LedgerError::unavailable(action, error)
}
