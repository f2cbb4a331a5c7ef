//! MoonRoute's experiments on one core: sizes, table entries, bursts, latency, modules.

use anyhow::Result;

use super::mpps;
use crate::bench::rig::{Application, Rig, Traffic, medians};
use crate::paper::Setting;
use crate::paper::report::{Report, line};
use crate::paper::shape::Curve;
use crate::plot::{Chart, Line};

/// As MoonRoute: DPDK's table of that kind has 2^24 entries for prefixes of up to 24 bits.
const ROUTER: Application = Application::Routing { table: "dir24_8" };
/// Networks of 256 addresses in the whole of IPv4.
const ALL_BITS: u32 = 24;
/// Bursts of its best rate.
const BURST: usize = 128;

/// Cycles of routing random packets, by traffic.
fn routed(setting: &Setting, traffics: &[Traffic], application: Application) -> Result<Vec<f64>> {
    let rigs = traffics.iter().map(|&traffic| Rig::new(application, traffic, BURST, BURST));
    medians(&mut rigs.collect::<Result<Vec<_>>>()?, setting.seconds, setting.runs)
}

/// Section 6.3: packets a second do not depend on the size.
pub(in crate::paper) fn sizes(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let sizes = [64, 128, 192, 256, 384, 544];
    let traffics = sizes.map(|size| Traffic { size: size - 4, bits: Some(ALL_BITS), ..Traffic::SMALL });
    let all = routed(setting, &traffics, ROUTER)?;
    let alone = traffics
        .iter()
        .map(|&traffic| {
            let parts = Rig::new(ROUTER, traffic, BURST, BURST)?.profile(setting.seconds * 2.0)?;
            let is_ours = |class: &str| class != "FromDevice";
            Ok(parts.iter().filter(|(class, _)| is_ours(class)).map(|(_, cycles)| cycles).sum())
        })
        .collect::<Result<Vec<f64>>>()?;
    let rates = |cycles: &[f64]| -> Curve {
        sizes.iter().zip(cycles).map(|(&size, &cycles)| (size as f64, mpps(cycles))).collect()
    };
    report.judge("size-independent", &[rates(&alone)])?;
    report.chart(
        Chart {
            title: "Routing on one core".to_owned(),
            up: "Mpps".to_owned(),
            over: "bytes of a packet".to_owned(),
            lines: vec![
                line("router with its source", &rates(&all)),
                line("router without its source", &rates(&alone)),
            ],
            ..Chart::default()
        },
        &[],
    )?;
    report.remark(
        "The claim is judged without the source in memory: it copies frames with the core that is measured, where a card would write them. Without the source, elements work one by one.",
    );
    Ok(())
}

/// Figure 7: packets a second over the clock.
pub(in crate::paper) fn clock(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let traffic = Traffic { bits: Some(0), ..Traffic::SMALL };
    let cycles = routed(setting, &[traffic], ROUTER)?[0];
    let clocks = [1.2, 1.6, 2.0, 2.4, 2.8, 3.2, 3.6];
    let ours: Curve = clocks.iter().map(|&clock| (clock, clock * 1e3 / cycles)).collect();
    let clock = report.input("its-clock")?;
    report.compare("at-its-clock", clock * 1e3 / cycles)?;
    report.chart(
        Chart {
            title: "Routing on one core".to_owned(),
            up: "Mpps".to_owned(),
            over: "clock of the core, GHz".to_owned(),
            lines: vec![line("ours, by cycles a packet", &ours)],
            ..Chart::default()
        },
        &["mr-clock"],
    )?;
    report.remark("The clock of this machine cannot be set. The line shows its cycles a packet at other clocks, so it is straight by construction.");
    Ok(())
}

