//! Opening: from ESP packets to what was in them.

use arrayvec::ArrayVec;
use packet::wire::IpProtocol;
use packet::{MAX_BATCH, Packet, checksum};

use super::marks;
use crate::association::{Age, Association, IPV4_BYTES, IPV6_BYTES, Mode};
use crate::engine::{Backend, Engine, HEADER_BYTES, Job, Shape};
use crate::fault::Fault;
use crate::window::Window;

/// RFC 4303, section 2.6: nothing is inside.
const NO_NEXT_HEADER: u8 = 59;

/// Opens ESP packets. Each worker has one.
pub struct Opener {
    engine: Box<dyn Engine>,
}

/// What became of a packet.
pub type Opened = Result<(), Fault>;

impl Opener {
    /// Makes one with an engine of a backend; `None` if that does not work here.
    pub fn new(backend: Backend) -> Option<Self> {
        Some(Self { engine: backend.engine()? })
    }

    /// Opens packets, at most [`MAX_BATCH`], each by the association of the same place. A packet begins with its IP header; `offsets`
    /// say where ESP begins behind that ([`find`](super::find)). Afterwards a packet begins with the header of what was inside, which
    /// nobody has checked but for its version and shortest length. A packet with a fault was counted by its association and must be
    /// dropped.
    ///
    /// # Panics
    ///
    /// There are more packets than a batch has, or the slices differ in length.
    #[inline(never)]
    pub fn open(
        &mut self,
        packets: &mut [Packet],
        associations: &[&Association],
        offsets: &[u16],
        results: &mut [Opened],
    ) {
        assert!(
            packets.len() == associations.len()
                && packets.len() == offsets.len()
                && packets.len() == results.len()
        );
        let mut jobs: ArrayVec<Job<'_>, MAX_BATCH> = ArrayVec::new();
        let mut numbers: ArrayVec<(usize, u64), MAX_BATCH> = ArrayVec::new();
        for (place, packet) in packets.iter_mut().enumerate() {
            let association = associations[place];
            match number_of(association, packet, offsets[place]) {
                Ok(number) => {
                    let high = association.settings().is_extended.then_some((number >> 32) as u32);
                    numbers.push((place, number));
                    jobs.push(Job::new(
                        association.keys(),
                        &mut packet.data_mut()[usize::from(offsets[place])..],
                        high,
                    ));
                }
                Err(fault) => results[place] = Err(association.fault(fault)),
            }
        }
        self.engine.open(&mut jobs);
        let right: ArrayVec<bool, MAX_BATCH> = jobs.iter().map(|job| job.is_right).collect();
        drop(jobs);
        let mut run = Run::default();
        // Packets up to this one have been accepted.
        let mut in_row = 0;
        for (index, (&(place, number), &is_right)) in numbers.iter().zip(&right).enumerate() {
            let (association, packet) = (associations[place], &mut packets[place]);
            if index >= in_row && is_right {
                in_row = index + accept_row(association, associations, &numbers[index..], &right[index..]);
            }
            let is_accepted = index < in_row;
            if !run.association.is_some_and(|of_run| std::ptr::eq(of_run, association)) {
                run.end();
                run = Run { association: Some(association), ..Run::default() };
            }
            let opened =
                run.finish(association, packet, usize::from(offsets[place]), number, is_right, is_accepted);
            results[place] = opened.map_err(|fault| association.fault(fault));
        }
        run.end();
    }

    /// Opens a packet that somebody else has sealed with an association that sends, the kernel perhaps. Nothing is counted, and no
    /// window is asked. Of an extended number the upper half is that which is nearest to what the association has sent.
    ///
    /// # Errors
    ///
    /// What is wrong with the packet, which must be dropped.
    pub fn open_sent(&mut self, packet: &mut Packet, association: &Association, offset: u16) -> Opened {
        let Shape { iv, icv, mask } = association.keys().shape();
        let at = usize::from(offset);
        let esp = packet.data().get(at..).ok_or(Fault::Truncated)?;
        let payload = esp.len().checked_sub(HEADER_BYTES + iv + icv).ok_or(Fault::Truncated)?;
        if payload == 0 || payload & mask != 0 {
            return Err(Fault::Truncated);
        }
        let low = u32::from_be_bytes([esp[4], esp[5], esp[6], esp[7]]);
        let sent = association.sequence();
        let number = sent.wrapping_add_signed(i64::from(low.wrapping_sub(sent as u32) as i32));
        let high = association.settings().is_extended.then_some((number >> 32) as u32);
        let mut jobs: ArrayVec<Job<'_>, MAX_BATCH> = ArrayVec::new();
        jobs.push(Job::new(association.keys(), &mut packet.data_mut()[at..], high));
        self.engine.open(&mut jobs);
        let is_right = jobs.iter().all(|job| job.is_right);
        drop(jobs);
        Run::default().finish(association, packet, at, number, is_right, true)
    }

    /// Returns the name of its engine.
    pub fn engine(&self) -> String {
        self.engine.name()
    }
}

