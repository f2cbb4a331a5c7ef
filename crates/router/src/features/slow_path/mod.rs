//! Who finishes what the fast path does not: ARP, errors, fragments, packets to the router itself.

mod linux;
mod native;
mod to_linux;

use crate::drop_in::{Frame, Plan};
use crate::features::Feature;
use crate::settings::options::{About, options, words};

words! {
    /// The slow path, which finishes what the fast path cannot.
    SlowPath {
        /// Linux itself.
        Linux "linux",
        /// Elements of ours, on the slow thread.
        Native "native",
    }
}

options! {
    /// The slow path, which finishes what the fast path cannot.
    Settings "slow_path" {
        /// "linux" or "native": Linux or our elements send errors, fragment, process options, and keep packets for neighbours
        /// that are to be resolved. With "linux" its forwarding has to be on (net.ipv4.ip_forward = 1). ARP, and packets to the
        /// router itself, are Linux's in both.
        #[example = "\"linux\""]
        #[flag("slow-path", "linux|native")]
        mode: SlowPath = SlowPath::Linux,
    }
}

impl About for Settings {
    fn summary(&self) -> Option<(&'static str, String)> {
        Some(("slow path", self.mode.word().to_owned()))
    }
}

impl Feature for Settings {
    fn needs_linux_to_forward(&self) -> bool {
        self.mode == SlowPath::Linux
    }

    fn behind_lookups(&self, plan: &mut Plan, frame: &Frame<'_>) {
        match self.mode {
            SlowPath::Linux => linux::behind_lookups(plan, frame),
            SlowPath::Native => native::behind_lookups(plan, frame),
        }
    }
}
