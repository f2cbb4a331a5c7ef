//! Routers of several workers over ports in memory, as `brickway run` would have them: each worker has a CPU and its own queues of the ports.

use std::path::Path;

use anyhow::{Context, Result};
use graph::graph::GraphOptions;
use graph::roles::{Mode, Roles};
use graph::router::RouterOptions;
use packet::PoolOptions;
use ports::{MemoryLoop, Port};

use super::rig::ROUTING;
use super::single_core::ROUTER_PORTS;
use super::sources::{Drawn, Joined, Locked};
use super::{example, frames, median, routes};
use crate::progress;

/// What workers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work<'a> {
    /// The example router, with the routes in this file.
    Router(&'a Path),
    /// FromDevice -> ToDevice.
    Minimal,
    /// A port and a path for each worker, and all paths end at one port more.
    Overlapping,
    /// Four ports, whose packets leave by all four, as their destinations say.
    AnyToAny,
    /// Header check, lookup in this table with a default route, TTL, Ethernet header.
    Routing(&'static str),
}

/// Workers and their ports.
#[derive(Clone, Debug)]
pub(crate) struct Workers<'a> {
    pub(crate) work: Work<'a>,
    pub(crate) mode: Mode,
    pub(crate) workers: usize,
    /// Frames that come in.
    pub(crate) frames: Vec<Vec<u8>>,
    /// Ports over which the queues of an input are spread.
    pub(crate) ports: usize,
    /// Packets that are received at a time, and sent.
    pub(crate) burst: usize,
    /// Ports have one queue in each direction: a worker receives from it, and who sends takes its lock for so many packets.
    pub(crate) locked: Option<usize>,
    /// Destinations are drawn anew in 2^`bits` networks of 256 addresses.
    pub(crate) bits: Option<u32>,
}

