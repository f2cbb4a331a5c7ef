//! =c
//! IPReassembler([I<keywords> HIMEM])
//!
//! =s ip
//! puts IP fragments together
//!
//! =d
//! Expects packets with the IP header marked. A packet that is not a fragment leaves by output 0 at
//! once. Fragments are kept until their packet is complete. It then leaves by output 0, with the
//! annotations, the header and the bytes before the header of the first fragment.
//!
//! A packet is given up when it has got no fragment for 30 seconds. It leaves by output 1, if that
//! is connected, as one packet with the data that came at its place. Otherwise it is dropped.
//! Output 1 is for an ICMPError(ADDR, timeexceeded, reassembly). RFC 792 allows no error when the
//! first fragment is missing, so such a packet is dropped.
//!
//! When the kept packets take more than HIMEM bytes (262,144 by default), packets are given up
//! until they take three quarters of that. The packets with the longest time since their last
//! fragment go first.
//!
//! Where fragments overlap, the later one counts. A fragment beyond the end that the last fragment
//! defines is dropped.
//!
//! Every packet kept takes a whole frame, and HIMEM counts frames. A packet that does not fit a
//! frame is given up. The pool of frames can be made of larger ones.
//!
//! Drop reasons, a count for each fragment: `bad fragment`,
//! `fragment beyond the end of its packet`, `reassembled packet too large for a frame`,
//! `no frame to reassemble in`, `reassembly timed out`, `too many packets being reassembled`,
//! `no IP header`.
//!
//! =e
//!   ... -> CheckIPHeader(14) -> IPReassembler -> ...
//!
//! =a IPFragmenter

use std::collections::HashMap;
use std::net::Ipv4Addr;

use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, Setup};
use packet::wire::ipv4::Ipv4;
use packet::{Batch, Packet};

pub(crate) static CLASS: Class = Class {
    name: "IPReassembler",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[Handler::read(
        "dump",
        Combine::Join,
        "Counters, and a line for each packet being put together.",
        &Get(|e: &mut IPReassembler| e.dump()),
    )],
    manual: graph::manual!("ip_reassembler.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let high = setup.arguments.keyword_or("HIMEM", 256 * 1024usize)?;
    setup.arguments.finish()?;
    Ok(Box::new(IPReassembler {
        packets: HashMap::new(),
        order: Vec::new(),
        bytes: 0,
        high,
        seen: 0,
        good: 0,
        failed: 0,
        bad: 0,
    }))
}

/// How long a packet without a new fragment is kept.
const TIMEOUT_NS: u64 = 30_000_000_000;
/// How often the dormant packets are looked for.
const INTERVAL_NS: u64 = 10_000_000_000;

/// Blocks of 8 bytes that a frame can hold at most.
const MOST_BLOCKS: usize = 4096;

/// What the fragments of a packet share (RFC 791, 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    source: u32,
    destination: u32,
    identification: u16,
    protocol: u8,
}

/// What a fragment says of itself.
struct Fragment {
    key: Key,
    /// Where the IP header starts in the data.
    network: usize,
    header_len: usize,
    /// Its bytes' place in the packet's payload.
    start: usize,
    end: usize,
    more: bool,
}

impl Fragment {
    /// Reads it; an error is a drop reason. What lies behind the IP length is cut off.
    fn read(packet: &mut Packet) -> Result<Self, &'static str> {
        const BAD: &str = "bad fragment";
        let network = packet.network_offset().ok_or(BAD)?;
        // After a strip the header lies in the head room, and the bytes before it are of no interest.
        let front = usize::try_from(network).unwrap_or(0);
        let bytes = packet.network().ok_or(BAD)?;
        let header = Ipv4::new_unchecked(bytes.first_chunk::<20>().ok_or(BAD)?);
        let (header_len, total) = (header.header_len(), header.total_len());
        let (start, more) = (usize::from(header.fragment_offset()), header.more_fragments());
        if header_len < 20 || total <= header_len || total > bytes.len() {
            return Err(BAD);
        }
        let end = start + total - header_len;
        // RFC 791: all fragments but the last carry a multiple of 8 bytes, and no packet exceeds 65,535.
        if end + header_len > usize::from(u16::MAX) || more && (total - header_len) % 8 != 0 {
            return Err(BAD);
        }
        let key = Key {
            source: header.source().to_bits(),
            destination: header.destination().to_bits(),
            identification: header.identification(),
            protocol: header.protocol().0,
        };
        let padding = bytes.len() - total;
        packet.truncate(packet.len() - padding);
        Ok(Self { key, network: front, header_len, start, end, more })
    }
}

