//! The frames that benches send: UDP to destinations inside a table's prefixes, in memory and as a capture file.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use anyhow::{Context, Result};
use fib::read::Row;
use packet::checksum;
use packet::random::SplitMix64;
use packet::wire::ethernet::MacAddr;
use ports::{PcapWriter, Precision};

/// The link address of the example router's port `port`, as in its definitions.
pub(super) fn port_mac(port: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, port, 1])
}

/// UDP frames to destinations inside the table's prefixes, for the example router's port 0.
pub(super) fn templates(rows: &[Row], dests: usize, size: usize) -> Vec<Vec<u8>> {
    destinations(rows, dests).into_iter().map(|address| frame(address, size)).collect()
}

/// Destinations inside the table's prefixes.
pub(super) fn destinations(rows: &[Row], dests: usize) -> Vec<Ipv4Addr> {
    let local = |address: &Ipv4Addr| address.octets()[0] == 10;
    let mut addresses = Vec::new();
    let mut seed = 7;
    // Addresses of the router's own networks would not be looked up in the table.
    while addresses.len() < dests {
        let more = fib::synthesize::destinations_inside(rows, dests, seed);
        let more = more.into_iter().map(Ipv4Addr::from);
        addresses.extend(more.filter(|address| !local(address) && is_forwarded(*address)));
        seed += 1;
    }
    addresses.truncate(dests);
    addresses
}

/// Whether a router may forward to the address at all.
fn is_forwarded(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first != 0 && first != 127 && first < 224
}

fn frame(destination: Ipv4Addr, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    bytes[..6].copy_from_slice(&port_mac(0).0);
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    bytes[12..14].copy_from_slice(&[8, 0]);
    let ip_bytes = (size - 14) as u16;
    let header = &mut bytes[14..34];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&ip_bytes.to_be_bytes());
    header[8] = 64;
    header[9] = 17;
    header[12..16].copy_from_slice(&[10, 0, 0, 2]);
    header[16..20].copy_from_slice(&destination.octets());
    let sum = checksum::ipv4_header_compute(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes[34..38].copy_from_slice(&[0x10, 0, 0x20, 0]);
    bytes[38..40].copy_from_slice(&(ip_bytes - 20).to_be_bytes());
    bytes
}

/// The same for an IPv6 table.
pub(super) fn templates_6(rows: &[Row<u128>], dests: usize, size: usize) -> Vec<Vec<u8>> {
    let addresses = fib::synthesize::destinations_inside(rows, dests, 7);
    addresses.into_iter().map(|address| frame_6(address.into(), size)).collect()
}

fn frame_6(destination: Ipv6Addr, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    bytes[..6].copy_from_slice(&port_mac(0).0);
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
    let payload = (size - 54) as u16;
    bytes[14] = 0x60;
    bytes[18..20].copy_from_slice(&payload.to_be_bytes());
    bytes[20..22].copy_from_slice(&[17, 64]);
    let source: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
    bytes[22..38].copy_from_slice(&source.octets());
    bytes[38..54].copy_from_slice(&destination.octets());
    bytes
}

/// Frames of both families at random, half and half; of all, one in a hundred has IPv4 options, one in a thousand a TTL or hop
/// limit that ends here.
pub(super) fn mixed(ipv4: &[Vec<u8>], ipv6: &[Vec<u8>]) -> Vec<Vec<u8>> {
    const FEWEST: usize = 8_192;
    let count = (ipv4.len() + ipv6.len()).max(FEWEST);
    let mut random = SplitMix64::new(5);
    let mut mixed = Vec::with_capacity(count);
    for number in 0..count {
        let is_ipv6 = random.one_in(2);
        let templates = if is_ipv6 { ipv6 } else { ipv4 };
        let mut frame = templates[number % templates.len()].clone();
        if !is_ipv6 && random.one_in(50) {
            add_options(&mut frame);
        }
        if random.one_in(1000) {
            expire(&mut frame);
        }
        mixed.push(frame);
    }
    mixed
}

/// Puts four bytes of IPv4 options (no operation) before the UDP header.
pub(super) fn add_options(frame: &mut [u8]) {
    frame[14] = 0x46;
    frame.copy_within(34..frame.len() - 4, 38);
    frame[34..38].fill(1);
    refresh(frame);
}

/// Has an IPv4 packet come by a VLAN, from a host there.
pub(super) fn tag(frame: &mut Vec<u8>, number: u16) {
    frame[26..30].copy_from_slice(&[10, 1, 0, 2]);
    refresh(frame);
    let [high, low] = number.to_be_bytes();
    frame.splice(12..12, [0x81, 0, high, low]);
}

/// Sets the TTL or the hop limit to 1.
pub(super) fn expire(frame: &mut [u8]) {
    if frame[14] >> 4 == 6 {
        frame[21] = 1;
        return;
    }
    frame[22] = 1;
    refresh(frame);
}

/// Sets the checksum of an IPv4 header anew.
fn refresh(frame: &mut [u8]) {
    let length = usize::from(frame[14] & 0xf) * 4;
    let header = &mut frame[14..14 + length];
    let sum = checksum::ipv4_header_compute(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Writes frames into a file for DPDK's net_pcap.
pub(super) fn write_pcap(path: &Path, frames: &[Vec<u8>]) -> Result<()> {
    let mut writer = PcapWriter::create(path, Precision::Microseconds)?;
    for frame in frames {
        writer
            .write(0, frame.len() as u32, frame)
            .with_context(|| format!("cannot write '{}'", path.display()))?;
    }
    writer.flush().with_context(|| format!("cannot write '{}'", path.display()))
}
