//! =c
//! CheckReversePath(PORT0, PORT1, ..., MODE)
//!
//! =s ip
//! drops IPv4 packets whose source address does not belong where they come from
//!
//! =d
//! Expects packets as FIBLookup does, and takes the same ports. Looks the source address up in the
//! forwarding tables (FIB) that the router keeps in step with Linux. Packets with a valid source
//! (RFC 3704, BCP 38) leave by output 0 as they are.
//!
//! MODE strict, the default: there is a route to the source, and it leaves by the port that the
//! packet came in by (RFC 3704, 2.2). Where several next hops share the traffic, any of them will
//! do. A packet with paint I<i> counts as received by the I<i>-th port. This mode is not for
//! networks where traffic comes and goes by different paths.
//!
//! MODE loose: there is a route to the source by whatever port (RFC 3704, 2.4). The default route
//! is one. A route that is blackhole, unreachable or prohibit, or whose next hop is down, does not
//! count.
//!
//! MODE host: every source is valid but those to which the tables have a route as to this host
//! itself, or as to a broadcast address. Linux validates these.
//!
//! MODE off: every source is valid.
//!
//! As many modes as ports, separated by spaces and quoted, are one for each port. The handler C<mode>
//! of CheckReversePath has them, and changes them.
//!
//! Output 1 is for packets whose source Linux has to validate:
//!
//! =item *
//! in strict mode, packets whose source has a route that the tables leave to Linux: an
//! encapsulation, an interface that is not a port. Loose mode passes them. Linux checks IPv4
//! sources by its setting C<net.ipv4.conf.*.rp_filter>, and IPv6 sources by rules of its packet
//! filter only.
//!
//! =item *
//! packets from 0.0.0.0 or ::, whose sender asks for an address (RFC 1812, 5.3.7; RFC 4291, 2.5.2),
//! and packets from IPv6 link-local addresses (RFC 4291, 2.5.6). Such packets are never forwarded,
//! but Linux may be their destination.
//!
//! =item *
//! packets from an address of this router to a group, because another host with our address sends
//! them (RFC 4862, 5.4).
//!
//! =item *
//! packets that the fast path cannot judge because of Linux's policy rules.
//!
//! =back
//!
//! If output 1 is not connected, these packets are dropped as "for Linux to decide".
//!
//! Drop reasons: "no route back", "another way back" (strict mode), "from our own address" (RFC
//! 1812, 5.3.7). The addresses of groups and broadcast addresses have no route back.
//!
//! Where Linux has policy rules (`ip rule`), these choose the table as Linux does when it validates
//! sources. The lookup is for an answer that this router itself sends from the packet's destination
//! to its source, in the VRF of the port. To Linux the answer comes in by the interface that the
//! packet leaves by. So Linux validates what a rule with C<iif> may select.
//!
//! Packets that EspDecap has decrypted pass, because their sender is known. Only those from our own
//! addresses do not.
//!
//! CheckReversePath6 is the same for IPv6.
//!
//! =e
//!   ... -> CheckIPHeader -> source :: CheckReversePath(eth1, eth2, MODE strict)
//!     -> FIBLookup(eth1, eth2) ...
//!   source[1] -> Punt -> ...
//!
//! =a CheckReversePath6, FIBLookup

use fib::publish::Reader;
use fib::{Adjacency, Decision, NextHop, NextHopIndex, Policy, Resolver, Rules, State};
use graph::lang::unquote;
use graph::runs::Ordinary;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, Verdict};
use packet::{Annotations, Batch, MAX_BATCH, Packet};

use super::family::ForwardFamily;
use super::fib_lookup::{MAIN, Unfilled};
use super::forwarding::ForwardingTables;
use crate::runs;

pub(crate) static CLASS: Class = Class {
    name: "CheckReversePath",
    ports: PORTS,
    processing: Class::AGNOSTIC_WITH_ERRORS,
    capabilities: &[super::JUDGES_SOURCES, graph::KEEPS_ALL, graph::TAKES_MERGED],
    handlers: &[Handler::read_write(
        "mode",
        Combine::First,
        "The MODE argument: a mode for all ports, or one for each.",
        &Get(|e: &mut CheckReversePath<u32>| e.modes.text()),
        &Put(|e: &mut CheckReversePath<u32>, _, value| e.set_modes(value)),
    )],
    manual: graph::manual!("check_reverse_path.rs"),
    make: make::<u32>,
    ..Class::DEFAULT
};

pub(super) const PORTS: &str = "1/1-2";

/// Which routes make a source believable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Off,
    Host,
    Loose,
    Strict,
}

/// The MODE argument: one for all ports, or one for each.
struct Modes(Vec<Mode>);

