//! `brickway-lab bench`: figures, never verdicts. Each bench prints a table, or with `--json` one object a line
//! with the keys `bench`, `case`, `metric`, `value` and `unit`. Before these stands an object with `bench` and `setting`: CPU,
//! traffic, runs.

mod acl;
mod batching;
mod children;
mod cluster;
mod cpus;
mod distribution;
mod drop_in;
mod elements;
mod example;
mod fabric;
mod fib;
pub(crate) mod file;
mod folder;
mod forward;
mod frames;
mod huge_pages;
pub(crate) mod io;
pub(crate) mod ipsec;
pub(crate) mod lua;
mod mesh;
mod mixed;
mod proof;
mod reload;
pub(crate) mod rig;
mod routes;
mod rules;
mod runs;
mod scaling;
mod single_core;
pub(crate) mod slow_path;
mod sources;
pub(crate) mod splitting;
mod tcp;
pub(crate) mod updates;
pub(crate) mod ways;
pub(crate) mod workers;

pub(crate) use self::children::stop_if_interrupted;

use router::output::say_line;
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use packet::{Vectors, cycles};

#[derive(Subcommand, Debug)]
pub(crate) enum BenchCommand {
    /// The example router's fast path in memory, on one core
    Forward(forward::ForwardArguments),
    /// Mixed sizes, families, options and VLAN tags, beside each kind alone
    Mixed(mixed::MixedArguments),
    /// Lookups in the forwarding tables, beside DPDK's
    Fib(fib::FibArguments),
    /// Forwarding over every driver, beside dpdk-testpmd and the kernel
    Io(io::IoArguments),
    /// TCP between two hosts through Linux and through Brickway, in turns
    Tcp(tcp::TcpArguments),
    /// Rate and latency over receive and transmit bursts
    Batching(batching::BatchingArguments),
    /// Every element by itself, and some with many rules, routes or flows
    Elements(elements::ElementsArguments),
    /// IPsec: ESP by two gateways, beside the ciphers alone
    Ipsec(ipsec::IpsecArguments),
    /// Scripts on a packet's way, beside elements that do the same
    Lua(lua::LuaArguments),
    /// Another configuration in the place of a running one, under traffic
    Reload(reload::ReloadArguments),
    /// Access control lists of any length, on one core
    Acl(acl::AclArguments),
    /// What a packet costs the nodes of a cluster, by role
    Fabric(fabric::FabricArguments),
    /// How long routes take from a cluster's leader to its nodes
    Distribution(distribution::DistributionArguments),
    /// Whole nodes of a cluster on a core each, beside one router
    Cluster(cluster::ClusterArguments),
    /// Forwarding with several workers, in each hand-over mode
    Scaling(scaling::ScalingArguments),
}

pub(crate) fn bench(command: &BenchCommand) -> Result<ExitCode> {
    let (chosen, best) = (Vectors::chosen().map_err(anyhow::Error::msg)?, Vectors::best());
    if let Some(chosen) = chosen.filter(|chosen| *chosen > best) {
        graph::note!(
            "brickway-lab: BRICKWAY_CPU={}: this CPU has no such vectors; {} is used",
            chosen.name(),
            best.name()
        );
    }
    match command {
        BenchCommand::Forward(arguments) => forward::forward(arguments),
        BenchCommand::Mixed(arguments) => mixed::mixed(arguments),
        BenchCommand::Fib(arguments) => fib::fib(arguments),
        BenchCommand::Io(arguments) => io::io(arguments),
        BenchCommand::Tcp(arguments) => tcp::tcp(arguments),
        BenchCommand::Batching(arguments) => batching::batching(arguments),
        BenchCommand::Elements(arguments) => elements::elements(arguments),
        BenchCommand::Ipsec(arguments) => self::ipsec::ipsec(arguments),
        BenchCommand::Lua(arguments) => lua::lua(arguments),
        BenchCommand::Reload(arguments) => reload::reload(arguments),
        BenchCommand::Acl(arguments) => acl::acl(arguments),
        BenchCommand::Fabric(arguments) => fabric::fabric(arguments),
        BenchCommand::Distribution(arguments) => distribution::distribution(arguments),
        BenchCommand::Cluster(arguments) => cluster::cluster(arguments),
        BenchCommand::Scaling(arguments) => scaling::scaling(arguments),
    }
}

/// Returns how many CPUs this process may use.
pub(crate) fn allowed_cpus() -> usize {
    cpus::allowed().len()
}

/// Returns what the processor is, as far as it matters for figures.
pub(crate) fn machine_name() -> String {
    format!("{}, {} CPUs, {}", cpus::model(), allowed_cpus(), Vectors::best().name())
}

/// Prints one figure in the form that all benches share.
fn print_figure(bench: &str, case: &str, metric: &str, value: f64, unit: &str) {
    let value = (value * 1000.0).round() / 1000.0;
    say_line!(
        "{}",
        serde_json::json!({"bench": bench, "case": case, "metric": metric, "value": value, "unit": unit})
    );
}

/// Prints, before all figures, what they are of.
fn print_setting(bench: &str, mut setting: serde_json::Value) {
    setting["cpu"] = cpus::model().into();
    setting["vectors"] = Vectors::best().name().into();
    setting["tsc_ghz"] = ((cycles::per_second() / 1e7).round() / 100.0).into();
    say_line!("{}", serde_json::json!({"bench": bench, "setting": setting}));
}

/// The middle one of some figures.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
