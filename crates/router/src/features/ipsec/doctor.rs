//! What `brickway doctor` finds of IPsec: what a router would leave to Linux, and what of the kernel it lacks.

use std::io;

use control::esp_hooks::{EspHooksError, probe};

use super::foretold::{Foretold, foretold};
use crate::doctor::{Diagnosis, Finding, Remedy};

const NAME: &str = "ipsec";

/// Policies and associations that are named.
const MOST: usize = 10;

/// Looks at what Linux has.
pub(super) fn examine() -> Diagnosis {
    let foretold = foretold();
    let sees_transit =
        matches!(&foretold, Ok(Some(foretold)) if foretold.sees_transit).then_some(super::POLICIES);
    Diagnosis { findings: findings(&foretold, &probe), sees_transit }
}

fn findings(
    foretold: &io::Result<Option<Foretold>>,
    hooks: &dyn Fn() -> Result<(), EspHooksError>,
) -> Vec<Finding> {
    let Foretold { policies, associations, left, .. } = match foretold {
        Ok(Some(foretold)) => foretold,
        Ok(None) => return vec![Finding::ok(NAME, "this kernel has no IPsec (XFRM)")],
        Err(error) => {
            let why = "a router does not start where it cannot follow Linux's policies";
            let remedy = Remedy::ByHand("run it as root, or as a service with CAP_NET_ADMIN".to_owned());
            return vec![Finding::warn(NAME, format!("Linux's IPsec cannot be read: {error}"), why, remedy)];
        }
    };
    // What the router needs for it is not looked for: that loads modules of the kernel.
    if policies + associations == 0 {
        return vec![Finding::ok(NAME, "Linux has no policies and no associations")];
    }
    let count = |count: usize, one: &str, several: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {several}"),
    };
    let policies = count(*policies, "policy", "policies");
    let associations = count(*associations, "association", "associations");
    let mut findings = vec![Finding::ok(NAME, format!("Linux has {policies} and {associations}"))];
    match hooks() {
        Ok(()) => {
            findings.push(Finding::ok(NAME, "the kernel has what the fast path needs for associations"))
        }
        Err(error) => {
            let why = "the router leaves all associations to Linux, which is slower";
            let text = error.to_string();
            let (what, remedy) = text.split_once("; ").unwrap_or((&text, ""));
            let remedy = remedy.trim_start_matches("expected ");
            findings.push(Finding::bad(NAME, what, why, Remedy::ByHand(remedy.to_owned())));
        }
    }
    let why = "Linux handles its packets, which is slower";
    findings.extend(left.iter().take(MOST).map(|left| Finding::warn(NAME, left, why, Remedy::None)));
    if left.len() > MOST {
        let what = format!("{} more policies and associations are left to Linux", left.len() - MOST);
        let remedy = Remedy::ByHand("brickway show ipsec, with a router that runs, lists all".to_owned());
        findings.push(Finding::warn(NAME, what, why, remedy));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn told(foretold: io::Result<Option<Foretold>>, hooks: Result<(), EspHooksError>) -> Vec<String> {
        let hooks = std::cell::Cell::new(Some(hooks));
        let found = findings(&foretold, &|| hooks.take().unwrap_or(Ok(())));
        found.iter().map(|finding| format!("{}: {}", finding.verdict.word(), finding.what)).collect()
    }

    #[test]
    fn what_is_in_the_way_of_ipsec() {
        let none = Foretold::default();
        assert_eq!(told(Ok(None), Ok(())), ["ok: this kernel has no IPsec (XFRM)"]);
        assert_eq!(told(Ok(Some(none.clone())), Ok(())), ["ok: Linux has no policies and no associations"]);
        let denied = told(Err(io::ErrorKind::PermissionDenied.into()), Ok(()));
        assert_eq!(denied, ["warn: Linux's IPsec cannot be read: permission denied"]);
        let some = Foretold { policies: 1, associations: 2, ..none };
        let good = "ok: the kernel has what the fast path needs for associations";
        assert_eq!(told(Ok(Some(some.clone())), Ok(())), ["ok: Linux has 1 policy and 2 associations", good]);
        let module = || Err(EspHooksError::Offload("esp4_offload"));
        let bad = told(Ok(Some(some.clone())), module());
        assert!(bad[1].starts_with("bad: ") && bad[1].ends_with("module esp4_offload is loaded"), "{bad:?}");
        let [_, finding] = &findings(&Ok(Some(some.clone())), &module)[..] else { panic!("two") };
        assert!(finding.verdict == Verdict::Bad && finding.details()[1].contains("modprobe -r esp4_offload"));
        let left = (0..12).map(|number| format!("policy {number}: left to Linux")).collect();
        let many = told(Ok(Some(Foretold { left, ..some })), Ok(()));
        assert_eq!((many.len(), many[11].as_str()), (13, "warn: policy 9: left to Linux"));
        assert_eq!(many[12], "warn: 2 more policies and associations are left to Linux");
    }
}
