//! A store in etcd.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::proto::PbKeyValue;
use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, DeleteOptions, EventType, GetOptions, Identity,
    KvClient, PutOptions, TlsOptions, Txn, TxnOp, TxnOpResponse, WatchOptions, WatchResponse,
};
use tonic::{Code, ConnectError, Status};

use super::error::Failure;
use super::watch::{End, Follower};
use super::{Entry, EtcdPlace, Event, Operation, SessionId, TlsFiles, within};

/// How long a connection may take, so that another member gets its chance within the limit of an operation.
const CONNECT: Duration = Duration::from_millis(700);

/// A silent connection is asked whether it still lives. etcd closes connections that ask more often than this
/// (`--grpc-keepalive-min-time`).
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// How long it may take to answer.
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(2);

/// Entries in a page of a listing, as long as it is not known how large they are; values have 1.5 MB at most.
const PAGE: i64 = 32;

/// Bytes to aim for in the pages that follow.
const PAGE_BYTES: usize = 4 << 20;

/// Most entries in a page.
const MOST_PAGE: i64 = 4096;

/// What we are ready to receive in one message: a page of the largest values.
const MOST_MESSAGE: usize = 64 << 20;

#[derive(Clone)]
pub(super) struct Etcd {
    client: Arc<Client>,
}

