//! What the parts of a server allow, beside what was measured on such servers.

use anyhow::{Context, Result};
use router::table::thousands;
use sim::model::{Application, Machine, PROCESSORS, Prediction};
use sim::{ABILENE, Sizes};

use super::Setting;
use super::report::{Report, line};
use super::shape::Curve;
use crate::model::machine;
use crate::plot::Chart;

/// Cycles that software took to encrypt a byte by AES-128 on a processor of that time: 10.57 on a Core 2 (Bernstein and Schwabe, "New AES software
/// speed records", INDOCRYPT 2008).
const AES_PER_BYTE: f64 = 10.57;

const SMALL: f64 = 64.0;
const LARGE: f64 = 1024.0;

/// RouteBricks' three applications: cycles of a packet of 64 bytes from table 3, and of a byte.
struct Applications {
    forwarding: Application,
    routing: Application,
    ipsec: Application,
}

impl Applications {
    fn new(report: &mut Report<'_>) -> Result<Applications> {
        let mut cycles = |instructions: &str, each: &str| {
            Ok::<_, anyhow::Error>(report.input(instructions)? * report.input(each)?)
        };
        let forwarding = cycles("ipp-forwarding", "cpi-forwarding")?;
        let (routing, ipsec) = (cycles("ipp-routing", "cpi-routing")?, cycles("ipp-ipsec", "cpi-ipsec")?);
        // A packet of 1,024 bytes takes the processors 1.6 times one of 64 (section 5.3): cycles = a + b x bytes.
        let per_byte = (report.input("cpu-large-over-small")? - 1.0) * forwarding / (LARGE - SMALL);
        let application = |name: &str, small: f64, per_byte: f64| Application {
            name: name.to_owned(),
            cycles: small - per_byte * SMALL,
            cycles_per_byte: per_byte,
        };
        Ok(Applications {
            forwarding: application("forwarding", forwarding, per_byte),
            routing: application("IP routing", routing, per_byte),
            ipsec: application("IPsec", ipsec, per_byte + AES_PER_BYTE),
        })
    }

    fn all(&self) -> [&Application; 3] {
        [&self.forwarding, &self.routing, &self.ipsec]
    }
}

fn gbps(prediction: &Prediction) -> f64 {
    prediction.bits(prediction.bottleneck().empirical) / 1e9
}

fn predicted(machine: &Machine, application: &Application, size: u32) -> f64 {
    gbps(&machine.predict(application, size))
}

/// Bytes of the mean packet of the mix in the place of Abilene's.
fn mean_of_mix() -> u32 {
    Sizes::Abilene.mean().round() as u32
}

/// RouteBricks, figure 8: rates by size and by application.
pub(super) fn rates(_: &Setting, report: &mut Report<'_>) -> Result<()> {
    let nehalem = machine("nehalem")?;
    let applications = Applications::new(report)?;
    let Applications { forwarding, routing, ipsec } = &applications;
    let mix = mean_of_mix();
    for (key, application, size) in [
        ("fwd-64", forwarding, 64),
        ("fwd-large", forwarding, 1024),
        ("rtr-64", routing, 64),
        ("rtr-mix", routing, mix),
        ("ipsec-64", ipsec, 64),
        ("ipsec-mix", ipsec, mix),
    ] {
        report.compare(key, predicted(&nehalem, application, size))?;
    }
    let limits =
        applications.all().map(|application| nehalem.predict(application, 64).bottleneck().part.clone());
    report.compare("cpu-bound", limits.iter().filter(|part| *part == PROCESSORS).count() as f64)?;
    let over = |size: u32| -> Curve {
        let rates = applications.all().map(|application| predicted(&nehalem, application, size));
        rates.into_iter().enumerate().map(|(place, rate)| (place as f64, rate)).collect()
    };
    let at_64 = over(64);
    report.judge("fig8-order", std::slice::from_ref(&at_64))?;
    let sizes = [64, 128, 256, 512, 1024, 1518];
    let by_size = (0..)
        .zip(sizes)
        .map(|(place, size)| (f64::from(place), predicted(&nehalem, forwarding, size)))
        .collect();
    report.chart(
        Chart {
            title: "Forwarding by the model of the server".to_owned(),
            up: "Gb/s".to_owned(),
            over: "bytes of a packet".to_owned(),
            places: sizes.map(|size| size.to_string()).to_vec(),
            lines: vec![line("model", &by_size)],
            has_bars: true,
            ..Chart::default()
        },
        &["fig8-forwarding"],
    )?;
    let places = applications.all().map(|application| application.name.clone()).to_vec();
    report.chart(
        Chart {
            title: "Applications by the model of the server".to_owned(),
            up: "Gb/s".to_owned(),
            over: "application".to_owned(),
            places,
            lines: vec![line("model, 64 bytes", &at_64), line(format!("model, {mix} bytes"), &over(mix))],
            has_bars: true,
            ..Chart::default()
        },
        &["fig8-applications", "fig8-mix"],
    )?;
    let [(small, often), (middle, less), (large, least)] =
        ABILENE.map(|(bytes, weight)| (thousands(u64::from(bytes)), weight));
    report.remark(format!(
        "The model starts from table 3's cycles of 64-byte packets and the card's 12.3 Gb/s. Abilene's trace is not public: the mix here has packets of \
         {small}, {middle} and {large} bytes at {often} : {less} : {least}, {mix} on average. With large packets the cards are the limit, so that those rows hold is arithmetic."
    ));
    Ok(())
}

