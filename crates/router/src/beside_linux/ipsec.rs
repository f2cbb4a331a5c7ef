//! Policies of IPsec that forwarded packets meet.

use std::io;

use control::netlink::xfrm::{Action, Direction, Mode, Policy, policies as all_policies};

use super::Bypassed;
use crate::settings::Bypass;

/// Lists the policies that block or transform forwarded packets.
pub(super) fn policies() -> io::Result<Vec<Bypassed>> {
    Ok(all_policies()?.iter().filter_map(bypassed).collect())
}

fn bypassed(policy: &Policy) -> Option<Bypassed> {
    // Policies of both other directions are asked about forwarded packets.
    if policy.direction == Direction::In {
        return None;
    }
    // Transport mode is for the host's own packets.
    let transforms = policy.templates.iter().any(|template| template.mode != Mode::Transport);
    let does = match policy.action {
        Action::Block => "blocks",
        _ if transforms => "encrypts or decrypts",
        _ => return None,
    };
    let direction = policy.direction.word();
    let (from, to) = (policy.selector.source, policy.selector.destination);
    let what = format!("policy {direction} from {from} to {to} {does} packets");
    let (subject, shown_by) = ("ipsec", format!("ip xfrm policy list dir {direction}"));
    Some(Bypassed { word: Bypass::Ipsec, subject, what, shown_by })
}

#[cfg(test)]
mod tests {
    use control::netlink::xfrm::{Decoded, decode};
    use control::netlink::{DecodeError, Frame};

    use super::*;

    /// `XFRM_MSG_NEWPOLICY`, the length of its fixed part, and where its fields are.
    const NEW_POLICY: u16 = 0x13;
    const INFO_BYTES: usize = 168;
    const DESTINATION: usize = 0;
    const SOURCE: usize = 16;
    const FAMILY: usize = 40;
    const DESTINATION_LENGTH: usize = 42;
    const SOURCE_LENGTH: usize = 43;
    const DIRECTION: usize = 160;
    const ACTION: usize = 161;
    /// `XFRM_POLICY_OUT`, `XFRM_POLICY_FWD` and `XFRM_POLICY_BLOCK`.
    const OUT: u8 = 1;
    const FORWARD: u8 = 2;
    const BLOCK: u8 = 1;
    /// `XFRMA_TMPL`, the length of a template, and where it has its mode.
    const TEMPLATES: u16 = 5;
    const TEMPLATE_BYTES: usize = 64;
    const MODE: usize = 48;

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
        let read = |payload: &[u8]| decode(&Frame { kind: NEW_POLICY, flags: 0, sequence: 0, payload });
        let told = |message: &[u8]| match read(message).unwrap() {
            Decoded::Policy(policy) => bypassed(&policy).map(|found| found.what),
            _ => None,
        };
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
        assert_eq!(read(&[0; 100]), Err(DecodeError::ShortMessage));
    }
}
