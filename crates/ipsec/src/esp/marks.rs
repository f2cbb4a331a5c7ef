//! DSCP and congestion marks between the outer and the inner header.

use packet::checksum::update_u16;

/// The bits of the traffic class that are the congestion mark (RFC 3168).
const ECN: u8 = 3;
const ECT_1: u8 = 1;
const CE: u8 = 3;

/// Returns the traffic class of a packet that begins with an IP header.
#[inline(always)]
pub(super) fn traffic_class(packet: &[u8]) -> u8 {
    if packet[0] >> 4 == 4 { packet[1] } else { packet[0] << 4 | packet[1] >> 4 }
}

/// Writes the traffic class of such a packet.
#[inline(always)]
pub(super) fn set_traffic_class(packet: &mut [u8], class: u8) {
    if packet[0] >> 4 == 4 {
        let old = u16::from_be_bytes([packet[0], packet[1]]);
        packet[1] = class;
        let check = u16::from_be_bytes([packet[10], packet[11]]);
        let check = update_u16(check, old, u16::from_be_bytes([packet[0], class]));
        packet[10..12].copy_from_slice(&check.to_be_bytes());
    } else {
        packet[0] = packet[0] & 0xf0 | class >> 4;
        packet[1] = packet[1] & 0x0f | class << 4;
    }
}

/// Returns the outer traffic class (RFC 6040, section 4.1, normal mode).
#[inline(always)]
pub(super) fn outer(inner: u8, copies_dscp: bool, copies_ecn: bool) -> u8 {
    let dscp = if copies_dscp { !ECN } else { 0 };
    let ecn = if copies_ecn { ECN } else { 0 };
    inner & (dscp | ecn)
}

/// Returns the traffic class of an opened packet; `None` if it has to be dropped, because congestion was marked on a packet whose
/// sender does not know such marks (RFC 6040, section 4.2, figure 4).
#[inline(always)]
pub(super) fn inner(inner: u8, outer: u8, takes_dscp: bool, copies_ecn: bool) -> Option<u8> {
    let dscp = if takes_dscp { outer } else { inner } & !ECN;
    let (mark, outer) = (inner & ECN, outer & ECN);
    let mark = match (mark, outer) {
        _ if !copies_ecn => mark,
        (0, CE) => return None,
        (0, _) => 0,
        (_, CE) => CE,
        (CE, _) => CE,
        (_, ECT_1) => ECT_1,
        _ => mark,
    };
    Some(dscp | mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn congestion_marks_as_in_figure_4_of_rfc_6040() {
        const ECT_0: u8 = 2;
        let rows = [
            // inner, then by outer: not-ECT, ECT(0), ECT(1), CE
            (0, [Some(0), Some(0), Some(0), None]),
            (ECT_0, [Some(ECT_0), Some(ECT_0), Some(ECT_1), Some(CE)]),
            (ECT_1, [Some(ECT_1), Some(ECT_1), Some(ECT_1), Some(CE)]),
            (CE, [Some(CE); 4]),
        ];
        for (mark, expected) in rows {
            assert_eq!(
                [0, ECT_0, ECT_1, CE].map(|outer| inner(mark, outer, false, true)),
                expected,
                "{mark}"
            );
        }
        assert_eq!(inner(0xb8, 0x03, false, false), Some(0xb8));
        assert_eq!(inner(0xb8 | ECT_0, 0x28 | CE, true, true), Some(0x28 | CE));
        assert_eq!(
            [outer(0xbb, true, true), outer(0xbb, false, true), outer(0xbb, true, false)],
            [0xbb, 0x03, 0xb8]
        );
    }
}
