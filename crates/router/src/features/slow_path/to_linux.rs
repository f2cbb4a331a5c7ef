//! What goes from behind the lookups to Linux.

use crate::drop_in::{Frame, Plan, RESOLVE, with_header};

/// To Linux from behind the lookup: `packets4` and `packets6`.
pub(super) fn without_header(plan: &mut Plan, frame: &Frame<'_>) {
    plan.comment("What has the header of its next hop already gets one of ours.");
    if !frame.follows_ipsec {
        return with_header(plan, frame.ports, &frame.permitted, "packets");
    }
    let [sealed4, sealed6] = &frame.sealed;
    for (name, sealed) in [("packets4", sealed4), ("packets6", sealed6)] {
        plan.line(format_args!(
            "{name} :: EspReseal -> {sealed};  {name}[1] -> {sealed4};  {name}[2] -> {sealed6};"
        ));
    }
}

/// Linux redirects, whatever answers else: it knows who is a neighbour of whom. It does so where it forwards, IPv4 and IPv6.
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
