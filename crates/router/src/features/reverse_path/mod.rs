//! Which source addresses are believed (RFC 3704).

use anyhow::Result;
use control::backstop::SourceRoute;
use elements::devices::follow_linux::Followed;
use elements::lookup::JUDGES_SOURCES;
use graph::lang::{FlatConfig, split_arguments};
use ports::Sources;

use super::Feature;
use crate::drop_in::{Frame, Part, Plan, source_mode};
use crate::settings::options::{About, options, words};

words! {
    /// Which source addresses are believed.
    ReversePath {
        /// For IPv4 those that Linux's `net.ipv4.conf.*.rp_filter` of the port lets it believe; for IPv6 all.
        Linux "linux",
        /// All.
        Off "off",
        /// Those to which there is a route by any port (2.4).
        Loose "loose",
        /// Those to which there is a route by the port that the packet came in (2.2).
        Strict "strict",
    }
}

options! {
    /// Which source addresses are believed.
    Settings "reverse_path" {
        /// Drop packets whose source address has no route ("loose"), or none by the port that they came in ("strict");
        /// RFC 3704. "off" believes all. "linux" is what net.ipv4.conf.*.rp_filter says of each port; for IPv6, of which Linux has
        /// no such setting, it believes all.
        #[example = "\"linux\""]
        #[flag("reverse-path", "linux|off|loose|strict")]
        mode: ReversePath = ReversePath::Linux,
    }
}

impl About for Settings {
    fn summary(&self) -> Option<(&'static str, String)> {
        Some(("reverse path", self.mode.word().to_owned()))
    }
}

impl Settings {
    /// Returns the mode of CheckReversePath for a port with this rp_filter.
    fn of_port(&self, rp_filter: u8) -> &'static str {
        if self.mode == ReversePath::Linux { source_mode(rp_filter) } else { self.mode.word() }
    }
}

/// Returns the modes of all ports as an argument: one word where they are the same, nothing where all are off and stay so.
fn argument(words: &[&str], may_change: bool) -> Option<String> {
    let first = *words.first()?;
    if words.iter().any(|word| *word != first) {
        return Some(format!("\"{}\"", words.join(" ")));
    }
    (may_change || first != ReversePath::Off.word()).then(|| first.to_owned())
}

impl Feature for Settings {
    fn filters(&self) -> bool {
        matches!(self.mode, ReversePath::Loose | ReversePath::Strict)
    }

    fn sources(&self, rp_filter: u8) -> [Sources; 2] {
        // Linux has no rp_filter for IPv6.
        [rp_filter, 0].map(|rp_filter| match self.of_port(rp_filter) {
            "strict" => Sources::Strict,
            // What goes by a port is not the host's own.
            "loose" | "host" => Sources::Loose,
            _ => Sources::All,
        })
    }

    fn source_route(&self) -> Option<SourceRoute> {
        match self.mode {
            ReversePath::Off | ReversePath::Linux => None,
            ReversePath::Loose => Some(SourceRoute::Any),
            ReversePath::Strict => Some(SourceRoute::Back),
        }
    }

    /// Of several modes the one that refuses least.
    fn source_route_in(&self, config: &FlatConfig) -> Option<SourceRoute> {
        let check = config.elements.iter().find(|element| element.has(JUDGES_SOURCES))?;
        let arguments = split_arguments(&check.config);
        let mode = arguments.iter().find_map(|argument| argument.strip_prefix("MODE ")).unwrap_or_default();
        match ["off", "host", "loose"].iter().find(|word| mode.contains(**word)) {
            Some(&"off" | &"host") => None,
            Some(_) => Some(SourceRoute::Any),
            None => Some(SourceRoute::Back),
        }
    }

    fn before_lookups(&self, plan: &mut Plan, frame: &Frame<'_>, to: [Part; 2]) -> Result<[Part; 2]> {
        let modes4: Vec<&str> = frame.ports.iter().map(|port| self.of_port(port.rp_filter)).collect();
        // Linux has no rp_filter for IPv6.
        let modes6 = vec![self.of_port(0); frame.ports.len()];
        // What Linux has off it may switch on later. Until then the element costs nothing.
        let follows = self.mode == ReversePath::Linux;
        let arguments = [argument(&modes4, follows), argument(&modes6, false)];
        if arguments.iter().any(Option::is_some) {
            plan.comment("Sources that are believed (RFC 3704); those that only Linux can judge go there.");
        }
        let mut from = to;
        for ((to, argument), (name, class)) in from
            .iter_mut()
            .zip(arguments)
            .zip([("source4", "CheckReversePath"), ("source6", "CheckReversePath6")])
        {
            let Some(mode) = argument else { continue };
            let check = plan.element(name, format_args!("{class}({}, MODE {mode}) -> {to}", frame.names));
            plan.line(format_args!("{check}[1] -> {};", frame.to_linux));
            if follows && name == "source4" {
                plan.follow(Followed::RpFilter, "", &check, "mode");
            }
            *to = check;
        }
        Ok(from)
    }
}
