//! VLANs in the configuration.

use graph::lang::name_argument;

use crate::drop_in::{Part, Plan, PlannedPort, PlannedVlan};
use crate::settings::Host;

/// The beginning of an input.
pub(crate) const INPUT: &str = "\
// The same for a VLAN of another port, which hands its frames over with their tag.
elementclass VlanInput { $port, $number |
    input
        -> VLANDecap(false) -> PortMeter($port, received)
";

/// The class of outputs.
pub(crate) const OUTPUT: &str = "\
// What leaves by a VLAN: as above, and by output 4 Ethernet frames with their tag, for the port below. The lookup has put
// one on routed packets.
elementclass VlanOutput { $port, $mtu, $vlan |
    sent :: PortMeter($port, sent) -> [4] output;
    input[0] -> DropBroadcasts -> mtu4 :: CheckLength($mtu) -> ttl :: DecIPTTL -> UnstripToMACHeader -> sent;
    input[1] -> DropBroadcasts -> mtu6 :: CheckLength($mtu) -> limit :: DecIP6HLIM -> UnstripToMACHeader -> sent;
    input[2] -> VLANEncap(VLAN_ID $vlan) -> sent;
    mtu4[1] -> [0] output;  ttl[1] -> [1] output;
    mtu6[1] -> [2] output;  limit[1] -> [3] output;
}

";

/// A port that is a VLAN: what comes in by it, and what leaves.
pub(crate) fn port(plan: &mut Plan, paint: usize, port: &PlannedPort, vlan: PlannedVlan) -> (Part, Part) {
    let PlannedPort { name, mtu, .. } = port;
    let word = name_argument(name);
    plan.line(format_args!("// {name}"));
    let input = plan.element(format_args!("in{paint}"), format_args!("VlanInput({word}, {paint})"));
    let output =
        plan.element(format_args!("out{paint}"), format_args!("VlanOutput({word}, {mtu}, {})", vlan.number));
    (input, output)
}

/// What leaves by VLANs, to the ports below.
pub(crate) fn connect(plan: &mut Plan, ports: &[PlannedPort], outputs: &[Part]) {
    for (port, output) in ports.iter().zip(outputs) {
        if let Some(vlan) = port.vlan {
            plan.line(format_args!("{output}[4] -> [2] {};", outputs[vlan.below - 1]));
        }
    }
}

/// What comes in by a port and is not an IP packet: of its VLANs, or for Linux. Without Linux, tagged frames of other VLANs are
/// dropped, so that they are counted.
pub(crate) fn input_of_others(plan: &mut Plan, ports: &[PlannedPort], paint: usize, inputs: &[Part]) {
    let input = &inputs[paint - 1];
    let of_port = ports.iter().zip(inputs).filter_map(|(port, input)| Some((port.vlan?, input)));
    let vlans: Vec<_> = of_port.filter(|(vlan, _)| vlan.below == paint).collect();
    if vlans.is_empty() {
        return plan.line(format_args!("{input}[2] -> frames;"));
    }
    let patterns: String =
        vlans.iter().map(|(vlan, _)| format!("12/8100 14/{:04x}%0fff, ", vlan.number)).collect();
    let others = if ports[paint - 1].host == Host::None { "!12/8100" } else { "-" };
    let kinds = plan.element(format_args!("vlans{paint}"), format_args!("Classifier({patterns}{others})"));
    plan.line(format_args!("{input}[2] -> {kinds};"));
    for (output, (_, of_vlan)) in vlans.iter().enumerate() {
        plan.line(format_args!("{kinds}[{output}] -> {of_vlan};"));
    }
    plan.line(format_args!("{kinds}[{}] -> frames;", vlans.len()));
}
