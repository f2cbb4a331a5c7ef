//! Many servers, one router: the control plane of a cluster.
//!
//! ```text
//!  leader's Linux (a TAP for every port of the cluster), FRR
//!     | netlink
//!  Ledger -- records --> store: whole tables and a log --> Tables of each node --> Mirror --> workers
//!     ^                                                        |
//!     +---------------- what each has read <-- store <---------+
//! ```
//!
//! Every node has the same routes and compiles its own tables from them: [`crate::mirror`] as in a router of one server, with
//! neighbours behind other nodes' ports reached over the fabric ([`crate::mirror::ClusterExits`]).
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`record`] | what the leader tells, as bytes |
//! | [`ledger`] | what it has told: new records, whole tables, takeover |
//! | [`tables`] | what a node makes of it |
//! | [`log`] | how tables and the log lie in the store |
//! | [`member`] | a node's life: membership, election, status |
//! | [`protection`] | what IPsec protects, as the log has it |
//! | [`key`] | the key that the nodes share, from a local file |
//!
//! # In the store
//!
//! | key | what |
//! | --- | --- |
//! | `leader` | the name of the leader, as long as its session lives |
//! | `nodes/NAME` | what a node says of itself ([`member::Status`]), as long as its session lives |
//! | `ports/NUMBER` | link address and MTU of a port, for leaders that come while its node is away |
//! | `table/current` | which whole table is the newest, and at which place of the log it was written |
//! | `table/at/PLACE/PIECE` | its pieces |
//! | `table/log/PLACE` | what has changed since |
//!
//! Only the leader writes below `table/`, with its key as a guard: one that has lost it without knowing writes nothing more. A new leader
//! goes on where the last one ended, so for the nodes nothing happens.

pub mod key;
mod labels;
mod leader;
pub mod ledger;
pub mod log;
pub mod member;
pub mod protection;
pub mod record;
pub mod tables;
#[cfg(test)]
mod tests;
