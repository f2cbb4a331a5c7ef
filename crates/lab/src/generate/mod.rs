//! `brickway-lab gen`: a traffic generator and the sink that judges what comes back.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | the command line, and what it asks for |
//! | `values` | rates, sizes, ranges as text |
//! | `source` | what a trial sends: one of the next two |
//! | `traffic` | flows; what packet number `n` looks like |
//! | `trace`, `replay`, `slot` | frames of a capture file; when they leave; where a signature goes in them |
//! | `signature` | the bytes that make a packet ours; how a frame is judged |
//! | `pacing` | when the next packet may leave |
//! | `sink`, `sequence`, `histogram` | counts, sequence numbers, latencies |
//! | `stations` | the ports, and ARP and neighbour discovery on them |
//! | `trial` | the loop that sends and receives |
//! | `session` | a series of trials and their reports |
//! | `in_kernel` | a trial whose frames the kernel makes and counts |
//! | `rfc2544` | the search for the highest rate without loss |
//! | `report` | tables and JSON |

mod histogram;
mod in_kernel;
mod pacing;
mod replay;
mod report;
mod rfc2544;
mod sequence;
mod session;
mod signature;
mod sink;
mod slot;
mod source;
mod stations;
mod trace;
mod traffic;
mod trial;
mod values;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Error, Result, bail};
use clap::Args;
use fib::read::{AnyTable, Table};
use packet::wire::ethernet::MacAddr;
use packet::{Family, IpVersion};

use self::in_kernel::InKernel;
use self::replay::{Replay, ReplayOptions};
use self::session::Session;
use self::stations::{Station, Stations};
use self::trace::{Limits, Trace};
use self::traffic::{Destinations, Kind, Protocol, TrafficOptions};
use self::values::{FCS_BYTES, FrameSize, Hosts, PortRange, Rate};

/// Exit code: packets were lost, doubled or corrupted.
const LOSS: u8 = 3;
/// A frame of a trace that is sent so much later than its time, and a twentieth of the time until then, is worth a warning.
const LATE_NS: u64 = 100_000_000;
/// Exit code: wrong usage.
const USAGE: u8 = 2;
/// A million flows take 100 MB of templates and 144 MB of windows.
const MOST_FLOWS: u32 = 1 << 20;

/// Generates traffic on a port and judges what comes back: loss, duplicates, corruption, order and latency.
///
/// Packets are numbered and time-stamped. They go out of one port and are expected back on another (or on the same one),
/// usually with a router in between. Sizes of frames count the FCS (4 bytes), as RFC 2544 does: 64 to 1518.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab gen --tx memory:a --rx 'memory:a?end=1' --count 1000000 --rate max
      see what this machine can do, without any network (and without root)
  brickway-lab gen --tx 'memory:a?drop=1%&fault=tx' --rx 'memory:a?end=1' --count 10000
      a bad line: the report shows what it did
  brickway-lab gen --tx eth1 --rx eth2 --address 10.0.1.2 --gateway 10.0.1.1 --rx-address 10.0.2.2 \\
               --dst 10.0.2.2 --rate 10k --for 10
      through a router that has 10.0.1.1 on the side of eth1 and 10.0.2.1 on that of eth2
  brickway-lab gen ... --dst-file rib.txt.gz --flows 65536 --size imix --rate 100Mbit
      65,536 flows to destinations inside the prefixes of a routing table
  brickway-lab gen --tx eth1 --rx eth2 --address 2001:db8:1::2 --gateway 2001:db8:1::1 --rx-address 2001:db8:2::2 \\
               --src 2001:db8:1::100/120 --dst 2001:db8:2::100/120 --flows 100
      the same in IPv6: neighbour discovery takes the place of ARP
  brickway-lab gen ... --size 64:7,594:4,1518:1
      sizes with weights; imix is this mix
  brickway-lab gen ... --in-kernel --rate max --for 10 --allow-loss 100
      what a router can do at most: the kernel makes the frames of eth1 and counts those that come back by eth2
  brickway-lab gen ... --rfc2544 --sizes 64,512,1518 --trial 10
      the highest rate without loss for three frame sizes
  brickway-lab gen --tx eth1 --protocol icmp --address 10.0.1.2 --gateway 10.0.1.1 --dst 10.0.1.1
      a fast ping: echo replies count as received
  brickway-lab gen --tx eth1 --rx eth2 --address 10.0.1.2 --gateway 10.0.1.1 --rx-address 10.0.2.2 \\
               --replay trace.pcap --speed 2 --loop 3
      the frames of a capture three times, twice as fast as they were captured
  brickway-lab gen ... --replay trace.pcapng --rate max
      the same frames as fast as can be
  brickway-lab gen --tx 'pcap:?out=flows.pcap' --rx none --dst-mac 02:00:00:00:00:02 --count 1000 --rate max
      into a file

