//! The elements of IPsec in a configuration of ours.
//!
//! ```text
//!   ports -> esp4 -> (other features) -> ipsec4 -> rt4
//!              |1                          |1 ESP    |2 to be sealed           |3
//!              +-----> decap <-------------+         DecIPTTL -> encap         Linux
//!                        +-> inner4 -> (other features)            +-> gateway4 -> ports
//! ```

use elements::devices::follow_linux::Followed;

use crate::drop_in::{Frame, Part, Plan, RESOLVE};

/// The elements with the policies of IPv4 and IPv6.
const POLICIES: [&str; 2] = ["ipsec4", "ipsec6"];

/// Puts the policies before the lookups, ESP behind them, and what leads from there to the ports.
pub(super) fn policies(plan: &mut Plan, frame: &Frame<'_>, to: [Part; 2]) -> [Part; 2] {
    let ([to4, to6], whole, names) = (&to, &frame.to_linux, &frame.names);
    plan.comment(
        "IPsec by Linux's policies and associations (RFC 4301). Without any these elements do nothing.",
    );
    let policies = [
        plan.element(POLICIES[0], format_args!("IpsecPolicy -> {to4}")),
        plan.element(POLICIES[1], format_args!("IpsecPolicy -> {to6}")),
    ];
    let [ipsec4, ipsec6] = &policies;
    plan.line(format_args!(
        "decap :: EspDecap;  encap :: EspEncap;  no_gateway :: NoGateway;\n\
         {ipsec4}[1] -> decap;  {ipsec4}[2] -> DecIPTTL -> encap;  {ipsec4}[3] -> {whole};\n\
         {ipsec6}[1] -> decap;  {ipsec6}[2] -> DecIP6HLIM -> encap;  {ipsec6}[3] -> {whole};\n\
         decap[2] -> UnstripToMACHeader -> frames;"
    ));
    plan.comment("To the other gateways. What cannot go there is dropped; the slow thread keeps what waits for a neighbour.");
    let resolve = frame.ports.len() + RESOLVE;
    for (family, class, wait, input) in
        [(4, "FIBLookup", "AwaitNeighbour", 0), (6, "FIBLookup6", "AwaitNeighbour6", 1)]
    {
        plan.line(format_args!(
            "gateway{family} :: {class}({names});  late_gateway{family} :: {class}({names});\n\
             encap[{input}] -> gateway{family};\n\
             gateway{family}[{resolve}] -> Punt -> gateway_waits{family} :: {wait}({names}) -> late_gateway{family};\n\
             late_gateway{family}[{resolve}] -> gateway_waits{family};  gateway_waits{family}[1] -> no_gateway;"
        ));
        for (index, output) in frame.outputs.iter().enumerate() {
            plan.line(format_args!(
                "gateway{family}[{index}] -> [{input}] {output};  late_gateway{family}[{index}] -> [{input}] {output};"
            ));
        }
        for beyond in frame.ports.len()..resolve {
            plan.line(format_args!(
                "gateway{family}[{beyond}], late_gateway{family}[{beyond}] => no_gateway, no_gateway;"
            ));
        }
    }
    for part in &policies {
        plan.follow(Followed::Ipsec, "", part, "refresh");
    }
    policies
}

/// Has all features see packets as they are inside ESP.
pub(super) fn opened(plan: &mut Plan, to: [Part; 2]) -> [Part; 2] {
    let [to4, to6] = &to;
    plan.comment("What was inside ESP meets all checks and filters.");
    plan.line(format_args!(
        "decap[0] -> inner4 :: CheckIPHeader(MARTIANS true) -> {to4};\n\
         decap[1] -> inner6 :: CheckIP6Header(MARTIANS true) -> {to6};"
    ));
    if to == POLICIES.map(Part::named) {
        return to;
    }
    [("esp4", to4), ("esp6", to6)].map(|(name, to)| {
        let part = plan.element(name, format_args!("EspToHost -> {to}"));
        plan.line(format_args!("{part}[1] -> decap;"));
        plan.follow(Followed::Ipsec, "", &part, "refresh");
        part
    })
}
