//! Sealing: from packets to ESP packets.

use arrayvec::ArrayVec;
use packet::wire::IpProtocol;
use packet::wire::ipv4::Ipv4;
use packet::wire::ipv6::{self, Ipv6};
use packet::{MAX_BATCH, Packet, checksum};

use super::marks;
use crate::association::{
    Age, Association, DontFragment, Endpoints, IPV4_BYTES, IPV6_BYTES, Mode, TRAILER_BYTES, UDP_BYTES,
};
use crate::engine::{Backend, Engine, HEADER_BYTES, Job, Shape};
use crate::fault::Fault;

/// RFC 791 and RFC 8200: lengths are fields of 16 bits.
const MAX_PACKET_BYTES: usize = 65_535;
/// RFC 791: the flag "don't fragment".
const DONT_FRAGMENT: u8 = 0x40;

/// Makes ESP packets. Each worker has one.
pub struct Sealer {
    engine: Box<dyn Engine>,
}

impl Sealer {
    /// Makes one with an engine of a backend; `None` if that does not work here.
    pub fn new(backend: Backend) -> Option<Self> {
        Some(Self { engine: backend.engine()? })
    }

    /// Seals packets, at most [`MAX_BATCH`], each by the association of the same place. Packets begin with their IP header, and do so
    /// afterwards. A packet with a fault was counted by its association and must be dropped.
    ///
    /// # Panics
    ///
    /// There are more packets than a batch has, or the slices differ in length.
    #[inline(never)]
    pub fn seal(
        &mut self,
        packets: &mut [Packet],
        associations: &[&Association],
        faults: &mut [Option<Fault>],
    ) {
        assert!(packets.len() == associations.len() && packets.len() == faults.len());
        let mut jobs: ArrayVec<Job<'_>, MAX_BATCH> = ArrayVec::new();
        // Whether a UDP checksum has to follow.
        let mut has_checksums = false;
        let mut start = 0;
        let mut rest = &mut *packets;
        while !rest.is_empty() {
            // A run of packets of one association takes its numbers at once.
            let association = associations[start];
            let same = |other: &&&Association| std::ptr::eq(**other, association);
            let count = associations[start..].iter().take_while(same).count();
            let (run, others) = rest.split_at_mut(count);
            rest = others;
            has_checksums |= association.settings().udp.is_some();
            seal_run(association, run, &mut faults[start..start + count], &mut jobs);
            start += count;
        }
        self.engine.seal(&mut jobs);
        debug_assert!(jobs.iter().all(|job| job.is_right), "keys of another backend");
        let undone = jobs.iter().any(|job| !job.is_right);
        drop(jobs);
        if undone {
            // Nothing leaves in the clear: which of them is not known any more.
            faults.fill(Some(Fault::Expired));
        }
        if has_checksums {
            let each = packets.iter_mut().zip(associations).zip(faults.iter());
            let in_udp = |association: &Association| association.settings().udp.is_some();
            each.filter(|((_, association), fault)| fault.is_none() && in_udp(association))
                .for_each(|((packet, _), _)| fill_udp_checksum(packet));
        }
    }

    /// Seals a packet that was opened once more, under the sequence number that it came with, of which `low` is the lower half: for
    /// somebody else who has the association, and has to see that the packet was protected. The association counts nothing, and does
    /// not ask its limits.
    ///
    /// # Errors
    ///
    /// Why there is no ESP packet: no room in the frame, or an association in transport mode.
    pub fn seal_again(
        &mut self,
        packet: &mut Packet,
        association: &Association,
        low: u32,
    ) -> Result<(), Fault> {
        let settings = association.settings();
        if settings.mode != Mode::Tunnel {
            return Err(Fault::NoRoom);
        }
        let number = if settings.is_extended { association.window().extend(low) } else { u64::from(low) };
        let at = into_tunnel(association, packet, number).ok_or(Fault::NoRoom)?;
        let high = settings.is_extended.then_some((number >> 32) as u32);
        let mut jobs: ArrayVec<Job<'_>, MAX_BATCH> = ArrayVec::new();
        jobs.push(Job::new(association.keys(), &mut packet.data_mut()[at..], high));
        self.engine.seal(&mut jobs);
        let is_right = jobs.iter().all(|job| job.is_right);
        drop(jobs);
        if !is_right {
            return Err(Fault::Expired);
        }
        if settings.udp.is_some() {
            fill_udp_checksum(packet);
        }
        Ok(())
    }

    /// Returns the name of its engine.
    pub fn engine(&self) -> String {
        self.engine.name()
    }
}

/// Fills in the checksum of UDP over IPv6, which must have one (RFC 8200, section 8.1). Over IPv4 there is none (RFC 3948, section 2.1).
fn fill_udp_checksum(packet: &mut Packet) {
    let at = packet.transport_offset().map_or(ipv6::HEADER_LEN, |at| at.unsigned_abs());
    let data = packet.data_mut();
    if data[0] >> 4 != 6 {
        return;
    }
    let header = Ipv6::new_unchecked(&data[..ipv6::HEADER_LEN]);
    let length = data.len() - at;
    let pseudo = checksum::pseudo_v6(header.source(), header.destination(), IpProtocol::UDP.0, length as u32);
    let check = checksum::finish_udp(checksum::combine(pseudo, checksum::sum(&data[at..])));
    data[at + 6..at + 8].copy_from_slice(&check.to_be_bytes());
}