A signature takes the last 18 bytes of the payload of replayed UDP, TCP and echoes, whose checksums are made anew; they are judged
as other packets are. Frames without room for it are sent as they are and not judged; those that come back count as foreign.

A port is [DRIVER:]NAME[?OPTION=VALUE&...]; drivers are af_packet (the default), af_xdp, dpdk (in a build with it), tap,
pcap, memory and null.

Exit codes:
  0  every packet came back once and whole (or as many as --allow-loss wants)
  1  it cannot run
  2  wrong usage
  3  packets were lost, doubled or corrupted")]
pub(crate) struct GenerateArguments {
    /// The port that sends
    #[arg(long, value_name = "PORT")]
    tx: String,
    /// The port on which packets come back, or `none` [default: the sending port]
    #[arg(long, value_name = "PORT")]
    rx: Option<String>,
    /// Number of flows, which take turns
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_FLOWS)))]
    flows: u32,
    /// Source addresses, all IPv4 or all IPv6 as the other addresses, such as 2001:db8:1::/64
    /// [default: --address, else 198.18.0.1 or 2001:2::1]
    #[arg(long, value_name = "IP[/LEN]")]
    src: Option<Hosts>,
    /// Destination addresses, such as 2001:db8:2::/48. 198.18.0.0/15 and 2001:2::/48 are for tests (RFC 2544 and 5180)
    /// [default: 198.19.0.1 or 2001:2:0:1::1]
    #[arg(long, value_name = "IP[/LEN]", conflicts_with = "dst_file")]
    dst: Option<Hosts>,
    /// Draw each flow's destination from the IPv4 or IPv6 prefixes of this table (PREFIX ORIGIN a line, plain or gzip)
    #[arg(long, value_name = "TABLE")]
    dst_file: Option<PathBuf>,
    /// Source ports (identifiers of ICMP echoes)
    #[arg(long, value_name = "PORTS", default_value = "49152-65535")]
    sport: PortRange,
    /// Destination ports
    #[arg(long, value_name = "PORTS", default_value = "9")]
    dport: PortRange,
    /// What the packets are
    #[arg(long, value_enum, default_value_t = Protocol::Udp)]
    protocol: Protocol,
    /// Frame size with FCS: a size, a range such as 64-1518, sizes with weights such as 64:7,594:4,1518:1, imix (this mix), or
    /// abilene. The latter is the same mix, in place of RouteBricks' trace, which is not public
    /// [default: the smallest, 64 or for TCP 76, in IPv6 84 or 96]
    #[arg(long, value_name = "BYTES", conflicts_with = "rfc2544")]
    size: Option<FrameSize>,
    /// Packets a second (1000, 250k, 1.5Mpps), bits of frames with FCS a second (100Mbit), or max
    /// [default: 1000, with --rfc2544 max, where the search starts]
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Stop after so many packets
    #[arg(long, value_name = "N", conflicts_with = "rfc2544")]
    count: Option<u64>,
    /// Stop after so many seconds. Without this and --count it stops at Ctrl-C
    #[arg(long = "for", value_name = "SECONDS", value_parser = values::seconds, conflicts_with = "rfc2544")]
    duration: Option<f64>,
    /// Most packets sent at a time
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=256))]
    burst: u16,
    /// Wait so long for packets after the last one [default: 1, with --rfc2544 2]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    settle: Option<f64>,
    /// Link address of the sender [default: the port's, with --replay the file's]
    #[arg(long, value_name = "MAC")]
    src_mac: Option<MacAddr>,
    /// Link address to send to [default: the gateway's, else that of the --rx port, with --replay the file's]
    #[arg(long, value_name = "MAC", conflicts_with = "gateway")]
    dst_mac: Option<MacAddr>,
    /// Our address on the sending port, such as 10.0.1.2 or 2001:db8:1::2: ARP requests or neighbour solicitations for it, and for
    /// --src, are answered
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// Send to this router, such as 10.0.1.1 or 2001:db8:1::1, whose link address ARP or neighbour discovery finds
    #[arg(long, value_name = "IP", requires = "address")]
    gateway: Option<IpAddr>,
    /// Our address on the --rx port: ARP requests or neighbour solicitations for it, and for --dst, are answered
    #[arg(long, value_name = "IP", requires = "rx")]
    rx_address: Option<IpAddr>,
    /// Draw other destinations and sizes
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Send the frames of this pcap or pcapng file with the times of their capture, such as trace.pcap; with --rate at that rate
    #[arg(long, value_name = "FILE", conflicts_with_all = ["flows", "src", "dst", "dst_file", "sport", "dport", "protocol", "size",
        "in_kernel", "rfc2544"])]
    replay: Option<PathBuf>,
    /// Replay so much faster than the frames were captured; 2 takes half the time
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = values::factor, requires = "replay", conflicts_with = "rate")]
    speed: f64,
    /// Replay the file so many times, such as 3; between two of them is the mean time between its frames
    #[arg(long = "loop", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), requires = "replay")]
    passes: u64,
    /// Share of packets that may be lost, doubled or corrupted
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = values::percent)]
    allow_loss: f64,
    /// Have the kernel make and count the frames, in XDP: some million a second from a core, but without order, latency and damage
    #[arg(long)]
    in_kernel: bool,
    /// Search the highest rate without loss for several frame sizes (RFC 2544, section 26.1)
    #[arg(long)]
    rfc2544: bool,
    /// Seconds a trial takes; the RFC wants 60 for the final word
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = values::seconds, requires = "rfc2544")]
    trial: f64,
    /// How fine the search is, in percent of the highest rate
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = values::percent, requires = "rfc2544")]
    resolution: f64,
    /// Frame sizes with FCS, such as 64,imix,1518 [default: 64,128,256,512,1024,1280,1518, the first one as large as the headers need]
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = values::one_of_sizes, requires = "rfc2544")]
    sizes: Vec<FrameSize>,
    /// No line of progress
    #[arg(long, short)]
    quiet: bool,
    /// Print the report as one JSON object a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn generate(arguments: &GenerateArguments) -> Result<ExitCode> {
    if let Err(mistake) = check(arguments) {
        graph::note!("brickway-lab gen: {mistake}");
        return Ok(ExitCode::from(USAGE));
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    router::interrupt::on_interrupt(move || flag.store(true, Ordering::SeqCst))
        .context("cannot catch Ctrl-C")?;
    run(arguments, &interrupted)
}

