//! Whether a router that is about to be measured does to each of its frames what it should.
//!
//! Its frames, numbered, go through the router, several thousand at least. What leaves by ports 1 to 3 is compared with what the
//! routes and RFC 1812 say: nothing may be lost, changed, added, on another port, or overtaken within its flow. Frames that
//! are left to Linux are counted where they reach what stands for it; their content is not looked at. The routes are looked up
//! in maps by length here, not in the tables under measurement.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, bail};
use fib::read::Row;
use packet::sync::lock;
use packet::{Batch, Pool, checksum};
use ports::{OpenOptions, PcapReader, Port, PortError, PortInfo, QueueStats, RxQueue, TxQueue};
use tempfile::TempDir;

use super::frames::{self, port_mac};
use super::routes;
use super::single_core::{ROUTER_PORTS, SingleCore};

/// Turns without a packet after which no more come.
const IDLE_TURNS: usize = 4_096;

/// Fewest frames that are sent.
const FEWEST: usize = 4_096;

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
        let mut of_version = self.lengths.iter().filter(|((of, _), _)| *of == version);
        of_version.find_map(|((_, length), prefixes)| {
            let mask = u128::MAX.checked_shl(128 - u32::from(*length)).unwrap_or(0);
            prefixes.get(&(address & mask)).copied()
        })
    }

    /// The port that a frame leaves by, and what it is then; `None` if it is left to Linux.
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

/// The port, the first byte of the IP header (packets with options go another way through a router), and the addresses.
type Flow = (usize, u8, Vec<u8>);

fn flow(port: usize, frame: &[u8]) -> Flow {
    let first = frame.get(14).copied().unwrap_or(0);
    let addresses = if first >> 4 == 4 { 26..34 } else { 22..54 };
    (port, first, frame.get(addresses).map_or(Vec::new(), <[u8]>::to_vec))
}

