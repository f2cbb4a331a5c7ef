//! What is at one interface and does not see what the fast path receives or sends there: queueing disciplines, filters and programs of
//! tc, interfaces with MACs of their own. `tc` is asked, as a person would.

use ports::Links;
use serde_json::Value;

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

/// Looks at an interface; `ask` runs a command and returns what it printed. `usual` is the queueing discipline that the administrator
/// gave all interfaces (`net.core.default_qdisc`).
pub(crate) fn look(
    name: &str,
    usual: &str,
    links: &Links,
    ask: &dyn Fn(&str) -> Option<String>,
) -> Vec<Passed> {
    let mut found = Vec::new();
    let disciplines =
        ask(&format!("tc -json qdisc show dev {name}")).map(|text| kinds(&text)).unwrap_or_default();
    let has_filters = |direction: &str| {
        ask(&format!("tc filter show dev {name} {direction}")).is_some_and(|text| !text.trim().is_empty())
    };
    for kind in disciplines {
        if kind == "clsact" || kind == "ingress" {
            let directions = if kind == "clsact" { &["ingress", "egress"][..] } else { &["ingress"] };
            found.extend(directions.iter().filter(|direction| has_filters(direction)).map(|direction| {
                Passed {
                    what: format!("it has filters of tc at {direction}"),
                    why: WHY_PROGRAMS,
                    remedy: format!(
                        "tc filter del dev {name} {direction}, and rules of the router's own (--acl FILE)"
                    ),
                }
            }));
        } else if !USUAL.contains(&kind.as_str()) && kind != usual {
            found.push(Passed {
                what: format!("it has the queueing discipline {kind}"),
                why: "what the fast path sends is neither shaped nor scheduled by it",
                remedy: format!(
                    "tc qdisc del dev {name} root, and an element that shapes (brickway elements)"
                ),
            });
        }
    }
    // Without the right to look there is nothing to report; the machine's findings say what this process may do.
    let programs = ports::tcx_programs(name).unwrap_or_default();
    found.extend(programs.iter().map(|program| Passed {
        what: format!("the program '{program}' is attached to it by tcx"),
        why: WHY_PROGRAMS,
        remedy: format!("bpftool net show dev {name}, and detach it"),
    }));
    found.extend(above(links, name));
    found
}

/// Lists the kinds of queueing disciplines in what `tc -json qdisc show` prints, each once.
fn kinds(text: &str) -> Vec<String> {
    let all: Value = serde_json::from_str(text).unwrap_or_default();
    let kinds = all.as_array().into_iter().flatten().filter_map(|one| Some(one["kind"].as_str()?.to_owned()));
    let mut kinds: Vec<String> = kinds.collect();
    kinds.dedup();
    kinds
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

    use super::*;

    #[test]
    fn what_is_unusual_at_an_interface_is_found() {
        let ask = |command: &str| -> Option<String> {
            let text = match command {
                "tc -json qdisc show dev eth1" => {
                    r#"[{"kind":"tbf","root":true},{"kind":"clsact"},{"kind":"cake"}]"#
                }
                "tc filter show dev eth1 egress" => "filter protocol all pref 1 u32 chain 0\n",
                "tc filter show dev eth1 ingress" => "",
                _ => return None,
            };
            Some(text.to_owned())
        };
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
        let found: Vec<String> =
            look("eth1", "cake", &links, &ask).into_iter().map(|found| found.what).collect();
        let expected = [
            "it has the queueing discipline tbf",
            "it has filters of tc at egress",
            "the macvlan interface mv0 is on top of it",
        ];
        assert_eq!(found, expected);
        assert_eq!(look("eth1", "fq", &Links::default(), &|_| None), []);
        let usual = |_: &str| Some(r#"[{"kind":"mq"},{"kind":"fq_codel"},{"kind":"fq_codel"}]"#.to_owned());
        assert_eq!(look("eth1", "fq", &Links::default(), &usual), []);
    }
}
