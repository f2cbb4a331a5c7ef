//! What goes from behind the lookups to Linux.

use crate::drop_in::{Frame, Plan};
use elements::devices::follow_linux::Followed;

/// To Linux from behind the lookup: `packets4` and `packets6`.
pub(super) fn without_header(plan: &mut Plan, frame: &Frame<'_>) {
    plan.comment("What has the header of its next hop already gets one of ours.");
    plan.text(
        "packets4 :: Punt -> without4 :: PaintSwitch;\n\
         packets6 :: Punt -> without6 :: PaintSwitch;\n\
         without4[0], without6[0] => Discard, Discard;\n",
    );
    for ((paint, port), host) in (1..).zip(frame.ports).zip(&frame.permitted) {
        for (family, ethertype) in [(4, "0x0800"), (6, "0x86dd")] {
            let mac = port.mac;
            let header = plan.element(
                format_args!("header{family}_{paint}"),
                format_args!("EtherEncap({ethertype}, {mac}, {mac}) -> {host}"),
            );
            plan.line(format_args!("without{family}[{paint}] -> {header};"));
            plan.follow(Followed::Ether, &port.name, &header, "src");
            plan.follow(Followed::Ether, &port.name, &header, "dst");
        }
    }
}

/// The output of lookups for what waits for its neighbour, counted from the one behind those of the ports.
pub(super) const RESOLVE: usize = 4;

/// Linux redirects, whoever answers else: it knows who is a neighbour of whom. It does so where it forwards, IPv4 and IPv6.
pub(super) fn redirects(plan: &mut Plan, frame: &Frame<'_>, forwards: [bool; 2]) {
    let beyond = frame.ports.len() + RESOLVE + 1;
    plan.comment(
        "A few a second of those that leave by the port they came by: Linux forwards them and tells their senders of the\n\
         better way (RFC 1812 5.2.7.2, RFC 4861 8.2).",
    );
    for ((family, forwards), lookup) in [4, 6].into_iter().zip(forwards).zip(&frame.lookups) {
        let from = if forwards { format!("{lookup}[{beyond}]") } else { "Idle".to_owned() };
        plan.line(format_args!("{from} -> packets{family};"));
    }
}
