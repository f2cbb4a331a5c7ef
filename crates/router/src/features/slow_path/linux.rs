//! Linux answers.

use elements::devices::follow_linux::Followed;

use super::to_linux::{redirects, without_header};
use crate::drop_in::{Frame, Plan, RESOLVE, follow_mtu, linux_is_behind_all};
use crate::settings::Host;

pub(super) fn behind_lookups(plan: &mut Plan, frame: &Frame<'_>) {
    let ([rt4, rt6], whole) = (&frame.lookups, &frame.to_linux);
    without_header(plan, frame);
    plan.comment(
        "To this host, a neighbour to resolve, options; no route, unreachable, prohibited, too long, lived too long: Linux\n\
         resolves, answers or fragments. It would answer about ICMPv6 redirects too (RFC 4443, 2.4 (e.2)).",
    );
    plan.line(format_args!(
        "about_a_redirect :: Discard;\n\
         errors6 :: Classifier(6/3a 40/89, -);  errors6[0] -> about_a_redirect;  errors6[1] -> {whole};\n\
         resolve6 :: Classifier(6/3a 7/00%fe 40/89, -);  resolve6[0] -> about_a_redirect;  resolve6[1] -> {whole};\n\
         errors_behind6 :: Classifier(6/3a 40/89, -);  errors_behind6[0] -> about_a_redirect;  errors_behind6[1] -> packets6;"
    ));
    let host = frame.ports.len();
    for beyond in host..=host + RESOLVE {
        let to6 = match beyond - host {
            0 => whole.to_string(),
            RESOLVE => "resolve6".to_owned(),
            _ => "errors6".to_owned(),
        };
        plan.line(format_args!("{rt4}[{beyond}] -> {whole};  {rt6}[{beyond}] -> {to6};"));
    }
    for (port, output) in frame.ports.iter().zip(&frame.outputs) {
        follow_mtu(plan, &port.name, output, Followed::Mtu4);
        if port.host == Host::Interface {
            plan.follow_alone(Followed::Forwarding, &port.name);
        }
        plan.line(format_args!("{output}[0], {output}[1] => packets4, packets4;"));
        plan.line(format_args!("{output}[2], {output}[3] => errors_behind6, errors_behind6;"));
    }
    if linux_is_behind_all(frame.ports) {
        redirects(plan, frame, [true; 2]);
    }
}
