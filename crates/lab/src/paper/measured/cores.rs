//! RouteBricks' experiments on one core: batches, applications, cycles over the rate.

use anyhow::Result;

use super::mpps;
use crate::bench::ipsec::encrypted;
use crate::bench::rig::{Application, AtRate, Rig, Traffic, medians};
use crate::paper::Setting;
use crate::paper::report::{Report, line};
use crate::paper::shape::Curve;
use crate::plot::{Chart, Line};

/// RouteBricks' burst, which is Click's most.
const BURST: usize = 32;
/// A table of a quarter of a million entries is RouteBricks'; destinations are drawn in as many networks.
const BITS: u32 = 18;
const ROUTING: Application = Application::Routing { table: "byte24" };

/// Table 1: packets taken at a time.
pub(in crate::paper) fn polling(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let bursts = [(1, 1), (32, 1), (32, 32)];
    let rigs = bursts.map(|(rx, tx)| Rig::new(Application::Forwarding, Traffic::SMALL, rx, tx));
    let mut rigs = rigs.into_iter().collect::<Result<Vec<_>>>()?;
    let rates: Vec<f64> = medians(&mut rigs, setting.seconds, setting.runs)?.into_iter().map(mpps).collect();
    report.compare("poll-batching", rates[1] / rates[0])?;
    report.compare("both-batchings", rates[2] / rates[0])?;
    report.compare("second-batching", rates[2] / rates[1])?;
    let steps: Curve = rates.iter().enumerate().map(|(place, &rate)| (place as f64, rate)).collect();
    report.judge("batching-rises", &[steps])?;
    report.chart(
        Chart {
            title: "Forwarding 64-byte packets on one core".to_owned(),
            up: "Mpps".to_owned(),
            over: "packets of a poll, of a send".to_owned(),
            places: bursts.map(|(rx, tx)| format!("{rx}, {tx}")).to_vec(),
            lines: vec![Line::over_places("ours", rates.iter().map(|&rate| Some(rate)))],
            has_bars: true,
            ..Chart::default()
        },
        &[],
    )?;
    report.remark("The paper's kn are descriptors that a card hands over at a time. In memory no card does; the burst that is sent stands for it.");
    Ok(())
}

/// Bytes of the frame check sequence, which frames in memory have not.
const CHECK: usize = 4;

/// Figure 8 and table 3 on this machine: three applications, sizes of packets.
pub(in crate::paper) fn applications(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let sizes = [64, 128, 256, 512, 1024, 1518];
    let traffics = sizes.map(|size| Traffic { size: size - CHECK, bits: Some(BITS), ..Traffic::SMALL });
    let of = |application| -> Result<Vec<f64>> {
        let rigs = traffics.iter().map(|&traffic| Rig::new(application, traffic, BURST, BURST));
        medians(&mut rigs.collect::<Result<Vec<_>>>()?, setting.seconds, setting.runs)
    };
    let (forwarding, routing) = (of(Application::Forwarding)?, of(ROUTING)?);
    let ipsec: Vec<f64> = sizes[..5]
        .iter()
        .map(|size| encrypted(&[size - CHECK], setting.seconds, setting.runs))
        .collect::<Result<_>>()?;
    for (key, cycles) in [("cycles-fwd", &forwarding), ("cycles-rtr", &routing), ("cycles-ipsec", &ipsec)] {
        report.compare(key, cycles[0])?;
    }
    let small = [forwarding[0], routing[0], ipsec[0]].map(mpps);
    let order: Curve = (0..).zip(small).map(|(place, rate)| (f64::from(place), rate)).collect();
    report.judge("order-here", &[order])?;
    let gbps = |cycles: &[f64]| -> Vec<f64> {
        sizes.iter().zip(cycles).map(|(&size, &cycles)| mpps(cycles) * size as f64 * 8.0 / 1e3).collect()
    };
    let grown: Curve = sizes.iter().zip(gbps(&forwarding)).map(|(&size, rate)| (size as f64, rate)).collect();
    report.judge("grows-with-size", &[grown])?;
    let lines = [("forwarding", &forwarding), ("IP routing", &routing), ("IPsec, AES-128-GCM", &ipsec)];
    let drawn = lines.map(|(name, cycles)| Line::over_places(name, gbps(cycles).into_iter().map(Some)));
    report.chart(
        Chart {
            title: "One core".to_owned(),
            up: "Gb/s".to_owned(),
            over: "bytes of a packet".to_owned(),
            places: sizes.map(|size| size.to_string()).to_vec(),
            lines: drawn.to_vec(),
            is_logarithmic: true,
            ..Chart::default()
        },
        &["fig8-forwarding"],
    )?;
    report.remark(
        "One core, in memory: no card limits large packets. The marks are eight cores of 2009. Frames are copied by the core that is measured.",
    );
    Ok(())
}

/// Bytes of a stream's array: more than caches hold.
const STREAM: usize = 512 << 20;

