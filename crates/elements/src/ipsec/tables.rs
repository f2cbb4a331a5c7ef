//! What workers see of the database: made anew with each change, never changed.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use ipsec::Association;
use ipsec::esp::{find, find_plain, may_be_esp};
use packet::random::mixed;
use packet::wire::ipv4::{self, Ipv4};
use packet::wire::ipv6::{self, Ipv6};
use packet::{Annotations, MAX_BATCH, Packet};

use super::policy::{PolicyAction, Selector};
use crate::acl::{Answer, List, Rooms, Rule};

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

/// In the place of the number that an ESP packet came with, of a packet that has no association.
const CHECKED: u32 = u32::MAX;

/// Marks a packet for Linux as one that was checked here: Linux need not ask about it.
#[inline(always)]
pub(crate) fn set_checked(packet: &mut Packet) {
    packet.annotations_mut().set_u32_at(Annotations::ESP_SEQUENCE, CHECKED);
}

/// Whether policies have left this packet to Linux, or EspReseal has made it.
pub(crate) fn is_checked(packet: &Packet) -> bool {
    AssociationId::of(packet).is_none()
        && packet.annotations().u32_at(Annotations::ESP_SEQUENCE) == Some(CHECKED)
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
    /// The same for few policies that ask for addresses alone.
    pub(super) few: Option<Few>,
    /// Whether a policy asks for ports. Then nobody knows which policy a fragment other than the first belongs to (RFC 4301, section 7).
    pub(super) asks_ports: bool,
    /// By the number of the policy, and behind them what happens to packets that none matches.
    pub(super) steps: Box<[Step]>,
}

impl Policies {
    pub(super) fn is_empty(&self) -> bool {
        self.steps.len() == 1 && matches!(self.steps[0], Step::Pass)
    }
}

/// A few policies that ask for addresses alone: comparing them one after the other is faster than the compiled list.
pub(super) struct Few {
    ipv4: Box<[Pair<u32>]>,
    ipv6: Box<[Pair<u128>]>,
    /// Number of the policies of both families: that of what no policy matches.
    count: usize,
}

/// Source and destination prefix of a policy, and its number.
#[derive(Clone, Copy)]
struct Pair<A> {
    source: A,
    source_mask: A,
    destination: A,
    destination_mask: A,
    number: u16,
}

impl<A: Copy + Eq + std::ops::BitAnd<Output = A>> Pair<A> {
    #[inline(always)]
    fn matches(&self, source: A, destination: A) -> bool {
        (source & self.source_mask == self.source) & (destination & self.destination_mask == self.destination)
    }
}

impl Few {
    /// Most policies: as many as take about as long as the list.
    const MOST: usize = 8;

    /// Takes policies; `None` if they are too many or ask for more than addresses.
    pub(super) fn new<'a>(selectors: impl ExactSizeIterator<Item = &'a Selector>) -> Option<Self> {
        let count = selectors.len();
        if count > Self::MOST {
            return None;
        }
        let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
        for (number, selector) in (0..).zip(selectors) {
            let Selector { source, destination, protocol: None, source_ports: None, destination_ports: None } =
                *selector
            else {
                return None;
            };
            match (source.trunc(), destination.trunc()) {
                (IpNet::V4(source), IpNet::V4(destination)) => ipv4.push(Pair {
                    source: source.addr().to_bits(),
                    source_mask: source.netmask().to_bits(),
                    destination: destination.addr().to_bits(),
                    destination_mask: destination.netmask().to_bits(),
                    number,
                }),
                (IpNet::V6(source), IpNet::V6(destination)) => ipv6.push(Pair {
                    source: source.addr().to_bits(),
                    source_mask: source.netmask().to_bits(),
                    destination: destination.addr().to_bits(),
                    destination_mask: destination.netmask().to_bits(),
                    number,
                }),
                _ => return None,
            }
        }
        Some(Self { ipv4: ipv4.into(), ipv6: ipv6.into(), count })
    }

    /// Writes the numbers of the policies that packets match: policy by policy, the first one last.
    #[inline(always)]
    fn of_ipv4(&self, fields: &Fields, numbers: &mut [u16]) {
        numbers.fill(self.count as u16);
        for &pair in self.ipv4.iter().rev() {
            let each = fields.sources.iter().zip(&fields.destinations);
            for (number, (source, destination)) in numbers.iter_mut().zip(each) {
                // Without a branch, so that several packets are compared at once.
                let is_match = 0_u16.wrapping_sub(pair.matches(*source, *destination).into());
                *number = pair.number & is_match | *number & !is_match;
            }
        }
    }

    /// Returns the number of the policy that a packet matches; `None` if it has no header.
    #[inline(always)]
    fn of(&self, packet: &Packet) -> Option<usize> {
        let network = packet.network()?;
        let found = if network.first()? >> 4 == 4 {
            let header = Ipv4::new_unchecked(network.first_chunk::<{ ipv4::MIN_HEADER_LEN }>()?);
            let (source, destination) = (header.source().to_bits(), header.destination().to_bits());
            self.ipv4.iter().find(|pair| pair.matches(source, destination)).map(|pair| pair.number)
        } else {
            let header = Ipv6::new_unchecked(network.first_chunk::<{ ipv6::HEADER_LEN }>()?);
            let (source, destination) = (header.source().to_bits(), header.destination().to_bits());
            self.ipv6.iter().find(|pair| pair.matches(source, destination)).map(|pair| pair.number)
        };
        Some(found.map_or(self.count, usize::from))
    }
}

