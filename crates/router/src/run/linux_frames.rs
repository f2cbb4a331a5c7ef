//! What a capture has of packets that no worker sees: those that ports' drivers left to Linux, and those that Linux sends.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::time::{Duration, Instant};

use control::api::SeenPacket;
use elements::devices::OpenPort;
use ports::{LinuxFrame, LinuxFrames};

use super::capture::hex;
use super::live::Live;
use crate::capture::places::Places;
use crate::capture::recorder::{Filter, Record};

/// How often interfaces are looked up, and how long a packet that a worker had may be on its way back to Linux.
const LOOK: Duration = Duration::from_secs(1);
/// Packets that wait until it is known that no worker had them, and their bytes.
const MOST_WAITING: usize = 4_096;
const MOST_WAITING_BYTES: usize = 4 << 20;
/// Memory of all rings of a capture. A port's part has room for some frames at least.
const RING_BYTES: usize = 32 << 20;
/// Bytes of a frame by which it is known whose it is.
const HEADERS: usize = 128;
/// Bytes of both link addresses of a frame.
const LINK_ADDRESSES: usize = 12;

/// The packets that Linux has of some ports.
pub(super) struct OfLinux<'a> {
    live: &'a Live,
    bytes: usize,
    filter: Option<Filter>,
    ports: Vec<PortOfLinux>,
    looked: Instant,
    rotated: Instant,
    /// What workers had lately: they hand some of it to Linux, where it comes in once more. By its hash, how often, of late and before.
    handed: [HashMap<u64, u32>; 2],
    hasher: RandomState,
    /// With the place of the port, and the hash.
    waiting: Vec<(usize, u64, LinuxFrame)>,
}

struct PortOfLinux {
    name: String,
    /// Whether what comes in is captured, and what is sent.
    directions: [bool; 2],
    frames: Option<LinuxFrames>,
    captured: u64,
    lost: u64,
    /// Whether it was said that they are not to be had.
    is_told: bool,
}

impl<'a> OfLinux<'a> {
    /// Begins, at the ports among these places whose workers and Linux do not see the same packets. Of each the first so many bytes
    /// are kept.
    pub(super) fn begin(live: &'a Live, bytes: usize, places: &Places, filter: Option<Filter>) -> Self {
        let drivers: HashMap<String, String> =
            live.ports().unwrap_or_default().into_iter().map(|row| (row.name, row.driver)).collect();
        // Packet sockets of workers' see what Linux sees. A VLAN has no driver.
        let is_apart = |name: &str| drivers.get(name).is_some_and(|name| ["af_xdp", ""].contains(&&name[..]));
        let mut ports: Vec<PortOfLinux> = Vec::new();
        for spot in places.spots.iter().filter(|spot| places.are_ports() && is_apart(&spot.interface)) {
            let known = ports.iter().position(|port| port.name == spot.interface).unwrap_or_else(|| {
                let name = spot.interface.clone();
                ports.push(PortOfLinux {
                    name,
                    directions: [false; 2],
                    frames: None,
                    captured: 0,
                    lost: 0,
                    is_told: false,
                });
                ports.len() - 1
            });
            ports[known].directions[usize::from(spot.direction == "out")] = true;
        }
        let mut all = Self {
            live,
            bytes,
            filter,
            ports,
            looked: Instant::now(),
            rotated: Instant::now(),
            handed: Default::default(),
            hasher: RandomState::new(),
            waiting: Vec::new(),
        };
        all.look(places);
        all
    }

    /// Returns whether a port's packets that Linux has are captured; and how many were so far, and how many there was no room for.
    pub(super) fn counts(&self, port: &str) -> Option<(u64, u64)> {
        let port = self.ports.iter().find(|known| known.name == port && known.frames.is_some())?;
        Some((port.captured, port.lost))
    }

    /// Looks for interfaces that came or became others.
    fn look(&mut self, places: &Places) {
        if self.ports.is_empty() {
            return;
        }
        let interfaces = self.live.interfaces(places);
        let memory = RING_BYTES / self.ports.len();
        for port in &mut self.ports {
            let index = interfaces.by_name.get(&port.name).and_then(|&index| i32::try_from(index).ok());
            let Some(index) = index.filter(|&index| index > 0) else { continue };
            if port.frames.as_ref().is_none_or(|frames| !frames.is_on(index)) {
                // Without them the counts say what is not captured.
                let frames = LinuxFrames::of(index, self.bytes.max(HEADERS), memory);
                if let Err(error) = &frames
                    && !std::mem::replace(&mut port.is_told, true)
                {
                    let name = &port.name;
                    tracing::warn!("port {name}: its packets that Linux has are not captured: {error}");
                }
                port.frames = frames.ok();
            }
        }
        self.looked = Instant::now();
    }

