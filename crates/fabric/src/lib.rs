//! How the servers of a cluster carry packets to each other, so that they act as one router: pure decisions, without I/O,
//! clocks or threads. The routers' elements and the simulator call the same code.
//!
//! A packet's way: the *input node* decides the *output node* and the adjacency there, and the path: directly, or over one
//! *intermediate node* (Direct Valiant load balancing). All of it stands in the packet's [`Header`] or [`Shim`]. Relays and the output
//! node read nothing else. No node ever changes the output node or takes a second detour, so a packet cannot circle, whatever
//! the tables of the nodes say; [`Header::hops`] ends what a broken node might still do.
//!
//! # What lives here
//!
//! | file | what |
//! | --- | --- |
//! | `node.rs` | [`NodeId`], [`NodeSet`] |
//! | `header.rs` | [`Header`]: the decision in the Ethernet addresses of a frame on a dedicated link; [`Words`] and [`Lead`]: the same for the fast path |
//! | `shim.rs` | [`Shim`]: the decision in one MPLS label, for a fabric over Ethernet switches |
//! | `topology/` | [`Topology`]: who is wired to whom, and the next node towards another, for each [`Shape`] |
//! | `paths.rs` | [`Paths`]: which ways are alive, as one node knows it |
//! | `hello.rs`, `keys.rs` | [`Hello`], [`Keys`]: what nodes say on every link, and what proves that one of them said it |
//! | `links.rs`, `links/` | [`Links`]: who is alive, how all nodes learn it, and which hellos are refused |
//! | `bucket.rs` | [`Bucket`]: a token bucket |
//! | `flowlets.rs` | [`Flowlets`]: the path a burst of a flow took last |
//! | `balance.rs` | [`Balancer`]: directly or over whom; the heart |
//! | `fair.rs` | [`FairQueue`]: each input node's share of an overloaded output |
//! | `front.rs` | [`Front`], [`Fronts`]: which routing node a flow belongs to, for two-stage clusters |

mod balance;
mod bucket;
mod fair;
mod flowlets;
mod front;
mod header;
mod hello;
mod keys;
mod links;
mod node;
mod paths;
mod shim;
mod topology;

pub use balance::{Balancer, Choice, Counts, Mode, Settings};
pub use bucket::Bucket;
pub use fair::{FairQueue, Share};
pub use flowlets::{Flowlets, PathChoice, Place};
pub use front::{Front, Fronts, RoutingNode};
pub use header::{Header, HeaderError, Kind, LONGEST_WAY, Label, Lead, Words};
pub use hello::{Echo, Hello, HelloError, Report, Version};
pub use keys::Keys;
pub use links::{Event, Links, Refusal, Timing};
pub use node::{NodeId, NodeSet};
pub use paths::Paths;
pub use shim::Shim;
pub use topology::{Cable, Far, Link, Shape, Topology, TopologyError};