/// Figures 9 and 10: the more entries of the table are used, the fewer packets a second.
pub(in crate::paper) fn entries(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let step = if setting.is_quick { 4 } else { 2 };
    let bits: Vec<u32> = (0..=ALL_BITS).step_by(step).collect();
    let traffics: Vec<Traffic> =
        bits.iter().map(|&bits| Traffic { bits: Some(bits), ..Traffic::SMALL }).collect();
    let mut lines = Vec::new();
    for (name, table, key) in
        [("DIR-24-8, 2^24 entries", "dir24_8", Some("entries-fall")), ("ours", "byte24", None)]
    {
        let cycles = routed(setting, &traffics, Application::Routing { table })?;
        let curve: Curve =
            bits.iter().zip(&cycles).map(|(&bits, &cycles)| (f64::from(bits), mpps(cycles))).collect();
        if let Some(key) = key {
            report.judge(key, std::slice::from_ref(&curve))?;
            let (first, last) = (curve[0].1, curve[curve.len() - 1].1);
            let middle = curve.iter().find(|point| point.0 >= 20.0).map_or(last, |point| point.1);
            report.compare("million-entries", middle / first)?;
            report.compare("all-entries", last / first)?;
            for (key, rate) in [("rate-one", first), ("rate-million", middle), ("rate-all", last)] {
                report.compare(key, rate)?;
            }
        }
        lines.push(Line::over_places(name, curve.iter().map(|point| Some(point.1))));
    }
    let places: Vec<String> = bits.iter().map(|bits| format!("2^{bits}")).collect();
    report.chart(
        Chart {
            title: "Routing on one core".to_owned(),
            up: "Mpps".to_owned(),
            over: "used entries of the table".to_owned(),
            places: places.clone(),
            lines,
            ..Chart::default()
        },
        &[],
    )?;
    let lookups = traffics
        .iter()
        .map(|&traffic| {
            let parts = Rig::new(ROUTER, traffic, BURST, BURST)?.profile(setting.seconds * 2.0)?;
            Ok(parts.iter().filter(|(class, _)| class == "RadixIPLookup").map(|(_, cycles)| cycles).sum())
        })
        .collect::<Result<Vec<f64>>>()?;
    let curve: Curve = bits.iter().zip(&lookups).map(|(&bits, &cycles)| (f64::from(bits), cycles)).collect();
    report.judge("lookups-wait", &[curve])?;
    report.chart(
        Chart {
            title: "A lookup".to_owned(),
            up: "TSC cycles".to_owned(),
            over: "used entries of the table".to_owned(),
            places,
            lines: vec![Line::over_places("DIR-24-8, 2^24 entries", lookups.into_iter().map(Some))],
            ..Chart::default()
        },
        &[],
    )?;
    report.remark("Destinations are drawn anew for each packet, in networks of 256 addresses side by side. The paper counts cache misses; virtual machines hide their counters, so cycles of the lookup stand for them.");
    Ok(())
}

/// Bursts of a sweep.
fn bursts(setting: &Setting) -> Vec<usize> {
    let all = [1, 2, 4, 8, 16, 32, 64, 128, 256];
    if setting.is_quick { all.into_iter().step_by(2).collect() } else { all.to_vec() }
}

/// Figure 11: packets a second over receive and transmit bursts.
pub(in crate::paper) fn batches(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let traffic = Traffic { bits: Some(ALL_BITS), ..Traffic::SMALL };
    let sweep = |pairs: &[(usize, usize)]| -> Result<Vec<f64>> {
        let rigs = pairs.iter().map(|&(rx, tx)| Rig::new(ROUTER, traffic, rx, tx));
        let cycles = medians(&mut rigs.collect::<Result<Vec<_>>>()?, setting.seconds, setting.runs)?;
        Ok(cycles.into_iter().map(mpps).collect())
    };
    let mut sizes = bursts(setting);
    sizes.extend([8, 128].into_iter().filter(|size| !sizes.contains(size)).collect::<Vec<_>>());
    sizes.sort_unstable();
    let over = |rates: &[f64]| -> Curve {
        sizes.iter().zip(rates).map(|(&size, &rate)| (size as f64, rate)).collect()
    };
    let by_rx: Vec<(usize, usize)> = sizes.iter().map(|&rx| (rx, 128)).collect();
    let by_tx: Vec<(usize, usize)> = sizes.iter().map(|&tx| (128, tx)).collect();
    let both = [sweep(&by_rx)?, sweep(&by_tx)?];
    let [rx, tx] = [over(&both[0]), over(&both[1])];
    report.judge("rx-rises", &[rx.iter().copied().filter(|point| point.0 <= 128.0).collect()])?;
    report.judge("rx-best", std::slice::from_ref(&rx))?;
    report.judge("tx-8", std::slice::from_ref(&tx))?;
    // What the smallest burst of either leaves of the best rate.
    report.judge("rx-matters-more", &[rx.clone(), tx.clone()])?;
    let drawn = |name: &str, rates: &[f64]| Line::over_places(name, rates.iter().map(|&rate| Some(rate)));
    report.chart(
        Chart {
            title: "Routing random packets on one core".to_owned(),
            up: "Mpps".to_owned(),
            over: "packets of a burst, the other burst being 128".to_owned(),
            places: sizes.iter().map(usize::to_string).collect(),
            lines: vec![drawn("receive burst", &both[0]), drawn("transmit burst", &both[1])],
            ..Chart::default()
        },
        &[],
    )
}

