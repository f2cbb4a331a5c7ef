//! `brickway-lab bench ipsec`: what ESP costs a packet, beside the ciphers alone.
//!
//! *Raw* is a cipher library by itself: batches of packets of one association, encrypted or decrypted in place, nothing else. Its
//! engine is called as elements call it.
//!
//! *Whole* are two gateways in memory. The first one takes packets from a port, checks their headers, asks the policies, takes one
//! off the TTL, and encrypts. Over a cable they come to the second, which checks the outer header, decrypts, refuses replays, checks
//! the inner header and asks the policies. What input, output and the cable cost is subtracted: it is measured with the same
//! packets and no elements between.
//!
//! The raw size is that of the encrypted part. Inner packets are two bytes shorter, for the trailer, so that both encrypt the same.
//!
//! *RouteBricks' workload* is the third application of that paper (section 5.1): every packet is routed and encrypted with AES-128. It
//! runs on one core, from the arrival of a frame in memory to the frame that is sent, nothing subtracted.
//!
//! *Linux's ESP* encrypts frames of 64 bytes between veth links, and so does our router in its place (`io::esp`).

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use graph::graph::GraphOptions;
use graph::lang::Source;
use graph::router::RouterOptions;
use graph::setup::Shared;
use ipsec::engine::{Engine, Job, Level};
use ipsec::{Backend, Keys, Protection, Suite};
use packet::{MAX_BATCH, PoolOptions};
use ports::{MemoryLoop, OpenOptions, Port};

use super::folder::folder;
use super::runs::RunArguments;
use super::single_core::{SingleCore, cpu_cycles};
use super::{example, median, print_figure};
use crate::progress;
use router::output::{say, say_line};
use router::table::{Align, Table};

/// Measures ESP on one core, in memory, beside the ciphers alone.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab bench ipsec                                 AES-128-GCM, and AES-128-CBC with SHA-1
  brickway-lab bench ipsec --suites all --sizes 64,1420 --json
  BRICKWAY_CPU=avx2 brickway-lab bench ipsec               as on a processor without AVX-512

Cases:
  raw          the cipher library alone
  whole        two gateways, from the check of headers to the ESP packet and back
  imix         inner packets of 46, 576 and 1,418 bytes, 7 to 4 to 1
  routebricks  frames of 64 bytes, and imix, routed and encrypted, with all costs of a frame in memory
  Linux        frames of 64 bytes between veth links, by the kernel and by the router (root, a kernel with ESP)

Sizes are those of the encrypted part. Gb/s counts the inner packets, of routebricks the frames. Beside these stands the rate that
RouteBricks reported of each of its 8 cores of 2.8 GHz (section 5.2). It is 1.4 Gb/s, and 4.45 for a trace whose frames are larger than
those of imix. BRICKWAY_CPU=scalar uses AES-NI with SSE.")]
pub(crate) struct IpsecArguments {
    /// Suites, such as aes128-gcm, or all
    #[arg(long, value_delimiter = ',', value_name = "SUITES", default_value = "aes128-gcm,aes128-cbc-sha1")]
    suites: Vec<String>,
    /// Bytes of the encrypted part
    #[arg(long, value_delimiter = ',', value_name = "BYTES", default_values_t = [64_usize, 576, 1420])]
    sizes: Vec<usize>,
    /// Workers that use one association at the same time
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = [1_usize, 2])]
    workers: Vec<usize>,
    #[command(flatten)]
    run: RunArguments,
}

/// What is sent.
#[derive(Clone, Debug)]
struct Traffic {
    name: String,
    /// Inner packets, by their bytes.
    sizes: Vec<usize>,
}

impl Traffic {
    fn mean(&self) -> f64 {
        self.sizes.iter().sum::<usize>() as f64 / self.sizes.len() as f64
    }
}

/// Bytes behind the payload of each packet that are encrypted too.
const TRAILER: usize = 2;
/// Sequences of the packets of different sizes are spread by this.
const IMIX: [usize; 12] = [46, 576, 46, 46, 576, 46, 1418, 46, 576, 46, 576, 46];

