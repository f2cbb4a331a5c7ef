//! The key-value store behind a cluster: who is a member, who leads, which tables all nodes use.
//!
//! There are two kinds, and what follows holds for both: **etcd** 3.4 or newer, and for fixed clusters without etcd a store
//! that one node [hosts](Place::Hosted) itself, in memory.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | [`Store`]: what callers use, from plain threads; the thread "store" that does it |
//! | `error` | [`StoreError`]: what was tried, where, and what was expected |
//! | `session` | [`Session`]: a lease that is renewed; [`Guard`]: what was taken with it |
//! | `watch` | [`Watch`]: events in order, each once, over broken connections |
//! | `etcd` | the first kind |
//! | `hosted` | the second kind: server, client and their messages |
//! | `testing` | a real etcd for tests |
//!
//! **Revisions.** Each commit gives the whole store the next revision. A listing tells at which revision it was made; a
//! watch from there sees everything that the listing does not contain.
//!
//! **Leading.** Who [takes](Store::take) a key leads. What it took is its [`Guard`], and commits under that guard are done only as
//! long as nobody else has the key: a leader that was cut off and does not know it yet changes nothing.
//!
//! **When the store is away.** [`Store::open`] fails. Later operations fail when their time is over, and work again when the
//! store is back; watches go on where they were; sessions live if that took less than their time. What may already have
//! been done is never tried again by itself: a commit that fails with [`StoreError::Unavailable`] may have been made.

mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod hosted;
mod session;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod watch;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

use crate::supervisor::{LONGEST_WAIT, Supervisor};
use error::Failure;
pub use error::StoreError;
use packet::pulse;
pub use session::{Guard, Session, SessionId};
pub use watch::{Event, Watch};

/// How long an operation may take, unless [`Store::with_limit`] says otherwise. A listing may take as long for each of its pages.
pub const LIMIT: Duration = Duration::from_secs(2);

/// Most operations of one commit: etcd's default (`--max-txn-ops`).
pub const MOST_OPERATIONS: usize = 128;

/// Most bytes of keys and values in one commit: what fits into a request under etcd's default (`--max-request-bytes`).
pub const MOST_BYTES: usize = 1_500_000;

/// Time between two attempts to reach a store that is away.
const RETRY: Duration = Duration::from_millis(100);

/// Where the store is.
#[derive(Clone, Debug)]
pub enum Place {
    /// In etcd.
    Etcd(EtcdPlace),
    /// In the memory of one node. What it held is gone when that node restarts: sessions end, watches hear [`Event::Lost`].
    /// Clients prove that they have the cluster's key, and messages carry its tags; they are not encrypted.
    Hosted {
        /// Where it listens.
        address: SocketAddr,
        /// Whether it is this process that hosts it.
        hosts: bool,
        /// The file with the cluster's key. Without one, everybody who reaches the address can read and change everything.
        key_file: Option<PathBuf>,
    },
}

/// How etcd is reached.
#[derive(Clone, Debug, Default)]
pub struct EtcdPlace {
    /// Members of etcd's cluster, such as `http://10.0.0.1:2379`; any of them will do.
    pub endpoints: Vec<String>,
    /// Name and password.
    pub user: Option<(String, String)>,
    /// For endpoints with https.
    pub tls: Option<TlsFiles>,
}

/// Files in PEM format.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Who signed etcd's certificate.
    pub ca: PathBuf,
    /// Our certificate and its key, where etcd asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Without the store's prefix.
    pub key: String,
    /// Any bytes.
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
    /// The revision of its last change.
    pub revision: i64,
}

/// A part of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Sets a key.
    Put {
        /// Which.
        key: String,
        /// To what.
        #[serde(with = "serde_bytes")]
        value: Vec<u8>,
        /// The key goes when this session ends; without, it stays, also if it belonged to a session before.
        session: Option<SessionId>,
    },
    /// Removes a key, if it is there.
    Remove(String),
    /// Removes all keys that begin so.
    RemovePrefix(String),
}

