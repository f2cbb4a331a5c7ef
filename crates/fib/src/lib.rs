//! Forwarding tables: from the routes a router knows to the next hop of a packet in a few nanoseconds, for IPv4 and
//! IPv6, changed hundreds of thousands of times a second while packets flow.
//!
//! ```
//! use fib::{Fib, NextHop, MAIN};
//!
//! let mut fib = Fib::<&str>::new()?;
//! let mut worker = fib.readers().register(); // one for each thread that moves packets
//!
//! let core = fib.next_hops_mut().add(NextHop::Forward("core"))?;
//! let lab = fib.next_hops_mut().add(NextHop::Forward("lab"))?;
//! fib.insert(MAIN, "10.0.0.0/8".parse()?, core)?;
//! fib.insert(MAIN, "10.9.0.0/16".parse()?, lab)?;
//! fib.publish(); // workers see all of it, or nothing
//!
//! assert_eq!(worker.enter().lookup4(0, 0x0a09_0001, 0), &NextHop::Forward("lab"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What lives here
//!
//! | layer | what it is | files |
//! | --- | --- | --- |
//! | [`Rib`] | the routes of a family, the best of each prefix; ordered, exact, slow to search | `rib/` |
//! | [`Table`] | compiled from it for packets: which next hop has this address, and nothing else | `table.rs` and below |
//! | [`NextHops`] | what stands behind the numbers that tables yield: single next hops, groups, backups | `next_hops/` |
//! | [`publish`] | two copies of a state: workers read one, the control thread changes the other | `publish.rs` |
//! | [`Kind`], [`AnyTable`] | which table it is, chosen by name at run time | `kinds.rs`, `any_table.rs` |
//! | [`Fib`] | all of these for a router with VRFs and both families | `fib/` |
//! | [`FibFamily`] | what of all this belongs to an address family | `family.rs` |
//! | [`policy`] | in which VRFs a packet is looked up | `policy.rs` |
//! | [`Intervals`] | which of a few thousand intervals a key is in, for access lists | `intervals.rs` |
//! | [`LocalFib`] | a RIB and a table in step, for one thread | `local_fib.rs` |
//! | [`Region`] | memory of tables that a program in the kernel reads too, `fib/shared.rs` | `region.rs` |
//! | [`read`], [`synthesize`] | routes from files; tables of any size and addresses inside them | |
//!
//! # One way to change a compiled table
//!
//! A table has no insert and no remove of its own. It has [`Table::update`]: "the route at this prefix changed, look at
//! the RIB and repaint". Which addresses to repaint is the same for a new, a changed and a removed route: those inside
//! the prefix that no longer (more specific) route inside it claims. The RIB lists them as *gaps*, so a table needs
//! to remember no prefix lengths, and a change costs what its gaps cost.
//!
//! # The tables
//!
//! | table | design | memory, 1,000,000 routes |
//! | --- | --- | --- |
//! | [`Byte24`] | IPv4: one byte for every /24, the rank table behind it | 23 MB |
//! | [`Rank`] | IPv4: chunks with a bitmap of where the next hop changes; for small caches | 6.6 MB |
//! | [`Dir24_8`] | IPv4: the classical reference | 34 MB |
//! | [`RangeTree`] | IPv6: sixteen ends of ranges at a time | 22 MB (3 MB for the 166,385 real ones) |
//! | [`Linear`] | either: looks at every route; what the others are tested against | 8 or 48 bytes a route |
//!
//! Users choose among them by name ([`Kind`]), and a program can add its own ([`add_tables`]). The usual ones are [`Byte24`] and
//! [`RangeTree`].
//!
//! `brickway-lab bench fib` measures them beside DPDK's, `cargo bench -p brickway-fib` alone.
//!
//! # Next hops
//!
//! A table yields a [`NextHopIndex`], a small number, and knows nothing of ports or MAC addresses. [`NextHops`] keeps
//! what stands behind it, and workers read its [`Resolver`]: a failed next hop re-routes a million prefixes by touching
//! one entry. Index 0 is [`NextHopIndex::NONE`], "no route".
//!
//! # Where routes come from
//!
//! [`read`] reads `PREFIX ORIGIN` tables and the output of `ip route`, plain or compressed; [`synthesize`] grows or
//! samples such a table and draws destinations inside it, for benchmarks and demonstrations.
//!
//! # Unsafe code
//!
//! The lookup loops (`dir24_8.rs`, `rank/`, `byte24.rs`, `range_tree/`, `intervals.rs` with `compare.rs`) skip bounds checks and call functions compiled for
//! processor features, `memory.rs` maps huge pages, `publish.rs` hands out two copies of a state. Each use says why it
//! is sound; everything else is safe Rust.

mod any_table;
mod byte24;
mod changes;
mod compare;
mod dir24_8;
mod family;
mod fib;
mod intervals;
mod kinds;
mod linear;
mod local_fib;
mod memory;
mod next_hops;
pub mod policy;
pub mod publish;
mod range_tree;
mod rank;
pub mod read;
mod region;
mod rib;
mod room;
mod route;
pub mod synthesize;
mod table;

pub use any_table::{AnyCompiler, AnyTable, DynTable};
pub use byte24::Byte24;
pub use compare::Key as IntervalKey;
pub use dir24_8::{Dir24_8, Dir24_8Compiler};
pub use family::FibFamily;
pub use fib::{CheckReport, EditError, Fib, MAIN, MOST_SHARED_RULES, Mismatch, State, TableReport};
pub use intervals::Intervals;
pub use kinds::{Kind, Kinds, TableKind, UnknownTable, add_tables};
pub use linear::Linear;
pub use local_fib::{FibError, LocalFib};
pub use next_hops::{Adjacency, Member, NextHop, NextHopError, NextHops, Resolver};
pub use policy::{Decision, Policy, Rules};
pub use range_tree::{RangeTree, RangeTreeCompiler};
pub use rank::{Rank, RankCompiler};
pub use region::Region;
pub use rib::{Change, Rib, RibError};
pub use route::{NextHopIndex, Route};
pub use table::{BURST, Table, TableError};

/// Calls a macro with all compiled tables: of each its name, its family and its type. What is in this list is compared with
/// [`Linear`] (`tests/tables_agree.rs`), measured (`benches`, `brickway-lab rib stats`), and a [`Kind`].
///
/// ```
/// macro_rules! names {
///     ($($name:ident: $family:ty, $table:ty;)*) => { [$(stringify!($name)),*] };
/// }
/// assert!(fib::for_each_table!(names).contains(&"rank"));
/// ```
#[macro_export]
macro_rules! for_each_table {
    ($each:ident) => {
        $each! {
            byte24: u32, $crate::Byte24;
            rank: u32, $crate::Rank;
            dir24_8: u32, $crate::Dir24_8;
            range_tree: u128, $crate::RangeTree;
        }
    };
}
