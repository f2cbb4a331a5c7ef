//! Forwarding tables: from the routes a router knows to the next hop of a packet in a few nanoseconds.
//!
//! # What lives here
//!
//! There are two kinds of store, and the crate is about keeping them apart:
//!
//! * [`Rib4`] holds the **routes**: prefix to next hop, ordered, exact, compact. The control thread edits it and
//!   asks it questions; its own longest match is correct and slow.
//! * A [`Table4`] is **compiled** from it for the fast path and answers one question only: which next hop has this
//!   address. It remembers no routes, so it can be small and flat.
//!
//! [`Fib4`] pairs the two and keeps them in step: change a route there and both have it, or neither.
//!
//! ```
//! use fib::{Dir24_8, Fib4, NextHopIndex, Table4};
//!
//! let mut fib = Fib4::new(Dir24_8::new()?);
//! let (core, lab) = (NextHopIndex::new(1).unwrap(), NextHopIndex::new(2).unwrap());
//! fib.insert("10.0.0.0/8".parse()?, core)?;
//! fib.insert("10.9.0.0/16".parse()?, lab)?;
//! assert_eq!(fib.table().lookup(0x0a09_0001), lab);
//! fib.remove("10.9.0.0/16".parse()?)?;
//! assert_eq!(fib.table().lookup(0x0a09_0001), core);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # One way to change a compiled table
//!
//! A compiled table has no insert and no remove of its own. It has [`Table4::update`]: "the routes at this prefix
//! changed, look at the RIB and repaint". Which addresses to repaint is the same for a new, a changed and a removed
//! route: those inside the prefix that no longer (more specific) route inside it claims. [`Rib4`] lists them as
//! *gaps*, so a table needs to remember no prefix lengths, and a change costs what the gaps cost.
//!
//! # The tables
//!
//! | table | memory, a million routes | a lookup | file |
//! | --- | --- | --- | --- |
//! | [`Dir24_8`] | 34 MB | one load, two under a prefix longer than /24 | `dir24_8.rs` |
//! | [`Dxr`] | 4 to 8 MB | one load, then a search in one or two cache lines | `dxr.rs` |
//! | [`Linear`] | 12 bytes a route | looks at every route | `linear.rs` |
//!
//! `examples/measure.rs` prints what each costs on the machine at hand. What it said for a million routes on one core
//! of an AMD EPYC (Zen 5, 32 MB third-level cache, 2.6 GHz time-stamp counter), in cycles a lookup in batches of 32:
//!
//! | destinations inside prefixes | `Dir24_8` | `Dxr20` | `Dxr18` |
//! | --- | --- | --- | --- |
//! | 1 | 0.8 | 5.2 | 5.7 |
//! | 4,096 | 1.4 | 6.2 | 19 |
//! | 65,536 | 2.7 | 8.3 | 21 |
//! | random over the whole address space | 18 | 9 | 11 |
//!
//! So `Dir24_8` for traffic that has favourites, which is what routers see; `Dxr20` for scans and for small caches.
//!
//! # Next hops
//!
//! A table yields a [`NextHopIndex`], a small number, and knows nothing of ports or MAC addresses. Index 0 is
//! [`NextHopIndex::NONE`], "no route": whoever keeps the next hops puts the drop at slot 0 and needs no test.
//!
//! # Where routes come from
//!
//! [`read`] reads `PREFIX ORIGIN` text tables, plain or gzip; [`synthesize`] grows or samples such a table and draws
//! destinations inside it, for benchmarks and demonstrations.

mod dir24_8;
mod dxr;
mod fib4;
mod linear;
mod memory;
pub mod read;
mod rib4;
mod route;
pub mod synthesize;
mod table;

pub use dir24_8::Dir24_8;
pub use dxr::{Dxr, Dxr18, Dxr19, Dxr20};
pub use fib4::{Fib4, FibError};
pub use linear::Linear;
pub use rib4::{Rib4, RibError};
pub use route::{NextHopIndex, Route4};
pub use table::{BURST, Table4, TableError};