/// RouteBricks, section 5.3: the server to come.
pub(super) fn next(_: &Setting, report: &mut Report<'_>) -> Result<()> {
    let (now, next) = (machine("nehalem")?, machine("nehalem-next")?);
    let Applications { forwarding, routing, ipsec } = Applications::new(report)?;
    report.compare("next-fwd", predicted(&next, &forwarding, 64))?;
    report.compare("next-rtr", predicted(&next, &routing, 64))?;
    let by_prose = Application {
        name: "IP routing".to_owned(),
        cycles: report.input("cycles-routing-prose")?,
        cycles_per_byte: 0.0,
    };
    report.compare("next-rtr-prose", predicted(&next, &by_prose, 64))?;
    report.compare("next-ipsec", predicted(&next, &ipsec, 64))?;
    // Without slots and cards, and with four fifths of the label of the links between sockets and slots.
    let mut without_cards = now;
    without_cards.buses.retain(|bus| !["PCIe", "card"].contains(&bus.name.as_str()));
    let io = without_cards.buses.iter_mut().find(|bus| bus.name == "I/O").context("nehalem has no I/O")?;
    io.empirical = Some(sim::plan::Rate(io.nominal.0 * report.input("io-share-of-label")?));
    report.compare("next-mix", predicted(&without_cards, &forwarding, mean_of_mix()))
}

/// RouteBricks, figure 10: what packets load the parts with, over their rate.
pub(super) fn loads(_: &Setting, report: &mut Report<'_>) -> Result<()> {
    let nehalem = machine("nehalem")?;
    let applications = Applications::new(report)?;
    let rates: Vec<f64> = (1..=10).map(|step| f64::from(step) * 2.0).collect();
    let mut crossed = 0;
    for part in 0..=nehalem.buses.len() {
        let limits =
            applications.all().map(|application| nehalem.predict(application, 64).limits[part].clone());
        let name = limits[0].part.clone();
        let unit = if name == PROCESSORS { "cycles" } else { "bytes" };
        let mut lines: Vec<_> = applications
            .all()
            .iter()
            .zip(&limits)
            .map(|(application, limit)| {
                line(application.name.clone(), &rates.iter().map(|&rate| (rate, limit.needs)).collect())
            })
            .collect();
        let bound = |of: f64| rates.iter().map(|&rate| (rate, of / rate / 1e6)).collect::<Curve>();
        lines.push(line("bound, nominal", &bound(limits[0].nominal * limits[0].needs)));
        lines.push(line("bound, measured", &bound(limits[0].empirical * limits[0].needs)));
        crossed += usize::from(limits.iter().any(|limit| limit.empirical < 20e6));
        report.chart(
            Chart {
                title: format!("{name}: load of a 64-byte packet"),
                up: unit.to_owned(),
                over: "million packets a second".to_owned(),
                lines,
                is_logarithmic: true,
                ..Chart::default()
            },
            &[],
        )?;
    }
    report.compare("parts-crossed", crossed as f64)?;
    report.remark("Buses carry packets alone here: the paper does not give the bytes of descriptors and buffers, so loads of buses are lower than it measured.");
    let [small, large] = [64, 1024].map(|size| nehalem.predict(&applications.forwarding, size));
    let ratio = |part: usize| large.limits[part].needs / small.limits[part].needs;
    report.compare("large-memory", ratio(1))?;
    report.compare("large-io", ratio(3))
}