/// A packet that is being put together.
///
/// The payload starts where a fresh packet's data starts. What stands before it (link and IP header of the
/// first fragment) is put into the head room when it comes; until then there are 20 bytes of a later
/// fragment's header, to be able to say whose packet it is.
struct Assembly {
    packet: Packet,
    /// Bytes before the payload, and where among them the IP header starts.
    front: usize,
    network: usize,
    has_first: bool,
    /// Whether the last fragment came, which told the length of the packet.
    has_last: bool,
    /// Which blocks of 8 bytes are there, and how many.
    blocks: [u64; MOST_BLOCKS / 64],
    present: usize,
    fragments: u64,
    last_ns: u64,
    /// Memory that it takes.
    bytes: usize,
}

impl Assembly {
    fn new(packet: Packet) -> Self {
        let bytes = packet.capacity();
        Self {
            packet,
            front: 0,
            network: 0,
            has_first: false,
            has_last: false,
            blocks: [0; MOST_BLOCKS / 64],
            present: 0,
            fragments: 0,
            last_ns: 0,
            bytes,
        }
    }

    fn payload_len(&self) -> usize {
        self.packet.len() - self.front
    }

    /// Takes over the bytes of `fragment`.
    fn add(&mut self, source: &Packet, fragment: &Fragment, now_ns: u64) -> Result<(), &'static str> {
        const TOO_LARGE: &str = "reassembled packet too large for a frame";
        let payload_start = fragment.network + fragment.header_len;
        let bytes = source.network().unwrap_or(&[]);
        let payload = bytes.get(fragment.header_len..).unwrap_or(&[]);
        if fragment.end > self.payload_len() {
            if self.has_last {
                return Err("fragment beyond the end of its packet");
            }
            if fragment.end.div_ceil(8) > MOST_BLOCKS {
                return Err(TOO_LARGE);
            }
            // A frame holds what earlier packets left, and an incomplete packet may leave by output 1.
            self.packet.append(fragment.end - self.payload_len()).ok_or(TOO_LARGE)?.fill(0);
        }
        if fragment.start == 0 || self.front == 0 {
            let front = if fragment.start == 0 {
                // With what stands before the IP header, when that is in the data and not in the head room.
                if source.network_offset().is_some_and(|offset| offset >= 0) {
                    source.data().get(..payload_start)
                } else {
                    bytes.get(..fragment.header_len)
                }
            } else {
                bytes.get(..20)
            };
            let front = front.ok_or("bad fragment")?;
            self.packet.strip(self.front);
            self.front = 0;
            let data = self.packet.prepend(front.len()).ok_or(TOO_LARGE)?;
            data[..front.len()].copy_from_slice(front);
            self.front = front.len();
            self.network = if fragment.start == 0 { fragment.network } else { 0 };
        }
        if fragment.start == 0 {
            self.has_first = true;
            *self.packet.annotations_mut() = *source.annotations();
            self.packet.set_packet_type(source.packet_type());
            self.packet.set_input_port(source.input_port());
        }
        let place = self.front + fragment.start..self.front + fragment.end;
        let target = self.packet.data_mut().get_mut(place).ok_or("bad fragment")?;
        target.copy_from_slice(payload.get(..fragment.end - fragment.start).ok_or("bad fragment")?);
        for block in fragment.start / 8..fragment.end.div_ceil(8) {
            let bit = 1 << (block % 64);
            self.present += usize::from(self.blocks[block / 64] & bit == 0);
            self.blocks[block / 64] |= bit;
        }
        self.has_last |= !fragment.more;
        self.fragments += 1;
        self.last_ns = now_ns;
        if source.timestamp_ns() != 0 {
            self.packet.set_timestamp_ns(source.timestamp_ns());
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.has_first && self.has_last && self.present == self.payload_len().div_ceil(8)
    }

