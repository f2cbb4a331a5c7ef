//! The host's side: many clients, one memory. All of it runs on the store's thread.

use packet::sync::lock;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::super::Failure;
use super::guard::{Seal, Side, StoreKeys, greet};
use super::memory::Memory;
use super::messages::{Answer, PAGE_BYTES, Question, Request, Response, SILENCE, receive, send};

/// Most clients at a time.
const MOST_CLIENTS: usize = 4096;

/// Most connections that have not proven their key yet. A newer one takes the place of the oldest, so strangers who wait keep nobody out.
const MOST_GREETINGS: usize = 64;

/// Most listings and watches of one client at a time.
const MOST_TASKS: usize = 256;

/// Answers that wait for a client to take them.
const WAITING: usize = 4;

/// Time between two looks at which leases have ended.
const EXPIRY: Duration = Duration::from_millis(20);

struct Host {
    memory: Mutex<Memory>,
    /// Wakes the watches.
    revision: watch::Sender<i64>,
}

impl Host {
    /// Does something with the memory, and tells the watches if that changed it.
    fn with<T>(&self, action: impl FnOnce(&mut Memory) -> T) -> T {
        let mut memory = self.lock();
        let result = action(&mut memory);
        let revision = memory.revision();
        self.revision.send_if_modified(|known| std::mem::replace(known, revision) != revision);
        result
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }
}

/// Listens at the address and serves clients that have the key, as long as the runtime lives.
pub(in super::super) async fn host(address: SocketAddr, key_file: Option<PathBuf>) -> io::Result<()> {
    let keys = StoreKeys::open(key_file.as_deref())?;
    let listener = TcpListener::bind(address).await?;
    let memory = Memory::new();
    let revision = watch::Sender::new(memory.revision());
    let host = Arc::new(Host { memory: Mutex::new(memory), revision });
    let copy = host.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(EXPIRY).await;
            copy.with(|memory| memory.expire(Instant::now()));
        }
    });
    let (places, keys) = (Arc::new(Semaphore::new(MOST_CLIENTS)), Arc::new(keys));
    tokio::spawn(async move {
        let mut greetings: VecDeque<AbortHandle> = VecDeque::new();
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors; those of others that leave are free then.
                tokio::time::sleep(EXPIRY).await;
                continue;
            };
            greetings.retain(|greeting| !greeting.is_finished());
            if greetings.len() >= MOST_GREETINGS {
                greetings.pop_front().iter().for_each(AbortHandle::abort);
            }
            let (host, places, keys) = (host.clone(), places.clone(), keys.clone());
            let greeting = async move {
                // An error of this client closes its connection, and nothing else.
                let Ok(Ok(client)) = timeout(SILENCE, welcome(stream, &keys)).await else {
                    return;
                };
                if let Ok(place) = places.try_acquire_owned() {
                    tokio::spawn(async move {
                        let _ = serve(&host, client).await;
                        drop(place);
                    });
                }
            };
            greetings.push_back(tokio::spawn(greeting).abort_handle());
        }
    });
    Ok(())
}

/// A client that has proven its key, and the seals of messages to it and from it.
type Client = (TcpStream, (Seal, Seal));

async fn welcome(mut stream: TcpStream, keys: &StoreKeys) -> io::Result<Client> {
    stream.set_nodelay(true)?;
    let keys = keys.current();
    let seals = greet(&mut stream, Side::Host, keys.as_ref()).await?;
    Ok((stream, seals))
}