/// Writes headers and trailers of a run, and adds its jobs.
#[inline(always)]
fn seal_run<'a>(
    association: &'a Association,
    packets: &'a mut [Packet],
    faults: &mut [Option<Fault>],
    jobs: &mut ArrayVec<Job<'a>, MAX_BATCH>,
) {
    let count = packets.len() as u64;
    let bytes = packets.iter().map(|packet| packet.len() as u64).sum();
    let mut number = 0;
    let mut fault = None;
    if association.take(count, bytes) {
        number = association.numbers(count);
        if number.saturating_add(count - 1) > association.last_number() {
            association.grow(Age::Expired);
            fault = Some(Fault::SequenceOverflow);
        }
    } else {
        fault = Some(Fault::Expired);
    }
    if let Some(fault) = fault {
        faults.fill(Some(fault));
        association.faults_of(fault, count);
        return;
    }
    for (packet, result) in packets.iter_mut().zip(faults) {
        let at = match association.settings().mode {
            Mode::Tunnel => into_tunnel(association, packet, number).ok_or(Fault::NoRoom),
            Mode::Transport if is_fragment(packet) => Err(Fault::Fragment),
            Mode::Transport => into_transport(association, packet, number).ok_or(Fault::NoRoom),
        };
        *result = match at {
            Ok(at) => {
                let high = association.settings().is_extended.then_some((number >> 32) as u32);
                jobs.push(Job::new(association.keys(), &mut packet.data_mut()[at..], high));
                None
            }
            Err(fault) => Some(association.fault(fault)),
        };
        number += 1;
    }
}

/// Adds padding, trailer and room for the ICV to a payload of so many bytes.
#[inline(always)]
fn add_trailer(association: &Association, packet: &mut Packet, payload: usize, protocol: u8) -> Option<()> {
    let Shape { icv, mask, .. } = association.keys().shape();
    let padding = (payload + TRAILER_BYTES).wrapping_neg() & mask;
    let trailer = packet.append(padding + TRAILER_BYTES + icv)?;
    // RFC 4303, section 2.4: 1, 2, 3 and so on.
    for (place, byte) in trailer[..padding].iter_mut().enumerate() {
        *byte = place as u8 + 1;
    }
    trailer[padding] = padding as u8;
    trailer[padding + 1] = protocol;
    Some(())
}

/// Writes SPI, sequence number and the number for the IV.
#[inline(always)]
fn write_esp(association: &Association, esp: &mut [u8], number: u64) {
    esp[..4].copy_from_slice(&association.settings().spi.to_be_bytes());
    esp[4..8].copy_from_slice(&(number as u32).to_be_bytes());
    let iv = association.iv(number);
    if association.keys().shape().iv == 8 {
        esp[8..16].copy_from_slice(&iv[..8]);
    } else {
        esp[8..24].copy_from_slice(&iv);
    }
}

/// Puts a packet behind an outer header. Returns where ESP begins.
#[inline(always)]
fn into_tunnel(association: &Association, packet: &mut Packet, number: u64) -> Option<usize> {
    let settings = association.settings();
    let data = packet.data();
    let length = data.len();
    let is_ipv4 = *data.first()? >> 4 == 4;
    if length < if is_ipv4 { IPV4_BYTES } else { IPV6_BYTES } {
        return None;
    }
    let class = marks::outer(marks::traffic_class(data), settings.copies_dscp, settings.copies_ecn);
    let dont_fragment = match settings.dont_fragment {
        DontFragment::Copy => !is_ipv4 || data[6] & DONT_FRAGMENT != 0,
        DontFragment::Clear => false,
        DontFragment::Set => true,
    };
    let protocol = if is_ipv4 { IpProtocol::IPIP } else { IpProtocol::IPV6 };
    let outer_bytes = association.outer_bytes;
    let front = outer_bytes + HEADER_BYTES + association.keys().shape().iv;
    if length + association.overhead(length) > MAX_PACKET_BYTES || packet.headroom() < front {
        return None;
    }
    add_trailer(association, packet, length, protocol.0)?;
    let data = packet.prepend(front)?;
    let total = data.len();
    let ip_bytes = match settings.endpoints {
        Endpoints::V4 { .. } => {
            // The number is unique for a while among the packets of the association, for those who reassemble.
            write_ipv4(association, data, class, total as u16, number as u16, dont_fragment);
            IPV4_BYTES
        }
        Endpoints::V6 { .. } => {
            data[..IPV6_BYTES].copy_from_slice(&association.outer[..IPV6_BYTES]);
            data[0] |= class >> 4;
            data[1] |= class << 4;
            data[4..6].copy_from_slice(&((total - IPV6_BYTES) as u16).to_be_bytes());
            IPV6_BYTES
        }
    };
    if outer_bytes > ip_bytes {
        let ports = association.outer[ip_bytes..outer_bytes].first_chunk::<UDP_BYTES>();
        data[ip_bytes..outer_bytes].copy_from_slice(ports.map_or(&[], |ports| ports));
        data[ip_bytes + 4..ip_bytes + 6].copy_from_slice(&((total - ip_bytes) as u16).to_be_bytes());
    }
    write_esp(association, &mut data[outer_bytes..], number);
    packet.set_network_and_transport_header(0, ip_bytes);
    Some(outer_bytes)
}

