//! What is behind the headers: of TCP and UDP, behind theirs; of other protocols, behind the IP header; of what is not IP,
//! the whole packet.

use graph::lang::unquote_bytes;
use packet::wire::IpProtocol;

use super::field::{Field, PAYLOAD, number, parse};
use super::text::push_quoted;
use super::view::{UDP_LITE, View};

/// Bytes of the transport header of which `transport` is as much as is here.
pub(super) fn header_length(protocol: u8, transport: &[u8]) -> usize {
    match IpProtocol(protocol) {
        IpProtocol::TCP => transport.get(12).map_or(20, |offset| usize::from(offset >> 4) * 4).max(20),
        IpProtocol::UDP | IpProtocol(UDP_LITE) => 8,
        _ => 0,
    }
}

/// Where the payload begins in an IP packet.
fn offset(view: &View<'_>) -> usize {
    let transport = match view.protocol() {
        Some(protocol) if view.is_first_fragment() => header_length(protocol, view.transport()),
        _ => 0,
    };
    view.ip_header_length() + transport
}

/// How long the packet says its payload is.
fn length(view: &View<'_>) -> usize {
    match view.ip_length() {
        Some(total) => usize::from(total).saturating_sub(offset(view)),
        None => view.data().len(),
    }
}

pub(super) static FIELDS: &[Field] = &[
    // The length first: it says how much of the packet is header where the bytes of the payload are not all there.
    Field {
        name: "payload_len",
        aliases: &["payload_length"],
        order: PAYLOAD,
        print: |view, out| number(out, length(view) as u64 + u64::from(view.extra_length)),
        read: |draft, text| {
            draft.set_payload_length(parse::<u32>(text)? as usize);
            Some(())
        },
    },
    Field {
        name: "payload",
        aliases: &[],
        order: PAYLOAD + 1,
        print: |view, out| {
            let bytes = match view.whole_ip() {
                Some(ip) => match ip.get(offset(view)..) {
                    Some([]) | None if length(view) > 0 => return None,
                    bytes => bytes.unwrap_or_default(),
                },
                None => view.data(),
            };
            push_quoted(out, bytes);
            Some(())
        },
        read: |draft, text| {
            draft.set_payload(&unquote_bytes(text));
            Some(())
        },
    },
];
