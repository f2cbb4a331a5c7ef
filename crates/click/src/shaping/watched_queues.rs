//! The queues whose length an element of queue management watches.

use std::sync::Arc;

use graph::arguments::Raw;
use graph::lang::split_words;
use graph::setup::Direction;
use graph::{ConfigError, Setup};

use crate::queues::length::{QUEUE, QueueLength};

/// Queues of this copy of the graph.
pub(super) struct WatchedQueues {
    names: Vec<String>,
    lengths: Vec<Arc<QueueLength>>,
}

impl WatchedQueues {
    /// Those that the argument QUEUES names; or else the nearest ones downstream, for an element that is pulled upstream.
    pub(super) fn find(setup: &Setup<'_>, queues: Option<Raw>) -> Result<Self, ConfigError> {
        let names: Vec<String> = match queues {
            Some(Raw(list)) => named_queues(setup, &split_words(&list))?,
            None => {
                let way =
                    if setup.output_is_pull(0) { Direction::Upstream(0) } else { Direction::Downstream(0) };
                setup.nearest(way, QUEUE).names.into_iter().map(str::to_owned).collect()
            }
        };
        if names.is_empty() {
            return Err("no queue near it; put it next to a Queue, or name one with QUEUES"
                .to_owned()
                .into());
        }
        let of = |name: &String| QueueLength::of(setup.shared(), name, setup.copy().index);
        let lengths = names.iter().map(of).collect();
        Ok(Self { names, lengths })
    }

    /// Packets that wait in all of them.
    pub(super) fn packets(&self) -> usize {
        self.lengths.iter().map(|length| length.packets()).sum()
    }

    /// Their names, one a line.
    pub(super) fn names(&self) -> String {
        self.names.iter().map(|name| format!("{name}\n")).collect()
    }
}

fn named_queues(setup: &Setup<'_>, names: &[String]) -> Result<Vec<String>, ConfigError> {
    let mut found = Vec::new();
    let mut messages = Vec::new();
    for name in names {
        match setup.find(name) {
            Some(element) if element.has(QUEUE) => found.push(element.name.clone()),
            Some(element) => messages.push(format!("QUEUES: '{name}' is a {}, not a queue", element.class)),
            None => messages.push(format!("QUEUES: no element named '{name}'")),
        }
    }
    if messages.is_empty() { Ok(found) } else { Err(messages.into()) }
}
