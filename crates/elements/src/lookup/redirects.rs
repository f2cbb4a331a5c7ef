//! Packets that leave by the port they came by. Their sender could have given them to the next router itself, and may learn
//! that by an ICMP redirect:
//!
//! RFC 1812, 5.2.7.2: a router generates redirects where "the packet is being forwarded out the same physical interface that it
//! was received from", "the IP source address in the packet is on the same Logical IP (sub)network as the next-hop IP
//! address", and "the packet does not contain an IP source route option". RFC 4861, 8.2: "a router SHOULD send a redirect
//! message, subject to rate limiting, whenever it forwards a packet that is not explicitly addressed to itself" whose source is
//! a neighbour, for which there is "a better first-hop node on the same link".
//!
//! Linux knows who is a neighbour of whom, and whether an interface sends redirects at all. So it gets such a packet
//! now and then, forwards it and says what there is to say; all others go on. Only the first packet of a batch is looked at,
//! which costs nothing: with little traffic that is every packet, with much of it each kind comes first often enough. Looking at
//! the outputs of all of them took up to a cycle a packet.

use packet::Packet;

/// The least time between two packets for Linux, on each worker: five a second, of which Linux answers each sender ever more
/// rarely. They come late, after others of their flow, so there should not be many.
const INTERVAL_NS: u64 = 200_000_000;

/// Which packets go to Linux for it.
pub(super) struct Redirects {
    /// The output for them.
    output: u16,
    /// When the next one may go.
    next_ns: u64,
    /// How many went.
    pub(super) count: u64,
}

impl Redirects {
    /// Sends them out by `output`.
    pub(super) fn new(output: u16) -> Self {
        Self { output, next_ns: 0, count: 0 }
    }

    /// Whether a packet that leaves by the port it came by goes to Linux: then it gets the output for that.
    #[cold]
    pub(super) fn takes(&mut self, output: &mut u16, now_ns: u64) -> bool {
        if now_ns < self.next_ns {
            return false;
        }
        self.next_ns = now_ns + INTERVAL_NS;
        self.count += 1;
        *output = self.output;
        true
    }
}

/// The port by which a packet came, which its paint says. Paint 0 is that of no port.
#[inline(always)]
pub(super) fn input_port(packet: &Packet) -> u16 {
    u16::from(packet.annotations().paint()).wrapping_sub(1)
}
