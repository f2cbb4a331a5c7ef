//! What the log hears of ports and neighbours. An interface that is there when the router begins is not news.

use super::links::Interface;
use super::neighbours::Entry;
use super::{Mirror, Problem};
use crate::change::{InterfaceIndex, Link, NeighbourState, mac_text};
use std::net::IpAddr;

/// The least time between two problems that are logged.
const PROBLEM_PERIOD_US: u64 = 1_000_000;

/// Why an interface carries no packets.
fn problem(link: &Link) -> Option<&'static str> {
    match (link.is_up, link.has_carrier) {
        (true, true) => None,
        (true, false) => Some("no carrier"),
        (false, _) => Some("set down"),
    }
}

impl Mirror {
    /// An interface of Linux came, changed or went.
    pub(super) fn report_link(&self, before: Option<&Interface>, now: Option<&Interface>) {
        let of_port = |interface: Option<&Interface>| {
            let (port, name) = self.links.port_name(interface?)?;
            Some((port, name, interface?.link.clone()))
        };
        if !self.links.is_settled {
            return;
        }
        let (before, now) = (of_port(before), of_port(now));
        match (&before, &now) {
            (None, Some((port, name, _))) => {
                tracing::info!(event = "port", port, "{name}: its interface is there")
            }
            (Some((port, name, _)), None) => {
                tracing::warn!(
                    event = "port",
                    port,
                    reason = "its interface is gone",
                    "{name}: its interface is gone"
                )
            }
            (Some((.., before)), Some((port, _, now))) if before.name != now.name => {
                tracing::info!(
                    event = "port",
                    port,
                    reason = "renamed",
                    "{port}: Linux calls its interface {} now, before {}",
                    now.name,
                    before.name
                )
            }
            _ => {}
        }
        let Some((port, name, link)) = now else { return };
        match (before.map(|(.., before)| problem(&before)), problem(&link)) {
            (Some(before), now) if before == now => {}
            (None, None) => {}
            (_, Some(reason)) => {
                tracing::warn!(event = "link", port, state = "down", reason, "{name}: link down ({reason})")
            }
            (_, None) => tracing::info!(event = "link", port, state = "up", "{name}: link up"),
        }
    }

    /// Something could not be done as a source wanted. A full table could have a million of these: one a second is logged.
    pub(super) fn report_problem(&mut self, problem: &Problem) {
        let now_us = self.history.now_us;
        if now_us < self.counters.reported_us + PROBLEM_PERIOD_US {
            return;
        }
        self.counters.reported_us = now_us;
        let (table, prefix) = problem.route.unzip();
        let prefix = prefix.map(|prefix| prefix.to_string());
        let reason = &problem.reason;
        tracing::warn!(
            event = "route",
            table,
            prefix,
            reason,
            "{problem} ('brickway show problems' has the last of these)"
        );
    }

