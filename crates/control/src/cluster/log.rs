//! How tables and the log lie in the store: keys, reading, writing.

use serde::{Deserialize, Serialize};

use super::record::{LONGEST_PIECE, MOST_RECORDS, Record, RecordError, decode, encode};
use crate::change::{Change, Route, RouteKey};
use crate::store::{Guard, Operation, Store, StoreError};

/// Where everything of the leader's lies.
pub const TABLE: &str = "table/";
/// Where the log lies.
pub const LOG: &str = "table/log/";
const CURRENT: &str = "table/current";
const PIECES: &str = "table/at/";

/// Log that is written between two whole tables, at least.
const SHORTEST_LOG: usize = 8 << 20;

/// Which whole table is the newest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Current {
    /// Of which log it is: [`Record::Log`].
    pub log: u64,
    /// The last entry of the log that is in it.
    pub sequence: u64,
    /// How many pieces it has.
    pub pieces: u64,
    /// How long these are in all, in bytes.
    pub bytes: u64,
}

/// Why a table cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The store does not answer, or not as it should.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What is there is of another version.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A piece, or an entry of the log, was not there: another whole table was written meanwhile.
    #[error("the table in the store changed while it was read")]
    Changed,
    /// `table/current` is not what it should be.
    #[error("'{CURRENT}' in the store is not what a leader writes: {0}")]
    Current(serde_json::Error),
    /// The leader cannot ask its kernel.
    #[error("cannot follow Linux's routes over netlink: {0}")]
    Netlink(std::io::Error),
}

/// Where the pieces of the whole table at this place of the log lie.
fn pieces_of(sequence: u64) -> String {
    format!("{PIECES}{sequence:016x}/")
}

fn piece_key(sequence: u64, piece: u64) -> String {
    format!("{}{piece:08x}", pieces_of(sequence))
}

/// The key of an entry of the log.
pub fn entry_key(sequence: u64) -> String {
    format!("{LOG}{sequence:016x}")
}

/// The place of an entry of the log, from its key.
pub fn sequence_of(key: &str) -> Option<u64> {
    u64::from_str_radix(key.strip_prefix(LOG)?, 16).ok()
}

/// A table as it lies in the store, and what changed since.
#[derive(Debug, Default)]
pub struct Stored {
    /// Which it is.
    pub current: Current,
    /// Its records.
    pub table: Vec<Record>,
    /// What changed since, entry by entry: the place in the log, records.
    pub log: Vec<(u64, Vec<Record>)>,
    /// Which log this is; 0 while none has begun.
    pub id: u64,
    /// The store's revision: what changes after it is not in here.
    pub revision: i64,
    /// Bytes of the log.
    pub log_bytes: usize,
}

fn current_of(store: &Store) -> Result<Current, LogError> {
    match store.get(CURRENT)? {
        Some(entry) => serde_json::from_slice(&entry.value).map_err(LogError::Current),
        None => Ok(Current::default()),
    }
}

/// Which log is in the store; 0 while none has begun.
///
/// # Errors
///
/// [`LogError`].
pub fn id_of_log(store: &Store) -> Result<u64, LogError> {
    let current = current_of(store)?;
    if current.pieces > 0 {
        return Ok(current.log);
    }
    let Some(first) = store.get(&entry_key(1))? else { return Ok(0) };
    match decode(&first.key, &first.value)?.first() {
        Some(Record::Log(id)) => Ok(*id),
        _ => Ok(0),
    }
}

impl Stored {
    /// Whether there is all that nodes are to have, or only the beginning of a log.
    pub fn is_complete(&self) -> bool {
        self.current.pieces > 0 || self.log.iter().any(|(_, records)| records.contains(&Record::Complete))
    }