/// The number of the policy that each packet of a batch matches, or [`FLAWED`].
pub(super) type Numbers = [u16; MAX_BATCH];

/// A packet that policies cannot judge.
pub(super) const FLAWED: u16 = u16::MAX;

/// Whether a packet is a fragment other than the first.
fn is_later_fragment(packet: &Packet) -> bool {
    fragment_offset(packet).is_some_and(|offset| offset != 0)
}

/// Whether a packet is a fragment, or has the header of one.
pub(super) fn is_fragment(packet: &Packet) -> bool {
    fragment_offset(packet).is_some()
}

/// Where a fragment belongs in its packet; `None` if the packet is whole.
fn fragment_offset(packet: &Packet) -> Option<u16> {
    let network = packet.network()?;
    match network.first()? >> 4 {
        4 => {
            let header = Ipv4::new_unchecked(network.first_chunk::<{ ipv4::MIN_HEADER_LEN }>()?);
            header.is_fragment().then(|| header.fragment_offset())
        }
        6 if network.len() >= ipv6::HEADER_LEN => {
            let upper = Ipv6::new_unchecked(network).upper_layer().ok()?;
            upper.fragment.map(|fragment| fragment.offset)
        }
        _ => None,
    }
}

/// What is asked of the packets of a batch, read once, side by side.
pub(super) struct Fields {
    sources: [u32; MAX_BATCH],
    destinations: [u32; MAX_BATCH],
    /// TTLs or hop limits.
    ttls: [u8; MAX_BATCH],
    lengths: [u32; MAX_BATCH],
    ids: [u32; MAX_BATCH],
    /// Whether there are addresses: all packets are IPv4.
    is_ipv4: bool,
    /// Whether all were opened by one association, or none was.
    has_one_id: bool,
}

impl Fields {
    pub(super) const NONE: Self = Self {
        sources: [0; MAX_BATCH],
        destinations: [0; MAX_BATCH],
        ttls: [0; MAX_BATCH],
        lengths: [0; MAX_BATCH],
        ids: [0; MAX_BATCH],
        is_ipv4: false,
        has_one_id: false,
    };

    /// Reads a batch. Calls `each` with a packet's place, whether it was opened, and its bytes from the IP header on.
    #[inline(always)]
    pub(super) fn read(&mut self, packets: &[Packet], mut each: impl FnMut(usize, bool, &[u8])) {
        let Self { sources, destinations, ttls, lengths, ids, .. } = self;
        let (mut is_ipv4, mut differ, mut first) = (true, 0, None);
        for (place, packet) in packets.iter().enumerate().take(MAX_BATCH) {
            let id = AssociationId::of(packet).map_or(0, |id| id.0);
            differ |= id ^ *first.get_or_insert(id);
            let network = packet.network().unwrap_or_default();
            (ids[place], lengths[place]) = (id, packet.len() as u32);
            match network.first_chunk::<{ ipv4::MIN_HEADER_LEN }>() {
                Some(header) if header[0] >> 4 == 4 => {
                    let header = Ipv4::new_unchecked(header);
                    sources[place] = header.source().to_bits();
                    destinations[place] = header.destination().to_bits();
                    ttls[place] = header.ttl();
                }
                header => {
                    is_ipv4 = false;
                    ttls[place] = header.map_or(0, |header| header[7]);
                }
            }
            each(place, id != 0, network);
        }
        (self.is_ipv4, self.has_one_id) = (is_ipv4, differ == 0);
    }

    /// Returns a packet's association.
    #[inline(always)]
    pub(super) fn id(&self, place: usize) -> Option<AssociationId> {
        let id = self.ids[place];
        (id != 0).then_some(AssociationId(id))
    }

    /// Whether all packets were opened by the same association, or none was.
    #[inline(always)]
    pub(super) fn has_one_id(&self) -> bool {
        self.has_one_id
    }

