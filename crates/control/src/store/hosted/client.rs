//! A client's side: one connection for everything, made again whenever it is lost.

use packet::sync::lock;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_bytes::ByteBuf;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::super::watch::{End, Follower};
use super::super::{Entry, Failure, Operation, RETRY, SessionId, within};
use super::guard::{Seal, Side, StoreKeys, greet};
use super::messages::{Answer, PING, Question, Request, Response, receive, send};

/// How long it may take to connect.
const CONNECT: Duration = Duration::from_secs(1);

/// A connection, and the seals of messages to the host and from there.
type Connection = (TcpStream, (Seal, Seal));

/// A question and where its answers go.
type Asked = (Question, UnboundedSender<Answer>);

#[derive(Clone)]
pub(in super::super) struct Client {
    /// Where questions go now, or why there is no connection.
    link: Arc<Mutex<Result<UnboundedSender<Asked>, String>>>,
}

impl Client {
    pub(in super::super) async fn open(
        address: SocketAddr,
        key_file: Option<PathBuf>,
    ) -> Result<Client, Failure> {
        let keys = StoreKeys::open(key_file.as_deref()).map_err(|error| Failure::away(error.to_string()))?;
        let connect = async move || connect(address, &keys).await;
        let mut stream = Some(connect().await.map_err(|error| Failure::away(error.to_string()))?);
        let (asks, mut asked) = unbounded_channel();
        let client = Client { link: Arc::new(Mutex::new(Ok(asks))) };
        let copy = client.clone();
        tokio::spawn(async move {
            loop {
                let why = match stream.take() {
                    Some(stream) => talk(stream, &mut asked).await,
                    None => match connect().await {
                        Ok(connected) => {
                            let (asks, begun) = unbounded_channel();
                            (stream, asked) = (Some(connected), begun);
                            *copy.lock() = Ok(asks);
                            continue;
                        }
                        Err(error) => error,
                    },
                };
                *copy.lock() = Err(why.to_string());
                // Whoever waits for an answer hears that none will come.
                asked.close();
                while asked.try_recv().is_ok() {}
                sleep(RETRY).await;
            }
        });
        Ok(client)
    }

