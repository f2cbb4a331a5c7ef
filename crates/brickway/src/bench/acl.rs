//! `brickway bench acl`: what an access control list costs a packet, by the number of its rules.
//!
//! Flows of one family go around in memory over `CheckIPHeader` or `CheckIP6Header`, once with an `ACL` behind
//! it and once without; the difference is what the list costs. Rules are drawn as those of real lists are:
//! prefixes of all lengths, a quarter of the sources and a sixth of the destinations any, single ports,
//! ranges, all high ports, a few without. Nine of ten flows are drawn inside a rule, each rule as often as
//! any other, so that the whole list is in use; one rule in ten denies.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use graph::lang::Source;
use graph::setup::Shared;
use packet::checksum;
use ports::{MemoryLoop, Port};

use super::folder::Folder;
use super::random::Random;
use super::runs::RunArguments;
use super::single_core::SingleCore;
use super::{median, print_figure};
use crate::output::say;
use crate::progress;
use crate::table::{Align, Table, thousands};

/// Measures access control lists in memory: TSC cycles a packet with and without one, time to compile,
/// memory.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway bench acl                              0 to 10,000 rules, IPv4 and IPv6
  brickway bench acl --rules 1000 --flows 1000 --json

added is what the graph costs more with the list than without; ACL is what the element itself takes of that.")]
pub(crate) struct AclArguments {
    /// Numbers of rules
    #[arg(long, value_delimiter = ',', default_values_t = [0usize, 10, 100, 1_000, 10_000])]
    rules: Vec<usize>,
    /// Number of different flows
    #[arg(long, default_value_t = 65_536)]
    flows: usize,
    #[command(flatten)]
    run: RunArguments,
}

/// What a case gave; cycles are TSC cycles a packet.
struct Figures {
    without: f64,
    with: f64,
    element: f64,
    compile_ms: f64,
    memory_bytes: f64,
}

pub(crate) fn acl(arguments: &AclArguments) -> Result<ExitCode> {
    check_arguments(arguments)?;
    let flows = format!("{} flows of 64 or 84 bytes", thousands(arguments.flows as u64));
    arguments.run.say_heading(&flows, "one core");
    let mut table = Table::new(&[
        ("family", Align::Left),
        ("rules", Align::Right),
        ("cycles/packet", Align::Right),
        ("without", Align::Right),
        ("added", Align::Right),
        ("ACL", Align::Right),
        ("compile ms", Align::Right),
        ("memory KB", Align::Right),
    ]);
    for is_ipv6 in [false, true] {
        let family = if is_ipv6 { "v6" } else { "v4" };
        for &rules in &arguments.rules {
            let case = format!("acl-{rules}-{family}");
            progress::tell("bench acl", &case);
            let figures = measure(arguments, rules, is_ipv6).with_context(|| format!("case {case}"))?;
            let added = figures.with - figures.without;
            if arguments.run.json {
                let cycles = "TSC cycles";
                print_figure("acl", &case, "cycles_per_packet", figures.with, cycles);
                print_figure("acl", &case, "without_cycles_per_packet", figures.without, cycles);
                print_figure("acl", &case, "added_cycles_per_packet", added, cycles);
                print_figure("acl", &case, "element_cycles_per_packet", figures.element, cycles);
                print_figure("acl", &case, "compile_ms", figures.compile_ms, "ms");
                print_figure("acl", &case, "memory", figures.memory_bytes, "bytes");
            } else {
                table.row([
                    family.to_owned(),
                    thousands(rules as u64),
                    format!("{:.1}", figures.with),
                    format!("{:.1}", figures.without),
                    format!("{added:.1}"),
                    format!("{:.1}", figures.element),
                    format!("{:.1}", figures.compile_ms),
                    thousands((figures.memory_bytes / 1024.0) as u64),
                ]);
            }
        }
    }
    progress::clear();
    if !arguments.run.json {
        say!("{}", table.render());
    }
    Ok(ExitCode::SUCCESS)
}

fn check_arguments(arguments: &AclArguments) -> Result<()> {
    arguments.run.check()?;
    if !(1..=1 << 20).contains(&arguments.flows) {
        bail!("--flows takes a number from 1 to 1048576");
    }
    Ok(())
}