/// Checks what can be checked before the ICV, and returns the packet's sequence number.
#[inline(always)]
fn number_of(association: &Association, packet: &Packet, offset: u16) -> Result<u64, Fault> {
    if association.age() == Age::Expired {
        return Err(Fault::Expired);
    }
    let Shape { iv, icv, mask } = association.keys().shape();
    let esp = packet.data().get(usize::from(offset)..).ok_or(Fault::Truncated)?;
    let around = HEADER_BYTES + iv + icv;
    let payload = esp.len().checked_sub(around).ok_or(Fault::Truncated)?;
    if payload == 0 || payload & mask != 0 {
        return Err(Fault::Truncated);
    }
    let low = u32::from_be_bytes([esp[4], esp[5], esp[6], esp[7]]);
    let number = match association.settings().is_extended {
        true => association.window().extend(low),
        false => u64::from(low),
    };
    association.window().check(number)?;
    Ok(number)
}

/// Accepts the numbers of the first packets at once, as far as they follow each other. Returns how many were accepted.
#[inline(always)]
fn accept_row(
    association: &Association,
    associations: &[&Association],
    numbers: &[(usize, u64)],
    right: &[bool],
) -> usize {
    let first = numbers[0].1;
    let follows = |(index, ((place, number), is_right)): &(usize, (&(usize, u64), &bool))| {
        **is_right && *number == first + *index as u64 && std::ptr::eq(associations[*place], association)
    };
    let most = Window::row(first) as usize;
    let count = numbers.iter().zip(right).enumerate().take(most).take_while(follows).count();
    let is_accepted = count > 1 && association.window().accept_row(first, count as u64);
    if is_accepted { count } else { 0 }
}

/// Packets of one association in a row, which write to what workers share only once.
#[derive(Default)]
struct Run<'a> {
    association: Option<&'a Association>,
    packets: u64,
    bytes: u64,
    highest: u64,
}

impl Run<'_> {
    fn end(&self) {
        let Some(association) = self.association else { return };
        if self.packets != 0 {
            association.window().advance(self.highest);
            association.count(self.packets, self.bytes);
        }
    }

    /// Checks the rest, and takes off what is ESP's.
    #[inline(always)]
    fn finish(
        &mut self,
        association: &Association,
        packet: &mut Packet,
        offset: usize,
        number: u64,
        is_right: bool,
        is_accepted: bool,
    ) -> Result<(), Fault> {
        if !is_right {
            return Err(Fault::WrongIcv);
        }
        if !is_accepted {
            association.window().accept(number)?;
        }
        let Shape { iv, icv, .. } = association.keys().shape();
        let front = offset + HEADER_BYTES + iv;
        let end = packet.len() - icv;
        let data = packet.data();
        let (padding, protocol) = (usize::from(data[end - 2]), data[end - 1]);
        let length = (end - 2 - front).checked_sub(padding).ok_or(Fault::BadPadding)?;
        let bytes = &data[front + length..end - 2];
        let wrong =
            bytes.iter().zip(1..=u8::MAX).fold(0, |wrong, (byte, expected)| wrong | (byte ^ expected));
        if wrong != 0 {
            return Err(Fault::BadPadding);
        }
        self.packets += 1;
        self.bytes += length as u64;
        self.highest = self.highest.max(number);
        if protocol == NO_NEXT_HEADER {
            return Err(Fault::Dummy);
        }
        match association.settings().mode {
            Mode::Tunnel => out_of_tunnel(association, packet, front, length, protocol),
            Mode::Transport => out_of_transport(packet, offset, front, length, protocol),
        }
    }
}

#[inline(always)]
fn out_of_tunnel(
    association: &Association,
    packet: &mut Packet,
    front: usize,
    length: usize,
    protocol: u8,
) -> Result<(), Fault> {
    let settings = association.settings();
    let outer = marks::traffic_class(packet.data());
    packet.strip(front);
    packet.truncate(length);
    let data = packet.data_mut();
    let (version, shortest) = match IpProtocol(protocol) {
        IpProtocol::IPIP => (4, IPV4_BYTES),
        IpProtocol::IPV6 => (6, IPV6_BYTES),
        _ => return Err(Fault::BadInnerHeader),
    };
    if length < shortest || data[0] >> 4 != version {
        return Err(Fault::BadInnerHeader);
    }
    let class = marks::traffic_class(data);
    let new = marks::inner(class, outer, settings.takes_dscp, settings.copies_ecn)
        .ok_or(Fault::LostCongestionMark)?;
    if new != class {
        marks::set_traffic_class(data, new);
    }
    packet.set_network_header(0);
    Ok(())
}

/// Moves the headers up to the payload.
fn out_of_transport(
    packet: &mut Packet,
    offset: usize,
    front: usize,
    length: usize,
    protocol: u8,
) -> Result<(), Fault> {
    let data = packet.data_mut();
    let is_ipv4 = data[0] >> 4 == 4;
    // A UDP header goes too.
    let header = if is_ipv4 { usize::from(data[0] & 15) * 4 } else { IPV6_BYTES };
    if header > offset {
        return Err(Fault::BadInnerHeader);
    }
    let total = header + length;
    data.copy_within(..header, front - header);
    packet.strip(front - header);
    packet.truncate(total);
    let data = packet.data_mut();
    if is_ipv4 {
        data[2..4].copy_from_slice(&(total as u16).to_be_bytes());
        data[9] = protocol;
        data[10..12].fill(0);
        let check = checksum::ipv4_header_compute(&data[..header]);
        data[10..12].copy_from_slice(&check.to_be_bytes());
    } else {
        data[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        data[6] = protocol;
    }
    packet.set_network_and_transport_header(0, header);
    Ok(())
}
