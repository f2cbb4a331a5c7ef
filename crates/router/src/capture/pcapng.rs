//! Captured packets as a pcapng file (draft-ietf-opsawg-pcapng): an interface block for each port or place, and for each kind of
//! packets that there are of it.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;

use control::api::{CaptureCounts, SeenPacket};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::{DataLink, PcapError};

use super::decode;

/// Time stamps have nine digits behind the second.
const NANOSECONDS: u8 = 9;

/// Writes a file.
pub(crate) struct Writer<W: Write> {
    pcapng: PcapNgWriter<W>,
    /// What each interface block is for.
    interfaces: Vec<(String, bool)>,
    last_ns: u64,
}

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    pub(crate) fn new(to: W) -> io::Result<Self> {
        Ok(Self { pcapng: PcapNgWriter::new(to).map_err(io_error)?, interfaces: Vec::new(), last_ns: 0 })
    }

    /// Writes what is in buffers.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.pcapng.get_mut().flush()
    }

    fn interface(&mut self, name: &str, is_ethernet: bool) -> io::Result<u32> {
        let known =
            self.interfaces.iter().position(|(known, kind)| (known.as_str(), *kind) == (name, is_ethernet));
        if let Some(known) = known {
            return Ok(known as u32);
        }
        let description = if is_ethernet { "Ethernet frames" } else { "IP packets" };
        let block = InterfaceDescriptionBlock {
            linktype: if is_ethernet { DataLink::ETHERNET } else { DataLink::RAW },
            snaplen: 0,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
                InterfaceDescriptionOption::IfDescription(Cow::Borrowed(description)),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        };
        self.pcapng.write_pcapng_block(block).map_err(io_error)?;
        self.interfaces.push((name.to_owned(), is_ethernet));
        Ok(self.interfaces.len() as u32 - 1)
    }

    /// Writes a packet.
    pub(crate) fn packet(&mut self, packet: &SeenPacket) -> io::Result<()> {
        let interface_id = self.interface(&packet.interface, packet.is_ethernet)?;
        self.last_ns = packet.time_ns;
        // The lowest two bits of the flags: 1 inbound, 2 outbound (section 4.3.1).
        let flags = match packet.direction.as_str() {
            "in" => Some(1),
            "out" => Some(2),
            _ => None,
        };
        let mut options = vec![EnhancedPacketOption::Comment(Cow::Owned(comment(packet)))];
        options.extend(flags.map(EnhancedPacketOption::Flags));
        let block = EnhancedPacketBlock {
            interface_id,
            timestamp: Duration::from_nanos(packet.time_ns),
            original_len: packet.length,
            data: Cow::Owned(decode::bytes(&packet.data)),
            options,
        };
        self.pcapng.write_pcapng_block(block).map_err(io_error).map(drop)
    }

    /// Ends the file with what each interface had.
    pub(crate) fn end(mut self, counts: &[CaptureCounts]) -> io::Result<()> {
        // One without packets is there too, with those that were lost.
        for count in counts.iter().filter(|count| count.lost > 0) {
            if !self.interfaces.iter().any(|(name, _)| *name == count.interface) {
                self.interface(&count.interface, true)?;
            }
        }
        for count in counts {
            let interface = self.interfaces.iter().position(|(name, _)| *name == count.interface);
            let Some(interface) = interface else { continue };
            // The upper half of the time comes first, which this number is written without.
            let timestamp =
                if cfg!(target_endian = "little") { self.last_ns.rotate_left(32) } else { self.last_ns };
            let block = InterfaceStatisticsBlock {
                interface_id: interface as u32,
                timestamp,
                options: vec![
                    InterfaceStatisticsOption::IsbIfRecv(count.captured + count.lost),
                    InterfaceStatisticsOption::IsbIfDrop(count.lost),
                ],
            };
            self.pcapng.write_pcapng_block(block).map_err(io_error)?;
        }
        self.flush()
    }
}

/// Says in words where a packet was seen and what becomes of it.
pub(crate) fn comment(packet: &SeenPacket) -> String {
    let SeenPacket { element, class, verdict, reason, .. } = packet;
    let output = packet.output.map_or(String::new(), |output| format!("[{output}]"));
    let next = packet.next.as_ref().map_or(String::new(), |next| format!(" -> {next}"));
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    format!("{element} :: {class}{output}{next}, {verdict}{reason}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcapng::{Block, PcapNgReader};

    #[test]
    fn a_file_has_interfaces_directions_comments_and_counts() {
        let packet = SeenPacket {
            interface: "eth1".into(),
            direction: "in".into(),
            element: "in1".into(),
            class: "FromDevice".into(),
            output: Some(0),
            next: Some("c".into()),
            verdict: "passed".into(),
            is_ethernet: true,
            time_ns: 1_700_000_000_123_456_789,
            length: 98,
            data: "0200000001".into(),
            ..SeenPacket::default()
        };
        let dropped = SeenPacket {
            interface: "drops".into(),
            direction: String::new(),
            output: None,
            next: None,
            verdict: "dropped".into(),
            reason: "TTL expired".into(),
            is_ethernet: false,
            ..packet.clone()
        };
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file).unwrap();
        [&packet, &dropped, &packet].iter().for_each(|packet| writer.packet(packet).unwrap());
        let count = |interface: &str, lost| CaptureCounts {
            interface: interface.into(),
            captured: 2,
            lost,
            ..CaptureCounts::default()
        };
        writer.end(&[count("eth1", 7), count("eth2", 0), count("eth3", 1)]).unwrap();
        let mut reader = PcapNgReader::new(&file[..]).unwrap();
        let mut seen = Vec::new();
        while let Some(block) = reader.next_block() {
            seen.push(match block.unwrap() {
                Block::InterfaceDescription(block) => format!("interface {:?}", block.linktype),
                Block::EnhancedPacket(block) => {
                    let time = block.timestamp.as_nanos();
                    format!("{} {time} {} {:?}", block.interface_id, block.original_len, block.options)
                }
                Block::InterfaceStatistics(block) => format!("{} {:?}", block.interface_id, block.options),
                other => panic!("{other:?}"),
            });
        }
        let of_packet = "0 1700000000123456789 98 [Comment(\"in1 :: FromDevice[0] -> c, passed\"), Flags(1)]";
        assert_eq!(
            seen,
            [
                "interface ETHERNET",
                of_packet,
                "interface RAW",
                "1 1700000000123456789 98 [Comment(\"in1 :: FromDevice, dropped: TTL expired\")]",
                of_packet,
                "interface ETHERNET",
                "0 [IsbIfRecv(9), IsbIfDrop(7)]",
                "2 [IsbIfRecv(3), IsbIfDrop(1)]",
            ]
        );
    }
}
