//! IPsec as Linux's policies and associations say, which an IKE daemon or `ip xfrm` installs.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `configuration` | its elements |
//! | `translation` | what the kernel says, as elements and `ipsec` have it, or why the fast path leaves it to Linux |
//! | `linux_ipsec` | [`LinuxIpsec`]: what there is, and how it changes; the thread that follows the kernel |
//! | `in_cluster` | a node of a cluster: what its leader says, what it says when it leads |
//! | `report` | what goes back to the kernel: numbers, counters, expiry |
//! | `path_mtu` | how long packets to other gateways may be |
//! | `caught` | ESP that Linux makes or is about to open |
//! | `foretold`, `doctor` | what a router would make of it, for `brickway doctor` |
//! | `show` | `brickway show ipsec` |

mod caught;
mod configuration;
mod doctor;
mod foretold;
mod in_cluster;
mod linux_ipsec;
mod path_mtu;
mod report;
mod show;
#[cfg(test)]
mod tests;
mod translation;

use std::sync::Arc;

use anyhow::Result;
use control::supervisor::Supervisor;
use elements::devices::follow_linux::{Followed, Follows};
use elements::ipsec::Activation;
use graph::lang::FlatConfig;
use graph::setup::Shared;

use super::{Feature, Follower, Protector, ProtectorOptions, Running, Shown};
use crate::doctor::Diagnosis;
use crate::drop_in::{Frame, Part, Plan};
use crate::settings::Bypass;
use crate::settings::options::{About, options};
use linux_ipsec::LinuxIpsec;

/// Why the graph has to see all transit.
const POLICIES: &str = "IPsec policies";

options! {
    /// IPsec by Linux's policies and associations.
    Settings "ipsec" {
        /// Sequence numbers in the window against replays, at least: an association whose own window is smaller gets this one. Workers
        /// that decrypt packets of one association side by side need more than the 32 that daemons ask for. 4096 at most; an
        /// association that has no window gets none.
        #[limits(1, ipsec::MAX_WINDOW)]
        #[example = "1024"]
        replay_window: usize = 1024,
    }
}

impl About for Settings {}

impl Settings {
    /// The smallest window against replays.
    fn window(&self) -> u32 {
        // A window has 4,096 numbers at most.
        self.replay_window as u32
    }
}

/// Whether a configuration works by Linux's policies of IPsec.
fn follows(config: &FlatConfig) -> bool {
    Follows::of(config).iter().any(|follows| follows.what == Followed::Ipsec)
}

impl Feature for Settings {
    fn sees_transit(&self, shared: &Shared) -> Option<&'static str> {
        Activation::of(shared).is_some_and(|activation| activation.is_active()).then_some(POLICIES)
    }

    fn examine(&self, ignored: &[Bypass]) -> Diagnosis {
        if ignored.contains(&Bypass::Ipsec) { Diagnosis::default() } else { doctor::examine() }
    }

    fn before_lookups(&self, plan: &mut Plan, frame: &Frame<'_>, to: [Part; 2]) -> Result<[Part; 2]> {
        Ok(if frame.follows_ipsec { configuration::policies(plan, frame, to) } else { to })
    }

    fn before_features(&self, plan: &mut Plan, frame: &Frame<'_>, to: [Part; 2]) -> [Part; 2] {
        if frame.follows_ipsec { configuration::opened(plan, to) } else { to }
    }

    fn follow(
        &self,
        config: &FlatConfig,
        ports: &[String],
        shared: &Shared,
        supervisor: &Supervisor,
    ) -> Result<Option<Arc<dyn Follower>>> {
        if !follows(config) {
            return Ok(None);
        }
        let linux = LinuxIpsec::start(ports.to_vec(), self.window(), shared, supervisor)?;
        Ok(linux.map(|linux| linux as Arc<dyn Follower>))
    }

    fn protect(
        &self,
        options: &ProtectorOptions,
        shared: &Shared,
        supervisor: &Supervisor,
    ) -> Result<Option<Arc<dyn Protector>>> {
        let linux = LinuxIpsec::start_in_cluster(options, self.window(), shared, supervisor)?;
        Ok(Some(linux))
    }

    fn shown(&self) -> &'static [Shown] {
        show::SHOWN
    }

    fn problems(&self, running: &Running<'_>) -> Vec<String> {
        LinuxIpsec::of(running.shared).map_or_else(Vec::new, |linux| linux.problems())
    }
}
