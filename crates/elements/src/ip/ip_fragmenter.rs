//! =c
//! IPFragmenter(MTU [, HONOR_DF, VERBOSE])
//!
//! =s ip
//! splits IP packets that are too long
//!
//! =d
//! Expects packets with the IP header marked. A packet of at most MTU bytes, counted from its IP header, leaves
//! by output 0 as it is. A longer one is split into fragments that leave by output 0 in order, unless its
//! don't-fragment bit (DF) is set: then it leaves by output 1 if that is connected (usually to an ICMPError)
//! and is dropped otherwise.
//!
//! Options go into the first fragment, and into the others when their copy bit is set (RFC 791, 3.1). All fragments
//! have the annotations of the packet. Bytes before the IP header stay with the first fragment. All get a MAC header
//! that lies before the packet (FIBLookup), so that fragments leave as their packet would have.
//!
//! =item HONOR_DF
//! false fragments in spite of DF; such a packet gets a random identification. True by default.
//!
//! =item VERBOSE
//! whether every packet refused for DF gives a message, not only the first five; false by default.
//!
//! =back
//!
//! Drop reasons: needs fragmentation but must not be fragmented, bad IP length, fragment beyond 65535 bytes, no
//! frame for a fragment, no IP header.
//!
//! =e
//!   ... -> fr :: IPFragmenter(1500) -> Queue -> ...
//!   fr[1] -> ICMPError(18.26.4.24, unreachable, needfrag) -> ...
//!
//! =a ICMPError, IPReassembler

use std::ops::Range;

use graph::runs::Ordinary;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::division::divide;
use packet::wire::ipv4::{Ipv4, MAX_HEADER_LEN, MIN_HEADER_LEN, field};
use packet::wire::ipv4_option::Ipv4Option;
use packet::{Batch, Packet, checksum};

use crate::runs::{self, Step};

/// Click's limit.
const LEAST_MTU: usize = 8;