fn measure(arguments: &AclArguments, rules: usize, is_ipv6: bool) -> Result<Figures> {
    let mut random = Random(0x5eed ^ rules as u64);
    let list: Vec<Rule> = (0..rules).map(|_| Rule::draw(&mut random, is_ipv6)).collect();
    let mut text = String::new();
    for (number, rule) in list.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{} {}", (number + 1) * 10, rule.text(is_ipv6));
    }
    let folder = Folder::new()?;
    let path = folder.path().join("rules.txt");
    std::fs::write(&path, &text).with_context(|| format!("cannot write '{}'", path.display()))?;
    let templates: Vec<Vec<u8>> = (0..arguments.flows)
        .map(|_| {
            let inside = if random.one_in(10) { None } else { random.choice(&list) };
            frame(&mut random, inside, is_ipv6)
        })
        .collect();

    let check = if is_ipv6 { "CheckIP6Header" } else { "CheckIPHeader" };
    let graph = |middle: &str| -> Result<SingleCore> {
        let text = format!(
            "FromDevice(bench0, BURST {burst}) -> Strip(14) -> {check} -> {middle} Unstrip(14)
             -> ToDevice(bench1, BURST {burst});",
            burst = arguments.run.burst
        );
        let source = Source { name: "acl.click".into(), text };
        let ports: [Box<dyn Port>; 2] = [
            Box::new(MemoryLoop::new(templates.clone())),
            ports::open("null:", &ports::OpenOptions::default())?,
        ];
        SingleCore::build(&source, Vec::new(), arguments.run.burst, ports.into_iter(), &Shared::default())
    };
    let mut without = graph("")?;
    let mut with = graph(&format!("acl :: ACL(FILE \"{}\", DEFAULT permit) ->", path.display()))?;
    without.run(arguments.run.seconds.min(0.1));
    with.run(arguments.run.seconds.min(0.1));
    with.reset_stats();
    let (mut cycles_without, mut cycles_with) = (Vec::new(), Vec::new());
    for _ in 0..arguments.run.runs {
        cycles_without.push(without.run(arguments.run.seconds).cycles_per_packet());
        cycles_with.push(with.run(arguments.run.seconds).cycles_per_packet());
    }
    let list = with.graph().find("acl").context("the graph has a list")?;
    let element = with.graph().element_stats(list);
    let mut compile_ms = Vec::new();
    for _ in 0..3 {
        let start = Instant::now();
        handled(with.graph().write(list, "set", &text))?;
        compile_ms.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let memory = handled(with.graph().read(list, "memory", ""))?;
    Ok(Figures {
        without: median(cycles_without),
        with: median(cycles_with),
        element: element.cycles / element.packets.max(1) as f64,
        compile_ms: median(compile_ms),
        memory_bytes: memory.parse().context("the memory is a number")?,
    })
}

/// What a handler of an element answered that is in the graph.
fn handled<T>(answer: Option<Result<T, String>>) -> Result<T> {
    answer.context("the list is in this copy")?.map_err(|error| anyhow!(error))
}

fn draw_port(random: &mut Random, (first, last): (u16, u16)) -> u16 {
    first + random.below(u64::from(last - first) + 1) as u16
}

/// Lengths of prefixes, as often as they stand here. The networks are those of one large site: inside
/// 10.0.0.0/8 and 2001:db8::/32, with others around.
const LENGTHS_V4: [u8; 16] = [8, 16, 16, 19, 20, 22, 23, 24, 24, 24, 24, 26, 28, 30, 32, 32];
const LENGTHS_V6: [u8; 16] = [32, 32, 40, 44, 48, 48, 48, 52, 56, 56, 64, 64, 64, 64, 128, 128];
const PORTS: [u16; 16] = [22, 25, 53, 80, 110, 123, 143, 161, 179, 389, 443, 445, 993, 3306, 5432, 8080];
const ALL: (u16, u16) = (0, u16::MAX);
const HIGH: (u16, u16) = (1024, u16::MAX);

/// A prefix: its bits at the top of 128, and its length.
type Prefix = (u128, u8);

struct Rule {
    permits: bool,
    protocol: Option<u8>,
    source: Option<Prefix>,
    destination: Option<Prefix>,
    source_ports: (u16, u16),
    destination_ports: (u16, u16),
}