/// Writes an outer IPv4 header. Its checksum is added up from the fields: reading back what was just written in other sizes would wait
/// for the stores.
#[inline(always)]
fn write_ipv4(
    association: &Association,
    data: &mut [u8],
    class: u8,
    total: u16,
    number: u16,
    dont_fragment: bool,
) {
    let Some(header) = data.first_chunk_mut::<IPV4_BYTES>() else { return };
    let flags = if dont_fragment { u16::from(DONT_FRAGMENT) << 8 } else { 0 };
    let fields = u32::from(class) + u32::from(total) + u32::from(number) + u32::from(flags);
    let sum = association.outer_sum + fields;
    let sum = (sum & 0xffff) + (sum >> 16);
    let check = !((sum & 0xffff) + (sum >> 16)) as u16;
    let word = |first: u16, second: u16| u32::from(first) << 16 | u32::from(second);
    let template = association.outer.first_chunk::<IPV4_BYTES>().expect("the template is longer");
    header[..4].copy_from_slice(&word(0x4500 | u16::from(class), total).to_be_bytes());
    header[4..8].copy_from_slice(&word(number, flags).to_be_bytes());
    header[8..10].copy_from_slice(&template[8..10]);
    header[10..12].copy_from_slice(&check.to_be_bytes());
    header[12..].copy_from_slice(&template[12..]);
}

/// Whether a packet is a part of another one.
fn is_fragment(packet: &Packet) -> bool {
    match packet.data() {
        data @ [first, ..] if first >> 4 == 4 => data
            .first_chunk()
            .is_some_and(|header: &[u8; IPV4_BYTES]| Ipv4::new_unchecked(header).is_fragment()),
        data if data.len() >= IPV6_BYTES => {
            Ipv6::new_unchecked(data).upper_layer().is_ok_and(|upper| upper.fragment.is_some())
        }
        _ => false,
    }
}

/// Puts ESP between a packet's headers and its payload. Returns where ESP begins.
fn into_transport(association: &Association, packet: &mut Packet, number: u64) -> Option<usize> {
    let Shape { iv, icv, mask } = association.keys().shape();
    let udp = association.settings().udp;
    let data = packet.data();
    let is_ipv4 = *data.first()? >> 4 == 4;
    let (header, protocol_at) =
        if is_ipv4 { (usize::from(data[0] & 15) * 4, 9) } else { ipv6_headers(data)? };
    let payload = data.len().checked_sub(header)?;
    let protocol = *data.get(protocol_at)?;
    let udp_bytes = udp.map_or(0, |_| UDP_BYTES);
    let front = udp_bytes + HEADER_BYTES + iv;
    let most = front + payload + TRAILER_BYTES + mask + icv;
    if header + most > MAX_PACKET_BYTES || packet.headroom() < front {
        return None;
    }
    add_trailer(association, packet, payload, protocol)?;
    let data = packet.prepend(front)?;
    let total = data.len();
    data.copy_within(front..front + header, 0);
    data[protocol_at] = if udp.is_some() { IpProtocol::UDP.0 } else { IpProtocol::ESP.0 };
    if is_ipv4 {
        data[2..4].copy_from_slice(&(total as u16).to_be_bytes());
        data[10..12].fill(0);
        let check = checksum::ipv4_header_compute(&data[..header]);
        data[10..12].copy_from_slice(&check.to_be_bytes());
    } else {
        data[4..6].copy_from_slice(&((total - IPV6_BYTES) as u16).to_be_bytes());
    }
    if udp.is_some() {
        data[header..header + UDP_BYTES].copy_from_slice(&association.outer[..UDP_BYTES]);
        data[header + 4..header + 6].copy_from_slice(&((total - header) as u16).to_be_bytes());
    }
    write_esp(association, &mut data[header + udp_bytes..], number);
    packet.set_network_and_transport_header(0, header);
    Some(header + udp_bytes)
}

/// Where ESP goes in an IPv6 packet: behind the headers that routers on the way read (RFC 4303, section 3.1.1). Returns the bytes of
/// those headers, and where the last one names the next.
fn ipv6_headers(data: &[u8]) -> Option<(usize, usize)> {
    let (mut bytes, mut names_next) = (IPV6_BYTES, 6);
    // Hop-by-hop options and routing headers.
    for _ in 0..3 {
        match *data.get(names_next)? {
            0 | 43 => {
                names_next = bytes;
                bytes += (usize::from(*data.get(bytes + 1)?) + 1) * 8;
            }
            _ => break,
        }
    }
    Some((bytes, names_next))
}
