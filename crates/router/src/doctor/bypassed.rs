//! What Linux was configured to do to forwarded packets, which the router's packets bypass (`beside_linux`).

use super::{Driver, Finding, Patient, Remedy};
use crate::beside_linux::{Findings, interface, look, usual_discipline};
use crate::settings::Bypass;

/// Looks for rules that filter, translate or encrypt forwarded packets. A router does not start beside those that it does not ignore.
/// Without ports, those that belong to an interface are left out.
pub(super) fn rules(patient: &Patient) -> Vec<Finding> {
    let devices: Vec<&str> = patient.ports.iter().map(|port| port.device.as_str()).collect();
    let Findings { mut found, unknown } = look(&devices);
    // A router works by Linux's policies, unless it is to ignore them.
    found.retain(|found| found.word != Bypass::Ipsec || patient.ignore.contains(&found.word));
    if found.is_empty() && unknown.is_empty() {
        return vec![Finding::ok("beside Linux", "Linux has no rules for forwarded packets")];
    }
    let why = "packets that the router forwards bypass it";
    let found = found.into_iter().map(|found| {
        let word = found.word.word();
        if patient.ignore.contains(&found.word) {
            let what = format!("{}, ignored as '{word}'", found.what);
            return Finding::warn(found.subject, what, why, Remedy::None);
        }
        let remedy = Remedy::ByHand(format!(
            "{} shows it; give the router rules of its own (--acl FILE), then ignore this one: --ignore {word}",
            found.shown_by
        ));
        Finding::bad(found.subject, found.what, why, remedy)
    });
    let unknown = unknown.into_iter().map(|(subject, error)| {
        let why = "rules for forwarded packets are not found";
        let remedy = Remedy::ByHand("run it as root, or as a service with CAP_NET_ADMIN".to_owned());
        Finding::warn(subject, format!("it cannot be read: {error}"), why, remedy)
    });
    found.chain(unknown).collect()
}

/// Looks for what is at the ports' interfaces.
pub(super) fn at_ports(patient: &Patient) -> Vec<Finding> {
    let usual = usual_discipline();
    let links = ports::Links::ask().unwrap_or_default();
    let is_of_linux = |driver| !matches!(driver, Driver::Dpdk | Driver::Tap);
    let ports = patient.ports.iter().filter(|port| is_of_linux(port.driver));
    let found = ports.flat_map(|port| {
        let found = interface::look(&port.device, &usual, &links);
        found
            .into_iter()
            .map(|found| Finding::warn(&port.device, found.what, found.why, Remedy::ByHand(found.remedy)))
    });
    found.collect()
}
