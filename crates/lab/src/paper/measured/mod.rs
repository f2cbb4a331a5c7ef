//! What is measured on this machine.

pub(super) mod cards;
pub(super) mod cores;
pub(super) mod moonroute;
pub(super) mod pcs;
pub(super) mod slow;
pub(super) mod stars;
pub(super) mod workers;

/// Returns million packets a second of so many TSC cycles a packet.
pub(super) fn mpps(cycles: f64) -> f64 {
    packet::cycles::per_second() / cycles / 1e6
}
