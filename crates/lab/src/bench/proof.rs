//! Whether a router that is about to be measured does to each of its frames what it should.
//!
//! Each frame goes through the router once, and what leaves by its ports is compared with what the routes and RFC 1812 say.
//! Nothing may be lost, changed, on another way, or overtaken within its flow. The routes are looked up in maps by
//! length here, not in the tables under measurement.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use fib::read::Row;
use packet::checksum;
use ports::{OpenOptions, PcapReader, Port};
use tempfile::TempDir;

use super::frames::{self, port_mac};
use super::routes;
use super::single_core::{ROUTER_PORTS, SingleCore};

/// Turns without a packet after which no more come.
const IDLE_TURNS: usize = 4_096;

/// Routes of both families, by length and first bits.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// The next hop's port of each prefix, by its version and length, longest first.
    lengths: Vec<((u8, u8), HashMap<u128, usize>)>,
    /// Whether packets with IPv4 options are left to Linux.
    leaves_options: bool,
}

impl Model {
    /// The routes of these rows, over the ports of their origins.
    pub(super) fn new(ipv4: &[Row], ipv6: &[Row<u128>]) -> Self {
        let ipv4 = ipv4.iter().map(|row| {
            let first = u128::from(u32::from(row.prefix.network())) << 96;
            ((4, row.prefix.prefix_len()), first, row.origin)
        });
        let ipv6 = ipv6.iter().map(|row| {
            let first = u128::from(row.prefix.network());
            ((6, row.prefix.prefix_len()), first, row.origin)
        });
        let mut lengths: HashMap<(u8, u8), HashMap<u128, usize>> = HashMap::new();
        for (length, first, origin) in ipv4.chain(ipv6) {
            lengths.entry(length).or_default().insert(first, routes::port_of(origin));
        }
        let mut lengths: Vec<_> = lengths.into_iter().collect();
        lengths.sort_by_key(|((version, length), _)| (*version, u8::MAX - length));
        Self { lengths, leaves_options: false }
    }

    /// The same for a router that leaves packets with IPv4 options to Linux, as `brickway run PORT...` does.
    pub(super) fn of_drop_in(ipv4: &[Row], ipv6: &[Row<u128>]) -> Self {
        Self { leaves_options: true, ..Self::new(ipv4, ipv6) }
    }

    fn port(&self, version: u8, address: u128) -> Option<usize> {
        let of_version = self.lengths.iter().filter(|((of, _), _)| *of == version);
        of_version.into_iter().find_map(|((_, length), prefixes)| {
            let mask = u128::MAX.checked_shl(128 - u32::from(*length)).unwrap_or(0);
            prefixes.get(&(address & mask)).copied()
        })
    }