    fn lock(&self) -> MutexGuard<'_, Result<UnboundedSender<Asked>, String>> {
        lock(&self.link)
    }

    /// The answers to a question, as they come; they end with the connection.
    fn ask(&self, question: Question) -> Result<UnboundedReceiver<Answer>, Failure> {
        let (sender, answers) = unbounded_channel();
        let undone = |reason: &str| Failure::Away { reason: reason.to_owned(), undone: true };
        match &*self.lock() {
            Ok(asks) => asks.send((question, sender)).map_err(|_| undone(LOST))?,
            Err(reason) => return Err(undone(reason)),
        }
        Ok(answers)
    }

    async fn one(&self, question: Question) -> Result<Answer, Failure> {
        next(&mut self.ask(question)?).await
    }

    pub(in super::super) async fn get(&self, key: &str) -> Result<Option<Entry>, Failure> {
        match self.one(Question::Get(key.to_owned())).await? {
            Answer::Entry(entry) => Ok(entry),
            other => Err(unexpected(&other)),
        }
    }

    pub(in super::super) async fn list(
        &self,
        prefix: &str,
        limit: Duration,
    ) -> Result<(Vec<Entry>, i64), Failure> {
        let mut answers = self.ask(Question::List(prefix.to_owned()))?;
        let mut all = Vec::new();
        loop {
            match within(limit, next(&mut answers)).await? {
                Answer::Page { mut entries, revision, last } => {
                    all.append(&mut entries);
                    if last {
                        return Ok((all, revision));
                    }
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    pub(in super::super) async fn commit(
        &self,
        guard: Option<(String, i64)>,
        operations: &[Operation],
    ) -> Result<i64, Failure> {
        match self.one(Question::Commit { guard, operations: operations.to_vec() }).await? {
            Answer::Revision(revision) => Ok(revision),
            other => Err(unexpected(&other)),
        }
    }

    pub(in super::super) async fn grant(&self, ttl: Duration) -> Result<(SessionId, Duration), Failure> {
        match self.one(Question::Grant { ttl }).await? {
            Answer::Session { id, ttl } => Ok((SessionId(id), ttl)),
            other => Err(unexpected(&other)),
        }
    }

    pub(in super::super) async fn renew(&self, SessionId(id): SessionId) -> Result<(), Failure> {
        self.one(Question::Renew(id)).await.map(drop)
    }

    pub(in super::super) async fn revoke(&self, SessionId(id): SessionId) -> Result<(), Failure> {
        self.one(Question::Revoke(id)).await.map(drop)
    }

    pub(in super::super) async fn take(
        &self,
        SessionId(session): SessionId,
        key: &str,
        value: &[u8],
    ) -> Result<Option<i64>, Failure> {
        let question = Question::Take { session, key: key.to_owned(), value: ByteBuf::from(value) };
        match self.one(question).await? {
            Answer::Taken(revision) => Ok(revision),
            other => Err(unexpected(&other)),
        }
    }

    pub(in super::super) async fn compact(&self, revision: i64) -> Result<(), Failure> {
        self.one(Question::Compact(revision)).await.map(drop)
    }

    pub(in super::super) async fn follow(&self, prefix: &str, follower: &mut Follower) -> End {
        let question = Question::Follow { prefix: prefix.to_owned(), after: follower.after };
        let Ok(mut answers) = self.ask(question) else { return End::Cut };
        loop {
            match next(&mut answers).await {
                Ok(Answer::Events { events, complete }) => {
                    if let Err(end) = follower.take(events, complete) {
                        return end;
                    }
                }
                Ok(Answer::Lost(reason)) => return End::Lost(reason),
                Err(Failure::Compacted) => return End::compacted(follower.after),
                Ok(_) | Err(_) => return End::Cut,
            }
        }
    }
}

const LOST: &str = "the connection was lost";

async fn next(answers: &mut UnboundedReceiver<Answer>) -> Result<Answer, Failure> {
    match answers.recv().await {
        Some(Answer::Fenced) => Err(Failure::Fenced),
        Some(Answer::SessionEnded) => Err(Failure::SessionEnded),
        Some(Answer::Compacted) => Err(Failure::Compacted),
        Some(Answer::Refused(reason)) => Err(Failure::Refused(reason)),
        Some(answer) => Ok(answer),
        None => Err(Failure::away(LOST)),
    }
}

fn unexpected(answer: &Answer) -> Failure {
    Failure::Refused(format!("an answer to another question: {answer:?}"))
}

async fn connect(address: SocketAddr, keys: &StoreKeys) -> io::Result<Connection> {
    let keys = keys.current();
    let connecting = async {
        let mut stream = TcpStream::connect(address).await?;
        // Who connects again and again to a port of this machine where nobody listens may get that port himself, and meet
        // himself there.
        if stream.local_addr()? == address {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        stream.set_nodelay(true)?;
        let seals = greet(&mut stream, Side::Client, keys.as_ref()).await?;
        Ok((stream, seals))
    };
    timeout(CONNECT, connecting).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Asks and passes answers on until the connection is lost; why it was.
async fn talk((stream, (mut to, mut from)): Connection, asked: &mut UnboundedReceiver<Asked>) -> io::Error {
    let (mut reader, mut writer) = stream.into_split();
    let waiting: Mutex<HashMap<u64, UnboundedSender<Answer>>> = Mutex::new(HashMap::new());
    let lock = || lock(&waiting);
    let (leaves, mut left) = unbounded_channel();
    let writing = async {
        let mut pings = interval(PING);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut id = 0;
        loop {
            id += 1;
            let body = tokio::select! {
                Some((question, answers)) = asked.recv() => {
                    // Whoever asked has given up.
                    if answers.is_closed() {
                        continue;
                    }
                    lock().insert(id, answers);
                    question
                }
                Some(id) = left.recv() => Question::Leave(id),
                _ = pings.tick() => Question::Ping,
            };
            if let Err(error) = send(&mut writer, &mut to, &Request { id, body }).await {
                return error;
            }
        }
    };
    let reading = async {
        loop {
            let Response { id, body } = match receive(&mut reader, &mut from).await {
                Ok(response) => response,
                Err(error) => return error,
            };
            let goes_on = body.goes_on();
            let heard = lock().get(&id).is_some_and(|answers| answers.send(body).is_ok());
            if !goes_on || !heard {
                lock().remove(&id);
            }
            if goes_on && !heard {
                let _ = leaves.send(id);
            }
        }
    };
    tokio::select! {
        error = writing => error,
        error = reading => error,
    }
}