impl Rule {
    fn draw(random: &mut Random, is_ipv6: bool) -> Self {
        let protocol = match random.below(20) {
            0..11 => Some(6),
            11..16 => Some(17),
            16 => Some(if is_ipv6 { 58 } else { 1 }),
            17 => Some(47),
            18 => Some(50),
            _ => None,
        };
        let has_ports = matches!(protocol, Some(6 | 17));
        let mut source = (!random.one_in(4)).then(|| prefix(random, is_ipv6));
        let destination = (!random.one_in(6)).then(|| prefix(random, is_ipv6));
        if destination.is_none() && source.is_none() {
            // A rule for everything would hide all behind it.
            source = Some(prefix(random, is_ipv6));
        }
        let source_ports = match random.below(20) {
            0 | 1 if has_ports => HIGH,
            2 if has_ports => single(random),
            _ => ALL,
        };
        let destination_ports = match random.below(20) {
            0..10 if has_ports => single(random),
            10..14 if has_ports => {
                let first = random.below(60_000) as u16;
                (first, first + random.below(5_000) as u16)
            }
            14..16 if has_ports => HIGH,
            _ => ALL,
        };
        Self { permits: !random.one_in(10), protocol, source, destination, source_ports, destination_ports }
    }

    fn text(&self, is_ipv6: bool) -> String {
        let prefix = |prefix: Option<Prefix>| match prefix {
            None => "any".to_owned(),
            Some((bits, length)) if is_ipv6 => format!("{}/{length}", Ipv6Addr::from(bits)),
            Some((bits, length)) => format!("{}/{length}", Ipv4Addr::from((bits >> 96) as u32)),
        };
        let ports = |ports: (u16, u16)| match ports {
            ALL => String::new(),
            (first, last) => format!(" port {first}-{last}"),
        };
        format!(
            "{} {} {}{} {}{}",
            if self.permits { "permit" } else { "deny" },
            self.protocol.map_or_else(|| "any".to_owned(), |protocol| protocol.to_string()),
            prefix(self.source),
            ports(self.source_ports),
            prefix(self.destination),
            ports(self.destination_ports)
        )
    }
}

fn single(random: &mut Random) -> (u16, u16) {
    let port = random.choice(&PORTS).copied().unwrap_or_default();
    (port, port)
}

/// A prefix whose network is inside the site's, mostly.
fn prefix(random: &mut Random, is_ipv6: bool) -> Prefix {
    let lengths = if is_ipv6 { &LENGTHS_V6 } else { &LENGTHS_V4 };
    let length = random.choice(lengths).copied().unwrap_or_default();
    let address = address(random, None, is_ipv6);
    (address & u128::MAX << (128 - u32::from(length)), length)
}

/// An address inside a prefix, or one of the site's, or, one in four, any at all.
fn address(random: &mut Random, inside: Option<Prefix>, is_ipv6: bool) -> u128 {
    let bits = u128::from(random.next()) << 64 | u128::from(random.next());
    let site = if is_ipv6 { (0x2001_0db8 << 96, 32) } else { (10 << 120, 8) };
    let any = if is_ipv6 { (1 << 125, 3) } else { (0, 0) };
    let (network, length) = inside.unwrap_or(if random.one_in(4) { any } else { site });
    network | if length == 128 { 0 } else { bits >> length }
}

/// A frame that a rule matches if those before it do not, or any frame.
fn frame(random: &mut Random, inside: Option<&Rule>, is_ipv6: bool) -> Vec<u8> {
    let protocol = inside.and_then(|rule| rule.protocol);
    let protocol = protocol.unwrap_or(if random.one_in(3) { 17 } else { 6 });
    let source = address(random, inside.and_then(|rule| rule.source), is_ipv6);
    let destination = address(random, inside.and_then(|rule| rule.destination), is_ipv6);
    let source_port =
        draw_port(random, inside.map(|rule| rule.source_ports).filter(|&ports| ports != ALL).unwrap_or(HIGH));
    let ports = inside.map(|rule| rule.destination_ports).filter(|&ports| ports != ALL);
    let destination_port = {
        let usual = single(random);
        draw_port(random, ports.unwrap_or(usual))
    };
    let mut bytes = vec![0; 14];
    if is_ipv6 {
        bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
        bytes.extend([0x60, 0, 0, 0, 0, 30, protocol, 64]);
        bytes.extend(source.to_be_bytes());
        bytes.extend(destination.to_be_bytes());
    } else {
        bytes[12..14].copy_from_slice(&[8, 0]);
        bytes.extend([0x45, 0, 0, 50, 0, 0, 0, 0, 64, protocol, 0, 0]);
        bytes.extend(((source >> 96) as u32).to_be_bytes());
        bytes.extend(((destination >> 96) as u32).to_be_bytes());
        let sum = checksum::ipv4_header_compute(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    bytes.extend(source_port.to_be_bytes());
    bytes.extend(destination_port.to_be_bytes());
    bytes.extend([0; 26]);
    bytes
}