impl Operation {
    fn key_mut(&mut self) -> &mut String {
        match self {
            Operation::Put { key, .. } | Operation::Remove(key) | Operation::RemovePrefix(key) => key,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Operation::Put { key, value, .. } => key.len() + value.len(),
            Operation::Remove(key) | Operation::RemovePrefix(key) => key.len(),
        }
    }
}

/// A store that is open. Copies are cheap and share one connection, which ends with the last copy, session and watch.
#[derive(Clone)]
pub struct Store {
    common: Arc<Common>,
    limit: Duration,
}

struct Common {
    backend: Backend,
    prefix: String,
    label: Label,
    thread: StoreThread,
}

/// What error messages say of a place.
#[derive(Clone)]
struct Label {
    place: String,
    hint: &'static str,
}

/// The thread on which everything asynchronous runs; it ends when this is dropped.
struct StoreThread {
    runtime: Handle,
    ends: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StoreThread {
    fn start() -> std::io::Result<StoreThread> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (ends, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("store".into()).spawn(move || {
            let _ = runtime.block_on(ended);
        })?;
        Ok(StoreThread { runtime: handle, ends: Some(ends), thread: Some(thread) })
    }

    /// Waits for what runs there.
    fn run<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        let (answers, answer) = mpsc::sync_channel(1);
        self.runtime.spawn(async move { answers.send(task.await) });
        // Every operation has its limit.
        pulse::answer(&answer).unwrap_or_else(|| Err(Failure::away("the thread of the store has ended")))
    }
}