/// "Can software routers scale?", section 2.1: three servers by their buses.
pub(super) fn buses(_: &Setting, report: &mut Report<'_>) -> Result<()> {
    // Processors are another question, which the budgets of cycles answer.
    let free = Application { name: "buses alone".to_owned(), cycles: 1e-9, cycles_per_byte: 0.0 };
    let (shared, mesh) = (machine("shared-bus-2008")?, machine("mesh-2008")?);
    report.compare("line-shared", predicted(&shared, &free, 1500))?;
    report.compare("line-mesh", predicted(&mesh, &free, 1500))?;
    let allowed = shared.predict(&free, 1500).limits[1..]
        .iter()
        .enumerate()
        .map(|(place, limit)| (place as f64, limit.empirical * 1500.0 * 8.0 / 1e9))
        .collect::<Curve>();
    report.judge("memory-first", &[allowed])?;
    for (key, bus) in [("share-memory", 0), ("share-inter-socket", 1), ("share-pcie", 2)] {
        let bus = &mesh.buses[bus];
        report.compare(key, bus.crossings / f64::from(bus.count))?;
    }
    let measured = machine("clovertown-1.6")?;
    let small = measured.predict(&free, 64);
    report.compare("small-measured", small.bottleneck().empirical / 1e6)?;
    report.compare("large-measured", predicted(&measured, &free, 1024))?;
    report.compare("mesh-times", predicted(&mesh, &free, 64) / predicted(&shared, &free, 64))?;
    report.remark("Buses, their rates and how often a packet crosses them are the paper's (sections 2.1 and 2.2): the rows of section 2.1 are its own arithmetic, done again.");
    let sizes = [64, 128, 256, 512, 1024, 1518];
    let lines =
        [("shared bus", &shared), ("mesh", &mesh), ("measured server", &measured)].map(|(name, machine)| {
            let rates =
                (0..).zip(sizes).map(|(place, size)| (f64::from(place), predicted(machine, &free, size)));
            line(name, &rates.collect())
        });
    report.chart(
        Chart {
            title: "What buses allow".to_owned(),
            up: "Gb/s".to_owned(),
            over: "bytes of a packet".to_owned(),
            places: sizes.map(|size| size.to_string()).to_vec(),
            lines: lines.to_vec(),
            is_logarithmic: true,
            ..Chart::default()
        },
        &["forwarded-2008"],
    )
}

/// Bytes of preamble and gap of a packet on the wire.
const GAP: f64 = 20.0;

/// Server network cards, figures 4 and 5: one port or two for so many queues, by what a port takes.
pub(super) fn queues(_: &Setting, report: &mut Report<'_>) -> Result<()> {
    let (port, core) = (report.input("port-mpps")?, report.input("two-cores-mpps")? / 2.0);
    let wire = 10e9 / 8.0;
    report.compare("bytes-that-fill", wire / (port * 1e6) - GAP)?;
    report.compare("line-rate", wire / (SMALL + GAP) / 1e6)?;
    let queues = [2.0, 4.0, 6.0, 8.0];
    let rates = |ports: f64| queues.map(|queues: f64| (queues, (queues * core).min(ports * port)));
    let (one, two) = (rates(1.0), rates(2.0));
    report.compare("two-ports-eight", two[3].1)?;
    let drawn = |name: &str, rates: [(f64, f64); 4]| {
        line(name, &rates.iter().enumerate().map(|(place, rate)| (place as f64, rate.1)).collect())
    };
    report.chart(
        Chart {
            title: "Forwarding by the model of the card".to_owned(),
            up: "Mpps".to_owned(),
            over: "queues, and as many cores".to_owned(),
            places: queues.map(|queues| queues.to_string()).to_vec(),
            lines: vec![drawn("one port", one), drawn("two ports", two)],
            ..Chart::default()
        },
        &["one-port", "two-ports"],
    )?;
    report.remark("The model has a port's 11.7 million packets a second as a limit; that more queues take a little of it, as the paper measured, it cannot show.");
    Ok(())
}
