//! A cluster in simulated time, packet by packet: what its nodes would deliver, lose and reorder, and how fast they would
//! find a way round what breaks. All decisions are the nodes' own: this crate calls the code of crate `fabric` that routers
//! run, and adds traffic, queues and clocks.
//!
//! A [`Scenario`] says everything that the outcome depends on, [`simulate`] makes a [`Report`] of it. The same scenario
//! makes the same report, to the last bit.
//!
//! ```
//! use sim::{Costs, Matrix, Scenario, Sizes, simulate};
//!
//! // Eight nodes with ports of 10 Gb/s; all traffic of each goes to the next one. Theory asks for links of 2R/N and
//! // nodes of 3R.
//! let rate = 1_250_000_000;
//! let scenario = Scenario {
//!     matrix: Matrix::Next,
//!     costs: Costs::of_capacity(3.0 * rate as f64, Sizes::Imix.mean()),
//!     warm_ns: 20_000_000,
//!     end_ns: 30_000_000,
//!     ..Scenario::new("mesh(8)".parse()?, rate)
//! };
//! scenario.check()?;
//! let report = simulate(&scenario, |_| ());
//! assert!(report.throughput().share() > 0.98);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What lives here
//!
//! | file | what |
//! | --- | --- |
//! | `scenario.rs` | [`Scenario`] and its parts: [`Costs`], [`Flows`], [`Sizes`], [`Failure`]; [`ScenarioError`] |
//! | `matrix.rs` | [`Matrix`]: who sends how much to whom; what is admissible |
//! | `traffic/` | packets as ports bring them: at random times (`mod.rs`), or as on the Internet (`heavy.rs`) |
//! | `simulation/mod.rs` | [`simulate`]: what happens to a packet at a node, a link, a port |
//! | `simulation/wiring.rs` | links as servers |
//! | `simulation/failures.rs` | what is broken when, and what that costs |
//! | `simulation/hellos.rs` | how nodes find out |
//! | `event.rs`, `calendar.rs` | events of 40 bytes, and their order |
//! | `order.rs` | how much packets of a flow overtake each other |
//! | `histogram.rs`, `random.rs` | percentiles; numbers that look drawn |
//! | `report.rs` | [`Report`] |
//! | `model.rs` | [`model`]: what a server can forward, and what stops it |
//! | `plan/` | [`plan`]: how many servers, wired how, before any is simulated or bought |
//!
//! # The model
//!
//! A packet comes in by a port whose wire has rate R. A *node* is one server: it handles packets in the order of their
//! arrival, each for the time that its role costs; a packet for the port that it came in by costs the input role only. The
//! *balancer* is asked at the time at which the node has handled the packet, and told of what the node relays. A *link* and
//! a *port* are servers of their rate with a queue of limited bytes, first in, first out; then the packet takes the link's
//! delay. A star's *switch* has a queue before each link and costs nothing else. *Hellos* are said where something is to
//! fail, and only then; what they find out reaches the balancer at once.
//!
//! What is left out: batches, and the time that a packet waits for one; several workers of a node, each with its share of
//! the rates (a node is as good as its workers together); [`fabric::FairQueue`] before ports (they are first in, first out,
//! so an overloaded port does not protect who keeps to its share; admissible traffic overloads none for long); Ethernet's
//! preamble and gap, and the label's bytes on a switched fabric; senders that slow down when packets are lost. Losses in
//! full queues are blamed on no failure.
//!
//! A thousand nodes without failures take minutes. With failures, every hello of every link is said and read, and a node works
//! out its ways anew for every report that tells it something: that is for tens of nodes.

#![forbid(unsafe_code)]

mod calendar;
mod event;
mod histogram;
mod matrix;
pub mod model;
mod order;
pub mod plan;
mod random;
mod report;
mod scenario;
mod simulation;
mod traffic;

pub use matrix::{Matrix, MatrixError};
pub use report::{Latency, Losses, Packets, Recovery, Reordering, Report, Throughput, Use};
pub use scenario::{ABILENE, Broken, Costs, Failure, Flows, IMIX, Scenario, ScenarioError, Sizes, Ways};
pub use simulation::simulate;
