//! Whether anything filters: the one decision that the backstop in Linux, the marks on what Linux may forward, GRO, and
//! forwarding in the kernel follow.
//!
//! A list of ports filters if one of its features does, or if Linux is to be closed behind it. A script always counts as
//! a filter, because no program can find out whether another one drops anything. A configuration of somebody's own filters
//! unless it is surely plain forwarding: it consists of elements that keep all that is right ([`KEEPS_ALL`]), and no packet of
//! a port ends in it.

use elements::devices::follow_linux::{Followed, Follows};
use elements::devices::{RECEIVER, SENDER};
use elements::lookup::{FORWARDS, JUDGES_SOURCES};
use graph::KEEPS_ALL;
use graph::lang::{FlatConfig, FlatElement, first_name, split_arguments};
use ports::Spec;

use super::backstop::PERMITTED;
use super::ports_of;
use crate::settings::{PortSettings, Settings};

/// What decides where a router's packets go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Graph<'a> {
    /// A graph of ours, by these settings.
    Ours(&'a Settings),
    /// A script.
    Script,
    /// A configuration that somebody else wrote, in the place of Linux or not.
    File(&'a FlatConfig, &'a [(String, String)]),
}

impl Graph<'_> {
    /// Returns whether it keeps packets from being forwarded, which Linux then must not forward in the router's place.
    pub(crate) fn filters(self) -> bool {
        match self {
            Graph::Ours(settings) => settings.filters(),
            Graph::Script => true,
            Graph::File(config, specs) => {
                is_in_the_place_of_linux(config, specs)
                    && (marks_permitted(config) || !is_plain(config, specs))
            }
        }
    }

    /// Returns whether Linux may forward transit before the graph has seen it, where it forwards: nothing filters, and the graph is
    /// ours, which would do the same.
    pub(crate) fn may_leave_to_linux(self) -> bool {
        matches!(self, Graph::Ours(_)) && !self.filters()
    }
}

/// Returns whether all that a configuration gets from ports is surely forwarded, or left to Linux.
fn is_plain(config: &FlatConfig, specs: &[(String, String)]) -> bool {
    let follows = Follows::of(config);
    config.elements.iter().all(|element| takes_all(element, config, &follows)) && !has_an_end(config, specs)
}

/// Returns whether an element surely drops no packet that is right. One of another class counts as a filter, and so does one whose
/// arguments are not known to drop nothing.
fn takes_all(element: &FlatElement, config: &FlatConfig, follows: &[Follows]) -> bool {
    if !element.has(KEEPS_ALL) {
        return false;
    }
    // One without ports gets no packets. Of another class it may write handlers of others.
    if (element.inputs, element.outputs) == (0, 0) {
        return true;
    }
    let arguments = split_arguments(&element.config);
    let is_followed = |handler: &str, what: &[Followed]| {
        let target = format!("{}.{handler}", element.name);
        follows.iter().any(|follows| what.contains(&follows.what) && follows.targets.contains(&target))
    };
    if element.has(RECEIVER) {
        // These drop what is of another protocol.
        let drops =
            |argument: &String| ["PROTOCOL", "FORCE_IP"].iter().any(|word| argument.starts_with(word));
        return !arguments.iter().any(drops);
    }
    if element.has(JUDGES_SOURCES) {
        // With the rp_filter of Linux, which drops the same, or with none.
        return arguments.iter().any(|argument| argument == "MODE off")
            || is_followed("mode", &[Followed::RpFilter]);
    }
    if element.has(SENDER) || element.has(FORWARDS) {
        return true;
    }
    match element.class.as_str() {
        "AwaitNeighbour" | "AwaitNeighbour6" | "EtherEncap" | "VLANEncap" | "VLANDecap" | "Tee" => true,
        "Classifier" => arguments.last().is_some_and(|pattern| pattern == "-"),
        "CheckIPHeader" | "CheckIP6Header" => {
            arguments.iter().all(|argument| argument.starts_with("MARTIANS "))
        }
        // What is longer than the port's MTU, and frames to others.
        "CheckLength" => {
            arguments.len() == 1 && is_followed("length", &[Followed::Mtu, Followed::Mtu4, Followed::Mtu6])
        }
        "HostEtherFilter" => arguments.len() == 1 && is_followed("ether", &[Followed::Ether]),
        "Strip" | "Unstrip" => arguments == ["14"],
        "Paint" => arguments.len() == 1 && paint_of(element).is_some_and(|paint| paint > 0),
        "PaintSwitch" => {
            let painters = config.elements.iter().filter(|other| other.class == "Paint");
            arguments.is_empty() && painters.filter_map(paint_of).all(|paint| paint < element.outputs)
        }
        "Idle" => element.inputs == 0,
        _ => arguments.is_empty(),
    }
}

