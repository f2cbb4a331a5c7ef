//! Links to the other servers of a cluster. The decisions are crate `fabric`'s; here are packets and ports.
//!
//! | element | where it stands |
//! | --- | --- |
//! | Fabric | by itself: what this node and its cluster are |
//! | ToFabric | before the links: chooses the path of packets that enter, sends on what is relayed |
//! | FromFabric | behind each link: relays, or gives packets their next hop's header |
//! | FabricHello | on the slow thread: says and hears hellos, and tells the others which ways are alive |
//! | FabricEncap | before ToFabric: puts whole frames into the fabric, for the cluster's host and for routing nodes |
//! | FabricHost | on the leader's slow thread: the cluster's ports as Linux sees them |
//! | FabricShare | before a port: gives each input node its share when the port is overloaded |

mod adjacencies;
mod fabric_encap;
mod fabric_hello;
mod fabric_host;
#[cfg(test)]
mod fabric_host_tests;
mod fabric_share;
mod from_fabric;
mod host_ports;
mod info;
mod keys;
mod node;
#[cfg(test)]
mod tests;
mod to_fabric;
mod traffic;
mod wire;

use std::sync::Mutex;

use graph::{Class, Context, Element};
use packet::Batch;
use ports::KernelRelay;

pub use adjacencies::FabricAdjacencies;
pub use host_ports::{FabricHostPorts, HostPort};
pub use keys::FabricKeys;
pub use traffic::{check_traffic_rules, traffic_rule};

/// What relays in the kernel between a node's dedicated links, for the node's Fabric element: it is kept true to the ways that are alive.
#[derive(Debug)]
pub struct FabricRelay(pub Mutex<KernelRelay>);

impl FabricRelay {
    /// Where it lies among what elements share.
    pub const KEY: &str = "fabric-relay";
}

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &fabric_encap::CLASS,
    &fabric_hello::CLASS,
    &fabric_host::CLASS,
    &fabric_share::CLASS,
    &from_fabric::CLASS,
    &info::CLASS,
    &to_fabric::CLASS,
];

/// Stands for an element when a configuration is only checked.
struct Checked;

impl Element for Checked {}

/// Sends each packet out by its output; numbers from 0x8000 on drop it, for the reason that `reason` knows.
#[inline(always)]
fn send(cx: &mut Context, batch: &mut Batch, outputs: &[u16], reason: impl Fn(u16) -> &'static str) {
    let Some(&first) = outputs.first() else { return };
    let is_same = outputs.iter().fold(0, |difference, output| difference | (output ^ first)) == 0;
    match first {
        0 if is_same => {}
        _ if is_same && first < 0x8000 => cx.emit_batch(usize::from(first), batch),
        _ if outputs.iter().all(|&output| output < 0x8000) => cx.scatter(batch, outputs),
        _ => {
            for (packet, &output) in batch.drain().zip(outputs) {
                if output < 0x8000 {
                    cx.emit(usize::from(output), packet);
                } else {
                    cx.drop(packet, reason(output));
                }
            }
        }
    }
}