/// A name for a vdev of DPDK that this process has not had.
pub(super) fn vdev(kind: &str) -> String {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("{kind}{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A port that receives nothing, and keeps a copy of each frame that it sends.
struct Keeper {
    inner: Box<dyn Port>,
    sent: Arc<Mutex<Vec<Vec<u8>>>>,
}

struct KeeperTx {
    inner: Box<dyn TxQueue>,
    sent: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Port for Keeper {
    fn info(&self) -> PortInfo {
        self.inner.info()
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        self.inner.take_rx(queue)
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        Ok(Box::new(KeeperTx { inner: self.inner.take_tx(queue)?, sent: self.sent.clone() }))
    }

    fn set_promiscuous(&mut self) -> Result<(), PortError> {
        self.inner.set_promiscuous()
    }
}

impl TxQueue for KeeperTx {
    fn send(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        lock(&self.sent).extend(batch.iter().map(|packet| packet.data().to_vec()));
        // All of it: the port frees what it is given.
        self.inner.send(pool, batch)
    }

    fn stats(&self) -> QueueStats {
        self.inner.stats()
    }
}

/// Sends numbered copies of the frames through a router that `build` makes of four ports; they come in by the first.
///
/// # Errors
///
/// A frame was lost, changed, added or overtaken, left by another port, or did not reach Linux; the message says which.
pub(super) fn prove(
    sent: &[Vec<u8>],
    model: &Model,
    over_dpdk: bool,
    build: impl FnOnce([Box<dyn Port>; ROUTER_PORTS]) -> Result<SingleCore>,
) -> Result<()> {
    let folder = TempDir::new()?;
    let file = |port: usize| folder.path().join(format!("{port}.pcap"));
    let sent: Vec<Vec<u8>> = sent.iter().cycle().take(sent.len().max(FEWEST)).cloned().collect();
    let sent: Vec<Vec<u8>> =
        sent.into_iter().enumerate().map(|(number, frame)| numbered(frame, number)).collect();
    frames::write_pcap(&file(0), &sent)?;
    let kept: [Arc<Mutex<Vec<Vec<u8>>>>; ROUTER_PORTS] = Default::default();
    let open = |port: usize| {
        let (path, name) = (file(port), vdev("net_pcap"));
        let spec = match (over_dpdk, port) {
            (true, 0) => format!("dpdk:{name},rx_pcap={}", path.display()),
            (true, _) => format!("dpdk:{name},tx_pcap={}", path.display()),
            (false, 0) => format!("pcap:{}", path.display()),
            (false, _) => "null:".to_owned(),
        };
        let inner = ports::open(&spec, &OpenOptions::default())?;
        let keeper = |inner| Box::new(Keeper { inner, sent: kept[port].clone() }) as Box<dyn Port>;
        Ok::<_, PortError>(if over_dpdk || port == 0 { inner } else { keeper(inner) })
    };
    let mut router = build([open(0)?, open(1)?, open(2)?, open(3)?])?;
    let mut idle = 0;
    while idle < IDLE_TURNS {
        let before = router.packets();
        router.turn();
        idle = if router.packets() == before { idle + 1 } else { 0 };
    }
    let to_linux = router.given_to_linux();
    drop(router);

    let mut left: [Vec<Vec<u8>>; ROUTER_PORTS] = Default::default();
    for (port, (left, kept)) in left.iter_mut().zip(&kept).enumerate().skip(1) {
        *left = if over_dpdk { read(&file(port))? } else { std::mem::take(&mut *lock(kept)) };
    }
    let forwarded: Vec<_> = sent.iter().filter_map(|frame| model.forwarded(frame)).collect();
    let left_to_linux = sent.len() - forwarded.len();
    compare(forwarded.into_iter(), &left)?;
    if to_linux != left_to_linux as u64 {
        bail!("to Linux: {to_linux} frames went there; expected {left_to_linux}");
    }
    Ok(())
}

/// Writes a number into a frame: into the identification of an IPv4 packet, or the flow label of an IPv6 packet.
fn numbered(mut frame: Vec<u8>, number: usize) -> Vec<u8> {
    let ip = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    let number = (number as u16).to_be_bytes();
    if frame[ip] >> 4 == 6 {
        frame[ip + 2..ip + 4].copy_from_slice(&number);
    } else {
        frame[ip + 4..ip + 6].copy_from_slice(&number);
        let end = ip + usize::from(frame[ip] & 15) * 4;
        let sum = checksum::ipv4_header_compute(&frame[ip..end]);
        frame[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

/// Compares what left by each port, in this order, with what should have left by ports.
fn compare(
    expected: impl Iterator<Item = (usize, Vec<u8>)>,
    left: &[Vec<Vec<u8>>; ROUTER_PORTS],
) -> Result<()> {
    let mut flows: HashMap<Flow, VecDeque<Vec<u8>>> = HashMap::new();
    let mut count = 0;
    for (port, frame) in expected {
        flows.entry(flow(port, &frame)).or_default().push_back(frame);
        count += 1;
    }
    for (port, frame) in
        left.iter().enumerate().flat_map(|(port, left)| left.iter().map(move |frame| (port, frame)))
    {
        let awaited = flows.get_mut(&flow(port, frame)).and_then(VecDeque::pop_front);
        match awaited {
            Some(awaited) if awaited == *frame => {}
            Some(awaited) => bail!(
                "port {port} sent a frame that was changed, overtaken, or behind a lost one:\n  {}\nexpected\n  {}",
                hex(frame),
                hex(&awaited)
            ),
            None => bail!("port {port} sent a frame that was not expected there:\n  {}", hex(frame)),
        }
    }
    let lost: usize = flows.values().map(VecDeque::len).sum();
    if let Some(frame) = flows.values().find_map(VecDeque::front) {
        bail!("{lost} of {count} frames were lost; the first is\n  {}", hex(frame));
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<Vec<u8>>> {
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
        assert!(error.contains("of 4096 frames were lost"), "{error}");
    }

    #[test]
    fn frames_for_linux_have_to_reach_it() {
        let fib = drop_in::fib(&rows()).unwrap();
        let finding = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut sent = frames::templates(&rows(), 300, 64);
            sent.iter_mut().step_by(3).for_each(change);
            prove(&sent, &Model::of_drop_in(&rows(), &[]), false, |ports| drop_in::router(ports, &fib, 32))
        };
        finding(&|frame| frames::add_options(frame)).unwrap();
        finding(&|frame| frames::expire(frame)).unwrap();
        // The router drops what is shorter than its header says.
        let error = finding(&|frame| {
            frames::add_options(frame);
            frame[16] = 1;
        });
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "to Linux: 0 frames went there; expected 1366");
    }

    #[test]
    fn loss_change_overtaking_and_what_is_not_awaited_are_found() {
        let model = Model::new(&rows(), &[]);
        let template = frames::templates(&rows()[3..], 1, 64).remove(0);
        let sent = (0..4).filter_map(|number| model.forwarded(&numbered(template.clone(), number)));
        let sent: Vec<(usize, Vec<u8>)> = sent.collect();
        let port = sent[0].0;
        let finding = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
            let mut left: [Vec<Vec<u8>>; ROUTER_PORTS] = Default::default();
            left[port] = sent.iter().map(|(_, frame)| frame.clone()).collect();
            change(&mut left[port]);
            compare(sent.iter().cloned(), &left).map_err(|error| error.to_string())
        };
        assert_eq!(finding(&|_| ()), Ok(()));
        type Change = &'static dyn Fn(&mut Vec<Vec<u8>>);
        let changes: [(Change, &str); 4] = [
            (&|left: &mut Vec<Vec<u8>>| left.truncate(3), "1 of 4 frames were lost"),
            (&|left| left.swap(1, 2), "changed, overtaken"),
            (&|left| left[2][60] ^= 1, "changed, overtaken"),
            (&|left| left.push(left[3].clone()), "not expected there"),
        ];
        for (change, text) in changes {
            let error = finding(change).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
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