/// Figure 13: latency at nine tenths of the rate, over receive bursts.
pub(in crate::paper) fn latency(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let sizes = bursts(setting);
    let mut lines = Vec::new();
    for tx in [8, 128] {
        let mut curve = Curve::new();
        for &rx in &sizes {
            let full = Traffic { bits: Some(ALL_BITS), ..Traffic::SMALL };
            // What the source's clock takes of the core is part of its load.
            let fast = Traffic { rate: Some(1e9), ..full };
            let cycles = medians(&mut [Rig::new(ROUTER, fast, rx, tx)?], setting.seconds, setting.runs)?[0];
            let rate = 0.9 * packet::cycles::per_second() / cycles;
            let mut rig = Rig::new(ROUTER, Traffic { rate: Some(rate), ..full }, rx, tx)?;
            rig.run_at_rate(setting.seconds.min(0.1))?;
            let mut medians = (0..setting.runs)
                .map(|_| Ok(rig.run_at_rate(setting.seconds)?.median_ns / 1e3))
                .collect::<Result<Vec<f64>>>()?;
            medians.sort_by(f64::total_cmp);
            curve.push((rx as f64, medians[medians.len() / 2]));
        }
        report.judge(
            if tx == 8 { "latency-grows-8" } else { "latency-grows-128" },
            std::slice::from_ref(&curve),
        )?;
        lines
            .push(Line::over_places(format!("transmit burst {tx}"), curve.iter().map(|point| Some(point.1))));
    }
    report.chart(
        Chart {
            title: "Latency at 90 % of the rate, median".to_owned(),
            up: "us".to_owned(),
            over: "packets of a receive burst".to_owned(),
            places: sizes.iter().map(usize::to_string).collect(),
            lines,
            is_logarithmic: true,
            ..Chart::default()
        },
        &[],
    )?;
    report.remark("From the arrival of a packet in the queue, by the clock of its source, to the end of the send that took it; without the time on wires and in cards.");
    Ok(())
}

/// Table 1: what share of the cycles each step takes.
pub(in crate::paper) fn modules(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let traffic = Traffic { bits: Some(ALL_BITS), ..Traffic::SMALL };
    let parts = Rig::new(ROUTER, traffic, BURST, BURST)?.profile(setting.seconds * setting.runs as f64)?;
    let sum: f64 = parts.iter().map(|(_, cycles)| cycles).sum();
    let share = |classes: &[&str]| -> f64 {
        let of = parts.iter().filter(|(class, _)| classes.contains(&class.as_str()));
        of.map(|(_, cycles)| cycles / sum * 100.0).sum()
    };
    let modules: [(&str, &str, &[&str]); 5] = [
        ("send", "share-send", &["ToDevice"]),
        ("routing", "share-routing", &["RadixIPLookup"]),
        ("receive", "share-receive", &["FromDevice"]),
        ("apply route", "share-apply", &["EtherEncap"]),
        ("other", "share-other", &["Strip", "CheckIPHeader", "DecIPTTL"]),
    ];
    for (_, key, classes) in modules {
        report.compare(key, share(classes))?;
    }
    report.chart(
        Chart {
            title: "Shares of the cycles of a packet".to_owned(),
            up: "%".to_owned(),
            over: "module".to_owned(),
            places: modules.map(|(name, ..)| name.to_owned()).to_vec(),
            lines: vec![Line::over_places("ours", modules.map(|(_, _, classes)| Some(share(classes))))],
            has_bars: true,
            ..Chart::default()
        },
        &["mr-modules"],
    )?;
    report.remark(format!(
        "{sum:.0} TSC cycles a packet, elements one by one. Receive writes frames out of memory with random destinations, which a card would do; send frees them."
    ));
    Ok(())
}
