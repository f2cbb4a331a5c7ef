//! What a newcomer would try on the hosts of one router, and what is expected of each step.

use anyhow::Result;

use super::hosts::{Ping, Stop, TRIES, again, all_answered};
use super::network::{self, HOSTS, Network};
use super::report::Report;
use super::{DemoArguments, FAR_ADDRESS, MTU, Running};
use router::table::thousands;

/// How much of Linux's own TCP goes through the router at least, as it takes the long frames of the hosts whole. A build without
/// optimisation has its own aim.
const LEAST_OF_LINUX: f64 = if cfg!(debug_assertions) { 0.05 } else { 0.7 };

/// The steps, one after another. `linux` is what Linux alone moves, in bits a second.
pub(super) fn exercise(
    arguments: &DemoArguments,
    network: &Network,
    stop: &Stop,
    (router, linux): (&Running, f64),
    report: &mut Report,
) -> Result<()> {
    let (mut all, mut slowest_ms) = (Ping::default(), 0.0f64);
    for from in 0..HOSTS {
        for to in (0..HOSTS).filter(|&to| to != from) {
            report.live(&format!("ping         h{from} -> h{to}"));
            let target = format!("10.0.{to}.2");
            // After one that is silent there is nothing to wait for.
            let ping = match all.is_whole() || all.sent == 0 {
                true => network.hosts[from].reach(&target, 5, stop)?,
                false => network.hosts[from].ping(&target, 5, stop)?,
            };
            all = all.and(ping);
            slowest_ms = slowest_ms.max(ping.average_ms);
        }
    }
    let pairs = HOSTS * (HOSTS - 1);
    let text = format!("{pairs} pairs of hosts, {slowest_ms:.2} ms on average at most: ");
    report.step("ping", all_answered(&text, all));

    let (gateway, routes) = network::gateway_and_routes(&arguments.table, FAR_ADDRESS)?;
    network.hosts[gateway].namespace.ip(&format!("addr add {FAR_ADDRESS}/32 dev lo"))?;
    let from = (gateway + 1) % HOSTS;
    let ping = network.hosts[from].reach(FAR_ADDRESS, 5, stop)?;
    let text =
        format!("{FAR_ADDRESS} from h{from}: by one of {} routes over h{gateway}, ", thousands(routes));
    report.step("real route", all_answered(&text, ping));

    let ping = network.hosts[0].reach("10.0.0.1", 3, stop)?;
    report.step("router", all_answered("10.0.0.1 itself: ", ping));

    let expected = ["10.0.0.1", "10.0.3.2"];
    let hops = network.hosts[0].traceroute("10.0.3.2", &expected, stop)?;
    let text = format!("h0 -> h3: {}", hops.join(", "));
    report.step(
        "traceroute",
        if hops == expected { Ok(text) } else { Err(format!("{text}; expected {}", expected.join(", "))) },
    );

    let mtu = network.hosts[0].too_big("10.0.2.2", 1472, stop)?;
    report.step(
        "too big",
        match mtu {
            Some(mtu) if mtu == MTU => {
                Ok(format!("1,500 bytes with DF set: ICMP fragmentation needed, MTU {mtu}"))
            }
            Some(mtu) => Err(format!("the ICMP error says MTU {mtu} instead of {MTU}")),
            None => Err("no ICMP error for a packet of 1,500 bytes with DF set".into()),
        },
    );
    let fragments = network.hosts[1].reach_fragmented("10.0.2.2", 1472, stop)?;
    report.step("fragments", all_answered("1,500 bytes without DF, sent on in pieces: ", fragments));

    let seconds = arguments.seconds;
    let mut show = || {
        if let Some(line) = router.latest() {
            report.live(&format!("iperf3       {line}"));
        }
    };
    let mut tries = 0;
    let outcome = loop {
        tries += 1;
        let tcp = network.tcp(seconds, stop, &mut show)?;
        let outcome = tcp.and_then(|tcp| {
            let text = format!(
                "TCP h1 -> h3: {} (Linux alone: {:.2}; at least {LEAST_OF_LINUX} of it){}",
                tcp.text(),
                linux / 1e9,
                again(tries)
            );
            if tcp.bits_per_second >= linux * LEAST_OF_LINUX { Ok(text) } else { Err(text) }
        });
        if outcome.is_ok() || tries == TRIES {
            break outcome;
        }
    };
    report.step("iperf3", outcome);
    Ok(())
}