/// Table 2: what memory bears, by copying and by writing at random.
pub(in crate::paper) fn memory(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let cpus = crate::bench::allowed_cpus();
    let runs = if setting.is_quick { 1 } else { 3 };
    let best =
        |of: &dyn Fn(usize) -> f64, cores: usize| (0..runs).map(|_| of(cores)).fold(0.0, f64::max) / 1e9;
    let copied = [1, cpus].map(|cores| best(&crate::model::copied_bits, cores));
    let random = [1, cpus].map(|cores| best(&scattered_bits, cores));
    report.compare("random-over-label", random[1] / copied[1])?;
    report.chart(
        Chart {
            title: "Memory, read and written".to_owned(),
            up: "Gb/s".to_owned(),
            over: "cores".to_owned(),
            places: vec!["1".to_owned(), cpus.to_string()],
            lines: vec![
                Line::over_places("copying", copied.map(Some)),
                Line::over_places("writing words at random", random.map(Some)),
            ],
            has_bars: true,
            ..Chart::default()
        },
        &[],
    )?;
    report.remark("A word that is written at random reads and writes a line of 64 bytes. What a label says of this machine's memory nobody tells a guest: copying stands for it.");
    Ok(())
}

/// Bits a second that go in and out of memory while cores write a constant to random places of a large array.
fn scattered_bits(cores: usize) -> f64 {
    const WRITES: usize = 8 << 20;
    let work = |core: usize| {
        let mut words = vec![1_u64; STREAM / 8];
        let mut random = packet::random::SplitMix64::new(core as u64);
        let begin = std::time::Instant::now();
        for _ in 0..WRITES {
            let place = (random.next_u64() >> 32) as usize % words.len();
            words[place] = 7;
        }
        std::hint::black_box(&words);
        WRITES as f64 * 2.0 * 64.0 * 8.0 / begin.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|core| scope.spawn(move || work(core))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0.0)).sum()
    })
}

/// Figure 9: cycles of a packet do not depend on the rate.
pub(in crate::paper) fn load(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let shares = [0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9];
    // As its card does; and one at a time, as ours do.
    let together = report.input("kn")? as u64;
    let mut lines = Vec::new();
    for (name, key, application) in
        [("forwarding", "fwd-flat", Application::Forwarding), ("IP routing", "rtr-flat", ROUTING)]
    {
        let traffic = Traffic { bits: Some(BITS), ..Traffic::SMALL };
        let full = full_speed(setting, application, traffic)?;
        for at_a_time in [together, 1] {
            let traffic = Traffic { together: at_a_time, ..traffic };
            let mut curve = Curve::new();
            for share in shares {
                let middle = at_share(setting, application, traffic, full * share, |run| run.cycles)?;
                curve.push((middle.mpps, middle.cycles));
            }
            if at_a_time == together {
                report
                    .judge(key, &[curve.iter().copied().filter(|point| point.0 >= full * 0.29).collect()])?;
            }
            lines.push(line(format!("{name}, {at_a_time} at a time"), &curve));
        }
        let there_are =
            shares.map(|share| (full * share, packet::cycles::per_second() / 1e6 / (full * share)));
        lines.push(line(format!("{name}: cycles there are"), &there_are.to_vec()));
    }
    report.chart(
        Chart {
            title: "A 64-byte packet, polls without packets left out".to_owned(),
            up: "TSC cycles".to_owned(),
            over: "million packets a second".to_owned(),
            lines,
            is_logarithmic: true,
            ..Chart::default()
        },
        &[],
    )
}

/// Returns million packets a second at full speed, with the cost of the source's clock.
fn full_speed(setting: &Setting, application: Application, traffic: Traffic) -> Result<f64> {
    let fast = Traffic { rate: Some(1e9), ..traffic };
    let cycles = medians(&mut [Rig::new(application, fast, BURST, BURST)?], setting.seconds, setting.runs)?;
    Ok(mpps(cycles[0]))
}

/// Returns the middle one of runs at so many million packets a second.
fn at_share(
    setting: &Setting,
    application: Application,
    traffic: Traffic,
    mpps: f64,
    of: fn(&AtRate) -> f64,
) -> Result<AtRate> {
    let mut rig = Rig::new(application, Traffic { rate: Some(mpps * 1e6), ..traffic }, BURST, BURST)?;
    rig.run_at_rate(setting.seconds.min(0.05))?;
    let mut runs = (0..setting.runs).map(|_| rig.run_at_rate(setting.seconds)).collect::<Result<Vec<_>>>()?;
    runs.sort_by(|a, b| of(a).total_cmp(&of(b)));
    Ok(runs.swap_remove(runs.len() / 2))
}

/// "Can software routers scale?", figures 3 and 4: what is forwarded of what is offered.
pub(in crate::paper) fn offered(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let shares = [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5];
    let mut lines = Vec::new();
    for size in [64, 256, 1024, 1518] {
        let traffic = Traffic { size: size - CHECK, ..Traffic::SMALL };
        let full = full_speed(setting, Application::Forwarding, traffic)?;
        let mut curve = Curve::new();
        for share in shares {
            let middle = at_share(setting, Application::Forwarding, traffic, full * share, |run| run.mpps)?;
            curve.push((middle.offered_mpps, middle.mpps));
        }
        if size == 64 {
            report.judge("never-falls", std::slice::from_ref(&curve))?;
            report.compare("small-rate", curve.iter().map(|point| point.1).fold(0.0, f64::max))?;
        }
        lines.push(line(format!("{size} bytes"), &curve));
    }
    report.chart(
        Chart {
            title: "Forwarded on one core".to_owned(),
            up: "Mpps".to_owned(),
            over: "offered, million packets a second".to_owned(),
            lines,
            ..Chart::default()
        },
        &["forwarded-small"],
    )
}
