//! What workers see of the database: made anew with each change, never changed.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use ipsec::Association;
use packet::random::mixed;
use packet::{Annotations, Packet};

use super::policy::PolicyAction;
use crate::acl::{List, Rule};

/// An association in the tables: its place, and how often that was given to another one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AssociationId(u32);

impl AssociationId {
    const PLACE_BITS: u32 = 16;
    /// Most associations.
    pub(super) const PLACES: usize = 1 << Self::PLACE_BITS;

    /// Generations begin at 1, so that no association is 0.
    pub(super) fn new(place: usize, generation: u16) -> Self {
        Self(u32::from(generation) << Self::PLACE_BITS | place as u32)
    }

    #[inline(always)]
    pub(super) fn place(self) -> usize {
        self.0 as usize & (Self::PLACES - 1)
    }

    /// Returns that of a packet; `None` if it was neither opened nor chosen to be sealed.
    #[inline(always)]
    pub(super) fn of(packet: &Packet) -> Option<Self> {
        let id = packet.annotations().u32_at(Annotations::ASSOCIATION).unwrap_or(0);
        (id != 0).then_some(Self(id))
    }

    /// Writes it, or that there is none, to a packet.
    #[inline(always)]
    pub(super) fn mark(id: Option<Self>, packet: &mut Packet) {
        packet.annotations_mut().set_u32_at(Annotations::ASSOCIATION, id.map_or(0, |id| id.0));
    }
}

/// Which templates an association fits is looked up by this number; associations alike have the same.
pub(super) type PeerId = u32;

/// An association in use.
pub(super) struct Place {
    pub(super) id: AssociationId,
    pub(super) peer: PeerId,
    pub(super) association: Arc<Association>,
}

/// What happens to packets of a policy.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Pass,
    Discard,
    Linux,
    /// Outbound: by this association, which may not be there yet.
    Seal(Option<AssociationId>),
    /// Inbound: opened by an association of one of these peers.
    Opened {
        peers: Box<[PeerId]>,
        is_optional: bool,
    },
}

/// The policies of one direction.
pub(super) struct Policies {
    /// Which policy a packet matches; shared with the tables before, if policies did not change.
    pub(super) list: Arc<List>,
    /// By the number of the policy, and behind them what happens to packets that none matches.
    pub(super) steps: Box<[Step]>,
}

impl Policies {
    pub(super) fn is_empty(&self) -> bool {
        self.steps.len() == 1 && matches!(self.steps[0], Step::Pass)
    }
}

/// Where an inbound packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inbound {
    Ours(AssociationId),
    Linux,
}

/// Hashes the SPI alone: the receiver chose it.
#[derive(Default)]
pub(super) struct SpiHasher(u64);

impl Hasher for SpiHasher {
    fn write(&mut self, bytes: &[u8]) {
        // Addresses behind the SPI; two associations rarely have one SPI.
        let _ = bytes;
    }

    fn write_u32(&mut self, spi: u32) {
        self.0 ^= mixed(u64::from(spi));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

pub(super) type BySpi = HashMap<(u32, IpAddr), Inbound, BuildHasherDefault<SpiHasher>>;

/// Addresses of the host, of which most packets' destination is none at a glance.
#[derive(Clone, Debug, Default)]
pub(super) struct Own {
    addresses: Box<[IpAddr]>,
    /// A bit for the lowest six bits of each.
    bits: u64,
}

impl Own {
    pub(super) fn new(mut addresses: Vec<IpAddr>) -> Self {
        addresses.sort_unstable();
        addresses.dedup();
        let bits = addresses.iter().fold(0, |bits, address| bits | Self::bit(*address));
        Self { addresses: addresses.into(), bits }
    }

    #[inline(always)]
    fn bit(address: IpAddr) -> u64 {
        let low = match address {
            IpAddr::V4(address) => address.to_bits() as u8,
            IpAddr::V6(address) => address.to_bits() as u8,
        };
        1 << (low & 63)
    }

    #[inline(always)]
    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.bits & Self::bit(address) != 0 && self.addresses.binary_search(&address).is_ok()
    }
}

/// All of it.
pub(super) struct Tables {
    pub(super) out: Policies,
    pub(super) forward: Policies,
    pub(super) inbound: BySpi,
    pub(super) places: Box<[Option<Place>]>,
    pub(super) own: Arc<Own>,
}

impl Tables {
    /// Whether all packets pass.
    #[inline(always)]
    pub(super) fn is_idle(&self) -> bool {
        self.inbound.is_empty() && self.out.is_empty() && self.forward.is_empty()
    }

    /// Whether ESP to this host may come.
    #[inline(always)]
    pub(super) fn has_inbound(&self) -> bool {
        !self.inbound.is_empty()
    }

    /// Returns whose the packets of an SPI to an address are.
    #[inline(always)]
    pub(super) fn inbound(&self, spi: u32, destination: IpAddr) -> Option<Inbound> {
        self.inbound.get(&(spi, destination)).copied()
    }

    /// Returns the association, if it is still there.
    #[inline(always)]
    pub(super) fn place(&self, id: AssociationId) -> Option<&Place> {
        self.places.get(id.place())?.as_ref().filter(|place| place.id == id)
    }
}

/// The steps of a policy that needs no association.
pub(super) fn plain_step(action: &PolicyAction) -> Option<Step> {
    match action {
        PolicyAction::Bypass => Some(Step::Pass),
        PolicyAction::Discard => Some(Step::Discard),
        PolicyAction::Linux(_) => Some(Step::Linux),
        PolicyAction::Protect(_) => None,
    }
}

/// A list that matches nothing.
pub(super) fn no_list(copies: usize) -> Arc<List> {
    list(&[], copies)
}

/// A list of these rules.
pub(super) fn list(rules: &[Rule], copies: usize) -> Arc<List> {
    Arc::new(List::new(rules, crate::acl::Action::Permit, copies))
}
