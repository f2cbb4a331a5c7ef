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
            interface.filter(|it| it.port.is_some()).map(|it| it.link.clone())
        };
        if !self.links.is_settled {
            return;
        }
        let (before, now) = (of_port(before), of_port(now));
        match (&before, &now) {
            (None, Some(link)) => {
                tracing::info!(event = "port", port = link.name, "{}: its interface is there", link.name)
            }
            (Some(link), None) => {
                tracing::warn!(
                    event = "port",
                    port = link.name,
                    reason = "its interface is gone",
                    "{}: its interface is gone",
                    link.name
                )
            }
            _ => {}
        }
        let Some(link) = now else { return };
        let name = &link.name;
        match (before.map(|before| problem(&before)), problem(&link)) {
            (Some(before), now) if before == now => {}
            (None, None) => {}
            (_, Some(reason)) => tracing::warn!(
                event = "link",
                port = name,
                state = "down",
                reason,
                "{name}: link down ({reason})"
            ),
            (_, None) => tracing::info!(event = "link", port = name, state = "up", "{name}: link up"),
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