impl Drop for StoreThread {
    fn drop(&mut self) {
        drop(self.ends.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One of the two kinds.
#[derive(Clone)]
enum Backend {
    #[cfg(feature = "etcd")]
    Etcd(etcd::Etcd),
    Hosted(hosted::Client),
}

/// Calls a method of whichever kind it is.
macro_rules! either {
    ($backend:expr, $kind:ident => $call:expr) => {
        match $backend {
            #[cfg(feature = "etcd")]
            $crate::store::Backend::Etcd($kind) => $call,
            $crate::store::Backend::Hosted($kind) => $call,
        }
    };
}
use either;

impl Store {
    /// Opens it; all keys live below `prefix`, such as `/brickway/lab/`.
    ///
    /// # Errors
    ///
    /// Nobody answers there, or it does not let us in: [`StoreError`] says which. Later, when the store has been open, its
    /// absence is waited out.
    pub fn open(place: &Place, prefix: &str) -> Result<Store, StoreError> {
        let label = Label::of(place);
        let thread = StoreThread::start().map_err(StoreError::Thread)?;
        let opening = match place.clone() {
            #[cfg(feature = "etcd")]
            Place::Etcd(place) => {
                // A user may be let in below the prefix only.
                let probe = prefix.to_owned();
                thread.run(within(LIMIT, async move {
                    let etcd = etcd::Etcd::open(&place).await?;
                    etcd.get(&probe).await?;
                    Ok(Backend::Etcd(etcd))
                }))
            }
            #[cfg(not(feature = "etcd"))]
            Place::Etcd(_) => Err(Failure::Refused("this build knows no etcd".to_owned())),
            Place::Hosted { address, hosts, key_file } => thread.run(within(LIMIT, async move {
                if hosts {
                    let listening = hosted::host(address, key_file.clone()).await;
                    listening.map_err(|error| Failure::Refused(format!("cannot host it: {error}")))?;
                }
                hosted::Client::open(address, key_file).await.map(Backend::Hosted)
            })),
        };
        let backend = opening.map_err(|failure| label.error("open the store", failure))?;
        Ok(Store {
            common: Arc::new(Common { backend, prefix: prefix.to_owned(), label, thread }),
            limit: LIMIT,
        })
    }

    /// Has the store's thread supervised, which renews sessions and on whose answers all callers wait.
    pub fn supervise(&self, supervisor: &Supervisor) {
        let pulse = supervisor.watch("store");
        self.common.thread.runtime.spawn(async move {
            loop {
                pulse.beat();
                sleep(LONGEST_WAIT).await;
            }
        });
    }

    /// The same store, whose operations may take this long.
    pub fn with_limit(&self, limit: Duration) -> Store {
        Store { common: self.common.clone(), limit }
    }

    /// A key's value; `None` if there is no such key.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`], [`StoreError::Refused`].
    pub fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        let full = self.full(key);
        let entry = self.call(format_args!("read '{key}'"), Repeat::Always, move |backend| {
            let key = full.clone();
            async move { either!(backend, kind => kind.get(&key).await) }
        })?;
        Ok(entry.map(|entry| Entry { key: key.to_owned(), ..entry }))
    }

    /// All keys that begin so, in order, as they were at one revision, which comes with them. It is read page by page, so
    /// that there is no limit to its size.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`], [`StoreError::Refused`].
    pub fn list(&self, prefix: &str) -> Result<(Vec<Entry>, i64), StoreError> {
        let (full, backend, limit) = (self.full(prefix), self.common.backend.clone(), self.limit);
        let listing = self.common.thread.run(async move {
            let end = Instant::now() + limit;
            loop {
                match either!(&backend, kind => kind.list(&full, limit).await) {
                    // Pages of a revision that was compacted in the meantime: those of a newer one will do.
                    Err(Failure::Away { .. } | Failure::Compacted) if Instant::now() + RETRY < end => {
                        sleep(RETRY).await;
                    }
                    listing => return listing,
                }
            }
        });
        let (mut entries, revision) =
            listing.map_err(|failure| self.common.label.error(format_args!("list '{prefix}'"), failure))?;
        let prefix_length = self.common.prefix.len();
        entries.iter_mut().for_each(|entry| drop(entry.key.drain(..prefix_length)));
        Ok((entries, revision))
    }

    /// Does all operations at once, or none of them, and tells at which revision. With a guard they are done only while
    /// its key is still the one that was taken. A commit that removes nothing and puts nothing has no revision of its own.
    ///
    /// # Errors
    ///
    /// [`StoreError::Fenced`] if somebody else has the guard's key, [`StoreError::SessionEnded`] if a key is to belong to a
    /// session that is no more, [`StoreError::TooLarge`], [`StoreError::Refused`] if a key is changed twice; and
    /// [`StoreError::Unavailable`], after which the commit may have been made or not.
    pub fn commit(&self, guard: Option<&Guard>, mut operations: Vec<Operation>) -> Result<i64, StoreError> {
        operations.iter_mut().for_each(|operation| operation.key_mut().insert_str(0, &self.common.prefix));
        let bytes = operations.iter().map(Operation::bytes).sum();
        if operations.len() > MOST_OPERATIONS || bytes > MOST_BYTES {
            return Err(StoreError::TooLarge { operations: operations.len(), bytes });
        }
        let what = match guard {
            Some(guard) => format!("commit {} operations as holder of '{}'", operations.len(), guard.key),
            None => format!("commit {} operations", operations.len()),
        };
        let guard = guard.map(|guard| (self.full(&guard.key), guard.revision));
        let operations = Arc::new(operations);
        self.call(what, Repeat::Undone, move |backend| {
            let (guard, operations) = (guard.clone(), operations.clone());
            async move { either!(backend, kind => kind.commit(guard, &operations).await) }
        })
    }

    /// Begins a session: a lease that is renewed in the background, and given back when the session is dropped. etcd counts
    /// whole seconds, two at least; [`Session::ttl`] tells what was given.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`], [`StoreError::Refused`].
    pub fn session(&self, ttl: Duration) -> Result<Session, StoreError> {
        let (id, ttl, granted) = self.call("begin a session", Repeat::Always, move |backend| async move {
            let asked = std::time::Instant::now();
            let (id, ttl) = either!(&backend, kind => kind.grant(ttl).await)?;
            Ok((id, ttl, asked))
        })?;
        Ok(Session::start(self.clone(), id, ttl, granted))
    }

    /// Takes a key that nobody has, until the session ends: the base of leader election. `None` if another session has it;
    /// watch the key to hear when it goes. The session that has it already gets its guard again.
    ///
    /// # Errors
    ///
    /// [`StoreError::SessionEnded`], [`StoreError::Unavailable`], [`StoreError::Refused`].
    pub fn take(
        &self,
        session: &Session,
        key: &str,
        value: impl Into<Vec<u8>>,
    ) -> Result<Option<Guard>, StoreError> {
        let (full, session, value) = (self.full(key), session.id(), Arc::new(value.into()));
        // Its own key counts as taken, so that it may be tried again.
        let revision = self.call(format_args!("take '{key}'"), Repeat::Always, move |backend| {
            let (key, value) = (full.clone(), value.clone());
            async move { either!(backend, kind => kind.take(session, &key, &value).await) }
        })?;
        Ok(revision.map(|revision| Guard { key: key.to_owned(), revision }))
    }

    /// Sends what happens to keys that begin so, after this revision, in order and each once, until the watch is dropped.
    pub fn watch(&self, prefix: &str, after_revision: i64, events: mpsc::Sender<Event>) -> Watch {
        Watch::start(self.clone(), self.full(prefix), after_revision, events)
    }

    /// Forgets how the store came to this revision. A watch that begins before it, or that is cut off and has not come so far,
    /// hears [`Event::Lost`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`], [`StoreError::Refused`] if the revision is still to come.
    pub fn compact(&self, revision: i64) -> Result<(), StoreError> {
        self.call(format_args!("compact to revision {revision}"), Repeat::Always, move |backend| async move {
            match either!(backend, kind => kind.compact(revision).await) {
                Err(Failure::Compacted) => Ok(()),
                result => result,
            }
        })
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.common.prefix)
    }

    /// Makes attempts until one succeeds or the time is over.
    fn call<T, F, A>(&self, what: impl std::fmt::Display, repeat: Repeat, attempt: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(Backend) -> A + Send + 'static,
        A: Future<Output = Result<T, Failure>> + Send,
    {
        let (backend, limit) = (self.common.backend.clone(), self.limit);
        let result = self.common.thread.run(async move {
            let end = Instant::now() + limit;
            let mut why = None;
            loop {
                match timeout_at(end, attempt(backend.clone())).await {
                    Ok(Err(Failure::Away { reason, undone }))
                        if (undone || repeat == Repeat::Always) && Instant::now() + RETRY < end =>
                    {
                        why = Some(reason);
                        sleep(RETRY).await;
                    }
                    Ok(result) => return result,
                    Err(_) => return Err(Failure::away(why.unwrap_or_else(|| silence(limit)))),
                }
            }
        });
        result.map_err(|failure| self.common.label.error(what, failure))
    }
}

/// Which attempts may be followed by another one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// All: to do it twice is as good as once.
    Always,
    /// Those that have certainly done nothing.
    Undone,
}

impl Label {
    fn of(place: &Place) -> Label {
        match place {
            Place::Etcd(place) => Label {
                place: format!("etcd at {}", place.endpoints.join(", ")),
                hint: "is etcd running? systemctl status etcd",
            },
            Place::Hosted { address, .. } => Label {
                place: format!("the store at {address}"),
                hint: "is brickway running on the node that hosts it?",
            },
        }
    }

    fn error(&self, what: impl std::fmt::Display, failure: Failure) -> StoreError {
        let (what, place) = (what.to_string(), self.place.clone());
        match failure {
            Failure::Away { reason, .. } => StoreError::Unavailable { what, place, reason, hint: self.hint },
            Failure::Fenced => StoreError::Fenced { what },
            Failure::SessionEnded => StoreError::SessionEnded { what },
            Failure::Compacted => {
                StoreError::Refused { what, place, reason: "that revision has been compacted".into() }
            }
            Failure::Refused(reason) => StoreError::Refused { what, place, reason },
        }
    }
}

fn silence(limit: Duration) -> String {
    format!("no answer within {} s", limit.as_secs_f64())
}

async fn within<T>(limit: Duration, task: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(limit, task).await.unwrap_or_else(|_| Err(Failure::away(silence(limit))))
}