    /// Reads it.
    ///
    /// # Errors
    ///
    /// [`LogError`]; after [`LogError::Changed`] it may be tried again at once.
    pub fn read(store: &Store) -> Result<Stored, LogError> {
        let current = current_of(store)?;
        let mut stored = Stored { current, ..Stored::default() };
        if current.pieces > 0 {
            let (pieces, _) = store.list(&pieces_of(current.sequence))?;
            if pieces.len() as u64 != current.pieces {
                return Err(LogError::Changed);
            }
            for piece in pieces {
                stored.table.extend(decode(&piece.key, &piece.value)?);
            }
        }
        let (entries, revision) = store.list(LOG)?;
        stored.revision = revision;
        stored.id = current.log;
        let mut next = current.sequence + 1;
        for entry in entries {
            let sequence = sequence_of(&entry.key).ok_or(LogError::Changed)?;
            if sequence < next {
                continue;
            }
            if sequence > next {
                return Err(LogError::Changed);
            }
            next += 1;
            stored.log_bytes += entry.value.len();
            let records = decode(&entry.key, &entry.value)?;
            if let Some(Record::Log(id)) = records.first() {
                stored.id = *id;
            }
            stored.log.push((sequence, records));
        }
        // The table was read before the log; a newer one may have taken the place of entries between.
        if current_of(store)? != current {
            return Err(LogError::Changed);
        }
        Ok(stored)
    }

    /// The last place of the log.
    pub fn sequence(&self) -> u64 {
        self.log.last().map_or(self.current.sequence, |(sequence, _)| *sequence)
    }
}

/// Who writes: the leader.
pub struct LogWriter {
    store: Store,
    guard: Guard,
    current: Current,
    /// Which log it is.
    id: u64,
    sequence: u64,
    log_bytes: usize,
    /// An entry that the store may or may not have.
    unsure: Option<Vec<u8>>,
}

impl LogWriter {
    /// Goes on after what is stored.
    pub fn new(store: Store, guard: Guard, stored: &Stored) -> LogWriter {
        use std::hash::{BuildHasher, Hasher, RandomState};
        let (current, log_bytes, sequence) = (stored.current, stored.log_bytes, stored.sequence());
        let id = if sequence == 0 { RandomState::new().build_hasher().finish() | 1 } else { stored.id };
        LogWriter { store, guard, current, id, sequence, log_bytes, unsure: None }
    }

    /// Which log it is.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The last place of the log.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Writes records behind the log. What could not be written is left in `records`, to be tried again.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; if that is [`StoreError::Fenced`], another one leads.
    pub fn append(&mut self, records: &mut Vec<Record>) -> Result<(), StoreError> {
        if let Some(bytes) = self.unsure.take() {
            self.write(bytes)?;
        } else if self.sequence == 0 {
            records.insert(0, Record::Log(self.id));
        }
        if records.len() > MOST_RECORDS {
            *records = gathered(std::mem::take(records));
        }
        while !records.is_empty() {
            let (count, bytes) = piece_of(records);
            records.drain(..count);
            self.write(bytes)?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: Vec<u8>) -> Result<(), StoreError> {
        let put = Operation::Put { key: entry_key(self.sequence + 1), value: bytes.clone(), session: None };
        match self.store.commit(Some(&self.guard), vec![put]) {
            Ok(_) => {
                self.sequence += 1;
                self.log_bytes += bytes.len();
                Ok(())
            }
            Err(error) => {
                self.unsure = Some(bytes);
                Err(error)
            }
        }
    }

    /// Whether the log is so long that nodes that join had better read a new table.
    pub fn is_long(&self) -> bool {
        self.log_bytes > SHORTEST_LOG.max(self.current.bytes as usize)
    }

    /// Writes a whole table, which is that of the end of the log, and removes what it stands for.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the old table and the log are still there then.
    pub fn write_table(&mut self, pieces: impl Iterator<Item = Vec<Record>>) -> Result<(), StoreError> {
        let guard = Some(&self.guard);
        let mut current = Current { log: self.id, sequence: self.sequence, ..Current::default() };
        // What leaders that failed have left too, also below the new table's keys.
        let (old, _) = self.store.list(PIECES)?;
        let mut old: Vec<String> =
            old.into_iter().filter_map(|piece| Some(format!("{}/", piece.key.rsplit_once('/')?.0))).collect();
        old.dedup();
        if self.current.pieces == 0 || self.current.sequence != current.sequence {
            self.store.commit(guard, vec![Operation::RemovePrefix(pieces_of(current.sequence))])?;
        }
        let (entries, _) = self.store.list(LOG)?;
        let entries: Vec<String> = entries.into_iter().map(|entry| entry.key).collect();
        for piece in pieces {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                let (count, value) = piece_of(rest);
                rest = &rest[count..];
                current.bytes += value.len() as u64;
                let key = piece_key(current.sequence, current.pieces);
                self.store.commit(guard, vec![Operation::Put { key, value, session: None }])?;
                current.pieces += 1;
            }
        }
        // Plain numbers can always be written.
        let value = serde_json::to_vec(&current).unwrap_or_default();
        let put = Operation::Put { key: CURRENT.into(), value, session: None };
        let revision = self.store.commit(guard, vec![put])?;
        self.current = current;
        self.log_bytes = 0;
        for prefix in old.into_iter().filter(|prefix| *prefix != pieces_of(current.sequence)) {
            self.store.commit(guard, vec![Operation::RemovePrefix(prefix)])?;
        }
        let is_old = |key: &&String| sequence_of(key).is_some_and(|sequence| sequence <= current.sequence);
        let entries: Vec<&String> = entries.iter().filter(is_old).collect();
        for keys in entries.chunks(100) {
            let remove = keys.iter().map(|&key| Operation::Remove(key.clone())).collect();
            self.store.commit(guard, remove)?;
        }
        self.store.compact(revision)
    }
}