/// Returns the number that a Paint puts on packets.
fn paint_of(element: &FlatElement) -> Option<usize> {
    first_name(&element.config)?.parse().ok()
}

/// Returns whether what comes in by a port, or leaves a lookup for one, can come to an element that it does not leave.
/// What is not forwarded anyway does not count: errors, and frames that came in by no port.
fn has_an_end(config: &FlatConfig, specs: &[(String, String)]) -> bool {
    let count = ports_of(config).len();
    let elements = &config.elements;
    let is_lookup = |element: &FlatElement| element.has(FORWARDS);
    let mut seen = vec![false; elements.len()];
    let sources = |(index, _): (usize, usize)| elements[index].has(RECEIVER);
    let routed = |(index, output): (usize, usize)| is_lookup(&elements[index]) && output < count;
    let first =
        config.connections.iter().filter(|connection| sources(connection.from) || routed(connection.from));
    let mut next: Vec<usize> = first.map(|connection| connection.to.0).collect();
    while let Some(index) = next.pop() {
        let element = &elements[index];
        if std::mem::replace(&mut seen[index], true) || is_lookup(element) {
            continue;
        }
        if element.has(SENDER) {
            if is_sink(element, specs) {
                return true;
            }
            continue;
        }
        let mut leaves = config.connections.iter().filter(|connection| connection.from.0 == index).peekable();
        if leaves.peek().is_none() {
            return true;
        }
        let goes_on = |output: usize| match element.class.as_str() {
            "PaintSwitch" => output > 0,
            "CheckIPHeader" | "CheckIP6Header" | "CheckLength" | "DecIPTTL" | "DecIP6HLIM" | "EspDecap"
            | "EspEncap" => output == 0,
            _ => true,
        };
        next.extend(leaves.filter(|leaves| goes_on(leaves.from.1)).map(|leaves| leaves.to.0));
    }
    false
}

/// Returns whether what an element sends comes to nobody: it goes into a file or memory.
fn is_sink(element: &FlatElement, specs: &[(String, String)]) -> bool {
    let is_interface = |spec: String| {
        Spec::parse(&spec).is_ok_and(|spec| !matches!(spec.driver(), "null" | "pcap" | "memory"))
    };
    element.class != "ToHost" && !spec_of(element, specs).is_some_and(is_interface)
}

/// What an element's first argument stands for.
fn spec_of(element: &FlatElement, specs: &[(String, String)]) -> Option<String> {
    let name = first_name(&element.config)?;
    let spec = specs.iter().find(|(known, _)| *known == name).map(|(_, spec)| spec.clone());
    Some(spec.unwrap_or(name))
}

/// Returns the ports of a configuration that stands in Linux's place without its tables: those that get transit only.
pub(crate) fn steering_ports(config: &FlatConfig, specs: &[(String, String)]) -> Vec<PortSettings> {
    let receivers = config.elements.iter().filter(|element| element.has(RECEIVER));
    let steered = receivers.filter_map(|element| {
        let spec = Spec::parse(&spec_of(element, specs)?).ok()?;
        let (_, options) = spec.text().split_once('?')?;
        let is_steered = options.split('&').any(|option| option == "steer=transit");
        let driver = spec.driver().parse().ok()?;
        is_steered.then(|| PortSettings { driver, ..PortSettings::new(spec.name()) })
    });
    steered.collect()
}

fn is_in_the_place_of_linux(config: &FlatConfig, specs: &[(String, String)]) -> bool {
    !ports_of(config).is_empty() || !steering_ports(config, specs).is_empty()
}