/// Mistakes that the parser of the command line cannot see.
fn check(arguments: &GenerateArguments) -> Result<(), String> {
    let has_receiver = arguments.rx.as_ref().is_some_and(|rx| *rx != arguments.tx && rx != "none");
    if !has_receiver
        && arguments.dst_mac.is_none()
        && arguments.gateway.is_none()
        && arguments.replay.is_none()
    {
        return Err(
            "the link address to send to is not known; expected --gateway IP with --address IP, --dst-mac MAC, or \
             another port for what comes back, --rx PORT"
                .to_owned(),
        );
    }
    if arguments.rfc2544 {
        if arguments.rx.as_deref() == Some("none") {
            return Err("--rfc2544 needs packets to come back; --rx cannot be none".to_owned());
        }
        if arguments.trial == 0.0 {
            return Err("--trial 0 sends nothing; expected 5, or 60 for the final word".to_owned());
        }
    }
    if let Some(version) = version(arguments)? {
        check_sizes(arguments, Kind { version, protocol: arguments.protocol })?;
    }
    if arguments.count == Some(0) {
        return Err("--count 0 sends nothing; expected 1 or more".to_owned());
    }
    Ok(())
}

/// Returns the family of the addresses, which is one; `None` if only the table of --dst-file says it.
fn version(arguments: &GenerateArguments) -> Result<Option<IpVersion>, String> {
    let hosts = |hosts: Option<Hosts>| hosts.map(|hosts| hosts.version());
    let one = |address: Option<IpAddr>| address.map(IpVersion::of);
    let given = [
        ("--src", hosts(arguments.src)),
        ("--dst", hosts(arguments.dst)),
        ("--address", one(arguments.address)),
        ("--gateway", one(arguments.gateway)),
        ("--rx-address", one(arguments.rx_address)),
    ];
    let mut given =
        given.into_iter().filter_map(|(option, version)| version.map(|version| (option, version)));
    let Some((first, version)) = given.next() else {
        return Ok(arguments.dst_file.is_none().then_some(IpVersion::V4));
    };
    match given.find(|(_, other)| *other != version) {
        None => Ok(Some(version)),
        Some((option, other)) => {
            Err(format!("{first} is {version} and {option} is {other}; expected one family in a run"))
        }
    }
}

