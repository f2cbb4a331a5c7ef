//! Security associations as the kernel describes them.

use std::fmt;
use std::net::IpAddr;

use crate::change::InterfaceIndex;

use super::{Key, Replay, Selector};

/// A security association (`struct xfrm_usersa_info` and attributes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sa {
    /// What the kernel finds it by. The destination is that of the outer header.
    pub id: SaId,
    /// The source of the outer header.
    pub source: IpAddr,
    /// The inner packets that it is for; `None` is all of both families.
    pub selector: Option<Selector>,
    /// What it encloses.
    pub mode: Mode,
    /// The number by which templates of policies choose it (`reqid`); 0 is none.
    pub request_id: u32,
    /// Details of its work.
    pub flags: SaFlags,
    /// Whether it receives or sends, if that was said (Linux 6.10). Without it an SA may do both.
    pub direction: Option<SaDirection>,
    /// Sequence numbers and the replay window.
    pub replay: Replay,
    /// When it expires.
    pub limits: Limits,
    /// What it has done.
    pub usage: Usage,
    /// When a packet last used it, in seconds since 1970.
    pub last_used_at: Option<u64>,
    /// Packets that it refused.
    pub failures: Failures,
    /// The cipher that encrypts and authenticates, such as `rfc4106(gcm(aes))`.
    pub aead: Option<Algorithm>,
    /// The cipher that encrypts, such as `cbc(aes)`, or `ecb(cipher_null)`.
    pub encryption: Option<Algorithm>,
    /// The hash that authenticates, such as `hmac(sha256)`.
    pub authentication: Option<Algorithm>,
    /// The compression of IPComp, such as `deflate`.
    pub compression: Option<String>,
    /// What is between the outer header and ESP.
    pub encapsulation: Option<Encapsulation>,
    /// The mark that packets get which it has processed, with the bits that change.
    pub set_mark: Option<Mark>,
    /// The number of the XFRM interface that it belongs to; 0 is none.
    pub interface_id: u32,
    /// The card that does its work.
    pub offload: Option<Offload>,
    /// The length in bytes that ESP packets in tunnel mode are padded to (RFC 4303, 2.7); 0 is none.
    pub padded_length: u32,
    /// The only CPU that it is for (Linux 6.13).
    pub cpu: Option<u32>,
    /// The care-of address of Mobile IPv6.
    pub care_of_address: Option<IpAddr>,
    /// Whether it has a security context (SELinux).
    pub has_security_context: bool,
    /// How often the kernel sends NAT keepalives, in seconds (Linux 6.11); 0 is never.
    pub nat_keepalive_seconds: u32,
    /// How often the kernel reports a peer's new address behind NAT at most, in seconds (Linux 5.17); 0 is at once.
    pub mapping_report_seconds: u32,
    /// Attributes that we do not know, by number. An SA that has some should be left to the kernel.
    pub unknown: Vec<u16>,
}

impl Sa {
    /// Returns whether it has no algorithm yet: the kernel made it for an IKE daemon that asked for an SPI, or for a packet that waits.
    pub fn is_larval(&self) -> bool {
        self.aead.is_none()
            && self.encryption.is_none()
            && self.authentication.is_none()
            && self.compression.is_none()
    }
}

/// What the kernel finds an SA by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SaId {
    /// The destination of the outer header.
    pub destination: IpAddr,
    /// The security parameters index.
    pub spi: u32,
    /// ESP, AH or IPComp.
    pub protocol: Protocol,
    /// The marks of packets that it is for.
    pub mark: Mark,
}

impl fmt::Display for SaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SA {} spi {:#010x} to {}", self.protocol, self.spi, self.destination)?;
        if self.mark == Mark::default() { Ok(()) } else { write!(f, " mark {}", self.mark) }
    }
}

/// A protocol of IPsec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// Encapsulating Security Payload (RFC 4303).
    Esp,
    /// Authentication Header (RFC 4302).
    Ah,
    /// IP Payload Compression (RFC 3173).
    Comp,
    /// In templates: all three.
    Any,
    /// Another one: extension headers of Mobile IPv6.
    Other(u8),
}

impl Protocol {
    /// Returns the protocol of this number (IANA's, and 255 for all).
    pub fn of(number: u8) -> Protocol {
        match number {
            50 => Protocol::Esp,
            51 => Protocol::Ah,
            108 => Protocol::Comp,
            255 => Protocol::Any,
            other => Protocol::Other(other),
        }
    }

    /// Returns its number.
    pub fn number(self) -> u8 {
        match self {
            Protocol::Esp => 50,
            Protocol::Ah => 51,
            Protocol::Comp => 108,
            Protocol::Any => 255,
            Protocol::Other(number) => number,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Protocol::Esp => f.write_str("esp"),
            Protocol::Ah => f.write_str("ah"),
            Protocol::Comp => f.write_str("comp"),
            Protocol::Any => f.write_str("any"),
            Protocol::Other(number) => write!(f, "protocol {number}"),
        }
    }
}

