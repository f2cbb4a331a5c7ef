//! What Linux counted of its network devices: packets and bytes that they received and sent, also what Linux forwarded.
//!
//! `/proc/net/dev` (proc(5)) has all devices in one read and takes no lock; netlink would wait for a program that changes
//! interfaces.

use std::collections::BTreeMap;
use std::{fs, io};

use crate::interface::{EthtoolValue, Interface, ask_driver};
use crate::zero_copy;

/// Packets and bytes one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct DeviceTraffic {
    /// Packets. What was merged, or is to be segmented, is one of them.
    pub packets: u64,
    /// Bytes, as the device's driver counts them. Most count the Ethernet header, a veth with GRO on does not.
    pub bytes: u64,
}

/// What a device moved since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct DeviceCounts {
    /// Received.
    pub rx: DeviceTraffic,
    /// Sent.
    pub tx: DeviceTraffic,
}

/// Which number of a line says what was dropped on the way out.
const UNSENT: usize = 11;

/// Drivers that count a frame in which several packets are merged as one when they send it whole: `veth_xmit()`, `tun_do_read()`,
/// `virtnet_free_old_xmit()`. Others count packets, or it is not known.
const COUNT_FRAMES: [&str; 3] = ["veth", "tun", "virtio_net"];

/// Returns whether an interface sends merged packets as one frame and counts that as one packet.
pub fn counts_frames(interface: &str) -> bool {
    const ETHTOOL_GTSO: u32 = 0x1e;
    let counts = zero_copy::driver(interface).is_ok_and(|driver| COUNT_FRAMES.contains(&driver.as_str()));
    let question = EthtoolValue { command: ETHTOOL_GTSO, data: 0 };
    counts && ask_driver(interface, question).is_ok_and(|answer| answer.data != 0)
}

impl std::ops::Add for DeviceTraffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}

impl std::ops::Sub for DeviceTraffic {
    type Output = Self;

    /// Not below zero.
    fn sub(self, other: Self) -> Self {
        let (packets, bytes) =
            (self.packets.saturating_sub(other.packets), self.bytes.saturating_sub(other.bytes));
        Self { packets, bytes }
    }
}

impl std::ops::Add for DeviceCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { rx: self.rx + other.rx, tx: self.tx + other.tx }
    }
}

impl std::ops::Sub for DeviceCounts {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { rx: self.rx - other.rx, tx: self.tx - other.tx }
    }
}

/// The counts of all devices of the calling thread's network namespace at one moment, by name.
#[derive(Debug, Default)]
pub struct Devices(BTreeMap<String, DeviceCounts>);

impl Devices {
    /// Asks Linux.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn read() -> io::Result<Devices> {
        Ok(Devices(parse(&fs::read("/proc/thread-self/net/dev")?)))
    }

    /// Returns how many packets were lost on the way out by the interface that has this name now.
    pub(crate) fn unsent(interface: &str) -> u64 {
        let unsent = |text: &str| {
            let (_, numbers) = text
                .lines()
                .find_map(|line| line.trim_start().split_once(':').filter(|(name, _)| *name == interface))?;
            numbers.split_whitespace().nth(UNSENT)?.parse().ok()
        };
        let text = fs::read_to_string("/proc/thread-self/net/dev");
        text.ok().and_then(|text| unsent(&text)).unwrap_or(0)
    }

    /// Returns the number of the interface that was named so when this process opened it, and what its device counted.
    pub fn of(&self, interface: &str) -> Option<(u32, DeviceCounts)> {
        let known = Interface::existing(interface).ok()?;
        let index = known.index().ok()?;
        Some((index as u32, *self.0.get(&known.kernel_name())?))
    }
}

/// Reads the lines of devices: a name, a colon, eight numbers of what was received and eight of what was sent, each beginning with
/// bytes and packets. Others are skipped.
fn parse(text: &[u8]) -> BTreeMap<String, DeviceCounts> {
    let text = String::from_utf8_lossy(text);
    let device = |line: &str| {
        let (name, numbers) = line.trim_start().split_once(':')?;
        let numbers: Vec<u64> = numbers.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let [rx_bytes, rx_packets, _, _, _, _, _, _, tx_bytes, tx_packets, ..] = numbers[..] else {
            return None;
        };
        let counts = DeviceCounts {
            rx: DeviceTraffic { packets: rx_packets, bytes: rx_bytes },
            tx: DeviceTraffic { packets: tx_packets, bytes: tx_bytes },
        };
        Some((name.to_owned(), counts))
    };
    text.lines().filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{in_namespace, ip, numbered_frame, pool, send, veth_pair};
    use crate::{OpenOptions, open};

    #[test]
    fn a_device_has_what_went_over_it_whatever_its_name_is() {
        in_namespace(|| {
            veth_pair("left", "right");
            let options = OpenOptions { rx_queues: 0, warn: |_| {}, ..OpenOptions::default() };
            let mut port = open("left", &options).unwrap();
            ip("link set left name wan0");
            let before = Devices::read().unwrap();
            let (mut pool, mut tx) = (pool(64), port.take_tx(0).unwrap());
            let frames: Vec<_> = (0..3).map(|number| numbered_frame(number, 100)).collect();
            send(&mut *tx, &mut pool, &frames);
            let now = Devices::read().unwrap();
            let (number, sent) = now.of("left").unwrap();
            assert_eq!(sent.tx.packets - before.of("left").unwrap().1.tx.packets, 3);
            assert_eq!(sent.tx.bytes - before.of("left").unwrap().1.tx.bytes, 300);
            assert_eq!(now.of("wan0"), Some((number, sent)));
            assert_eq!(now.of("right").unwrap().1.rx.packets, sent.tx.packets);
            assert_eq!(now.of("none"), None);
        });
    }

    #[test]
    fn a_veth_counts_frames_while_it_sends_merged_packets_whole() {
        in_namespace(|| {
            veth_pair("left", "right");
            assert!(counts_frames("left"));
            crate::testing::command("ethtool", "-K left tso off");
            assert_eq!(["left", "lo", "none"].map(counts_frames), [false; 3]);
        });
    }

    #[test]
    fn lines_that_are_no_devices_are_skipped() {
        let text = b"Inter-|   Receive\n face |bytes\n  eth1: 7 1 0 0 0 0 0 0 9 2 0 0 0 0 0 0\nbr-\x1b[3: 1 2 3\n lo:x\n";
        let counts = DeviceCounts {
            rx: DeviceTraffic { packets: 1, bytes: 7 },
            tx: DeviceTraffic { packets: 2, bytes: 9 },
        };
        assert_eq!(parse(text), BTreeMap::from([("eth1".to_owned(), counts)]));
    }
}