    /// Returns the packet as it is, with a header for it.
    fn finish(mut self) -> Packet {
        let header_len = self.front - self.network;
        let total = self.packet.len() - self.network;
        let network = self.network;
        if let Some(header) = self.packet.data_mut().get_mut(network..network + header_len) {
            // No fragment any more; DF and the reserved bit stay.
            let more = if self.has_last { 0 } else { 0x20 };
            (header[6], header[7]) = (header[6] & 0xc0 | more, 0);
            let mut header = Ipv4::new_unchecked(header);
            header.set_header_len(header_len);
            header.set_total_len(total as u16);
            header.fill_checksum();
        }
        self.packet.set_network_and_transport_header(network, header_len);
        self.packet
    }
}

struct IPReassembler {
    packets: HashMap<Key, Assembly>,
    /// Keys in order of age while packets are given up; kept to save the allocation.
    order: Vec<(u64, Key)>,
    bytes: usize,
    high: usize,
    seen: u64,
    good: u64,
    failed: u64,
    bad: u64,
}

impl IPReassembler {
    /// Keeps a fragment; the packet, when it is complete now.
    fn keep(&mut self, cx: &mut Context, mut packet: Packet) -> Option<Packet> {
        self.seen += 1;
        let fragment = match Fragment::read(&mut packet) {
            Ok(fragment) => fragment,
            Err(reason) => {
                self.bad += 1;
                cx.drop(packet, reason);
                return None;
            }
        };
        if self.bytes > self.high {
            self.give_up(cx, u64::MAX, self.high / 4 * 3, "too many packets being reassembled");
        }
        if !self.packets.contains_key(&fragment.key) {
            let Some(mut frame) = cx.allocate() else {
                cx.drop(packet, "no frame to reassemble in");
                return None;
            };
            frame.reset(0);
            if self.packets.is_empty() {
                cx.set_timer(0, cx.now_ns() + INTERVAL_NS);
            }
            let assembly = Assembly::new(frame);
            self.bytes += assembly.bytes;
            self.packets.insert(fragment.key, assembly);
        }
        let assembly = self.packets.get_mut(&fragment.key)?;
        if let Err(reason) = assembly.add(&packet, &fragment, cx.now_ns()) {
            self.bad += 1;
            cx.drop(packet, reason);
            // A packet with a hole that cannot be filled is of no use.
            if reason != "fragment beyond the end of its packet" {
                self.remove(cx, fragment.key, reason, false);
            }
            return None;
        }
        let complete = assembly.is_complete();
        cx.pool().free_packet(packet);
        if !complete {
            return None;
        }
        let assembly = self.packets.remove(&fragment.key)?;
        self.bytes -= assembly.bytes;
        self.good += 1;
        Some(assembly.finish())
    }

    /// Gives up the packets that were dormant since `before_ns` or longer, oldest first, until the memory is
    /// down to `low`.
    fn give_up(&mut self, cx: &mut Context, before_ns: u64, low: usize, reason: &'static str) {
        let mut order = std::mem::take(&mut self.order);
        order.extend(
            self.packets
                .iter()
                .filter(|(_, assembly)| assembly.last_ns <= before_ns)
                .map(|(key, assembly)| (assembly.last_ns, *key)),
        );
        order.sort_unstable();
        for (_, key) in order.drain(..) {
            if self.bytes <= low {
                break;
            }
            self.remove(cx, key, reason, true);
        }
        self.order = order;
    }

    fn remove(&mut self, cx: &mut Context, key: Key, reason: &'static str, tell: bool) {
        let Some(assembly) = self.packets.remove(&key) else { return };
        self.bytes -= assembly.bytes;
        self.failed += 1;
        let fragments = assembly.fragments;
        if tell && assembly.has_first && cx.outputs() > 1 {
            cx.emit(1, assembly.finish());
        } else {
            // The frame is ours; what is lost are the fragments.
            cx.pool().free_packet(assembly.packet);
            cx.count_drop(reason, fragments);
        }
    }

    fn dump(&self) -> String {
        let Self { seen, good, failed, bad, .. } = self;
        let mut text = format!(
            "frags seen total:    {seen}\ngood reassemblies:   {good}\nfailed reassemblies: {failed}\n\
             bad fragments seen:  {bad}\ncached chunk data:\n"
        );
        let mut keys: Vec<_> = self.packets.iter().collect();
        keys.sort_unstable_by_key(|(key, _)| **key);
        for (key, assembly) in keys {
            let (source, destination) =
                (Ipv4Addr::from_bits(key.source), Ipv4Addr::from_bits(key.destination));
            let (id, present, length) = (key.identification, assembly.present * 8, assembly.payload_len());
            let ending = if assembly.has_last { "" } else { "+" };
            text.push_str(&format!(" {source} > {destination} {id} ({present} of {length}{ending})\n"));
        }
        text
    }
}

