//! The forwarding tables that a control plane keeps for the whole router, as elements find them.
//!
//! Lookup elements of Click have routes of their own. A router that mirrors Linux has one set of tables for all elements,
//! changed from outside the graph: the program puts [`ForwardingTables`] under [`ForwardingTables::KEY`] into what
//! the elements share before the graph is made.

use std::net::IpAddr;
use std::sync::Arc;

use fib::publish::Readers;
use fib::{Adjacency, NextHopIndex, Policy, State};
use graph::{ConfigError, Setup};
use packet::multipath::PathPolicies;

/// Access to the router's forwarding tables.
#[derive(Clone)]
pub struct ForwardingTables {
    /// The names of the router's ports. An [`Adjacency`]'s port is a place in this list.
    pub ports: Vec<String>,
    /// Where each copy of an element gets its own access.
    pub readers: Readers<State<Adjacency>>,
    /// The same for the rules that choose among tables.
    pub policies: Readers<Policy>,
    /// What decides among the next hops of a multipath route, as Linux says.
    pub paths: Arc<PathPolicies>,
    /// Who resolves neighbours.
    pub ask: Asker,
}

/// Has a neighbour resolved: the one through which the next hop of this number leads to this destination. Does not wait; the
/// tables change when the answer is there.
#[derive(Clone)]
pub struct Asker(pub Arc<dyn Fn(NextHopIndex, IpAddr) + Send + Sync>);

impl Default for Asker {
    /// Nobody is asked.
    fn default() -> Self {
        Self(Arc::new(|_, _| ()))
    }
}

impl ForwardingTables {
    /// Where elements look for it.
    pub const KEY: &'static str = "forwarding tables";

    /// The tables for an element that names these ports.
    pub(super) fn of_ports(setup: &Setup<'_>, ports: &[String]) -> Result<Arc<Self>, ConfigError> {
        let Some(tables) = setup.shared().get::<Self>(Self::KEY) else {
            return Err(ConfigError::new("there are no forwarding tables here; `brickway run` makes them"));
        };
        if tables.ports != ports {
            return Err(ConfigError::new(format!(
                "the forwarding tables are for the ports {}; all lookups of a router name the same ports in the same order",
                tables.ports.join(", ")
            )));
        }
        Ok(tables)
    }
}

impl std::fmt::Debug for ForwardingTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForwardingTables").field("ports", &self.ports).finish_non_exhaustive()
    }
}