impl FromArgument for Modes {
    const EXPECTED: &'static str = "off, host, loose or strict, once or for each port";
    fn from_argument(text: &str) -> Option<Self> {
        let text = unquote(text);
        let modes = text.split_whitespace().map(|word| match word {
            "off" => Some(Mode::Off),
            "host" => Some(Mode::Host),
            "loose" => Some(Mode::Loose),
            "strict" => Some(Mode::Strict),
            _ => None,
        });
        modes.collect::<Option<Vec<_>>>().filter(|modes| !modes.is_empty()).map(Self)
    }
}

impl Modes {
    fn text(&self) -> String {
        let word = |mode: &Mode| match mode {
            Mode::Off => "off",
            Mode::Host => "host",
            Mode::Loose => "loose",
            Mode::Strict => "strict",
        };
        self.0.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    /// Whether they are one for all of so many ports, or one for each.
    fn are_for(&self, ports: usize) -> bool {
        self.0.len() == 1 || self.0.len() == ports
    }

    fn are_off(&self) -> bool {
        self.0.iter().all(|mode| *mode == Mode::Off)
    }

    /// That of the port by which a packet came.
    #[inline(always)]
    fn of(&self, packet: &Packet) -> Mode {
        match self.0[..] {
            [all] => all,
            ref modes => modes.get(usize::from(port(packet))).copied().unwrap_or(Mode::Strict),
        }
    }
}

/// What is found of a source. Where next hops differ, the largest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Finding {
    NoRoute,
    Own,
    OtherWay,
    Linux,
    Believed,
}

impl Finding {
    fn verdict(self) -> Verdict {
        match self {
            Finding::Believed => Verdict::Keep,
            Finding::Linux => Verdict::Divert(1, "for Linux to decide"),
            Finding::OtherWay => Verdict::Drop("another way back"),
            Finding::Own => Verdict::Drop("from our own address"),
            Finding::NoRoute => Verdict::Drop("no route back"),
        }
    }
}

pub(super) fn make<A: ForwardFamily>(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let modes = setup.arguments.keyword_or("MODE", Modes(vec![Mode::Strict]))?;
    let ports = setup.arguments.names();
    setup.arguments.finish()?;
    if ports.is_empty() {
        return Err(ConfigError::new("no ports; expected the names of the router's ports"));
    }
    if !modes.are_for(ports.len()) {
        let (modes, ports) = (modes.0.len(), ports.len());
        return Err(ConfigError::new(format!(
            "MODE: {modes} modes for {ports} ports; expected {}",
            Modes::EXPECTED
        )));
    }
    if setup.is_check() {
        return Ok(Box::new(Unfilled));
    }
    let tables = ForwardingTables::of_ports(setup, &ports)?;
    Ok(Box::new(CheckReversePath::<A> {
        is_off: modes.are_off(),
        modes,
        ports: ports.len(),
        policy: tables.policies.register(),
        reader: tables.readers.register(),
        sources: Box::new([A::MIN; MAX_BATCH]),
        numbers: Box::new([NextHopIndex::NONE; MAX_BATCH]),
        findings: Box::new([Finding::NoRoute; MAX_BATCH]),
    }))
}

struct CheckReversePath<A: ForwardFamily> {
    modes: Modes,
    /// Whether all are off.
    is_off: bool,
    /// How many ports there are.
    ports: usize,
    /// This copy's access to the rules and to the tables. Entered in this order: rules name tables that are there.
    policy: Reader<Policy>,
    reader: Reader<State<Adjacency>>,
    /// Room for the lookups of one batch.
    sources: Box<[A; MAX_BATCH]>,
    numbers: Box<[NextHopIndex; MAX_BATCH]>,
    findings: Box<[Finding; MAX_BATCH]>,
}

/// Whether EspDecap has opened a packet: then its sender is known, and policies of IPsec say which sources it may have.
fn was_opened(packet: &Packet) -> bool {
    packet.annotations().u32_at(Annotations::ASSOCIATION).is_some_and(|association| association != 0)
}

/// The port that a packet came in by. Paint 0 is that of no port.
#[inline(always)]
fn port(packet: &Packet) -> u16 {
    u16::from(packet.annotations().paint()).wrapping_sub(1)
}

impl Mode {
    /// What is found of a packet whose source has this number.
    ///
    /// The next hop of one flow is enough if it says yes, and nearly always it is the only one.
    #[inline(always)]
    fn judge<A: ForwardFamily>(
        self,
        next_hops: &Resolver<Adjacency>,
        number: NextHopIndex,
        source: A,
        packet: &Packet,
    ) -> Finding {
        match next_hops.resolve(number, 0) {
            NextHop::Forward(adjacency) if self.believes(adjacency, packet) => Finding::Believed,
            _ => self.judge_all(next_hops, number, source, packet),
        }
    }

    #[inline(always)]
    fn believes(self, adjacency: &Adjacency, packet: &Packet) -> bool {
        self.believes_port(adjacency.port(), packet)
    }

    #[inline(always)]
    fn believes_port(self, of_route: u16, packet: &Packet) -> bool {
        self != Mode::Strict || of_route == port(packet)
    }