/// Checks that frames of the sizes that are asked for have room for headers and signature.
fn check_sizes(arguments: &GenerateArguments, kind: Kind) -> Result<(), String> {
    let smallest = kind.smallest_frame();
    // Small packets of a mix grow.
    let too_small = |size: &FrameSize| !matches!(size, FrameSize::Mix(_)) && size.smallest() < smallest;
    match sizes(arguments, kind).iter().find(|size| too_small(size)) {
        None => Ok(()),
        Some(size) => Err(format!(
            "a frame of {} bytes has no room for the headers and the 18 bytes of the signature; the smallest is {smallest}",
            size.smallest()
        )),
    }
}

/// The frame sizes that are asked for.
fn sizes(arguments: &GenerateArguments, kind: Kind) -> Vec<FrameSize> {
    let smallest = FrameSize::Fixed(kind.smallest_frame());
    match (arguments.rfc2544, arguments.sizes.as_slice()) {
        (false, _) => vec![arguments.size.clone().unwrap_or(smallest)],
        (true, []) => [&[smallest], &rfc2544::SIZES[1..]].concat(),
        (true, sizes) => sizes.to_vec(),
    }
}

/// Opens the ports and runs what is asked for.
fn run(arguments: &GenerateArguments, interrupted: &AtomicBool) -> Result<ExitCode> {
    let mut session = Session::new(arguments, interrupted);
    if let Some(path) = &arguments.replay {
        return replay(session, path);
    }
    let seed = arguments.seed.unwrap_or(1);
    let (version, drawn) = match &arguments.dst_file {
        None => (version(arguments).map_err(Error::msg)?.unwrap_or(IpVersion::V4), None),
        Some(path) => {
            let drawn = draw(path, version(arguments).map_err(Error::msg)?, arguments.flows, seed)?;
            (IpVersion::of(drawn[0]), Some(drawn))
        }
    };
    let kind = Kind { version, protocol: arguments.protocol };
    check_sizes(arguments, kind).map_err(Error::msg)?;
    let (own, other) = match version {
        IpVersion::V4 => (IpAddr::from([198, 18, 0, 1]), IpAddr::from([198, 19, 0, 1])),
        IpVersion::V6 => {
            (IpAddr::from([0x2001, 2, 0, 0, 0, 0, 0, 1]), IpAddr::from([0x2001, 2, 0, 1, 0, 0, 0, 1]))
        }
    };
    let hosts = arguments.dst.unwrap_or(Hosts::one(other));
    let sizes = sizes(arguments, kind);
    let largest = sizes.iter().map(FrameSize::largest).max().unwrap_or(0).max(kind.smallest_frame());
    let mut stations = open(arguments, largest, drawn.is_none().then_some(hosts))?;
    let destination_mac = destination_mac(arguments, &mut stations, interrupted)?
        .unwrap_or_else(|| stations.all().last().unwrap_or(stations.sender()).mac);
    let mut options = TrafficOptions {
        flows: arguments.flows,
        source_mac: arguments.src_mac.unwrap_or(stations.sender().mac),
        destination_mac,
        sources: arguments.src.unwrap_or(Hosts::one(arguments.address.unwrap_or(own))),
        destinations: drawn.map_or(Destinations::Hosts(hosts), Destinations::Drawn),
        source_ports: arguments.sport,
        destination_ports: arguments.dport,
        kind,
        size: sizes[0].clone(),
        seed,
    };
    if options.possible_flows() < u64::from(options.flows) {
        graph::note!(
            "brickway-lab gen: --flows {}: the addresses and ports give {} different flows; widen --src, --dst, --sport or --dport",
            options.flows,
            options.possible_flows()
        );
        return Ok(ExitCode::from(USAGE));
    }
    let vary = !sizes.iter().all(|size| matches!(size, FrameSize::Fixed(_)));
    let open_kernel = || InKernel::open(&arguments.tx, receiving_port(arguments), arguments.flows, vary);
    let in_kernel = arguments.in_kernel.then(open_kernel).transpose()?;
    session.in_kernel = in_kernel;
    if arguments.rfc2544 {
        session.throughput(&mut stations, &mut options, &sizes)
    } else {
        session.once(&mut stations, &options)
    }
}