    /// Reads what came, once all that was read before is taken. It waits until [`OfLinux::take`], before which all that workers
    /// recorded until the last of [`OfLinux::times`] is noted.
    pub(super) fn read(&mut self, places: &Places) {
        if self.looked.elapsed() >= LOOK {
            self.look(places);
        }
        let Self { live, ports, filter, waiting, hasher, bytes, .. } = self;
        let mut turn = Turn { frames: MOST_WAITING, bytes: MOST_WAITING_BYTES };
        let is_taken = waiting.is_empty();
        for (place, port) in ports.iter_mut().enumerate() {
            let Some(frames) = &mut port.frames else { continue };
            port.lost += frames.lost();
            let steering = live.shared.get::<OpenPort>(&OpenPort::key(&port.name));
            let is_workers = |frame: &LinuxFrame| {
                let mut takes = false;
                let _ = steering.as_ref().map(|steering| {
                    steering.on_host(|host| {
                        takes = host.takes_tapped(&frame.data, frame.length as usize);
                        Ok(())
                    })
                });
                takes && !frame.is_sent
            };
            let all = std::iter::from_fn(|| if is_taken { frames.take() } else { None });
            turn.take(all, |mut frame| {
                let is_selected =
                    || filter.as_ref().is_none_or(|filter| filter.selects(true, &frame.data, frame.length));
                if !port.directions[usize::from(frame.is_sent)] || !is_selected() || is_workers(&frame) {
                    return 0;
                }
                frame.data.truncate(*bytes);
                let kept = frame.data.len();
                let hash = hash(hasher, &port.name, frame.length, &frame.data);
                waiting.push((place, hash, frame));
                kept
            });
        }
    }

    /// Notes what a worker recorded of a port's input.
    pub(super) fn note(&mut self, port: &str, record: &Record) {
        if self.ports.iter().any(|known| known.name == port) {
            let hash = hash(&self.hasher, port, record.length, &record.data);
            *self.handed[0].entry(hash).or_default() += 1;
        }
    }

    /// The times of the first and the last packet that wait.
    pub(super) fn times(&self) -> Option<(u64, u64)> {
        let times = || self.waiting.iter().map(|(_, _, frame)| frame.time_ns);
        Some((times().min()?, times().max()?))
    }

    /// Takes what was read and no worker had.
    pub(super) fn take(&mut self) -> Vec<SeenPacket> {
        let mut packets = Vec::with_capacity(self.waiting.len());
        for (place, hash, frame) in self.waiting.drain(..) {
            let mut known = self.handed.iter_mut().filter_map(|handed| handed.get_mut(&hash));
            if !frame.is_sent
                && let Some(left) = known.find(|left| **left > 0)
            {
                *left -= 1;
                continue;
            }
            let port = &mut self.ports[place];
            port.captured += 1;
            packets.push(SeenPacket {
                time_ns: frame.time_ns,
                interface: port.name.clone(),
                direction: if frame.is_sent { "out" } else { "in" }.to_owned(),
                verdict: if frame.is_sent { "sent by Linux" } else { "left to Linux" }.to_owned(),
                is_ethernet: true,
                length: frame.length,
                stands_for: 1,
                data: hex(&frame.data),
                ..SeenPacket::default()
            });
        }
        // By what was taken, not by time alone: a client that is slow keeps what waits from being taken.
        if self.rotated.elapsed() >= LOOK {
            self.handed[1] = mem::take(&mut self.handed[0]);
            self.rotated = Instant::now();
        }
        packets
    }
}

/// What may still be read in a turn. It ends however fast frames come, those too of which nothing is kept.
struct Turn {
    frames: usize,
    bytes: usize,
}

impl Turn {
    /// Takes frames while the turn lasts. `keep` returns how many bytes of one it kept.
    fn take<F>(&mut self, mut frames: impl Iterator<Item = F>, mut keep: impl FnMut(F) -> usize) {
        while self.frames > 0 && self.bytes > 0 {
            let Some(frame) = frames.next() else { return };
            self.frames -= 1;
            self.bytes = self.bytes.saturating_sub(keep(frame));
        }
    }
}

/// By what a packet is known that a worker had and Linux gets: all but its link addresses, which the lookup writes anew.
fn hash(hasher: &RandomState, port: &str, length: u32, data: &[u8]) -> u64 {
    hasher.hash_one((port, length, data.get(LINK_ADDRESSES..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_though_frames_come_without_end() {
        let mut turn = Turn { frames: 100, bytes: 1_000 };
        let mut seen = 0;
        turn.take(std::iter::repeat(()), |()| {
            seen += 1;
            0
        });
        assert_eq!(seen, 100);
        turn = Turn { frames: 100, bytes: 1_000 };
        turn.take(std::iter::repeat(()), |()| 300);
        assert_eq!(turn.frames, 96);
    }
}
