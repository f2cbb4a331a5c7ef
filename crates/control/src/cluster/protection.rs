//! What IPsec protects, for nodes that have no keys.
//!
//! The leader's kernel has the policies and the security associations. What the other nodes have to know of them is in the log: the
//! policies, and whether ESP to the cluster may come. No key is among it, and nothing that changes when keys do.
//!
//! A list goes into the log as a whole. A list can be too long, of another version, or damaged. A node that cannot read it goes on, and
//! leaves every packet to the leader, which has the policies themselves.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::bounded::at_most;

/// Most policies of a list, of both directions together. A leader that has more reports it, and gets every packet.
pub const MOST_POLICIES: usize = 4_096;

/// Longest list, in bytes: less than a piece of the log.
const MOST_BYTES: usize = 400 << 10;

/// Longest reason why a policy is left to Linux.
const LONGEST_REASON: usize = 80;

/// Says which form of list it is.
const FORMAT: u8 = 1;

/// What is protected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// The policies, in the order in which they are asked.
    #[serde(deserialize_with = "at_most::<_, _, MOST_POLICIES>")]
    pub policies: Vec<ProtectionPolicy>,
    /// Whether packets that no policy of a direction matches are dropped: outbound, forwarded.
    pub discards: [bool; 2],
    /// Whether the leader has associations, so that ESP to the cluster's addresses may come.
    pub takes_esp: bool,
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectionPolicy {
    /// Whether it says how forwarded packets must have come; else it says how packets are sent.
    pub is_forward: bool,
    /// Source addresses.
    pub source: IpNet,
    /// Destination addresses, of the same family.
    pub destination: IpNet,
    /// The protocol; `None` for all.
    pub protocol: Option<u8>,
    /// First and last source port; `None` for all.
    pub source_ports: Option<(u16, u16)>,
    /// First and last destination port; `None` for all.
    pub destination_ports: Option<(u16, u16)>,
    /// What it says.
    pub action: ProtectionAction,
}

/// What a policy says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProtectionAction {
    /// Packets pass unprotected.
    Bypass,
    /// They are dropped.
    Discard,
    /// They are protected in a tunnel.
    Protect {
        /// Its outer source.
        source: IpAddr,
        /// Its outer destination.
        destination: IpAddr,
        /// The number that ties associations to policies; 0 for all.
        request: u32,
        /// Whether a received packet may also come unprotected.
        is_optional: bool,
    },
    /// Linux judges them. The text says why.
    Linux(String),
}

/// A [`Protection`] as it lies in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told(#[serde(deserialize_with = "at_most::<_, _, MOST_BYTES>")] Vec<u8>);

/// Why a list cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtectionError {
    /// The leader said that it has too many.
    #[error("the leader has more than {MOST_POLICIES} policies, or does not know its own")]
    TooMany,
    /// It is of another version.
    #[error("the list of policies has format {0}; expected {FORMAT}")]
    Format(u8),
    /// It is something else.
    #[error("the list of policies is damaged")]
    Damaged,
}

impl Told {
    /// What says that every packet has to be left to the leader.
    pub const ALL_TO_LEADER: Told = Told(Vec::new());

    /// Writes a list. One that is too long becomes [`Told::ALL_TO_LEADER`].
    pub fn of(protection: &Protection) -> Told {
        if protection.policies.len() > MOST_POLICIES {
            return Self::ALL_TO_LEADER;
        }
        let bytes = postcard::to_extend(protection, vec![FORMAT]).unwrap_or_default();
        if bytes.len() > MOST_BYTES { Self::ALL_TO_LEADER } else { Told(bytes) }
    }

    /// Returns whether it says that there is nothing to protect.
    pub fn is_nothing(&self) -> bool {
        *self == Told::of(&Protection::default())
    }