/// Where packets come back; `None` if they do not.
fn receiving_port(arguments: &GenerateArguments) -> Option<&str> {
    match arguments.rx.as_deref() {
        None => Some(arguments.tx.as_str()),
        Some("none") => None,
        rx => rx,
    }
}

/// Returns the link address to send to, if it is given or the gateway's.
fn destination_mac(
    arguments: &GenerateArguments,
    stations: &mut Stations,
    interrupted: &AtomicBool,
) -> Result<Option<MacAddr>> {
    match (arguments.dst_mac, arguments.gateway, arguments.address) {
        (None, Some(gateway), Some(own)) => stations.resolve(own, gateway, interrupted).map(Some),
        (mac, _, _) => Ok(mac),
    }
}

/// Sends the frames of a trace.
fn replay(mut session: Session<'_>, path: &Path) -> Result<ExitCode> {
    let arguments = session.arguments;
    version(arguments).map_err(Error::msg)?;
    let mut stations = open(arguments, values::SMALLEST_FRAME, None)?;
    let (mtu, data_bytes) = (stations.sender().mtu, stations.pool.data_bytes());
    let limits = Limits { mtu, data_bytes, flows: MOST_FLOWS };
    let trace = Trace::survey(path, limits, session.interrupted)?;
    if let Some(error) = &trace.tally.broken_end {
        graph::note!("warning: {error}; the {} frames before are sent", trace.tally.frames);
    }
    if trace.judged == 0 && stations.has_sink() {
        graph::note!(
            "warning: trace '{}': no frame has room for a signature, so none is judged",
            path.display()
        );
    }
    let options = ReplayOptions {
        passes: arguments.passes,
        speed: arguments.rate.is_none().then_some(arguments.speed),
        source_mac: arguments.src_mac,
        destination_mac: destination_mac(arguments, &mut stations, session.interrupted)?,
    };
    let mut source = Replay::new(&trace, options, session.next_generator())?;
    let trial = session.options(Rate::Max);
    let outcome = session.watched(stations.has_sink(), |interrupted, show| {
        trial::run(&mut stations, &mut source, &trial, interrupted, show)
    })?;
    session.compare_with_rate(trial.rate, &outcome);
    let late_ns = outcome.sending_ns.saturating_sub(source.last_due_ns);
    if options.speed.is_some() && late_ns > source.last_due_ns / 20 + LATE_NS {
        graph::note!(
            "warning: the last frame was sent {:.3} s too late: this machine or the port was not faster",
            late_ns as f64 / 1e9
        );
    }
    session.report(&stations, &outcome, &format!("replay={}", path.display()), Some(&trace))
}