impl Etcd {
    pub(super) async fn open(place: &EtcdPlace) -> Result<Etcd, Failure> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT)
            .with_keep_alive(KEEP_ALIVE, KEEP_ALIVE_ANSWER)
            // A member that is cut off from the others says so, instead of waiting for them.
            .with_require_leader(true)
            // etcd forgets tokens when it restarts.
            .with_auto_token_refresh(true);
        if let Some((name, password)) = &place.user {
            options = options.with_user(name, password);
        }
        if let Some(files) = &place.tls {
            options = options.with_tls(tls(files)?);
        }
        match Client::connect(&place.endpoints, Some(options)).await {
            Ok(client) => Ok(Etcd { client: Arc::new(client) }),
            // Nothing is sent yet, unless there is a password to try: it is what was configured that is wrong.
            Err(etcd_client::Error::TransportError(error)) => Err(Failure::Refused(chain(&error))),
            Err(error) => Err(error.into()),
        }
    }

    fn kv(&self) -> KvClient {
        self.client
            .kv_client()
            .max_decoding_message_size(MOST_MESSAGE)
            .max_encoding_message_size(MOST_MESSAGE)
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<Entry>, Failure> {
        let mut response = self.kv().get(first(key), None).await?;
        Ok(response.take_kvs().into_iter().next().map(|kv| entry(kv.0)))
    }

    pub(super) async fn list(&self, prefix: &str, limit: Duration) -> Result<(Vec<Entry>, i64), Failure> {
        let range_end = end_of(prefix);
        let mut from = Vec::from(first(prefix));
        let (mut entries, mut revision, mut page) = (Vec::new(), 0, PAGE);
        loop {
            let options =
                GetOptions::new().with_range(range_end.clone()).with_limit(page).with_revision(revision);
            let mut kv = self.kv();
            let answer = within(limit, async { Ok(kv.get(from.clone(), Some(options)).await) }).await?;
            let mut response = match answer {
                // Small values, and then larger ones.
                Err(etcd_client::Error::GRpcStatus(status))
                    if page > PAGE && status.code() == Code::OutOfRange && !is_compacted(&status) =>
                {
                    page = PAGE;
                    continue;
                }
                answer => answer?,
            };
            let kvs = response.take_kvs();
            if revision == 0 {
                revision = response.header().map_or(0, |header| header.revision());
            }
            let bytes: usize = kvs.iter().map(|kv| kv.key().len() + kv.value().len()).sum();
            page = (PAGE_BYTES * kvs.len() / bytes.max(1)) as i64;
            page = page.clamp(PAGE, MOST_PAGE);
            if let Some(last) = kvs.last() {
                from = [last.key(), b"\0"].concat();
            }
            entries.extend(kvs.into_iter().map(|kv| entry(kv.0)));
            if !response.more() {
                return Ok((entries, revision));
            }
        }
    }

    pub(super) async fn commit(
        &self,
        guard: Option<(String, i64)>,
        operations: &[Operation],
    ) -> Result<i64, Failure> {
        let operations = operations.iter().map(|operation| match operation {
            Operation::Put { key, value, session } => {
                let options = session.map(|SessionId(lease)| PutOptions::new().with_lease(lease));
                TxnOp::put(key.as_str(), value.as_slice(), options)
            }
            Operation::Remove(key) => TxnOp::delete(key.as_str(), None),
            Operation::RemovePrefix(prefix) => {
                TxnOp::delete(prefix.as_str(), Some(DeleteOptions::new().with_prefix()))
            }
        });
        let conditions =
            guard.map(|(key, revision)| Compare::create_revision(key, CompareOp::Equal, revision));
        let txn = Txn::new().when(Vec::from_iter(conditions)).and_then(operations.collect::<Vec<_>>());
        let response = self.kv().txn(txn).await?;
        match response.succeeded() {
            true => Ok(response.header().map_or(0, |header| header.revision())),
            false => Err(Failure::Fenced),
        }
    }

    pub(super) async fn grant(&self, ttl: Duration) -> Result<(SessionId, Duration), Failure> {
        let seconds = ttl.as_millis().div_ceil(1000) as i64;
        let response = self.client.lease_client().grant(seconds.max(1), None).await?;
        Ok((SessionId(response.id()), Duration::from_secs(response.ttl().max(0) as u64)))
    }

    pub(super) async fn renew(&self, SessionId(lease): SessionId) -> Result<(), Failure> {
        self.client.lease_client().keep_alive(lease).await.map(drop).map_err(Failure::from)
    }

    pub(super) async fn revoke(&self, SessionId(lease): SessionId) -> Result<(), Failure> {
        self.client.lease_client().revoke(lease).await.map(drop).map_err(Failure::from)
    }

    pub(super) async fn take(
        &self,
        SessionId(lease): SessionId,
        key: &str,
        value: &[u8],
    ) -> Result<Option<i64>, Failure> {
        let txn = Txn::new()
            .when([Compare::create_revision(key, CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)))])
            .or_else([TxnOp::get(key, None)]);
        let response = self.kv().txn(txn).await?;
        if response.succeeded() {
            return Ok(response.header().map(|header| header.revision()));
        }
        let holder = response.op_responses().into_iter().find_map(|response| match response {
            TxnOpResponse::Get(mut get) => get.take_kvs().into_iter().next(),
            _ => None,
        });
        Ok(holder.filter(|holder| holder.lease() == lease).map(|holder| holder.create_revision()))
    }

    pub(super) async fn compact(&self, revision: i64) -> Result<(), Failure> {
        self.kv().compact(revision, None).await.map(drop).map_err(Failure::from)
    }

    pub(super) async fn follow(&self, prefix: &str, follower: &mut Follower) -> End {
        match self.try_follow(prefix, follower).await {
            Ok(end) => end,
            Err(Failure::Compacted) => End::compacted(follower.after),
            Err(Failure::Refused(reason)) => End::Lost(reason),
            Err(_) => End::Cut,
        }
    }

    async fn try_follow(&self, prefix: &str, follower: &mut Follower) -> Result<End, Failure> {
        let options = WatchOptions::new()
            .with_prefix()
            .with_start_revision(follower.after + 1)
            .with_progress_notify()
            .with_fragment();
        let mut stream = self.client.watch_client().watch(prefix, Some(options)).await?;
        while let Some(message) = stream.message().await? {
            let WatchResponse(message) = message;
            if message.canceled && message.compact_revision > 0 {
                return Ok(End::compacted(follower.after));
            }
            if message.canceled || message.created {
                // A cancelled watch may have had a token that etcd forgot; this gets a new one. And etcd accepts a watch that
                // starts at the very revision it was compacted to, although removals of that revision are gone, as well as
                // one in the future, which is what remains when etcd's data were replaced. To look at the
                // revision before fails in all of these cases.
                let options = GetOptions::new().with_count_only().with_revision(follower.after);
                self.kv().get(first(prefix), Some(options)).await?;
            }
            if message.canceled {
                return Ok(End::Lost(message.cancel_reason));
            }
            if message.events.is_empty() && !message.created {
                // A report of progress: all up to here is known.
                follower.after = follower.after.max(message.header.map_or(0, |header| header.revision));
            }
            let events = message.events.into_iter().filter_map(|event| {
                let removed = event.r#type == EventType::Delete as i32;
                let entry = entry(event.kv?);
                Some(match removed {
                    true => Event::Removed { key: entry.key, revision: entry.revision },
                    false => Event::Put(entry),
                })
            });
            if let Err(end) = follower.take(events, !message.fragment) {
                return Ok(end);
            }
        }
        Ok(End::Cut)
    }
}

