//! Keys, sessions and history of a hosted store.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::super::{Entry, Event, Failure, Operation, SessionId};
use super::messages::PAGE_BYTES;

/// Most changes that are remembered for watches.
const MOST_CHANGES: usize = 100_000;

/// Most bytes of keys and values in them.
const MOST_CHANGED_BYTES: usize = 64 << 20;

/// Most bytes of keys and values: some ten times those of a million routes.
const MOST_BYTES_HELD: usize = 512 << 20;

/// Most sessions at a time.
const MOST_SESSIONS: usize = 10_000;

/// Longest time that a session may ask for, so that the end of it is a time.
const LONGEST_SESSION: Duration = Duration::from_secs(24 * 3600);

/// Shortest: a renewal has to reach us.
const SHORTEST_SESSION: Duration = Duration::from_millis(100);

/// A value under a key.
#[derive(Clone)]
pub(super) struct Record {
    value: Arc<[u8]>,
    created: i64,
    changed: i64,
    session: Option<i64>,
}

impl Record {
    pub(super) fn entry(&self, key: &str) -> Entry {
        Entry { key: key.to_owned(), value: self.value.to_vec(), revision: self.changed }
    }

    pub(super) fn bytes(&self) -> usize {
        self.value.len()
    }
}

struct Lease {
    ttl: Duration,
    end: Instant,
    keys: BTreeSet<String>,
}

/// `None` for a removal.
struct Change {
    revision: i64,
    key: String,
    value: Option<Arc<[u8]>>,
}

pub(super) struct Memory {
    revision: i64,
    /// Changes up to here are forgotten.
    compacted: i64,
    keys: BTreeMap<String, Record>,
    /// Bytes of keys and values.
    bytes: usize,
    leases: HashMap<i64, Lease>,
    last_lease: i64,
    history: VecDeque<Change>,
    history_bytes: usize,
    /// How many changes were forgotten: the place of the first one in `history`.
    forgotten: u64,
}

/// Changes for a watch.
pub(super) struct Changes {
    pub(super) events: Vec<Event>,
    /// Where to go on.
    pub(super) next: u64,
    /// All of the last one's revision are there.
    pub(super) complete: bool,
}

impl Memory {
    /// An empty one. Revisions begin with the time, in microseconds, so that those of the process before are smaller: its
    /// guards are worth nothing any longer, and its watches have missed something.
    pub(super) fn new() -> Memory {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let revision = time.as_micros() as i64;
        Memory {
            revision,
            compacted: revision,
            keys: BTreeMap::new(),
            bytes: 0,
            leases: HashMap::new(),
            last_lease: revision,
            history: VecDeque::new(),
            history_bytes: 0,
            forgotten: 0,
        }
    }

    pub(super) fn revision(&self) -> i64 {
        self.revision
    }

    pub(super) fn get(&self, key: &str) -> Option<Entry> {
        self.keys.get(key).map(|record| record.entry(key))
    }

    /// Cheap: values are shared.
    pub(super) fn list(&self, prefix: &str) -> Vec<(String, Record)> {
        self.below(prefix).map(|(key, record)| (key.clone(), record.clone())).collect()
    }

    fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a String, &'a Record)> {
        self.keys.range(prefix.to_owned()..).take_while(move |(key, _)| key.starts_with(prefix))
    }

    pub(super) fn commit(
        &mut self,
        guard: Option<&(String, i64)>,
        operations: Vec<Operation>,
    ) -> Result<i64, Failure> {
        if let Some((key, revision)) = guard
            && self.keys.get(key).is_none_or(|record| record.created != *revision)
        {
            return Err(Failure::Fenced);
        }
        self.check(&operations)?;
        let next = self.revision + 1;
        for operation in operations {
            match operation {
                Operation::Put { key, value, session } => {
                    self.put(key, value.into(), session.map(|SessionId(id)| id), next);
                }
                Operation::Remove(key) => self.remove(key, next),
                Operation::RemovePrefix(prefix) => {
                    let keys = self.below(&prefix).map(|(key, _)| key.clone()).collect::<Vec<_>>();
                    keys.into_iter().for_each(|key| self.remove(key, next));
                }
            }
        }
        self.finish(next);
        Ok(self.revision)
    }

    /// As in etcd, a commit changes each key once.
    fn check(&self, operations: &[Operation]) -> Result<(), Failure> {
        let put = |operation: &Operation| match operation {
            Operation::Put { .. } => operation.bytes(),
            Operation::Remove(_) | Operation::RemovePrefix(_) => 0,
        };
        let added: usize = operations.iter().map(put).sum();
        if added > 0 && self.bytes + added > MOST_BYTES_HELD {
            return Err(Failure::Refused(format!(
                "it holds {} bytes; expected at most {MOST_BYTES_HELD}",
                self.bytes
            )));
        }
        let mut puts = BTreeSet::new();
        for operation in operations {
            if let Operation::Put { key, session, .. } = operation {
                if session.is_some_and(|SessionId(id)| !self.leases.contains_key(&id)) {
                    return Err(Failure::SessionEnded);
                }
                if !puts.insert(key.as_str()) {
                    return Err(Failure::Refused(format!("'{key}' is put twice in one commit")));
                }
            }
        }
        let both = operations.iter().find_map(|operation| match operation {
            Operation::Put { .. } => None,
            Operation::Remove(key) => puts.get(key.as_str()),
            Operation::RemovePrefix(prefix) => {
                puts.range(prefix.as_str()..).next().filter(|key| key.starts_with(prefix.as_str()))
            }
        });
        both.map_or(Ok(()), |key| Err(Failure::Refused(format!("'{key}' is put and removed in one commit"))))
    }

    fn put(&mut self, key: String, value: Arc<[u8]>, session: Option<i64>, revision: i64) {
        let before = self.keys.get(&key);
        let created = before.map_or(revision, |before| before.created);
        if let Some(lease) = before.and_then(|before| self.leases.get_mut(&before.session?)) {
            lease.keys.remove(&key);
        }
        if let Some(lease) = session.and_then(|session| self.leases.get_mut(&session)) {
            lease.keys.insert(key.clone());
        }
        self.bytes += key.len() + value.len();
        self.bytes -= before.map_or(0, |before| key.len() + before.bytes());
        self.remember(revision, key.clone(), Some(value.clone()));
        self.keys.insert(key, Record { value, created, changed: revision, session });
    }

    fn remove(&mut self, key: String, revision: i64) {
        let Some(record) = self.keys.remove(&key) else { return };
        self.bytes -= key.len() + record.bytes();
        if let Some(lease) = record.session.and_then(|session| self.leases.get_mut(&session)) {
            lease.keys.remove(&key);
        }
        self.remember(revision, key, None);
    }

    fn remember(&mut self, revision: i64, key: String, value: Option<Arc<[u8]>>) {
        self.history_bytes += key.len() + value.as_ref().map_or(0, |value| value.len());
        self.history.push_back(Change { revision, key, value });
    }

    /// Ends a revision, if anything changed in it.
    fn finish(&mut self, revision: i64) {
        if self.history.back().is_some_and(|change| change.revision == revision) {
            self.revision = revision;
        }
        while self.history.len() > MOST_CHANGES || self.history_bytes > MOST_CHANGED_BYTES {
            self.forget(self.history[0].revision);
        }
    }

    fn forget(&mut self, up_to: i64) {
        self.compacted = self.compacted.max(up_to);
        let count = self.history.partition_point(|change| change.revision <= up_to);
        for change in self.history.drain(..count) {
            self.history_bytes -= change.key.len() + change.value.map_or(0, |value| value.len());
        }
        self.forgotten += count as u64;
    }

    pub(super) fn compact(&mut self, revision: i64) -> Result<(), Failure> {
        if revision > self.revision {
            return Err(Failure::Refused(format!("revision {revision} is still to come")));
        }
        self.forget(revision);
        Ok(())
    }

    /// A new lease; its name and time.
    pub(super) fn grant(&mut self, ttl: Duration, now: Instant) -> Result<(i64, Duration), Failure> {
        if self.leases.len() >= MOST_SESSIONS {
            return Err(Failure::Refused(format!("it has {MOST_SESSIONS} sessions already")));
        }
        self.last_lease += 1;
        let ttl = ttl.clamp(SHORTEST_SESSION, LONGEST_SESSION);
        self.leases.insert(self.last_lease, Lease { ttl, end: now + ttl, keys: BTreeSet::new() });
        Ok((self.last_lease, ttl))
    }

    pub(super) fn renew(&mut self, id: i64, now: Instant) -> Result<(), Failure> {
        let lease = self.leases.get_mut(&id).ok_or(Failure::SessionEnded)?;
        lease.end = now + lease.ttl;
        Ok(())
    }

    pub(super) fn revoke(&mut self, id: i64) -> Result<(), Failure> {
        let lease = self.leases.remove(&id).ok_or(Failure::SessionEnded)?;
        let next = self.revision + 1;
        lease.keys.into_iter().for_each(|key| self.remove(key, next));
        self.finish(next);
        Ok(())
    }

    /// Ends the leases whose time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        let ended = self.leases.iter().filter(|(_, lease)| lease.end <= now).map(|(&id, _)| id);
        for id in ended.collect::<Vec<_>>() {
            let _ = self.revoke(id);
        }
    }

    /// Since when the session has the key; `None` if another one, or nobody's, is there.
    pub(super) fn take(&mut self, session: i64, key: String, value: Vec<u8>) -> Result<Option<i64>, Failure> {
        if let Some(record) = self.keys.get(&key) {
            return Ok((record.session == Some(session)).then_some(record.created));
        }
        let put = Operation::Put { key, value, session: Some(SessionId(session)) };
        self.commit(None, vec![put]).map(Some)
    }

    /// Where a watch begins that knows everything up to this revision.
    pub(super) fn after(&self, revision: i64) -> Result<u64, Failure> {
        if revision < self.compacted {
            return Err(Failure::Compacted);
        }
        if revision > self.revision {
            return Err(Failure::Refused(format!(
                "revision {revision} is still to come: the data were replaced"
            )));
        }
        let known = self.history.partition_point(|change| change.revision <= revision);
        Ok(self.forgotten + known as u64)
    }

    /// The changes from there on, as many as fit into a message.
    pub(super) fn changes(&self, prefix: &str, from: u64) -> Result<Changes, Failure> {
        let start = from.checked_sub(self.forgotten).ok_or(Failure::Compacted)? as usize;
        let mut changes = Changes { events: Vec::new(), next: from, complete: true };
        let mut bytes = 0;
        for change in self.history.range(start..) {
            if change.key.starts_with(prefix) {
                if bytes >= PAGE_BYTES {
                    changes.complete =
                        changes.events.last().and_then(Event::revision) != Some(change.revision);
                    break;
                }
                bytes += change.key.len() + change.value.as_ref().map_or(0, |value| value.len());
                changes.events.push(match &change.value {
                    Some(value) => Event::Put(Entry {
                        key: change.key.clone(),
                        value: value.to_vec(),
                        revision: change.revision,
                    }),
                    None => Event::Removed { key: change.key.clone(), revision: change.revision },
                });
            }
            changes.next += 1;
        }
        Ok(changes)
    }
}
