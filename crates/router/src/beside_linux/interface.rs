//! What is at one interface and does not see what the fast path receives or sends there: queueing disciplines, filters and programs of
//! tc, interfaces with MACs of their own.

use ports::Links;

use super::tc::Tc;

/// Queueing disciplines that Linux gives interfaces by itself.
const USUAL: [&str; 6] = ["noqueue", "noop", "mq", "pfifo_fast", "fq_codel", "fq"];

/// What is there, why it matters, and what a person may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) what: String,
    pub(crate) why: &'static str,
    pub(crate) remedy: String,
}

const WHY_PROGRAMS: &str = "programs and filters of tc do not see what the fast path forwards";

/// Looks at an interface. `usual` is the queueing discipline that the administrator gave all interfaces (`net.core.default_qdisc`).
pub(crate) fn look(name: &str, usual: &str, links: &Links) -> Vec<Passed> {
    let mut found = look_at_tc(name, usual);
    found.extend(above(links, name));
    found
}

/// The same of tc alone.
pub(super) fn look_at_tc(name: &str, usual: &str) -> Vec<Passed> {
    // Without the right to look there is nothing to report; the machine's findings say what this process may do.
    let mut found = passed(name, usual, &Tc::of(name).unwrap_or_default());
    let programs = ports::tcx_programs(name).unwrap_or_default();
    found.extend(programs.iter().map(|program| Passed {
        what: format!("the program '{program}' is attached to it by tcx"),
        why: WHY_PROGRAMS,
        remedy: format!("bpftool net show dev {name}, and detach it"),
    }));
    found
}

/// What the fast path passes by of what tc has at an interface.
fn passed(name: &str, usual: &str, tc: &Tc) -> Vec<Passed> {
    let filters = ["ingress", "egress"].into_iter().zip(tc.has_filters).filter(|(_, has_some)| *has_some);
    let filters = filters.map(|(direction, _)| Passed {
        what: format!("it has filters of tc at {direction}"),
        why: WHY_PROGRAMS,
        remedy: format!("tc filter del dev {name} {direction}, and rules of the router's own (--acl FILE)"),
    });
    let is_unusual = |kind: &&String| {
        let kind = kind.as_str();
        !USUAL.contains(&kind) && !["clsact", "ingress"].contains(&kind) && kind != usual
    };
    let disciplines = tc.disciplines.iter().filter(is_unusual).map(|kind| Passed {
        what: format!("it has the queueing discipline {kind}"),
        why: "what the fast path sends is neither shaped nor scheduled by it",
        remedy: format!("tc qdisc del dev {name} root, and an element that shapes (brickway elements)"),
    });
    disciplines.chain(filters).collect()
}

/// Lists the interfaces on top of `name` that have MACs or addresses of their own.
fn above(links: &Links, name: &str) -> Vec<Passed> {
    let Some(below) = links.named(name) else { return Vec::new() };
    let above = links.iter().filter(|link| {
        let has_address = ["macvlan", "macvtap", "ipvlan", "ipvtap"].contains(&link.kind.as_str());
        link.below == Some(below.index) && has_address
    });
    let found = above.map(|link| Passed {
        what: format!("the {} interface {} is on top of it", link.kind, link.name),
        why: "Linux may forward packets to it; while the router runs, 'brickway show problems' names those",
        remedy: format!("ip link del {}, or rules for it in Linux", link.name),
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use ports::Link;
    use testbed::{in_namespace, run};

    use super::*;

    #[test]
    fn what_is_unusual_at_an_interface_is_found() {
        let link = |index, name: &str, below, kind: &str| Link {
            index,
            name: name.into(),
            below,
            kind: kind.into(),
            ..Link::default()
        };
        let links = Links::from(vec![
            link(1, "eth1", None, ""),
            link(2, "eth2", None, ""),
            link(3, "mv0", Some(1), "macvlan"),
            link(4, "eth1.5", Some(1), "vlan"),
            link(5, "mv1", Some(2), "macvlan"),
        ]);
        let above = above(&links, "eth1");
        assert_eq!(above.len(), 1);
        assert_eq!(above[0].what, "the macvlan interface mv0 is on top of it");
        let tc = |disciplines: &[&str], has_filters| Tc {
            disciplines: disciplines.iter().map(|&kind| kind.to_owned()).collect(),
            has_filters,
        };
        let found = |tc: &Tc| passed("eth1", "cake", tc).into_iter().map(|it| it.what).collect::<Vec<_>>();
        assert_eq!(
            found(&tc(&["tbf", "clsact", "cake"], [false, true])),
            ["it has the queueing discipline tbf", "it has filters of tc at egress"]
        );
        assert!(found(&tc(&["mq", "fq_codel"], [false; 2])).is_empty() && found(&Tc::default()).is_empty());
    }

    #[test]
    fn linux_is_asked() {
        in_namespace(|| {
            run("ip", "link add eth1 type veth peer name eth2");
            run("ip", "link set eth1 up");
            assert_eq!(passed("eth1", "", &Tc::of("eth1").unwrap()), []);
            run("tc", "qdisc add dev eth1 clsact");
            run("tc", "filter add dev eth1 egress u32 match u32 0 0 flowid 1:1");
            let tc = Tc::of("eth1").unwrap();
            assert!(tc.disciplines.contains(&"clsact".to_owned()), "{tc:?}");
            assert_eq!(tc.has_filters, [false, true]);
            run("tc", "qdisc replace dev eth2 ingress");
            run("tc", "filter add dev eth2 ingress u32 match u32 0 0 flowid 1:1");
            assert_eq!(Tc::of("eth2").unwrap().has_filters, [true, false]);
            assert_eq!(Tc::of("nowhere").unwrap(), Tc::default());
        });
    }
}