/// The first key that begins so; etcd has no empty one.
fn first(prefix: &str) -> &str {
    if prefix.is_empty() { "\0" } else { prefix }
}

/// The first key behind all that begin so.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = Vec::from(prefix);
    match end.last_mut() {
        // No byte of UTF-8 is 255.
        Some(last) => *last += 1,
        None => end.push(0),
    }
    end
}

fn entry(kv: PbKeyValue) -> Entry {
    let key = String::from_utf8_lossy(&kv.key).into_owned();
    Entry { key, value: kv.value, revision: kv.mod_revision }
}

fn tls(files: &TlsFiles) -> Result<TlsOptions, Failure> {
    let refused =
        |path: &std::path::Path, error| Failure::Refused(format!("cannot read {}: {error}", path.display()));
    let read = |path: &std::path::Path| graph::files::read_text(path).map_err(|error| refused(path, error));
    let options = TlsOptions::new().ca_certificate(Certificate::from_pem(read(&files.ca)?));
    match &files.identity {
        Some((certificate, key)) => {
            let (secret, _) = graph::files::read_secret(key).map_err(|error| refused(key, error))?;
            Ok(options.identity(Identity::from_pem(read(certificate)?, secret)))
        }
        None => Ok(options),
    }
}

fn is_compacted(status: &Status) -> bool {
    status.message().ends_with("required revision has been compacted")
}

impl From<etcd_client::Error> for Failure {
    fn from(error: etcd_client::Error) -> Failure {
        use etcd_client::Error;
        let status = match error {
            Error::GRpcStatus(status) => status,
            Error::LeaseKeepAliveError(reason) if reason == "lease not found" => {
                return Failure::SessionEnded;
            }
            Error::InvalidArgs(reason) => return Failure::Refused(reason),
            Error::InvalidUri(error) => return Failure::Refused(error.to_string()),
            error => return Failure::away(chain(&error)),
        };
        match status.code() {
            Code::OutOfRange if is_compacted(&status) => Failure::Compacted,
            Code::NotFound if status.message().contains("lease not found") => Failure::SessionEnded,
            Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded | Code::Internal => {
                let causes = std::iter::successors(status.source(), |&cause| cause.source());
                let undone = causes.into_iter().any(|cause| cause.is::<ConnectError>());
                // etcd looks for its leader before it looks at the request.
                let undone = undone || status.message() == "etcdserver: no leader";
                let reason = status.source().map_or_else(|| status.message().to_owned(), chain);
                Failure::Away { reason, undone }
            }
            _ => Failure::Refused(status.message().to_owned()),
        }
    }
}

/// The error and what caused it: the first alone only says "transport error".
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let errors = std::iter::successors(Some(error), |&error| error.source());
    let mut texts = errors.map(ToString::to_string).collect::<Vec<_>>();
    // Some repeat what their cause says.
    texts.dedup_by(|next, text| text.contains(next.as_str()));
    texts.join(": ")
}