    /// The port that a frame leaves by, and what it is then; `None` if it ends here.
    fn forwarded(&self, frame: &[u8]) -> Option<(usize, Vec<u8>)> {
        let mut frame = frame.to_vec();
        if frame[12..14] == [0x81, 0] {
            frame.drain(12..16);
        }
        let (life, version, address) = match frame[14] >> 4 {
            4 => (22, 4, u128::from(u32::from_be_bytes(frame[30..34].try_into().ok()?)) << 96),
            _ => (21, 6, u128::from_be_bytes(frame[38..54].try_into().ok()?)),
        };
        if frame[life] < 2 || self.leaves_options && version == 4 && frame[14] & 15 > 5 {
            return None;
        }
        frame[life] -= 1;
        if version == 4 {
            let end = 14 + usize::from(frame[14] & 15) * 4;
            let sum = checksum::ipv4_header_compute(&frame[14..end]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        let port = self.port(version, address)?;
        frame[..6].copy_from_slice(&[2, 0, 0, 0, port as u8, 2]);
        frame[6..12].copy_from_slice(&port_mac(port as u8).0);
        Some((port, frame))
    }
}

/// What makes a flow: the port, the first byte of the IP header (packets with options go another way through a router),
/// and the destination.
fn flow(port: usize, frame: &[u8]) -> (usize, u8, Vec<u8>) {
    let destination = if frame.get(14).is_some_and(|first| first >> 4 == 4) { 30..34 } else { 38..54 };
    (port, frame.get(14).copied().unwrap_or(0), frame.get(destination).map_or(Vec::new(), <[u8]>::to_vec))
}

/// A name for a vdev of DPDK that this process has not had.
pub(super) fn vdev(kind: &str) -> String {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("{kind}{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Sends each frame once through a router that `build` makes of these ports; the frames come in by the first.
///
/// # Errors
///
/// A frame was lost, changed or overtaken, or left by another port; the message has it.
pub(super) fn prove(
    sent: &[Vec<u8>],
    model: &Model,
    over_dpdk: bool,
    build: impl FnOnce([Box<dyn Port>; ROUTER_PORTS]) -> Result<SingleCore>,
) -> Result<()> {
    let folder = TempDir::new()?;
    let file = |port: usize| folder.path().join(format!("{port}.pcap"));
    frames::write_pcap(&file(0), sent)?;
    let open = |port: usize| {
        let (path, name) = (file(port), vdev("net_pcap"));
        let spec = match (over_dpdk, port) {
            (true, 0) => format!("dpdk:{name},rx_pcap={}", path.display()),
            (true, _) => format!("dpdk:{name},tx_pcap={}", path.display()),
            (false, 0) => format!("pcap:{}", path.display()),
            (false, _) => format!("pcap:?out={}", path.display()),
        };
        ports::open(&spec, &OpenOptions::default())
    };
    let mut router = build([open(0)?, open(1)?, open(2)?, open(3)?])?;
    let mut idle = 0;
    while idle < IDLE_TURNS {
        let before = router.packets();
        router.turn();
        idle = if router.packets() == before { idle + 1 } else { 0 };
    }
    drop(router);

    let mut expected: HashMap<_, VecDeque<Vec<u8>>> = HashMap::new();
    for (port, frame) in sent.iter().filter_map(|frame| model.forwarded(frame)) {
        expected.entry(flow(port, &frame)).or_default().push_back(frame);
    }
    for port in 1..ROUTER_PORTS {
        for frame in received(&file(port))? {
            let awaited = expected.get_mut(&flow(port, &frame)).and_then(VecDeque::pop_front);
            match awaited {
                Some(awaited) if awaited == frame => {}
                Some(awaited) => bail!(
                    "port {port} sent a frame that was changed or overtaken:\n  {}\nexpected\n  {}",
                    hex(&frame),
                    hex(&awaited)
                ),
                None => bail!("port {port} sent a frame that was not expected there:\n  {}", hex(&frame)),
            }
        }
    }
    let lost: usize = expected.values().map(VecDeque::len).sum();
    if let Some(frame) = expected.values().find_map(VecDeque::front) {
        bail!("{lost} of {} frames were lost; the first is\n  {}", sent.len(), hex(frame));
    }
    Ok(())
}

fn received(path: &Path) -> Result<Vec<Vec<u8>>> {
    let mut reader = PcapReader::open(path).with_context(|| format!("cannot read '{}'", path.display()))?;
    let mut frames = Vec::new();
    while let Some(record) = reader.next() {
        frames.push(record?.data.to_vec());
    }
    Ok(frames)
}

fn hex(frame: &[u8]) -> String {
    frame.iter().take(80).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::drop_in;

    fn rows() -> Vec<Row> {
        let mut rows = routes::default_route();
        rows.push(Row { prefix: "198.51.100.0/24".parse().unwrap(), origin: 2 });
        rows.push(Row { prefix: "198.51.100.128/25".parse().unwrap(), origin: 3 });
        rows
    }

    /// What is found out about a router that has other routes than the model.
    fn finding(router_rows: &[Row], model_rows: &[Row], sent: &[Vec<u8>]) -> Result<()> {
        let fib = drop_in::fib(router_rows)?;
        prove(sent, &Model::new(model_rows, &[]), false, |ports| drop_in::router(ports, &fib, 32))
    }

    #[test]
    fn a_router_that_does_what_it_should_passes_and_others_are_named() {
        let sent = frames::templates(&rows(), 300, 64);
        finding(&rows(), &rows(), &sent).unwrap();
        let error = finding(&rows()[..3], &rows(), &sent).unwrap_err().to_string();
        assert!(error.contains("sent a frame that was not expected there"), "{error}");
        // The router has no route for half of the addresses.
        let error = finding(&rows()[1..], &rows(), &sent).unwrap_err().to_string();
        assert!(error.contains("of 300 frames were lost"), "{error}");
    }

    #[test]
    fn what_a_frame_becomes() {
        let model = Model::new(&rows(), &[]);
        let mut frame = frames::templates(&rows()[3..], 1, 64).remove(0);
        let (port, sent) = model.forwarded(&frame).unwrap();
        let number = port as u8;
        assert_eq!((port, sent[22]), (routes::port_of(3), 63));
        assert_eq!((&sent[..6], &sent[6..12]), (&[2, 0, 0, 0, number, 2][..], &port_mac(number).0[..]));
        assert!(checksum::ipv4_header_valid(&sent[14..34]));
        frame[22] = 1;
        assert_eq!(model.forwarded(&frame), None);
    }
}
