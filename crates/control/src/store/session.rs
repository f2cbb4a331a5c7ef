//! Sessions: leases that are renewed while somebody holds them.

use packet::sync::lock;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::{Backend, Failure, RETRY, Store, either, within};

/// Names a session in [`Operation::Put`](super::Operation::Put).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionId(pub i64);

/// What [`Store::take`] took. It outlives its session, and is worth nothing then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    pub(super) key: String,
    pub(super) revision: i64,
}

impl Guard {
    /// The key, without the store's prefix.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The revision at which it was taken: greater than that of anybody who had the key before.
    pub fn revision(&self) -> i64 {
        self.revision
    }
}

/// A lease that is renewed three times in its time, from the store's thread. When it is dropped, its keys go; that takes
/// one exchange with the store, or its time limit.
pub struct Session {
    id: SessionId,
    ttl: Duration,
    life: Arc<Life>,
    keeper: AbortHandle,
    store: Store,
}

/// Until when the lease lives for certain; `None` when it has ended.
struct Life(Mutex<Option<Instant>>);

impl Life {
    fn is_alive(&self) -> bool {
        let mut end = lock(&self.0);
        // Once anybody was told that it has ended, it has.
        *end = end.filter(|&end| Instant::now() < end);
        end.is_some()
    }

    fn extend(&self, to: Instant) {
        if self.is_alive() {
            *lock(&self.0) = Some(to);
        }
    }

    fn end(&self) {
        *lock(&self.0) = None;
    }
}

impl Session {
    pub(super) fn start(store: Store, id: SessionId, ttl: Duration, asked: Instant) -> Session {
        let life = Arc::new(Life(Mutex::new(Some(asked + ttl))));
        let keeper = keep(store.common.backend.clone(), id, ttl, life.clone());
        let keeper = store.common.thread.runtime.spawn(keeper).abort_handle();
        Session { id, ttl, life, keeper, store }
    }

    /// Names it in operations.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// How long it lives when it is not renewed.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Whether it lives for certain. It counts from when a renewal was asked for, so it says no before the store lets
    /// anybody else have its keys; and once it has said no it stays so.
    pub fn is_alive(&self) -> bool {
        self.life.is_alive()
    }

    /// As if this process hung.
    #[cfg(test)]
    pub(super) fn stop_renewing(&self) {
        self.keeper.abort();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.keeper.abort();
        let (backend, id, limit) = (self.store.common.backend.clone(), self.id, self.store.limit);
        // A store that cannot be told lets the lease run out.
        let _ = self.store.common.thread.run(within(limit, async move {
            match either!(backend, kind => kind.revoke(id).await) {
                Err(Failure::SessionEnded) => Ok(()),
                result => result,
            }
        }));
    }
}

async fn keep(backend: Backend, id: SessionId, ttl: Duration, life: Arc<Life>) {
    let period = ttl / 3;
    while life.is_alive() {
        let asked = Instant::now();
        match timeout(period, async { either!(&backend, kind => kind.renew(id).await) }).await {
            Ok(Ok(())) => {
                life.extend(asked + ttl);
                sleep(period).await;
            }
            Ok(Err(Failure::SessionEnded)) => life.end(),
            _ => sleep(RETRY.min(period)).await,
        }
    }
}