    /// The same by all next hops that the number may mean.
    ///
    /// The control plane leads special sources to what is not [`NextHop::Forward`], in every table and whatever the routes
    /// are. So only packets off the fast path need be asked for them.
    #[cold]
    #[inline(never)]
    fn judge_all<A: ForwardFamily>(
        self,
        next_hops: &Resolver<Adjacency>,
        number: NextHopIndex,
        source: A,
        packet: &Packet,
    ) -> Finding {
        if self == Mode::Off {
            return Finding::Believed;
        }
        if self == Mode::Host {
            let is_hosts =
                |hop: &NextHop<Adjacency>| matches!(hop, NextHop::Local | NextHop::Broadcast | NextHop::Punt);
            let is_hosts = next_hops.hops(number).any(is_hosts);
            return if is_hosts { Finding::Linux } else { Finding::Believed };
        }
        if source.is_of_the_link() {
            return Finding::Linux;
        }
        // RFC 1812, 5.3.7; RFC 4291, 2.7: a group is never a source.
        if source.is_group() {
            return Finding::NoRoute;
        }
        let mut best = Finding::NoRoute;
        for next_hop in next_hops.hops(number) {
            best = best.max(match next_hop {
                NextHop::Forward(adjacency) if self.believes(adjacency, packet) => return Finding::Believed,
                // A host on a connected network, whose link address nobody has asked for yet.
                NextHop::Resolve(of_route) if self.believes_port(*of_route, packet) => {
                    return Finding::Believed;
                }
                NextHop::Forward(_) | NextHop::Resolve(_) => Finding::OtherWay,
                NextHop::Punt if self == Mode::Loose => Finding::Believed,
                NextHop::Punt => Finding::Linux,
                NextHop::Local if A::destination(packet.annotations()).is_group() => Finding::Linux,
                NextHop::Local => Finding::Own,
                NextHop::NoRoute
                | NextHop::Broadcast
                | NextHop::Unreachable
                | NextHop::Prohibit
                | NextHop::Blackhole => Finding::NoRoute,
            });
        }
        best
    }

    /// The same where rules choose the table.
    #[cold]
    fn judge_by_rules<A: ForwardFamily>(
        self,
        rules: &Rules<A>,
        state: &State<Adjacency>,
        source: A,
        packet: &Packet,
    ) -> Finding {
        if self == Mode::Off {
            return Finding::Believed;
        }
        if source.is_of_the_link() {
            return Finding::Linux;
        }
        let destination = A::destination(packet.annotations());
        let lookup = |vrf| A::table(state, vrf).map_or(NextHopIndex::NONE, |table| table.lookup(source));
        match rules.evaluate_answer(port(packet), source, destination, lookup) {
            Decision::Route(number) => self.judge(state.next_hops(), number, source, packet),
            Decision::Punt => Finding::Linux,
            _ if self == Mode::Host => Finding::Believed,
            Decision::NoRoute | Decision::Blackhole | Decision::Unreachable | Decision::Prohibit => {
                Finding::NoRoute
            }
        }
    }
}

impl<A: ForwardFamily> CheckReversePath<A> {
    fn set_modes(&mut self, value: &str) -> Result<(), String> {
        let modes = Modes::from_argument(value).filter(|modes| modes.are_for(self.ports));
        self.modes = modes.ok_or_else(|| format!("'{value}'; expected {}", Modes::EXPECTED))?;
        self.is_off = self.modes.are_off();
        Ok(())
    }
}

impl<A: ForwardFamily> Element for CheckReversePath<A> {
    fn ordinary(&self) -> Option<Ordinary> {
        if self.is_off { runs::ordinary([]) } else { None }
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        if self.is_off {
            return;
        }
        let sources = &mut self.sources[..batch.len()];
        let findings = &mut self.findings[..batch.len()];
        for (packet, source) in batch.packets().iter().zip(&mut *sources) {
            *source = A::source(packet.data());
        }
        let policy = self.policy.enter();
        let rules = A::rules(&policy);
        let state = self.reader.enter();
        let each = batch.packets().iter().zip(&*sources).zip(&mut *findings);
        match A::table(&state, MAIN).filter(|_| rules.is_main_only()) {
            Some(table) => {
                let numbers = &mut self.numbers[..batch.len()];
                table.lookup_batch(sources, numbers);
                for (((packet, &source), finding), &number) in each.zip(&*numbers) {
                    *finding = self.modes.of(packet).judge(state.next_hops(), number, source, packet);
                }
            }
            None => {
                for ((packet, &source), finding) in each {
                    *finding = self.modes.of(packet).judge_by_rules(rules, &state, source, packet);
                }
            }
        }
        drop(state);
        drop(policy);
        if findings.iter().all(|&finding| finding == Finding::Believed) {
            return;
        }
        let mut findings = findings.iter();
        cx.filter(batch, |packet| match findings.next() {
            Some(finding) if *finding != Finding::Own && was_opened(packet) => Verdict::Keep,
            Some(finding) => finding.verdict(),
            None => Verdict::Keep,
        });
    }
}