/// Whether `packet` is all that it was sent as; `None` without an IP header.
#[inline(always)]
fn is_whole(packet: &Packet) -> Option<bool> {
    Some(!Ipv4::new_unchecked(packet.network()?.first_chunk::<20>()?).is_fragment())
}

impl Element for IPReassembler {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        if batch.packets().iter().all(|packet| is_whole(packet) == Some(true)) {
            return;
        }
        // A completed packet takes the place of its last fragment, pushed or pulled.
        let mut packets = std::mem::replace(batch, cx.spare_batch());
        for packet in packets.drain() {
            match is_whole(&packet) {
                Some(true) => batch.push(packet),
                Some(false) => {
                    if let Some(packet) = self.keep(cx, packet) {
                        batch.push(packet);
                    }
                }
                None => cx.drop(packet, "no IP header"),
            }
        }
        cx.recycle(packets);
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        let now_ns = cx.now_ns();
        self.give_up(cx, now_ns.saturating_sub(TIMEOUT_NS), 0, "reassembly timed out");
        if !self.packets.is_empty() {
            cx.set_timer(0, now_ns + INTERVAL_NS);
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};
    use testbed::ipv4::{ipv4, refresh};

    use super::*;

    fn bench(text: &str) -> Bench {
        let config = format!(
            "in :: TestInput -> MarkIPHeader -> e :: {text} -> out :: TestOutput; e[1] -> lost :: TestOutput;"
        );
        Bench::new(&crate::registry(), &config)
    }