/// The ports of a configuration by which it hands packets to Linux, as it names them.
fn host_ports<'a>(
    config: &'a FlatConfig,
    specs: &'a [(String, String)],
) -> impl Iterator<Item = (String, String)> + 'a {
    let senders = config.elements.iter().filter(|element| element.has(SENDER));
    senders.filter_map(|element| {
        let name = first_name(&element.config)?;
        let spec = match element.class.as_str() {
            "ToHost" => format!("host:{name}"),
            _ => spec_of(element, specs)?,
        };
        let name = if element.class == "ToHost" { spec.clone() } else { name };
        spec.starts_with("host:").then_some((name, spec))
    })
}

/// Whether a configuration says itself which packets Linux may forward.
fn marks_permitted(config: &FlatConfig) -> bool {
    host_ports(config, &[]).any(|(_, spec)| spec.ends_with(PERMITTED))
}

/// Returns what the names of ports stand for in a configuration that filters. Unless it says itself which packets Linux may
/// forward, these are all that it hands to Linux: it has seen them.
pub(crate) fn permitting(config: &FlatConfig, specs: Vec<(String, String)>) -> Vec<(String, String)> {
    let all: Vec<(String, String)> = host_ports(config, &specs).collect();
    let says = |spec: &str| spec.contains("permitted=") || spec.contains("checked=");
    if all.iter().any(|(_, spec)| says(spec)) {
        return specs;
    }
    let permitted = all.into_iter().map(|(name, spec)| {
        let separator = if spec.contains('?') { "&" } else { "?" };
        (name, format!("{spec}{separator}{}", &PERMITTED[1..]))
    });
    let mut marked: Vec<(String, String)> = permitted.collect();
    marked.extend(
        specs
            .into_iter()
            .filter(|(name, _)| !marked.iter().any(|(known, _)| known == name))
            .collect::<Vec<_>>(),
    );
    marked
}

#[cfg(test)]
mod tests {
    use graph::lang::{Options, Source};

    use super::*;
    use crate::drop_in::{PlannedPort, usual_configuration};
    use crate::load;

    fn flat(text: &str) -> FlatConfig {
        let source = Source { name: "test".into(), text: text.into() };
        load::compile(&source, &Options::default(), &crate::classes()).unwrap()
    }

    fn ours() -> String {
        let ports = ["eth1", "eth2"].map(|name| {
            PlannedPort::new(name.into(), packet::wire::ethernet::MacAddr([2, 0, 0, 0, 0, 1]), 1_500)
        });
        usual_configuration(&ports).unwrap()
    }

