//! =c
//! CheckReversePath6(PORT0, PORT1, ..., MODE)
//!
//! =s ip6
//! drops IPv6 packets whose source address does not belong where they come from
//!
//! =d
//! CheckReversePath for IPv6: the same arguments, outputs and drop reasons. Expects packets as CheckIP6Header leaves them.
//!
//! =e
//!   ... -> CheckIP6Header -> source :: CheckReversePath6(eth1, eth2, MODE strict)
//!     -> FIBLookup6(eth1, eth2) ...
//!   source[1] -> Punt -> ...
//!
//! =a CheckReversePath, FIBLookup6

use graph::Class;

use super::check_reverse_path;

pub(crate) static CLASS: Class = Class {
    name: "CheckReversePath6",
    ports: check_reverse_path::PORTS,
    processing: Class::AGNOSTIC_WITH_ERRORS,
    capabilities: &[graph::TAKES_MERGED],
    manual: graph::manual!("check_reverse_path_6.rs"),
    make: check_reverse_path::make::<u128>,
    ..Class::DEFAULT
};