    /// A fragment of packet `id`: `payload` at `offset`.
    fn fragment(id: u8, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
        let mut packet = ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, payload);
        packet[5] = id;
        packet[6..8].copy_from_slice(&((offset / 8) | u16::from(more) << 13).to_be_bytes());
        refresh(&mut packet);
        packet
    }

    fn whole(id: u8, payload: &[u8]) -> Vec<u8> {
        fragment(id, 0, false, payload)
    }

    #[test]
    fn packets_that_are_whole_pass_in_order() {
        let mut bench = bench("IPReassembler");
        let (a, b, c) = (whole(1, b"a"), whole(2, b"first 8 then"), whole(3, b"c"));
        bench.push("in", &[&a, &fragment(2, 8, false, b"then"), &fragment(2, 0, true, b"first 8 "), &c]);
        assert_eq!(bench.taken("out"), [a, b, c]);
    }

    #[test]
    fn a_frame_goes_back_for_every_fragment() {
        let mut bench = bench("IPReassembler");
        let free = bench.graph().context().pool().stats().free;
        bench.push("in", &[&fragment(2, 0, true, b"12345678"), &fragment(2, 8, false, b"9")]);
        drop(bench.taken_packets("out"));
        bench.graph().context().pool().refill();
        assert_eq!(bench.graph().context().pool().stats().free, free);
    }

    #[test]
    fn packets_do_not_mix() {
        let mut bench = bench("IPReassembler");
        for id in [1, 2] {
            bench.push("in", &[&fragment(id, 0, true, &[id; 16])]);
        }
        for id in [2, 1] {
            bench.push("in", &[&fragment(id, 16, false, &[id; 3])]);
        }
        assert_eq!(bench.taken("out"), [whole(2, &[2; 19]), whole(1, &[1; 19])]);
    }

    #[test]
    fn where_fragments_overlap_the_later_counts() {
        let mut bench = bench("IPReassembler");
        bench.push(
            "in",
            &[
                &fragment(1, 0, true, &[b'a'; 16]),
                &fragment(1, 8, true, &[b'b'; 16]),
                &fragment(1, 24, false, &[b'c'; 4]),
            ],
        );
        let expected = [&[b'a'; 8][..], &[b'b'; 16], &[b'c'; 4]].concat();
        assert_eq!(bench.taken("out"), [whole(1, &expected)]);
        // A doublet changes nothing, and what lies beyond the end is refused.
        bench.push(
            "in",
            &[
                &fragment(2, 8, false, b"end"),
                &fragment(2, 8, false, b"END"),
                &fragment(2, 16, true, &[0; 8]),
                &fragment(2, 0, true, &[b'a'; 8]),
            ],
        );
        assert_eq!(bench.taken("out"), [whole(2, b"aaaaaaaaEND")]);
        assert_eq!(bench.drops("e", "fragment beyond the end of its packet"), 1);
    }

    #[test]
    fn header_and_annotations_are_the_first_fragments() {
        let config = "in :: TestInput -> MarkIPHeader(14) -> e :: IPReassembler -> out :: TestOutput;";
        let mut bench = Bench::new(&crate::registry(), config);
        let frame = |link: u8, packet: &[u8]| [&[link; 14][..], packet].concat();
        let mut first = bench.packet(&frame(1, &fragment(7, 0, true, &[b'x'; 8])));
        first.annotations_mut().set_paint(5);
        let last = bench.packet(&frame(2, &fragment(7, 8, false, b"yz")));
        bench.push_packets("in", vec![last, first]);
        let packets = bench.taken_packets("out");
        assert_eq!(packets[0].data(), frame(1, &whole(7, b"xxxxxxxxyz")));
        assert_eq!(packets[0].annotations().paint(), 5);
        assert_eq!(packets[0].network_offset(), Some(14));
        assert_eq!(packets[0].transport(), Some(&b"xxxxxxxxyz"[..]));
    }

    #[test]
    fn bad_fragments() {
        let mut bench = bench("IPReassembler");
        let mut beyond = fragment(1, 0, false, &[0; 64]);
        beyond[6..8].copy_from_slice(&0x1fff_u16.to_be_bytes());
        let mut lying = fragment(1, 8, false, &[0; 8]);
        lying[3] = 60;
        bench
            .push("in", &[&fragment(1, 0, true, b"odd"), &fragment(1, 8, false, b""), &beyond, &lying, b"x"]);
        assert_eq!(bench.drops("e", "bad fragment"), 4);
        assert_eq!(bench.drops("e", "no IP header"), 1);
        assert!(bench.read("e.dump").starts_with("frags seen total:    4\n"));
    }

    #[test]
    fn what_does_not_fit_a_frame_is_dropped_whole() {
        let mut bench = bench("IPReassembler");
        bench.push(
            "in",
            &[
                &fragment(1, 0, true, &[1; 1000]),
                &fragment(1, 1000, true, &[2; 1000]),
                &fragment(1, 40000, true, &[2; 8]),
            ],
        );
        assert_eq!(bench.drops("e", "reassembled packet too large for a frame"), 3);
        assert_eq!(bench.taken("out").len() + bench.taken("lost").len(), 0);
        assert!(bench.read("e.dump").contains("failed reassemblies: 2\n"));
    }

    #[test]
    fn dormant_packets_time_out() {
        let mut bench = bench("IPReassembler");
        bench.push("in", &[&fragment(1, 0, true, b"12345678"), &fragment(2, 8, true, b"12345678")]);
        bench.advance_ns(29_000_000_000);
        assert_eq!(bench.taken("lost").len(), 0);
        bench.advance_ns(12_000_000_000);
        let lost = bench.taken("lost");
        assert_eq!(lost, [fragment(1, 0, true, b"12345678")]);
        // Without the first fragment nobody can be told (RFC 792, time exceeded).
        assert_eq!(bench.drops("e", "reassembly timed out"), 1);
        bench.push("in", &[&fragment(1, 8, false, b"late")]);
        assert_eq!(bench.taken("out").len(), 0);
    }

    #[test]
    fn memory_is_bounded() {
        let mut bench = bench("IPReassembler(HIMEM 20000)");
        for id in 0..100 {
            bench.advance_ns(1_000_000);
            bench.push("in", &[&fragment(id, 8, true, b"12345678")]);
        }
        let kept = bench.read("e.dump").lines().count() - 5;
        assert!((5..=11).contains(&kept), "{kept} packets are kept");
        assert_eq!(bench.drops("e", "too many packets being reassembled"), 100 - kept as u64);
        // The youngest are the ones that are kept.
        bench.push("in", &[&fragment(99, 0, true, b"abcdefgh"), &fragment(99, 16, false, b"x")]);
        assert_eq!(bench.taken("out"), [whole(99, b"abcdefgh12345678x")]);
    }

    #[test]
    fn configuration_mistakes() {
        assert!(configure(&CLASS, "HIMEM 100000").is_ok());
        assert!(configure(&CLASS, "12").is_err());
    }
}