/// Opens the ports, with room for frames of `largest` bytes (FCS counted); the receiver answers for `hosts`, where packets go.
fn open(arguments: &GenerateArguments, largest: u16, hosts: Option<Hosts>) -> Result<Stations> {
    let mut sender = Station::open(&arguments.tx)?;
    let own = arguments.address.map(Hosts::one);
    sender.answer_for(own.into_iter().chain(arguments.src));
    let mut receiver = match arguments.rx.as_deref() {
        None | Some("none") => None,
        Some(rx) if rx == arguments.tx => None,
        Some(rx) => Some(Station::open(rx)?),
    };
    let back_on_sender = arguments.rx.as_deref() != Some("none");
    let rx_address = arguments.rx_address.map(Hosts::one);
    match &mut receiver {
        // Whoever sends packets there must find the hosts that they are for.
        Some(receiver) => {
            receiver.answer_for(rx_address.into_iter().chain(hosts));
        }
        None => sender.answer_for(rx_address),
    }
    let link_bytes = packet::wire::ethernet::HEADER_LEN + FCS_BYTES;
    if usize::from(largest) > sender.mtu + link_bytes {
        bail!(
            "frames of {largest} bytes are too long for port `{}`: its MTU of {} allows {}; use smaller ones or raise the MTU",
            sender.name,
            sender.mtu,
            sender.mtu + link_bytes
        );
    }
    Stations::new(sender, receiver, back_on_sender, usize::from(largest))
}

/// One destination a flow, inside the prefixes of a table; of the family of its first row if none is given.
fn draw(path: &Path, version: Option<IpVersion>, flows: u32, seed: u64) -> Result<Vec<IpAddr>> {
    let explain = || format!("cannot read the table '{}'", path.display());
    let table = match version {
        Some(IpVersion::V4) => AnyTable::Ipv4(fib::read::load(path).with_context(explain)?),
        Some(IpVersion::V6) => AnyTable::Ipv6(fib::read::load(path).with_context(explain)?),
        None => fib::read::load_any(path).with_context(explain)?,
    };
    match table {
        AnyTable::Ipv4(table) => draw_from(path, &table, flows, seed),
        AnyTable::Ipv6(table) => draw_from(path, &table, flows, seed),
    }
}

fn draw_from<A: Family>(path: &Path, table: &Table<A>, flows: u32, seed: u64) -> Result<Vec<IpAddr>> {
    if table.bad > 0 {
        graph::note!("warning: '{}': {} bad rows are not used", path.display(), table.bad);
        if let Some(error) = table.errors.first() {
            graph::note!("warning: '{}': {error}", path.display());
        }
    }
    let drawn = fib::synthesize::destinations_inside(&table.rows, flows as usize, seed);
    if drawn.is_empty() {
        bail!("the table '{}' has no {} prefix; expected a PREFIX ORIGIN a line", path.display(), A::VERSION);
    }
    Ok(drawn.into_iter().map(A::to_ip).collect())
}
