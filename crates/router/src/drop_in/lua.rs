//! The configuration of `brickway lua FILE PORT...`: a script forwards between the ports, and Linux is the host.

use anyhow::{Result, bail};
use elements::devices::follow_linux::Followed;
use graph::lang::{name_argument, name_arguments, quote};

use super::backstop::PERMITTED;
use super::configuration::{HOST, PlannedPort, marking, to_host};
use super::plan::{Part, Plan};
use super::sysctls::source_modes;
use crate::settings::Host;

/// A script that is the router.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// Its file.
    pub(crate) file: String,
    /// What it gets as `brickway.args`.
    pub(crate) args: String,
    /// Whether Linux gets the packets on which it fails.
    pub(crate) errors_to_linux: bool,
}

/// The name of its element.
pub(crate) const ELEMENT: &str = "main";

const HEAD: &str = "\
// A router whose main loop is a script. Made by `brickway lua FILE PORT...`.
// To change it, save it and run the file: `brickway run FILE.click`.

";

/// The configuration.
///
/// # Errors
///
/// A port is a VLAN of another one.
pub(crate) fn configuration(ports: &[PlannedPort], script: &Script) -> Result<String> {
    if let Some(port) = ports.iter().find(|port| port.vlan.is_some()) {
        bail!(
            "port '{}' is a VLAN; a script's ports are whole interfaces, and see the tags of frames",
            port.name
        );
    }
    let names = name_arguments(ports.iter().map(|port| port.name.as_str()));
    let mut plan = Plan::default();
    plan.text(HEAD);
    let mtus = ports.iter().map(|port| port.mtu.to_string()).collect::<Vec<_>>().join(" ");
    let (file, args) = (quote(&script.file), quote(&script.args));
    let errors = if script.errors_to_linux { format!(", ERRORS {}", ports.len()) } else { String::new() };
    let main = plan.element(
        ELEMENT,
        format_args!("LuaRouter({names}, MTU \"{mtus}\",\n    FILE {file}, ARGS {args}{errors})"),
    );
    plan.text(HOST);
    source_check(&mut plan, ports, &names);
    for (index, port) in ports.iter().enumerate() {
        let PlannedPort { name, mac, .. } = port;
        let (paint, word) = (index + 1, name_argument(name));
        plan.comment(&format!(
            "{name}. The script sees no tags of VLAN 0: Linux, which takes them off, would forward past it."
        ));
        let filter = plan.element(format_args!("filter{paint}"), format_args!("HostEtherFilter({mac})"));
        plan.follow(Followed::Ether, name, &filter, "ether");
        plan.follow(Followed::Stations, name, &filter, "stations");
        plan.follow(Followed::Mtu4, name, &main, &format!("mtu4_{paint}"));
        plan.follow(Followed::Mtu6, name, &main, &format!("mtu6_{paint}"));
        if port.host == Host::Interface {
            plan.follow_alone(Followed::Forwarding, name);
        }
        plan.follow(Followed::Own4, name, &main, &format!("own_{paint}"));
        let is_checked = i32::from(port.rp_filter != 0);
        let gate = plan.element(format_args!("gate{paint}"), format_args!("Switch({is_checked})"));
        plan.follow(Followed::Checked, name, &gate, "switch");
        plan.line(format_args!(
            "FromDevice({word}) -> {filter} -> tag{paint} :: Classifier(12/8100 14/0000%0fff, 12/88a8 14/0000%0fff, -);"
        ));
        plan.line(format_args!("tag{paint}[0] -> VLANDecap(false) -> tag{paint};"));
        plan.line(format_args!("tag{paint}[1] -> VLANDecap(false, ETHERTYPE 0x88a8) -> tag{paint};"));
        plan.line(format_args!("tag{paint}[2] -> Paint({paint}) -> {gate};"));
        plan.line(format_args!("{gate}[0] -> [{index}] {main};  {gate}[1] -> sources;"));
        plan.line(format_args!("out{paint} :: ToDevice({word});"));
        plan.line(format_args!("believed[{paint}] -> [{index}] {main};"));
        let (host, from) = to_host(&mut plan, paint, port);
        plan.line(format_args!("unseen[{paint}] -> {host};  {from} -> out{paint};"));
        plan.line(format_args!("{main}[{index}] -> out{paint};"));
        plan.line(format_args!("as_it_came[{paint}] -> {};", marking(port, PERMITTED)));
    }
    plan.comment("What the script leaves to Linux, as it came. It has a mark: Linux forwards nothing from our ports without it.");
    plan.line(format_args!("{main}[{}] -> frames;", ports.len()));
    Ok(plan.finish())
}

/// Checks the sources of IPv4 before the script, as Linux's rp_filter says of the ports. What Linux has off it may switch on later.
fn source_check(plan: &mut Plan, ports: &[PlannedPort], names: &str) {
    let modes = source_modes(ports.iter().map(|port| port.rp_filter));
    plan.comment("Linux's rp_filter, for IPv4.");
    plan.line(format_args!("sources :: Classifier(12/0800, -);"));
    let check: Part = plan.element("check", format_args!("CheckIPHeader(MARTIANS true)"));
    for port in ports {
        plan.follow(Followed::Own4, &port.name, &check, "own");
    }
    plan.line(format_args!("believed :: PaintSwitch;  believed[0] -> Discard;"));
    plan.line(format_args!(
        "sources[0] -> Strip(14) -> {check} -> source :: CheckReversePath({names}, MODE \"{modes}\") -> UnstripToMACHeader -> believed;"
    ));
    plan.follow(Followed::RpFilter, "", &Part::named("source"), "mode");
    // The script does not see these, so Linux takes those to itself, and forwards none.
    plan.line(format_args!("unseen :: PaintSwitch;  unseen[0] -> Discard;"));
    plan.line(format_args!("source[1] -> UnstripToMACHeader -> Punt -> unseen;"));
    plan.line(format_args!("sources[1] -> believed;"));
}
