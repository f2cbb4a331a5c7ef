//! What the native path needs to send a packet to a neighbour, in one cache line: the egress port, and the bytes that
//! stand before the packet on that link (the rewrite string).
//!
//! ```text
//!  byte 0      2        3       4                                        64 - length        64
//!       | port | length | niche | 0 0 0 0 ............................ 0 | rewrite string    |
//! ```
//!
//! The string stands at the end of the line, as in VPP: code that knows its length statically (14 for plain Ethernet)
//! copies that much, and everybody else may copy all of [`Adjacency::padded`] so that it ends where the packet begins:
//! one copy of fixed size, no loop, and no byte of the packet touched. That takes
//! [`Adjacency::LONGEST_REWRITE`] bytes of head room.
//!
//! # The niche
//!
//! `NextHop<Adjacency>` is to fit the same cache line, but has eight more kinds of values than `Adjacency`. The compiler
//! keeps these in byte 3: its type has one value, so 255 patterns of the byte are free to mean something else. The assertion
//! below holds the compiler to it.

use crate::NextHop;
use std::fmt;

/// The egress port of a neighbour and the bytes to put before a packet that goes there.
///
/// ```
/// use fib::Adjacency;
///
/// let to_core = Adjacency::ethernet(3, [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [0x08, 0x00]);
/// assert_eq!(to_core.port(), 3);
/// assert_eq!(to_core.rewrite(), [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
/// assert_eq!(to_core.to_string(), "02:00:00:00:00:01 port 3");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C, align(64))]
pub struct Adjacency {
    port: u16,
    length: u8,
    niche: Niche,
    padded: [u8; Adjacency::LONGEST_REWRITE],
}

/// A byte of which one pattern is used; see the essay.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
enum Niche {
    Adjacency = 0,
}

const _: () = assert!(size_of::<NextHop<Adjacency>>() == 64, "a next hop is one cache line");

impl Adjacency {
    /// The longest rewrite string, in bytes: Ethernet, two VLAN tags and nine MPLS labels, or Ethernet, IPv6 and six
    /// bytes more.
    pub const LONGEST_REWRITE: usize = 60;

    /// A neighbour behind `port` reached with the bytes of `rewrite` before the packet. An empty string is right for
    /// a link without a header (a TUN device). `None` if the string is longer than [`Adjacency::LONGEST_REWRITE`].
    pub fn new(port: u16, rewrite: &[u8]) -> Option<Adjacency> {
        let start = Adjacency::LONGEST_REWRITE.checked_sub(rewrite.len())?;
        let mut padded = [0; Adjacency::LONGEST_REWRITE];
        padded[start..].copy_from_slice(rewrite);
        Some(Adjacency { port, length: rewrite.len() as u8, niche: Niche::Adjacency, padded })
    }

    /// A neighbour on an Ethernet link. `ethertype` as it is on the wire: `[0x08, 0x00]` for IPv4.
    pub fn ethernet(port: u16, destination: [u8; 6], source: [u8; 6], ethertype: [u8; 2]) -> Adjacency {
        let mut header = [0; 14];
        header[..6].copy_from_slice(&destination);
        header[6..12].copy_from_slice(&source);
        header[12..].copy_from_slice(&ethertype);
        Adjacency::new(port, &header).expect("14 bytes fit")
    }

    /// A neighbour in a VLAN (IEEE 802.1Q) of an Ethernet link: a tag with the number of the VLAN and priority 0 stands
    /// before the `ethertype`.
    pub fn tagged(
        port: u16,
        destination: [u8; 6],
        source: [u8; 6],
        vlan: u16,
        ethertype: [u8; 2],
    ) -> Adjacency {
        let mut header = [0; 18];
        header[..6].copy_from_slice(&destination);
        header[6..12].copy_from_slice(&source);
        header[12..14].copy_from_slice(&[0x81, 0x00]);
        header[14..16].copy_from_slice(&(vlan & 0xfff).to_be_bytes());
        header[16..].copy_from_slice(&ethertype);
        Adjacency::new(port, &header).expect("18 bytes fit")
    }

    /// The port by which the packet leaves.
    #[inline]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The bytes to put before the packet.
    #[inline]
    pub fn rewrite(&self) -> &[u8] {
        // The minimum costs one instruction and shows the compiler that the range is in bounds.
        let length = usize::from(self.length).min(Adjacency::LONGEST_REWRITE);
        &self.padded[Adjacency::LONGEST_REWRITE - length..]
    }

    /// The bytes to put before the packet, with zeroes before them up to a fixed size; see the essay.
    #[inline]
    pub const fn padded(&self) -> &[u8; Adjacency::LONGEST_REWRITE] {
        &self.padded
    }
}

/// The neighbour's MAC address and the port, or the port alone where the string is too short for Ethernet.
impl fmt::Display for Adjacency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (14.., [a, b, c, d, e, g, ..]) = (self.length, self.rewrite()) {
            write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x} ")?;
        }
        write!(f, "port {}", self.port)
    }
}

impl fmt::Debug for Adjacency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adjacency").field("port", &self.port).field("rewrite", &self.rewrite()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rewrite_string_of_every_length_comes_back_and_ends_the_line() {
        let bytes: Vec<u8> = (1..=61).collect();
        for length in 0..=Adjacency::LONGEST_REWRITE {
            let adjacency = Adjacency::new(7, &bytes[..length]).unwrap();
            assert_eq!(adjacency.rewrite(), &bytes[..length]);
            assert!(adjacency.padded().ends_with(&bytes[..length]));
            assert!(adjacency.padded()[..Adjacency::LONGEST_REWRITE - length].iter().all(|&byte| byte == 0));
        }
        assert_eq!(Adjacency::new(7, &bytes), None);
    }

    #[test]
    fn a_tag_stands_before_the_type() {
        let adjacency = Adjacency::tagged(3, [1; 6], [2; 6], 4094, [0x86, 0xdd]);
        let expected = [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x81, 0, 0x0f, 0xfe, 0x86, 0xdd];
        assert_eq!((adjacency.port(), adjacency.rewrite()), (3, &expected[..]));
    }

    #[test]
    fn an_adjacency_in_a_next_hop_is_not_mistaken_for_a_special_one() {
        let blank = NextHop::Forward(Adjacency::new(0, &[]).unwrap());
        let full = NextHop::Forward(Adjacency::new(u16::MAX, &[255; 60]).unwrap());
        for special in [NextHop::NoRoute, NextHop::Blackhole, NextHop::Punt, NextHop::Resolve(0)] {
            assert!(blank != special && full != special);
        }
        assert_eq!(blank.to_string(), "via port 0");
    }
}