    /// Returns its length in bytes.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Returns a number that differs where lists differ.
    pub fn digest(&self) -> u64 {
        self.0.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    /// Reads the list.
    ///
    /// # Errors
    ///
    /// [`ProtectionError`]: then every packet has to be left to the leader.
    pub fn read(&self) -> Result<Protection, ProtectionError> {
        let rest = match self.0.split_first() {
            Some((&FORMAT, rest)) => rest,
            Some((&format, _)) => return Err(ProtectionError::Format(format)),
            None => return Err(ProtectionError::TooMany),
        };
        let (mut protection, rest): (Protection, _) =
            postcard::take_from_bytes(rest).map_err(|_| ProtectionError::Damaged)?;
        if !rest.is_empty() || !protection.policies.iter().all(ProtectionPolicy::is_sound) {
            return Err(ProtectionError::Damaged);
        }
        for policy in &mut protection.policies {
            if let ProtectionAction::Linux(reason) = &mut policy.action {
                // Whoever writes to the store has written it; it is shown on terminals.
                *reason = reason.chars().filter(|char| !char.is_control()).take(LONGEST_REASON).collect();
            }
        }
        Ok(protection)
    }
}

impl ProtectionPolicy {
    /// Whether its addresses and ports are such that some packet can match them.
    fn is_sound(&self) -> bool {
        let is_range = |ports: Option<(u16, u16)>| ports.is_none_or(|(first, last)| first <= last);
        let is_of_one_family = match self.action {
            ProtectionAction::Protect { source, destination, .. } => {
                source.is_ipv4() == destination.is_ipv4()
            }
            _ => true,
        };
        self.source.addr().is_ipv4() == self.destination.addr().is_ipv4()
            && is_range(self.source_ports)
            && is_range(self.destination_ports)
            && is_of_one_family
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(action: ProtectionAction) -> ProtectionPolicy {
        ProtectionPolicy {
            is_forward: false,
            source: "10.0.1.0/24".parse().unwrap(),
            destination: "10.0.2.0/24".parse().unwrap(),
            protocol: Some(17),
            source_ports: Some((1, 9)),
            destination_ports: None,
            action,
        }
    }

    fn actions() -> [ProtectionAction; 4] {
        let [source, destination] = ["192.0.2.1", "198.51.100.1"].map(|text| text.parse().unwrap());
        [
            ProtectionAction::Bypass,
            ProtectionAction::Discard,
            ProtectionAction::Protect { source, destination, request: 7, is_optional: true },
            ProtectionAction::Linux("ah".to_owned()),
        ]
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let policies = actions().map(policy).to_vec();
        let protection = Protection { policies, discards: [false, true], takes_esp: true };
        let told = Told::of(&protection);
        assert_eq!(told.read().unwrap(), protection);
        assert!(!told.is_nothing() && Told::of(&Protection::default()).is_nothing());
        assert_ne!(told.digest(), Told::of(&Protection::default()).digest());
    }

    #[test]
    fn what_is_too_long_is_left_to_the_leader() {
        let of = |count| {
            let policies = vec![policy(ProtectionAction::Bypass); count];
            Told::of(&Protection { policies, ..Protection::default() })
        };
        assert_eq!(of(MOST_POLICIES).read().unwrap().policies.len(), MOST_POLICIES);
        assert_eq!(of(MOST_POLICIES + 1).read(), Err(ProtectionError::TooMany));
        let long = policy(ProtectionAction::Linux("x".repeat(MOST_BYTES)));
        let long = Told::of(&Protection { policies: vec![long], ..Protection::default() });
        assert_eq!(long, Told::ALL_TO_LEADER);
        // One policy more than a leader writes.
        let policies = vec![policy(ProtectionAction::Bypass); MOST_POLICIES + 1];
        let more = Protection { policies, ..Protection::default() };
        let bytes = postcard::to_extend(&more, vec![FORMAT]).unwrap();
        assert_eq!(Told(bytes).read(), Err(ProtectionError::Damaged));
        let bytes = postcard::to_allocvec(&vec![0u8; MOST_BYTES + 1]).unwrap();
        assert!(postcard::from_bytes::<Told>(&bytes).is_err());
    }

    #[test]
    fn what_nobody_knows_is_refused() {
        let policies = actions().map(policy).to_vec();
        let right = Told::of(&Protection { policies, ..Protection::default() });
        let Told(bytes) = right.clone();
        for length in 1..bytes.len() {
            assert_eq!(Told(bytes[..length].to_vec()).read(), Err(ProtectionError::Damaged), "{length}");
        }
        assert_eq!(Told([&bytes[..], &[0]].concat()).read(), Err(ProtectionError::Damaged));
        assert_eq!(Told([&[9], &bytes[1..]].concat()).read(), Err(ProtectionError::Format(9)));
        // Two families, ports that go down, an outer address of each family, an action of a later version.
        let six = || "2001:db8::/32".parse().unwrap();
        let bypass = || policy(ProtectionAction::Bypass);
        let [source, destination] = ["192.0.2.1", "2001:db8::1"].map(|text| text.parse().unwrap());
        let protect = ProtectionAction::Protect { source, destination, request: 0, is_optional: false };
        for wrong in [
            ProtectionPolicy { source: six(), ..bypass() },
            ProtectionPolicy { destination_ports: Some((2, 1)), ..bypass() },
            policy(protect),
        ] {
            let told = Told::of(&Protection { policies: vec![wrong], ..Protection::default() });
            assert_eq!(told.read(), Err(ProtectionError::Damaged));
        }
        let one = Protection { policies: vec![bypass()], ..Protection::default() };
        let Told(mut bytes) = Told::of(&one);
        // The action is the last byte of the policy, before two flags of discards and one of ESP.
        let action = bytes.len() - 4;
        assert_eq!(bytes[action], 0);
        bytes[action] = 4;
        assert_eq!(Told(bytes).read(), Err(ProtectionError::Damaged));
    }

    #[test]
    fn reasons_do_not_reach_terminals_as_commands() {
        let reason = format!("\u{1b}[2J{}", "x".repeat(200));
        let one = policy(ProtectionAction::Linux(reason));
        let told = Told::of(&Protection { policies: vec![one], ..Protection::default() });
        let read = told.read().unwrap();
        assert_eq!(read.policies[0].action, ProtectionAction::Linux(format!("[2J{}", "x".repeat(77))));
    }
}