/// A mark of packets, of which the bits in `mask` count. A mask of zero is for all packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mark {
    /// The mark.
    pub value: u32,
    /// The bits that count.
    pub mask: u32,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}/{:#x}", self.value, self.mask)
    }
}

/// What is enclosed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The payload of a packet.
    Transport,
    /// A whole packet.
    Tunnel,
    /// A packet without its addresses, which the SA knows (Bound End-to-End Tunnel).
    Beet,
    /// Another one: route optimisation of Mobile IPv6 (2), IP-TFS (5).
    Other(u8),
}

impl Mode {
    /// Returns the mode of this number (`XFRM_MODE_*`).
    pub fn of(number: u8) -> Mode {
        match number {
            0 => Mode::Transport,
            1 => Mode::Tunnel,
            4 => Mode::Beet,
            other => Mode::Other(other),
        }
    }
}

/// `XFRM_STATE_*` and `XFRM_SA_XFLAG_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaFlags {
    /// Does not copy ECN bits between the headers.
    pub no_ecn: bool,
    /// Copies the code point of the outer header to the inner one.
    pub decapsulates_dscp: bool,
    /// Clears "don't fragment" in the outer header.
    pub no_path_mtu_discovery: bool,
    /// Receives for any destination address.
    pub wildcard_receive: bool,
    /// Lets ICMP errors pass whose inside the selector matches.
    pub icmp: bool,
    /// Encloses both families.
    pub any_family: bool,
    /// Aligns AH to four bytes in IPv6, against RFC 4302.
    pub aligns_to_four: bool,
    /// Extended sequence numbers (RFC 4303, 2.2.1).
    pub extended_sequence_numbers: bool,
    /// Does not copy the code point of the inner header to the outer one.
    pub no_encapsulated_dscp: bool,
    /// Goes on when sequence numbers begin anew.
    pub may_wrap: bool,
    /// Extra flags that we do not know; to be treated as unknown attributes.
    pub unknown: u32,
}

/// Whether an SA receives or sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaDirection {
    /// It receives.
    In,
    /// It sends.
    Out,
}

/// Two limits: at the soft one the kernel reports to the IKE daemon, which makes another SA; at the hard one the SA goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// Where the kernel reports to daemons.
    pub soft: Option<u64>,
    /// At which the SA or policy is deleted.
    pub hard: Option<u64>,
}

/// When an SA or policy expires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// By bytes; for SAs of the packets as they are in plain.
    pub bytes: Limit,
    /// By packets.
    pub packets: Limit,
    /// By seconds since it was added. The kernel's timer sees to it.
    pub seconds_since_add: Limit,
    /// By seconds since its first packet. The kernel's timer sees to it once [`Usage::used_at`] is known to it.
    pub seconds_since_use: Limit,
}

/// What an SA or policy has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// When it was added, in seconds since 1970.
    pub added_at: u64,
    /// When its first packet came, in seconds since 1970.
    pub used_at: Option<u64>,
}

/// Packets that an SA refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// Older than the replay window.
    pub replay_window: u32,
    /// Received before.
    pub replay: u32,
    /// Of a wrong integrity check value.
    pub integrity: u32,
}

/// An algorithm under the kernel's name for it, with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Algorithm {
    /// The kernel's name, such as `hmac(sha256)`.
    pub name: String,
    /// The key.
    pub key: Key,
    /// Length of the integrity check value in bits; `None` where there is none, or an old kernel leaves it to the algorithm.
    pub icv_bits: Option<u32>,
}

/// What is between the outer header and ESP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encapsulation {
    /// What it is.
    pub kind: EncapsulationKind,
    /// The source port.
    pub source_port: u16,
    /// The destination port.
    pub destination_port: u16,
    /// The original address of the peer in transport mode (RFC 3948, 3.1.2), unspecified where it does not matter.
    pub original_address: IpAddr,
}

/// What carries ESP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncapsulationKind {
    /// UDP (RFC 3948).
    Udp,
    /// UDP after eight bytes of zeros, an old draft of it, which new kernels do not have.
    UdpNonIke,
    /// TCP (RFC 8229).
    Tcp,
    /// Another one.
    Other(u16),
}

impl EncapsulationKind {
    /// Returns the kind of this number (`UDP_ENCAP_*`, `TCP_ENCAP_ESPINTCP`).
    pub fn of(number: u16) -> EncapsulationKind {
        match number {
            1 => EncapsulationKind::UdpNonIke,
            2 => EncapsulationKind::Udp,
            7 => EncapsulationKind::Tcp,
            other => EncapsulationKind::Other(other),
        }
    }
}

/// A card that does work of an SA or policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// The card's interface.
    pub interface: InterfaceIndex,
    /// `XFRM_OFFLOAD_*`: 2 is inbound, 4 is all of the work and not only the ciphers.
    pub flags: u8,
}

/// Which limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The soft one: the kernel reports to daemons.
    Soft,
    /// The hard one: it is deleted.
    Hard,
}
