//! The largest MTU of a port: that with which the longest frame fits a frame of the pool.

use packet::PoolOptions;

/// Ethernet header and a VLAN tag (802.1Q).
const LINK_HEADER_BYTES: usize = 18;
/// The kernel leaves 256 bytes before a packet for XDP programs (XDP_PACKET_HEADROOM), 128 more than a pool does.
const XDP_HEADROOM_BYTES: usize = 128;
/// Most that a frame can hold ([`PoolOptions::data_bytes`]).
const MOST_FRAME_BYTES: usize = 32_000;

const fn beside_packet(is_xdp: bool) -> usize {
    LINK_HEADER_BYTES + if is_xdp { XDP_HEADROOM_BYTES } else { 0 }
}

/// Returns the largest MTU of a port whose frames hold so many bytes ([`PoolOptions::data_bytes`]); `is_xdp` says that it
/// receives by AF_XDP.
pub const fn largest_mtu(frame_bytes: usize, is_xdp: bool) -> usize {
    frame_bytes.saturating_sub(beside_packet(is_xdp))
}

/// Returns how many bytes a frame has to hold for this MTU; at least the default, at most what a frame can hold.
pub fn frame_bytes_for(mtu: usize, is_xdp: bool) -> usize {
    (mtu + beside_packet(is_xdp)).clamp(PoolOptions::default().data_bytes, MOST_FRAME_BYTES)
}

/// Returns what is wrong with the MTU of an interface and what was expected; `None` if packets of it fit a frame.
pub fn mtu_problem(name: &str, mtu: usize, frame_bytes: usize, is_xdp: bool) -> Option<String> {
    let most = largest_mtu(frame_bytes, is_xdp);
    let needed = frame_bytes_for(mtu, is_xdp);
    let larger = if largest_mtu(needed, is_xdp) >= mtu {
        format!("--frame-size {needed}, or ")
    } else {
        String::new()
    };
    (mtu > most).then(|| {
        format!(
            "MTU {mtu} of {name}: a frame of {frame_bytes} bytes holds {most} at most; expected {larger}\
             `ip link set {name} mtu {most}`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_for_an_mtu_hold_it() {
        assert_eq!((largest_mtu(1_856, true), largest_mtu(1_856, false)), (1_710, 1_838));
        assert_eq!(
            [1_500, 1_710, 1_711, 9_000, 65_535].map(|mtu| frame_bytes_for(mtu, true)),
            [1_856, 1_856, 1_857, 9_146, 32_000]
        );
        for (mtu, is_xdp) in [(9_000, true), (9_000, false), (1_839, false)] {
            assert_eq!(mtu_problem("eth1", mtu, frame_bytes_for(mtu, is_xdp), is_xdp), None);
        }
        let text = mtu_problem("eth1", 9_000, 1_856, true).unwrap_or_default();
        assert_eq!(
            text,
            "MTU 9000 of eth1: a frame of 1856 bytes holds 1710 at most; expected --frame-size 9146, or \
             `ip link set eth1 mtu 1710`"
        );
        let text = mtu_problem("lo", 65_535, 1_856, false).unwrap_or_default();
        assert!(text.ends_with("expected `ip link set lo mtu 1838`"), "{text}");
    }
}
