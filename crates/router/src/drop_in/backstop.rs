//! The backstop of a router's filters: what Linux forwards from our ports has to be permitted by them
//! (`control::backstop`), and what is in the way of that.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use control::backstop::{self, Backstop, BackstopPort, SourceRoute};
use ports::{Links, PERMITTED_MARK, Unmerged, takes_tags_out};

use crate::features::vlan::vlan_of;
use crate::settings::{Driver, Fail, Host, PortSettings, Settings};

/// Behind the name of a `host:` port: its packets are marked as permitted.
pub(super) const PERMITTED: &str = "?permitted=yes";

/// The same where nothing filters: Linux opens ESP of these packets without asking the router.
pub(super) const CHECKED: &str = "?checked=yes";

/// From where Linux must not forward what the filters have not permitted.
#[derive(Clone, Debug)]
pub(crate) struct Filtered {
    pub(crate) ports: Vec<PortSettings>,
    /// The route to their source that Linux has to ask of packets, if that is checked.
    pub(crate) source: Option<SourceRoute>,
}

impl Filtered {
    /// Looks whether the filters see the tags of all packets, once the ports are open: these have their cards leave tags in.
    ///
    /// # Errors
    /// A card takes them out all the same.
    pub(crate) fn check(&self) -> Result<()> {
        let links = Links::ask().unwrap_or_default();
        let is_blind = |port: &&PortSettings| {
            let link = links.named(&ports::kernel_name(&port.name));
            port.driver.is_xdp() && link.is_some_and(|link| link.kind != "veth" && takes_tags_out(&link.name))
        };
        match self.ports.iter().find(is_blind) {
            None => Ok(()),
            Some(PortSettings { name, .. }) => Err(anyhow!(
                "port {name}: its card takes VLAN tags out of frames and cannot be told not to, so that filters do not see them; \
                 expected {name}=af_packet:{name}"
            )),
        }
    }
}

/// The filters' hold on Linux.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) backstop: Backstop,
    /// Ports of which Linux must merge no packets.
    merging: Vec<String>,
    /// Those of them of which it does so now.
    unmerged: Vec<Unmerged>,
    /// When Linux was last kept from it.
    kept_apart: Instant,
}

/// How often Linux is kept from merging where it notifies of nothing.
const KEPT_APART_EVERY: Duration = Duration::from_secs(1);

impl Guard {
    /// Lets Linux forward from now on only what the filters have permitted. With `fail = "closed"` that outlives us.
    ///
    /// # Errors
    /// The kernel does not take the rules.
    pub(crate) fn raise(ports: &[PortSettings], fail: Fail, source: Option<SourceRoute>) -> Result<Guard> {
        let guarded: Vec<BackstopPort> = (ports.iter())
            .filter(|port| port.host != Host::None)
            .map(|port| BackstopPort {
                name: ports::kernel_name(&port.name),
                stays: fail == Fail::Closed && port.host == Host::Interface,
            })
            .collect();
        let backstop = Backstop::raise(&guarded, PERMITTED_MARK, source).map_err(|error| {
            let user = |port: &BackstopPort| Some((port.name.clone(), ports::user_of(&port.name)?));
            match guarded.iter().find_map(user) {
                Some((port, process)) if process as u32 != std::process::id() => {
                    anyhow!("process {process} of Brickway routes on {port} already")
                }
                _ => error.into(),
            }
        })?;
        let merging =
            ports.iter().filter(|port| port.driver == Driver::AfPacket && port.host == Host::Interface);
        let merging = merging.map(|port| port.name.clone()).collect();
        let mut guard = Guard { backstop, merging, unmerged: Vec::new(), kept_apart: Instant::now() };
        guard.keep_apart();
        Ok(guard)
    }

    /// Has Linux merge no packets of ports, also of those that were made anew, or on which somebody turned it on meanwhile.
    fn keep_apart(&mut self) {
        for port in &self.merging {
            if let Some(unmerged) = self.unmerged.iter().find(|unmerged| unmerged.interface() == port) {
                unmerged.again();
                continue;
            }
            // The kernel notifies of an interface that comes back; then this is tried again.
            let Ok(Some(unmerged)) = Unmerged::begin(port) else { continue };
            tracing::info!(
                "{port}: Linux merges no received packets (GRO) while the router filters, so that it sees each"
            );
            self.unmerged.push(unmerged);
        }
    }

    /// Brings Linux's interfaces, as they are now, under the filters.
    ///
    /// # Errors
    /// The kernel does not take the rules. The next call tries again.
    pub(crate) fn follow(&mut self) -> std::io::Result<()> {
        let followed = self.backstop.follow();
        // The kernel notifies of GRO that is turned on, and not of its limit.
        if self.backstop.take_notified() || self.kept_apart.elapsed() >= KEPT_APART_EVERY {
            self.keep_apart();
            self.kept_apart = Instant::now();
        }
        followed
    }

    /// The router has begun: interfaces that another one left closed, and that are not its own, open.
    ///
    /// # Errors
    /// The kernel does not take the rules. [`Guard::follow`] tries again.
    pub(crate) fn begin(&mut self) -> std::io::Result<()> {
        let opened = self.backstop.begin()?;
        if !opened.is_empty() {
            tracing::warn!(
                "an earlier router left {} closed; these are not among this router's ports, and Linux forwards from them",
                opened.join(", ")
            );
        }
        Ok(())
    }

    /// The same in the place of an earlier one: what that kept from being merged stays so.
    pub(crate) fn after(mut self, earlier: Option<Guard>) -> Guard {
        self.unmerged.extend(earlier.into_iter().flat_map(|earlier| earlier.unmerged));
        self
    }

    /// The same as these settings want it.
    ///
    /// # Errors
    /// The kernel does not take the rules.
    pub(crate) fn of_settings(settings: &Settings) -> Result<Guard> {
        let source = settings.features.source_route();
        Guard::raise(&settings.ports, settings.general.fail, source)
    }
}

/// Takes away what a router with `fail = "closed"` left on these ports.
pub(crate) fn lift(ports: &[PortSettings]) {
    let names: Vec<String> = ports.iter().map(|port| ports::kernel_name(&port.name)).collect();
    // A kernel without nf_tables has nothing to take away.
    if backstop::guarded_ports().unwrap_or_default().is_empty() {
        return;
    }
    match backstop::remove(&names) {
        Ok(closed) if closed.is_empty() => {}
        Ok(closed) => tracing::warn!(
            "an earlier router left {} closed; this one filters nothing, and Linux forwards from there again",
            closed.join(", ")
        ),
        Err(error) => {
            tracing::warn!("the table of nftables that an earlier router left cannot be removed: {error}")
        }
    }
}

/// Returns the ports from which Linux forwards nothing, because a router with `fail = "closed"` has ended, and that no router has now.
pub(crate) fn closed_ports() -> Vec<String> {
    let is_open = |port: &String| {
        let below = vlan_of(port).map_or(port.as_str(), |(below, _)| below);
        ports::user_of(port).is_some() || ports::user_of(below).is_some()
    };
    // Without the right to ask, or without nf_tables, there is nothing to report.
    backstop::guarded_ports().unwrap_or_default().into_iter().filter(|port| !is_open(port)).collect()
}

/// Says which ports stay as an earlier router left them.
pub(crate) fn report_closed() {
    let closed = closed_ports();
    if !closed.is_empty() {
        tracing::warn!(
            "an earlier router left {0} closed (fail = \"closed\"), of which this one has no port; \
             `brickway doctor {1} --fix` opens what is to be open",
            closed.join(", "),
            closed.join(" ")
        );
    }
}