    /// Whether a packet is not longer than this, and its TTL or hop limit lets it go on.
    #[inline(always)]
    pub(super) fn may_be_sealed(&self, place: usize, longest: usize) -> bool {
        (self.lengths[place] as usize <= longest) & (self.ttls[place] > 1)
    }
}

impl Policies {
    /// Writes the numbers of the policies that packets match, and counts them; `copy` is the copy of the element that asks. Returns the
    /// number if all have the same.
    #[inline(always)]
    pub(super) fn judge(
        &self,
        copy: usize,
        packets: &[Packet],
        fields: &Fields,
        rooms: &mut Rooms,
        numbers: &mut Numbers,
    ) -> Option<u16> {
        let numbers = &mut numbers[..packets.len()];
        match &self.few {
            Some(few) if fields.is_ipv4 => {
                few.of_ipv4(fields, numbers);
                let lengths = &fields.lengths[..numbers.len()];
                let first = *numbers.first()?;
                if numbers.iter().all(|number| *number == first) {
                    let bytes = lengths.iter().map(|length| u64::from(*length)).sum();
                    self.list.count(copy, usize::from(first), numbers.len() as u64, bytes);
                    return Some(first);
                }
                for (number, length) in numbers.iter().zip(lengths) {
                    self.list.count(copy, usize::from(*number), 1, u64::from(*length));
                }
            }
            _ => self.judge_any(copy, packets, rooms, numbers),
        }
        None
    }

    #[inline(never)]
    fn judge_any(&self, copy: usize, packets: &[Packet], rooms: &mut Rooms, numbers: &mut [u16]) {
        if let Some(few) = &self.few {
            for (packet, number) in packets.iter().zip(numbers) {
                let found = few.of(packet);
                *number = found.map_or(FLAWED, |found| found as u16);
                if let Some(found) = found {
                    self.list.count(copy, found, 1, packet.len() as u64);
                }
            }
            return;
        }
        let mut answers = [Answer::FLAWED; MAX_BATCH];
        let answers = &mut answers[..packets.len()];
        self.list.judge(copy, packets, rooms, answers);
        for ((number, answer), packet) in numbers.iter_mut().zip(answers).zip(packets) {
            let is_known = *answer != Answer::FLAWED && !(self.asks_ports && is_later_fragment(packet));
            *number = if is_known { answer.rule() as u16 } else { FLAWED };
        }
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
    pub(super) fn is_empty(&self) -> bool {
        self.bits == 0
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
    /// Whether ESP of unknown associations is for this host, too.
    pub(super) takes_esp: bool,
    pub(super) places: Box<[Option<Place>]>,
    pub(super) own: Arc<Own>,
}

impl Tables {
    /// Whether all packets pass.
    #[inline(always)]
    pub(super) fn is_idle(&self) -> bool {
        !self.has_inbound() && self.out.is_empty() && self.forward.is_empty()
    }

    /// Whether ESP to this host may come.
    #[inline(always)]
    pub(super) fn has_inbound(&self) -> bool {
        self.takes_esp || !self.inbound.is_empty()
    }

    /// Returns whose the packets of an SPI to an address are.
    #[inline(always)]
    pub(super) fn inbound(&self, spi: u32, destination: IpAddr) -> Option<Inbound> {
        self.inbound.get(&(spi, destination)).copied()
    }

    /// Returns a finder of ESP to this host.
    #[inline(always)]
    pub(super) fn esp_to_host(&self) -> EspFinder<'_> {
        EspFinder { tables: self, last: None }
    }

    /// Returns the association, if it is still there.
    #[inline(always)]
    pub(super) fn place(&self, id: AssociationId) -> Option<&Place> {
        self.places.get(id.place())?.as_ref().filter(|place| place.id == id)
    }
}

/// Finds ESP to this host. Most packets are of the association of the one before, which is looked up once.
pub(super) struct EspFinder<'a> {
    tables: &'a Tables,
    /// The SPI and destination of the last plain one that was found.
    last: Option<(u32, u32)>,
}

impl EspFinder<'_> {
    /// Whether a packet that begins with its IP header, and was not opened, is ESP to this host.
    #[inline(always)]
    pub(super) fn is_for_us(&mut self, network: &[u8]) -> bool {
        let plain = find_plain(network);
        if plain.is_some() && plain == self.last {
            return true;
        }
        if !may_be_esp(network) || !self.look_up(network) {
            return false;
        }
        self.last = plain;
        true
    }

    #[inline(never)]
    fn look_up(&self, network: &[u8]) -> bool {
        let Some(esp) = find(network) else { return false };
        self.tables.inbound(esp.spi, esp.destination).is_some() || self.tables.own.has(esp.destination)
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
