//! Watches: what happens to keys, in order, each event once.

use std::sync::mpsc::Sender;

use serde::{Deserialize, Serialize};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::{Entry, RETRY, Store, either};

/// What a [`Watch`] tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A key has this value now.
    Put(Entry),
    /// A key is no more.
    Removed {
        /// Which.
        key: String,
        /// Since when.
        revision: i64,
    },
    /// The watch is over because events may have been missed, for this reason: list again, and watch from there.
    Lost(String),
}

impl Event {
    /// When it happened; `None` for [`Event::Lost`].
    pub fn revision(&self) -> Option<i64> {
        match self {
            Event::Put(entry) => Some(entry.revision),
            Event::Removed { revision, .. } => Some(*revision),
            Event::Lost(_) => None,
        }
    }
}

/// Ends when it is dropped; an event that is on its way then may still come.
pub struct Watch {
    task: AbortHandle,
    /// The thread on which it runs.
    _store: Store,
}

impl Watch {
    pub(super) fn start(store: Store, prefix: String, after: i64, events: Sender<Event>) -> Watch {
        let backend = store.common.backend.clone();
        let prefix_length = store.common.prefix.len();
        let mut follower = Follower { after, held: Vec::new(), prefix_length, events };
        let task = async move {
            loop {
                let end = either!(&backend, kind => kind.follow(&prefix, &mut follower).await);
                match end {
                    End::Cut => sleep(RETRY).await,
                    End::Lost(reason) => break drop(follower.events.send(Event::Lost(reason))),
                    End::Unheard => break,
                }
                follower.held.clear();
            }
        };
        let task = store.common.thread.runtime.spawn(task).abort_handle();
        Watch { task, _store: store }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Why a store follows no longer.
pub(super) enum End {
    /// The connection is gone; the next one goes on where this one was.
    Cut,
    /// Events may have been missed.
    Lost(String),
    /// Nobody listens.
    Unheard,
}

impl End {
    pub(super) fn compacted(after: i64) -> End {
        End::Lost(format!("what happened after revision {after} has been compacted"))
    }
}

/// How far a watch has come. Events of one revision may come in several messages; they are passed on when all are there, so
/// that it is always clear after which revision to go on.
pub(super) struct Follower {
    pub(super) after: i64,
    held: Vec<Event>,
    prefix_length: usize,
    events: Sender<Event>,
}

impl Follower {
    /// Takes the events of one message, with full keys; more of the last one's revision may follow unless `complete`.
    pub(super) fn take(
        &mut self,
        events: impl IntoIterator<Item = Event>,
        complete: bool,
    ) -> Result<(), End> {
        self.held.extend(events);
        let last = self.held.last().and_then(Event::revision);
        let ready = match complete {
            true => self.held.len(),
            false => self.held.partition_point(|event| event.revision() < last),
        };
        for mut event in self.held.drain(..ready) {
            if let Event::Put(Entry { key, .. }) | Event::Removed { key, .. } = &mut event {
                key.drain(..self.prefix_length);
            }
            self.after = event.revision().unwrap_or(self.after);
            self.events.send(event).map_err(|_| End::Unheard)?;
        }
        Ok(())
    }
}