impl<'a> Workers<'a> {
    /// Returns workers that get frames of 64 bytes, the frame check sequence among them, to different destinations.
    pub(crate) fn new(work: Work<'a>, mode: Mode, workers: usize) -> Workers<'a> {
        let frames = frames::templates(&routes::default_route(), 256, 60);
        let burst = GraphOptions::default().burst;
        Workers { work, mode, workers, frames, ports: 1, burst, locked: None, bits: None }
    }

    /// Returns who does what. Serial with one worker: it does all. With two: one receives and the other does the rest.
    ///
    /// # Errors
    /// The number of workers does not fit the mode, or their queues cannot be spread evenly over the ports.
    pub(crate) fn roles(&self) -> Result<Roles, String> {
        let roles = Roles::new(self.whole_mode(), self.workers)?;
        if roles.receive.len().is_multiple_of(self.ports) {
            return Ok(roles);
        }
        Err(format!("{} queues cannot be spread evenly over {} ports", roles.receive.len(), self.ports))
    }

    fn whole_mode(&self) -> Mode {
        match (self.mode, self.workers) {
            (Mode::Serial, 1) => Mode::Parallel,
            (Mode::Serial, 2) => Mode::Pipeline,
            (mode, _) => mode,
        }
    }

    /// Returns its name in figures.
    pub(crate) fn name(&self) -> String {
        let ports = if self.ports == 1 { String::new() } else { format!("/ports={}", self.ports) };
        format!("{}/workers={}{ports}", self.mode, self.workers)
    }

    /// Returns ports that receive, and those that only send.
    fn counts(&self) -> (usize, usize) {
        match self.work {
            Work::Router(_) => (1, ROUTER_PORTS - 1),
            Work::Minimal | Work::Routing(_) => (1, 1),
            Work::Overlapping => (self.workers, 1),
            Work::AnyToAny => (ROUTER_PORTS, 0),
        }
    }

    fn configuration(&self) -> (String, Vec<(String, String)>) {
        let mut text = String::new();
        // A port that has one queue belongs to one worker.
        let bound = |ports: usize| {
            let bindings: Vec<String> =
                (0..ports).map(|port| format!("from{port} {}", port % self.workers)).collect();
            format!("StaticThreadSched({});", bindings.join(", "))
        };
        match self.work {
            Work::Router(table) => return (example::ROUTER.to_owned(), example::parameters(table)),
            Work::Routing(table) => {
                let burst = self.burst.to_string();
                let parameters = [("RX", burst.as_str()), ("TX", &burst), ("TABLE", table)];
                let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
                return (ROUTING.to_owned(), parameters.map(owned).to_vec());
            }
            Work::Minimal => text += "FromDevice(bench0) -> ToDevice(bench1);",
            Work::Overlapping => {
                text += &format!("to :: ToDevice(bench{});\n", self.workers);
                for port in 0..self.workers {
                    text += &format!("from{port} :: FromDevice(bench{port}) -> to;\n");
                }
                text += &bound(self.workers);
            }
            Work::AnyToAny => {
                (0..ROUTER_PORTS).for_each(|port| text += &format!("to{port} :: ToDevice(bench{port});\n"));
                for port in 0..ROUTER_PORTS {
                    text += &format!(
                        "from{port} :: FromDevice(bench{port})
                         -> kind{port} :: Classifier(33/00%03, 33/01%03, 33/02%03, -);\n"
                    );
                    (0..ROUTER_PORTS).for_each(|to| text += &format!("kind{port}[{to}] -> to{to};\n"));
                }
                if self.locked.is_some() {
                    text += &bound(ROUTER_PORTS);
                }
            }
        }
        (text, Vec::new())
    }

    /// Runs for so many seconds; returns the million packets a second that left.
    fn run(&self, seconds: f64) -> Result<f64> {
        let roles = self.roles().map_err(anyhow::Error::msg)?;
        let registry = router::classes();
        let (text, parameters) = self.configuration();
        let config = example::compile(&text, parameters, &registry)?;
        // One more for the slow thread.
        let tx_queues = roles.send.len() + 1;
        let is_bound = self.work == Work::Overlapping || self.work == Work::AnyToAny && self.locked.is_some();
        let rx_queues = if is_bound { 1 } else { roles.receive.len() };
        let looped =
            |queues| Box::new(MemoryLoop::with_queues("loop", self.frames.clone(), queues, tx_queues));
        let input = || -> Box<dyn Port> {
            let mut port: Box<dyn Port> = looped(rx_queues);
            if self.ports > 1 {
                let each = (0..self.ports).map(|_| looped(rx_queues / self.ports) as Box<dyn Port>);
                port = Box::new(Joined(each.collect()));
            }
            match self.bits {
                Some(bits) => Box::new(Drawn { port, bits }),
                None => port,
            }
        };
        let (inputs, others) = self.counts();
        let mut ports: Vec<Box<dyn Port>> = (1..inputs).map(|_| input()).collect();
        ports.extend(example::ports(input(), others, tx_queues)?);
        if let Some(at_once) = self.locked {
            let locked = |port| Box::new(Locked::new(port, tx_queues, at_once)) as Box<dyn Port>;
            ports = ports.into_iter().map(locked).collect();
        }
        let pool = PoolOptions { frames: 8192, ..PoolOptions::default() };
        let options = RouterOptions {
            workers: self.workers,
            graph: GraphOptions { pool, burst: self.burst, ..GraphOptions::default() },
            pin: true,
            mode: self.whole_mode(),
            ..RouterOptions::default()
        };
        let mut router = example::build(config, &registry, ports, &options)?;
        if matches!(self.work, Work::Router(_)) {
            example::tell_gateways(&mut router)?;
        }
        example::rate(router, seconds)
    }
}

/// Returns the median million packets a second of each, whose runs take turns.
///
/// # Errors
/// One cannot run.
pub(crate) fn medians(all: &[Workers<'_>], seconds: f64, runs: usize) -> Result<Vec<f64>> {
    let mut rates = vec![Vec::new(); all.len()];
    for run in 1..=runs {
        for (workers, rates) in all.iter().zip(&mut rates) {
            progress::tell("workers", &format!("run {run} of {runs}, {}", workers.name()));
            rates.push(workers.run(seconds).with_context(|| workers.name())?);
        }
    }
    progress::clear();
    Ok(rates.into_iter().map(median).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn serial_begins_with_one_worker() {
        let roles = |workers| Workers::new(Work::Minimal, Mode::Serial, workers).roles().unwrap();
        let all = |roles: Roles| (roles.receive, roles.process, roles.send);
        assert_eq!(all(roles(1)), (vec![0], vec![0], vec![0]));
        assert_eq!(all(roles(2)), (vec![0], vec![1], vec![1]));
        assert_eq!(all(roles(3)), (vec![0], vec![1], vec![2]));
    }

    #[test]
    fn queues_that_do_not_fit_the_ports_are_refused() {
        let mut workers = Workers::new(Work::Minimal, Mode::Parallel, 3);
        workers.ports = 2;
        assert!(workers.roles().unwrap_err().contains("3 queues cannot be spread evenly over 2 ports"));
        workers.workers = 4;
        assert!(workers.roles().is_ok());
    }

    #[test]
    fn all_works_forward_in_each_way_that_experiments_ask_for() {
        for (work, ports, locked, bits) in [
            (Work::Minimal, 2, None, None),
            (Work::Overlapping, 1, None, None),
            (Work::Overlapping, 1, Some(1), None),
            (Work::AnyToAny, 1, Some(32), None),
            (Work::AnyToAny, 1, None, None),
            (Work::Routing("byte24"), 1, None, Some(4)),
        ] {
            let workers = Workers { ports, locked, bits, ..Workers::new(work, Mode::Parallel, 2) };
            assert!(medians(&[workers], 0.02, 1).unwrap()[0] > 0.0, "{work:?}");
        }
    }
}