pub(crate) static CLASS: Class = Class {
    name: "IPFragmenter",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    ports: "1/1-2",
    processing: Class::PUSH,
    handlers: &[
        Handler::read(
            "drops",
            Combine::Sum,
            "Packets that were too long and not fragmented.",
            &Get(|e: &mut IPFragmenter| e.drops.to_string()),
        ),
        Handler::read(
            "fragments",
            Combine::Sum,
            "Fragments made.",
            &Get(|e: &mut IPFragmenter| e.fragments.to_string()),
        ),
        Handler::read_write(
            "mtu",
            Combine::First,
            "The MTU argument.",
            &Get(|e: &mut IPFragmenter| e.mtu.to_string()),
            &Put(|e: &mut IPFragmenter, _, value| e.set_mtu(value)),
        ),
    ],
    manual: graph::manual!("ip_fragmenter.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let mtu = setup.arguments.required::<usize>("MTU")?;
    let honor_df = setup.arguments.optional("HONOR_DF")?.unwrap_or(true);
    let verbose = setup.arguments.optional("VERBOSE")?.unwrap_or(false);
    setup.arguments.finish()?;
    if mtu < LEAST_MTU {
        return Err(format!("MTU: expected at least {LEAST_MTU}, got {mtu}").into());
    }
    Ok(Box::new(IPFragmenter { mtu, honor_df, verbose, drops: 0, fragments: 0 }))
}

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

struct IPFragmenter {
    mtu: usize,
    honor_df: bool,
    verbose: bool,
    drops: u64,
    fragments: u64,
}

/// The MAC header that lies before a packet, where UnstripToMACHeader would find it.
struct LinkHeader {
    bytes: [u8; LinkHeader::LONGEST],
    len: usize,
}

impl LinkHeader {
    const LONGEST: usize = 64;

    fn of(packet: &mut Packet) -> Option<Self> {
        let len = packet.link_offset().and_then(|offset| usize::try_from(-offset).ok());
        let len = len.filter(|len| (1..=Self::LONGEST).contains(len))?;
        let mut bytes = [0; Self::LONGEST];
        bytes[..len].copy_from_slice(packet.prepend(len)?.get(..len)?);
        packet.strip(len);
        Some(Self { bytes, len })
    }

    /// Puts it before a packet.
    fn put(&self, packet: &mut Packet) {
        if let Some(data) = packet.prepend(self.len) {
            data[..self.len].copy_from_slice(&self.bytes[..self.len]);
            packet.set_link_header(0);
            packet.strip(self.len);
        }
    }
}

/// The parts of an IP header that fragmenting changes.
struct Header {
    bytes: [u8; MAX_HEADER_LEN],
    len: usize,
}

impl Header {
    fn of(packet: &Packet) -> Option<Self> {
        let view = Ipv4::new_checked(packet.network()?).ok()?;
        let (header, len) = (view.header(), view.header_len());
        let mut bytes = [0; MAX_HEADER_LEN];
        bytes[..len].copy_from_slice(header);
        Some(Self { bytes, len })
    }

    fn word(&self, field: Range<usize>) -> u16 {
        u16::from_be_bytes([self.bytes[field.start], self.bytes[field.start + 1]])
    }

    fn set_word(&mut self, field: Range<usize>, value: u16) {
        self.bytes[field].copy_from_slice(&value.to_be_bytes());
    }

    /// The header of a fragment with `payload` bytes; flags and offset are one word.
    fn finish(&mut self, payload: usize, flags_offset: u16) -> &[u8] {
        self.set_word(field::TOTAL_LEN, (self.len + payload) as u16);
        self.set_word(field::FLAGS_OFFSET, flags_offset);
        let check = checksum::ipv4_header_compute(&self.bytes[..self.len]);
        self.set_word(field::CHECKSUM, check);
        &self.bytes[..self.len]
    }

    /// The header for the fragments behind the first: only the options that have their copy bit set.
    fn for_later_fragments(&self) -> Self {
        let mut later = Self { bytes: [0; MAX_HEADER_LEN], len: MIN_HEADER_LEN };
        later.bytes[..MIN_HEADER_LEN].copy_from_slice(&self.bytes[..MIN_HEADER_LEN]);
        let mut at = MIN_HEADER_LEN;
        while let Some(Ok(option)) = Ipv4Option::next(&self.bytes[..self.len], at) {
            at = option.place.end;
            if option.is_copied() {
                let octets = &self.bytes[option.place];
                later.bytes[later.len..later.len + octets.len()].copy_from_slice(octets);
                later.len += octets.len();
            }
        }
        // What is left of the last word is zero: End of Option List.
        later.len = later.len.next_multiple_of(4);
        Ipv4::new_unchecked(&mut later.bytes).set_header_len(later.len);
        later
    }
}

impl IPFragmenter {
    /// One in which several are merged: whole if each of them fits.
    #[cold]
    fn handle_merged(&mut self, cx: &mut Context, packet: Packet) {
        let before = packet.network_offset().and_then(|offset| usize::try_from(offset).ok());
        let Some((before, header)) = before.zip(Header::of(&packet)) else {
            return cx.drop(packet, "no IP header");
        };
        if packet.piece_len().saturating_sub(before) <= self.mtu {
            return cx.emit(0, packet);
        }
        if header.word(field::FLAGS_OFFSET) & DONT_FRAGMENT != 0 && self.honor_df {
            return self.refuse(cx, packet, &header);
        }
        let mut pieces = Vec::new();
        match divide(cx.pool(), &packet, |piece| pieces.push(piece)) {
            Ok(missing) if missing > 0 => cx.count_drop("no frame for a piece", missing),
            Ok(_) => {}
            Err(_) => cx.count_drop("bad merged packet", packet.pieces()),
        }
        cx.pool().free_packet(packet);
        pieces.into_iter().for_each(|piece| self.handle(cx, piece));
    }

    fn handle(&mut self, cx: &mut Context, mut packet: Packet) {
        if packet.is_merged() {
            return self.handle_merged(cx, packet);
        }
        let length = packet.network().map_or(0, <[u8]>::len);
        if length <= self.mtu {
            return cx.emit(0, packet);
        }
        let Some(mut header) = Header::of(&packet) else { return cx.drop(packet, "no IP header") };
        let total = usize::from(header.word(field::TOTAL_LEN));
        if total < header.len || total > length {
            return cx.drop(packet, "bad IP length");
        }
        if total <= self.mtu {
            // Only link padding made it too long.
            let excess = length - total;
            packet.truncate(packet.len() - excess);
            return cx.emit(0, packet);
        }
        // All but the last fragment carry a multiple of 8 bytes.
        let first_payload = self.mtu.saturating_sub(header.len) / 8 * 8;
        let flags_offset = header.word(field::FLAGS_OFFSET);
        if flags_offset & DONT_FRAGMENT != 0 && self.honor_df || first_payload == 0 {
            return self.refuse(cx, packet, &header);
        }
        let payload = total - header.len;
        if usize::from(flags_offset & OFFSET_MASK) * 8 + payload > usize::from(u16::MAX) {
            return cx.drop(packet, "fragment beyond 65535 bytes");
        }
        if flags_offset & DONT_FRAGMENT != 0 {
            // RFC 6864, 4: the identification of a packet with DF need not be unique, so it cannot be trusted.
            header.set_word(field::IDENTIFICATION, cx.random() as u16);
        }
        let link = LinkHeader::of(&mut packet);
        if !self.fragment(cx, &packet, header, payload, first_payload, link.as_ref()) {
            return cx.drop(packet, "no frame for a fragment");
        }
        cx.pool().free_packet(packet);
    }

    /// Emits all fragments; false when the frames ran out.
    fn fragment(
        &mut self,
        cx: &mut Context,
        packet: &Packet,
        mut header: Header,
        payload: usize,
        first_payload: usize,
        link: Option<&LinkHeader>,
    ) -> bool {
        let flags_offset = header.word(field::FLAGS_OFFSET) & !DONT_FRAGMENT;
        let mut later = header.for_later_fragments();
        let source_start = header.len;
        // A copy keeps the header positions and what stands before the IP header.
        let Some(mut first) = cx.copy(packet) else { return false };
        let tail = packet.network().map_or(0, <[u8]>::len) - header.len - first_payload;
        first.truncate(first.len() - tail);
        let bytes = header.finish(first_payload, flags_offset | MORE_FRAGMENTS);
        if let Some(network) = first.network_mut() {
            network[..bytes.len()].copy_from_slice(bytes);
        }
        if let Some(link) = link {
            link.put(&mut first);
        }
        cx.emit(0, first);
        self.fragments += 1;

        let later_payload = (self.mtu - later.len) / 8 * 8;
        let mut at = first_payload;
        while at < payload {
            let count = later_payload.min(payload - at);
            let mut word = flags_offset + (at / 8) as u16;
            if at + count < payload {
                word |= MORE_FRAGMENTS;
            }
            let Some(mut fragment) = cx.allocate() else { return false };
            let header = later.finish(count, word);
            let source =
                packet.network().and_then(|bytes| bytes.get(source_start + at..source_start + at + count));
            let (Some(data), Some(source)) = (fragment.reset(header.len() + count), source) else {
                cx.pool().free_packet(fragment);
                return false;
            };
            data[..header.len()].copy_from_slice(header);
            data[header.len()..].copy_from_slice(source);
            fragment.set_network_and_transport_header(0, header.len());
            *fragment.annotations_mut() = *packet.annotations();
            fragment.set_packet_type(packet.packet_type());
            fragment.set_input_port(packet.input_port());
            fragment.set_timestamp_ns(packet.timestamp_ns());
            if let Some(link) = link {
                link.put(&mut fragment);
            }
            cx.emit(0, fragment);
            self.fragments += 1;
            at += count;
        }
        true
    }

    fn refuse(&mut self, cx: &mut Context, packet: Packet, header: &Header) {
        if self.verbose || self.drops < 5 {
            let view = Ipv4::new_unchecked(&header.bytes);
            let (source, destination) = (view.source(), view.destination());
            let (mtu, length) = (self.mtu, packet.len());
            cx.message(&format!("IPFragmenter({mtu}) DF {source} {destination} len={length}"));
        }
        self.drops += packet.pieces();
        cx.divert(1, packet, "needs fragmentation but must not be fragmented");
    }

    /// Writes the handler `mtu`.
    fn set_mtu(&mut self, value: &str) -> Result<(), String> {
        let mtu = usize::from_value(value)?;
        if mtu < LEAST_MTU {
            return Err(format!("expected at least {LEAST_MTU}, got {mtu}"));
        }
        self.mtu = mtu;
        Ok(())
    }
}

impl Element for IPFragmenter {
    fn ordinary(&self) -> Option<Ordinary> {
        runs::ordinary([Step::AtMost(self.mtu)])
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let mtu = self.mtu;
        if batch.packets().iter().all(|packet| packet.network().is_some_and(|bytes| bytes.len() <= mtu)) {
            return;
        }
        // Fragments take their packet's place, so that no flow is reordered.
        let mut packets = std::mem::replace(batch, cx.spare_batch());
        for packet in packets.drain() {
            if packet.network().is_none() {
                cx.drop(packet, "no IP header");
            } else {
                self.handle(cx, packet);
            }
        }
        cx.recycle(packets);
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};

    use super::*;
    use testbed::ipv4::{ipv4, refresh, with_options};

    #[test]
    fn fragments_have_the_mac_header_of_their_packet() {
        let config = "in :: TestInput -> MarkMACHeader(0) -> Strip(14) -> MarkIPHeader -> IPFragmenter(68)
            -> UnstripToMACHeader -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        let header = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 0];
        bench.push("in", &[&[&header[..], &ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, &[0; 100])].concat()]);
        let fragments = bench.taken("out");
        assert_eq!(fragments.len(), 3);
        assert!(fragments.iter().all(|fragment| fragment[..14] == header && fragment[14] == 0x45));
    }

    #[test]
    fn the_mtu_can_be_changed() {
        let mut bench = bench("1500");
        bench.push("in", &[&ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, &[0; 100])]);
        bench.write("e.mtu", "68").unwrap();
        bench.push("in", &[&ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, &[0; 100])]);
        assert_eq!(bench.taken("out").len(), 4);
        assert!(bench.write("e.mtu", "7").unwrap_err().contains("at least 8"));
    }

    fn bench(arguments: &str) -> Bench {
        let config = format!(
            "in :: TestInput -> MarkIPHeader -> e :: IPFragmenter({arguments}) -> out :: TestOutput;
             e[1] -> refused :: TestOutput;"
        );
        Bench::new(&crate::registry(), &config)
    }

    fn words(packet: &[u8]) -> Vec<u32> {
        packet.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
    }

    /// Click's test of options: those without the copy bit stay in the first fragment.
    #[test]
    fn options_as_click_does_it() {
        let packet: Vec<u8> = [
            0x4600_002c_u32,
            0,
            0x6406_3482,
            0x121a_042c,
            0x0a00_0004,
            0x0101_0000,
            0x001e_0028,
            0,
            0,
            0x5000_0000,
            0x8f55_0000,
        ]
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect();
        let mut bench = bench("40, HONOR_DF false");
        bench.push("in", &[&packet]);
        let out = bench.taken("out");
        assert_eq!(
            words(&out[0]),
            [
                0x4600_0028,
                0x2000,
                0x6406_1486,
                0x121a_042c,
                0x0a00_0004,
                0x0101_0000,
                0x001e_0028,
                0,
                0,
                0x5000_0000
            ]
        );
        assert_eq!(words(&out[1]), [0x4500_0018, 2, 0x6406_3695, 0x121a_042c, 0x0a00_0004, 0x8f55_0000]);
        assert_eq!(bench.read("e.fragments"), "2");
    }

    #[test]
    fn options_with_the_copy_bit_go_everywhere() {
        let options = [7, 7, 8, 1, 2, 3, 4, 0x94, 4, 0, 0, 0];
        let packet = with_options([1, 2, 3, 4], [5, 6, 7, 8], 17, &options, &[9; 24]);
        let mut bench = bench("48");
        bench.push("in", &[&packet]);
        let out = bench.taken("out");
        assert_eq!(out[0][20..32], options);
        assert_eq!(out[1][0], 0x46);
        assert_eq!(out[1][20..24], [0x94, 4, 0, 0]);
    }

    #[test]
    fn order_and_annotations() {
        let mut bench = bench("68");
        let small = ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, b"small");
        let mut big = bench.packet(&ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, &[7; 100]));
        big.annotations_mut().set_paint(3);
        let packets = vec![bench.packet(&small), big, bench.packet(&small)];
        bench.push_packets("in", packets);
        let out = bench.taken_packets("out");
        let lengths: Vec<_> = out.iter().map(packet::Packet::len).collect();
        assert_eq!(lengths, [25, 68, 68, 24, 25]);
        assert!(out[1..4].iter().all(|packet| packet.annotations().paint() == 3));
        assert!(out[1..4].iter().all(|packet| checksum::ipv4_header_valid(&packet.data()[..20])));
    }

    #[test]
    fn fragments_of_a_fragment_keep_its_place() {
        let mut packet = ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, &[7; 32]);
        packet[6..8].copy_from_slice(&(MORE_FRAGMENTS | 100).to_be_bytes());
        refresh(&mut packet);
        let mut bench = bench("40");
        bench.push("in", &[&packet]);
        let places: Vec<_> =
            bench.taken("out").iter().map(|bytes| u16::from_be_bytes([bytes[6], bytes[7]])).collect();
        assert_eq!(places, [MORE_FRAGMENTS | 100, MORE_FRAGMENTS | 102]);
    }

    #[test]
    fn df_is_honoured_or_not() {
        let mut packet = ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, &[7; 100]);
        packet[6] = 0x40;
        refresh(&mut packet);
        let mut honours = bench("68");
        for _ in 0..6 {
            honours.push("in", &[&packet]);
        }
        assert_eq!(honours.taken("refused"), vec![packet.clone(); 6]);
        assert_eq!(honours.read("e.drops"), "6");
        let messages = honours.messages();
        assert_eq!(messages.len(), 5);
        assert_eq!(messages[0], "IPFragmenter(68) DF 1.2.3.4 5.6.7.8 len=120");
        let mut ignores = bench("68, false");
        ignores.push("in", &[&packet]);
        let out = ignores.taken("out");
        assert_eq!(out.len(), 3);
        assert!(out.iter().all(|fragment| fragment[6] & 0x40 == 0 && fragment[4..6] == out[0][4..6]));
    }

    #[test]
    fn odd_packets() {
        let mut bench = bench("40");
        let mut padded = ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, b"ab");
        padded.resize(60, 0);
        let mut lying = ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, &[0; 40]);
        lying[3] = 100;
        let mut beyond = ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, &[0; 40]);
        beyond[6..8].copy_from_slice(&0x1fff_u16.to_be_bytes());
        bench.push("in", &[&padded, &lying, &beyond, &[0; 50]]);
        assert_eq!(bench.taken("out"), [&padded[..22]]);
        assert_eq!(bench.drops("e", "bad IP length"), 1);
        assert_eq!(bench.drops("e", "fragment beyond 65535 bytes"), 1);
        assert_eq!(bench.drops("e", "no IP header"), 1);
    }

    #[test]
    fn configuration_mistakes() {
        assert!(configure(&CLASS, "7").is_err());
        assert!(configure(&CLASS, "").is_err());
        assert!(configure(&CLASS, "1500, HONOR_DF false, VERBOSE true").is_ok());
    }
}