    /// What is known of a neighbour has changed.
    pub(super) fn report_neighbour(
        &self,
        (index, address): (InterfaceIndex, IpAddr),
        before: Option<Entry>,
        now: Option<Entry>,
    ) {
        if !self.links.is_settled || self.links.port(index).is_none() {
            return;
        }
        let state = |entry: Option<Entry>| entry.map_or("unknown", |entry| entry.state.name());
        let (was, is) = (state(before), state(now));
        if was != is {
            tracing::debug!(
                event = "neighbour", port = self.links.name(index), neighbour = %address, state = is,
                "neighbour {address} on {}: {was}, now {is}", self.links.name(index)
            );
        }
        let mac = |entry: Option<Entry>| entry.and_then(|entry| entry.usable_mac());
        if let (Some(old), Some(new)) = (mac(before), mac(now))
            && old != new
        {
            let [old, new] = [old, new].map(mac_text);
            tracing::info!(
                event = "neighbour", port = self.links.name(index), neighbour = %address, mac = new,
                reason = "another link address",
                "neighbour {address} on {}: link address {new}, before {old}", self.links.name(index)
            );
        }
        let has_failed =
            |entry: Option<Entry>| entry.is_some_and(|entry| entry.state == NeighbourState::Failed);
        if has_failed(now) && !has_failed(before) && self.leads_through(index, address) {
            tracing::warn!(
                event = "neighbour", port = self.links.name(index), neighbour = %address, state = "failed",
                reason = "it does not answer",
                "neighbour {address} on {}: does not answer; routes lead through it", self.links.name(index)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{Change, Hops, Neighbour, Part, Path, Route, RouteKey, RouteKind, Source};
    use std::fmt::{Debug, Write};
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, UNIX_EPOCH};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    const KERNEL: Source = Source::Netlink;

    /// Writes down events of this crate, a line each: the level, the text, and the reason.
    struct Listener(Arc<Mutex<Vec<String>>>);

    #[derive(Default)]
    struct Said {
        text: String,
        reason: String,
    }

    impl Visit for Said {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            match field.name() {
                "message" => write!(self.text, "{value:?}").unwrap(),
                "reason" => write!(self.reason, " {value:?}").unwrap(),
                _ => {}
            }
        }
    }

    impl Subscriber for Listener {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= tracing::Level::INFO
        }

        fn event(&self, event: &Event<'_>) {
            let mut said = Said::default();
            event.record(&mut said);
            self.0.lock().unwrap().push(format!("{} {}{}", event.metadata().level(), said.text, said.reason));
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// What is logged of what happens to a router with port eth1, interface 1, that knows it already; interface 2 is not a port.
    fn logged(act: impl FnOnce(&mut Mirror)) -> Vec<String> {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        testbed::while_heard(Listener(lines.clone()), || {
            let mut mirror = Mirror::new([("eth1".to_owned(), 0)]).unwrap();
            mirror.dump_begins(KERNEL, Part::Links);
            link(&mut mirror, 1, true, true);
            link(&mut mirror, 2, true, true);
            mirror.dump_ends(KERNEL, Part::Links);
            act(&mut mirror);
        });
        let lines = lines.lock().unwrap();
        lines.clone()
    }

    fn link(mirror: &mut Mirror, index: InterfaceIndex, is_up: bool, has_carrier: bool) {
        mirror.apply(
            KERNEL,
            Change::Link(Link {
                index,
                name: format!("eth{index}"),
                mac: Some([2, 0, 0, 0, 0, index as u8]),
                mtu: 1500,
                is_up,
                has_carrier,
                master: None,
                below: None,
                kind: String::new(),
                vlan: None,
                has_priorities: false,
                vrf_table: None,
            }),
        );
    }

    fn neighbour(mirror: &mut Mirror, mac: u8, state: NeighbourState) {
        let mac = Some([2, 1, 0, 0, 0, mac]);
        let address = "10.0.1.2".parse().unwrap();
        mirror.apply(KERNEL, Change::Neighbour(Neighbour { index: 1, address, mac, state }));
    }

    /// A route by interface 1.
    fn route(mirror: &mut Mirror, prefix: &str, gateway: Option<&str>) {
        let prefix = prefix.parse().unwrap();
        let key = RouteKey { table: 254, prefix, metric: 0, tos: 0, from: None };
        let gateway = gateway.map(|gateway| gateway.parse().unwrap());
        let path = Path { index: 1, gateway, weight: 1, is_down: false, has_encapsulation: false };
        let (kind, protocol, preferred_source, mtu) = (RouteKind::Unicast, 4, None, None);
        let (preference, only_linux, hops) = (Route::MEDIUM, None, Hops::Paths(vec![path]));
        mirror.apply(
            KERNEL,
            Change::Route(Route { key, kind, protocol, preferred_source, mtu, preference, only_linux, hops }),
        );
    }

    #[test]
    fn ports_that_were_there_are_no_news_and_what_they_do_is() {
        let lines = logged(|mirror| {
            link(mirror, 1, true, false);
            link(mirror, 1, true, false);
            link(mirror, 1, false, false);
            link(mirror, 1, true, true);
            link(mirror, 2, false, false);
            mirror.apply(KERNEL, Change::LinkGone(1));
            link(mirror, 1, true, true);
            let is_up = mirror.links.get(1).unwrap().link.clone();
            let renamed = Link { name: "wan0".to_owned(), ..is_up };
            mirror.apply(KERNEL, Change::Link(renamed.clone()));
            mirror.apply(KERNEL, Change::Link(Link { is_up: false, ..renamed }));
        });
        assert_eq!(
            lines,
            [
                "WARN eth1: link down (no carrier) \"no carrier\"",
                "WARN eth1: link down (set down) \"set down\"",
                "INFO eth1: link up",
                "WARN eth1: its interface is gone \"its interface is gone\"",
                "INFO eth1: its interface is there",
                "INFO eth1: Linux calls its interface wan0 now, before eth1 \"renamed\"",
                "WARN eth1 (wan0 in Linux): link down (set down) \"set down\"",
            ]
        );
    }

    #[test]
    fn a_neighbour_is_news_when_it_moves_or_fails_routes() {
        let lines = logged(|mirror| {
            neighbour(mirror, 1, NeighbourState::Reachable);
            neighbour(mirror, 1, NeighbourState::Stale);
            neighbour(mirror, 9, NeighbourState::Reachable);
            // No route leads through it.
            neighbour(mirror, 9, NeighbourState::Failed);
            // Nor does that of its network.
            route(mirror, "10.0.1.0/24", None);
            neighbour(mirror, 9, NeighbourState::Reachable);
            neighbour(mirror, 9, NeighbourState::Failed);
            route(mirror, "10.9.0.0/16", Some("10.0.1.2"));
            neighbour(mirror, 9, NeighbourState::Reachable);
            neighbour(mirror, 9, NeighbourState::Failed);
            neighbour(mirror, 9, NeighbourState::Failed);
        });
        assert_eq!(
            lines,
            [
                "INFO neighbour 10.0.1.2 on eth1: link address 02:01:00:00:00:09, before 02:01:00:00:00:01 \
                 \"another link address\"",
                "WARN neighbour 10.0.1.2 on eth1: does not answer; routes lead through it \"it does not answer\"",
            ]
        );
    }

    #[test]
    fn of_problems_one_a_second_is_logged() {
        let at = |mirror: &mut Mirror, milliseconds| {
            mirror.set_time(UNIX_EPOCH + Duration::from_millis(milliseconds));
            mirror.note(Some((254, "10.9.0.0/16".parse().unwrap())), "there is no room".to_owned());
        };
        let lines =
            logged(|mirror| [5_000, 5_999, 6_000, 6_001].map(|time| at(mirror, time)).into_iter().collect());
        let line = "WARN 10.9.0.0/16: there is no room ('brickway show problems' has the last of these) \
                    \"there is no room\"";
        assert_eq!(lines, [line, line]);
    }
}
