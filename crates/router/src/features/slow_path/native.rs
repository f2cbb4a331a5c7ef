//! Elements of ours answer, on the slow thread, whether Linux forwards or not.

use elements::devices::follow_linux::Followed;

use super::to_linux::{redirects, without_header};
use crate::drop_in::{
    Frame, Part, Plan, RESOLVE, addresses4, addresses6, follow_mtu, linux_is_behind_all, own_addresses,
};

/// The errors that lookups ask for, by their outputs from the second on: names of their elements, without the number of the
/// family, and codes.
const LOOKUP_ERRORS: [(&str, &str, &str); 3] = [
    ("noroute", "net", "noroute"),
    ("unreachable", "host", "address"),
    ("prohibited", "filterprohibited", "prohibited"),
];

/// Says what answers with an error of `kind`: a class of errors, from the addresses of all ports.
struct Errors {
    class: &'static str,
    addresses: String,
    follows: Followed,
    to: &'static str,
}

impl Errors {
    fn element(&self, plan: &mut Plan, name: &str, kind: &str) -> Part {
        let Errors { class, addresses, follows, to } = self;
        let part = plan.element(name, format_args!("{class}(\"{addresses}\", {kind}) -> {to}"));
        plan.follow(*follows, "", &part, "src");
        part
    }
}

pub(super) fn behind_lookups(plan: &mut Plan, frame: &Frame<'_>) {
    let (ports, names) = (frame.ports, &frame.names);
    let ([rt4, rt6], whole) = (&frame.lookups, &frame.to_linux);
    let list4 = addresses4(ports.iter().map(|port| port.ipv4));
    let list6 = addresses6(ports.iter().map(|port| port.ipv6));
    // Errors quote packets that may have been protected, so policies of IPsec judge them.
    let [to4, to6] = if frame.follows_ipsec { ["sent4", "sent6"] } else { ["slow4", "slow6"] };
    let errors4 =
        Errors { class: "ICMPError", addresses: list4.clone(), follows: Followed::Errors4, to: to4 };
    let errors6 = Errors { class: "ICMP6Error", addresses: list6, follows: Followed::Errors6, to: to6 };
    let host = ports.len();
    let resolve = host + RESOLVE;
    plan.comment(
        "The slow thread forwards what has options (RFC 1812 5.2.4, RFC 8200 4.3), and what had to wait for its neighbour.",
    );
    plan.line(format_args!(
        "punt4 :: Punt -> slow4 :: FIBLookup({names}, OPTIONS true);\n\
         punt6 :: Punt -> hop6 :: IP6HopOptions -> slow6 :: FIBLookup6({names}, OPTIONS true);\n\
         {rt4}[{host}] -> punt4;  {rt6}[{host}] -> punt6;  {rt4}[{resolve}] -> punt4;  {rt6}[{resolve}] -> punt6;\n\
         slow4[{host}] -> {whole};  slow6[{host}] -> {whole};\n\
         slow4[{resolve}] -> wait4 :: AwaitNeighbour({names}) -> slow4;\n\
         slow6[{resolve}] -> wait6 :: AwaitNeighbour6({names}) -> slow6;"
    ));
    if frame.follows_ipsec {
        plan.line(format_args!(
            "sent4 :: IpsecPolicy(SENT true) -> slow4;  sent4[1] -> no_gateway;  sent4[2] -> encap;  sent4[3] -> no_gateway;\n\
             sent6 :: IpsecPolicy(SENT true) -> slow6;  sent6[1] -> no_gateway;  sent6[2] -> encap;  sent6[3] -> no_gateway;"
        ));
        for name in ["sent4", "sent6"] {
            plan.follow(Followed::Ipsec, "", &Part::named(name), "refresh");
        }
    }
    plan.comment(
        "RFC 1812 5.2.7, RFC 4443 3.1: what cannot be forwarded is answered, from the address of the port it came by.",
    );
    for (beyond, (name, code4, code6)) in (host + 1..).zip(LOOKUP_ERRORS) {
        let error4 = errors4.element(plan, &format!("{name}4"), &format!("unreachable, {code4}"));
        let error6 = errors6.element(plan, &format!("{name}6"), &format!("unreachable, {code6}"));
        plan.line(format_args!("{rt4}[{beyond}] -> Punt -> {error4};  slow4[{beyond}] -> {error4};"));
        plan.line(format_args!("{rt6}[{beyond}] -> Punt -> {error6};  slow6[{beyond}] -> {error6};"));
    }
    let malformed = errors4.element(plan, "malformed4", "parameterproblem");
    let unknown = errors6.element(plan, "unknown6", "parameterproblem, option");
    let expired4 = errors4.element(plan, "expired4", "timeexceeded");
    let expired6 = errors6.element(plan, "expired6", "timeexceeded");
    plan.line(format_args!(
        "wait4[1] -> unreachable4;  wait6[1] -> unreachable6;  hop6[1] -> {unknown};\n\
         late4 :: Punt -> {expired4};  late6 :: Punt -> {expired6};"
    ));
    for (index, (port, output)) in ports.iter().zip(&frame.outputs).enumerate() {
        let (paint, name, mtu) = (index + 1, &port.name, port.mtu);
        let own = own_addresses(&list4, index);
        let (first, others) = own.split_once(' ').unwrap_or((&own, ""));
        let options = plan.element(
            format_args!("options{paint}"),
            format_args!("IPGWOptions({first}, \"{others}\", SOURCE_ROUTE drop) -> [0] {output}"),
        );
        plan.follow(Followed::First4, name, &options, "addresses");
        let fragment = plan
            .element(format_args!("fragment{paint}"), format_args!("IPFragmenter({mtu}) -> [0] {output}"));
        let toolong =
            errors4.element(plan, &format!("toolong{paint}"), &format!("unreachable, needfrag, PMTU {mtu}"));
        let toobig = errors6.element(plan, &format!("toobig{paint}"), &format!("packettoobig, PMTU {mtu}"));
        // What is too long is fragmented and comes again: fragments must never be longer than the output takes, which follows a
        // larger MTU before these.
        follow_mtu(plan, name, output, Followed::Mtu);
        plan.follow(Followed::Mtu6, name, &toobig, "pmtu");
        plan.follow(Followed::Mtu, name, &toolong, "pmtu");
        plan.follow(Followed::Mtu, name, &fragment, "mtu");
        plan.line(format_args!(
            "slow4[{index}] -> {options};  {options}[1] -> {malformed};  slow6[{index}] -> [1] {output};\n\
             {output}[1] -> late4;  {output}[3] -> late6;\n\
             {output}[0] -> Punt -> {fragment};  {fragment}[1] -> {toolong};\n\
             {output}[2] -> Punt -> {toobig};"
        ));
    }
    let forwards = [0, 1].map(|family| ports.iter().all(|port| port.linux_forwards[family]));
    if linux_is_behind_all(ports) && forwards != [false; 2] {
        without_header(plan, frame);
        redirects(plan, frame, forwards);
    }
}
