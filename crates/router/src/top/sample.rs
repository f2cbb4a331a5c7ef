//! What the router answers at one moment.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use control::api::{
    Client, ClientError, DropFilter, DropRow, ElementRow, NoFilter, PortFilter, PortRow, PuntRow, QueueRow,
    Request, Show, SystemRow, WorkerRow,
};
use serde::de::DeserializeOwned;

use crate::show::parse;

/// The rows of one request.
#[derive(Clone, Debug, Default)]
pub(super) struct Listed<T> {
    /// When they came, counted from the start of this program.
    pub(super) at: Duration,
    pub(super) rows: Vec<T>,
    /// Why the router has none, if it refused: a configuration without Linux's ports does.
    pub(super) refusal: String,
}

/// All that the screen shows of a router.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) system: SystemRow,
    pub(super) ports: Listed<PortRow>,
    pub(super) workers: Listed<WorkerRow>,
    pub(super) queues: Listed<QueueRow>,
    pub(super) drops: Listed<DropRow>,
    pub(super) punts: Listed<PuntRow>,
    pub(super) elements: Listed<ElementRow>,
}

impl Sample {
    /// Asks a router for everything.
    ///
    /// # Errors
    /// It went away, or answers something else than rows of this version.
    pub(super) fn ask(client: &mut Client, begin: Instant) -> Result<Self> {
        let mut system = list(client, Show::System(NoFilter {}), begin)?.rows;
        Ok(Self {
            system: system.pop().context("the router's answer is broken: it has no row of the system")?,
            ports: list(client, Show::Ports(PortFilter { port: None }), begin)?,
            workers: list(client, Show::Workers(NoFilter {}), begin)?,
            queues: list(client, Show::Queues(PortFilter { port: None }), begin)?,
            drops: list(client, Show::Drops(DropFilter { containing: None }), begin)?,
            punts: list(client, Show::Punts(DropFilter { containing: None }), begin)?,
            elements: list(client, Show::Elements(NoFilter {}), begin)?,
        })
    }

    /// Returns whether `other` is of the same run of the router, so that its counters can be compared.
    pub(super) fn is_same_run(&self, other: &Self) -> bool {
        let identity = |system: &SystemRow| (system.pid, system.namespace);
        identity(&self.system) == identity(&other.system)
    }
}

fn list<T: DeserializeOwned>(client: &mut Client, show: Show, begin: Instant) -> Result<Listed<T>> {
    let mut listed = Listed { at: Duration::ZERO, rows: Vec::new(), refusal: String::new() };
    match client.ask(&Request::Show(show)) {
        Err(ClientError::Refused(refusal)) => listed.refusal = refusal,
        answer => {
            // The counters were read when the answer began.
            listed.at = begin.elapsed();
            for row in answer? {
                listed.rows.push(parse(&row?)?);
            }
        }
    }
    Ok(listed)
}