/// As many of these records as the store takes in one value, one at least, and their bytes.
fn piece_of(records: &[Record]) -> (usize, Vec<u8>) {
    let mut count = count_of_an_entry(records);
    loop {
        let bytes = encode(&records[..count]);
        if bytes.len() <= LONGEST_PIECE || count <= 1 {
            return (count, bytes);
        }
        count /= 2;
    }
}

/// How many of these records make an entry of a usual size.
fn count_of_an_entry(records: &[Record]) -> usize {
    let weight = |record: &Record| match record {
        Record::Routes(_, prefixes) => 1 + prefixes.len() / 5,
        _ => 1,
    };
    let mut sum = 0;
    let fits = records.iter().take_while(|record| {
        sum += weight(record);
        sum <= MOST_RECORDS
    });
    fits.count().max(1)
}

/// Ends a run of routes.
fn gather(run: &mut Vec<Route>, gathered: &mut Vec<Record>) {
    use std::collections::HashMap;
    // Nodes find places in their tables the sooner the nearer they are to each other.
    run.sort_by_key(|route| route.key);
    let mut groups: HashMap<_, (&Route, Vec<_>)> = HashMap::new();
    for (place, route) in run.iter().enumerate() {
        if run.get(place + 1).is_some_and(|next| next.key == route.key) {
            continue;
        }
        if route.mtu.is_some() || route.preferred_source.is_some() || route.only_linux.is_some() {
            gathered.push(Record::Change(Change::Route(route.clone())));
            continue;
        }
        let of = RouteKey { prefix: Default::default(), ..route.key };
        let group = groups.entry((of, route.protocol, route.kind, &route.hops));
        group.or_insert_with(|| (route, Vec::new())).1.push(route.key.prefix);
    }
    for (route, prefixes) in groups.into_values() {
        for prefixes in prefixes.chunks(4 * MOST_RECORDS) {
            gathered.push(Record::Routes(route.clone(), prefixes.to_vec()));
        }
    }
    run.clear();
}

/// The same records with runs of routes gathered by what they have in common: a tenth of the size.
pub(super) fn gathered(records: Vec<Record>) -> Vec<Record> {
    let mut gathered = Vec::new();
    let mut run: Vec<Route> = Vec::new();
    for record in records {
        match record {
            // Of routes with the same key the last one counts; those with other keys know no order.
            Record::Change(Change::Route(route)) => run.push(route),
            other => {
                gather(&mut run, &mut gathered);
                gathered.push(other);
            }
        }
    }
    gather(&mut run, &mut gathered);
    gathered
}
