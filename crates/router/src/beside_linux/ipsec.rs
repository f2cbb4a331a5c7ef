//! Policies of IPsec that forwarded packets meet, read over netlink (`linux/xfrm.h`).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use control::netlink::ask::{XFRM, dump};
use control::netlink::{DecodeError, attributes};

use super::Bypassed;
use crate::settings::Bypass;

/// `XFRM_MSG_GETPOLICY`.
const GET_POLICY: u16 = 0x15;
/// Bytes of `struct xfrm_userpolicy_id`, which all zero asks for every policy.
const REQUEST_BYTES: usize = 64;

/// `struct xfrm_userpolicy_info`: the selector's fields, then direction and action.
const INFO_BYTES: usize = 168;
const DESTINATION: usize = 0;
const SOURCE: usize = 16;
const FAMILY: usize = 40;
const DESTINATION_LENGTH: usize = 42;
const SOURCE_LENGTH: usize = 43;
const DIRECTION: usize = 160;
const ACTION: usize = 161;

/// `XFRM_POLICY_OUT` and `XFRM_POLICY_FWD`: both are asked about forwarded packets, and no others.
const OUT: u8 = 1;
const FORWARD: u8 = 2;
/// `XFRM_POLICY_BLOCK`.
const BLOCK: u8 = 1;

/// `XFRMA_TMPL`: how packets are transformed, one `struct xfrm_user_tmpl` each.
const TEMPLATES: u16 = 5;
const TEMPLATE_BYTES: usize = 64;
/// Where a template has its mode; 0 is transport mode, which is for the host's own packets.
const MODE: usize = 48;

const EPROTONOSUPPORT: i32 = rustix::io::Errno::PROTONOSUPPORT.raw_os_error();

/// Lists the policies that block or transform forwarded packets.
pub(super) fn policies() -> io::Result<Vec<Bypassed>> {
    let mut found = Vec::new();
    let dumped = dump(XFRM, GET_POLICY, &[0; REQUEST_BYTES], &mut |_, payload| {
        found.extend(policy(payload).map_err(io::Error::other)?);
        Ok(())
    });
    match dumped {
        // The kernel was built without IPsec.
        Err(error) if error.raw_os_error() == Some(EPROTONOSUPPORT) => Ok(Vec::new()),
        other => other.map(|()| found),
    }
}

fn policy(payload: &[u8]) -> Result<Option<Bypassed>, DecodeError> {
    let (info, rest) = payload.split_first_chunk::<INFO_BYTES>().ok_or(DecodeError::ShortMessage)?;
    let mut transforms = false;
    for attribute in attributes(rest) {
        let attribute = attribute?;
        if attribute.kind == TEMPLATES {
            let mut templates = attribute.value.chunks_exact(TEMPLATE_BYTES);
            transforms = templates.any(|template| template[MODE] != 0);
        }
    }
    let does = match (info[DIRECTION], info[ACTION]) {
        (OUT | FORWARD, BLOCK) => "blocks",
        (OUT | FORWARD, _) if transforms => "encrypts or decrypts",
        _ => return Ok(None),
    };
    let direction = if info[DIRECTION] == OUT { "out" } else { "fwd" };
    let is_ipv6 = u16::from_ne_bytes([info[FAMILY], info[FAMILY + 1]]) != 2;
    let address = |at: usize| -> IpAddr {
        let bytes: [u8; 16] = std::array::from_fn(|index| info[at + index]);
        let [a, b, c, d, ..] = bytes;
        if is_ipv6 { Ipv6Addr::from(bytes).into() } else { Ipv4Addr::new(a, b, c, d).into() }
    };
    let what = format!(
        "policy {direction} from {}/{} to {}/{} {does} packets",
        address(SOURCE),
        info[SOURCE_LENGTH],
        address(DESTINATION),
        info[DESTINATION_LENGTH]
    );
    let (subject, shown_by) = ("ipsec", format!("ip xfrm policy list dir {direction}"));
    Ok(Some(Bypassed { word: Bypass::Ipsec, subject, what, shown_by }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A policy for 10.1.0.0/24 to 10.2.0.0/16, with a template of this mode.
    fn message(direction: u8, action: u8, mode: Option<u8>) -> Vec<u8> {
        let mut message = vec![0; INFO_BYTES];
        message[DESTINATION..DESTINATION + 4].copy_from_slice(&[10, 2, 0, 0]);
        message[SOURCE..SOURCE + 4].copy_from_slice(&[10, 1, 0, 0]);
        message[FAMILY] = 2;
        (message[DESTINATION_LENGTH], message[SOURCE_LENGTH]) = (16, 24);
        (message[DIRECTION], message[ACTION]) = (direction, action);
        if let Some(mode) = mode {
            message.extend((4 + TEMPLATE_BYTES as u16).to_ne_bytes());
            message.extend(TEMPLATES.to_ne_bytes());
            let mut template = [0; TEMPLATE_BYTES];
            template[MODE] = mode;
            message.extend(template);
        }
        message
    }

    #[test]
    fn policies_that_block_or_transform_forwarded_packets_are_found() {
        let told = |message: &[u8]| policy(message).unwrap().map(|found| found.what);
        let expected = "policy fwd from 10.1.0.0/24 to 10.2.0.0/16 blocks packets";
        assert_eq!(told(&message(FORWARD, BLOCK, None)).as_deref(), Some(expected));
        let expected = "policy out from 10.1.0.0/24 to 10.2.0.0/16 encrypts or decrypts packets";
        assert_eq!(told(&message(OUT, 0, Some(1))).as_deref(), Some(expected));
        // Packets to and from the host itself, and those that pass as they are.
        for other in [
            message(0, BLOCK, None),
            message(OUT, 0, Some(0)),
            message(FORWARD, 0, None),
            message(4, 0, Some(1)),
        ] {
            assert_eq!(told(&other), None);
        }
        assert_eq!(policy(&[0; 100]), Err(DecodeError::ShortMessage));
    }
}