pub(crate) fn ipsec(arguments: &IpsecArguments) -> Result<ExitCode> {
    arguments.run.check()?;
    let suites = suites(&arguments.suites)?;
    if let Some(size) = arguments.sizes.iter().find(|size| !(48..=1452).contains(*size) || **size % 4 != 0) {
        bail!("--sizes {size}: expected multiples of 4 from 48 to 1452");
    }
    let mut traffic: Vec<Traffic> = arguments
        .sizes
        .iter()
        .map(|size| Traffic { name: size.to_string(), sizes: vec![size - TRAILER] })
        .collect();
    traffic.push(Traffic { name: "imix".into(), sizes: IMIX.to_vec() });
    let folder = folder()?;
    let engine = Backend::best().engine().context("no cipher library works here")?.name();
    arguments.run.say_heading("ipsec", &format!("ESP by {engine}"), "one core");
    raw_of_all(arguments, &suites)?;
    whole(arguments, folder.path(), &suites, &traffic)?;
    routebricks(arguments, folder.path(), &suites)?;
    shared(arguments, folder.path(), &suites, &traffic)?;
    let has_failed = super::io::esp(arguments.run)?;
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn suites(names: &[String]) -> Result<Vec<Suite>> {
    if names.iter().any(|name| name == "all") {
        return Ok(Suite::ALL.to_vec());
    }
    let known = |name: &String| {
        let suite = Suite::ALL.into_iter().find(|suite| suite.to_string() == *name);
        suite.with_context(|| {
            format!(
                "--suites {name}: expected {} or all",
                Suite::ALL.map(|suite| suite.to_string()).join(", ")
            )
        })
    };
    names.iter().map(known).collect()
}

fn key(suite: Suite) -> (Vec<u8>, Vec<u8>) {
    ((1..=suite.key_material_bytes() as u8).collect(), vec![7; suite.auth_key_bytes()])
}

/// The backends that work here, the fastest first.
fn backends() -> Vec<(String, Backend)> {
    let all = [
        Backend::MultiBuffer(Level::All),
        Backend::MultiBuffer(Level::Avx2),
        Backend::MultiBuffer(Level::Sse),
        Backend::Reference,
    ];
    let mut known: Vec<(String, Backend)> = Vec::new();
    for backend in all {
        let name = backend.engine().map(|engine| engine.name());
        if let Some(name) = name.filter(|name| known.iter().all(|(other, _)| other != name)) {
            known.push((name, backend));
        }
    }
    known
}

/// A cipher alone.
struct Raw {
    keys: Keys,
    engine: Box<dyn Engine>,
    packets: Vec<Vec<u8>>,
    burst: usize,
}

/// Bytes before the IV.
const HEADER: usize = 8;

impl Raw {
    fn new(suite: Suite, size: usize, backend: Backend, burst: usize) -> Result<Self> {
        let (key, auth) = key(suite);
        let length = HEADER + suite.iv_bytes() + size.next_multiple_of(suite.alignment()) + suite.icv_bytes();
        Ok(Self {
            keys: Keys::new(suite, &key, &auth, backend)?,
            engine: backend.engine().context("the backend works here")?,
            packets: vec![vec![0x45; length]; MAX_BATCH],
            burst,
        })
    }

    /// Cycles a packet of sealing, and of opening.
    fn run(&mut self, seconds: f64) -> [f64; 2] {
        let length = Duration::from_secs_f64(seconds / 2.0);
        [true, false].map(|seals| {
            let (start, begin, mut count) = (Instant::now(), cpu_cycles(), 0_u64);
            while start.elapsed() < length {
                for packets in self.packets.chunks_mut(self.burst) {
                    let mut jobs: arrayvec::ArrayVec<Job<'_>, MAX_BATCH> =
                        packets.iter_mut().map(|packet| Job::new(&self.keys, packet, None)).collect();
                    // Packets that are not right take as long, but for aws-lc's CBC, which then does not decrypt.
                    if seals {
                        self.engine.seal(&mut jobs)
                    } else {
                        self.engine.open(&mut jobs)
                    }
                    count += jobs.len() as u64;
                }
            }
            (cpu_cycles() - begin) / count as f64
        })
    }
}

/// Prints what each cipher library takes by itself.
fn raw_of_all(arguments: &IpsecArguments, suites: &[Suite]) -> Result<()> {
    let RunArguments { burst, seconds, runs, json } = arguments.run;
    let mut table = Table::new(&[
        ("raw", Align::Left),
        ("library", Align::Left),
        ("bytes", Align::Right),
        ("seal", Align::Right),
        ("open", Align::Right),
        ("seal Gb/s", Align::Right),
    ]);
    for &suite in suites {
        for &size in &arguments.sizes {
            let mut raws = Vec::new();
            for (name, backend) in backends() {
                raws.push((name, Raw::new(suite, size, backend, burst)?, Vec::new()));
            }
            for _ in 0..runs {
                for (name, raw, figures) in &mut raws {
                    progress::tell("ipsec", &format!("raw {suite} {size} {name}"));
                    figures.push(raw.run(seconds));
                }
            }
            for (name, _, figures) in raws {
                let [seal, open] = [0, 1].map(|which| median(figures.iter().map(|run| run[which]).collect()));
                let gbps = size as f64 * 8.0 / seal * packet::cycles::per_second() / 1e9;
                if json {
                    let case = format!("raw/{suite}/{size}/{name}");
                    print_figure("ipsec", &case, "seal", seal, "TSC cycles");
                    print_figure("ipsec", &case, "open", open, "TSC cycles");
                    print_figure("ipsec", &case, "seal_rate", gbps, "Gb/s");
                    continue;
                }
                table.row([
                    suite.to_string(),
                    name,
                    size.to_string(),
                    format!("{seal:.0}"),
                    format!("{open:.0}"),
                    format!("{gbps:.2}"),
                ]);
            }
        }
    }
    progress::clear();
    if !json {
        say_line!("{}", table.render());
    }
    Ok(())
}

/// The file of policies and associations of both gateways.
fn file(folder: &Path, suite: Suite, end: usize) -> Result<PathBuf> {
    use std::os::unix::fs::OpenOptionsExt;
    let (key, auth) = key(suite);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let auth = if auth.is_empty() { String::new() } else { format!(" auth {}", hex(&auth)) };
    let association =
        format!("association 0x1000 192.0.2.1 192.0.2.2 {suite} key {}{auth} window 1024\n", hex(&key));
    let policy = ["out", "fwd"][end];
    // The second policy says that packets of the association are opened too, where one router does both.
    let text = format!(
        "policy {policy} any 10.0.0.0/8 10.0.0.0/8 protect 192.0.2.1 192.0.2.2\n\
         policy fwd any 172.16.0.0/12 172.16.0.0/12 protect 192.0.2.1 192.0.2.2\n{association}"
    );
    let path = folder.join(format!("{suite}-{policy}"));
    let mut options = std::fs::OpenOptions::new();
    let opened = options.create(true).truncate(true).write(true).mode(0o600).open(&path);
    opened
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .context("cannot write a file of keys")?;
    Ok(path)
}

/// UDP packets between many hosts, of these lengths with their IP header, in Ethernet frames.
fn frames(sizes: &[usize]) -> Vec<Vec<u8>> {
    let frame = |number: usize| {
        let size = sizes[number % sizes.len()];
        let mut frame = vec![2, 0, 0, 0, 0, 0xb0, 2, 0, 0, 0, 0, 1, 8, 0];
        let mut ip = vec![0x45, 0, (size >> 8) as u8, size as u8, 0, 0, 0, 0, 64, 17, 0, 0];
        ip.extend([10, 1, (number >> 8) as u8, number as u8, 10, 2, 0, number as u8]);
        let check = packet::checksum::ipv4_header_compute(&ip);
        ip[10..12].copy_from_slice(&check.to_be_bytes());
        ip.extend([0, 53, 0, 53, ((size - 20) >> 8) as u8, (size - 20) as u8, 0, 0]);
        ip.resize(size, number as u8);
        frame.extend(ip);
        frame
    };
    // A multiple of the mix, so that its shares are right.
    (0..sizes.len() * 85).map(frame).collect()
}

fn null() -> Result<Box<dyn Port>> {
    Ok(ports::open("null:", &OpenOptions::default())?)
}

/// What the first gateway does.
fn encap(file: &Path) -> String {
    format!(
        "FromDevice(bench0) -> Strip(14) -> CheckIPHeader -> policy :: IpsecPolicy(FILE \"{}\");
         policy[0] -> lost :: Discard; policy[1] -> lost; policy[3] -> lost;
         policy[2] -> DecIPTTL -> EspEncap -> ToDevice(bench1);",
        file.display()
    )
}

/// What the second gateway does.
fn decap(file: &Path) -> String {
    format!(
        "FromDevice(bench0) -> CheckIPHeader -> policy :: IpsecPolicy(FILE \"{}\");
         policy[1] -> EspDecap -> CheckIPHeader -> policy;
         policy[0] -> ToDevice(bench1); policy[2] -> lost :: Discard; policy[3] -> lost;",
        file.display()
    )
}

/// Frames of each graph.
const FRAMES: usize = 512;

const NOTHING: &str = "FromDevice(bench0) -> ToDevice(bench1);";

/// One graph, or two with a cable between them.
struct Line {
    first: SingleCore,
    second: Option<SingleCore>,
}

impl Line {
    fn new(traffic: &Traffic, first: &str, second: Option<&str>, cable: &str, burst: usize) -> Result<Self> {
        // Few frames, so that what is measured is work and not the way to memory, which has the same length with and without elements.
        let pool = PoolOptions { frames: FRAMES, ..PoolOptions::default() };
        let options = GraphOptions { pool, ..SingleCore::options(burst) };
        let core = |text: &str, ports: [Box<dyn Port>; 2]| {
            let source = Source { name: "ipsec.click".into(), text: text.into() };
            SingleCore::build_with(&source, Vec::new(), &options, ports.into_iter(), &Shared::default())
        };
        let input: Box<dyn Port> = Box::new(MemoryLoop::new(frames(&traffic.sizes)));
        let end = |end: u8| ports::open(&format!("memory:{cable}?end={end}"), &OpenOptions::default());
        Ok(match second {
            None => Self { first: core(first, [input, null()?])?, second: None },
            Some(second) => Self {
                first: core(first, [input, end(0)?])?,
                second: Some(core(second, [end(1)?, null()?])?),
            },
        })
    }

    /// Cycles a packet.
    fn run(&mut self, seconds: f64) -> f64 {
        let Some(second) = &mut self.second else { return self.first.run(seconds).cycles_per_packet() };
        let before = second.packets();
        let (start, begin, length) = (Instant::now(), cpu_cycles(), Duration::from_secs_f64(seconds));
        while start.elapsed() < length {
            for _ in 0..256 {
                self.first.turn();
                second.turn();
            }
        }
        (cpu_cycles() - begin) / (second.packets() - before).max(1) as f64
    }

    /// Whether all that came in has left.
    fn check(&mut self) -> Result<()> {
        self.first.checked_stats(false)?;
        if let Some(second) = &mut self.second {
            second.checked_stats(false)?;
        }
        Ok(())
    }
}

/// Prints what both gateways take, beside the cipher alone.
fn whole(arguments: &IpsecArguments, folder: &Path, suites: &[Suite], traffic: &[Traffic]) -> Result<()> {
    let RunArguments { burst, seconds, runs, json } = arguments.run;
    let mut table = Table::new(&[
        ("whole", Align::Left),
        ("bytes", Align::Right),
        ("encap", Align::Right),
        ("of raw", Align::Right),
        ("decap", Align::Right),
        ("of raw", Align::Right),
        ("encap Gb/s", Align::Right),
        ("decap Gb/s", Align::Right),
    ]);
    for &suite in suites {
        let (out, fwd) = (file(folder, suite, 0)?, file(folder, suite, 1)?);
        for traffic in traffic {
            let lines = [
                ("io", NOTHING.to_owned(), None),
                ("cable", NOTHING.to_owned(), Some(NOTHING.to_owned())),
                ("encap", encap(&out), None),
                ("both", encap(&out), Some(decap(&fwd))),
            ];
            let mut all = Vec::new();
            for (name, first, second) in lines {
                let cable = format!("{suite}-{}-{name}", traffic.name);
                let mut line = Line::new(traffic, &first, second.as_deref(), &cable, burst)?;
                line.run(seconds.min(0.1));
                all.push((line, Vec::new()));
            }
            let mut raw: Vec<Raw> = Vec::new();
            for size in &traffic.sizes {
                raw.push(Raw::new(suite, size + TRAILER, Backend::best(), burst)?);
            }
            let mut raws = Vec::new();
            for run in 0..runs {
                progress::tell("ipsec", &format!("{suite} {}, run {} of {runs}", traffic.name, run + 1));
                all.iter_mut().for_each(|(line, figures)| figures.push(line.run(seconds)));
                let each: Vec<[f64; 2]> =
                    raw.iter_mut().map(|raw| raw.run(seconds / traffic.sizes.len() as f64)).collect();
                raws.push(
                    [0, 1].map(|which| each.iter().map(|run| run[which]).sum::<f64>() / each.len() as f64),
                );
            }
            let mut medians = Vec::new();
            for (mut line, figures) in all {
                line.check().with_context(|| format!("{suite} {}", traffic.name))?;
                medians.push(median(figures));
            }
            let [raw_seal, raw_open] =
                [0, 1].map(|which| median(raws.iter().map(|run| run[which]).collect()));
            let (encap, decap) =
                (medians[2] - medians[0], medians[3] - medians[2] - (medians[1] - medians[0]));
            let gbps = |cycles: f64| traffic.mean() * 8.0 / cycles * packet::cycles::per_second() / 1e9;
            if json {
                let case = format!("whole/{suite}/{}", traffic.name);
                for (metric, value, unit) in [
                    ("encap", encap, "TSC cycles"),
                    ("decap", decap, "TSC cycles"),
                    ("raw_seal", raw_seal, "TSC cycles"),
                    ("raw_open", raw_open, "TSC cycles"),
                    ("encap_of_raw", encap / raw_seal, "ratio"),
                    ("decap_of_raw", decap / raw_open, "ratio"),
                    ("encap_rate", gbps(encap), "Gb/s"),
                    ("decap_rate", gbps(decap), "Gb/s"),
                ] {
                    print_figure("ipsec", &case, metric, value, unit);
                }
                continue;
            }
            table.row([
                suite.to_string(),
                traffic.name.clone(),
                format!("{encap:.0}"),
                format!("{:.2}", encap / raw_seal),
                format!("{decap:.0}"),
                format!("{:.2}", decap / raw_open),
                format!("{:.2}", gbps(encap)),
                format!("{:.2}", gbps(decap)),
            ]);
        }
    }
    progress::clear();
    if !json {
        say_line!("{}", table.render());
    }
    Ok(())
}

/// What RouteBricks reported of frames of 64 bytes and of its trace, in Gb/s of a server, and the server's cores.
const ROUTEBRICKS: [f64; 2] = [1.4, 4.45];
const ROUTEBRICKS_CORES: f64 = 8.0;

/// Bytes of a frame beside the packet: header and check sequence.
const AROUND: f64 = 18.0;

/// A router that encrypts each packet.
fn routed_and_encrypted(folder: &Path, suite: Suite, traffic: &Traffic, burst: usize) -> Result<Line> {
    let text = format!(
        "FromDevice(bench0) -> Strip(14) -> CheckIPHeader -> policy :: IpsecPolicy(FILE \"{}\");
         policy[0] -> lost :: Discard; policy[1] -> lost; policy[3] -> lost;
         rt :: DirectIPLookup(10.0.0.0/8 1, 172.16.0.0/12 1, 192.0.2.0/24 0);
         policy[2] -> DecIPTTL -> EspEncap -> rt;
         rt[0] -> EtherEncap(0x0800, 02:00:00:00:00:b1, 02:00:00:00:00:02) -> ToDevice(bench1); rt[1] -> lost;",
        file(folder, suite, 0)?.display()
    );
    Line::new(traffic, &text, None, "", burst)
}

/// Measures RouteBricks' third application: returns cycles of a packet that is routed and encrypted by AES-128-GCM, whose frames have these bytes without
/// the frame check sequence.
pub(crate) fn encrypted(frames: &[usize], seconds: f64, runs: usize) -> Result<f64> {
    let folder = folder()?;
    let sizes = frames.iter().map(|frame| frame - 14).collect();
    let traffic = Traffic { name: "paper".into(), sizes };
    let suite = Suite::new(Protection::AesGcm, 16).context("the suite is known")?;
    let mut line = routed_and_encrypted(folder.path(), suite, &traffic, 64)?;
    line.run(seconds.min(0.05));
    let cycles = (0..runs).map(|_| line.run(seconds)).collect();
    line.check()?;
    Ok(median(cycles))
}

/// Prints what it takes to route packets and encrypt each of them.
fn routebricks(arguments: &IpsecArguments, folder: &Path, suites: &[Suite]) -> Result<()> {
    let RunArguments { burst, seconds, runs, json } = arguments.run;
    let mut table = Table::new(&[
        ("routebricks", Align::Left),
        ("frames", Align::Left),
        ("cycles", Align::Right),
        ("Gb/s a core", Align::Right),
        ("published", Align::Right),
        ("times", Align::Right),
    ]);
    let traffic =
        [("64", vec![46]), ("imix", IMIX.to_vec())].map(|(name, sizes)| Traffic { name: name.into(), sizes });
    for &suite in suites {
        for (traffic, published) in traffic.iter().zip(ROUTEBRICKS) {
            let mut line = routed_and_encrypted(folder, suite, traffic, burst)?;
            line.run(seconds.min(0.1));
            let mut cycles = Vec::new();
            for run in 0..runs {
                let case = format!("routebricks {suite} {}, run {} of {runs}", traffic.name, run + 1);
                progress::tell("ipsec", &case);
                cycles.push(line.run(seconds));
            }
            line.check().with_context(|| format!("routebricks {suite} {}", traffic.name))?;
            let cycles = median(cycles);
            let rate = (traffic.mean() + AROUND) * 8.0 / cycles * packet::cycles::per_second() / 1e9;
            let published = published / ROUTEBRICKS_CORES;
            if json {
                let case = format!("routebricks/{suite}/{}", traffic.name);
                for (metric, value, unit) in [
                    ("cycles", cycles, "TSC cycles"),
                    ("rate", rate, "Gb/s"),
                    ("published", published, "Gb/s"),
                    ("of_published", rate / published, "ratio"),
                ] {
                    print_figure("ipsec", &case, metric, value, unit);
                }
                continue;
            }
            table.row([
                suite.to_string(),
                traffic.name.clone(),
                format!("{cycles:.0}"),
                format!("{rate:.2}"),
                format!("{published:.3}"),
                format!("{:.1}", rate / published),
            ]);
        }
    }
    progress::clear();
    if !json {
        say_line!("{}", table.render());
    }
    Ok(())
}

/// Prints how fast several workers are that use one association at the same time, there and back.
fn shared(arguments: &IpsecArguments, folder: &Path, suites: &[Suite], traffic: &[Traffic]) -> Result<()> {
    let RunArguments { seconds, runs, json, .. } = arguments.run;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut table = Table::new(&[
        ("one association", Align::Left),
        ("bytes", Align::Right),
        ("workers", Align::Right),
        ("Mpps", Align::Right),
        ("of one", Align::Right),
    ]);
    for &suite in suites {
        let out = file(folder, suite, 0)?;
        for traffic in traffic {
            let mut rates = vec![Vec::new(); arguments.workers.len()];
            for run in 0..runs {
                for (&workers, rates) in arguments.workers.iter().zip(&mut rates) {
                    progress::tell(
                        "ipsec",
                        &format!("{suite} {}, {workers} workers, run {}", traffic.name, run + 1),
                    );
                    rates.push(together(&out, traffic, workers, seconds)?);
                }
            }
            let rates: Vec<f64> = rates.into_iter().map(median).collect();
            let one = arguments
                .workers
                .iter()
                .position(|workers| *workers == 1)
                .map_or(f64::NAN, |place| rates[place]);
            for (workers, rate) in arguments.workers.iter().zip(rates) {
                if json {
                    let case = format!("shared/{suite}/{}/workers={workers}", traffic.name);
                    print_figure("ipsec", &case, "mpps", rate, "Mpps");
                    print_figure("ipsec", &case, "of_one", rate / one, "ratio");
                    continue;
                }
                table.row([
                    suite.to_string(),
                    traffic.name.clone(),
                    workers.to_string(),
                    format!("{rate:.2}"),
                    format!("{:.2}", rate / one),
                ]);
            }
        }
    }
    progress::clear();
    if !json {
        say!("{}", table.render());
        if arguments.workers.iter().any(|workers| *workers > cpus) {
            say_line!("{cpus} CPUs: more workers than these share them");
        }
    }
    Ok(())
}

/// Million packets a second that workers seal and open by one association.
fn together(file: &Path, traffic: &Traffic, workers: usize, seconds: f64) -> Result<f64> {
    let text = format!(
        "FromDevice(bench0) -> Strip(14) -> CheckIPHeader -> policy :: IpsecPolicy(FILE \"{}\");
         policy[0] -> lost :: Discard; policy[1] -> lost; policy[3] -> lost;
         policy[2] -> DecIPTTL -> EspEncap -> CheckIPHeader -> EspDecap -> CheckIPHeader -> ToDevice(bench1);",
        file.display()
    );
    let registry = click::registry();
    let config = example::compile(&text, Vec::new(), &registry)?;
    let tx_queues = workers + 1;
    let input = MemoryLoop::with_queues("loop", frames(&traffic.sizes), workers, tx_queues);
    let pool = PoolOptions { frames: 8192, ..PoolOptions::default() };
    let graph = GraphOptions { pool, ..GraphOptions::default() };
    let options = RouterOptions { workers, graph, pin: true, ..RouterOptions::default() };
    let ports = example::ports(Box::new(input), 1, tx_queues)?;
    example::rate(example::build(config, &registry, ports, &options)?, seconds)
}
