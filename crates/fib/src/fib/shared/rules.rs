//! Policy rules as readers outside the process see them: 64-bit words, those of IPv4 before those of IPv6.
//!
//! ```text
//!  header: where a family's lines are, how many + 1 (0: the main table only), of both families
//!  line:   sources, destinations: first and last, upper half first | ports it came in by, a bit each | flags, argument
//!  VRFs of ports: a byte for each port
//! ```
//!
//! Places are bytes from the header on. A line is a rule, in the same order. What a rule ends with is not said: who reads
//! the lines leaves the packet to others then. The counterpart is `crates/ports/bpf/policy.h`.

use crate::Policy;
use crate::policy::{AddressRange, PolicyAction, PolicyRule, Rules};
use packet::Family;

/// Rules of a family that there is room for. Of more, all packets are left to others.
pub const MOST_RULES: usize = 256;
/// Ports that a rule can tell apart. Programs know no more.
const PORTS: usize = 256;
/// Words of the header, of a line, and of the VRFs of ports.
const HEADER: usize = 2;
const LINE: usize = 13;
const VRFS_OF_PORTS: usize = PORTS / 8;
/// The most words.
pub(super) const MOST_WORDS: usize = HEADER + 2 * MOST_RULES * (LINE + VRFS_OF_PORTS);

/// Flags of a line.
const BY_INPUT: u32 = 1;
const IS_INVERTED: u32 = 2;
const IS_UNKNOWN: u32 = 4;
const LOOKS_UP: u32 = 8;
const LOOKS_UP_OF_PORT: u32 = 16;
const GOES_TO: u32 = 32;
const ENDS: u32 = 64;

/// Nothing is looked up in this VRF.
const NO_VRF: u8 = u8::MAX;

/// The words of a policy; none if all is looked up in the main table.
pub(super) fn words_of(policy: &Policy) -> Vec<u64> {
    if policy.ipv4.is_main_only() && policy.ipv6.is_main_only() {
        return Vec::new();
    }
    let mut words = vec![0; HEADER];
    add(&mut words, 0, &policy.ipv4);
    add(&mut words, 1, &policy.ipv6);
    words
}

fn add<A: Family + Into<u128>>(words: &mut Vec<u64>, family: usize, rules: &Rules<A>) {
    if rules.is_main_only() {
        return;
    }
    let fits = rules.list().len() <= MOST_RULES;
    let end = [PolicyRule::all(PolicyAction::End(crate::Decision::Punt))];
    let list = if fits { rules.list() } else { &end };
    let place = words.len();
    words[family] = pair(8 * place, list.len() + 1);
    words.resize(place + list.len() * LINE, 0);
    for (number, rule) in list.iter().enumerate() {
        let (mut flags, argument) = match &rule.action {
            PolicyAction::Lookup(vrf) => (LOOKS_UP, *vrf),
            PolicyAction::LookupOfPort(vrfs) => {
                let argument = 8 * words.len();
                words.extend(vrfs_of_ports(vrfs));
                (LOOKS_UP_OF_PORT, argument)
            }
            PolicyAction::Goto(target) => (GOES_TO, *target),
            PolicyAction::Nop => (0, 0),
            PolicyAction::End(_) => (ENDS, 0),
        };
        let line = &mut words[place + number * LINE..][..LINE];
        line[..4].copy_from_slice(&bounds(rule.from));
        line[4..8].copy_from_slice(&bounds(rule.to));
        for port in
            rule.input_ports.iter().flatten().map(|port| usize::from(*port)).filter(|port| *port < PORTS)
        {
            line[8 + port / 64] |= 1 << (port % 64);
        }
        for (flag, is_set) in [
            (BY_INPUT, rule.input_ports.is_some()),
            (IS_INVERTED, rule.is_inverted),
            (IS_UNKNOWN, rule.is_partly_unknown),
        ] {
            flags |= if is_set { flag } else { 0 };
        }
        line[12] = pair(flags as usize, argument);
    }
}

/// Two 32-bit words, the first at the lower address.
fn pair(first: usize, second: usize) -> u64 {
    let halves = [first as u32, second as u32].map(u32::to_ne_bytes);
    u64::from_ne_bytes([halves[0], halves[1]].concat().try_into().expect("eight bytes"))
}

fn bounds<A: Family + Into<u128>>(range: Option<AddressRange<A>>) -> [u64; 4] {
    let (first, last) = range.map_or((0, u128::MAX), |range| (range.first.into(), range.last.into()));
    [(first >> 64) as u64, first as u64, (last >> 64) as u64, last as u64]
}

fn vrfs_of_ports(vrfs: &[Option<usize>]) -> impl Iterator<Item = u64> {
    let mut bytes = [NO_VRF; PORTS];
    for (byte, vrf) in bytes.iter_mut().zip(vrfs) {
        *byte = vrf.and_then(|vrf| u8::try_from(vrf).ok()).unwrap_or(NO_VRF);
    }
    bytes.as_chunks().0.to_owned().into_iter().map(u64::from_ne_bytes)
}
