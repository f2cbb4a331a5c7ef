//! What the drivers of cards make of the frames that they fill themselves (zero-copy AF_XDP).

use std::io;

use packet::PoolOptions;
use packet::frame::{DATA_OFFSET, METADATA_BYTES};

use crate::XdpFeatures;
use crate::interface::{EthtoolCommand, ask_driver};

/// Room that the kernel leaves before a packet for XDP programs (XDP_PACKET_HEADROOM).
const XDP_HEADROOM: usize = 256;
/// What lies before a packet in a chunk: our metadata, and that room.
const BEFORE_PACKET: usize = METADATA_BYTES + XDP_HEADROOM;
/// Ethernet header and a VLAN tag.
const LINK_HEADER: usize = 18;

/// Drivers whose cards have lengths of buffers in units, in bytes: they use whole units of a frame. A longer packet comes in several
/// buffers, each of which the driver hands over as a packet. Of drivers/net/ethernet/intel in Linux 6.12 and 7.3: SRRCTL.BSIZEPKT of
/// igb, igc and ixgbe (82599), the context's DBUFF of i40e and ice.
const UNITS: [(&str, usize); 5] =
    [("igb", 1_024), ("igc", 1_024), ("ixgbe", 1_024), ("i40e", 128), ("ice", 128)];

/// Drivers that give buffers of an earlier round for packets, for good, once a receive ring ran dry; so their ports copy. igb did with
/// Linux 7.3.4, emulated. The cause, as its source reads: where it gets fewer buffers than it wants, `igb_alloc_rx_buffers_zc()`
/// leaves an old length behind the last one, and `igb_clean_rx_irq_zc()` takes that for a packet.
const OUT_OF_STEP: [&str; 1] = ["igb"];

/// Whether ports of this driver go without copies where nobody asks for them.
pub fn is_usual_for(driver: &str) -> bool {
    !OUT_OF_STEP.contains(&driver)
}

fn unit(driver: &str) -> usize {
    UNITS.iter().find(|(name, _)| *name == driver).map_or(1, |(_, unit)| *unit)
}

/// The bytes of a chunk that a driver fills.
fn filled(driver: &str, chunk_bytes: usize) -> usize {
    let room = chunk_bytes.saturating_sub(BEFORE_PACKET);
    room - room % unit(driver)
}

/// Returns what is wrong with chunks of so many bytes for packets of this MTU; `None` if the driver fills such a chunk with a whole
/// packet.
pub(crate) fn problem(driver: &str, chunk_bytes: usize, mtu: usize) -> Option<String> {
    let (filled, longest) = (filled(driver, chunk_bytes), mtu + LINK_HEADER);
    (filled < longest).then(|| {
        format!(
            "the driver {driver} fills {filled} bytes of a frame, and packets have up to {longest}; expected --frame-size {}",
            frame_bytes(driver, mtu)
        )
    })
}

/// How many bytes a frame of a pool has to hold, so that the driver fills it with a whole packet.
fn frame_bytes(driver: &str, mtu: usize) -> usize {
    BEFORE_PACKET + (mtu + LINK_HEADER).next_multiple_of(unit(driver)) - DATA_OFFSET
}

/// Returns how many bytes a frame has to hold for zero-copy at this interface; `None` where the driver has none.
pub fn frame_bytes_at(index: u32, name: &str, mtu: usize) -> Option<usize> {
    let has_zero_copy = XdpFeatures::ask(index).is_ok_and(XdpFeatures::is_zero_copy);
    has_zero_copy
        .then(|| frame_bytes(&driver(name).unwrap_or_default(), mtu).max(PoolOptions::default().data_bytes))
}

/// struct ethtool_drvinfo.
#[derive(Clone, Copy)]
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    others: [u8; 160],
}

#[allow(unsafe_code, reason = "a structure of ethtool.h")]
// SAFETY: of the length of struct ethtool_drvinfo, which is numbers and characters only; the command is ETHTOOL_GDRVINFO.
unsafe impl EthtoolCommand for DriverInfo {}

const ETHTOOL_GDRVINFO: u32 = 3;

/// The name of an interface's driver.
pub fn driver(name: &str) -> io::Result<String> {
    let question = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], others: [0; 160] };
    let answer = ask_driver(name, question)?;
    let length = answer.driver.iter().position(|&byte| byte == 0).unwrap_or(answer.driver.len());
    Ok(String::from_utf8_lossy(&answer.driver[..length]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{in_namespace, veth_pair};

    /// The chunk of a pool whose frames were asked to hold so many bytes.
    fn chunk(data_bytes: usize) -> usize {
        DATA_OFFSET + PoolOptions::held_bytes(data_bytes)
    }

    #[test]
    fn a_frame_holds_a_packet_in_whole_units_of_the_card() {
        let usual = chunk(PoolOptions::default().data_bytes);
        // Of the usual chunk igb fills 1,024 bytes.
        assert_eq!(
            (filled("igb", usual), filled("i40e", usual), filled("virtio_net", usual)),
            (1_024, 1_664, 1_728)
        );
        assert!(problem("igb", usual, 1_500).unwrap().ends_with("expected --frame-size 2176"));
        assert_eq!((problem("i40e", usual, 1_500), problem("virtio_net", usual, 1_500)), (None, None));
        for (driver, mtu) in [("igb", 1_500), ("igc", 1_000), ("ice", 3_000), ("mlx5_core", 1_710)] {
            assert_eq!(problem(driver, chunk(frame_bytes(driver, mtu)), mtu), None, "{driver} {mtu}");
        }
    }

    #[test]
    fn an_interface_has_a_driver() {
        in_namespace(|| {
            veth_pair("left", "right");
            assert_eq!(driver("left").unwrap(), "veth");
            assert_eq!(
                frame_bytes_at(crate::Links::ask().unwrap().named("left").unwrap().index, "left", 1_500),
                None
            );
        });
    }
}
