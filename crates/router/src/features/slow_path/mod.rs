//! Who finishes what the fast path does not: ARP, errors, fragments, packets to the router itself.

mod linux;
mod native;
mod to_linux;

use crate::drop_in::{Frame, Plan};
use crate::features::Feature;
use crate::settings::options::{About, options, words};

words! {
    /// Who finishes what the fast path does not.
    SlowPath {
        /// Linux itself.
        Linux "linux",
        /// Elements of ours, on the slow thread.
        Native "native",
    }
}

options! {
    /// Who finishes what the fast path does not.
    Settings "slow_path" {
        /// Who answers with errors, fragments, processes options, and keeps packets for neighbours that are to be resolved:
        /// "linux", which then has to forward (net.ipv4.ip_forward = 1), or elements of ours: "native". ARP, and packets to the
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
