//! Frames on the links of the hosts.

/// The router's address on the link of host a, and that of the host.
pub(crate) const ROUTER: [u8; 6] = [2, 0, 0, 0, 1, 1];
pub(crate) const HOST_A: [u8; 6] = [2, 0, 0, 0, 1, 2];
/// The router's address on the link of host b.
pub(crate) const ROUTER_TO_B: [u8; 6] = [2, 0, 0, 0, 2, 1];

/// A frame from host a to the router.
pub(crate) fn frame(kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
    [&ROUTER[..], &HOST_A, &kind, packet].concat()
}