    #[test]
    fn a_configuration_that_drops_anything_filters_and_ours_does_not() {
        let ours = ours();
        let filters = |text: &str| {
            let config = flat(text);
            Graph::File(&config, &[]).filters()
        };
        assert!(!filters(&ours));
        let with = |from: &str, to: &str| {
            assert!(ours.contains(from), "{from}: {ours}");
            ours.replace(from, to)
        };
        for (text, drops) in [
            (with("in1[0] -> esp4;", "in1[0] -> Counter -> Print -> esp4;"), false),
            (with("in1[0] -> esp4;", "in1[0] -> c :: Classifier(9/11, -) -> esp4; c[1] -> esp4;"), false),
            (with("in1[0] -> esp4;", "in1[0] -> CheckReversePath(eth1, eth2) -> esp4;"), true),
            (with("in1[0] -> esp4;", "in1[0] -> c :: IPClassifier(udp, -) -> esp4; c[1] -> Discard;"), true),
            (with("in1[0] -> esp4;", "in1[0] -> IPClassifier(udp) -> esp4;"), true),
            (with("in1[0] -> esp4;", "in1[0] -> Classifier(9/11) -> esp4;"), true),
            (with("in1[0] -> esp4;", "in1[0] -> IPFilter(deny tcp, allow all) -> esp4;"), true),
            (with("in1[0] -> esp4;", "in1[0] -> RandomSample(0.5) -> esp4;"), true),
            (with("in1[0] -> esp4;", "in1[0] -> Lua(\"function process(b) end\") -> esp4;"), true),
            (with("in1[0] -> esp4;", "in1[0] -> Discard;  Idle -> esp4;"), true),
            (
                with(
                    "rt4[0] -> [0] out1;",
                    "rt4[0] -> c :: Classifier(9/06, -);  c[0] -> Discard;  c[1] -> [0] out1;",
                ),
                true,
            ),
            (with("rt4[0] -> [0] out1;", "rt4[0] -> Null -> Queue -> Idle;  Idle -> [0] out1;"), true),
            (ours.replace("checked=yes", "permitted=yes"), true),
            // What its arguments make of an element that keeps all without them.
            (with("in1[0] -> esp4;", "in1[0] -> Idle -> esp4;"), true),
            (
                with("check4 :: CheckIPHeader(MARTIANS true)", "check4 :: CheckIPHeader(BADSRC 10.0.0.2)"),
                true,
            ),
            (
                with(
                    "check4 :: CheckIPHeader(MARTIANS true)",
                    "check4 :: CheckIPHeader(INTERFACES 10.0.0.1/24)",
                ),
                true,
            ),
            (with("in1[0] -> esp4;", "in1[0] -> CheckLength(20) -> esp4;"), true),
            (with("HostEtherFilter($mac)", "HostEtherFilter($mac, DROP_OWN true)"), true),
            (with("ether eth1 in1/filter.ether", "ether eth1"), true),
            (with("in1[0] -> esp4;", "in1[0] -> Queue -> Unqueue(ACTIVE false) -> esp4;"), true),
            (with("in1[0] -> esp4;", "in1[0] -> Queue(1) -> Unqueue -> esp4;"), true),
            (with("in1[0] -> esp4;", "in1[0] -> Queue -> Unqueue -> esp4;"), false),
            (with("in1[0] -> esp4;", "in1[0] -> Strip(1400) -> Unstrip(1400) -> esp4;"), true),
            (with("in1[0] -> esp4;", "in1[0] -> Counter(COUNT_CALL 7 in1/filter.ether) -> esp4;"), true),
            (
                with(
                    "in1[0] -> esp4;",
                    "in1[0] -> Paint(0) -> p :: PaintSwitch;  p[0] -> Discard;  p[1] -> esp4;",
                ),
                true,
            ),
            (
                with(
                    "in1[0] -> esp4;",
                    "in1[0] -> Paint(3) -> p :: PaintSwitch;  p[0] -> Discard;  p[1] -> esp4;",
                ),
                true,
            ),
            (with("to :: ToDevice($port);", "to :: ToDevice(memory:x);"), true),
            (format!("{ours} Script(write in1/check4.own 10.0.0.2);"), true),
            // Not in Linux's place.
            ("FromDevice(memory:a) -> IPFilter(deny all) -> ToDevice(memory:b);".to_owned(), false),
            ("FromDevice(af_packet:eth1?steer=transit) -> Discard;".to_owned(), true),
            (
                "FromDevice(af_packet:eth1?steer=transit, PROTOCOL 2048) -> ToDevice(af_packet:eth2);"
                    .to_owned(),
                true,
            ),
            ("FromDevice(af_packet:eth1?steer=transit) -> ToDevice(null:);".to_owned(), true),
            ("FromDevice(af_packet:eth1?steer=transit) -> ToDevice(af_packet:eth2);".to_owned(), false),
        ] {
            assert_eq!(filters(&text), drops, "{text}");
        }
    }

    #[test]
    fn what_a_filter_leaves_to_linux_is_permitted_unless_it_says_which() {
        let config = flat("FromDevice(af_packet:eth1?steer=transit) -> t :: Tee -> ToDevice(host:eth1); t[1] -> ToDevice(up);
             t[2] -> Discard;");
        let specs = vec![("up".to_owned(), "host:eth2".to_owned()), ("x".to_owned(), "null:".to_owned())];
        let marked = permitting(&config, specs);
        let marked: Vec<(&str, &str)> =
            marked.iter().map(|(name, spec)| (name.as_str(), spec.as_str())).collect();
        let expected =
            [("host:eth1", "host:eth1?permitted=yes"), ("up", "host:eth2?permitted=yes"), ("x", "null:")];
        assert_eq!(marked, expected);
        let text = ours().replace("checked=yes", "permitted=yes");
        assert!(permitting(&flat(&text), Vec::new()).is_empty());
        let steered = steering_ports(&config, &[]);
        assert_eq!(steered.iter().map(|port| port.name.as_str()).collect::<Vec<_>>(), ["eth1"]);
    }
}