async fn serve(host: &Arc<Host>, (stream, (mut to, mut from)): Client) -> io::Result<()> {
    let (mut reader, mut writer) = stream.into_split();
    let (answers, mut queue) = mpsc::channel::<Response>(WAITING);
    let writing = async move {
        while let Some(answer) = queue.recv().await {
            send(&mut writer, &mut to, &answer).await?;
        }
        Ok(())
    };
    let reading = async move {
        // They end with the connection.
        let mut tasks = JoinSet::new();
        let mut watches: HashMap<u64, AbortHandle> = HashMap::new();
        loop {
            let Request { id, body } = receive(&mut reader, &mut from).await?;
            while tasks.try_join_next().is_some() {}
            if tasks.len() >= MOST_TASKS {
                return Err(io::Error::other("too many listings and watches at once"));
            }
            let (copy, queue) = (host.clone(), answers.clone());
            match body {
                Question::List(prefix) => {
                    tasks.spawn(async move { list(&copy, id, &prefix, &queue).await });
                }
                Question::Follow { prefix, after } => {
                    let task = async move {
                        let body = match follow(&copy, id, &prefix, after, &queue).await {
                            Failure::Refused(reason) => Answer::Lost(reason),
                            failure => failure.into(),
                        };
                        let _ = queue.send(Response { id, body }).await;
                    };
                    watches.retain(|_, task| !task.is_finished());
                    watches.insert(id, tasks.spawn(task));
                }
                Question::Leave(id) => watches.remove(&id).iter().for_each(AbortHandle::abort),
                body => {
                    let body = host.with(|memory| answer(memory, body)).unwrap_or_else(Answer::from);
                    // The other side of the queue ends only with this future.
                    let _ = answers.send(Response { id, body }).await;
                }
            }
        }
    };
    tokio::select! {
        result = reading => result,
        result = writing => result,
    }
}

/// Has an empty store hear these bytes as what a client without a key sends behind its greeting. Returns how many messages it
/// understood.
#[cfg(any(test, feature = "testing"))]
pub(in super::super) async fn hears(mut bytes: &[u8]) -> usize {
    let (mut memory, mut seal, mut count) = (Memory::new(), Seal::open(), 0);
    while let Ok(Request { body, .. }) = receive(&mut bytes, &mut seal).await {
        count += 1;
        match &body {
            Question::List(prefix) => drop(memory.list(prefix)),
            Question::Follow { prefix, after } => {
                let _ = memory.after(*after).and_then(|from| memory.changes(prefix, from));
            }
            _ => {}
        }
        let _ = answer(&mut memory, body);
    }
    count
}

/// What takes one answer.
fn answer(memory: &mut Memory, question: Question) -> Result<Answer, Failure> {
    let now = Instant::now();
    // Nobody renews, takes or commits with what has ended.
    memory.expire(now);
    Ok(match question {
        Question::Get(key) => Answer::Entry(memory.get(&key)),
        Question::Commit { guard, operations } => {
            Answer::Revision(memory.commit(guard.as_ref(), operations)?)
        }
        Question::Grant { ttl } => {
            let (id, ttl) = memory.grant(ttl, now)?;
            Answer::Session { id, ttl }
        }
        Question::Renew(id) => memory.renew(id, now).map(|()| Answer::Done)?,
        Question::Revoke(id) => memory.revoke(id).map(|()| Answer::Done)?,
        Question::Take { session, key, value } => {
            Answer::Taken(memory.take(session, key, value.into_vec())?)
        }
        Question::Compact(revision) => memory.compact(revision).map(|()| Answer::Done)?,
        Question::Ping | Question::List(_) | Question::Follow { .. } | Question::Leave(_) => Answer::Done,
    })
}

async fn list(host: &Host, id: u64, prefix: &str, answers: &mpsc::Sender<Response>) {
    let (records, revision) = host.with(|memory| (memory.list(prefix), memory.revision()));
    let mut records = records.into_iter().peekable();
    loop {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while let Some((key, record)) = records.next_if(|_| bytes < PAGE_BYTES) {
            bytes += key.len() + record.bytes();
            entries.push(record.entry(&key));
        }
        let last = records.peek().is_none();
        let page = Response { id, body: Answer::Page { entries, revision, last } };
        if answers.send(page).await.is_err() || last {
            return;
        }
    }
}

/// Sends changes until it cannot go on.
async fn follow(host: &Host, id: u64, prefix: &str, after: i64, answers: &mpsc::Sender<Response>) -> Failure {
    let mut revision = host.revision.subscribe();
    let begin = host.lock().after(after);
    let mut from = match begin {
        Ok(from) => from,
        Err(failure) => return failure,
    };
    loop {
        revision.mark_unchanged();
        let changes = match host.with(|memory| memory.changes(prefix, from)) {
            Ok(changes) => changes,
            Err(failure) => return failure,
        };
        from = changes.next;
        if changes.events.is_empty() {
            // The sender lives as long as the host.
            let _ = revision.changed().await;
            continue;
        }
        let body = Answer::Events { events: changes.events, complete: changes.complete };
        if answers.send(Response { id, body }).await.is_err() {
            return Failure::away("the client is gone");
        }
    }
}
