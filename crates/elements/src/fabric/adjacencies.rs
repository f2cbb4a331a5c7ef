//! What the labels of packets mean at their output node, as elements find it.

use std::sync::Arc;

use fib::Adjacency;
use fib::publish::Readers;
use graph::{ConfigError, Setup};

/// The adjacencies of this node that the cluster's nodes send packets to: label by label, kept by the control plane, which puts them
/// under [`FabricAdjacencies::KEY`] into what the elements share before the graph is made.
///
/// A label that was given up is not given to another adjacency before all nodes have forgotten it: that is the control plane's
/// business, and why a node whose tables are old sends nothing to a wrong neighbour.
#[derive(Clone)]
pub struct FabricAdjacencies {
    /// The names of the node's own ports. An [`Adjacency`]'s port is a place in this list.
    pub ports: Vec<String>,
    /// Where each copy of an element gets its own access. The place is the label.
    pub readers: Readers<Vec<Option<Adjacency>>>,
}

impl FabricAdjacencies {
    /// Where elements look for it.
    pub const KEY: &'static str = "fabric adjacencies";

    /// The adjacencies for an element that names these ports.
    pub(super) fn of_ports(setup: &Setup<'_>, ports: &[String]) -> Result<Arc<Self>, ConfigError> {
        let Some(adjacencies) = setup.shared().get::<Self>(Self::KEY) else {
            return Err(ConfigError::new(
                "there is no cluster here; `brickway cluster run` makes its adjacencies",
            ));
        };
        if adjacencies.ports != ports {
            return Err(ConfigError::new(format!(
                "this node's ports are {}; every FromFabric and FabricHost names the same in the same order",
                adjacencies.ports.join(", ")
            )));
        }
        Ok(adjacencies)
    }
}

impl std::fmt::Debug for FabricAdjacencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FabricAdjacencies").field("ports", &self.ports).finish_non_exhaustive()
    }
}
