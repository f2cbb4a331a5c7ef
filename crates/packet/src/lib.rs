//! Packets as a router sees them: fixed-size frames out of a per-worker pool, batches of them,
//! views of the protocols in their bytes, and checksums.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`frame`] | [`Packet`]: the owned handle to a frame; metadata layout |
//! | [`pool`] | [`Pool`]: one per worker, bulk alloc and free, frames return to their owner |
//! | `driver_frames` | [`DriverFrames`]: frames of a driver with its own allocator |
//! | `memory` | [`Memory`]: what frames lie in |
//! | [`batch`] | [`Batch`]: up to 256 packets that travel together |
//! | [`family`] | [`Family`] and [`IpVersion`]: what differs between IPv4 and IPv6 |
//! | [`flow`] | [`FlowHash`](flow::FlowHash): which flow a frame belongs to |
//! | [`multipath`] | [`PathHash`](multipath::PathHash): which path of a multipath route a packet takes |
//! | [`filter_program`] | programs of the BSD packet filter: check and interpreter |
//! | [`wire`] | Ethernet, ARP, IPv4, IPv6, ICMP, ICMPv6, UDP, TCP |
//! | `plain_header` | [`PlainHeader`]: an IPv4 header without options, in registers |
//! | `plain_frames` | [`PlainFrames`]: IP headers, eight at a time |
//! | `plain_ipv6_header` | [`PlainIpv6Header`]: an IPv6 header, in registers |
//! | [`checksum`] | RFC 1071 sums and RFC 1624 incremental updates |
//! | [`prefetch()`] | asking for memory before it is needed |
//! | [`pulse`] | how a thread shows that it is at work |
//! | [`random`] | pseudo-random numbers |
//! | [`SharedMemory`] | memory that is read from outside the process |
//! | [`sync`] | locks whose holders may panic |
//! | [`Vectors`] | which form of a hot loop runs on this processor |
//! | [`division`] | packets in which several are merged, and how they are divided |
//! | [`cycles`] | the time stamp counter, our unit of cost |
//!
//! This crate depends on nothing else of Brickway.

pub mod batch;
pub mod checksum;
pub mod cycles;
pub mod division;
mod driver_frames;
pub mod family;
pub mod filter_program;
pub mod flow;
pub mod frame;
mod mask;
mod memory;
pub mod multipath;
pub mod plain_frames;
mod plain_header;
mod plain_ipv6_header;
pub mod pool;
mod prefetch;
pub mod pulse;
pub mod random;
mod return_stack;
mod shared_memory;
pub mod sync;
mod vectors;
pub mod wire;

pub use batch::{Batch, MAX_BATCH};
pub use driver_frames::DriverFrames;
pub use family::{Family, IpVersion};
pub use frame::{Annotations, Merged, Packet, PacketType};
pub use mask::Mask;
pub use memory::{Memory, prefer_huge_pages};
pub use plain_frames::{PlainFrames, Seen};
pub use plain_header::PlainHeader;
pub use plain_ipv6_header::PlainIpv6Header;
pub use pool::{Pool, PoolOptions, PoolStats};
pub use prefetch::{prefetch, prefetch_address};
pub use shared_memory::SharedMemory;
pub use vectors::Vectors;
